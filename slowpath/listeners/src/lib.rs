//! Bounded listeners: the one way in which slowpath accepts connections.
//!
//! ```text
//!   bind.rs    binds, and retries with backoff; a failure is a condition, not the process's end
//!   accept.rs  accepts, and survives a lack of descriptors; asks slots.rs for each connection
//!   slots.rs   how many connections there may be, by source; which one is evicted for a new one
//!   limits.rs  what a listener allows, and what it counted
//!   stream.rs  a connection: write time-outs
//!   body.rs    bodies: the minimum rate of a request's, the end of a response's
//!   http.rs    serves HTTP/1 on a connection
//! ```
//! Health, node ports, metrics, the API and the control socket all listen by this crate, so that
//! idle, slow or numerous peers cost any of them a bounded number of descriptors and bytes.
#![forbid(unsafe_code)]

mod accept;
mod bind;
mod body;
mod http;
mod limits;
mod slots;
mod source;
mod stream;

pub use accept::{Accept, accept, accept_and_close};
pub use bind::{BindError, Conditions, ListenerStatus, bind};
pub use body::TooSlow;
pub use http::{Connection, Http, http};
pub use limits::{Counts, Limits, Refused, Reserved, Timeout, Timeouts};
pub use slots::{Slot, Slots};
pub use source::{Source, SourceKey};
pub use stream::{Socket, Stream};
