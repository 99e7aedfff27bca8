//! Redirect: flows of a service that go to a proxy on this machine, by the exception path.
//!
//! To the flow table such a flow is a translated one: its backend is our address on the arm that
//! the packet came by, with the proxy's port, and what it is sent from is the client's own address.
//! So the proxy sees who asks. What the kernel answers is found by the flow's back entry,
//! rewritten, and goes the way of a backend's answers: to the gateway with the flow's latest
//! options, or to the client.

use crate::burst::{Arrival, Work};
use crate::delivery::{Refused, plain_frame};
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
pub fn prepare(work: &mut Work, lcore: &Lcore<'_>, service: &Service) -> Result<(), DropReason> {
    let ip = &work.inner;
    if !matches!(ip.kind, L4::Tcp { .. } | L4::Udp) {
        return Err(DropReason::NatProtocol);
    }
    let ours = *lcore.local_on(work.arm, &ip.dst).ok_or(DropReason::NatNoAddress)?;
    work.backend = NONE;
    work.path = Forward::to_proxy(ip, work.service, &ours, service.proxy_port);
    Ok(())
}

/// Inserts the flow that is prepared.
pub fn begin(
    window: &Window<'_>,
    work: &mut Work,
    lcore: &Lcore<'_>,
    service: &Service,
) -> Result<(), DropReason> {
    let back = work.path.key_behind(&work.inner);
    insert(window, work, lcore, service, Some(back), NONE).map_err(|error| match error {
        InsertError::Full | InsertError::NoSlab => DropReason::FlowTableFull,
        InsertError::BackTaken(_) => DropReason::FlowAmbiguous,
        _ => DropReason::FlowContended,
    })
}

/// Whether a packet of the kernel's is of a flow that goes to a proxy.
pub fn is_answer(lcore: &Lcore<'_>, work: &Work) -> bool {
    let redirected = |hit: Hit| {
        let forward = lcore.flows().forward(&hit);
        !hit.is_front() && forward.is_ok_and(|forward| forward.flags & PATH_REDIRECT != 0)
    };
    work.hash != 0 && lcore.flows().find(work.hash, &work.key).is_some_and(redirected)
}

/// Hands a packet to the proxy: rewritten, out of its tunnel. To us it is no hop.
#[inline(never)]
pub fn to_proxy<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
) -> Result<(), Refused> {
    let window = &mut buffer.window();
    let tunnelled = work.front.arrival == Arrival::Gateway;
    if tunnelled {
        rewrite::take_congestion(window, &work.front.outer, &work.inner)?;
    }
    nat::forwards(window, work)?;
    nat::clamp(window, work, lcore);
    if tunnelled {
        let own = lcore.macs()[usize::from(work.arm & 1)];
        plain_frame(buffer, work, &Macs::new(own, own), 0)?;
    }
    work.exit = Exit::Kernel(work.arm);
    Ok(())
}
