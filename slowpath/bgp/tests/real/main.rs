//! Tests of the BGP speaker against FRR, BIRD and GoBGP in network namespaces.

mod authenticated;
mod lifetime;
mod link_local;
mod long_lived;
mod multihop;
mod neighbor;
mod network;
mod plan;
mod restarts;
mod rotation;
mod sockets;
