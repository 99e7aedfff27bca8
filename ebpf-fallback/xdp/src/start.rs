//! Start: a new flow, its NAT port, both its entries or neither.

use crate::leg::{digest, options, part_copy_options, part_leg, towards_backend};
use crate::frame::window;
use crate::next::{FINISH, OPEN, REMEMBER, done, either, go, raw};
use crate::here::{claim, flows, nat_ports, page};
use crate::track::part_note_tcp;
use crate::work::{Arrival, Work, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use core::hint::black_box;
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN};
use packet::ip::L4;
use tables::addresses::Addresses;
use tables::counters::{Counter, ServiceCounter};
use tables::flow::{Forward, InsertError, NewFlow, PATH_ONE_WAY};
use tables::reason::DropReason;
use tables::region::Region;
use tables::record::{Mode, NAT_ADDRS, NONE, TunnelKind};

/// The flow to be: more than fits on the stack.
#[btf_map]
static NEW: PerCpuArray<NewFlow, 1> = PerCpuArray::new();

/// What [`part_insert`] says besides [`OPEN`].
const FULL: u32 = 1;
const CONTENDED: u32 = 2;
const EXISTS: u32 = 3;
const BACK_TAKEN: u32 = 4;
const TOO_LONG: u32 = 5;

/// The stage.
#[xdp(frags)]
pub fn start(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = either(begin(ctx, work));
    if next != FINISH && work.begun && work.is_first() {
        (work.then, work.must_remember) = (next, false);
        return go(ctx, REMEMBER);
    }
    go(ctx, next)
}

#[inline(always)]
fn begin(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    let set = work.set();
    let (Some(service), Some(backend)) = (set.service(work.service), set.backend(work.backend))
    else {
        return Err(work.drop(DropReason::NoBackend));
    };
    work.path = Forward {
        backend_addr: backend.addr,
        backend_port: if backend.port == 0 { work.inner.dport } else { backend.port },
        service: work.service,
        backend: work.backend,
        incarnation: backend.incarnation,
        proto: work.inner.proto,
        ..Forward::default()
    };
    work.from_initiator = true;
    (work.has_back, work.begun) = (false, false);
    work.nat_map = NONE;
    done(part_leg(ctx))?;
    done(part_copy_options(ctx))?;
    work.digest = digest(ctx, &window(ctx), work);
    let dsr = service.mode == Mode::Dsr as u8;
    if service.mode == Mode::Nat as u8 {
        return begin_nat(work);
    }
    if dsr && work.arrival == Arrival::Plain {
        work.path.mode = Mode::Dsr as u8;
        work.path.flags = PATH_ONE_WAY;
    } else if dsr || service.mode == Mode::Tunnel as u8 {
        // A gateway's flow never uses direct return: the answer would have no way back.
        work.path.mode = Mode::Tunnel as u8;
        work.back = FlowKey { scope: SCOPE_PLAIN, ..work.key };
        work.back_side = work.side;
        work.has_back = true;
    } else {
        return Err(work.drop(DropReason::NoBackend));
    }
    let mut inserted = part_insert();
    if inserted == BACK_TAKEN && service.tunnel == TunnelKind::Geneve as u8 {
        // Our own options tell endpoints apart where 5-tuples can't. Plain answers, which have
        // none, belong to the flow that came first.
        work.has_back = false;
        inserted = part_insert();
    }
    if inserted == EXISTS {
        inserted = if part_adopt() == OPEN { OPEN } else { CONTENDED };
    }
    match inserted {
        OPEN => {}
        // Selection alone finds the backend again; only answers need the entry.
        FULL | CONTENDED => page().count(Counter::FlowsUntracked, 1),
        BACK_TAKEN => return Err(work.drop(DropReason::FlowAmbiguous)),
        _ => return Err(work.drop(DropReason::FlowContended)),
    }
    Ok(towards_backend(work))
}

/// Begins a translated flow: a port of ours towards the backend, then both entries or neither.
#[inline(always)]
fn begin_nat(work: &mut Work) -> Result<u32, u32> {
    let echo = match work.inner.kind {
        L4::Tcp { .. } | L4::Udp => false,
        L4::IcmpEcho { request: true } => true,
        _ => return Err(work.drop(DropReason::NatProtocol)),
    };
    if work.path.backend_addr.is_v4() == work.inner.v6 {
        return Err(work.drop(DropReason::NatNoAddress));
    }
    work.path.mode = Mode::Nat as u8;
    let mut reason = DropReason::NatNoAddress;
    let mut nth = 0;
    for i in 0..NAT_ADDRS as u32 {
        match part_nat_address(i) {
            END => break,
            OTHER => continue,
            _ => {}
        }
        reason = DropReason::NatPortsExhausted;
        // The compiler knows what the function can return, and the verifier doesn't.
        let port = black_box(part_nat_port(nth));
        nth += 1;
        if port == 0 {
            continue;
        }
        work.path.nat_port = port as u16;
        let backend_port = if echo { port as u16 } else { work.path.backend_port };
        let (nat, to, proto) = (work.path.nat_addr, work.path.backend_addr, work.inner.proto);
        (work.back, work.back_side) =
            FlowKey::new(SCOPE_PLAIN, proto, nat, port as u16, to, backend_port);
        work.has_back = true;
        reason = match part_insert() {
            OPEN => return Ok(towards_backend(work)),
            FULL => DropReason::FlowTableFull,
            BACK_TAKEN => DropReason::NatPortsExhausted,
            EXISTS => {
                nat_ports().release(work.nat_map, port as u16);
                return match part_adopt() {
                    OPEN => Ok(towards_backend(work)),
                    _ => Err(work.drop(DropReason::FlowContended)),
                };
            }
            _ => DropReason::FlowContended,
        };
        nat_ports().release(work.nat_map, port as u16);
    }
    Err(work.drop(reason))
}

/// What [`part_nat_address`] says: it is [`Forward::nat_addr`] now.
const TAKEN: u32 = 0;
/// It is of another family.
const OTHER: u32 = 1;
/// There are no more.
const END: u32 = 2;

/// Takes address number `i` of those that NAT sends from, if the backend's family is its.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_nat_address(i: u32) -> u32 {
    let Some(work) = work() else { return END };
    let Some(backend) = work.set().backend(work.backend) else { return END };
    // As above: what callers pass is known to the compiler alone.
    let i = black_box(i as usize);
    let Some(ours) = work.set().settings().nat.get(i) else { return END };
    if ours.addr == Addr::UNSPECIFIED || backend.nat_ports == NONE {
        return END;
    }
    if ours.addr.is_v4() != backend.addr.is_v4() {
        return OTHER;
    }
    work.path.nat_addr = ours.addr;
    TAKEN
}

/// A port towards the backend from the map of its NAT address number `nth`; 0 for none.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_nat_port(nth: u32) -> u32 {
    let Some(work) = work() else { return 0 };
    let Some(backend) = work.set().backend(work.backend) else { return 0 };
    let settings = work.set().settings();
    work.nat_map = backend.nat_ports.wrapping_add(nth);
    claim(work.nat_map, settings.nat_port_first, settings.nat_port_last).into()
}

/// Inserts the flow of the packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_insert() -> u32 {
    let Some(work) = work() else { return CONTENDED };
    let Some(service) = work.set().service(work.service) else { return CONTENDED };
    // SAFETY: a CPU works on one packet at a time.
    let Some(new) = NEW.get_ptr_mut(0).map(|new| unsafe { &mut *new }) else { return CONTENDED };
    new.front = work.key;
    new.front_initiator = work.side;
    new.back = if work.has_back { Some((work.back, work.back_side)) } else { None };
    new.forward = work.path;
    new.gateway = work.leg;
    new.digest = work.digest;
    new.nat_map = work.nat_map;
    new.tcp_idle_s = service.tcp_idle_s.min(u32::from(u16::MAX)) as u16;
    Addresses::of_flows(&Region).add(&work.inner.dst);
    match flows().insert(new, options(work), work.now_s) {
        Ok(hit) => work.hit = hit,
        Err(InsertError::Full | InsertError::NoSlab) => return FULL,
        Err(InsertError::Contended) => return CONTENDED,
        Err(InsertError::Exists(_)) => return EXISTS,
        Err(InsertError::BackTaken(_)) => return BACK_TAKEN,
        Err(InsertError::OptionsTooLong) => return TOO_LONG,
    }
    (work.known, work.begun) = (true, true);
    part_begun()
}

/// Counts the new flow, and notes what its first packet says.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_begun() -> u32 {
    let Some(work) = work() else { return CONTENDED };
    part_note_tcp();
    page().service(work.service, ServiceCounter::NewFlows, 1);
    page().backend(work.backend, ServiceCounter::NewFlows, 1);
    OPEN
}

/// Another CPU began this very flow a moment ago: its entry is the one that counts.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_adopt() -> u32 {
    let Some(work) = work() else { return FINISH };
    let Some(hit) = flows().find(work.hash, &work.key) else { return FINISH };
    if flows().forward_to(&hit, &mut work.path).is_err() {
        return FINISH;
    }
    work.service = work.path.service;
    work.backend = work.path.backend;
    work.hit = hit;
    work.known = true;
    OPEN
}
