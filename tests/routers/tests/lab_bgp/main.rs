//! A whole appliance and the routers beside it: what they are told of it, that it is true, and what
//! becomes of real traffic meanwhile.
//!
//! ```text
//!            client -- router --+-- data segment ---- in0 [ appliance ] eg0 -- web-1, web-2
//!                               |                          mgmt0
//!                               +-- management network ------'
//! ```
//!
//! The session is on either network; the next hop is the data port's address in any case.

mod conditions;
mod leaving;
mod place;
mod reach;
mod restarts;
mod routes;
mod truth;
