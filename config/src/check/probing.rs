//! Validation of the keys of `[health]` that concern health checks of backends.

use std::net::IpAddr;
use std::time::Duration;

use super::validator::{Validator, list_key};
use crate::checked::Probing;
use crate::file;

pub(super) fn check(validator: &mut Validator, file: &file::Health) -> Probing {
    if file.timeout_ms > file.interval_ms {
        let fault = "longer than the interval between checks";
        let remedy = format!("allowed: at most health.interval_ms, {}", file.interval_ms);
        validator.reject("health.timeout_ms", fault, &remedy);
    }
    validator.path("health.ca_file", &file.ca_file, 4_095);
    validator.path("health.ca_folder", &file.ca_folder, 4_095);
    let texts = &file.probe_sources;
    let keyed = |(i, text): (usize, &String)| {
        let key = list_key("health", "probe_sources", i, texts);
        validator.address(&key, text).map(|addr| (key, addr))
    };
    let sources: Vec<(String, IpAddr)> = texts.iter().enumerate().filter_map(keyed).collect();
    let families: Vec<(String, bool)> =
        sources.iter().map(|(key, addr)| (key.clone(), addr.is_ipv4())).collect();
    validator.unique(&families, "family");
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
