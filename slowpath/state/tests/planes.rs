//! Integration tests of the reconciler with the map plane, a plane for tests that consists of maps
//! in memory, laid out like Cilium's: single steps, random histories, lifetimes of an appliance
//! with faults and restarts, and power failures at any byte.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic on a failed expectation")]

#[path = "planes/crashes.rs"]
mod crashes;
#[path = "planes/fixture/mod.rs"]
mod fixture;
#[path = "planes/maps.rs"]
mod maps;
#[path = "planes/property.rs"]
mod property;
#[path = "planes/simulation.rs"]
mod simulation;
