//! Settings and keys of BFD sessions.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Identifies a session: a neighbor and the path to it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Address of the neighbor.
    pub peer: IpAddr,
    /// Local address; `None` leaves the choice to the kernel's routing.
    pub local: Option<IpAddr>,
    /// Interface through which the neighbor is reached; `None` leaves the choice to the kernel's
    /// routing.
    pub interface: Option<String>,
    /// Multihop (RFC 5883) instead of single-hop (RFC 5881).
    pub multihop: bool,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.peer)?;
        if let Some(interface) = &self.interface {
            write!(f, "%{interface}")?;
        }
        if self.multihop { f.write_str(" (multihop)") } else { Ok(()) }
    }
}

/// Settings of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Minimum interval between sent packets in milliseconds, 10 to 60,000 (default 300). While the
    /// session is not up, at least one second applies (RFC 5880 section 6.8.3).
    pub transmit_ms: u32,
    /// Minimum interval between received packets that is supported, in milliseconds, 10 to 60,000
    /// (default 300).
    pub receive_ms: u32,
    /// Detection multiplier, 2 to 255 (default 3): after this many of our transmit intervals
    /// without a packet, the neighbor takes the session down.
    pub multiplier: u8,
    /// Send no packet before the neighbor does (passive role, RFC 5880 section 6.1).
    pub passive: bool,
    /// Set the C bit, which claims that BFD survives a failure of the control plane. This BFD does
    /// not, so a neighbor that relies on the bit may take a restart of this process for a failure
    /// of the path (RFC 5882 section 4.3). Only for neighbors that require the bit.
    pub independent: bool,
    /// Multihop only: minimum TTL of received packets, 1 to 255 (default 254). 254 allows one
    /// router on the path, like FRR's default. BIRD sends with TTL 64, so that a BIRD behind one
    /// router needs 63.
    pub minimum_ttl: u8,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            transmit_ms: 300,
            receive_ms: 300,
            multiplier: 3,
            passive: false,
            independent: false,
            minimum_ttl: 254,
        }
    }
}

/// A setting is out of range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{setting} is {found}; allowed: {min} to {max}")]
pub struct SettingsError {
    /// Name of the setting.
    pub setting: &'static str,
    /// Its value.
    pub found: u32,
    /// Minimum.
    pub min: u32,
    /// Maximum.
    pub max: u32,
}

impl Settings {
    /// Checks that all settings are in range.
    pub fn check(&self) -> Result<(), SettingsError> {
        let within = |setting, found, min, max| match (min..=max).contains(&found) {
            true => Ok(()),
            false => Err(SettingsError { setting, found, min, max }),
        };
        within("transmit_ms", self.transmit_ms, 10, 60_000)?;
        within("receive_ms", self.receive_ms, 10, 60_000)?;
        within("multiplier", self.multiplier.into(), 2, 255)?;
        within("minimum_ttl", self.minimum_ttl.into(), 1, 255)
    }

    pub(crate) fn transmit(&self) -> Duration {
        Duration::from_millis(self.transmit_ms.into())
    }

    pub(crate) fn receive(&self) -> Duration {
        Duration::from_millis(self.receive_ms.into())
    }
}
