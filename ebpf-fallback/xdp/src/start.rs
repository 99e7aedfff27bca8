//! Start: prepares a new flow: its path, its gateway leg and its NAT port. `insert` inserts it into
//! the table.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::{claim, cpu, flows, nat_ports};
use crate::encap::part_local;
use crate::frame::window;
use crate::insert::{count_evicted, count_untracked};
use crate::leg::{digest, part_copy_options, part_leg, towards_backend};
use crate::next::{CONTINUE, FINISH, INSERT, check_next, next_stage, raw, run_stage};
use crate::origin::record_return_leg;
use crate::packet_state::{PacketState, copy, packet_state};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use core::hint::black_box;
use packet::addr::Addr;
use packet::ip::L4;
use tables::flow::{EVICTION_PORTS, Forward, PATH_ONE_WAY};
use tables::nat_port::other_proto;
use tables::reason::DropReason;
use tables::record::{Mode, NAT_ADDRS, NONE};
use tables::region::Region;

/// The stage: prepares the flow. It is entered again with the next NAT address if another flow uses
/// the port of the first one.
#[xdp(frags)]
pub fn start(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let next = if pkt.started { next_port(pkt) } else { next_stage(begin(ctx, pkt)) };
    run_stage(ctx, next)
}

#[inline(always)]
fn begin(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<u32, u32> {
    let set = pkt.set();
    let Some(service) = set.service(pkt.service) else {
        return Err(pkt.drop(DropReason::NoBackend));
    };
    if service.proxy_port != 0 {
        return begin_redirect(ctx, pkt, service.proxy_port);
    }
    let Some(backend) = set.backend(pkt.backend) else {
        return Err(pkt.drop(DropReason::NoBackend));
    };
    pkt.path = Forward::to_backend(&pkt.inner, pkt.service, pkt.backend, backend);
    if pkt.has_quoted {
        // An error begins no flow: see `select`.
        pkt.path.mode = Mode::Tunnel as u8;
        return Ok(towards_backend(pkt));
    }
    read_leg(ctx, pkt)?;
    let dsr = service.mode == Mode::Dsr as u8;
    if service.mode == Mode::Nat as u8 {
        return begin_nat(pkt);
    }
    if pkt.uses_direct_return(service.mode) {
        pkt.path.mode = Mode::Dsr as u8;
        pkt.path.flags = PATH_ONE_WAY;
    } else if dsr || service.mode == Mode::Tunnel as u8 {
        pkt.path.mode = Mode::Tunnel as u8;
        record_return_leg(ctx, pkt);
        // The stage `select` has set the back key and its hash.
        pkt.has_back = true;
    } else {
        return Err(pkt.drop(DropReason::NoBackend));
    }
    if pkt.limited {
        count_untracked();
        return Ok(towards_backend(pkt));
    }
    Ok(INSERT)
}

/// Reads the gateway leg of the new flow.
#[inline(always)]
fn read_leg(ctx: *mut xdp_md, pkt: &mut PacketState) -> Result<(), u32> {
    (pkt.started, pkt.from_initiator, pkt.has_back) = (true, true, false);
    pkt.nat_map = NONE;
    check_next(part_leg(ctx))?;
    check_next(part_copy_options(ctx))?;
    pkt.digest = digest(ctx, &window(ctx), pkt);
    Ok(())
}

/// Begins a flow to the service's proxy: translated to a local address, with the client's own
/// address as source.
#[inline(always)]
fn begin_redirect(ctx: *mut xdp_md, pkt: &mut PacketState, proxy: u16) -> Result<u32, u32> {
    match pkt.inner.kind {
        L4::Tcp { .. } | L4::Udp => {}
        _ => return Err(pkt.drop(DropReason::NatProtocol)),
    }
    if part_local(u32::from(pkt.arm & 1) << 1 | u32::from(pkt.inner.v6)) != CONTINUE {
        return Err(pkt.drop(DropReason::NatNoAddress));
    }
    pkt.path = Forward::to_proxy(&pkt.inner, pkt.service, &pkt.local, proxy);
    read_leg(ctx, pkt)?;
    (pkt.back, pkt.back_side) = pkt.path.backend_key(&pkt.inner);
    pkt.prefetch_back_entry();
    pkt.has_back = true;
    Ok(INSERT)
}

/// Begins a NAT flow.
#[inline(always)]
fn begin_nat(pkt: &mut PacketState) -> Result<u32, u32> {
    if !pkt.path.set_nat(&pkt.inner) {
        return Err(pkt.drop(DropReason::NatProtocol));
    }
    pkt.reason = DropReason::NatNoAddress;
    (pkt.nat_at, pkt.nat_nth, pkt.tried_eviction) = (0, 0, false);
    Ok(next_port(pkt))
}

/// Allocates a NAT port towards the backend from the first address that has a free one. If none
/// has, takes over the port of a flow that can be evicted.
#[inline(always)]
fn next_port(pkt: &mut PacketState) -> u32 {
    let mut port = 0;
    for _ in 0..NAT_ADDRS {
        match part_nat_address() {
            END => break,
            OTHER_FAMILY => continue,
            _ => {}
        }
        pkt.reason = DropReason::NatPortsExhausted;
        // The compiler knows the range of the result, but the verifier does not.
        port = black_box(part_nat_port()) as u16;
        if port != 0 {
            break;
        }
    }
    if port == 0 && !pkt.tried_eviction {
        pkt.tried_eviction = true;
        port = black_box(part_evicted_port()) as u16;
    }
    if port == 0 {
        let reason = pkt.reason;
        return pkt.drop(reason);
    }
    part_nat_back(port.into());
    INSERT
}

/// Sets the flow's NAT port, and the key of its entry towards the backend.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_nat_back(port: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    pkt.path.nat_port = port as u16;
    (pkt.back, pkt.back_side) = pkt.path.backend_key(&pkt.inner);
    pkt.prefetch_back_entry();
    pkt.has_back = true;
    CONTINUE
}

/// Result of [`part_nat_address`]: [`Forward::nat_addr`] is set.
const FOUND: u32 = 0;
/// Result: the address has another family.
const OTHER_FAMILY: u32 = 1;
/// Result: there are no further addresses.
const END: u32 = 2;

/// Sets the path's NAT address to the next one, if that has the backend's family.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_nat_address() -> u32 {
    let Some(pkt) = packet_state() else { return END };
    let Some(backend) = pkt.set().backend(pkt.backend) else { return END };
    let Some(local) = pkt.set().settings().nat.get(black_box(pkt.nat_at) as usize) else {
        return END;
    };
    pkt.nat_at += 1;
    if local.addr == Addr::UNSPECIFIED || backend.nat_ports == NONE {
        return END;
    }
    if local.addr.is_v4() != backend.addr.is_v4() {
        return OTHER_FAMILY;
    }
    copy(pkt.path.nat_addr_mut(), &local.addr);
    pkt.nat_map = backend.nat_ports.wrapping_add(pkt.nat_nth);
    pkt.nat_nth += 1;
    FOUND
}

/// Allocates a port towards the backend from the map of the path's NAT address; returns 0 if there
/// is none.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_nat_port() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let settings = pkt.set().settings();
    claim(pkt.nat_map, settings.nat_port_first, settings.nat_port_last).into()
}

/// Takes over a port of an exhausted map from a flow that can be evicted; returns 0 if there is
/// none: see fastpath's `evicted_port`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_evicted_port() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let Some(nth) = (pkt.hash as u32).checked_rem(pkt.nat_nth) else { return 0 };
    (pkt.nat_at, pkt.nat_nth) = (0, 0);
    let mut before = 0;
    for _ in 0..NAT_ADDRS {
        match part_nat_address() {
            OTHER_FAMILY => continue,
            FOUND if before < nth => before += 1,
            _ => break,
        }
    }
    // If another flow uses the port, `start` is entered again and must find no further address.
    pkt.nat_at = NAT_ADDRS as u32;
    for _ in 0..EVICTION_PORTS {
        let port = black_box(part_oldest()) as u16;
        if port == 0 {
            break;
        }
        let proto = pkt.path.backend_proto(&pkt.inner);
        let owned = part_port_owner(port.into(), proto.into()) == CONTINUE
            || part_port_owner(port.into(), other_proto(proto).into()) == CONTINUE;
        if owned && part_evict() == CONTINUE && nat_ports().take_port(pkt.nat_map, port) {
            return port.into();
        }
    }
    0
}

/// Returns the port that was allocated longest ago, or 0; each call returns another one.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_oldest() -> u32 {
    let Some(pkt) = packet_state() else { return 0 };
    let settings = pkt.set().settings();
    let range = settings.nat_port_first..=settings.nat_port_last;
    nat_ports().oldest(pkt.nat_map, range, (cpu(), Region.lcores())).unwrap_or(0).into()
}

/// Finds the flow of protocol `proto` that has this port towards the backend and stores it in
/// [`PacketState::hit`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_port_owner(port: u32, proto: u32) -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let (port, proto) = (port as u16, proto as u8);
    let (key, _) = pkt.path.key_from(&pkt.inner, proto, pkt.path.nat_addr(), port);
    let flows = flows();
    let Some(hit) = flows.find(flows.hash(&key), &key) else { return FINISH };
    pkt.hit = hit;
    CONTINUE
}

/// Evicts the flow in [`PacketState::hit`]; returns a value other than [`CONTINUE`] if the flow
/// cannot be evicted, because it is confirmed and was not reset.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_evict() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let ended = flows().evict(&pkt.hit);
    count_evicted(&ended);
    if ended.is_some() { CONTINUE } else { FINISH }
}
