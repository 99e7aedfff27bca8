//! Classify: computes the flow key of a packet, looks up the flow, and handles packets that belong
//! to no flow.

use crate::frame::window;
use crate::here::{flows, page};
use crate::next::{ENCAP, FINISH, FRAGMENT, OPEN, SELECT, TRACK, either, go, raw};
use crate::place::error_limit;
use crate::work::{Arrival, Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::addr::Addr;
use packet::flow::FlowKey;
use packet::icmp;
use packet::ip::{Fragment, Ip, L4};
use tables::addresses::Addresses;
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
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = match work.arrival {
        Arrival::Kernel => from_kernel(ctx, work),
        _ => either(from_wire(ctx, work)),
    };
    go(ctx, next)
}

/// Packets from the kernel are forwarded unchanged, except those from a probe source and replies of
/// proxies.
#[inline(always)]
fn from_kernel(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    match work.set().probe(&work.inner.src) {
        Some(backend) => {
            work.backend = backend;
            // Distinguishes it from a flow's packet: see `encap`.
            work.verdict = VerdictCounter::Forward;
            ENCAP
        }
        None if of_proxy(ctx, work) => TRACK,
        None => work.out(VerdictCounter::Forward, work.arm),
    }
}

/// Returns whether the kernel's packet belongs to a flow that is redirected to a proxy.
#[inline(always)]
fn of_proxy(ctx: *mut xdp_md, work: &mut Work) -> bool {
    let filed = match work.inner.kind {
        L4::IcmpError => part_quoted(ctx) == OPEN && part_file(1) == OPEN,
        L4::Tcp { .. } | L4::Udp => part_file(0) == OPEN,
        _ => false,
    };
    filed && part_known() == OPEN && part_redirected() == OPEN
}

/// Returns [`OPEN`] if the known flow of a packet from this host is redirected to a proxy.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_redirected() -> u32 {
    let Some(work) = work() else { return FINISH };
    if flows().forward_to(&work.hit, &mut work.path).is_err() || work.hit.is_front() {
        return FINISH;
    }
    if work.path.flags & PATH_REDIRECT != 0 { OPEN } else { FINISH }
}

#[inline(always)]
fn from_wire(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    match work.arrival {
        Arrival::Gateway => sift(work)?,
        Arrival::Backend if work.set().probe(&work.inner.dst).is_some() => {
            work.verdict = VerdictCounter::Punt;
            work.to_prober = true;
            return Err(ENCAP);
        }
        _ => {}
    }
    if work.inner.kind == L4::IcmpError {
        // A damaged error has no key, and thus no flow. An error from a martian source has no flow
        // either; its gateway's settings determine how it is handled.
        if work.inner.src.is_martian() || part_quoted(ctx) != OPEN {
            return Ok(SELECT);
        }
        if work.arrival == Arrival::Plain && work.quoted.src == work.inner.dst {
            part_learn(ctx);
        }
        part_file(1);
    } else {
        part_file(0);
    }
    if work.inner.fragment == Fragment::Later {
        return Ok(FRAGMENT);
    }
    if work.hash != 0 && part_known() == OPEN {
        return Ok(TRACK);
    }
    Ok(SELECT)
}

/// Handles packets larger than the gateway's inner MTU, and returns packets without flow or service
/// to the gateway, as detected by the two address filters.
#[inline(always)]
fn sift(work: &mut Work) -> Result<(), u32> {
    let set = work.set();
    let Some(tunnel) = set.tunnel(work.tunnel) else {
        return Err(work.drop(DropReason::NotOurAddress));
    };
    let ip = &work.inner;
    if tunnel.inner_mtu != 0 && ip.end - ip.at > tunnel.inner_mtu {
        return Err(match tunnel.flags & TUNNEL_REPLY_TOO_BIG {
            0 => work.drop(DropReason::TooBig),
            _ => work.too_big(tunnel.inner_mtu),
        });
    }
    if !between_strangers(&set, tunnel, ip) {
        return Ok(());
    }
    work.verdict = VerdictCounter::Return;
    Err(ENCAP)
}

/// Returns whether a packet of this tunnel certainly matches no service and no flow, so that it is
/// returned.
#[inline(always)]
pub fn between_strangers(set: &TableSet<'_>, tunnel: &Tunnel, ip: &Ip) -> bool {
    let may_be_a_strangers = tunnel.no_service == NoService::Return as u8
        && ip.fragment == Fragment::Whole
        && ip.kind != L4::IcmpError;
    if !may_be_a_strangers {
        return false;
    }
    let Some(known) = set.acquaintances() else { return false };
    let flows = Addresses::of_flows(&Region);
    !(known.may_have(&ip.dst) || flows.may_have(&ip.dst) || flows.may_have(&ip.src))
}

/// Parses the packet that an ICMP error quotes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_quoted(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    match icmp::quoted(&window(ctx), &work.inner) {
        Ok(quoted) => {
            work.quoted = quoted;
            work.quotes = true;
            OPEN
        }
        Err(_) => FINISH,
    }
}

/// Stores the path MTU that an ICMP error reports for an own outer packet: see fastpath's `pmtu`.
/// The loader reports it to slowpath.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_learn(ctx: *mut xdp_md) -> u32 {
    let Some(work) = work() else { return FINISH };
    let w = window(ctx);
    let told = icmp::told_mtu(&w, &work.inner).unwrap_or(0);
    if told == 0 || part_from_us() != OPEN {
        return FINISH;
    }
    let mtu = icmp::path_mtu(&w, &work.inner, &work.quoted).unwrap_or(0);
    if part_may_learn() != OPEN || mtu == 0 || part_believe(u32::from(mtu)) != OPEN {
        page().count(Counter::IcmpErrorsDisbelieved, 1);
    }
    OPEN
}

/// Returns [`OPEN`] if another such error may be evaluated in this second.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_may_learn() -> u32 {
    let (Some(work), Some(limit)) = (work(), error_limit()) else { return FINISH };
    let limits = &work.set().settings().error_limits;
    if limit.may_learn(limits, work.now_s) { OPEN } else { FINISH }
}

/// Lowers the path MTU of the next hop to which the quoted packet was sent, if it is a known next
/// hop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_believe(mtu: u32) -> u32 {
    let Some(work) = work() else { return FINISH };
    let set = work.set();
    let Some(id) = set.next_hop_at(&work.quoted.dst, work.arm) else { return FINISH };
    let (Some(hop), Some(learned)) = (set.next_hop(id), Region.path_mtu(id)) else {
        return FINISH;
    };
    let before = learned.load(Relaxed);
    if mtu < before || before == 0 && mtu < u32::from(hop.mtu) {
        learned.store(mtu, Relaxed);
    }
    OPEN
}

/// Returns [`OPEN`] if the quoted packet was sent from an address of this host or a source of
/// IP-in-IP.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_from_us() -> u32 {
    let Some(work) = work() else { return FINISH };
    let settings = work.set().settings();
    for i in 0..LOCAL_ADDRS {
        let addr = settings.locals[i].addr;
        if addr == Addr::UNSPECIFIED {
            break;
        }
        if addr == work.quoted.src {
            return OPEN;
        }
    }
    if settings.is_ipip_source(&work.quoted.src) { OPEN } else { FINISH }
}

/// Computes the key of the packet itself, or (1) of the packet that it quotes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_file(quoted: u32) -> u32 {
    let Some(work) = work() else { return FINISH };
    let ip: &Ip = if quoted != 0 { &work.quoted } else { &work.inner };
    let (key, side) = FlowKey::new(work.scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
    // An error comes from the direction that is opposite to the quoted packet's.
    work.side = if quoted != 0 { side.other() } else { side };
    if ip.fragment == Fragment::Later {
        return FINISH; // The stage `fragment` looks it up; a quoted one has no known flow.
    }
    work.key = key;
    work.hash = key.hash(&Region.hash_key());
    OPEN
}

/// Looks up the flow.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_known() -> u32 {
    let Some(work) = work() else { return FINISH };
    match flows().find(work.hash, &work.key) {
        Some(hit) => {
            work.hit = hit;
            work.known = true;
            OPEN
        }
        None => FINISH,
    }
}
