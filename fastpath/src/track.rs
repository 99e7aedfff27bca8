//! Stage 4, track: matches the packet to an established flow.
//!
//! An established flow keeps its backend, independent of the current tables. A packet from the
//! gateway's side refreshes the flow's gateway leg of its direction, so that returned packets carry
//! the latest options.

use crate::burst::{Arrival, Work};
use crate::lcore::Lcore;
use crate::leg;
use crate::origin;
use crate::port::Buffer;
use crate::prepared::Key;
use crate::verdict::{Reply, Verdict};
use packet::ip::{Fragment, Ip};
use packet::rewrite;
use packet::window::Window;
use tables::counters::Counter;
use tables::flow::{
    Hit, LegUpdate, Missed, PATH_ONE_WAY, PATH_REDIRECT, PATH_RESPONDER_LEG, TcpState,
};
use tables::fragment::{FragmentKey, FragmentTarget};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, TunnelKind, WhenFailed};

/// Looks up the packet's flow and prefetches its path.
#[inline(always)]
pub fn find(work: &mut Work, lcore: &Lcore<'_>) {
    // A later fragment has no ports: the first fragment of its datagram determines the flow. An
    // error about a later fragment has no key, and its flow is not recorded.
    if work.open() && work.inner.fragment != Fragment::Later {
        lcore.flows().find_to(work.hash, &work.key, &mut work.hit);
        if let Some(hit) = &work.hit {
            // An answer reads four cache lines, a request one.
            match hit.is_front() && hit.from_initiator(work.side) {
                true => lcore.flows().prefetch_path(hit),
                false => lcore.flows().prefetch_answer(hit),
            }
        }
    }
}

/// Decides on a packet of an established flow.
#[inline(always)]
pub fn track<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) {
    if work.open()
        && let Err(reason) = follow(&buffer.window(), work, lcore)
    {
        work.drop(reason);
    }
}

/// Like [`track`], for a packet whose flow may have begun since the burst's lookups. Returns true
/// if that flow is to end.
#[cold]
pub fn again<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) -> bool {
    if let Err(reason) = look_again(&buffer.window(), work, lcore) {
        work.drop(reason);
    }
    work.ends_flow()
}

/// Repeats the lookup: an earlier packet of the burst may have changed the flow since the first
/// one.
#[cold]
pub fn find_again(work: &mut Work, lcore: &Lcore<'_>) {
    if work.open() && work.inner.fragment != Fragment::Later {
        lcore.flows().find_to(work.hash, &work.key, &mut work.hit);
    }
}

/// Repeats the lookup of a packet that had no flow, and decides on it if there is one now.
#[cold]
pub fn look_again(
    window: &Window<'_>,
    work: &mut Work,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    if work.hash == 0 || work.inner.fragment == Fragment::Later {
        return Ok(());
    }
    lcore.flows().find_to(work.hash, &work.key, &mut work.hit);
    follow(window, work, lcore)
}

/// Returns the key of the datagram that a fragment belongs to.
pub fn fragment_key(scope: u32, ip: &Ip) -> FragmentKey {
    FragmentKey { scope, src: ip.src, dst: ip.dst, id: ip.fragment_id, proto: ip.proto }
}

#[inline(always)]
fn follow(window: &Window<'_>, work: &mut Work, lcore: &Lcore<'_>) -> Result<(), DropReason> {
    if work.inner.fragment == Fragment::Later {
        return follow_fragment(window, work, lcore);
    }
    let Some(hit) = work.hit else { return Ok(()) };
    let from_initiator = hit.from_initiator(work.side);
    let known = known(window, work, lcore, &hit, from_initiator);
    if work.open() && !work.ends_flow() {
        work.hit = None; // It is no longer the packet's flow.
    }
    known
}

#[inline(never)]
fn follow_fragment(
    window: &Window<'_>,
    work: &mut Work,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    match lcore.fragments().find(&fragment_key(work.front.scope, &work.inner), lcore.now_s()) {
        Some(FragmentTarget::Flow { path, stamp, from_initiator }) => {
            let Some(hit) = lcore.flows().revisit(path, stamp) else { return Ok(()) };
            known(window, work, lcore, &hit, from_initiator)?;
            if !work.open() || work.ends_flow() {
                work.hit = Some(hit);
                // The addresses alone do not determine it: both may be equal.
                let initiator = hit.initiator();
                work.side = if from_initiator { initiator } else { initiator.other() };
            }
            Ok(())
        }
        Some(FragmentTarget::Return) => {
            work.verdict = Verdict::Return;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Decides on a packet of an established flow.
#[inline(always)]
fn known(
    window: &Window<'_>,
    work: &mut Work,
    lcore: &Lcore<'_>,
    hit: &Hit,
    from_initiator: bool,
) -> Result<(), DropReason> {
    let flows = lcore.flows();
    match flows.forward_to(hit, &mut work.path) {
        Ok(()) => {}
        Err(Missed::Gone) => return Ok(()),
        Err(Missed::Busy) => return Err(DropReason::FlowContended),
    }
    let kernels = work.front.arrival == Arrival::Kernel;
    if work.path.flags & PATH_REDIRECT != 0 && kernels == hit.is_front() {
        return Ok(()); // The packet is addressed to the proxy's own port and not to its service.
    }
    let answer = is_answer(work, hit, from_initiator);
    if !answer {
        let fate = keeps_backend(work, lcore, hit, from_initiator);
        if fate != WhenFailed::Keep {
            work.pending |= if fate == WhenFailed::Reset { Work::RESETS } else { Work::MOVES };
            return Ok(());
        }
    }
    if !answer && work.path.mode == Mode::Nat as u8 && !from_initiator {
        return Ok(()); // Sent from the service's address to the client: not load-balanced.
    }
    flows.touch(hit, lcore.now_s());
    work.service = work.path.service;
    work.backend = work.path.backend;
    if work.inner.fragment == Fragment::First {
        let target =
            FragmentTarget::Flow { path: hit.path, stamp: lcore.front_stamp(hit), from_initiator };
        remember(work, lcore, target);
    }
    if answer {
        if work.front.arrival == Arrival::Backend && work.front.outer.src != work.path.backend_addr
        {
            return Err(DropReason::UnknownBackendTunnel);
        }
        // A flow is confirmed once its client sends another packet after an answer.
        if let Some(flags) = work.inner.kind.flow_flags() {
            note(work, lcore, hit, flags, from_initiator);
        }
        work.verdict = Verdict::Answer;
        return Ok(());
    }
    if work.quoted.is_none() {
        refresh_leg(window, work, lcore, hit, from_initiator);
    }
    towards_backend(work);
    if work.verdict == Verdict::Tunnel {
        lcore.prepared().borrow().prefetch(&Key::of(work));
    }
    Ok(())
}

/// Returns true for a packet from the backend's side towards the gateway or client.
#[inline(always)]
fn is_answer(work: &Work, hit: &Hit, from_initiator: bool) -> bool {
    match work.front.arrival {
        // Of the kernel's packets only a proxy's answers get here.
        Arrival::Backend | Arrival::Kernel => true,
        Arrival::Plain => !hit.is_front() || !from_initiator,
        Arrival::Gateway => false,
    }
}

/// Decides if the flow keeps its backend. It moves if the backend is gone, if a new connection
/// reuses the 5-tuple and the backend is not active, and if the service moves flows of failed
/// backends.
#[inline(always)]
fn keeps_backend(
    work: &mut Work,
    lcore: &Lcore<'_>,
    hit: &Hit,
    from_initiator: bool,
) -> WhenFailed {
    let Some(backend) = lcore.set().backend(work.path.backend) else {
        return match keeps_proxy(work, lcore, hit, from_initiator) {
            true => WhenFailed::Keep,
            false => WhenFailed::Move,
        };
    };
    if backend.incarnation != work.path.incarnation {
        return WhenFailed::Move;
    }
    if BackendState::is_failed(backend.state) && from_initiator {
        let fate = when_failed(work, lcore);
        if fate != WhenFailed::Keep {
            return fate;
        }
    }
    if let Some(flags) = work.inner.kind.flow_flags() {
        let state = note(work, lcore, hit, flags, from_initiator);
        if state == TcpState::Reopened && backend.state != BackendState::Active as u8 {
            return WhenFailed::Move;
        }
    }
    WhenFailed::Keep
}

/// Returns how the service handles flows whose backend has failed. Counts those that move.
#[cold]
fn when_failed(work: &Work, lcore: &Lcore<'_>) -> WhenFailed {
    let fate = lcore.set().when_failed(work.path.service, work.inner.kind, work.hash);
    if fate == WhenFailed::Move {
        lcore.page().count(Counter::FlowsMoved, 1);
    }
    fate
}

/// Like [`keeps_backend`], for a flow without a backend: it continues only if it is redirected to a
/// proxy and the packet does not open a new connection on the same 5-tuple.
#[cold]
fn keeps_proxy(work: &mut Work, lcore: &Lcore<'_>, hit: &Hit, from_initiator: bool) -> bool {
    if work.path.flags & PATH_REDIRECT == 0 {
        return false;
    }
    let flags = work.inner.kind.flow_flags();
    flags.is_none_or(|flags| note(work, lcore, hit, flags, from_initiator) != TcpState::Reopened)
}

/// Updates the flow's state by the packet's TCP flags.
#[inline(always)]
fn note(
    work: &mut Work,
    lcore: &Lcore<'_>,
    hit: &Hit,
    flags: u8,
    from_initiator: bool,
) -> TcpState {
    let state = lcore.flows().note(hit, flags, from_initiator);
    if flags & (rewrite::SYN | rewrite::RST) != 0 && (from_initiator || flags & rewrite::RST != 0) {
        work.pending |= Work::RECHECK;
    }
    state
}

/// Ends the flow of a packet that [`Work::pending`] marks to be moved or reset.
#[cold]
pub fn end(work: &mut Work, lcore: &Lcore<'_>, resets: bool) {
    if let Some(ended) = work.hit.take().and_then(|hit| lcore.flows().remove(&hit)) {
        lcore.page().flow_ended(ended.forward.service, ended.forward.backend);
    }
    if resets {
        lcore.page().count(Counter::FlowsReset, 1);
        work.verdict = Verdict::Reply(Reply::Reset);
    }
}

/// Sets the verdict of a packet to the backend, from `path`.
#[inline(always)]
pub fn towards_backend(work: &mut Work) {
    work.verdict = match work.path.mode == Mode::Nat as u8 {
        true if work.path.flags & PATH_REDIRECT != 0 => Verdict::Redirect,
        true => Verdict::Nat,
        false => Verdict::Tunnel,
    };
}

/// Records the flow of this datagram for its later fragments. If the table is full, only those
/// fragments are lost: a flood of first fragments does not affect whole packets.
pub fn remember(work: &Work, lcore: &Lcore<'_>, target: FragmentTarget) {
    let key = fragment_key(work.front.scope, &work.inner);
    if lcore.fragments().remember(&key, target, lcore.now_s()).is_err() {
        lcore.page().count(Counter::FragmentsUntracked, 1);
    }
}

/// Schedules an update of the flow's gateway leg ([`change_leg`]) if the packet's differs.
#[inline(always)]
fn refresh_leg(
    window: &Window<'_>,
    work: &mut Work,
    lcore: &Lcore<'_>,
    hit: &Hit,
    from_initiator: bool,
) {
    if !hit.is_front() || work.path.flags & PATH_ONE_WAY != 0 {
        return;
    }
    let digest = leg::digest(window, work);
    let known = match from_initiator {
        true => digest == hit.digest,
        false => {
            work.path.flags & PATH_RESPONDER_LEG != 0 && digest == work.path.responder_digest()
        }
    };
    if !known && counts(work, lcore, from_initiator) {
        work.pending |= Work::LEG;
    }
}

/// Returns true if the flow adopts the leg of a packet of this direction. A VXLAN gateway has one
/// tunnel per direction; answers use the client's.
#[inline(never)]
fn counts(work: &Work, lcore: &Lcore<'_>, from_initiator: bool) -> bool {
    from_initiator
        || work.front.arrival != Arrival::Gateway
        || lcore.snapshot().tunnels[usize::from(work.front.tunnel)].kind != TunnelKind::Vxlan
}

/// Replaces the flow's gateway leg by that of the packet.
#[cold]
pub fn change_leg(window: &Window<'_>, work: &Work, lcore: &Lcore<'_>) {
    let Some(hit) = &work.hit else { return };
    let from_initiator = hit.from_initiator(work.side);
    let mut options = [0; leg::OPTIONS];
    let options = leg::options(window, work, &mut options);
    let leg = leg::gateway_leg(window, work, lcore.snapshot());
    let digest = leg::digest(window, work);
    origin::note(window, work, lcore);
    match lcore.flows().update_gateway(hit, from_initiator, &leg, options, digest) {
        LegUpdate::Changed => lcore.page().count(Counter::GatewayLegChanges, 1),
        LegUpdate::Shared => {
            lcore.page().count(Counter::GatewayLegChanges, 1);
            lcore.page().count(Counter::GatewayLegsShared, 1);
        }
        LegUpdate::Same | LegUpdate::Missed => {}
    }
}
