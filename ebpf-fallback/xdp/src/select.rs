//! Select: chooses service and backend for packets of unknown flows, or handles packets without a
//! service.

use crate::next::{ENCAP, FINISH, FRONT, OPEN, REMEMBER, START, STAY, go, raw};
use crate::origin::{goes_back, unknown};
use crate::place::admits_new_flow;
use crate::work::{Arrival, Reply, Work, work};
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
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = choose(ctx, work);
    go(ctx, next)
}

#[inline(always)]
fn choose(ctx: *mut xdp_md, work: &mut Work) -> u32 {
    if work.arrival == Arrival::Backend {
        return if goes_back(ctx, work) { FRONT } else { unknown(work) };
    }
    if work.inner.fragment == Fragment::Later {
        return later_fragment(work);
    }
    if work.quotes {
        return for_quote(work);
    }
    if work.inner.kind != L4::IcmpError && (work.arrival != Arrival::Plain || part_own_port() == 0)
    {
        work.service = part_frontend();
        if work.service != NONE {
            return if part_martian() != 0 {
                work.drop(DropReason::MartianSource)
            } else if part_admits() == 0 {
                work.drop(DropReason::SourceRefused)
            } else {
                part_pick()
            };
        }
    }
    for_nobody(work)
}

/// Handles an ICMP error about a reply of a flow that is in no table: see fastpath's `select`.
#[inline(always)]
fn for_quote(work: &mut Work) -> u32 {
    let plain = work.arrival == Arrival::Plain;
    if work.quoted.fragment == Fragment::Later || plain && part_own_port() != 0 {
        return for_nobody(work);
    }
    match part_quoted_service() {
        OPEN => part_pick(),
        FINISH if plain => work.drop(DropReason::IcmpUnknownFlow),
        REFUSED => work.drop(DropReason::IcmpUnknownFlow),
        _ => for_nobody(work),
    }
}

/// Result of [`part_quoted_service`]: the service's source ranges reject the client. Its other
/// results are [`OPEN`], [`FINISH`] (selection cannot find the service's flows) and [`NONE`].
const REFUSED: u32 = 40;

/// Sets the service of an ICMP error by the packet that it quotes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_quoted_service() -> u32 {
    let Some(work) = work() else { return NONE };
    let set = work.set();
    match set.quoted_service(work.scope_key, &work.inner, &work.quoted) {
        QuotedService::None => NONE,
        QuotedService::NeedsFlow => FINISH,
        QuotedService::Stateless(id) => {
            work.service = id;
            if part_admits() == 0 { REFUSED } else { OPEN }
        }
    }
}

/// Returns the service of the packet, or [`NONE`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_frontend() -> u32 {
    let Some(work) = work() else { return NONE };
    let ip = &work.inner;
    work.set().frontend(work.scope_key, &ip.dst, ip.dport, ip.proto).unwrap_or(NONE)
}

/// Returns 1 if the service's source ranges permit the client, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_admits() -> u32 {
    let Some(work) = work() else { return 0 };
    let (set, client) = (work.set(), work.client());
    u32::from(set.service(work.service).is_none_or(|service| set.admits(service, client)))
}

/// Returns nonzero if the packet is addressed to a port on which this host listens; such packets
/// bypass frontends with any port and frontends of networks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_own_port() -> u32 {
    let Some(work) = work() else { return 0 };
    // The destination of an error is the port from which the quoted packet was sent.
    let (addr, proto, port) = match work.quotes {
        true => (&work.quoted.src, work.quoted.proto, work.quoted.sport),
        false => (&work.inner.dst, work.inner.proto, work.inner.dport),
    };
    u32::from(work.set().settings().own_port(addr, proto, port))
}

/// Selects the service's backend for the packet's flow, and returns the next stage.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_pick() -> u32 {
    let Some(work) = work() else { return FINISH };
    let set = work.set();
    let Some(service) = set.service(work.service) else {
        return work.drop(DropReason::NoBackend);
    };
    // An error begins no flow.
    work.limited = !work.quotes && !admits_new_flow(work, service.needs_entry());
    if work.limited && service.needs_entry() {
        return work.drop(DropReason::NewFlowLimited);
    }
    if service.proxy_port != 0 {
        work.backend = NONE;
        return START;
    }
    let begins = !work.quotes && !work.limited;
    if begins && service.mode != Mode::Nat as u8 && !work.uses_direct_return(service.mode) {
        // Prefetched here, so that its cache misses overlap with that of the backend's slot.
        work.back = FlowKey { scope: SCOPE_PLAIN, ..work.key };
        work.back_side = work.side;
        work.prefetch_back_entry();
    }
    if service.affinity_s != 0 {
        return STAY;
    }
    match set.pick(service, work.hash) {
        Some(backend) if set.backend(backend).is_some() => {
            work.backend = backend;
            START
        }
        _ => work.drop(DropReason::NoBackend),
    }
}

/// Returns 1 if a frontend on any port has the packet's address, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_marked() -> u32 {
    let Some(work) = work() else { return 0 };
    u32::from(work.set().address_marked(work.scope_key, &work.inner.dst))
}

/// Returns 1 if the source is martian or a frontend's address, else 0. A gateway's packet may come
/// from another frontend's address: see fastpath's `select`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_martian() -> u32 {
    let Some(work) = work() else { return 1 };
    let (src, dst) = (&work.inner.src, &work.inner.dst);
    let marked = || work.set().address_marked(work.scope_key, src);
    let plain = work.arrival == Arrival::Plain;
    u32::from(src.is_martian() || src == dst || plain && marked())
}

/// Returns 1 if the packet is addressed to a probe source, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_probes() -> u32 {
    let Some(work) = work() else { return 0 };
    u32::from(work.set().probe(&work.inner.dst).is_some())
}

/// Returns a bit mask: [`LOCAL`] if the packet is addressed to a local address, [`SOURCES`] if it
/// is addressed to a source of NAT or IP-in-IP.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_own() -> u32 {
    let Some(work) = work() else { return 0 };
    let (settings, dst, end) = (work.set().settings(), work.inner.dst, Addr::UNSPECIFIED);
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

const LOCAL: u32 = 1;
const SOURCES: u32 = 2;

/// Handles a later fragment whose first fragment is unknown: addresses alone determine where it
/// goes.
#[inline(always)]
fn later_fragment(work: &mut Work) -> u32 {
    let ours = part_marked() != 0
        || (work.arrival == Arrival::Plain && part_own() & (LOCAL | SOURCES) == SOURCES);
    if ours {
        return work.drop(DropReason::FragmentBeforeFirst);
    }
    for_nobody(work)
}

/// Handles a packet that no service matches.
#[inline(always)]
fn for_nobody(work: &mut Work) -> u32 {
    // Looked up only for the few packets that depend on it.
    let request = matches!(work.inner.kind, L4::IcmpEcho { request: true });
    let marked = (request || work.is_first()) && part_marked() != 0;
    if marked && request {
        if part_martian() != 0 {
            return work.drop(DropReason::MartianSource);
        }
        return work.answer_with(Reply::Echo);
    }
    if work.arrival == Arrival::Gateway {
        return for_gateway(work, marked);
    }
    let own = part_own();
    // A backend that replies to clients directly sends its probe replies plain.
    if own & LOCAL != 0 || part_probes() != 0 || work.inner.dst.is_link_local() {
        return punt(work);
    }
    if own & SOURCES != 0 {
        return unknown(work);
    }
    if work.set().settings().plain_no_service == NoService::Punt as u8 {
        return punt(work);
    }
    work.drop(DropReason::NoMatchingService)
}

#[inline(always)]
fn for_gateway(work: &mut Work, marked: bool) -> u32 {
    const RETURN: u8 = NoService::Return as u8;
    const PUNT: u8 = NoService::Punt as u8;
    match work.set().tunnel(work.tunnel).map(|t| t.no_service) {
        Some(RETURN) => {}
        Some(PUNT) if work.inner.src.is_martian() => {
            return work.drop(DropReason::MartianSource);
        }
        Some(PUNT) => return punt(work),
        _ => return work.drop(DropReason::NoService),
    }
    work.verdict = VerdictCounter::Return;
    if marked && work.is_first() {
        work.then = ENCAP;
        return REMEMBER;
    }
    ENCAP
}

#[inline(always)]
fn punt(work: &mut Work) -> u32 {
    work.to_prober = part_probes() != 0;
    work.verdict = VerdictCounter::Punt;
    ENCAP
}
