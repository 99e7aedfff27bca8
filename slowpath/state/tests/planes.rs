//! Planes of maps and the reconciler, from outside: step by step, by random histories, in lives
//! with faults and restarts, and with power that goes at any byte.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails where what it expects is not so"
)]

#[path = "planes/crashes.rs"]
mod crashes;
#[path = "planes/maps.rs"]
mod maps;
#[path = "planes/property.rs"]
mod property;
#[path = "planes/simulation.rs"]
mod simulation;
#[path = "planes/world/mod.rs"]
mod world;
