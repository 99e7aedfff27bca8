//! Azure Private Link as reconciled objects: a private link service in front of an internal load
//! balancer, and on the consumer side a private endpoint and the DNS names that point to it.
//!
//! ```text
//!   objects (file, API) --> controller.rs: queue, several rounds at once, one per object
//!                              |
//!                  reconcile.rs: one round for one object
//!                    |                        |
//!           service.rs, subnet.rs,    endpoint.rs, dns.rs
//!           connections.rs            (if the object has an endpoint)
//!                    |                        |
//!                    '------- delete.rs: removes both ----'
//! ```
//! A round reads the observed state, performs the next missing step, and reports its progress in
//! conditions. All that the next round needs is in the object's status and at Azure, so a round may
//! be interrupted anywhere. The handle of a long operation at Azure is stored in the status, and
//! later rounds poll the operation.
#![forbid(unsafe_code)]

mod connections;
mod context;
pub mod controller;
mod delete;
mod dns;
mod endpoint;
mod errors;
mod frontend;
pub mod lease;

pub mod names;
pub mod object;
mod operations;
mod reconcile;
mod round;

mod service;
pub mod status_view;
mod subnet;

pub use config::private_link::time;

pub use connections::{Decision, decide};
pub use context::{ArmClients, Role, RoundContext, Settings};
pub use errors::delay_after;
pub use operations::{ENDPOINT_SIDE, LEASE, SERVICE_SIDE};
pub use reconcile::{Finalizer, Next, Round, reconcile};
pub use round::Event;
