//! Select: chooses service and backend for packets of unknown flows, and handles packets that no
//! service matches.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::next::{AFFINITY, CONTINUE, ENCAP, FINISH, FRONT, REMEMBER, START, raw, run_stage};
use crate::origin::{matches_backend, unknown_flow};
use crate::packet_state::{Arrival, PacketState, Reply, packet_state};
use crate::runtime::admits_new_flow;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN};
use packet::ip::{Fragment, L4};
use tables::counters::VerdictCounter;
use tables::reason::DropReason;
use tables::record::{LOCAL_ADDRS, Mode, NAT_ADDRS, NONE, NoService};
use tables::set::QuotedService;

/// The stage: selects service and backend of a packet whose flow is unknown.
#[xdp(frags)]
pub fn select(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let next = select_service(ctx, pkt);
    run_stage(ctx, next)
}

#[inline(always)]
fn select_service(ctx: *mut xdp_md, pkt: &mut PacketState) -> u32 {
    if pkt.arrival == Arrival::Backend {
        return if matches_backend(ctx, pkt) { FRONT } else { unknown_flow(pkt) };
    }
    if pkt.inner.fragment == Fragment::Later {
        return handle_later_fragment(pkt);
    }
    if pkt.has_quoted {
        return select_for_quote(pkt);
    }
    if pkt.inner.kind != L4::IcmpError && (pkt.arrival != Arrival::Plain || part_own_port() == 0) {
        pkt.service = part_frontend();
        if pkt.service != NONE {
            return if part_martian() != 0 {
                pkt.drop(DropReason::MartianSource)
            } else if part_admits() == 0 {
                pkt.drop(DropReason::SourceDenied)
            } else {
                part_pick()
            };
        }
    }
    handle_unmatched(pkt)
}

/// Handles an ICMP error about a reply of a flow that is in no table: see fastpath's `select`.
#[inline(always)]
fn select_for_quote(pkt: &mut PacketState) -> u32 {
    let plain = pkt.arrival == Arrival::Plain;
    if pkt.quoted.fragment == Fragment::Later || plain && part_own_port() != 0 {
        return handle_unmatched(pkt);
    }
    match part_quoted_service() {
        CONTINUE => part_pick(),
        FINISH if plain => pkt.drop(DropReason::IcmpUnknownFlow),
        SOURCE_REJECTED => pkt.drop(DropReason::IcmpUnknownFlow),
        _ => handle_unmatched(pkt),
    }
}

/// Result of [`part_quoted_service`], not a stage number: the service's source ranges reject the
/// client. Its other results are [`CONTINUE`], [`FINISH`] (selection cannot find the service's
/// flows) and [`NONE`] (no service).
const SOURCE_REJECTED: u32 = 40;

/// Sets the service of an ICMP error by the packet that it quotes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_quoted_service() -> u32 {
    let Some(pkt) = packet_state() else { return NONE };
    let set = pkt.set();
    match set.quoted_service(pkt.scope_key, &pkt.inner, &pkt.quoted) {
        QuotedService::None => NONE,
        QuotedService::NeedsFlow => FINISH,
        QuotedService::Stateless(id) => {
            pkt.service = id;
            if part_admits() == 0 { SOURCE_REJECTED } else { CONTINUE }
        }
    }
}

/// Returns the service of the packet, or [`NONE`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_frontend() -> u32 {
    let Some(pkt) = packet_state() else { return NONE };
    let ip = &pkt.inner;
    pkt.set().frontend(pkt.scope_key, &ip.dst, ip.dport, ip.proto).unwrap_or(NONE)
}

/// Returns 1 if the service's source ranges permit the client, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_admits() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let (set, client) = (pkt.set(), pkt.client());
    u32::from(set.service(pkt.service).is_none_or(|service| set.admits(service, client)))
}

/// Returns nonzero if the packet is addressed to a port on which this host listens; such packets
/// bypass frontends with any port and frontends of networks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_own_port() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    // The destination of an error is the port from which the quoted packet was sent.
    let (addr, proto, port) = match pkt.has_quoted {
        true => (&pkt.quoted.src, pkt.quoted.proto, pkt.quoted.sport),
        false => (&pkt.inner.dst, pkt.inner.proto, pkt.inner.dport),
    };
    u32::from(pkt.set().settings().own_port(addr, proto, port))
}

/// Selects the service's backend for the packet's flow, and returns the next stage.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_pick() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let set = pkt.set();
    let Some(service) = set.service(pkt.service) else {
        return pkt.drop(DropReason::NoBackend);
    };
    // An error begins no flow.
    pkt.limited = !pkt.has_quoted && !admits_new_flow(pkt, service.needs_entry());
    if pkt.limited && service.needs_entry() {
        return pkt.drop(DropReason::NewFlowLimited);
    }
    if service.proxy_port != 0 {
        pkt.backend = NONE;
        return START;
    }
    let begins = !pkt.has_quoted && !pkt.limited;
    if begins && service.mode != Mode::Nat as u8 && !pkt.uses_direct_return(service.mode) {
        // Prefetched here, so that its cache misses overlap with that of the backend's slot.
        pkt.back = FlowKey { scope: SCOPE_PLAIN, ..pkt.key };
        pkt.back_side = pkt.side;
        pkt.prefetch_back_entry();
    }
    if service.affinity_s != 0 {
        return AFFINITY;
    }
    match set.pick(service, pkt.hash) {
        Some(backend) if set.backend(backend).is_some() => {
            pkt.backend = backend;
            START
        }
        _ => pkt.drop(DropReason::NoBackend),
    }
}

/// Returns 1 if any frontend has the packet's destination address, regardless of the port, else
/// 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_marked() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    u32::from(pkt.set().address_marked(pkt.scope_key, &pkt.inner.dst))
}

/// Returns 1 if the source is martian or equal to the destination, else 0. A plain packet's source
/// must not be a frontend's address either; for a gateway's packet see fastpath's `select`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_martian() -> u32 {
    let Some(pkt) = packet_state() else { return 1 };
    let (src, dst) = (&pkt.inner.src, &pkt.inner.dst);
    let marked = || pkt.set().address_marked(pkt.scope_key, src);
    let plain = pkt.arrival == Arrival::Plain;
    u32::from(src.is_martian() || src == dst || plain && marked())
}

/// Returns 1 if the packet is addressed to a probe source, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_probes() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    u32::from(pkt.set().probe(&pkt.inner.dst).is_some())
}

/// Returns a bit mask: [`LOCAL`] if the packet is addressed to a local address, [`SOURCES`] if it
/// is addressed to a source of NAT or IP-in-IP.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_own() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let (settings, dst, end) = (pkt.set().settings(), pkt.inner.dst, Addr::UNSPECIFIED);
    let mut own = 0;
    for i in 0..LOCAL_ADDRS {
        let addr = settings.locals[i].addr;
        if addr == end {
            break;
        }
        if addr == dst {
            own |= LOCAL;
        }
    }
    for i in 0..NAT_ADDRS {
        let addr = settings.nat[i].addr;
        if addr == end {
            break;
        }
        if addr == dst {
            own |= SOURCES;
        }
    }
    if settings.is_ipip_source(&dst) {
        own |= SOURCES;
    }
    own
}

/// Flag in the result of [`part_own`]: the destination is a local address.
const LOCAL: u32 = 1;
/// Flag in the result of [`part_own`]: the destination is a source address of NAT or IP-in-IP.
const SOURCES: u32 = 2;

/// Handles a later fragment whose first fragment is unknown: addresses alone determine where it
/// goes.
#[inline(always)]
fn handle_later_fragment(pkt: &mut PacketState) -> u32 {
    let own = part_marked() != 0
        || (pkt.arrival == Arrival::Plain && part_own() & (LOCAL | SOURCES) == SOURCES);
    if own {
        return pkt.drop(DropReason::FragmentBeforeFirst);
    }
    handle_unmatched(pkt)
}

/// Handles a packet that no service matches.
#[inline(always)]
fn handle_unmatched(pkt: &mut PacketState) -> u32 {
    // Whether a frontend has the address is looked up only for the few packets that depend on it.
    let request = matches!(pkt.inner.kind, L4::IcmpEcho { request: true });
    let marked = (request || pkt.is_first()) && part_marked() != 0;
    if marked && request {
        if part_martian() != 0 {
            return pkt.drop(DropReason::MartianSource);
        }
        return pkt.reply_with(Reply::Echo);
    }
    if pkt.arrival == Arrival::Gateway {
        return handle_unmatched_of_gateway(pkt, marked);
    }
    let own = part_own();
    // With direct server return, a backend's replies to probes arrive without a tunnel.
    if own & LOCAL != 0 || part_probes() != 0 || pkt.inner.dst.is_link_local() {
        return punt(pkt);
    }
    if own & SOURCES != 0 {
        return unknown_flow(pkt);
    }
    if pkt.set().settings().plain_no_service == NoService::Punt as u8 {
        return punt(pkt);
    }
    pkt.drop(DropReason::NoMatchingService)
}

/// Handles a gateway's packet that no service matches, as its tunnel is configured. `marked`: a
/// frontend has its destination address.
#[inline(always)]
fn handle_unmatched_of_gateway(pkt: &mut PacketState, marked: bool) -> u32 {
    const RETURN: u8 = NoService::Return as u8;
    const PUNT: u8 = NoService::Punt as u8;
    match pkt.set().tunnel(pkt.tunnel).map(|t| t.no_service) {
        Some(RETURN) => {}
        Some(PUNT) if pkt.inner.src.is_martian() => {
            return pkt.drop(DropReason::MartianSource);
        }
        Some(PUNT) => return punt(pkt),
        _ => return pkt.drop(DropReason::NoService),
    }
    pkt.verdict = VerdictCounter::Return;
    if marked && pkt.is_first() {
        pkt.next_stage = ENCAP;
        return REMEMBER;
    }
    ENCAP
}

/// Gives the packet the verdict `punt`, and returns the next stage.
#[inline(always)]
fn punt(pkt: &mut PacketState) -> u32 {
    pkt.to_probe_source = part_probes() != 0;
    pkt.verdict = VerdictCounter::Punt;
    ENCAP
}
