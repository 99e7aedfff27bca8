//! Redirect: flows of a service that go to a proxy on this machine, through the exception path.
//!
//! In the flow table such a flow is a translated one: its backend is the local address of the arm
//! through which the packet arrived, with the proxy's port, and its source stays the client's
//! address, which the proxy thereby sees. The proxy's answers match the flow's back entry, are
//! rewritten, and are handled like a backend's answers: they go to the gateway with the flow's
//! latest options, or to the client.

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

/// Inserts the prepared flow.
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

/// Returns true if a packet of the kernel belongs to a flow that is redirected to a proxy.
pub fn is_answer(lcore: &Lcore<'_>, work: &Work) -> bool {
    let redirected = |hit: Hit| {
        let forward = lcore.flows().forward(&hit);
        !hit.is_front() && forward.is_ok_and(|forward| forward.flags & PATH_REDIRECT != 0)
    };
    work.hash != 0 && lcore.flows().find(work.hash, &work.key).is_some_and(redirected)
}

/// Rewrites a packet, removes its tunnel, and passes it to the proxy. The TTL stays: delivery to a
/// local proxy is not a hop.
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
