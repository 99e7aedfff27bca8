//! Tests of BFD against FRR and BIRD in network namespaces.

mod bird;
mod frr;
mod network;
mod restart;
mod unconfigured;
