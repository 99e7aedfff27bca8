//! Start: prepares a new flow: its path, its gateway leg and its NAT port. `insert` inserts it into
//! the table.

use crate::encap::part_local;
use crate::frame::window;
use crate::here::{claim, cpu, flows, nat_ports};
use crate::insert::{count_evicted, count_untracked};
use crate::leg::{digest, part_copy_options, part_leg, towards_backend};
use crate::next::{FINISH, INSERT, OPEN, done, either, go, raw};
use crate::origin::note;
use crate::work::{Work, copy, work};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use core::hint::black_box;
use packet::addr::Addr;
use packet::ip::L4;
use tables::flow::{Forward, PATH_ONE_WAY, PORTS};
use tables::nat_port::other_proto;
use tables::reason::DropReason;
use tables::record::{Mode, NAT_ADDRS, NONE};
use tables::region::Region;

/// The stage. It is entered again for each further NAT address.
#[xdp(frags)]
pub fn start(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    let next = if work.begins { next_port(work) } else { either(begin(ctx, work)) };
    go(ctx, next)
}

#[inline(always)]
fn begin(ctx: *mut xdp_md, work: &mut Work) -> Result<u32, u32> {
    let set = work.set();
    let Some(service) = set.service(work.service) else {
        return Err(work.drop(DropReason::NoBackend));
    };
    if service.proxy_port != 0 {
        return begin_redirect(ctx, work, service.proxy_port);
    }
    let Some(backend) = set.backend(work.backend) else {
        return Err(work.drop(DropReason::NoBackend));
    };
    work.path = Forward::to_backend(&work.inner, work.service, work.backend, backend);
    if work.quotes {
        // An error begins no flow: see `select`.
        work.path.mode = Mode::Tunnel as u8;
        return Ok(towards_backend(work));
    }
    came_from(ctx, work)?;
    let dsr = service.mode == Mode::Dsr as u8;
    if service.mode == Mode::Nat as u8 {
        return begin_nat(work);
    }
    if work.uses_direct_return(service.mode) {
        work.path.mode = Mode::Dsr as u8;
        work.path.flags = PATH_ONE_WAY;
    } else if dsr || service.mode == Mode::Tunnel as u8 {
        work.path.mode = Mode::Tunnel as u8;
        note(ctx, work);
        // The stage `select` has set the key and its hash.
        work.has_back = true;
    } else {
        return Err(work.drop(DropReason::NoBackend));
    }
    if work.limited {
        count_untracked();
        return Ok(towards_backend(work));
    }
    Ok(INSERT)
}

/// Reads the gateway leg of the new flow.
#[inline(always)]
fn came_from(ctx: *mut xdp_md, work: &mut Work) -> Result<(), u32> {
    (work.begins, work.from_initiator, work.has_back) = (true, true, false);
    work.nat_map = NONE;
    done(part_leg(ctx))?;
    done(part_copy_options(ctx))?;
    work.digest = digest(ctx, &window(ctx), work);
    Ok(())
}

/// Begins a flow to the service's proxy: translated to a local address, with the client's own
/// address as source.
#[inline(always)]
fn begin_redirect(ctx: *mut xdp_md, work: &mut Work, proxy: u16) -> Result<u32, u32> {
    match work.inner.kind {
        L4::Tcp { .. } | L4::Udp => {}
        _ => return Err(work.drop(DropReason::NatProtocol)),
    }
    if part_local(u32::from(work.arm & 1) << 1 | u32::from(work.inner.v6)) != OPEN {
        return Err(work.drop(DropReason::NatNoAddress));
    }
    work.path = Forward::to_proxy(&work.inner, work.service, &work.local, proxy);
    came_from(ctx, work)?;
    (work.back, work.back_side) = work.path.key_behind(&work.inner);
    work.prefetch_back_entry();
    work.has_back = true;
    Ok(INSERT)
}

/// Begins a translated flow.
#[inline(always)]
fn begin_nat(work: &mut Work) -> Result<u32, u32> {
    if !work.path.translates(&work.inner) {
        return Err(work.drop(DropReason::NatProtocol));
    }
    work.reason = DropReason::NatNoAddress;
    (work.nat_at, work.nat_nth, work.took_port) = (0, 0, false);
    Ok(next_port(work))
}

/// Allocates a NAT port towards the backend from the first address that has one; if none has, that
/// of a flow that can be evicted.
#[inline(always)]
fn next_port(work: &mut Work) -> u32 {
    let mut port = 0;
    for _ in 0..NAT_ADDRS {
        match part_nat_address() {
            END => break,
            OTHER => continue,
            _ => {}
        }
        work.reason = DropReason::NatPortsExhausted;
        // The compiler knows the range of the result, but the verifier does not.
        port = black_box(part_nat_port()) as u16;
        if port != 0 {
            break;
        }
    }
    if port == 0 && !work.took_port {
        work.took_port = true;
        port = black_box(part_evicted_port()) as u16;
    }
    if port == 0 {
        let reason = work.reason;
        return work.drop(reason);
    }
    part_nat_back(port.into());
    INSERT
}

/// Sets the flow's NAT port, and the key of its entry towards the backend.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_nat_back(port: u32) -> u32 {
    let Some(work) = work() else { return FINISH };
    work.path.nat_port = port as u16;
    (work.back, work.back_side) = work.path.key_behind(&work.inner);
    work.prefetch_back_entry();
    work.has_back = true;
    OPEN
}

/// Result of [`part_nat_address`]: [`Forward::nat_addr`] is set.
const TAKEN: u32 = 0;
/// Result: the address has another family.
const OTHER: u32 = 1;
/// Result: there are no further addresses.
const END: u32 = 2;

/// Uses the next NAT address, if it has the backend's family.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_nat_address() -> u32 {
    let Some(work) = work() else { return END };
    let Some(backend) = work.set().backend(work.backend) else { return END };
    let Some(ours) = work.set().settings().nat.get(black_box(work.nat_at) as usize) else {
        return END;
    };
    work.nat_at += 1;
    if ours.addr == Addr::UNSPECIFIED || backend.nat_ports == NONE {
        return END;
    }
    if ours.addr.is_v4() != backend.addr.is_v4() {
        return OTHER;
    }
    copy(work.path.nat_addr_mut(), &ours.addr);
    work.nat_map = backend.nat_ports.wrapping_add(work.nat_nth);
    work.nat_nth += 1;
    TAKEN
}

/// Allocates a port towards the backend from the map of that address; returns 0 if there is none.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_nat_port() -> u32 {
    let Some(work) = work() else { return 0 };
    let settings = work.set().settings();
    claim(work.nat_map, settings.nat_port_first, settings.nat_port_last).into()
}

/// Takes over a port of an exhausted map from a flow that can be evicted; returns 0 if there is
/// none: see fastpath's `evicted_port`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_evicted_port() -> u32 {
    let Some(work) = work() else { return 0 };
    let Some(nth) = (work.hash as u32).checked_rem(work.nat_nth) else { return 0 };
    (work.nat_at, work.nat_nth) = (0, 0);
    let mut before = 0;
    for _ in 0..NAT_ADDRS {
        match part_nat_address() {
            OTHER => continue,
            TAKEN if before < nth => before += 1,
            _ => break,
        }
    }
    // No further address is tried after this one.
    work.nat_at = NAT_ADDRS as u32;
    for _ in 0..PORTS {
        let port = black_box(part_oldest()) as u16;
        if port == 0 {
            break;
        }
        let proto = work.path.proto_behind(&work.inner);
        let held = part_holder(port.into(), proto.into()) == OPEN
            || part_holder(port.into(), other_proto(proto).into()) == OPEN;
        if held && part_evict() == OPEN && nat_ports().take_port(work.nat_map, port) {
            return port.into();
        }
    }
    0
}

/// Returns the port that was allocated longest ago, or 0; each call returns another one.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_oldest() -> u32 {
    let Some(work) = work() else { return 0 };
    let settings = work.set().settings();
    let range = settings.nat_port_first..=settings.nat_port_last;
    nat_ports().oldest(work.nat_map, range, (cpu(), Region.lcores())).unwrap_or(0).into()
}

/// Finds the flow of protocol `proto` that has this port towards the backend and stores it in
/// [`Work::hit`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_holder(port: u32, proto: u32) -> u32 {
    let Some(work) = work() else { return FINISH };
    let (port, proto) = (port as u16, proto as u8);
    let (key, _) = work.path.key_from(&work.inner, proto, work.path.nat_addr(), port);
    let flows = flows();
    let Some(hit) = flows.find(flows.hash(&key), &key) else { return FINISH };
    work.hit = hit;
    OPEN
}

/// Evicts that flow; returns a value other than [`OPEN`] if it is confirmed.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_evict() -> u32 {
    let Some(work) = work() else { return FINISH };
    let ended = flows().evict(&work.hit);
    count_evicted(&ended);
    if ended.is_some() { OPEN } else { FINISH }
}
