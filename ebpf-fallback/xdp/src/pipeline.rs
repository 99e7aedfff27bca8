//! The packet pipeline in the kernel: fastpath's stages, each a program of its own.
//!
//! ```text
//!  weir (the fast path of a gateway's usual packet: IPv4 in GENEVE)
//!     > geneve6, vxlan4, vxlan6 (the same for IPv6 and for VXLAN)
//!     > plain4, plain6, tunnel4, tunnel6 (the fast path of a backend's usual reply)
//!  any of these, for other packets:
//!     > outer > decap > classify > track > encap | nat | front > finish
//!                          > fragment > track (later fragment of a datagram)
//!                          |       > leg (changed gateway leg) > encap | nat
//!                          > select > start > insert (new flow) > encap | nat
//!                                   > affinity (service with affinity) > start
//!  track, select, insert > remember (first fragment) > next stage
//!  leg, track, insert > nat64 (to a backend of the other family); front > nat64 > front (reply)
//!  any stage > reply (reply of the appliance itself) > finish
//!  while a capture or a trace is on, packets that it may match take the stages only:
//!  capture instead of finish, and trace between two stages
//! ```
//! A single program would exceed the verifier's limit. Therefore each usual packet format has one
//! program that does all the work (`fast_forward`, `fast_reply`). For all others, each stage is
//! entered by a tail call and reads the state of the previous stages from a per-CPU record
//! (`packet_state`). Code with a loop or many branches is a separate function named `part_...`,
//! which the verifier checks once for all packets.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod affinity;
mod capture;
mod classify;
mod cpu_views;
mod decap;
mod encap;
mod fast_forward;
mod fast_reply;
mod finish;
mod flow_hints;
mod fragment;
mod frame;
mod front;
mod header_cache;
mod insert;
mod leg;
mod nat;
mod nat64;
mod next;
mod object;
mod observe;
mod origin;
mod packet_state;
mod parts;
mod region;
mod reply;
mod runtime;
mod runtime_config;
mod select;
mod start;
mod trace;
mod track;

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use fast_forward::forward;
use frame::{is_chained, length, window};
use next::{
    CLASSIFY, CONTINUE, DECAP, ENCAP, FINISH, GENEVE6, OUTER, PLAIN4, PLAIN6, TUNNEL4, TUNNEL6,
    VXLAN4, VXLAN6, check_next, next_stage, raw, run_stage, run_untraced,
};
use observe::run_observed;
use packet::checksum::ipv4_header_ok;
use packet::ethernet::{self, Ethernet};
use packet::geneve::{self, ATTACHMENT_MARK};
use packet::ip::{IPV4_IN_IP, IPV6_IN_IP, Ip, TCP, UDP};
use packet::parsed::Malformed;
use packet::tunnel::LONGEST_HEADERS;
use packet::window::Window;
use packet_state::{Arrival, PacketState, RxInfo, packet_state};
use runtime::runtime_config;
use runtime_config::RuntimeConfig;
use tables::counters::VerdictCounter;
use tables::reason::DropReason;
use tables::region::Region;

/// Entry point: determines the arm and the format of a frame, and forwards it if it is a gateway's
/// usual packet (IPv4 in GENEVE). Otherwise continues with the stage for its format.
#[xdp(frags)]
pub fn weir(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(config) = runtime_config() else { return XDP_PASS };
    // SAFETY: `ctx` is the context with which the kernel called this program.
    let ifindex = unsafe { (*ctx).ingress_ifindex };
    let (arm, arrival) = match ifindex {
        at if at == config.ports[0].ifindex => (0, Arrival::Plain),
        at if at == config.ports[1].ifindex => (1, Arrival::Plain),
        at if at == config.kernel[0] => (0, Arrival::Kernel),
        at if at == config.kernel[1] => (1, Arrival::Kernel),
        // An interface that is not configured in Weir.
        _ => return XDP_PASS,
    };
    let Some(pkt) = packet_state() else { return XDP_PASS };
    let (now_s, generation) = (config.now_s(), Region.generation());
    let rx = RxInfo { arm, arrival, ifindex, now_s, generation };
    let mut next = OUTER;
    if arrival == Arrival::Plain {
        next = detect_format(&window(ctx));
        if next == CONTINUE {
            // GENEVE instead of VXLAN, and IPv4.
            match forward::<false, false>(ctx, pkt, config, &rx) {
                Ok(action) => return action,
                Err(OUTER) => next = OUTER,
                Err(next) => return run_observed(ctx, pkt, config, &rx, next),
            }
        }
    }
    pkt.init(&rx);
    pkt.rx_len = length(ctx);
    match next {
        OUTER => run_observed(ctx, pkt, config, &rx, OUTER),
        usual => run_untraced(ctx, usual),
    }
}

/// Returns the stage for the apparent format of a frame: [`CONTINUE`] for a gateway's GENEVE with
/// IPv4 inside, and [`OUTER`] for an unusual format. Each stage verifies the format itself.
#[inline(always)]
fn detect_format(w: &Window<'_>) -> u32 {
    /// Offset of the IP header.
    const L3: usize = ethernet::HEADER;
    /// Offset of the tunnel header after IPv4 and UDP; over IPv6 it is 20 bytes later.
    const TUNNEL: usize = L3 + 20 + 8;
    /// The first word of GENEVE with eight words of options, without the protocol.
    const GENEVE: u32 = 0x0800_0000;
    /// The first word of VXLAN.
    const VXLAN: u32 = 0x0800_0000;
    const IPV4: u32 = ethernet::IPV4 as u32;
    const IPV6: u32 = ethernet::IPV6 as u32;
    /// A mask without GENEVE's critical bit, which does not determine the format.
    const FORMAT_MASK: u32 = !0x0040_0000;
    let ethertype = w.be16(12).unwrap_or(0);
    if ethertype == ethernet::IPV6 {
        let Ok(proto) = w.byte(L3 + 6) else { return OUTER };
        return match (proto, w.be32(TUNNEL + 20).unwrap_or(0) & FORMAT_MASK) {
            (UDP, word) if word == GENEVE | IPV6 => TUNNEL6,
            (UDP | TCP, _) => PLAIN6,
            _ => OUTER,
        };
    }
    let Ok(proto) = w.byte(L3 + 9) else { return OUTER };
    if ethertype != ethernet::IPV4 {
        return OUTER;
    }
    if proto == TCP {
        return PLAIN4;
    }
    if proto != UDP {
        return OUTER;
    }
    let word = w.be32(TUNNEL).unwrap_or(0) & FORMAT_MASK;
    if word == GENEVE | IPV4 {
        // Weir's own options, which a backend returns, contain a mark.
        let mark = w.be32(TUNNEL + geneve::HEADER + 16).unwrap_or(0);
        return if mark == (ATTACHMENT_MARK >> 32) as u32 { TUNNEL4 } else { CONTINUE };
    }
    if word == GENEVE | IPV6 {
        return GENEVE6;
    }
    if word != VXLAN {
        return PLAIN4;
    }
    match w.be16(TUNNEL + 20).unwrap_or(0) {
        ethernet::IPV4 => VXLAN4,
        ethernet::IPV6 => VXLAN6,
        _ => OUTER,
    }
}

/// The first of the stages for unusual packets: parses Ethernet and the outermost IP header.
#[xdp(frags)]
pub fn outer(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let (Some(pkt), Some(config)) = (packet_state(), runtime_config()) else {
        return run_stage(ctx, FINISH);
    };
    let next = next_stage(parse_outer(ctx, pkt, config));
    run_stage(ctx, next)
}

#[inline(always)]
fn parse_outer(
    ctx: *mut xdp_md,
    pkt: &mut PacketState,
    config: &RuntimeConfig,
) -> Result<u32, u32> {
    let w = window(ctx);
    let plain = pkt.arrival == Arrival::Plain;
    let Ok(eth) = Ethernet::parse(&w) else {
        return Err(pkt.drop(match plain {
            true => reason_if_split(ctx, DropReason::TooShort),
            false => DropReason::ExceptionMalformed,
        }));
    };
    pkt.eth = eth;
    if plain {
        let Ok(to) = w.load::<[u8; 6]>(0) else { return Err(pkt.drop(DropReason::TooShort)) };
        if to != config.port(pkt.arm).mac() {
            // Broadcast and multicast frames go to the kernel: ARP, ND, DHCP, routing protocols.
            return Err(match to[0] & 1 {
                0 => pkt.drop(DropReason::ForeignDstMac),
                _ => {
                    let next = punt(pkt);
                    part_headers(ctx);
                    next
                }
            });
        }
    }
    if eth.ethertype != ethernet::IPV4 && eth.ethertype != ethernet::IPV6 {
        return Err(match plain {
            true => punt(pkt),
            false => pkt.transmit(VerdictCounter::Forward, pkt.arm),
        });
    }
    check_next(part_outer(ctx))?;
    if plain && pkt.outer.src.is_martian() {
        return Err(pkt.drop(DropReason::MartianSource));
    }
    if plain && matches!(pkt.outer.proto, UDP | IPV4_IN_IP | IPV6_IN_IP) {
        return Ok(DECAP);
    }
    pkt.inner = pkt.outer;
    Ok(CLASSIFY)
}

/// Punts a frame, and resets its IP header, which has not been parsed.
#[inline(always)]
fn punt(pkt: &mut PacketState) -> u32 {
    pkt.inner = Ip::default();
    pkt.verdict = VerdictCounter::Punt;
    ENCAP
}

/// Parses the IP header of a broadcast or multicast frame, by which its punt class is determined.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_headers(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    if pkt.inner.read(&window(ctx), pkt.eth.l3, pkt.eth.ethertype).is_err() {
        pkt.inner = Ip::default();
    }
    CONTINUE
}

/// Parses the outermost IP header.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_outer(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let w = window(ctx);
    let reason = match pkt.outer.read(&w, pkt.eth.l3, pkt.eth.ethertype) {
        Ok(()) if pkt.outer.v6 || ipv4_header_ok(&w, &pkt.outer) => return CONTINUE,
        Ok(()) => DropReason::BadIpChecksum,
        Err(Malformed::Short) => DropReason::TooShort,
        Err(_) => DropReason::BadIpHeader,
    };
    let from_kernel = pkt.arrival == Arrival::Kernel;
    pkt.drop(match from_kernel {
        true => DropReason::ExceptionMalformed,
        false => reason_if_split(ctx, reason),
    })
}

/// Returns `reason`, or `HeadersSplit` if the frame has several buffers and the first one may be
/// too short for all headers.
#[inline(always)]
pub fn reason_if_split(ctx: *mut xdp_md, reason: DropReason) -> DropReason {
    use DropReason::{BadIpHeader, InnerMalformed, TooShort};
    let truncated = matches!(reason, TooShort | BadIpHeader | InnerMalformed);
    let split = truncated && is_chained(ctx) && window(ctx).len() < LONGEST_HEADERS;
    if split { DropReason::HeadersSplit } else { reason }
}
