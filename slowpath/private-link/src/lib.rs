//! Azure Private Link, kept as objects say: a service in front of an internal load balancer, and on
//! the consumers' side its endpoint and the names that lead there.
//!
//! ```text
//!   objects (file, API) --> run.rs: whose turn is it, several at once, each one's rounds in a row
//!                              |
//!                  reconcile.rs: one round over one object
//!                    |                        |
//!           service.rs, subnet.rs,    endpoint.rs, dns.rs
//!           connections.rs            (where the object wants that side)
//!                    |                        |
//!                    '---- delete.rs takes both back ----'
//! ```
//! A round looks at what is there, does the next thing that is missing, and says in conditions how
//! far it has come. It remembers nothing but the object's status, so it may be cut off anywhere. An
//! operation that goes on at Azure is a handle in the status, which later rounds look after.
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
