//! The keys of the `[health]` section about health checks of backends, validated.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Health checks of backends: limits, sources, and defaults of services.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probing {
    /// Maximum number of concurrent checks, 1 to 10,000.
    pub at_once: u32,
    /// Source addresses of checks, at most one per address family; without one the kernel selects
    /// the address.
    pub sources: Vec<IpAddr>,
    /// PEM file of the certificate authorities for services that name no `ca_file`.
    pub ca_file: PathBuf,
    /// Directory that must contain the `ca_file` of every service.
    pub ca_folder: PathBuf,
    /// Default interval, 100 ms to 300 s.
    pub interval: Duration,
    /// Default timeout, 10 ms to the interval.
    pub timeout: Duration,
    /// Default number of consecutive successful checks for a healthy verdict, 1 to 100.
    pub rise: u8,
    /// Default number of consecutive failed checks for an unhealthy verdict, 1 to 100.
    pub fall: u8,
    /// Default maximum random delay of a check in percent of the interval, 0 to 50.
    pub jitter_percent: u8,
    /// Maximum number of doublings of `rise` for a flapping backend, 0 to 6.
    pub damping: u8,
}
