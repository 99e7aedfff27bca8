//! Finish: counts the packet once, and sends it.

use crate::cpu_views::page;
use crate::frame::length;
use crate::packet_state::{Arrival, Exit, PacketState, Reply, packet_state};
use crate::runtime::{redirect, runtime_config};
use crate::runtime_config::RuntimeConfig;
use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_REDIRECT, XDP_TX};
use aya_ebpf::bindings::xdp_md;
use core::ptr::read_volatile;
use tables::counters::{ArmCounter, VerdictCounter};
use tables::reason::DropReason;
use tables::record::NONE;

/// Records that the next stage is missing. This function does not call [`finish`] itself: a third
/// nested stack frame would exceed the verifier's limit on Linux 6.1.
#[inline(never)]
pub fn stage_missing() {
    if let Some(pkt) = packet_state() {
        pkt.drop(DropReason::StageMissing);
    }
}

/// Returns the action that sends a frame, which arrived on the interface `ifindex`, by an arm's
/// port; [`XDP_DROP`] if it cannot be sent.
#[inline(always)]
pub fn send_action(config: &RuntimeConfig, arm: u8, ifindex: u32) -> u32 {
    if config.port(arm).ifindex == ifindex {
        XDP_TX
    } else if redirect(arm) {
        XDP_REDIRECT
    } else {
        XDP_DROP
    }
}

/// Returns the size of the frame as it leaves, in bytes.
#[inline(always)]
fn tx_len(pkt: &PacketState) -> u64 {
    // Volatile, so that the number is read again instead of kept on the stack: Linux 6.1 has space
    // for 32 bytes of it in `finish`.
    // SAFETY: a reference is valid for reads.
    unsafe { read_volatile(&raw const pkt.tx_len) }
}

/// Counts the packet and sends, passes or drops it, as the stages decided.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn finish(ctx: *mut xdp_md) -> u32 {
    let (Some(pkt), Some(config)) = (packet_state(), runtime_config()) else { return XDP_DROP };
    let page = page();
    match pkt.arrival {
        Arrival::Kernel => {
            page.arm_packet(pkt.arm, ArmCounter::FromKernelPackets, pkt.rx_len);
        }
        _ => {
            page.arm_packet(pkt.arm, ArmCounter::RxPackets, pkt.rx_len);
        }
    }
    let mut action = XDP_DROP;
    if pkt.exit == Exit::Port {
        action = send_action(config, pkt.exit_arm, pkt.ifindex);
        if action == XDP_DROP {
            pkt.drop(DropReason::TxQueueFull);
        }
    }
    if pkt.exit == Exit::None {
        page.drop(pkt.arm, pkt.reason);
        if pkt.service != NONE {
            page.service_drop(pkt.service);
        }
        return XDP_DROP;
    }
    pkt.tx_len = length(ctx);
    page.verdict(pkt.verdict, 1);
    if pkt.exit == Exit::Kernel {
        page.arm_packet(pkt.exit_arm, ArmCounter::ToKernelPackets, tx_len(pkt));
        if pkt.service != NONE {
            page.forwarded(pkt.service, pkt.backend, tx_len(pkt));
        }
        return XDP_PASS;
    }
    let is_icmp_error = matches!(pkt.reply, Reply::TooBig | Reply::TimeExceeded);
    if pkt.verdict == VerdictCounter::Reply && is_icmp_error {
        // The packet itself counts as dropped; the error that replaces it counts as originated.
        let big = pkt.reply == Reply::TooBig;
        let reason = if big { DropReason::TooBigAnswered } else { DropReason::TtlExceeded };
        page.drop(pkt.arm, reason);
        if pkt.service != NONE {
            page.service_drop(pkt.service);
        }
        page.arm_packet(pkt.arm, ArmCounter::OriginatedPackets, tx_len(pkt));
    }
    page.arm_packet(pkt.exit_arm, ArmCounter::TxPackets, tx_len(pkt));
    if pkt.service != NONE {
        page.forwarded(pkt.service, pkt.backend, tx_len(pkt));
    }
    action
}
