//! Tests of a complete appliance with FRR or BIRD as its router: which routes the router has, and
//! whether clients behind the router are served over them.
//!
//! ```text
//!            client -- router --+-- data segment ---- in0 [ appliance ] eg0 -- web-1, web-2
//!                               |                          mgmt0
//!                               +-- management network ------'
//! ```
//!
//! The session uses either network; the next hop is the data port's address in any case.

mod conditions;
mod events;
mod lab;
mod networks;
mod restarts;
mod routes;
mod shutdown;
mod withdrawal;
