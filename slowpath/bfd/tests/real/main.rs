//! Tests of the BFD driver in network namespaces: with FRR and BIRD as neighbors, and without a
//! neighbor.

mod bird;
mod frr;
mod network;
mod restart;
mod unconfigured;
