//! Real routers for tests: FRR, BIRD and GoBGP as packaged by Debian, each in a network namespace
//! that the test creates, with its own directories and sockets.
//!
//! ```no_run
//! use routers::{Daemon, End, Frr, namespace, veth_pair};
//! # fn main() -> routers::Result<()> {
//! let (local, peer) = (namespace("local")?, namespace("peer")?);
//! veth_pair(
//!     End { ns: &local, device: "to-peer", addresses: &["10.0.0.1/24", "fd00::1/64"] },
//!     End { ns: &peer, device: "to-local", addresses: &["10.0.0.2/24", "fd00::2/64"] },
//! )?;
//! let mut frr = Frr::start(
//!     &peer,
//!     &[Daemon::Bgpd, Daemon::Bfdd],
//!     "router bgp 65002\n neighbor 10.0.0.1 remote-as 65001\n neighbor 10.0.0.1 bfd\n",
//! )?;
//! println!("{}", frr.json("show bgp summary")?);
//! frr.kill(Daemon::Bgpd)?;
//! # Ok(())
//! # }
//! ```
//!
//! Daemons, directories and namespaces are removed when the last value that refers to them is
//! dropped, also if a test panics. If the process is killed, the kernel ends the daemons and
//! removes the namespaces.

#![forbid(unsafe_code)]

mod bird;
mod cable;
mod frr;
mod gobgp;
mod program;

pub use bird::Bird;
pub use cable::{End, namespace, routed_namespaces, veth_pair};
pub use frr::{Daemon, Frr};
pub use gobgp::Gobgp;
pub use nix::sys::signal::Signal;
pub use patience::DEFAULT_TIMEOUT;
pub use tests::lab::netns::Netns;
pub use tests::lab::{LabError, Result};

use std::time::{Duration, Instant};

use patience::poll;

/// Calls `look` until it returns true, and returns the time at which that call ended.
///
/// With false, `look` returns what it observed. An error of `look` counts as false, since a
/// starting daemon does not respond yet.
///
/// # Errors
/// `look` has not returned true within `patience`. The error has `what` and the last observation or
/// error of `look`.
pub fn wait_for(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> Result<(bool, String)>,
) -> Result<Instant> {
    let held_at = poll(what, patience, || match look() {
        Ok((true, _)) => Ok(Instant::now()),
        Ok((false, observed)) => Err(observed),
        Err(error) => Err(error.to_string()),
    })?;
    Ok(held_at)
}
