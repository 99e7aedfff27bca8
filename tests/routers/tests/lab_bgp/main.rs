//! A complete appliance and the routers beside it: the routes that they receive, whether these
//! are valid, and the effect on real traffic.
//!
//! ```text
//!            client -- router --+-- data segment ---- in0 [ appliance ] eg0 -- web-1, web-2
//!                               |                          mgmt0
//!                               +-- management network ------'
//! ```
//!
//! The session uses either network; the next hop is the data port's address in any case.

mod conditions;
mod lab;
mod networks;
mod restarts;
mod routes;
mod shutdown;
mod withdrawal;
