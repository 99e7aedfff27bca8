//! Listeners of slowpath with bounded numbers of connections, and timeouts.
//!
//! ```text
//!   bind.rs    binding with retries and backoff; failures are published and do not end the process
//!   accept.rs  accept loops, with handling of exhausted descriptors
//!   slots.rs   connection limits per listener and source; eviction
//!   limits.rs  limits, timeouts and counters of a listener
//!   peer.rs    credentials of processes that connect to Unix sockets
//!   source.rs  peers of connections, as counted by limits
//!   stream.rs  connections with write timeouts
//!   body.rs    bodies: the minimum receive rate of request bodies, the end of responses
//!   http.rs    HTTP/1 server for a connection
//! ```
//! The health endpoint, health check ports, metrics, the API and the control socket use this
//! crate, so that idle, slow or numerous clients cost each of them a bounded number of descriptors
//! and bytes.
#![forbid(unsafe_code)]

mod accept;
mod bind;
mod body;
mod http;
mod limits;
mod peer;
mod slots;
mod source;
mod stream;

pub use accept::{Accept, accept, accept_and_close};
pub use bind::{BindError, Conditions, ListenerStatus, bind};
pub use body::TooSlow;
pub use http::{Connection, Http, http};
pub use limits::{Counts, Limits, ReservedNetworks, SlotError, Timeout, Timeouts};
pub use peer::Peer;
pub use slots::{Slot, Slots};
pub use source::{Source, SourceKey};
pub use stream::{Socket, Stream};
