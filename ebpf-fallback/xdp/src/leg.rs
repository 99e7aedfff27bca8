//! Leg: the gateway leg of a packet, by which replies return, and its digest. The stage of this
//! name updates a leg that changed.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::{flows, page};
use crate::frame::window;
use crate::next::{CONTINUE, ENCAP, FINISH, NAT, NAT64, raw, run_stage};
use crate::origin::record_return_leg;
use crate::packet_state::{Arrival, PacketState, packet_state};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::digest::Digest;
use packet::geneve::{MAX_OPTIONS, OWN_OPTIONS};
use packet::ip::Ip;
use packet::window::Window;
use tables::counters::{Counter, VerdictCounter};
use tables::flow::{GatewayLeg, LegUpdate, NO_TUNNEL, Options};
use tables::record::{Mode, TunnelKind};

/// The stage: updates the gateway leg of a known flow after a change, and records the return leg.
#[xdp(frags)]
pub fn leg(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    // A VXLAN gateway has one tunnel per direction; replies use that of the client's direction.
    let vxlan = pkt.arrival == Arrival::Gateway
        && pkt.set().tunnel(pkt.tunnel).is_some_and(|t| t.kind == TunnelKind::Vxlan as u8);
    if (!vxlan || pkt.from_initiator)
        && part_leg(ctx) == CONTINUE
        && part_copy_options(ctx) == CONTINUE
    {
        record_return_leg(ctx, pkt);
        part_update_leg();
    }
    let next = towards_backend(pkt);
    run_stage(ctx, next)
}

/// Returns the next stage for a packet of a flow with a known path.
#[inline(always)]
pub fn towards_backend(pkt: &mut PacketState) -> u32 {
    if pkt.path.mode == Mode::Nat as u8 {
        return if pkt.path.crosses() { NAT64 } else { NAT };
    }
    pkt.verdict = VerdictCounter::Tunnel;
    ENCAP
}

/// Updates the flow's leg.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_update_leg() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let (from_initiator, options) = (pkt.from_initiator, options(pkt));
    let update = flows().update_gateway(&pkt.hit, from_initiator, &pkt.leg, options, pkt.digest);
    match update {
        LegUpdate::Changed => page().count(Counter::GatewayLegChanges, 1),
        LegUpdate::Shared => {
            page().count(Counter::GatewayLegChanges, 1);
            page().count(Counter::GatewayLegsShared, 1);
        }
        LegUpdate::Same | LegUpdate::Skipped => {}
    }
    CONTINUE
}

/// The options copied by [`part_copy_options`].
#[inline(always)]
pub fn options(pkt: &PacketState) -> Options<'_> {
    Options { words: &pkt.answer.options, len: usize::from(pkt.options_len) }
}

/// Fills [`PacketState::leg`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_leg(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let w = window(ctx);
    let mac = |at: usize| w.load::<[u8; 6]>(at).unwrap_or_default();
    let leg = &mut pkt.leg;
    if pkt.arrival != Arrival::Gateway {
        // Compiles to single-byte stores, so it is limited to packets for which the assignments
        // below do not set every field.
        *leg = GatewayLeg::default();
    }
    leg.gateway_mac = mac(6);
    leg.vlan = pkt.eth.vlan;
    leg.arm = pkt.arm;
    leg.tunnel = NO_TUNNEL;
    if pkt.arrival == Arrival::Gateway {
        leg.node = pkt.outer.src;
        leg.local = pkt.outer.dst;
        leg.node_port = pkt.outer.sport;
        leg.local_port = pkt.outer.dport;
        leg.vni = pkt.vni;
        leg.tunnel = pkt.tunnel as u8;
        (leg.option_len, leg.spare) = (0, 0);
        let inner = usize::from(pkt.inner_eth);
        (leg.inner_dst, leg.inner_src) =
            if inner == 0 { ([0; 6], [0; 6]) } else { (mac(inner), mac(inner + 6)) };
    }
    CONTINUE
}

/// Copies the option bytes of a GENEVE packet.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn part_copy_options(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let (w, at, len) = (window(ctx), usize::from(pkt.options_at), usize::from(pkt.options_len));
    let buffer = pkt.answer.options.as_mut_ptr().cast::<u32>();
    for i in 0..MAX_OPTIONS / 4 {
        if i * 4 >= len {
            // The last 8-byte word is padded with zeros.
            if i % 2 == 1 {
                // SAFETY: the buffer has 64 words of four bytes.
                unsafe { *buffer.wrapping_add(i) = 0 };
            }
            break;
        }
        let Ok(word) = w.load::<u32>(at + 4 * i) else { return FINISH };
        // SAFETY: as above.
        unsafe { *buffer.wrapping_add(i) = word };
    }
    CONTINUE
}

/// Returns a digest of everything that [`part_leg`] and [`part_copy_options`] read from the packet.
#[inline(always)]
pub fn digest(ctx: *mut xdp_md, w: &Window<'_>, pkt: &PacketState) -> u32 {
    let mut digest = Digest::new();
    let len = usize::from(pkt.options_len);
    let usual = len == OWN_OPTIONS || len == 0;
    if !usual {
        return part_digest(ctx);
    }
    digest_head(w, pkt, &mut digest);
    if pkt.arrival == Arrival::Gateway && len != 0 {
        usual_options(w, pkt.options_at, &mut digest);
    }
    digest_tail(w, pkt, &mut digest);
    digest.finish()
}

/// Returns the digest of a gateway's untagged packet in GENEVE with options of the usual length.
#[inline(always)]
pub fn usual_digest(w: &Window<'_>, outer: &Ip, tunnel: u32, vni: u32, options_at: u16) -> u32 {
    let mut digest = Digest::new();
    digest_sender(w, tunnel, 0, &mut digest);
    digest_outer(outer, vni, &mut digest);
    usual_options(w, options_at, &mut digest);
    digest.finish()
}

/// Returns the digest of a gateway's untagged packet in VXLAN.
#[inline(always)]
pub fn digest_vxlan(w: &Window<'_>, outer: &Ip, tunnel: u32, vni: u32, inner_eth: u16) -> u32 {
    let mut digest = Digest::new();
    digest_sender(w, tunnel, 0, &mut digest);
    digest_outer(outer, vni, &mut digest);
    digest_inner_macs(w, inner_eth, &mut digest);
    digest.finish()
}

#[inline(always)]
fn usual_options(w: &Window<'_>, at: u16, digest: &mut Digest) {
    for word in w.load::<[u64; 4]>(usize::from(at)).unwrap_or_default() {
        digest.add(word);
    }
}

/// Returns the digest of a packet with unusual options.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_digest(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let w = &window(ctx);
    let mut digest = Digest::new();
    digest_head(w, pkt, &mut digest);
    let (at, len) = (usize::from(pkt.options_at), usize::from(pkt.options_len));
    for i in 0..MAX_OPTIONS / 4 {
        if i * 4 >= len || pkt.arrival != Arrival::Gateway {
            break;
        }
        digest.add(u64::from(w.load::<u32>(at + 4 * i).unwrap_or(0)));
    }
    digest_tail(w, pkt, &mut digest);
    digest.finish()
}

#[inline(always)]
fn digest_head(w: &Window<'_>, pkt: &PacketState, digest: &mut Digest) {
    digest_sender(w, pkt.tunnel, pkt.eth.vlan, digest);
    if pkt.arrival == Arrival::Gateway {
        digest_outer(&pkt.outer, pkt.vni, digest);
    }
}

#[inline(always)]
const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Adds the sender's MAC address, the tunnel and the VLAN tag.
#[inline(always)]
fn digest_sender(w: &Window<'_>, tunnel: u32, vlan: u16, digest: &mut Digest) {
    digest.add(w.load::<u64>(6).unwrap_or(0) & u64::from_le(0x0000_ffff_ffff_ffff));
    digest.add(pair(tunnel, u32::from(vlan)));
}

/// Adds the outer addresses and ports, and the VNI.
#[inline(always)]
fn digest_outer(outer: &Ip, vni: u32, digest: &mut Digest) {
    let (src, dst) = (&outer.src.words, &outer.dst.words);
    digest.add(pair(src[0], src[3]));
    digest.add(pair(src[1], src[2]));
    digest.add(pair(vni, dst[3]));
    digest.add(pair(u32::from(outer.sport), u32::from(outer.dport)));
}

#[inline(always)]
fn digest_tail(w: &Window<'_>, pkt: &PacketState, digest: &mut Digest) {
    if pkt.arrival == Arrival::Gateway && pkt.inner_eth != 0 {
        digest_inner_macs(w, pkt.inner_eth, digest);
    }
}

/// Adds both addresses of VXLAN's inner Ethernet header.
#[inline(always)]
fn digest_inner_macs(w: &Window<'_>, at: u16, digest: &mut Digest) {
    let at = usize::from(at);
    digest.add(w.load::<u64>(at).unwrap_or(0));
    digest.add(u64::from(w.load::<u32>(at + 8).unwrap_or(0)));
}
