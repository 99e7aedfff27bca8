//! What a session is asked to be, and which it is.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which session: one with a neighbour, by one way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Key {
    /// The neighbour's address.
    pub peer: IpAddr,
    /// Our address; none leaves it to the kernel's routes.
    pub local: Option<IpAddr>,
    /// The interface by which the neighbour is reached; none leaves it to the kernel's routes.
    pub interface: Option<String>,
    /// Over several hops (RFC 5883) instead of one (RFC 5881).
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

/// What is wanted of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// We send no oftener than this; while the session is not up, no oftener than once a second.
    pub transmit_ms: u32,
    /// We take packets no oftener than this.
    pub receive_ms: u32,
    /// So many of our intervals without a packet, and the neighbour has the session down.
    pub multiplier: u8,
    /// The first word is the neighbour's.
    pub passive: bool,
    /// Whether to claim that BFD goes on here while the control plane doesn't (the C bit). It
    /// doesn't, and a neighbour that believed it might take our restart for a failure of the way
    /// here (RFC 5882, 4.3): for those who must have it.
    pub independent: bool,
    /// Over several hops: packets that arrive with fewer hops left are not taken. 254 allows one
    /// router between us, as FRR does unless told otherwise. A BIRD begins with 64: for one behind
    /// a router it is 63.
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

/// A setting that can't be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{setting} is {found}; allowed is {least} to {most}")]
pub struct SettingsError {
    /// Which.
    pub setting: &'static str,
    /// What it is.
    pub found: u32,
    /// The least that it may be.
    pub least: u32,
    /// The most.
    pub most: u32,
}

impl Settings {
    /// Refuses what is out of range.
    pub fn check(&self) -> Result<(), SettingsError> {
        let within = |setting, found, least, most| match (least..=most).contains(&found) {
            true => Ok(()),
            false => Err(SettingsError { setting, found, least, most }),
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
