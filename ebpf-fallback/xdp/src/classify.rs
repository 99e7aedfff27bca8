//! Classify: computes the flow key of a packet, looks up the flow, and selects the next stage:
//! `track`, `select`, `fragment` or `encap`.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::{flows, page};
use crate::frame::window;
use crate::next::{CONTINUE, ENCAP, FINISH, FRAGMENT, SELECT, TRACK, next_stage, raw, run_stage};
use crate::packet_state::{Arrival, PacketState, packet_state};
use crate::runtime::error_limit;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::addr::Addr;
use packet::flow::FlowKey;
use packet::icmp;
use packet::ip::{Fragment, Ip, L4};
use tables::address_filter::AddressFilter;
use tables::atomic::Ordering::Relaxed;
use tables::counters::{Counter, VerdictCounter};
use tables::flow::PATH_REDIRECT;
use tables::reason::DropReason;
use tables::record::{LOCAL_ADDRS, NoService, TUNNEL_REPLY_TOO_BIG, Tunnel};
use tables::region::Region;
use tables::set::TableSet;

/// The stage: computes the flow key and looks up the flow.
#[xdp(frags)]
pub fn classify(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let next = match pkt.arrival {
        Arrival::Kernel => from_kernel(ctx, pkt),
        _ => next_stage(from_wire(ctx, pkt)),
    };
    run_stage(ctx, next)
}

/// Classifies a packet from the kernel: it is forwarded unchanged, unless it comes from a probe
/// source (the address reserved for health checks of one backend) or is a proxy's reply.
#[inline(always)]
fn from_kernel(ctx: *mut xdp_md, pkt: &mut PacketState) -> u32 {
    match pkt.set().probe(&pkt.inner.src) {
        Some(backend) => {
            pkt.backend = backend;
            // In the stage `encap`, this verdict stands for a probe.
            pkt.verdict = VerdictCounter::Forward;
            ENCAP
        }
        None if is_proxy_reply(ctx, pkt) => TRACK,
        None => pkt.transmit(VerdictCounter::Forward, pkt.arm),
    }
}

/// Returns whether the kernel's packet belongs to a flow that is redirected to a proxy.
#[inline(always)]
fn is_proxy_reply(ctx: *mut xdp_md, pkt: &mut PacketState) -> bool {
    let keyed = match pkt.inner.kind {
        L4::IcmpError => part_quoted(ctx) == CONTINUE && part_flow_key(1) == CONTINUE,
        L4::Tcp { .. } | L4::Udp => part_flow_key(0) == CONTINUE,
        _ => false,
    };
    keyed && part_find_flow() == CONTINUE && part_redirected() == CONTINUE
}

/// Returns [`CONTINUE`] if the packet's known flow is redirected to a proxy and the packet has the
/// proxy's direction: it matched the flow's back entry (that of the backend's side).
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_redirected() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    if flows().forward_to(&pkt.hit, &mut pkt.path).is_err() || pkt.hit.is_front() {
        return FINISH;
    }
    if pkt.path.flags & PATH_REDIRECT != 0 { CONTINUE } else { FINISH }
}

/// Classifies a packet from an arm's port.
#[inline(always)]
fn from_wire(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    match pkt.arrival {
        Arrival::Gateway => filter_gateway(pkt)?,
        Arrival::Backend if pkt.set().probe(&pkt.inner.dst).is_some() => {
            pkt.verdict = VerdictCounter::Punt;
            pkt.to_probe_source = true;
            return Err(ENCAP);
        }
        _ => {}
    }
    if pkt.inner.kind == L4::IcmpError {
        // A malformed ICMP error has no key. For an ICMP error from a martian source no flow is
        // looked up. `select` handles both.
        if pkt.inner.src.is_martian() || part_quoted(ctx) != CONTINUE {
            return Ok(SELECT);
        }
        if pkt.arrival == Arrival::Plain && pkt.quoted.src == pkt.inner.dst {
            part_learn_path_mtu(ctx);
        }
        part_flow_key(1);
    } else {
        part_flow_key(0);
    }
    if pkt.inner.fragment == Fragment::Later {
        return Ok(FRAGMENT);
    }
    if pkt.hash != 0 && part_find_flow() == CONTINUE {
        return Ok(TRACK);
    }
    Ok(SELECT)
}

/// Rejects packets larger than the gateway's inner MTU, and gives packets that certainly have
/// neither flow nor service the verdict `return`.
#[inline(always)]
fn filter_gateway(pkt: &mut PacketState) -> Result<(), u32> {
    let set = pkt.set();
    let Some(tunnel) = set.tunnel(pkt.tunnel) else {
        return Err(pkt.drop(DropReason::NotOurAddress));
    };
    let ip = &pkt.inner;
    if tunnel.inner_mtu != 0 && ip.end - ip.at > tunnel.inner_mtu {
        return Err(match tunnel.flags & TUNNEL_REPLY_TOO_BIG {
            0 => pkt.drop(DropReason::TooBig),
            _ => pkt.too_big(tunnel.inner_mtu),
        });
    }
    if !is_unmatched(&set, tunnel, ip) {
        return Ok(());
    }
    pkt.verdict = VerdictCounter::Return;
    Err(ENCAP)
}

/// Returns whether a packet of this tunnel is returned because it certainly matches no service and
/// no flow: the filters of frontends' and flows' addresses do not contain its addresses.
#[inline(always)]
pub fn is_unmatched(set: &TableSet<'_>, tunnel: &Tunnel, ip: &Ip) -> bool {
    let may_return = tunnel.no_service == NoService::Return as u8
        && ip.fragment == Fragment::Whole
        && ip.kind != L4::IcmpError;
    if !may_return {
        return false;
    }
    let Some(frontends) = set.address_filter() else { return false };
    let flows = AddressFilter::of_flows(&Region);
    !(frontends.may_contain(&ip.dst) || flows.may_contain(&ip.dst) || flows.may_contain(&ip.src))
}

/// Parses the packet that an ICMP error quotes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_quoted(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    match icmp::quoted(&window(ctx), &pkt.inner) {
        Ok(quoted) => {
            pkt.quoted = quoted;
            pkt.has_quoted = true;
            CONTINUE
        }
        Err(_) => FINISH,
    }
}

/// Stores the path MTU that an ICMP error reports for an outer packet of Weir: see fastpath's
/// `pmtu`. The loader passes it on to slowpath.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_learn_path_mtu(ctx: *mut xdp_md) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let w = window(ctx);
    let reported = icmp::reported_mtu(&w, &pkt.inner).unwrap_or(0);
    if reported == 0 || part_quoted_source_is_own() != CONTINUE {
        return FINISH;
    }
    let mtu = icmp::path_mtu(&w, &pkt.inner, &pkt.quoted).unwrap_or(0);
    if part_may_learn_path_mtu() != CONTINUE
        || mtu == 0
        || part_lower_mtu(u32::from(mtu)) != CONTINUE
    {
        page().count(Counter::IcmpErrorsRejected, 1);
    }
    CONTINUE
}

/// Returns [`CONTINUE`] if another ICMP error that reports a path MTU may be evaluated in this
/// second.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_may_learn_path_mtu() -> u32 {
    let (Some(pkt), Some(limit)) = (packet_state(), error_limit()) else { return FINISH };
    let limits = &pkt.set().settings().error_limits;
    if limit.may_learn(limits, pkt.now_s) { CONTINUE } else { FINISH }
}

/// Lowers the path MTU of the next hop to which the quoted packet was sent. Returns [`FINISH`] if
/// there is no such next hop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_lower_mtu(mtu: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let set = pkt.set();
    let Some(id) = set.next_hop_at(&pkt.quoted.dst, pkt.arm) else { return FINISH };
    let (Some(hop), Some(learned)) = (set.next_hop(id), Region.path_mtu(id)) else {
        return FINISH;
    };
    let before = learned.load(Relaxed);
    if mtu < before || before == 0 && mtu < u32::from(hop.mtu) {
        learned.store(mtu, Relaxed);
    }
    CONTINUE
}

/// Returns [`CONTINUE`] if the quoted packet was sent from an address of this host or from a source
/// address of Weir's IP-in-IP tunnels.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_quoted_source_is_own() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let settings = pkt.set().settings();
    for i in 0..LOCAL_ADDRS {
        let addr = settings.locals[i].addr;
        if addr == Addr::UNSPECIFIED {
            break;
        }
        if addr == pkt.quoted.src {
            return CONTINUE;
        }
    }
    if settings.is_ipip_source(&pkt.quoted.src) { CONTINUE } else { FINISH }
}

/// Computes the flow key of the packet itself, or of the packet that it quotes (`quoted` is 1).
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_flow_key(quoted: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let ip: &Ip = if quoted != 0 { &pkt.quoted } else { &pkt.inner };
    let (key, side) = FlowKey::new(pkt.scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
    // An error comes from the direction that is opposite to the quoted packet's.
    pkt.side = if quoted != 0 { side.other() } else { side };
    if ip.fragment == Fragment::Later {
        // The stage `fragment` looks up the flow of a later fragment. For a quoted later fragment,
        // no flow is looked up.
        return FINISH;
    }
    pkt.key = key;
    pkt.hash = key.hash(&Region.hash_key());
    CONTINUE
}

/// Looks up the flow by [`PacketState::key`], and stores its entry in [`PacketState::hit`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_find_flow() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    match flows().find(pkt.hash, &pkt.key) {
        Some(hit) => {
            pkt.hit = hit;
            pkt.flow_found = true;
            CONTINUE
        }
        None => FINISH,
    }
}
