//! Real routers for tests: FRR, BIRD and GoBGP as packaged by Debian, each in a namespace that
//! the test creates, with its own directories and sockets.
//!
//! ```no_run
//! use routers::{Daemon, End, Frr, cable, namespace};
//! # fn main() -> routers::Result<()> {
//! let (ours, theirs) = (namespace("ours")?, namespace("theirs")?);
//! cable(
//!     End { ns: &ours, device: "up", addresses: &["10.0.0.1/24", "fd00::1/64"] },
//!     End { ns: &theirs, device: "down", addresses: &["10.0.0.2/24", "fd00::2/64"] },
//! )?;
//! let mut frr = Frr::start(
//!     &theirs,
//!     &[Daemon::Bgpd, Daemon::Bfdd],
//!     "router bgp 65002\n neighbor 10.0.0.1 remote-as 65001\n neighbor 10.0.0.1 bfd\n",
//! )?;
//! println!("{}", frr.json("show bgp summary")?);
//! frr.kill(Daemon::Bgpd)?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything is removed with the last value that refers to it, also if a test panics; and with
//! the process if that is killed: the kernel then ends the daemons and removes the namespaces.

#![forbid(unsafe_code)]

mod bird;
mod cable;
mod frr;
mod gobgp;
mod program;

pub use bird::Bird;
pub use cable::{End, beyond_a_router, cable, namespace};
pub use frr::{Daemon, Frr};
pub use gobgp::Gobgp;
pub use nix::sys::signal::Signal;
pub use patience::DEFAULT_TIMEOUT;
pub use tests::lab::netns::Netns;
pub use tests::lab::{LabError, Result};

use std::time::{Duration, Instant};

use patience::poll;

/// Polls until the condition holds, and returns the time at which it did. The last observation is
/// part of the error; an error of the poll itself is treated as an observation, since a starting
/// daemon does not respond yet.
pub fn wait_for(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> Result<(bool, String)>,
) -> Result<Instant> {
    let at = poll(what, patience, || match look() {
        Ok((true, _)) => Ok(Instant::now()),
        Ok((false, seen)) => Err(seen),
        Err(error) => Err(error.to_string()),
    })?;
    Ok(at)
}
