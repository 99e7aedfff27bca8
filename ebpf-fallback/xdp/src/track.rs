//! Track: keeps the packets of a known flow on its backend, regardless of the current tables.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::{flows, page};
use crate::frame::window;
use crate::leg::{digest, towards_backend};
use crate::next::{
    CONTINUE, FINISH, FRONT, LEG, REMEMBER, REPLY, SELECT, TRACK, next_stage, raw, run_stage,
};
use crate::packet_state::{Arrival, PacketState, Reply, packet_state};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ip::Fragment;
use tables::counters::Counter;
use tables::flow::{PATH_ONE_WAY, PATH_REDIRECT, PATH_RESPONDER_LEG, PathError, TcpState};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, WhenFailed};

/// The stage: handles a packet of a known flow.
#[xdp(frags)]
pub fn track(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    if pkt.inner.fragment != Fragment::Later {
        pkt.from_initiator = pkt.hit.from_initiator(pkt.side);
    }
    let next = next_stage(track_flow(ctx, pkt));
    if next == SELECT || next == REPLY {
        pkt.flow_found = false; // The flow has ended or does not apply.
    }
    run_stage(ctx, next)
}

#[inline(always)]
fn track_flow(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    match part_forward() {
        CONTINUE => {}
        next => return Err(next),
    }
    let from_kernel = pkt.arrival == Arrival::Kernel;
    if pkt.path.flags & PATH_REDIRECT != 0 && from_kernel == pkt.hit.is_front() {
        return Err(SELECT); // Addressed to the proxy's own port, not to its service.
    }
    let answer = is_answer(pkt);
    if !answer {
        let next = part_keeps_backend();
        if next != CONTINUE {
            part_end_flow();
            if next == REPLY {
                return Err(pkt.reply_with(Reply::Reset));
            }
            return Err(SELECT);
        }
    }
    if !answer && pkt.path.mode == Mode::Nat as u8 && !pkt.from_initiator {
        return Err(SELECT); // A gateway's packet from the service's own address to the client.
    }
    flows().touch(&pkt.hit, pkt.now_s);
    pkt.service = pkt.path.service;
    pkt.backend = pkt.path.backend;
    if pkt.is_first() && !pkt.fragment_recorded {
        pkt.next_stage = TRACK;
        return Err(REMEMBER);
    }
    if answer {
        if pkt.arrival == Arrival::Backend && pkt.outer.src != pkt.path.backend_addr {
            return Err(pkt.drop(DropReason::UnknownBackendTunnel));
        }
        // A flow is confirmed once its client sends after a reply.
        part_note();
        return Ok(FRONT);
    }
    if !pkt.has_quoted && leg_changed(ctx, pkt) {
        return Ok(LEG);
    }
    Ok(towards_backend(pkt))
}

/// Copies the flow's path to [`PacketState::path`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_forward() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    match flows().forward_to(&pkt.hit, &mut pkt.path) {
        Ok(()) => CONTINUE,
        Err(PathError::Gone) => SELECT,
        Err(PathError::Busy) => pkt.drop(DropReason::FlowContended),
    }
}

/// Returns true for packets from the backend's side to the gateway or client.
#[inline(always)]
fn is_answer(pkt: &PacketState) -> bool {
    match pkt.arrival {
        // Only replies of proxies reach this point from the kernel.
        Arrival::Backend | Arrival::Kernel => true,
        Arrival::Plain => !pkt.hit.is_front() || !pkt.from_initiator,
        Arrival::Gateway => false,
    }
}

/// Returns [`CONTINUE`] if the flow keeps its backend, [`SELECT`] if it ends and the packet is
/// assigned anew, [`REPLY`] if the client's connection is reset. The flow ends if the backend is
/// gone or was replaced, if a new connection reuses the 5-tuple and the backend is not active, or
/// if the service does not keep flows of failed backends.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_keeps_backend() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    if pkt.fragment_recorded {
        // The first fragment of a datagram passed here before, and counts as one packet.
        return CONTINUE;
    }
    let Some(backend) = pkt.set().backend(pkt.path.backend) else {
        return part_keeps_proxy();
    };
    if backend.incarnation != pkt.path.incarnation {
        return SELECT;
    }
    if BackendState::is_failed(backend.state) && pkt.from_initiator {
        match part_when_failed() {
            CONTINUE => {}
            next => return next,
        }
    }
    let Some(flags) = pkt.inner.kind.flow_flags() else { return CONTINUE };
    let state = flows().note(&pkt.hit, flags, pkt.from_initiator);
    if state == TcpState::Reopened && backend.state != BackendState::Active as u8 {
        return SELECT;
    }
    CONTINUE
}

/// Returns how the service handles a flow whose backend has failed: [`CONTINUE`] to keep it,
/// [`SELECT`] to move it, [`REPLY`] to reset the client's connection.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_when_failed() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    match pkt.set().when_failed(pkt.path.service, pkt.inner.kind, pkt.hash) {
        WhenFailed::Keep => CONTINUE,
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
/// proxy. A new connection on the same 5-tuple is assigned anew.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_keeps_proxy() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    if pkt.path.flags & PATH_REDIRECT == 0 {
        return SELECT;
    }
    let Some(flags) = pkt.inner.kind.flow_flags() else { return CONTINUE };
    match flows().note(&pkt.hit, flags, pkt.from_initiator) {
        TcpState::Reopened => SELECT,
        _ => CONTINUE,
    }
}

/// Updates the flow's state by the packet's TCP flags.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_note() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    if let Some(flags) = pkt.inner.kind.flow_flags() {
        flows().note(&pkt.hit, flags, pkt.from_initiator);
    }
    CONTINUE
}

/// Ends the flow, which does not keep its backend.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_end_flow() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    if let Some(flow) = flows().remove(&pkt.hit) {
        page().flow_ended(flow.forward.service, flow.forward.backend);
    }
    CONTINUE
}

/// Returns whether the gateway leg of the packet differs from that of the flow in this direction.
#[inline(always)]
fn leg_changed(ctx: *mut xdp_md, pkt: &mut PacketState) -> bool {
    if !pkt.hit.is_front() || pkt.path.flags & PATH_ONE_WAY != 0 {
        return false;
    }
    pkt.digest = digest(ctx, &window(ctx), pkt);
    if pkt.from_initiator {
        return pkt.digest != pkt.hit.digest;
    }
    let has_leg = pkt.path.flags & PATH_RESPONDER_LEG != 0;
    !has_leg || pkt.digest != pkt.path.responder_digest()
}
