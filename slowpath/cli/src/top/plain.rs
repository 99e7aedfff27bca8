//! `weir top` as text: one table of all services and drops per sample, for pipes, files and
//! terminals without cursor positions.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::options::{GlobalOptions, Output};
use crate::output::{print_next, write_stdout};
use crate::request::get;
use crate::table::{Table, count, span};
use slowpath::control::report::{DropReport, ServiceReport, Status};
use slowpath::metrics::traffic::OTHERS;
use state::text::address_port;

/// A sample of the live system.
#[derive(Serialize)]
pub struct Sample {
    /// Time of the sample.
    #[serde(skip)]
    pub at: Instant,
    /// Response of `GET /status`.
    pub status: Status,
    /// Response of `GET /services`.
    pub services: Vec<ServiceReport>,
    /// Response of `GET /drops`.
    pub drops: Vec<DropReport>,
}

fn sample(socket: &Path) -> Result<Sample, String> {
    Ok(Sample {
        at: Instant::now(),
        status: get(socket, "/status")?,
        services: get(socket, "/services")?,
        drops: get(socket, "/drops")?,
    })
}

/// Prints a sample every `every`, `samples` times or until interrupted. With `redraw`, tables are
/// drawn in place.
pub fn run(
    options: &GlobalOptions,
    socket: &Path,
    every: Duration,
    samples: Option<u64>,
    redraw: bool,
) -> Result<(), String> {
    let mut before: Option<Sample> = None;
    let mut done = 0;
    while samples.is_none_or(|samples| done < samples) {
        let text = match sample(socket) {
            Ok(now) if options.output() != Output::Table => {
                print_next(&now, options.output());
                before = Some(now);
                String::new()
            }
            Ok(now) => {
                let text = render(&now, before.as_ref());
                before = Some(now);
                text
            }
            // slowpath may be restarting: the error is shown and sampling continues.
            Err(e) if before.is_some() => format!("{e}\n"),
            Err(e) => return Err(e),
        };
        match redraw {
            _ if options.output() != Output::Table => {}
            // Home, each line cleared to its end, the rest of the screen cleared.
            true => write_stdout(&format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))),
            false => write_stdout(&format!("{text}\n")),
        }
        done += 1;
        if samples.is_none_or(|samples| done < samples) {
            std::thread::sleep(every);
        }
    }
    Ok(())
}

/// Counters of the previous sample, from which rates per second are computed.
struct PreviousCounters<'a> {
    /// Seconds between the two samples; 0 for the first sample.
    seconds: f64,
    /// Packets by service name and backend id.
    backends: HashMap<(&'a str, u32), u64>,
    /// Packets by arm and drop reason.
    drops: HashMap<(&'a str, &'a str), u64>,
}

impl<'a> PreviousCounters<'a> {
    fn new(now: &Sample, before: Option<&'a Sample>) -> PreviousCounters<'a> {
        let seconds = before.map_or(0.0, |b| now.at.duration_since(b.at).as_secs_f64());
        let services = before.iter().flat_map(|b| &b.services);
        let backends = services.flat_map(|service| {
            service.backends.iter().map(|b| ((service.name.as_str(), b.id), b.packets))
        });
        let drops = before.iter().flat_map(|b| &b.drops);
        let drops = drops.map(|d| ((d.arm.as_str(), d.reason.as_str()), d.packets));
        PreviousCounters { seconds, backends: backends.collect(), drops: drops.collect() }
    }

    fn rate(&self, now: u64, before: Option<&u64>) -> String {
        match before {
            Some(before) if self.seconds > 0.0 => {
                count((now.saturating_sub(*before) as f64 / self.seconds).round() as u64)
            }
            _ => "-".to_owned(),
        }
    }
}

/// Formats the whole view.
pub fn render(now: &Sample, before: Option<&Sample>) -> String {
    let status = &now.status;
    let previous = PreviousCounters::new(now, before);
    let able = if status.able { "able to serve" } else { "UNABLE to serve" };
    let busy = status.lcores.iter().map(|l| format!("{:.0} %", l.busy * 100.0));
    let mut text = format!(
        "{} {able}, up {}, generation {}, flows {} of {}, lcores busy {}\n",
        status.name,
        span(status.uptime_s),
        status.generation,
        count(status.flows.used),
        count(status.flows.max),
        busy.collect::<Vec<_>>().join(", "),
    );
    for reason in &status.reasons {
        text.push_str(&format!("  - {reason}\n"));
    }
    text.push('\n');
    let mut table = Table::new(&[
        "SERVICE",
        "BACKEND",
        "STATE",
        ">SHARE",
        ">FLOWS",
        ">BEGUN",
        ">PACKETS",
        ">PACKETS/S",
    ]);
    for service in &now.services {
        table.row(vec![service.name.clone()]);
        for b in &service.backends {
            let own = |text: String| if b.in_others { OTHERS.to_owned() } else { text };
            let packets = previous.backends.get(&(service.name.as_str(), b.id));
            table.row(vec![
                String::new(),
                address_port(&b.address, b.port),
                b.state.clone(),
                format!("{:.1} %", b.share * 100.0),
                own(count(b.flows)),
                own(count(b.new_flows)),
                own(count(b.packets)),
                own(previous.rate(b.packets, packets)),
            ]);
        }
    }
    text.push_str(&table.text());
    text.push('\n');
    let mut table = Table::new(&["DROPS", "REASON", ">PACKETS", ">PACKETS/S"]);
    for d in now.drops.iter().filter(|d| d.packets > 0) {
        let before = previous.drops.get(&(d.arm.as_str(), d.reason.as_str()));
        let rate = previous.rate(d.packets, before);
        table.row(vec![d.arm.clone(), d.reason.clone(), count(d.packets), rate]);
    }
    if table.is_empty() {
        text.push_str("no drops\n");
    } else {
        text.push_str(&table.text());
    }
    text
}
