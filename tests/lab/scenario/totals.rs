//! Packet conservation: Weir's own counters, and the kernel's counters of the same wires.

use crate::lab::error::{LabError, Result};
use crate::lab::netns::Netns;
use crate::lab::topology::Lab;
use crate::lab::weir::{DropNow, Weir};
use std::time::{Duration, Instant};

/// Weir's counters over both arms. At rest: rx + from kernel + originated = tx + to kernel +
/// drops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets received.
    pub rx: u64,
    /// Packets from the kernel.
    pub from_kernel: u64,
    /// Packets that Weir originated, in addition to those received.
    pub originated: u64,
    /// Packets sent.
    pub tx: u64,
    /// Packets to the kernel.
    pub to_kernel: u64,
    /// Packets dropped, by arm and reason.
    pub drops: Vec<(String, u64)>,
}

impl Totals {
    /// Reads the current counters.
    pub fn now(weir: &Weir) -> Result<Self> {
        let metrics = weir.metrics()?;
        let name = "weir_packets_total";
        if !metrics.has(name) {
            return Err(LabError::Other(format!("no metric {name}")));
        }
        let sum =
            |direction: &str| metrics.sum(name, &[&format!("direction=\"{direction}\"")]) as u64;
        let named = |drop: DropNow| (format!("{} at {}", drop.reason, drop.arm), drop.packets);
        Ok(Self {
            rx: sum("rx"),
            from_kernel: sum("from_kernel"),
            originated: sum("originated"),
            tx: sum("tx"),
            to_kernel: sum("to_kernel"),
            drops: weir.drops()?.into_iter().map(named).collect(),
        })
    }

    /// Returns the difference to `before`.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |name: &str| {
            before.drops.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count)
        };
        let drops = self.drops.iter().map(|(name, count)| (name.clone(), count - earlier(name)));
        Self {
            rx: self.rx - before.rx,
            from_kernel: self.from_kernel - before.from_kernel,
            originated: self.originated - before.originated,
            tx: self.tx - before.tx,
            to_kernel: self.to_kernel - before.to_kernel,
            drops: drops.filter(|(_, count)| *count > 0).collect(),
        }
    }

    /// Returns the number of dropped packets, for all reasons at both arms.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of packets that entered or were originated, and the number of those that
    /// left or were dropped.
    pub fn sides(&self) -> (u64, u64) {
        let entered = self.rx + self.from_kernel + self.originated;
        (entered, self.tx + self.to_kernel + self.dropped())
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rx, from_kernel, originated, tx, to_kernel, .. } = self;
        let (dropped, (entered, left)) = (self.dropped(), self.sides());
        let sign = if entered == left { '=' } else { '≠' };
        write!(
            f,
            "{rx} received + {from_kernel} from the kernel + {originated} originated {sign} \
             {tx} sent + {to_kernel} to the kernel + {dropped} dropped   ({entered} {sign} {left})"
        )
    }
}

/// The kernel's counters of both wires, read at their far ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wires {
    /// Frames that were sent to Weir.
    pub to_weir: u64,
    /// Frames from Weir.
    pub from_weir: u64,
}

impl Wires {
    /// Reads the current counters.
    pub fn now(lab: &Lab) -> Result<Self> {
        let (cloud, lan) = (Self::of(&lab.cloud, "wire")?, Self::of(&lab.lan, "to-weir")?);
        let (to_weir, from_weir) = (cloud.to_weir + lan.to_weir, cloud.from_weir + lan.from_weir);
        Ok(Self { to_weir, from_weir })
    }

    /// Reads the counters of a wire whose far end is this interface.
    pub fn of(ns: &Netns, interface: &str) -> Result<Self> {
        // `/proc/net` shows the namespace of the process's main thread.
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
        let text = ns.run(read)?.map_err(LabError::io("reading /proc/thread-self/net/dev"))?;
        let line =
            text.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
        let numbers: Vec<u64> =
            line.unwrap_or("").split_whitespace().filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [_, received, _, _, _, _, _, _, _, sent, ..] => {
                Ok(Self { to_weir: sent, from_weir: received })
            }
            _ => Err(LabError::Other(format!("no interface {interface} in {}", ns.name()))),
        }
    }
}

/// Waits until Weir's counters have not changed for 0.3 s, balance, and agree with the kernel's
/// count of frames to Weir. Returns the increases since `before` and `wires`. If the counters do
/// not agree within 20 s, they are returned as they are, for the caller to assert on.
pub fn at_rest(
    lab: &Lab,
    weir: &mut Weir,
    before: &Totals,
    wires: &Wires,
) -> Result<(Totals, Wires)> {
    let begun = Instant::now();
    loop {
        let first = Totals::now(weir)?;
        std::thread::sleep(Duration::from_millis(300));
        let frames = Wires::now(lab)?;
        let now = Totals::now(weir)?;
        let totals = now.since(before);
        let frames = Wires {
            to_weir: frames.to_weir - wires.to_weir,
            from_weir: frames.from_weir - wires.from_weir,
        };
        let (entered, left) = totals.sides();
        let agreed = first == now && entered == left && frames.to_weir == totals.rx;
        if agreed || begun.elapsed() > Duration::from_secs(20) {
            return Ok((totals, frames));
        }
    }
}
