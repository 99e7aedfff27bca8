//! NAT towards the backend: rewrites destination and source, and sends the packet without a tunnel.
//!
//! Checksums are updated incrementally (RFC 1624), so a wrong checksum stays wrong.

mod ends;

use crate::burst::{Arrival, Work};
use crate::cross;
use crate::delivery::{Refused, ends_here, fits, next_hop, plain_frame};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::Exit;
use packet::rewrite;

pub use ends::{clamp, forwards, from_backend};

/// Rewrites a packet for its flow's backend and sets its exit.
#[inline(never)]
pub fn to_backend<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
) -> Result<(), Refused> {
    let way = next_hop(work, lcore)?;
    if work.path.crosses() {
        cross::to_backend(buffer, work, lcore, way.mtu())?;
    } else {
        fits(work, lcore, way.mtu())?;
        ends_here(work)?;
        let window = &mut buffer.window();
        if work.front.arrival == Arrival::Gateway {
            rewrite::take_congestion(window, &work.front.outer, &work.inner)?;
        }
        rewrite::decrement_ttl(window, &work.inner)?;
        forwards(window, work)?;
        clamp(window, work, lcore);
    }
    plain_frame(buffer, work, &way.macs(), 0)?;
    work.exit = Exit::Port(way.arm());
    Ok(())
}
