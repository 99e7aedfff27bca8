//! CPU time, memory and threads of this process, from `/proc`.

use std::fs;
use std::io;

use tables::region::{ProcessUsage, Region};

/// Figures of a process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Process {
    /// User and system time in seconds.
    pub cpu_s: f64,
    /// Number of threads.
    pub threads: f64,
    /// Time of its start, in seconds since the machine started.
    pub started_s: f64,
    /// Virtual memory in bytes.
    pub virtual_bytes: f64,
    /// Resident memory in bytes, without huge pages.
    pub resident_bytes: f64,
}

/// Reads the figures of this process.
///
/// # Errors
/// `/proc/self/stat` cannot be read, or has an unknown format.
pub fn own() -> io::Result<Process> {
    let text = fs::read_to_string("/proc/self/stat")?;
    parse(&text).ok_or_else(|| io::Error::other("/proc/self/stat: unknown format"))
}

/// Publishes the CPU time and memory of this process in `region`. Only the data plane calls it.
pub fn publish_usage(region: &Region) {
    // If the figures cannot be read, the published ones stay.
    if let Ok(own) = own() {
        region.set_data_plane_usage(ProcessUsage {
            cpu_ms: (own.cpu_s * 1000.0) as u64,
            resident_bytes: own.resident_bytes as u64,
        });
    }
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

#[cfg(test)]
mod tests {
    use tables::layout::Sizes;
    use tables::region::Role;

    use super::*;

    #[test]
    fn figures_of_this_process_are_plausible() {
        let figures = own().unwrap();
        assert!(figures.threads >= 1.0 && figures.resident_bytes > 1e5);
        assert!(figures.virtual_bytes >= figures.resident_bytes && figures.cpu_s >= 0.0);
        assert_eq!(parse("1 (a) R 1"), None);
        // Names with parentheses and spaces.
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (pid, rest) = stat.split_once(' ').unwrap();
        let after = rest.rsplit_once(')').unwrap().1;
        let odd = parse(&format!("{pid} (a) b (c){after}")).unwrap();
        assert_eq!(odd.started_s, figures.started_s);
    }

    #[test]
    fn usage_is_published_while_the_process_is_the_data_plane() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let claim = region.claim(Role::Fastpath).unwrap();
        assert_eq!(region.data_plane_usage(), None);
        publish_usage(&region);
        assert!(region.data_plane_usage().unwrap().resident_bytes > 100_000);
        drop(claim);
        assert_eq!(region.data_plane_usage(), None);
    }
}
