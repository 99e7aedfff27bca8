//! Metrics of processes: slowpath's under Prometheus' standard names, and those of the data plane.

use std::fmt;
use std::fs;

use ::tables::region::Region;
use host::process::{self, Process};
use rustix::process::{Resource, getrlimit};

use super::declared as metric;
use super::family::Family;

/// Returns the time at which the machine started, in seconds since 1970.
fn boot_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Encodes the metrics of slowpath, and those that the data plane of `region` published. What
/// cannot be read has no sample.
pub(super) fn encode(region: &Region, family: &mut Family<'_, '_>) -> fmt::Result {
    let own = process::own().ok();
    let of = |part: fn(&Process) -> f64| own.as_ref().map(|own| ([], part(own)));
    family.counters(&metric::PROCESS_CPU, of(|own| own.cpu_s))?;
    family.gauges(&metric::PROCESS_MEMORY, of(|own| own.resident_bytes))?;
    family.gauges(&metric::PROCESS_VIRTUAL, of(|own| own.virtual_bytes))?;
    family.gauges(&metric::PROCESS_THREADS, of(|own| own.threads))?;
    let started = own.as_ref().zip(boot_time()).map(|(own, boot)| ([], boot + own.started_s));
    family.gauges(&metric::PROCESS_START, started)?;
    // Without the descriptor of the folder itself while it is read.
    let open = fs::read_dir("/proc/self/fd").map(|entries| entries.count().saturating_sub(1));
    family.gauges(&metric::PROCESS_FDS, open.ok().map(|open| ([], open as f64)))?;
    let limit = getrlimit(Resource::Nofile).current;
    family.gauges(&metric::PROCESS_MAX_FDS, limit.map(|limit| ([], limit as f64)))?;
    let usage = region.data_plane_usage();
    let cpu_s = usage.map(|usage| ([], usage.cpu_ms as f64 / 1000.0));
    family.counters(&metric::DATA_PLANE_CPU, cpu_s)?;
    let memory = usage.map(|usage| ([], usage.resident_bytes as f64));
    family.gauges(&metric::DATA_PLANE_MEMORY, memory)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use ::tables::layout::Sizes;
    use ::tables::region::Role;

    use super::*;
    use crate::metrics::declared::compare;
    use crate::metrics::family;

    #[test]
    fn data_plane_has_figures_while_it_runs() {
        let region: &'static Region =
            Box::leak(Box::new(Region::anonymous(&Sizes::SMALL).unwrap()));
        let scrape = || {
            let found = compare(&family::text(move |family| encode(region, family)).unwrap());
            assert!(found.differences.is_empty(), "{found:?}");
            let of_data_plane = |name: &&String| name.starts_with("weir_data_plane_");
            (found.sampled.len(), found.sampled.iter().filter(of_data_plane).count())
        };
        let claim = region.claim(Role::Fastpath).unwrap();
        assert_eq!(scrape(), (7, 0), "it has published nothing yet");
        process::publish_usage(region);
        assert_eq!(scrape(), (9, 2));
        drop(claim);
        assert_eq!(scrape(), (7, 0));
    }

    #[test]
    fn start_time_of_this_process_is_plausible() {
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let started = boot_time().unwrap() + process::own().unwrap().started_s;
        assert!(started > now - 3600.0 * 24.0 && started < now + 2.0, "{started} {now}");
    }
}
