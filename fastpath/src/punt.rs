//! Punt: frames for this machine itself, to the kernel by the exception port, within a limit.

use crate::burst::{Arrival, Work};
use crate::encap::{Refused, plain_frame};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::Exit;
use packet::ethernet::{self, Macs};
use std::cell::Cell;
use tables::reason::DropReason;

/// What is punted, limited each by itself so that a flood of one leaves room for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// ARP, ND and what else is no IP: without it no neighbour is ever found.
    Neighbour = 0,
    /// Packets to addresses of this machine: health probes, BGP, ssh.
    Local = 1,
}

/// Punted packets of the running second, by class.
#[derive(Debug, Default)]
pub struct PuntLimit {
    used: [Cell<u32>; 2],
}

impl PuntLimit {
    /// A new second.
    pub fn refill(&self) {
        self.used.iter().for_each(|used| used.set(0));
    }

    fn allows(&self, class: Class, limit: u32) -> bool {
        let used = &self.used[class as usize];
        if limit != 0 && used.get() >= limit {
            return false;
        }
        used.set(used.get() + 1);
        true
    }
}

/// Hands the frame to the kernel: as it is, or what was in the tunnel with an Ethernet header.
pub fn punt<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) -> Result<(), Refused> {
    let ip =
        work.front.eth.ethertype == ethernet::IPV4 || work.front.eth.ethertype == ethernet::IPV6;
    let neighbour = !ip || work.inner.proto == ICMPV6;
    let class = if neighbour { Class::Neighbour } else { Class::Local };
    if !lcore.punt_limit().allows(class, lcore.snapshot().settings.punt_limit) {
        return Err(Refused::Drop(DropReason::PuntLimited));
    }
    if matches!(work.front.arrival, Arrival::Gateway | Arrival::Backend) {
        let own = lcore.macs()[usize::from(work.arm & 1)];
        plain_frame(buffer, work, &Macs::new(own, own), 0)?;
    }
    work.exit = Exit::Kernel(work.arm);
    Ok(())
}

const ICMPV6: u8 = 58;
