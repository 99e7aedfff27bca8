//! How backends are probed: the part of `[health]` that is about them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The part of `[health]` that is about backends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probing {
    /// Probes that are under way at once, at most; 1 to 10,000.
    pub at_once: u32,
    /// Whence they come, one of each family at most.
    pub sources: Vec<IpAddr>,
    /// Authorities of services that name no file.
    pub ca_file: PathBuf,
    /// The folder in which files of authorities that services name have to be.
    pub ca_folder: PathBuf,
    /// Of services that don't say: 100 ms to 300 s.
    pub interval: Duration,
    /// Of services that don't say: 10 ms to the interval.
    pub timeout: Duration,
    /// Of services that don't say: 1 to 100.
    pub rise: u8,
    /// Of services that don't say: 1 to 100.
    pub fall: u8,
    /// Of services that don't say: 0 to 50.
    pub jitter_percent: u8,
    /// How often the rise of one that flaps is doubled at most: 0 to 6.
    pub damping: u8,
}
