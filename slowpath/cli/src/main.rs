//! The `weir` command: reads the live system over slowpath's unix socket, and checks files.

mod ask;
mod db;
mod draw;
mod explain;
mod get;
mod health;
mod offline;
mod pages;
mod show;
mod top;

use std::collections::HashMap;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;

use ask::AskError;
use slowpath::report::{DropReport, Failure, FlowPage, ServiceReport, Status, TraceLine};
use slowpath::sources::CONFIG;

/// Where slowpath listens when nobody says.
const SOCKET: &str = "/run/weir/control.sock";

/// Shows and checks what the Weir appliance does.
#[derive(Parser)]
#[command(name = "weir", version)]
struct Cli {
    #[command(flatten)]
    with: With,
    #[command(subcommand)]
    what: What,
}

/// What all subcommands take.
#[derive(Args)]
pub struct With {
    /// Configuration file [default: /etc/weir/weir.toml where it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A setting that overrides file and environment, as in --set ingress.mtu=9001
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// slowpath's control socket [default: control.socket of the configuration]
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON for programs instead of tables for people
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Is the appliance able, and if not, why; lcores, generation, next hops
    Status,
    /// Services with their frontends, backends and traffic
    Services {
        /// Only services whose name contains this
        name: Option<String>,
    },
    /// Live flows, from the flow table itself
    Flows(FlowsArgs),
    /// Drops by arm and reason, with what each reason means
    Drops {
        /// Also the reasons without a drop
        #[arg(long)]
        all: bool,
    },
    /// Follows packets of one flow, stage by stage
    Trace(TraceArgs),
    /// What would become of a packet that came now, and why; nothing is sent and nothing changed
    Explain(explain::ExplainArgs),
    /// Tells health probes that no new traffic is wanted; flows go on, and so do packets that come
    /// all the same. It holds over restarts of slowpath and fastpath, until --undo or a reboot
    Drain {
        /// Traffic is wanted again
        #[arg(long)]
        undo: bool,
    },
    /// The configuration file
    #[command(subcommand)]
    Config(ConfigWhat),
    /// Memory for DPDK and the region
    #[command(subcommand)]
    Hugepages(HugepagesWhat),
    /// The tables of the control state: services, frontends, backends, health of the parts
    #[command(subcommand)]
    Db(db::DbWhat),
    /// Objects as they were given, with what became of them
    Get(get::GetArgs),
    /// Health of backends as it is measured: state, since when, the last probe and why
    Health(health::HealthArgs),
    /// What lies in the plane, one line a thing
    #[command(subcommand)]
    Maps(get::MapsWhat),
    /// Completions for a shell: `weir completions bash > /etc/bash_completion.d/weir`
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Writes man pages
    Man {
        /// Into this folder
        #[arg(long, default_value = ".", value_name = "FOLDER")]
        out: PathBuf,
    },
    /// Live view: flows and packets per service and backend, drops by reason
    Top {
        /// Seconds between two looks
        #[arg(long, default_value_t = 1.0)]
        every: f64,
        /// How many looks, then end; without it until Ctrl-C
        #[arg(long)]
        looks: Option<u64>,
    },
}

/// Which flows, and how many.
#[derive(Args)]
struct FlowsArgs {
    #[command(flatten)]
    filter: FlowFilter,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// All of them
    #[arg(long)]
    all: bool,
}

/// Which flows; all given conditions must hold.
#[derive(Args)]
struct FlowFilter {
    /// Only this client: ADDRESS or ADDRESS:PORT
    #[arg(long)]
    client: Option<String>,
    /// Only this frontend: ADDRESS or ADDRESS:PORT
    #[arg(long)]
    frontend: Option<String>,
    /// Only this backend: ADDRESS or ADDRESS:PORT
    #[arg(long)]
    backend: Option<String>,
    /// Only this service
    #[arg(long)]
    service: Option<String>,
    /// Only this protocol: tcp, udp, icmp, icmpv6 or a number
    #[arg(long)]
    protocol: Option<String>,
}

#[derive(Args)]
struct TraceArgs {
    #[command(flatten)]
    filter: FlowFilter,
    /// How many packets to follow
    #[arg(long, default_value_t = 4)]
    packets: u32,
    /// How long to wait for them, in seconds
    #[arg(long, default_value_t = 30)]
    seconds: u32,
}

#[derive(Subcommand)]
enum ConfigWhat {
    /// Checks configuration and services file, prints what is in force and from where
    Check,
}

#[derive(Subcommand)]
enum HugepagesWhat {
    /// What memory the configuration needs, term by term
    Plan,
    /// What of it is missing, and what to type
    Check,
    /// Reserves it now (root)
    Apply,
}

/// Runs the command line; the exit code is 0, 1 for "no", 2 for errors.
fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err(text) => {
            // What config renders has its own form, over several lines.
            match text.starts_with(char::is_whitespace) {
                true => eprintln!("{text}"),
                false => eprintln!("weir: {text}"),
            }
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, String> {
    let with = &cli.with;
    match &cli.what {
        What::Config(ConfigWhat::Check) => return offline::config_check(with),
        What::Hugepages(what) => return offline::hugepages(with, what),
        What::Completions { shell } => {
            pages::completions(Cli::command(), *shell);
            return Ok(ExitCode::SUCCESS);
        }
        What::Man { out } => {
            pages::man(Cli::command(), out)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let socket = socket(with)?;
    match &cli.what {
        What::Status => {
            let status: Status = get(&socket, "/status")?;
            print(with, &status, || show::status(&status));
            return Ok(if status.able { ExitCode::SUCCESS } else { ExitCode::from(1) });
        }
        What::Services { name } => {
            let mut services: Vec<ServiceReport> = get(&socket, "/services")?;
            if let Some(part) = name {
                services.retain(|service| service.name.contains(part.as_str()));
            }
            print(with, &services, || show::services(&services));
        }
        What::Flows(args) => {
            let page = flows(&socket, args)?;
            print(with, &page, || show::flows(&page));
        }
        What::Drops { all } => {
            let drops: Vec<DropReport> = get(&socket, "/drops")?;
            print(with, &drops, || show::drops(&drops, *all));
        }
        What::Trace(args) => trace(with, &socket, args)?,
        What::Explain(args) => explain::run(with, &socket, args)?,
        What::Drain { undo } => {
            let what = if *undo { "off" } else { "on" };
            let done = ask::order(&socket, &format!("/drain/{what}")).map_err(|e| e.to_string())?;
            print(with, &done, || format!("{done}\n"));
        }
        What::Top { every, looks } => top::run(&socket, *every, *looks)?,
        What::Db(what) => db::run(with, &socket, what)?,
        What::Get(args) => get::get(with, &socket, args)?,
        What::Health(args) => health::run(with, &socket, args)?,
        What::Maps(what) => get::maps(with, &socket, what)?,
        What::Config(_) | What::Hugepages(_) | What::Completions { .. } | What::Man { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, String> {
    ask::document(socket, path).map_err(|e: AskError| e.to_string())
}

fn print<T: Serialize>(with: &With, document: &T, text: impl FnOnce() -> String) {
    let text = match with.json {
        true => serde_json::to_string_pretty(document).unwrap_or_default() + "\n",
        false => text(),
    };
    put(&text);
}

/// Writes to stdout; a reader that went away (`weir flows | head`) ends us quietly.
fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// The socket: as told, else the configuration's, else the default.
fn socket(with: &With) -> Result<PathBuf, String> {
    if let Some(socket) = &with.socket {
        return Ok(socket.clone());
    }
    match (&with.config, Path::new(CONFIG).exists()) {
        (None, false) if with.set.is_empty() => Ok(SOCKET.into()),
        _ => Ok(offline::load(with)?.control.socket),
    }
}

impl FlowFilter {
    fn query(&self) -> String {
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

/// Percent-encodes all but letters, digits and the harmless marks (RFC 3986 2.3).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

fn flows(socket: &Path, args: &FlowsArgs) -> Result<FlowPage, String> {
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

fn trace(with: &With, socket: &Path, args: &TraceArgs) -> Result<(), String> {
    let (packets, seconds) = (args.packets, args.seconds);
    let path = format!("/trace?packets={packets}&seconds={seconds}{}", args.filter.query());
    let patience = Duration::from_secs(u64::from(seconds) + 5);
    let answer = ask::lines(socket, &path, patience).map_err(|e| e.to_string())?;
    if std::io::stderr().is_terminal() && !with.json {
        eprintln!("waiting up to {seconds} s for {packets} packets");
    }
    let mut packets: HashMap<(u32, u32), Vec<String>> = HashMap::new();
    let mut any = false;
    for line in answer.lines() {
        let line = line.map_err(|e| AskError::Cut(e).to_string())?;
        if let Ok(failure) = serde_json::from_str::<Failure>(&line) {
            return Err(failure.error);
        }
        let stage: TraceLine = serde_json::from_str(&line)
            .map_err(|e| AskError::Strange(e.to_string()).to_string())?;
        any = true;
        if with.json {
            put(&(line + "\n"));
            continue;
        }
        // Packets of one burst go through the stages together; people read one after the other.
        let of_packet = packets.entry((stage.lcore, stage.packet)).or_default();
        of_packet.push(show::trace(&stage));
        if stage.last {
            put(&format!("{}\n\n", of_packet.join("\n")));
            packets.remove(&(stage.lcore, stage.packet));
        }
    }
    for lines in packets.values() {
        put(&format!("{}\n\n", lines.join("\n")));
    }
    if any { Ok(()) } else { Err(format!("no packet of that flow came within {seconds} s")) }
}

#[cfg(test)]
mod tests;
