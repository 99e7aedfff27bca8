//! The measurements: who is compared with whom, in one run, and how to read what comes out.
//!
//! ```text
//!   comparison ── case ── programs (a peer, Weir, a generator), each in a session of its own
//!       │           │
//!       │           └── rate, and the share of its core that the polling thread really had
//!       └── rounds, in alternation ── medians, ratios to the comparison's limit
//! ```
//!
//! README.md says how figures are stated and what makes a run worthless.

#![forbid(unsafe_code)]

pub mod compare;
pub mod feed;
pub mod flood;
pub mod frames;
pub mod kernel;
pub mod machine;
pub mod meter;
pub mod peers;
pub mod poller;
pub mod process;
pub mod start;
pub mod world;

pub use compare::{Case, Comparison};
pub use process::{Program, Reading};
