//! Finish: counts the packet once, and sends it.

use crate::frame::length;
use crate::here::page;
use crate::place::{place, redirect};
use crate::ports::Place;
use crate::work::{Arrival, Exit, Reply, work};
use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_REDIRECT, XDP_TX};
use aya_ebpf::bindings::xdp_md;
use tables::counters::{ArmCounter, VerdictCounter};
use tables::reason::DropReason;
use tables::record::NONE;

/// Records that the next stage is missing. It does not call [`finish`] itself: a third stack frame
/// under a first stage exceeds the limit of kernels before 6.4.
#[inline(never)]
pub fn astray() {
    if let Some(work) = work() {
        work.drop(DropReason::StageMissing);
    }
}

/// Sends a frame that arrived on the interface `ifindex` by an arm's port; returns [`XDP_DROP`] if
/// that fails.
#[inline(always)]
pub fn sent(place: &Place, arm: u8, ifindex: u32) -> u32 {
    if place.port(arm).ifindex == ifindex {
        XDP_TX
    } else if redirect(arm) {
        XDP_REDIRECT
    } else {
        XDP_DROP
    }
}

/// Counts and sends a packet as the stages decided.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn finish(ctx: *mut xdp_md) -> u32 {
    let (Some(work), Some(place)) = (work(), place()) else { return XDP_DROP };
    let page = page();
    match work.arrival {
        Arrival::Kernel => {
            page.arm_packet(work.arm, ArmCounter::FromKernelPackets, work.came);
        }
        _ => {
            page.arm_packet(work.arm, ArmCounter::RxPackets, work.came);
        }
    }
    let mut action = XDP_DROP;
    if work.exit == Exit::Port {
        action = sent(place, work.exit_arm, work.ifindex);
        if action == XDP_DROP {
            work.drop(DropReason::TxRefused);
        }
    }
    if work.exit == Exit::None {
        page.drop(work.arm, work.reason);
        if work.service != NONE {
            page.service_drop(work.service);
        }
        return XDP_DROP;
    }
    let bytes = length(ctx);
    page.verdict(work.verdict, 1);
    if work.exit == Exit::Kernel {
        page.arm_packet(work.exit_arm, ArmCounter::ToKernelPackets, bytes);
        if work.service != NONE {
            page.passage(work.service, work.backend, bytes);
        }
        return XDP_PASS;
    }
    let errs = matches!(work.reply, Reply::TooBig | Reply::TimeExceeded);
    if work.verdict == VerdictCounter::Reply && errs {
        // The packet itself counts as dropped; the error that replaces it counts as originated.
        let big = work.reply == Reply::TooBig;
        let reason = if big { DropReason::TooBigAnswered } else { DropReason::TtlExceeded };
        page.drop(work.arm, reason);
        if work.service != NONE {
            page.service_drop(work.service);
        }
        page.arm_packet(work.arm, ArmCounter::OriginatedPackets, bytes);
    }
    page.arm_packet(work.exit_arm, ArmCounter::TxPackets, bytes);
    if work.service != NONE {
        page.passage(work.service, work.backend, bytes);
    }
    action
}
