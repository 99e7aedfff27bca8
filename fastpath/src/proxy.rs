//! Redirect: flows of a service that go to a proxy on this machine, through the exception path.
//!
//! In the flow table such a flow is a NAT flow: its backend is the local address of the arm through
//! which the packet arrived, with the proxy's port, and its source stays the client's address,
//! which the proxy thereby sees. The proxy's answers match the flow's back entry (that of the
//! backend's side), are rewritten, and are handled like a backend's answers: they go to the gateway
//! with the flow's latest options, or to the client.

use crate::burst::{Arrival, PacketState};
use crate::delivery::{Rejection, plain_frame};
use crate::insert::insert;
use crate::lcore::Lcore;
use crate::nat;
use crate::port::Buffer;
use crate::verdict::Exit;
use packet::ethernet::Macs;
use packet::ip::L4;
use packet::rewrite;
use packet::window::Window;
use tables::flow::{Forward, Hit, InsertError, PATH_REDIRECT};
use tables::reason::DropReason;
use tables::record::{NONE, Service};

/// Prepares a flow to the service's proxy, for [`begin`].
#[inline(never)]
pub fn prepare(
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    service: &Service,
) -> Result<(), DropReason> {
    let ip = &pkt.inner;
    if !matches!(ip.kind, L4::Tcp { .. } | L4::Udp) {
        return Err(DropReason::NatProtocol);
    }
    let local = *lcore.local_on(pkt.arm, &ip.dst).ok_or(DropReason::NatNoAddress)?;
    pkt.backend = NONE;
    pkt.path = Forward::to_proxy(ip, pkt.service, &local, service.proxy_port);
    Ok(())
}

/// Inserts the flow that [`prepare`] prepared.
pub fn begin(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    service: &Service,
) -> Result<(), DropReason> {
    let back = pkt.path.backend_key(&pkt.inner);
    insert(window, pkt, lcore, service, Some(back), NONE).map_err(|error| match error {
        InsertError::Full | InsertError::NoSlab => DropReason::FlowTableFull,
        InsertError::BackTaken(_) => DropReason::FlowAmbiguous,
        _ => DropReason::FlowContended,
    })
}

/// Returns true if a packet of the kernel belongs to a flow that is redirected to a proxy.
pub fn is_answer(lcore: &Lcore<'_>, pkt: &PacketState) -> bool {
    let redirected = |hit: Hit| {
        let forward = lcore.flows().forward(&hit);
        !hit.is_front() && forward.is_ok_and(|forward| forward.flags & PATH_REDIRECT != 0)
    };
    pkt.hash != 0 && lcore.flows().find(pkt.hash, &pkt.key).is_some_and(redirected)
}

/// Rewrites a packet, removes its tunnel, and passes it to the proxy. The TTL stays: delivery to a
/// local proxy is not a hop.
#[inline(never)]
pub fn to_proxy<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), Rejection> {
    let window = &mut buffer.window();
    let tunneled = pkt.headers.arrival == Arrival::Gateway;
    if tunneled {
        rewrite::propagate_ecn(window, &pkt.headers.outer, &pkt.inner)?;
    }
    nat::rewrite_forward(window, pkt)?;
    nat::clamp_mss_option(window, pkt, lcore);
    if tunneled {
        let own = lcore.macs()[usize::from(pkt.arm & 1)];
        plain_frame(buffer, pkt, &Macs::new(own, own), 0)?;
    }
    pkt.exit = Exit::Kernel(pkt.arm);
    Ok(())
}
