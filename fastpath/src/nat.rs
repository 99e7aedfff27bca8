//! NAT towards the backend: rewrites destination and source, and sends the packet without a tunnel.
//!
//! Checksums are updated incrementally (RFC 1624), so a wrong checksum stays wrong.

mod rewriting;

use crate::burst::{Arrival, PacketState};
use crate::delivery::{Rejection, check_backend_mtu, check_ttl, next_hop, plain_frame};
use crate::lcore::Lcore;
use crate::nat64;
use crate::port::Buffer;
use crate::verdict::Exit;
use packet::rewrite;

pub use rewriting::{clamp_mss_option, from_backend, rewrite_forward};

/// Rewrites a packet for its flow's backend and sets its exit.
#[inline(never)]
pub fn to_backend<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), Rejection> {
    let route = next_hop(pkt, lcore)?;
    if pkt.path.crosses() {
        nat64::to_backend(buffer, pkt, lcore, route.mtu())?;
    } else {
        check_backend_mtu(pkt, lcore, route.mtu())?;
        check_ttl(pkt)?;
        let window = &mut buffer.window();
        if pkt.headers.arrival == Arrival::Gateway {
            rewrite::propagate_ecn(window, &pkt.headers.outer, &pkt.inner)?;
        }
        rewrite::decrement_ttl(window, &pkt.inner)?;
        rewrite_forward(window, pkt)?;
        clamp_mss_option(window, pkt, lcore);
    }
    plain_frame(buffer, pkt, &route.macs(), 0)?;
    pkt.exit = Exit::Port(route.arm());
    Ok(())
}
