//! `weir-decap`: terminates tunnels in user space, for a backend whose kernel does not support
//! them.

#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tests::lab::decap::{Answer, Decap, TunnelKind};
use tests::lab::netns::need_root;

/// Terminate GENEVE, VXLAN, IPIP and GUE tunnels in user space.
///
/// Example: with the frontend's address on the machine, its server answers:
///
///   weir-decap --answer tunnel &
///   ip addr add 203.0.113.10/32 dev lo
///   ip route add 192.0.2.0/24 dev decap0      # to the clients, through the tunnel
#[derive(Parser)]
#[command(name = "weir-decap", verbatim_doc_comment)]
struct Arguments {
    /// Set the name of the TUN device to create.
    #[arg(long, default_value = "decap0")]
    tun: String,
    /// Choose the path of the answers.
    #[arg(long, value_enum, default_value = "tunnel")]
    answer: Choice,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    /// Route answers by the kernel's routing table (direct server return).
    Plain,
    /// Send answers through the tunnel of their request.
    Tunnel,
    /// Send each packet back unchanged, as an inspection appliance does.
    Inspect,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let answer = match arguments.answer {
        Choice::Plain => Answer::Plain,
        Choice::Tunnel => Answer::Tunnel,
        Choice::Inspect => Answer::Inspect,
    };
    let started = need_root().and_then(|()| Decap::start_in_current_ns(&arguments.tun, answer));
    let decap = match started {
        Ok(decap) => decap,
        Err(e) => {
            eprintln!("weir-decap: {e}");
            return ExitCode::from(2);
        }
    };
    loop {
        std::thread::sleep(Duration::from_secs(10));
        let counts = decap.counts();
        for kind in TunnelKind::ALL.into_iter().filter(|kind| counts.decapsulated(*kind) > 0) {
            print!("{kind:?} {}, ", counts.decapsulated(kind));
        }
        let (back, ignored) = (&counts.sent_back, &counts.ignored);
        let (back, ignored) = (back.load(Ordering::Relaxed), ignored.load(Ordering::Relaxed));
        println!("sent back {back}, ignored {ignored}");
    }
}
