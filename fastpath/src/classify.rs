//! Stage 3, classify: which flow a packet would belong to, and what is not a flow's at all.
//!
//! Works out the flow key (from the quoted packet for ICMP errors, from the fragment table for
//! later fragments), and asks the cache for the flow's bucket, so that it is there when `track`
//! looks.

use crate::burst::{Arrival, Burst, Work};
use crate::lcore::Lcore;
use crate::pmtu;
use crate::port::Buffer;
use crate::verdict::{Reply, Verdict};
use packet::flow::FlowKey;
use packet::icmp;
use packet::ip::{Fragment, L4};
use packet::window::Window;
use tables::reason::DropReason;
use tables::record::TUNNEL_REPLY_TOO_BIG;

/// Finds the flow key of every open packet.
pub fn classify<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|buffer, work| {
        if work.open() {
            let window = buffer.window();
            match work.arrival {
                Arrival::Kernel => from_kernel(work, lcore),
                _ => from_wire(&window, work, lcore),
            }
        }
    });
}

/// What the kernel sends is its own affair, except from a probe source.
fn from_kernel(work: &mut Work, lcore: &Lcore<'_>) {
    work.verdict = Verdict::Forward;
    if let Some(backend) = lcore.set().probe(&work.inner.src) {
        work.verdict = Verdict::Probe;
        work.backend = backend;
    }
}

#[inline(always)]
fn from_wire(window: &Window<'_>, work: &mut Work, lcore: &Lcore<'_>) {
    if work.arrival == Arrival::Gateway && oversized(work, lcore) {
        return;
    }
    if work.arrival == Arrival::Backend && lcore.set().probe(&work.inner.dst).is_some() {
        work.verdict = Verdict::Punt;
        return;
    }
    let about = match work.inner.kind {
        L4::IcmpError => match icmp::quoted(window, &work.inner) {
            Ok(quoted) => {
                work.quoted = Some(quoted);
                if work.arrival == Arrival::Plain && quoted.src == work.inner.dst {
                    pmtu::learn(window, work, lcore, &quoted);
                }
                quoted
            }
            // Nobody can tell whose it is: it has no key, and so no flow.
            Err(_) => {
                (work.key, work.hash) = (FlowKey::default(), 0);
                return;
            }
        },
        _ => work.inner,
    };
    if about.fragment == Fragment::Later {
        work.hash = 0;
        return; // `track` asks the fragment table.
    }
    let (key, side) =
        FlowKey::new(work.scope, about.proto, about.src, about.sport, about.dst, about.dport);
    work.key = key;
    work.side = if work.quoted.is_some() { side.other() } else { side };
    work.hash = key.hash(lcore.seed());
    lcore.flows().prefetch(work.hash);
}

/// Decides on what exceeds the gateway's inner MTU. True when that was so.
#[inline(always)]
fn oversized(work: &mut Work, lcore: &Lcore<'_>) -> bool {
    let tunnel = &lcore.snapshot().tunnels[usize::from(work.tunnel)].record;
    let len = work.inner.end - work.inner.at;
    if len <= tunnel.inner_mtu || tunnel.inner_mtu == 0 {
        return false;
    }
    if tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0 {
        work.verdict = Verdict::Reply(Reply::TooBig(tunnel.inner_mtu));
    } else {
        work.drop(DropReason::TooBig);
    }
    true
}
