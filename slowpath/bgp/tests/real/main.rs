//! Our speaker on real networks, with real routers.

mod network;
mod restarts;
mod sockets;
mod speaks;
mod theirs;
