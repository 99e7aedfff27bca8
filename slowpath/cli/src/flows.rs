//! `weir flows` and `weir trace`: show the flow table, and trace packets through the stages of the
//! pipeline.

use std::collections::HashMap;
use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::time::Duration;

use clap::{Args, value_parser};

use super::options::{GlobalOptions, Output};
use super::output::{print_next, write_stdout};
use super::request::{self, RequestError, escaped, get};
use super::show;
use slowpath::control::report::{Failure, FlowPage, TraceLine};

/// Arguments of `weir flows`.
#[derive(Args)]
pub struct FlowsArgs {
    #[command(flatten)]
    filter: FlowFilter,
    /// Maximum number of flows to show
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Show all flows
    #[arg(long)]
    all: bool,
}

/// Filter of flows, or of packets by their flow; all given conditions must hold.
#[derive(Args)]
pub struct FlowFilter {
    /// Show only this client: ADDRESS or ADDRESS:PORT
    #[arg(long)]
    pub client: Option<String>,
    /// Show only this frontend: ADDRESS or ADDRESS:PORT
    #[arg(long)]
    pub frontend: Option<String>,
    /// Show only this backend: ADDRESS or ADDRESS:PORT
    #[arg(long)]
    pub backend: Option<String>,
    /// Show only this service
    #[arg(long)]
    pub service: Option<String>,
    /// Show only this protocol: tcp, udp, icmp, icmpv6 or a number
    #[arg(long)]
    pub protocol: Option<String>,
}

/// Arguments of `weir trace`.
#[derive(Args)]
pub struct TraceArgs {
    #[command(flatten)]
    filter: FlowFilter,
    /// Number of packets to trace, at most 1000
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=1000))]
    packets: u32,
    /// Maximum number of seconds to wait for these packets, at most 3600
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

impl FlowFilter {
    /// Formats the filter as query parameters, to be appended to others.
    pub fn query(&self) -> String {
        let pairs = [
            ("client", &self.client),
            ("frontend", &self.frontend),
            ("backend", &self.backend),
            ("service", &self.service),
            ("protocol", &self.protocol),
        ];
        let mut query = String::new();
        for (name, value) in pairs {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", escaped(value)));
            }
        }
        query
    }
}

/// Requests flows page by page, up to the limit.
pub fn flows(socket: &Path, args: &FlowsArgs) -> Result<FlowPage, String> {
    let limit = if args.all { u32::MAX } else { args.limit };
    let mut all = FlowPage::default();
    let mut from = 0;
    loop {
        let left = limit.saturating_sub(all.flows.len() as u32);
        let path = format!("/flows?from={from}&limit={left}{}", args.filter.query());
        let page: FlowPage = get(socket, &path)?;
        all.total = page.total;
        all.flows.extend(page.flows);
        all.next = page.next;
        match page.next {
            Some(next) if (all.flows.len() as u32) < limit && next > from => from = next,
            _ => return Ok(all),
        }
    }
}

/// Runs `weir trace`.
pub fn trace(options: &GlobalOptions, socket: &Path, args: &TraceArgs) -> Result<(), String> {
    let (packets, seconds) = (args.packets, args.seconds);
    let path = format!("/trace?packets={packets}&seconds={seconds}{}", args.filter.query());
    let idle_timeout = request::IDLE_TIMEOUT + Duration::from_secs(u64::from(seconds) + 5);
    let answer = request::lines(socket, &path, idle_timeout).map_err(|e| e.to_string())?;
    if std::io::stderr().is_terminal() && options.output() == Output::Table {
        eprintln!("waiting up to {seconds} s for {packets} packets");
    }
    let mut packets: HashMap<(u32, u32), Vec<String>> = HashMap::new();
    let mut any = false;
    for line in answer.lines() {
        let line = line.map_err(|e| RequestError::Truncated(e).to_string())?;
        if let Ok(failure) = serde_json::from_str::<Failure>(&line) {
            return Err(failure.error);
        }
        let stage: TraceLine = serde_json::from_str(&line)
            .map_err(|e| RequestError::Malformed(e.to_string()).to_string())?;
        any = true;
        if options.output() != Output::Table {
            print_next(&stage, options.output());
            continue;
        }
        // Packets of a burst go through the stages together; the output groups lines by packet.
        let of_packet = packets.entry((stage.lcore, stage.packet)).or_default();
        of_packet.push(show::trace(&stage));
        if stage.last {
            write_stdout(&format!("{}\n\n", of_packet.join("\n")));
            packets.remove(&(stage.lcore, stage.packet));
        }
    }
    // Packets of which the last stage was not received.
    for lines in packets.values() {
        write_stdout(&format!("{}\n\n", lines.join("\n")));
    }
    if any { Ok(()) } else { Err(format!("no packet matched within {seconds} s")) }
}
