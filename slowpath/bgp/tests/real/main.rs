//! Our speaker on real networks, with real routers.

mod authenticated;
mod far;
mod lasting;
mod near;
mod network;
mod plan;
mod restarts;
mod sockets;
mod speaks;
mod theirs;
