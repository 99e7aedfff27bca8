//! Stage 4, track: does the packet belong to a flow that is known?
//!
//! A known flow keeps its backend, whatever the tables say today. What comes from the gateway's
//! side refreshes the flow's gateway leg of that direction, so that what goes back carries the
//! latest options.

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

/// Looks the packet's flow up and asks the cache for its path.
#[inline(always)]
pub fn find(work: &mut Work, lcore: &Lcore<'_>) {
    // A later fragment has no ports: its datagram's first fragment said which flow it is of. An
    // error about one has no key: nobody remembers which flow's it was.
    if work.open() && work.inner.fragment != Fragment::Later {
        lcore.flows().find_to(work.hash, &work.key, &mut work.hit);
        if let Some(hit) = &work.hit {
            // An answer reads four lines where a request reads one.
            match hit.is_front() && hit.from_initiator(work.side) {
                true => lcore.flows().prefetch_path(hit),
                false => lcore.flows().prefetch_answer(hit),
            }
        }
    }
}

/// Decides where a known flow's packet goes.
#[inline(always)]
pub fn track<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) {
    if work.open()
        && let Err(reason) = follow(&buffer.window(), work, lcore)
    {
        work.drop(reason);
    }
}

/// As [`track`], of a packet whose flow may have begun since the burst's look-ups. True where that
/// is to end.
#[cold]
pub fn again<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) -> bool {
    if let Err(reason) = look_again(&buffer.window(), work, lcore) {
        work.drop(reason);
    }
    work.ends_flow()
}

/// Looks the packet up once more: what an earlier packet of its burst changed of their flow is not
/// in what was found.
#[cold]
pub fn find_again(work: &mut Work, lcore: &Lcore<'_>) {
    if work.open() && work.inner.fragment != Fragment::Later {
        lcore.flows().find_to(work.hash, &work.key, &mut work.hit);
    }
}

/// Looks once more for the flow of a packet that had none, and decides if there is one by now.
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

/// The datagram that a fragment belongs to.
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
        work.hit = None; // It is not the packet's flow any more.
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
                // Addresses alone don't always say it: both may be the same.
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

/// Decides for a packet of a known flow.
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
        return Ok(()); // To the proxy's own port, and not by its service.
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
        return Ok(()); // From the service's own address towards the client: not ours to balance.
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
        // A flow is confirmed once its client went on after an answer.
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

/// Which way: true from the backend's side to the gateway or client.
#[inline(always)]
fn is_answer(work: &Work, hit: &Hit, from_initiator: bool) -> bool {
    match work.front.arrival {
        // Of the kernel's only a proxy's answers come so far.
        Arrival::Backend | Arrival::Kernel => true,
        Arrival::Plain => !hit.is_front() || !from_initiator,
        Arrival::Gateway => false,
    }
}

/// Whether the flow goes on with its backend. It moves when that is gone, when a new connection on
/// the old 5-tuple should choose anew, and when its service says so of failed backends.
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

/// What the service says of flows whose backend has failed. Counts those that move.
#[cold]
fn when_failed(work: &Work, lcore: &Lcore<'_>) -> WhenFailed {
    let fate = lcore.set().when_failed(work.path.service, work.inner.kind, work.hash);
    if fate == WhenFailed::Move {
        lcore.page().count(Counter::FlowsMoved, 1);
    }
    fate
}

/// As [`keeps_backend`], of a flow without one: only to a proxy it goes on. A new connection on the
/// old 5-tuple asks its service once more.
#[cold]
fn keeps_proxy(work: &mut Work, lcore: &Lcore<'_>, hit: &Hit, from_initiator: bool) -> bool {
    if work.path.flags & PATH_REDIRECT == 0 {
        return false;
    }
    let flags = work.inner.kind.flow_flags();
    flags.is_none_or(|flags| note(work, lcore, hit, flags, from_initiator) != TcpState::Reopened)
}

/// Notes the packet's TCP flags.
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

/// Ends the flow of a packet, by whose [`Work::pending`] it moves or is reset.
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

/// Sets the verdict for a packet on its way to the backend; `path` is known.
#[inline(always)]
pub fn towards_backend(work: &mut Work) {
    work.verdict = match work.path.mode == Mode::Nat as u8 {
        true if work.path.flags & PATH_REDIRECT != 0 => Verdict::Redirect,
        true => Verdict::Nat,
        false => Verdict::Tunnel,
    };
}

/// Remembers which flow the later fragments of this datagram are of. Where there is no room for
/// that, only they are lost: a flood of first fragments takes nothing from whole packets.
pub fn remember(work: &Work, lcore: &Lcore<'_>, target: FragmentTarget) {
    let key = fragment_key(work.front.scope, &work.inner);
    if lcore.fragments().remember(&key, target, lcore.now_s()).is_err() {
        lcore.page().count(Counter::FragmentsUntracked, 1);
    }
}

/// Has the gateway's side of the packet taken over ([`change_leg`]) where it differs from what the
/// flow has.
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

/// Whether a flow takes over the leg of a gateway's packet of this direction. A VXLAN gateway has a
/// tunnel for each direction; answers go by the client's.
#[inline(never)]
fn counts(work: &Work, lcore: &Lcore<'_>, from_initiator: bool) -> bool {
    from_initiator
        || work.front.arrival != Arrival::Gateway
        || lcore.snapshot().tunnels[usize::from(work.front.tunnel)].kind != TunnelKind::Vxlan
}

/// Takes over a leg that differs.
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
