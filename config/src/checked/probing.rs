//! How backends are probed: the part of `[health]` that is about them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::arms;
use super::door::Door;
use crate::file;

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

pub(super) fn check(door: &mut Door, file: &file::Health) -> Probing {
    if file.timeout_ms > file.interval_ms {
        let wrong = "a backend's next probe would be due before its end";
        let allowed = format!("allowed: at most health.interval_ms, {}", file.interval_ms);
        door.refuse("health.timeout_ms", wrong, &allowed);
    }
    door.path("health.ca_file", &file.ca_file, 4_095);
    door.path("health.ca_folder", &file.ca_folder, 4_095);
    let texts = &file.probe_sources;
    let keyed = |(i, text): (usize, &String)| {
        let key = arms::listed("health", "probe_sources", i, texts);
        door.address(&key, text).map(|addr| (key, addr))
    };
    let sources: Vec<(String, IpAddr)> = texts.iter().enumerate().filter_map(keyed).collect();
    let families: Vec<(String, bool)> =
        sources.iter().map(|(key, addr)| (key.clone(), addr.is_ipv4())).collect();
    door.unique(&families, "family");
    Probing {
        at_once: file.probes_at_once,
        sources: sources.into_iter().map(|(_, addr)| addr).collect(),
        ca_file: file.ca_file.as_str().into(),
        ca_folder: file.ca_folder.as_str().into(),
        interval: Duration::from_millis(file.interval_ms.into()),
        timeout: Duration::from_millis(file.timeout_ms.into()),
        rise: file.rise,
        fall: file.fall,
        jitter_percent: file.jitter_percent,
        damping: file.damping,
    }
}
