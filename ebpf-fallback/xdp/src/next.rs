//! Transitions between stages.
//!
//! Stages are numbers instead of an enum, because they are returned through functions that the
//! verifier checks separately, and those return integers.

use crate::finish;
use crate::packet_state::{Exit, PacketState, Reply, packet_state};
use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::map;
use aya_ebpf::maps::ProgramArray;
use aya_ebpf::programs::XdpContext;
use tables::counters::VerdictCounter;
use tables::reason::DropReason;

/// Stage of [`crate::decap`]. The constants are indices in [`STAGES`].
pub const DECAP: u32 = 0;
/// Stage of [`crate::classify`].
pub const CLASSIFY: u32 = 1;
/// Stage of [`crate::track`].
pub const TRACK: u32 = 2;
/// Stage of [`crate::select`].
pub const SELECT: u32 = 3;
/// Stage of [`crate::start`].
pub const START: u32 = 4;
/// Stage of [`crate::encap`].
pub const ENCAP: u32 = 5;
/// Stage of [`crate::front`].
pub const FRONT: u32 = 6;
/// Stage of [`crate::nat`].
pub const NAT: u32 = 7;
/// Stage of [`crate::leg`].
pub const LEG: u32 = 8;
/// Stage of [`crate::reply`].
pub const REPLY: u32 = 9;
/// Stage [`crate::fragment::fragment`].
pub const FRAGMENT: u32 = 10;
/// Stage [`crate::fragment::remember`].
pub const REMEMBER: u32 = 11;
/// Stage of [`crate::insert`].
pub const INSERT: u32 = 12;
/// Stage [`crate::insert::begun`].
pub const BEGUN: u32 = 13;
/// Stage [`crate::outer`].
pub const OUTER: u32 = 14;
/// Stage of [`crate::nat64`].
pub const NAT64: u32 = 15;
/// Stage of [`crate::affinity`].
pub const AFFINITY: u32 = 16;
/// Stage [`crate::fast_reply::plain4`].
pub const PLAIN4: u32 = 17;
/// Stage [`crate::fast_reply::plain6`].
pub const PLAIN6: u32 = 18;
/// Stage [`crate::fast_reply::tunnel4`].
pub const TUNNEL4: u32 = 19;
/// Stage [`crate::fast_reply::tunnel6`].
pub const TUNNEL6: u32 = 20;
/// Stage [`crate::fast_forward::vxlan4`].
pub const VXLAN4: u32 = 21;
/// Stage [`crate::fast_forward::vxlan6`].
pub const VXLAN6: u32 = 22;
/// Stage [`crate::fast_forward::geneve6`].
pub const GENEVE6: u32 = 23;
/// Stage of [`crate::capture`].
pub const CAPTURE: u32 = 24;
/// Stage of [`crate::trace`].
pub const TRACE: u32 = 25;
/// The packet is decided: count it and end the program.
pub const FINISH: u32 = 32;
/// Undecided: continue in the current stage.
pub const CONTINUE: u32 = 33;

/// The stages that the entry program and other stages call.
#[map]
static STAGES: ProgramArray = ProgramArray::with_max_entries(26, 0);

/// Continues with stage `next`. A traced packet passes the stage `trace` before it.
#[inline(always)]
pub fn run_stage(ctx: *mut xdp_md, next: u32) -> u32 {
    if is_traced(next) {
        // Returns if the stage is missing: then the packet is not traced.
        tail_call::<TRACE>(ctx);
    }
    run_untraced(ctx, next)
}

/// Continues with stage `next`. Each index is a constant in an instruction of its own, so that the
/// kernel patches the tail call into a direct jump without a map lookup.
#[inline(always)]
pub fn run_untraced(ctx: *mut xdp_md, next: u32) -> u32 {
    match next {
        DECAP => tail_call::<DECAP>(ctx),
        CLASSIFY => tail_call::<CLASSIFY>(ctx),
        TRACK => tail_call::<TRACK>(ctx),
        SELECT => tail_call::<SELECT>(ctx),
        START => tail_call::<START>(ctx),
        ENCAP => tail_call::<ENCAP>(ctx),
        FRONT => tail_call::<FRONT>(ctx),
        NAT => tail_call::<NAT>(ctx),
        LEG => tail_call::<LEG>(ctx),
        REPLY => tail_call::<REPLY>(ctx),
        FRAGMENT => tail_call::<FRAGMENT>(ctx),
        REMEMBER => tail_call::<REMEMBER>(ctx),
        INSERT => tail_call::<INSERT>(ctx),
        BEGUN => tail_call::<BEGUN>(ctx),
        OUTER => tail_call::<OUTER>(ctx),
        NAT64 => tail_call::<NAT64>(ctx),
        AFFINITY => tail_call::<AFFINITY>(ctx),
        PLAIN4 => tail_call::<PLAIN4>(ctx),
        PLAIN6 => tail_call::<PLAIN6>(ctx),
        TUNNEL4 => tail_call::<TUNNEL4>(ctx),
        TUNNEL6 => tail_call::<TUNNEL6>(ctx),
        VXLAN4 => tail_call::<VXLAN4>(ctx),
        VXLAN6 => tail_call::<VXLAN6>(ctx),
        GENEVE6 => tail_call::<GENEVE6>(ctx),
        _ if is_captured() => tail_call::<CAPTURE>(ctx),
        _ => return finish::finish(ctx),
    }
    finish::stage_missing();
    finish::finish(ctx)
}

/// Returns whether a capture is on for the decided packet: then the stage `capture` finishes it.
#[inline(always)]
fn is_captured() -> bool {
    packet_state().is_some_and(|pkt| pkt.captured_len != 0)
}

/// Returns whether the packet is traced; if so, stores the stage that follows.
#[inline(always)]
fn is_traced(next: u32) -> bool {
    let Some(pkt) = packet_state() else { return false };
    if pkt.traced == 0 {
        return false;
    }
    pkt.traced_next = next;
    true
}

/// Performs a tail call; returns only if that stage is missing.
#[inline(always)]
fn tail_call<const STAGE: u32>(ctx: *mut xdp_md) {
    // SAFETY: helper 12 takes a context, a program array and an index; the called program of this
    // object gets the context with which this one was called.
    unsafe {
        core::arch::asm!(
            "r3 = {stage}", "call 12", stage = const STAGE,
            inout("r1") ctx => _, inout("r2") &raw const STAGES => _, out("r0") _, out("r3") _,
            out("r4") _, out("r5") _,
        );
    }
}

/// Returns `Ok` if the stage continues ([`CONTINUE`]), else the next stage as an error.
#[inline(always)]
pub fn check_next(next: u32) -> Result<(), u32> {
    if next == CONTINUE { Ok(()) } else { Err(next) }
}

/// Returns the next stage of a result: both outcomes are stage numbers.
#[inline(always)]
pub fn next_stage(next: Result<u32, u32>) -> u32 {
    match next {
        Ok(next) | Err(next) => next,
    }
}

/// Returns the raw context.
#[inline(always)]
pub fn raw(ctx: &XdpContext) -> *mut xdp_md {
    ctx.as_ptr().cast()
}

impl PacketState {
    /// Drops the packet for `reason`. Returns the next stage.
    #[inline(always)]
    pub fn drop(&mut self, reason: DropReason) -> u32 {
        self.verdict = VerdictCounter::Drop;
        self.exit = Exit::None;
        self.reason = reason;
        FINISH
    }

    /// Replaces the packet by a reply of the appliance. Returns the next stage.
    #[inline(always)]
    pub fn reply_with(&mut self, reply: Reply) -> u32 {
        self.reply = reply;
        REPLY
    }

    /// Replaces the packet by an ICMP error that reports `mtu`, in bytes. Returns the next stage.
    #[inline(always)]
    pub fn too_big(&mut self, mtu: u16) -> u32 {
        self.mtu = mtu;
        self.reply_with(Reply::TooBig)
    }

    /// Sends the packet by the port of `arm`. Returns the next stage.
    #[inline(always)]
    pub fn transmit(&mut self, verdict: VerdictCounter, arm: u8) -> u32 {
        self.verdict = verdict;
        self.exit = Exit::Port;
        self.exit_arm = arm;
        FINISH
    }

    /// Passes the packet to the kernel. Returns the next stage.
    #[inline(always)]
    pub fn pass(&mut self) -> u32 {
        self.verdict = VerdictCounter::Punt;
        self.exit = Exit::Kernel;
        self.exit_arm = self.arm;
        FINISH
    }
}
