//! The gateway's side of a packet: what an answer needs to find its way back, and its digest.

use crate::burst::{Arrival, Work};
use crate::snapshot::Snapshot;
use packet::window::Window;
use tables::flow::{GatewayLeg, NO_TUNNEL};

/// Room for the longest option area of GENEVE: 63 words.
pub const OPTIONS: usize = 252;

const K: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn mix(h: u64, word: u64) -> u64 {
    let h = (h ^ word).wrapping_mul(K);
    h ^ h >> 32
}

/// A digest of all that [`gateway_leg`] and [`options`] take from the packet. Equal digests let the
/// hot path leave the flow's path record alone; a collision (1 in 2^32 per change) would answer
/// with the options before the last change.
#[inline(always)]
pub fn digest(window: &Window<'_>, work: &Work) -> u32 {
    let mac = window.load::<u64>(6).unwrap_or(0) & u64::from_le(0x0000_ffff_ffff_ffff);
    let mut h = mix(u64::from(work.tunnel) << 32 | u64::from(work.eth.vlan), mac);
    if work.arrival == Arrival::Gateway {
        let (src, dst) = (&work.outer.src.words, &work.outer.dst.words);
        h = mix(h, u64::from(src[2] ^ src[0]) << 32 | u64::from(src[3] ^ src[1].rotate_left(7)));
        h = mix(h, u64::from(dst[3]) << 32 | u64::from(work.vni));
        h = mix(h, u64::from(work.outer.sport) << 16 | u64::from(work.outer.dport));
        let mut at = usize::from(work.options_at);
        let end = at + usize::from(work.options_len);
        while at + 8 <= end {
            h = mix(h, window.load::<u64>(at).unwrap_or(0));
            at += 8;
        }
        if at < end {
            h = mix(h, u64::from(window.load::<u32>(at).unwrap_or(0)));
        }
        if work.inner_eth != 0 {
            let inner = usize::from(work.inner_eth);
            h = mix(h, window.load::<u64>(inner).unwrap_or(0));
            h = mix(h, u64::from(window.load::<u32>(inner + 8).unwrap_or(0)));
        }
    }
    (h ^ h >> 29) as u32
}

/// The gateway's side of a packet, or the client's of a plain one.
pub fn gateway_leg(window: &Window<'_>, work: &Work, snapshot: &Snapshot) -> GatewayLeg {
    let mac = |at: usize| window.load::<[u8; 6]>(at).unwrap_or_default();
    let mut leg = GatewayLeg {
        gateway_mac: mac(6),
        vlan: work.eth.vlan,
        arm: work.arm,
        tunnel: NO_TUNNEL,
        ..GatewayLeg::default()
    };
    if work.arrival == Arrival::Gateway {
        leg.node = work.outer.src;
        leg.local = work.outer.dst;
        leg.node_port = work.outer.sport;
        leg.local_port = work.outer.dport;
        leg.vni = work.vni;
        leg.tunnel = snapshot.tunnels[usize::from(work.tunnel)].id as u8;
        if work.inner_eth != 0 {
            leg.inner_dst = mac(usize::from(work.inner_eth));
            leg.inner_src = mac(usize::from(work.inner_eth) + 6);
        }
    }
    leg
}

/// The option bytes of a GENEVE packet, copied into `room`; none for other packets.
pub fn options<'a>(window: &Window<'_>, work: &Work, room: &'a mut [u8; OPTIONS]) -> &'a [u8] {
    let len = usize::from(work.options_len).min(OPTIONS);
    for (i, word) in room[..len].chunks_exact_mut(4).enumerate() {
        let bytes = window.load::<u32>(usize::from(work.options_at) + 4 * i).unwrap_or(0);
        word.copy_from_slice(&bytes.to_ne_bytes());
    }
    &room[..len]
}
