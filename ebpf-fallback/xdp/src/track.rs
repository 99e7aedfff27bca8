//! Track: keeps the packets of a known flow on its backend, regardless of the current tables.

use crate::frame::window;
use crate::here::{flows, page};
use crate::leg::{digest, towards_backend};
use crate::next::{FINISH, FRONT, LEG, OPEN, REMEMBER, REPLY, SELECT, TRACK, either, go, raw};
use crate::work::{Arrival, Reply, Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ip::Fragment;
use tables::counters::Counter;
use tables::flow::{Missed, PATH_ONE_WAY, PATH_REDIRECT, PATH_RESPONDER_LEG, TcpState};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, WhenFailed};

/// The stage: handles a packet of a known flow.
#[xdp(frags)]
pub fn track(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    if work.inner.fragment != Fragment::Later {
        work.from_initiator = work.hit.from_initiator(work.side);
    }
    let next = either(known(ctx, work));
    if next == SELECT || next == REPLY {
        work.known = false; // The flow has ended or does not apply.
    }
    go(ctx, next)
}

/// Handles a packet of a known flow.
#[inline(always)]
fn known(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    match part_forward() {
        OPEN => {}
        next => return Err(next),
    }
    let kernels = work.arrival == Arrival::Kernel;
    if work.path.flags & PATH_REDIRECT != 0 && kernels == work.hit.is_front() {
        return Err(SELECT); // Addressed to the proxy's own port, not to its service.
    }
    let answer = is_answer(work);
    if !answer {
        let next = part_keeps_backend();
        if next != OPEN {
            part_end_flow();
            if next == REPLY {
                return Err(work.answer_with(Reply::Reset));
            }
            return Err(SELECT);
        }
    }
    if !answer && work.path.mode == Mode::Nat as u8 && !work.from_initiator {
        return Err(SELECT); // Sent from the service's own address to the client.
    }
    flows().touch(&work.hit, work.now_s);
    work.service = work.path.service;
    work.backend = work.path.backend;
    if work.is_first() && !work.remembered {
        work.then = TRACK;
        return Err(REMEMBER);
    }
    if answer {
        if work.arrival == Arrival::Backend && work.outer.src != work.path.backend_addr {
            return Err(work.drop(DropReason::UnknownBackendTunnel));
        }
        // A flow is confirmed once its client sends after a reply.
        part_note();
        return Ok(FRONT);
    }
    if !work.quotes && has_other_leg(ctx, work) {
        return Ok(LEG);
    }
    Ok(towards_backend(work))
}

/// Reads the path.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_forward() -> u32 {
    let Some(work) = work() else { return FINISH };
    match flows().forward_to(&work.hit, &mut work.path) {
        Ok(()) => OPEN,
        Err(Missed::Gone) => SELECT,
        Err(Missed::Busy) => work.drop(DropReason::FlowContended),
    }
}

/// Returns true for packets from the backend's side to the gateway or client.
#[inline(always)]
fn is_answer(work: &Work) -> bool {
    match work.arrival {
        // Only replies of proxies reach this point from the kernel.
        Arrival::Backend | Arrival::Kernel => true,
        Arrival::Plain => !work.hit.is_front() || !work.from_initiator,
        Arrival::Gateway => false,
    }
}

/// Returns [`OPEN`] if the flow keeps its backend. It does not if the backend is gone, if a new
/// connection on the old 5-tuple should be assigned anew, or if the service does not keep flows of
/// failed backends.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_keeps_backend() -> u32 {
    let Some(work) = work() else { return FINISH };
    if work.remembered {
        // The first fragment of a datagram passed here before, and counts as one packet.
        return OPEN;
    }
    let Some(backend) = work.set().backend(work.path.backend) else {
        return part_keeps_proxy();
    };
    if backend.incarnation != work.path.incarnation {
        return SELECT;
    }
    if BackendState::is_failed(backend.state) && work.from_initiator {
        match part_when_failed() {
            OPEN => {}
            next => return next,
        }
    }
    let Some(flags) = work.inner.kind.flow_flags() else { return OPEN };
    let state = flows().note(&work.hit, flags, work.from_initiator);
    if state == TcpState::Reopened && backend.state != BackendState::Active as u8 {
        return SELECT;
    }
    OPEN
}

/// Returns how the service handles a flow whose backend has failed: [`OPEN`] to keep it, [`SELECT`]
/// to move it, [`REPLY`] to reset the client's connection.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_when_failed() -> u32 {
    let Some(work) = work() else { return FINISH };
    match work.set().when_failed(work.path.service, work.inner.kind, work.hash) {
        WhenFailed::Keep => OPEN,
        WhenFailed::Move => {
            page().count(Counter::FlowsMoved, 1);
            SELECT
        }
        WhenFailed::Reset => {
            page().count(Counter::FlowsReset, 1);
            REPLY
        }
    }
}

/// As [`part_keeps_backend`] for a flow without a backend, which continues only if it goes to a
/// proxy. A new connection on the old 5-tuple is assigned anew.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_keeps_proxy() -> u32 {
    let Some(work) = work() else { return FINISH };
    if work.path.flags & PATH_REDIRECT == 0 {
        return SELECT;
    }
    let Some(flags) = work.inner.kind.flow_flags() else { return OPEN };
    match flows().note(&work.hit, flags, work.from_initiator) {
        TcpState::Reopened => SELECT,
        _ => OPEN,
    }
}

/// Updates the flow's state by the packet.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_note() -> u32 {
    let Some(work) = work() else { return FINISH };
    if let Some(flags) = work.inner.kind.flow_flags() {
        flows().note(&work.hit, flags, work.from_initiator);
    }
    OPEN
}

/// Ends the flow, whose backend is gone.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_end_flow() -> u32 {
    let Some(work) = work() else { return FINISH };
    if let Some(ended) = flows().remove(&work.hit) {
        page().flow_ended(ended.forward.service, ended.forward.backend);
    }
    OPEN
}

/// Returns whether the gateway leg of the packet differs from that of the flow in this direction.
#[inline(always)]
fn has_other_leg(ctx: *mut xdp_md, work: &mut Work) -> bool {
    if !work.hit.is_front() || work.path.flags & PATH_ONE_WAY != 0 {
        return false;
    }
    work.digest = digest(ctx, &window(ctx), work);
    if work.from_initiator {
        return work.digest != work.hit.digest;
    }
    let known = work.path.flags & PATH_RESPONDER_LEG != 0;
    !known || work.digest != work.path.responder_digest()
}
