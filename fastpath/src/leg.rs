//! The gateway leg of a packet: what an answer needs for its return path, and a digest of it.

use crate::burst::{Arrival, PacketState};
use crate::snapshot::Snapshot;
use packet::window::Window;
use tables::flow::{GatewayLeg, NO_TUNNEL};

/// The maximum length of GENEVE's option area in bytes: 63 words.
pub const MAX_OPTIONS_LEN: usize = 252;

/// Returns a digest of everything that [`gateway_leg`] and [`options`] take from the packet. If the
/// digests are equal, the hot path skips the update of the flow's path record. On a collision (1 in
/// 2^32 per change) answers would carry the options before the last change.
///
/// The digest is a sum of products with a multiplier each, so that the products are independent.
/// The part that a gateway's packets share is computed once ([`header_digest`]).
#[inline(always)]
pub fn digest(window: &Window<'_>, pkt: &PacketState) -> u32 {
    let headers = &pkt.headers;
    let mut sum = 0_u64;
    let mut mix = |n: u64, word: u64| sum = sum.wrapping_add(word.wrapping_mul(multiplier(n)));
    mix(0, window.load::<u64>(6).unwrap_or(0) & u64::from_le(0x0000_ffff_ffff_ffff));
    if headers.arrival == Arrival::Gateway {
        mix(4, u64::from(headers.leg_digest));
        let cookie = match headers.options_len {
            0 => 0,
            len => {
                let end = usize::from(headers.options_at) + usize::from(len);
                window.load::<u32>(end - 4).unwrap_or(0)
            }
        };
        mix(1, u64::from(cookie) << 32 | u64::from(headers.outer.sport));
        if headers.inner_eth != 0 {
            let inner = usize::from(headers.inner_eth);
            mix(2, window.load::<u64>(inner).unwrap_or(0));
            mix(3, u64::from(window.load::<u32>(inner + 8).unwrap_or(0)));
        }
    } else {
        mix(1, u64::from(headers.eth.vlan));
    }
    fold(sum)
}

/// Returns the part of a gateway packet's digest that is equal for all packets with such headers:
/// everything except the source MAC address, the source port, the last four bytes of the options
/// (the cookie), and inner MAC addresses. It covers what identifies a cached header
/// ([`crate::header_cache`]), so that it need not be computed for each packet.
#[inline(never)]
pub fn header_digest(window: &Window<'_>, pkt: &PacketState) -> u32 {
    let (headers, outer) = (&pkt.headers, &pkt.headers.outer);
    let (mut sum, mut n) = (0_u64, 0);
    let mut mix = |high: u32, low: u32| {
        let word = u64::from(high) << 32 | u64::from(low);
        sum = sum.wrapping_add(word.wrapping_mul(multiplier(n)));
        n += 1;
    };
    let (src, dst) = (&outer.src.words, &outer.dst.words);
    mix(u32::from(headers.tunnel), u32::from(headers.eth.vlan));
    mix(src[0], src[3]);
    mix(src[1], src[2]);
    mix(headers.vni, dst[3]);
    mix(u32::from(outer.dport), u32::from(headers.options_len));
    let (at, len) = (usize::from(headers.options_at), usize::from(headers.options_len));
    for at in (at..at + len.saturating_sub(4)).step_by(4) {
        mix(0, window.load::<u32>(at).unwrap_or(0));
    }
    fold(sum)
}

/// Reduces a sum of products to a digest.
#[inline(always)]
const fn fold(sum: u64) -> u32 {
    ((sum ^ sum >> 32).wrapping_mul(multiplier(0)) >> 32) as u32
}

/// Returns the multiplier of the nth word of a digest.
#[inline(always)]
const fn multiplier(n: u64) -> u64 {
    0x9e37_79b9_7f4a_7c15_u64.wrapping_add(n.wrapping_mul(0xd6e8_feb8_6659_fd92))
}

/// Returns the return path towards the packet's gateway, or towards the client of a plain packet.
pub fn gateway_leg(window: &Window<'_>, pkt: &PacketState, snapshot: &Snapshot) -> GatewayLeg {
    let mac = |at: usize| window.load::<[u8; 6]>(at).unwrap_or_default();
    let mut leg = GatewayLeg {
        gateway_mac: mac(6),
        vlan: pkt.headers.eth.vlan,
        arm: pkt.arm,
        tunnel: NO_TUNNEL,
        ..GatewayLeg::default()
    };
    if pkt.headers.arrival == Arrival::Gateway {
        leg.node = pkt.headers.outer.src;
        leg.local = pkt.headers.outer.dst;
        leg.node_port = pkt.headers.outer.sport;
        leg.local_port = pkt.headers.outer.dport;
        leg.vni = pkt.headers.vni;
        leg.tunnel = snapshot.tunnels[usize::from(pkt.headers.tunnel)].id as u8;
        if pkt.headers.inner_eth != 0 {
            leg.inner_dst = mac(usize::from(pkt.headers.inner_eth));
            leg.inner_src = mac(usize::from(pkt.headers.inner_eth) + 6);
        }
    }
    leg
}

/// Returns the option bytes of a GENEVE packet, copied into `buffer`; empty for other packets.
pub fn options<'a>(
    window: &Window<'_>,
    pkt: &PacketState,
    buffer: &'a mut [u8; MAX_OPTIONS_LEN],
) -> &'a [u8] {
    let len = usize::from(pkt.headers.options_len).min(MAX_OPTIONS_LEN);
    for (i, word) in buffer[..len].chunks_exact_mut(4).enumerate() {
        let bytes = window.load::<u32>(usize::from(pkt.headers.options_at) + 4 * i).unwrap_or(0);
        word.copy_from_slice(&bytes.to_ne_bytes());
    }
    &buffer[..len]
}
