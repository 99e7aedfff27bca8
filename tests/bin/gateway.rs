//! `weir-gateway`: emulates an AWS Gateway Load Balancer, for an appliance outside AWS.

#![forbid(unsafe_code)]

use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tests::lab::gateway::{Gateway, GatewaySetup, Report};
use tests::lab::netns::need_root;
use tests::lab::prefix::Prefix;
use tests::lab::tun::Tun;
use tests::lab::{LabError, Result};

/// Emulate an AWS Gateway Load Balancer in front of an appliance.
///
/// Packets of a TUN device are sent to the appliance (GENEVE, UDP 6081, options of class 0x0108);
/// what returns is checked byte by byte and delivered if correct.
///
///   clients - gwlb0 - weir-gateway - wire == GENEVE == appliance - backends
///                          |
///   servers - gwlb1 -------'  (--far-tun and --far: packets that the appliance returns)
///
/// Example: with the appliance at 10.0.1.10 on the other end of eth1,
///
///   ip addr add 10.0.1.21/24 dev eth1
///   weir-gateway --wire eth1 --node 10.0.1.21 --appliance 10.0.1.10 &
///   ip addr add 192.0.2.1/32 dev gwlb0; ip route add 203.0.113.0/24 dev gwlb0
///   curl http://203.0.113.10/
///
/// The whole chain, with servers in 198.51.100.0/24 that are reached through the appliance and two
/// endpoints, in a namespace for the far side:
///
///   weir-gateway --wire eth1 --node 10.0.1.21 --appliance 10.0.1.10 \
///     --endpoint a1 --endpoint a2 --far-tun gwlb1 --far 198.51.100.0/24 &
///   ip netns add far; ip link set gwlb1 netns far; ip -n far link set gwlb1 up
///   ip -n far addr add 198.51.100.9/32 dev gwlb1; ip -n far route add default dev gwlb1
///   ip route add 198.51.100.0/24 dev gwlb0
///   ping -I 192.0.2.1 198.51.100.9
#[derive(Parser)]
#[command(name = "weir-gateway", verbatim_doc_comment)]
struct Arguments {
    /// Use this interface towards the appliance.
    #[arg(long)]
    wire: String,
    /// Set the address of a gateway node, which the interface of --wire must have. Repeat for more
    /// nodes.
    #[arg(long, required = true)]
    node: Vec<Ipv4Addr>,
    /// Set the appliance's address. Repeat for more; each flow stays with one.
    #[arg(long, required = true)]
    appliance: Vec<Ipv4Addr>,
    /// Set the name of the TUN device for the clients' side.
    #[arg(long, default_value = "gwlb0")]
    tun: String,
    /// Create a second TUN device, for the servers in the prefixes of --far (needs --far).
    #[arg(long, requires = "far")]
    far_tun: Option<String>,
    /// Set a prefix of servers that are reached through the appliance: packets to and from it must
    /// return unchanged, all others must be answered. Repeat for more. Without this option, both
    /// are accepted.
    #[arg(long)]
    far: Vec<Prefix>,
    /// Set a gateway endpoint's id, in hexadecimal. Repeat for more; a client's address modulo
    /// their number determines its endpoint.
    #[arg(long, default_value = "0123456789abcdef", value_parser = hexadecimal)]
    endpoint: Vec<u64>,
    /// Set the attachment's id, in hexadecimal; AWS sends 0.
    #[arg(long, default_value = "0", value_parser = hexadecimal)]
    attachment: u64,
    /// Set the class of the GENEVE options, in hexadecimal.
    #[arg(long, default_value = "0108", value_parser = class)]
    class: u16,
    /// Set the UDP destination port.
    #[arg(long, default_value_t = 6081)]
    port: u16,
    /// Drop inner packets larger than this many bytes, as AWS does.
    #[arg(long, default_value_t = 8_500)]
    mtu: u16,
    /// Change a flow's cookie after this many packets; 0: never.
    #[arg(long, default_value_t = 0)]
    churn: u32,
    /// Move a flow to the next node after this many packets; 0: never.
    #[arg(long, default_value_t = 0)]
    roam: u32,
    /// Give both directions of a flow the same cookie, node and source port. Without this, each
    /// direction has its own, as on AWS.
    #[arg(long, conflicts_with_all = ["churn", "roam"])]
    symmetric: bool,
    /// Require this decrease of the TTL of returned packets: 0 if the appliance only returns them,
    /// 1 for each hop if it routes them.
    #[arg(long, default_value_t = 0)]
    hops: u8,
    /// Delay packets to a client by this many milliseconds, as ADDRESS=MILLISECONDS. Repeat for
    /// more clients.
    #[arg(long, value_name = "ADDRESS=MS", value_parser = delay)]
    delay: Vec<(Ipv4Addr, Duration)>,
    /// Accept a flow's former cookie and node for this many milliseconds after a change.
    #[arg(long, default_value_t = 5_000)]
    former: u64,
    /// Compute outer UDP checksums; AWS sends 0.
    #[arg(long)]
    checksum: bool,
    /// Count a packet as lost if it has not returned after this many milliseconds.
    #[arg(long, default_value_t = 15_000)]
    timeout_ms: u64,
    /// Stop after this many seconds; 0: only on SIGINT (Ctrl-C) or SIGTERM.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Print the report at the end as one line of JSON instead of text.
    #[arg(long)]
    json: bool,
}

fn hexadecimal(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16)
        .map_err(|_| format!("{text:?} is not an id; write up to 16 hexadecimal digits"))
}

fn class(text: &str) -> std::result::Result<u16, String> {
    let digits = text.trim_start_matches("0x");
    u16::from_str_radix(digits, 16)
        .map_err(|_| format!("{text:?} is no option class; write up to 4 hexadecimal digits"))
}

fn delay(text: &str) -> std::result::Result<(Ipv4Addr, Duration), String> {
    let parsed = text.split_once('=').and_then(|(address, milliseconds)| {
        Some((address.parse().ok()?, Duration::from_millis(milliseconds.parse().ok()?)))
    });
    parsed.ok_or_else(|| format!("{text:?} is no delay; write for example 192.0.2.1=50"))
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(report) if report.clean() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("weir-gateway: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<Report> {
    need_root()?;
    // The signals are blocked before any thread starts: all threads inherit this, and the signals
    // are read from a signalfd only.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().map_err(LabError::errno("blocking signals"))?;
    let near = Tun::create(&arguments.tun, arguments.mtu)?;
    let far =
        arguments.far_tun.as_ref().map(|name| Tun::create(name, arguments.mtu)).transpose()?;
    let setup = GatewaySetup {
        nodes: arguments.node.clone(),
        appliances: arguments.appliance.clone(),
        wire: arguments.wire.clone(),
        port: arguments.port,
        class: arguments.class,
        endpoints: arguments.endpoint.clone(),
        attachment: arguments.attachment,
        largest_inner: usize::from(arguments.mtu),
        churn: arguments.churn,
        roam: arguments.roam,
        return_timeout: Duration::from_millis(arguments.timeout_ms),
        far: arguments.far.clone(),
        outer_checksum: arguments.checksum,
        symmetric: arguments.symmetric,
        hops: arguments.hops,
        delays: arguments.delay.clone(),
        former_for: Duration::from_millis(arguments.former),
    };
    let gateway = Gateway::start_in_current_ns(setup, near, far)?;
    if !arguments.json {
        let (tun, appliances) = (&arguments.tun, &arguments.appliance);
        println!("sending packets of {tun} to {appliances:?}; stop with Ctrl-C");
    }
    watch(&gateway, &signals, &arguments)?;
    let report = gateway.stop()?;
    if arguments.json {
        let line = serde_json::to_string(&report);
        println!("{}", line.map_err(|e| LabError::Other(format!("writing JSON: {e}")))?);
    } else {
        print!("{report}");
    }
    Ok(report)
}

/// Waits for a signal or the end of `--seconds`, and prints a report every ten seconds.
fn watch(gateway: &Gateway, signals: &SigSet, arguments: &Arguments) -> Result<()> {
    let (begun, mut reported) = (Instant::now(), Instant::now());
    let waiting = nix::sys::signalfd::SignalFd::with_flags(
        signals,
        nix::sys::signalfd::SfdFlags::SFD_NONBLOCK,
    )
    .map_err(LabError::errno("waiting for signals"))?;
    loop {
        tests::lab::tun::wait(&waiting)?;
        if matches!(waiting.read_signal(), Ok(Some(_))) {
            return Ok(());
        }
        if arguments.seconds > 0 && begun.elapsed() > Duration::from_secs(arguments.seconds) {
            return Ok(());
        }
        if !arguments.json && reported.elapsed() > Duration::from_secs(10) {
            print!("{}", gateway.report());
            reported = Instant::now();
        }
    }
}
