//! Our speaker on real networks, with real routers.

mod frr;
mod network;
