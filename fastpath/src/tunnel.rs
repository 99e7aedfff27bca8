//! Tunnels to backends, and from backends back to the flow's gateway or plain client.

use crate::burst::{Arrival, Work};
use crate::cross;
use crate::delivery::{
    ETHERNET, Refused, Way, ends_here, fits, next_hop, passes, plain_frame, take_off,
    tells_too_big, trim,
};
use crate::lcore::Lcore;
use crate::nat;
use crate::origin;
use crate::port::Buffer;
use crate::prepared::{Key, Ready};
use crate::snapshot::KnownTunnel;
use crate::verdict::{Exit, Reply};
use packet::ethernet::Macs;
use packet::flow::FlowKey;
use packet::geneve;
use packet::template::{self, Own};
use packet::tunnel::{Outer, datagram_id, outer_len, source_port, write_outer_as};
use packet::window::Window;
use tables::counters::Counter;
use tables::flow::{Answer, Missed, NO_TUNNEL};
use tables::outer;
use tables::reason::DropReason;
use tables::record::{
    Mode, SERVICE_CHECKSUM, Service, TUNNEL_BACKEND, TUNNEL_CHECKSUM, TunnelKind,
};

/// Sends a packet through its service's tunnel to the flow's backend.
#[inline(always)]
pub fn to_backend<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
) -> Result<(), Refused> {
    let key = Key::of(work);
    if let Some(ready) = lcore.prepared().borrow().find(&key, lcore.snapshot().generation) {
        ends_here(work)?;
        let way = next_hop(work, lcore)?;
        if way.arm() == ready.arm && work.path.backend_addr.is_v4() {
            return send_ready(buffer, work, lcore, ready, &way);
        }
    }
    let service = lcore.set().service(work.service);
    let service = service.ok_or(Refused::Drop(DropReason::NoBackend))?;
    ends_here(work)?;
    let gateway = match work.front.arrival {
        Arrival::Gateway => lcore.snapshot().tunnels[usize::from(work.front.tunnel)].record.gateway,
        _ => 0,
    };
    send(buffer, work, lcore, service, gateway, Some(key))
}

/// Like [`send`], with headers from a template.
#[inline(always)]
fn send_ready<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
    ready: &Ready,
    way: &Way,
) -> Result<(), Refused> {
    let (attachment, cookie) = origin::attachment(&buffer.window(), work, ready.gateway);
    let overhead = (template::LEN - ETHERNET) as u16;
    fits(work, lcore, way.mtu().saturating_sub(overhead))?;
    take_off(buffer, work)?;
    nat::clamp(&mut buffer.window(), work, lcore);
    make_room(buffer, work, template::LEN)?;
    let own = Own {
        macs: way.macs(),
        dst: work.path.backend_addr.words[3],
        sport: source_port(work.hash),
        attachment,
        cookie,
        tos: work.inner.tos,
    };
    ready.template.write(
        &mut buffer.window(),
        &own,
        usize::from(work.inner.end - work.inner.at),
    )?;
    work.exit = Exit::Port(way.arm());
    Ok(())
}

/// Sends a probe of the kernel through the tunnel of its backend's service.
#[inline(never)]
pub fn probe<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) -> Result<(), Refused> {
    let set = lcore.set();
    let backend = set.backend(work.backend).ok_or(Refused::Drop(DropReason::NoBackend))?;
    let service = set.service(backend.probe_service);
    let service = service.ok_or(Refused::Drop(DropReason::NoBackend))?;
    let ip = &work.inner;
    let (key, _) = FlowKey::new(0, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
    work.hash = lcore.flows().hash(&key);
    work.path.backend_addr = backend.addr;
    send(buffer, work, lcore, service, 0, None)
}

/// Writes the outer headers towards the backend of `work`, and caches a template of them under
/// `key`.
#[inline(never)]
fn send<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
    service: &Service,
    gateway: u16,
    key: Option<Key>,
) -> Result<(), Refused> {
    let way = next_hop(work, lcore)?;
    let to = work.path.backend_addr;
    let ours = lcore.local_on(way.arm(), &to).ok_or(Refused::Drop(DropReason::NoRoute))?;
    let kind = TunnelKind::from_u8(service.tunnel).ok_or(Refused::Drop(DropReason::NoBackend))?;
    // UDP source port and IPv6 flow label vary by flow; for IPIP over IPv4 only the source address
    // can.
    let drawn = match kind {
        TunnelKind::Ipip if to.is_v4() => {
            lcore.snapshot().settings.ipip_source(way.arm(), work.hash)
        }
        _ => None,
    };
    let mut options = [0; geneve::OWN_OPTIONS];
    if kind == TunnelKind::Geneve {
        let (attachment, cookie) = origin::attachment(&buffer.window(), work, gateway);
        geneve::own_options(&mut options, work.front.scope_key, attachment, cookie);
    }
    let (kind, ends) = (kind, (drawn.unwrap_or(*ours), to));
    let (macs, hash) = (way.macs(), work.hash);
    let mut outer = outer::to_backend(kind, service, &macs, ends, hash, &options, &work.inner);
    outer.checksum = service.flags & SERVICE_CHECKSUM != 0;
    let overhead = (outer_len(&outer) - ETHERNET) as u16;
    fits(work, lcore, way.mtu().saturating_sub(overhead))?;
    if work.front.arrival != Arrival::Kernel {
        take_off(buffer, work)?;
        outer.tos = work.inner.tos;
    }
    nat::clamp(&mut buffer.window(), work, lcore);
    put_on(buffer, work, &outer)?;
    if let Some(key) = key {
        let generation = lcore.snapshot().generation;
        lcore.prepared().borrow_mut().keep(key, generation, (gateway, way.arm()), &outer);
    }
    work.exit = Exit::Port(way.arm());
    Ok(())
}

/// Replaces all bytes before the inner packet by `outer`.
#[inline(always)]
fn put_on<B: Buffer>(buffer: &mut B, work: &Work, outer: &Outer<'_>) -> Result<(), Refused> {
    // Computed before a header segment may be prepended, which would hide the inner packet.
    let id = datagram_id(&buffer.window(), usize::from(work.inner.at), outer.inner_v6);
    make_room(buffer, work, outer_len(outer))?;
    let inner_len = usize::from(work.inner.end - work.inner.at);
    write_outer_as(&mut buffer.window(), outer, inner_len, id)?;
    Ok(())
}

/// Places the inner packet at offset `front` and truncates the frame after it.
#[inline(always)]
fn make_room<B: Buffer>(buffer: &mut B, work: &Work, front: usize) -> Result<(), Refused> {
    trim(buffer, work);
    let before = usize::from(work.inner.at);
    // Between tunnels of the same header length nothing moves.
    if before != front && !(buffer.strip(before) && buffer.grow(front)) {
        return Err(Refused::Drop(DropReason::NoHeadroom));
    }
    Ok(())
}

/// Sends a backend's packet through its flow's gateway tunnel with the latest options (those of its
/// own direction, if the gateway carries both directions), or to the client of a plain flow.
#[inline(never)]
pub fn to_front<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    lcore: &Lcore<'_>,
) -> Result<(), Refused> {
    let flows = lcore.flows();
    let mut answer = lcore.answer_room();
    let gone = |missed| match missed {
        Missed::Gone => Refused::Drop(DropReason::NoFlow),
        Missed::Busy => Refused::Drop(DropReason::FlowContended),
    };
    match work.hit {
        Some(hit) => {
            flows.answer(&hit, hit.from_initiator(work.side), &mut answer).map_err(gone)?;
        }
        None => without_flow(&buffer.window(), work, lcore, &mut answer)?,
    }
    ends_here(work)?;
    let crosses = work.path.crosses();
    let leg = &answer.gateway;
    let front = match leg.tunnel {
        NO_TUNNEL => None,
        id => {
            let tunnel = lcore.snapshot().tunnel(u32::from(id));
            Some(tunnel.ok_or(Refused::Drop(DropReason::NoFlow))?)
        }
    };
    may_leave(work, lcore, front, leg.arm)?;
    take_off(buffer, work)?;
    if work.path.mode == Mode::Nat as u8 {
        let hit = work.hit.ok_or(Refused::Drop(DropReason::NoFlow))?;
        let ends = flows.ends(&hit).map_err(gone)?;
        match crosses {
            true => cross::from_backend(buffer, work, lcore, &ends)?,
            false => nat::from_backend(&mut buffer.window(), work, &ends)?,
        }
    }
    if !crosses {
        nat::clamp(&mut buffer.window(), work, lcore);
    }
    let own = lcore.macs()[usize::from(leg.arm & 1)];
    let Some(tunnel) = front else {
        plain_frame(buffer, work, &Macs::new(leg.gateway_mac, own), leg.vlan)?;
        work.exit = Exit::Port(leg.arm);
        return Ok(());
    };
    let outer = gateway_outer(work, lcore, &answer, own, tunnel);
    put_on(buffer, work, &outer)?;
    work.exit = Exit::Port(leg.arm);
    Ok(())
}

/// Fills in the answer for a flow that is in no table.
#[cold]
fn without_flow(
    window: &Window<'_>,
    work: &Work,
    lcore: &Lcore<'_>,
    answer: &mut Answer,
) -> Result<(), Refused> {
    if !origin::answer(window, work, lcore, answer) {
        return Err(Refused::Drop(origin::unknown(work)));
    }
    lcore.page().count(Counter::AnswersUntracked, 1);
    Ok(())
}

/// Rejects a packet that exceeds its gateway's inner MTU or, if translation between families makes
/// it grow, the MTU of a plain client's arm.
#[inline(always)]
fn may_leave(
    work: &Work,
    lcore: &Lcore<'_>,
    front: Option<&KnownTunnel>,
    arm: u8,
) -> Result<(), Refused> {
    let crosses = work.path.crosses();
    let (limit, told) = match front {
        Some(tunnel) => {
            let told = tunnel.record.flags & tables::record::TUNNEL_REPLY_TOO_BIG != 0;
            (tunnel.record.inner_mtu, told)
        }
        None if crosses => (lcore.snapshot().settings.mtu_of(arm), true),
        None => return Ok(()),
    };
    if limit == 0 {
        return Ok(());
    }
    let passes = if crosses { cross::passes(work, limit) } else { passes(work, limit) };
    passes.map_err(|mtu| match told && tells_too_big(work, lcore) {
        true => Refused::Answer(Reply::TooBig(mtu)),
        false => Refused::Drop(DropReason::TooBig),
    })
}

/// Returns the outer headers towards the flow's gateway: those of the latest packet, reversed.
#[inline(always)]
fn gateway_outer<'a>(
    work: &Work,
    lcore: &Lcore<'_>,
    answer: &'a Answer,
    own: [u8; 6],
    tunnel: &KnownTunnel,
) -> Outer<'a> {
    debug_assert!(tunnel.record.flags & TUNNEL_BACKEND == 0);
    let peer = crossing(work, lcore, tunnel).map(|peer| &peer.record);
    let (kind, leg) = (tunnel.kind, &answer.gateway);
    let checksum = tunnel.record.flags & TUNNEL_CHECKSUM != 0;
    let outer = outer::to_gateway(kind, leg, own, answer.options(), &work.inner, peer);
    Outer { checksum, ..outer }
}

/// Returns the tunnel to which an inspected packet crosses: Azure requires packets from External to
/// return on Internal. Answers of the backend itself stay on the request's tunnel.
fn crossing<'a>(
    work: &Work,
    lcore: &'a Lcore<'_>,
    tunnel: &KnownTunnel,
) -> Option<&'a KnownTunnel> {
    let hit = work.hit?;
    let inspected = work.path.mode != Mode::Nat as u8 && hit.from_initiator(work.side);
    if !inspected || tunnel.record.flags & tables::record::TUNNEL_CROSS == 0 {
        return None;
    }
    lcore.snapshot().tunnel(tunnel.record.peer)
}
