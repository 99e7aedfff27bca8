//! slowpath, the control plane. Sources send the desired state, the control loop reconciles the
//! tables in the region with it, and the data plane forwards packets by these tables.
//!
//! ```text
//!  sources/   services file, API --> objects --> rows of services, frontends, backends
//!                                                  |
//!             reconcile.rs: the control loop, one thread, which alone writes tables
//!              ^        ^        |            |
//!  kernel/   next hops  |        v            v
//!  health/   verdicts of probes  plane/      live.rs: state that the loop publishes for readers
//!                                region,      |
//!                                rings        +--> control/   socket of `weir`, API, traces
//!                                  |          +--> metrics/   Prometheus
//!                                  |          +--> page/      the page for browsers
//!                               fastpath      +--> health/    responses to the cloud's probes
//!                                             +--> cloud/     lifecycle at AWS or Azure
//!                                             +--> routing/   BGP
//!                                             +--> telemetry/ OpenTelemetry
//! ```
//! `start.rs` starts all of them. slowpath may be killed at any time: the fastpath continues with
//! the tables as they are, and the next slowpath recovers its state from the region.
#![forbid(unsafe_code)]

pub mod cloud;
pub mod control;
pub mod health;
pub mod kernel;
pub mod live;
pub mod measurements;
pub mod metrics;
pub mod page;
pub mod plane;
pub mod reconcile;
pub mod routing;
pub mod sources;
pub mod start;
mod telemetry;
