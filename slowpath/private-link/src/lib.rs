//! Azure Private Link as reconciled objects: a private link service in front of an internal load
//! balancer, and on the consumer side a private endpoint and the DNS names that point to it.
//!
//! ```text
//!   objects (file, API) --> run.rs: queue of objects, several rounds at once, one per object
//!                              |
//!                  reconcile.rs: one round for one object
//!                    |                        |
//!           service.rs, subnet.rs,    endpoint.rs, dns.rs
//!           connections.rs            (where the object wants that side)
//!                    |                        |
//!                    '---- delete.rs takes both back ----'
//! ```
//! A round reads the observed state, performs the next missing step, and reports its progress in
//! conditions. It depends on nothing but the object's status, so it may be interrupted anywhere. A
//! long operation at Azure is stored in the status as a handle, which later rounds poll.
#![forbid(unsafe_code)]

mod ask;
mod connections;
mod course;
mod delete;
mod dns;
mod endpoint;
mod errors;
mod frontend;
pub mod lease;

pub mod names;
pub mod object;
mod reconcile;
pub mod run;

mod service;
mod subnet;
pub mod told;

mod turn;

pub use config::private_link::time;

pub use ask::{ENDPOINT_SIDE, LEASE, SERVICE_SIDE};
pub use connections::{Verdict, decide};
pub use course::Event;
pub use errors::pause_after;
pub use reconcile::{Finalizer, Next, Round, reconcile};
pub use turn::{Arms, Settings, Standing, Turn};
