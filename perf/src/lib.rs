//! Measurements of Weir and of reference programs, in the same run.
//!
//! ```text
//!   comparison ── case ── programs (a reference, Weir, a generator), each in its own session
//!       │           │
//!       │           └── rate, and the share of its core that the polling thread had
//!       └── rounds, in alternation ── medians, ratios to the comparison's reference
//! ```
//!
//! README.md describes how figures are stated and what invalidates a run.

#![forbid(unsafe_code)]

pub mod capture;
pub mod compare;
pub mod feed;
pub mod fixture;
pub mod flood;
pub mod frames;
pub mod kernel;
pub mod machine;
pub mod meter;
pub mod peers;
pub mod poller;
pub mod process;
pub mod start;

pub use compare::{Case, Comparison};
pub use process::{Program, Reading};
