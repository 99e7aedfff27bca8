//! Our BFD on real networks, with real neighbours.

mod bird;
mod frr;
mod network;
mod restart;
mod strangers;
