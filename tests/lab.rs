//! The lab: namespaces, emulated gateways, real backends and clients, and the daemons under test.
//!
//! ```text
//!   aws-client   aws-server   azure-client   azure-server        lan: a bridge
//!      TUN          TUN         external        internal       /      |       \
//!        \           \            VXLAN          VXLAN      web-1   web-2 ...  tunnel backends
//!         +--- cloud: gateway nodes, one wire ---+            \      |       /
//!                        |                                     +-----+------+
//!                     ingress ---------- weir --------------------- egress
//! ```
//!
//! The namespaces have no names in `/run/netns`, and the lab disappears with its process.

pub mod capture;
pub mod client;
pub mod container;
pub mod decap;
pub mod error;
pub mod flood;
pub mod folder;
pub mod gateway;
pub mod netns;
mod plane;
pub mod prefix;
pub mod process;
pub mod scenario;
pub mod server;
pub mod settings;
pub mod stepper;
pub mod topology;
pub mod traffic;
pub mod tun;
mod unit;
mod units;
pub mod weir;
pub mod wire;

pub use error::{LabError, Result};
