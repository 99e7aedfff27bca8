//! Stage 4, track: matches the packet to an established flow.
//!
//! An established flow keeps its backend, independent of the current tables. A packet from the
//! gateway's side refreshes the flow's gateway leg of its direction, so that returned packets carry
//! the latest options.

use crate::burst::{Arrival, PacketState};
use crate::lcore::Lcore;
use crate::leg;
use crate::origin;
use crate::port::Buffer;
use crate::template_cache::Key;
use crate::verdict::{Reply, Verdict};
use packet::ip::{Fragment, Ip};
use packet::rewrite;
use packet::window::Window;
use tables::counters::Counter;
use tables::flow::{
    Hit, LegUpdate, PATH_ONE_WAY, PATH_REDIRECT, PATH_RESPONDER_LEG, PathError, TcpState,
};
use tables::fragment::{FragmentKey, FragmentTarget};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, TunnelKind, WhenFailed};

/// Looks up the packet's flow and prefetches its path record.
#[inline(always)]
pub fn find(pkt: &mut PacketState, lcore: &Lcore<'_>) {
    // A later fragment has no ports: the first fragment of its datagram determines the flow. An
    // error about a later fragment has no key, and its flow is not recorded.
    if pkt.is_undecided() && pkt.inner.fragment != Fragment::Later {
        lcore.flows().find_to(pkt.hash, &pkt.key, &mut pkt.hit);
        if let Some(hit) = &pkt.hit {
            // An answer reads four cache lines, a request one.
            match hit.is_front() && hit.from_initiator(pkt.side) {
                true => lcore.flows().prefetch_path(hit),
                false => lcore.flows().prefetch_answer(hit),
            }
        }
    }
}

/// Decides on a packet of an established flow.
#[inline(always)]
pub fn track<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    if pkt.is_undecided()
        && let Err(reason) = track_packet(&buffer.window(), pkt, lcore)
    {
        pkt.drop(reason);
    }
}

/// Like [`track`], for a packet whose flow may have begun since the burst's lookups. Returns true
/// if that flow is to end.
#[cold]
pub fn retrack<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, lcore: &Lcore<'_>) -> bool {
    if let Err(reason) = find_and_track(&buffer.window(), pkt, lcore) {
        pkt.drop(reason);
    }
    pkt.ends_flow()
}

/// Repeats the lookup: an earlier packet of the burst may have changed the flow since the first
/// one.
#[cold]
pub fn find_again(pkt: &mut PacketState, lcore: &Lcore<'_>) {
    if pkt.is_undecided() && pkt.inner.fragment != Fragment::Later {
        lcore.flows().find_to(pkt.hash, &pkt.key, &mut pkt.hit);
    }
}

/// Repeats the lookup of a packet that had no flow, and decides on it if there is one now.
#[cold]
pub fn find_and_track(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    if pkt.hash == 0 || pkt.inner.fragment == Fragment::Later {
        return Ok(());
    }
    lcore.flows().find_to(pkt.hash, &pkt.key, &mut pkt.hit);
    track_packet(window, pkt, lcore)
}

/// Returns the key of the datagram that a fragment belongs to.
pub fn fragment_key(scope: u32, ip: &Ip) -> FragmentKey {
    FragmentKey { scope, src: ip.src, dst: ip.dst, id: ip.fragment_id, proto: ip.proto }
}

#[inline(always)]
fn track_packet(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    if pkt.inner.fragment == Fragment::Later {
        return track_fragment(window, pkt, lcore);
    }
    let Some(hit) = pkt.hit else { return Ok(()) };
    let from_initiator = hit.from_initiator(pkt.side);
    let result = track_flow(window, pkt, lcore, &hit, from_initiator);
    if pkt.is_undecided() && !pkt.ends_flow() && result.is_ok() {
        pkt.hit = None; // It is no longer the packet's flow.
    }
    result
}

#[inline(never)]
fn track_fragment(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    match lcore.fragments().find(&fragment_key(pkt.headers.scope, &pkt.inner), lcore.now_s()) {
        Some(FragmentTarget::Flow { path, stamp, from_initiator }) => {
            let Some(hit) = lcore.flows().revisit(path, stamp) else { return Ok(()) };
            track_flow(window, pkt, lcore, &hit, from_initiator)?;
            if !pkt.is_undecided() || pkt.ends_flow() {
                pkt.hit = Some(hit);
                // The addresses alone do not determine it: both may be equal.
                let initiator = hit.initiator();
                pkt.side = if from_initiator { initiator } else { initiator.other() };
            }
            Ok(())
        }
        Some(FragmentTarget::Return) => {
            pkt.verdict = Verdict::Return;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Decides on a packet of an established flow.
#[inline(always)]
fn track_flow(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    hit: &Hit,
    from_initiator: bool,
) -> Result<(), DropReason> {
    let flows = lcore.flows();
    match flows.forward_to(hit, &mut pkt.path) {
        Ok(()) => {}
        Err(PathError::Gone) => return Ok(()),
        Err(PathError::Busy) => return Err(DropReason::FlowContended),
    }
    let from_kernel = pkt.headers.arrival == Arrival::Kernel;
    if pkt.path.flags & PATH_REDIRECT != 0 && from_kernel == hit.is_front() {
        return Ok(()); // The packet is addressed to the proxy's own port and not to its service.
    }
    let answer = is_answer(pkt, hit, from_initiator);
    if !answer {
        let action = flow_action(pkt, lcore, hit, from_initiator);
        if action != WhenFailed::Keep {
            pkt.pending |= if action == WhenFailed::Reset {
                PacketState::RESET_FLOW
            } else {
                PacketState::MOVE_FLOW
            };
            return Ok(());
        }
    }
    if !answer && pkt.path.mode == Mode::Nat as u8 && !from_initiator {
        return Ok(()); // Sent from the service's address to the client: not load-balanced.
    }
    flows.touch(hit, lcore.now_s());
    pkt.service = pkt.path.service;
    pkt.backend = pkt.path.backend;
    if pkt.inner.fragment == Fragment::First {
        let target =
            FragmentTarget::Flow { path: hit.path, stamp: lcore.front_stamp(hit), from_initiator };
        record_fragment(pkt, lcore, target);
    }
    if answer {
        if pkt.headers.arrival == Arrival::Backend && pkt.headers.outer.src != pkt.path.backend_addr
        {
            return Err(DropReason::UnknownBackendTunnel);
        }
        // A flow is confirmed once its client sends another packet after an answer.
        if let Some(flags) = pkt.inner.kind.flow_flags() {
            note_tcp_flags(pkt, lcore, hit, flags, from_initiator);
        }
        pkt.verdict = Verdict::Answer;
        return Ok(());
    }
    if pkt.quoted.is_none() {
        refresh_leg(window, pkt, lcore, hit, from_initiator);
    }
    set_backend_verdict(pkt);
    if pkt.verdict == Verdict::Tunnel {
        lcore.template_cache().borrow().prefetch(&Key::of(pkt));
    }
    Ok(())
}

/// Returns true for a packet from the backend's side towards the gateway or client.
#[inline(always)]
fn is_answer(pkt: &PacketState, hit: &Hit, from_initiator: bool) -> bool {
    match pkt.headers.arrival {
        // Of the kernel's packets, only a proxy's answers are tracked.
        Arrival::Backend | Arrival::Kernel => true,
        Arrival::Plain => !hit.is_front() || !from_initiator,
        Arrival::Gateway => false,
    }
}

/// Returns what a packet to the backend does to its flow. The flow moves if the backend is gone or
/// was replaced, or if a new connection reuses the 5-tuple and the backend is not active. If the
/// backend has failed, the service decides on packets of the initiator.
#[inline(always)]
fn flow_action(
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    hit: &Hit,
    from_initiator: bool,
) -> WhenFailed {
    let Some(backend) = lcore.set().backend(pkt.path.backend) else {
        return match keeps_proxy(pkt, lcore, hit, from_initiator) {
            true => WhenFailed::Keep,
            false => WhenFailed::Move,
        };
    };
    if backend.incarnation != pkt.path.incarnation {
        return WhenFailed::Move;
    }
    if BackendState::is_failed(backend.state) && from_initiator {
        let action = when_failed(pkt, lcore);
        if action != WhenFailed::Keep {
            return action;
        }
    }
    if let Some(flags) = pkt.inner.kind.flow_flags() {
        let state = note_tcp_flags(pkt, lcore, hit, flags, from_initiator);
        if state == TcpState::Reopened && backend.state != BackendState::Active as u8 {
            return WhenFailed::Move;
        }
    }
    WhenFailed::Keep
}

/// Returns how the service handles flows whose backend has failed. Counts those that move.
#[cold]
fn when_failed(pkt: &PacketState, lcore: &Lcore<'_>) -> WhenFailed {
    let action = lcore.set().when_failed(pkt.path.service, pkt.inner.kind, pkt.hash);
    if action == WhenFailed::Move {
        lcore.page().count(Counter::FlowsMoved, 1);
    }
    action
}

/// Like [`flow_action`], for a flow without a backend: it continues only if it is redirected to a
/// proxy and the packet does not open a new connection on the same 5-tuple.
#[cold]
fn keeps_proxy(pkt: &mut PacketState, lcore: &Lcore<'_>, hit: &Hit, from_initiator: bool) -> bool {
    if pkt.path.flags & PATH_REDIRECT == 0 {
        return false;
    }
    let flags = pkt.inner.kind.flow_flags();
    flags.is_none_or(|flags| {
        note_tcp_flags(pkt, lcore, hit, flags, from_initiator) != TcpState::Reopened
    })
}

/// Updates the flow's state by the packet's TCP flags and returns it. Marks a SYN of the initiator
/// and any RST with [`PacketState::RECHECK`].
#[inline(always)]
fn note_tcp_flags(
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    hit: &Hit,
    flags: u8,
    from_initiator: bool,
) -> TcpState {
    let state = lcore.flows().note(hit, flags, from_initiator);
    if flags & (rewrite::SYN | rewrite::RST) != 0 && (from_initiator || flags & rewrite::RST != 0) {
        pkt.pending |= PacketState::RECHECK;
    }
    state
}

/// Ends the flow of a packet that [`PacketState::pending`] marks to be moved or reset. If `resets`,
/// the packet is answered with a TCP reset.
#[cold]
pub fn end(pkt: &mut PacketState, lcore: &Lcore<'_>, resets: bool) {
    if let Some(flow) = pkt.hit.take().and_then(|hit| lcore.flows().remove(&hit)) {
        lcore.page().flow_ended(flow.forward.service, flow.forward.backend);
    }
    if resets {
        lcore.page().count(Counter::FlowsReset, 1);
        pkt.verdict = Verdict::Reply(Reply::Reset);
    }
}

/// Sets the verdict of a packet to the backend, from `path`.
#[inline(always)]
pub fn set_backend_verdict(pkt: &mut PacketState) {
    pkt.verdict = match pkt.path.mode == Mode::Nat as u8 {
        true if pkt.path.flags & PATH_REDIRECT != 0 => Verdict::Redirect,
        true => Verdict::Nat,
        false => Verdict::Tunnel,
    };
}

/// Records the flow of this datagram for its later fragments. If the table is full, only those
/// fragments are lost: a flood of first fragments does not affect whole packets.
pub fn record_fragment(pkt: &PacketState, lcore: &Lcore<'_>, target: FragmentTarget) {
    let key = fragment_key(pkt.headers.scope, &pkt.inner);
    if lcore.fragments().insert(&key, target, lcore.now_s()).is_err() {
        lcore.page().count(Counter::FragmentsUntracked, 1);
    }
}

/// Schedules an update of the flow's gateway leg ([`change_leg`]) if the packet's differs.
#[inline(always)]
fn refresh_leg(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    hit: &Hit,
    from_initiator: bool,
) {
    if !hit.is_front() || pkt.path.flags & PATH_ONE_WAY != 0 {
        return;
    }
    let digest = leg::digest(window, pkt);
    let unchanged = match from_initiator {
        true => digest == hit.digest,
        false => pkt.path.flags & PATH_RESPONDER_LEG != 0 && digest == pkt.path.responder_digest(),
    };
    if !unchanged && adopts_leg(pkt, lcore, from_initiator) {
        pkt.pending |= PacketState::UPDATE_LEG;
    }
}

/// Returns true if the flow adopts the leg of a packet of this direction. A VXLAN gateway has one
/// tunnel per direction; answers use the client's.
#[inline(never)]
fn adopts_leg(pkt: &PacketState, lcore: &Lcore<'_>, from_initiator: bool) -> bool {
    from_initiator
        || pkt.headers.arrival != Arrival::Gateway
        || lcore.snapshot().tunnels[usize::from(pkt.headers.tunnel)].kind != TunnelKind::Vxlan
}

/// Replaces the flow's gateway leg by that of the packet, and records the return leg.
#[cold]
pub fn change_leg(window: &Window<'_>, pkt: &PacketState, lcore: &Lcore<'_>) {
    let Some(hit) = &pkt.hit else { return };
    let from_initiator = hit.from_initiator(pkt.side);
    let mut options = [0; leg::MAX_OPTIONS_LEN];
    let options = leg::options(window, pkt, &mut options);
    let leg = leg::gateway_leg(window, pkt, lcore.snapshot());
    let digest = leg::digest(window, pkt);
    origin::record_return_leg(window, pkt, lcore);
    match lcore.flows().update_gateway(hit, from_initiator, &leg, options, digest) {
        LegUpdate::Changed => lcore.page().count(Counter::GatewayLegChanges, 1),
        LegUpdate::Shared => {
            lcore.page().count(Counter::GatewayLegChanges, 1);
            lcore.page().count(Counter::GatewayLegsShared, 1);
        }
        LegUpdate::Same | LegUpdate::Skipped => {}
    }
}
