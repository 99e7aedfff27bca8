//! The gateway's side of a packet: what an answer needs to find its way back, and its digest.

use crate::burst::{Arrival, Work};
use crate::snapshot::Snapshot;
use packet::geneve::OWN_OPTIONS;
use packet::window::Window;
use tables::flow::{GatewayLeg, NO_TUNNEL};

/// Room for the longest option area of GENEVE: 63 words.
pub const OPTIONS: usize = 252;

/// A digest of all that [`gateway_leg`] and [`options`] take from the packet. Equal digests let the
/// hot path leave the flow's path record alone; a collision (1 in 2^32 per change) would answer
/// with the options before the last change.
///
/// A sum of products, each with a multiplier of its own, so that none waits for another.
#[inline(always)]
pub fn digest(window: &Window<'_>, work: &Work) -> u32 {
    const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
    const STEP: u64 = 0xd6e8_feb8_6659_fd92;
    let (mut sum, mut multiplier) = (0_u64, FIRST);
    let mut take = |word: u64| {
        sum = sum.wrapping_add(word.wrapping_mul(multiplier));
        multiplier = multiplier.wrapping_add(STEP);
    };
    let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let (front, outer) = (&work.front, &work.front.outer);
    take(window.load::<u64>(6).unwrap_or(0) & u64::from_le(0x0000_ffff_ffff_ffff));
    take(pair(u32::from(front.tunnel), u32::from(front.eth.vlan)));
    if front.arrival == Arrival::Gateway {
        let (src, dst) = (&outer.src.words, &outer.dst.words);
        take(pair(src[0], src[3]));
        take(pair(src[1], src[2]));
        take(pair(front.vni, dst[3]));
        take(pair(u32::from(outer.sport), u32::from(outer.dport)));
        let (at, len) = (usize::from(front.options_at), usize::from(front.options_len));
        if len == OWN_OPTIONS {
            for word in window.load::<[u64; 4]>(at).unwrap_or_default() {
                take(word);
            }
        } else {
            for at in (at..at + len).step_by(4) {
                take(u64::from(window.load::<u32>(at).unwrap_or(0)));
            }
        }
        if front.inner_eth != 0 {
            let inner = usize::from(front.inner_eth);
            take(window.load::<u64>(inner).unwrap_or(0));
            take(u64::from(window.load::<u32>(inner + 8).unwrap_or(0)));
        }
    }
    let mixed = (sum ^ sum >> 32).wrapping_mul(FIRST);
    (mixed >> 32) as u32
}

/// The gateway's side of a packet, or the client's of a plain one.
pub fn gateway_leg(window: &Window<'_>, work: &Work, snapshot: &Snapshot) -> GatewayLeg {
    let mac = |at: usize| window.load::<[u8; 6]>(at).unwrap_or_default();
    let mut leg = GatewayLeg {
        gateway_mac: mac(6),
        vlan: work.front.eth.vlan,
        arm: work.arm,
        tunnel: NO_TUNNEL,
        ..GatewayLeg::default()
    };
    if work.front.arrival == Arrival::Gateway {
        leg.node = work.front.outer.src;
        leg.local = work.front.outer.dst;
        leg.node_port = work.front.outer.sport;
        leg.local_port = work.front.outer.dport;
        leg.vni = work.front.vni;
        leg.tunnel = snapshot.tunnels[usize::from(work.front.tunnel)].id as u8;
        if work.front.inner_eth != 0 {
            leg.inner_dst = mac(usize::from(work.front.inner_eth));
            leg.inner_src = mac(usize::from(work.front.inner_eth) + 6);
        }
    }
    leg
}

/// The option bytes of a GENEVE packet, copied into `room`; none for other packets.
pub fn options<'a>(window: &Window<'_>, work: &Work, room: &'a mut [u8; OPTIONS]) -> &'a [u8] {
    let len = usize::from(work.front.options_len).min(OPTIONS);
    for (i, word) in room[..len].chunks_exact_mut(4).enumerate() {
        let bytes = window.load::<u32>(usize::from(work.front.options_at) + 4 * i).unwrap_or(0);
        word.copy_from_slice(&bytes.to_ne_bytes());
    }
    &room[..len]
}
