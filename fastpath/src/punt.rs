//! Punt: passes frames for this machine itself to the kernel, within a limit.

use crate::burst::{Arrival, Work};
use crate::delivery::{Refused, plain_frame};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::Exit;
use packet::ethernet::Macs;
use packet::ip::Ip;
use packet::window::Window;
use tables::punt::{PuntClass, Punted};

/// Passes a frame to the kernel, unchanged or, if tunneled, as the inner packet with an Ethernet
/// header.
pub fn punt<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) -> Result<(), Refused> {
    let class = class_of(&buffer.window(), work, lcore);
    let limit = lcore.snapshot().settings.punt_limits[class as usize];
    if !lcore.punt_limit().allows(class, limit) {
        return Err(Refused::Drop(class.reason()));
    }
    if matches!(work.front.arrival, Arrival::Gateway | Arrival::Backend) {
        let own = lcore.macs()[usize::from(work.arm & 1)];
        plain_frame(buffer, work, &Macs::new(own, own), 0)?;
    }
    work.exit = Exit::Kernel(work.arm);
    Ok(())
}

fn class_of(window: &Window<'_>, work: &Work, lcore: &Lcore<'_>) -> PuntClass {
    let eth = &work.front.eth;
    let ip = match work.inner.end {
        // For a broadcast or multicast frame no stage has parsed the IP header yet.
        0 => Ip::parse(window, eth.l3, eth.ethertype).unwrap_or_default(),
        _ => work.inner,
    };
    let punted = Punted {
        ethertype: eth.ethertype,
        ip: &ip,
        icmp: window.load(usize::from(ip.l4)).unwrap_or(0),
        plain: work.front.arrival == Arrival::Plain,
        probe: lcore.set().probe(&ip.dst).is_some(),
    };
    PuntClass::of(&punted, &lcore.snapshot().settings)
}
