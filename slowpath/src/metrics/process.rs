//! Metrics of processes: slowpath's under Prometheus' standard names, and those of the data plane.

use std::fmt;
use std::fs;
use std::io;

use ::tables::region::{Region, Role};
use rustix::process::{Resource, getrlimit};

use super::declared as metric;
use super::family::Family;

/// Figures of a process in `/proc`.
struct Process {
    /// User and system time in seconds.
    cpu_s: f64,
    threads: f64,
    /// Time of its start in seconds since the machine's.
    started_s: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

/// Reads the figures of a process by its id, or of this one as `self`.
fn read(pid: &str) -> io::Result<Process> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse(&text).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat: unknown format")))
}

/// Parses the content of `/proc/PID/stat` (proc(5)).
fn parse(stat: &str) -> Option<Process> {
    // The name of the program, in parentheses, may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    // The first field after the name is field 3.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let page = rustix::param::page_size() as f64;
    Some(Process {
        cpu_s: (field(14)? + field(15)?) / ticks,
        threads: field(20)?,
        started_s: field(22)? / ticks,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page,
    })
}

/// Returns the time at which the machine started, in seconds since 1970.
fn boot_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Encodes the metrics of slowpath and of the data plane of `region`. What cannot be read has no
/// sample.
pub(super) fn encode(region: &Region, family: &mut Family<'_, '_>) -> fmt::Result {
    let own = read("self").ok();
    let of = |part: fn(&Process) -> f64| own.as_ref().map(|own| ([], part(own)));
    family.seconds(&metric::PROCESS_CPU, of(|own| own.cpu_s))?;
    family.gauges(&metric::PROCESS_MEMORY, of(|own| own.resident_bytes))?;
    family.gauges(&metric::PROCESS_VIRTUAL, of(|own| own.virtual_bytes))?;
    family.gauges(&metric::PROCESS_THREADS, of(|own| own.threads))?;
    let started = own.as_ref().zip(boot_time()).map(|(own, boot)| ([], boot + own.started_s));
    family.gauges(&metric::PROCESS_START, started)?;
    // The folder is one of them while it is read.
    let open = fs::read_dir("/proc/self/fd").map(|entries| entries.count().saturating_sub(1));
    family.gauges(&metric::PROCESS_FDS, open.ok().map(|open| ([], open as f64)))?;
    let limit = getrlimit(Resource::Nofile).current;
    family.gauges(&metric::PROCESS_MAX_FDS, limit.map(|limit| ([], limit as f64)))?;
    let data_plane = match region.pid(Role::Fastpath) {
        0 => None,
        pid => read(&pid.to_string()).ok(),
    };
    let of = |part: fn(&Process) -> f64| data_plane.as_ref().map(|other| ([], part(other)));
    family.seconds(&metric::DATA_PLANE_CPU, of(|other| other.cpu_s))?;
    family.gauges(&metric::DATA_PLANE_MEMORY, of(|other| other.resident_bytes))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use ::tables::layout::Sizes;
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::metrics::declared::compare;

    /// This process as the data plane of a region.
    #[test]
    fn a_visible_data_plane_has_figures() {
        #[derive(Debug)]
        struct Processes(Region);
        impl Collector for Processes {
            fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
                super::encode(&self.0, &mut Family(&mut encoder))
            }
        }
        let scrape = |region: Region| {
            let (mut registry, mut text) = (Registry::default(), String::new());
            registry.register_collector(Box::new(Processes(region)));
            encode(&mut text, &registry).unwrap();
            compare(&text)
        };
        let region = || Region::anonymous(&Sizes::SMALL).unwrap();
        let (with, without) = (region(), scrape(region()));
        drop(with.claim(Role::Fastpath).unwrap());
        let with = scrape(with);
        assert!(with.differences.is_empty(), "{with:?}");
        let is_of_data_plane = |name: &&String| name.starts_with("weir_data_plane_");
        assert_eq!(with.sampled.iter().filter(is_of_data_plane).count(), 2);
        assert_eq!(without.sampled.iter().filter(is_of_data_plane).count(), 0);
        assert_eq!(without.sampled.len(), 7, "{without:?}");
    }

    #[test]
    fn figures_of_this_process_are_plausible() {
        let own = read("self").unwrap();
        assert!(own.threads >= 1.0 && own.resident_bytes > 1e5);
        assert!(own.virtual_bytes >= own.resident_bytes && own.cpu_s >= 0.0);
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let started = boot_time().unwrap() + own.started_s;
        assert!(started > now - 3600.0 * 24.0 && started < now + 2.0, "{started} {now}");
        assert!(read("0").is_err() && parse("1 (a) R 1").is_none());
        // Names with parentheses and spaces.
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (pid, rest) = stat.split_once(' ').unwrap();
        let after = rest.rsplit_once(')').unwrap().1;
        let odd = parse(&format!("{pid} (a) b (c){after}")).unwrap();
        assert_eq!(odd.started_s, own.started_s);
    }
}
