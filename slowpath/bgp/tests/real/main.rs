//! Tests of the BGP speaker against FRR, BIRD and GoBGP in network namespaces.

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
