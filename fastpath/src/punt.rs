//! Punt: passes frames for this machine itself to the kernel, within a limit.

use crate::burst::{Arrival, PacketState};
use crate::delivery::{Rejection, plain_frame};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::Exit;
use packet::ethernet::Macs;
use packet::ip::Ip;
use packet::window::Window;
use tables::punt::{PuntClass, PuntedPacket};

/// Passes a frame to the kernel, unchanged or, if tunneled, as the inner packet with an Ethernet
/// header.
pub fn punt<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), Rejection> {
    let class = class_of(&buffer.window(), pkt, lcore);
    let limit = lcore.snapshot().settings.punt_limits[class as usize];
    if !lcore.punt_limit().allows(class, limit) {
        return Err(Rejection::Drop(class.reason()));
    }
    if matches!(pkt.headers.arrival, Arrival::Gateway | Arrival::Backend) {
        let own = lcore.macs()[usize::from(pkt.arm & 1)];
        plain_frame(buffer, pkt, &Macs::new(own, own), 0)?;
    }
    pkt.exit = Exit::Kernel(pkt.arm);
    Ok(())
}

fn class_of(window: &Window<'_>, pkt: &PacketState, lcore: &Lcore<'_>) -> PuntClass {
    let eth = &pkt.headers.eth;
    let ip = match pkt.inner.end {
        // For a broadcast or multicast frame no stage has parsed the IP header yet.
        0 => Ip::parse(window, eth.l3, eth.ethertype).unwrap_or_default(),
        _ => pkt.inner,
    };
    let punted = PuntedPacket {
        ethertype: eth.ethertype,
        ip: &ip,
        icmp: window.load(usize::from(ip.l4)).unwrap_or(0),
        plain: pkt.headers.arrival == Arrival::Plain,
        probe: lcore.set().probe(&ip.dst).is_some(),
    };
    PuntClass::of(&punted, &lcore.snapshot().settings)
}
