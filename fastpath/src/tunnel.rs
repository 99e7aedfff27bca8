//! Tunnels to backends, and from backends back to the flow's gateway or plain client.

use crate::burst::{Arrival, PacketState};
use crate::delivery::{
    ETHERNET, Rejection, Route, check_backend_mtu, check_mtu, check_ttl, next_hop, plain_frame,
    reports_too_big, trim, update_ecn_and_ttl,
};
use crate::lcore::Lcore;
use crate::nat;
use crate::nat64;
use crate::origin;
use crate::port::Buffer;
use crate::snapshot::SnapshotTunnel;
use crate::template_cache::{CachedTemplate, Key};
use crate::verdict::{Exit, Reply};
use packet::ethernet::Macs;
use packet::flow::FlowKey;
use packet::geneve;
use packet::template::{self, PacketFields};
use packet::tunnel::{Outer, datagram_id, outer_len, source_port, write_outer_as};
use packet::window::Window;
use tables::counters::Counter;
use tables::flow::{Answer, NO_TUNNEL, PathError};
use tables::outer;
use tables::reason::DropReason;
use tables::record::{
    Mode, SERVICE_CHECKSUM, Service, TUNNEL_BACKEND, TUNNEL_CHECKSUM, TunnelKind,
};

/// Sends a packet through its service's tunnel to the flow's backend.
#[inline(always)]
pub fn to_backend<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), Rejection> {
    let key = Key::of(pkt);
    if let Some(cached) = lcore.template_cache().borrow().find(&key, lcore.snapshot().generation) {
        check_ttl(pkt)?;
        let route = next_hop(pkt, lcore)?;
        if route.arm() == cached.arm && pkt.path.backend_addr.is_v4() {
            return send_with_template(buffer, pkt, lcore, cached, &route);
        }
    }
    let service = lcore.set().service(pkt.service);
    let service = service.ok_or(Rejection::Drop(DropReason::NoBackend))?;
    check_ttl(pkt)?;
    let gateway = match pkt.headers.arrival {
        Arrival::Gateway => {
            lcore.snapshot().tunnels[usize::from(pkt.headers.tunnel)].record.gateway
        }
        _ => 0,
    };
    send(buffer, pkt, lcore, service, gateway, Some(key))
}

/// Like [`send`], with headers from a template.
#[inline(always)]
fn send_with_template<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    cached: &CachedTemplate,
    route: &Route,
) -> Result<(), Rejection> {
    let (attachment, cookie) = origin::attachment(&buffer.window(), pkt, cached.gateway);
    let overhead = (template::LEN - ETHERNET) as u16;
    check_backend_mtu(pkt, lcore, route.mtu().saturating_sub(overhead))?;
    update_ecn_and_ttl(buffer, pkt)?;
    nat::clamp_mss_option(&mut buffer.window(), pkt, lcore);
    reserve_headroom(buffer, pkt, template::LEN)?;
    let fields = PacketFields {
        macs: route.macs(),
        dst: pkt.path.backend_addr.words[3],
        sport: source_port(pkt.hash),
        attachment,
        cookie,
        tos: pkt.inner.tos,
    };
    cached.template.write(
        &mut buffer.window(),
        &fields,
        usize::from(pkt.inner.end - pkt.inner.at),
    )?;
    pkt.exit = Exit::Port(route.arm());
    Ok(())
}

/// Sends a probe of the kernel through the tunnel of its backend's service.
#[inline(never)]
pub fn probe<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), Rejection> {
    let set = lcore.set();
    let backend = set.backend(pkt.backend).ok_or(Rejection::Drop(DropReason::NoBackend))?;
    let service = set.service(backend.probe_service);
    let service = service.ok_or(Rejection::Drop(DropReason::NoBackend))?;
    let ip = &pkt.inner;
    let (key, _) = FlowKey::new(0, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
    pkt.hash = lcore.flows().hash(&key);
    pkt.path.backend_addr = backend.addr;
    send(buffer, pkt, lcore, service, 0, None)
}

/// Writes the outer headers towards the backend of `pkt`, sets its exit, and caches a template of
/// the headers under `key`, if any.
#[inline(never)]
fn send<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    service: &Service,
    gateway: u16,
    key: Option<Key>,
) -> Result<(), Rejection> {
    let route = next_hop(pkt, lcore)?;
    let to = pkt.path.backend_addr;
    let local = lcore.local_on(route.arm(), &to).ok_or(Rejection::Drop(DropReason::NoRoute))?;
    let kind = TunnelKind::from_u8(service.tunnel).ok_or(Rejection::Drop(DropReason::NoBackend))?;
    // UDP source port and IPv6 flow label vary by flow; for IPIP over IPv4 only the source address
    // can.
    let hashed_source = match kind {
        TunnelKind::Ipip if to.is_v4() => {
            lcore.snapshot().settings.ipip_source(route.arm(), pkt.hash)
        }
        _ => None,
    };
    let mut options = [0; geneve::OWN_OPTIONS];
    if kind == TunnelKind::Geneve {
        let (attachment, cookie) = origin::attachment(&buffer.window(), pkt, gateway);
        geneve::own_options(&mut options, pkt.headers.scope_key, attachment, cookie);
    }
    let (kind, ends) = (kind, (hashed_source.unwrap_or(*local), to));
    let (macs, hash) = (route.macs(), pkt.hash);
    let mut outer = outer::to_backend(kind, service, &macs, ends, hash, &options, &pkt.inner);
    outer.checksum = service.flags & SERVICE_CHECKSUM != 0;
    let overhead = (outer_len(&outer) - ETHERNET) as u16;
    check_backend_mtu(pkt, lcore, route.mtu().saturating_sub(overhead))?;
    if pkt.headers.arrival != Arrival::Kernel {
        update_ecn_and_ttl(buffer, pkt)?;
        outer.tos = pkt.inner.tos;
    }
    nat::clamp_mss_option(&mut buffer.window(), pkt, lcore);
    encapsulate(buffer, pkt, &outer)?;
    if let Some(key) = key {
        let generation = lcore.snapshot().generation;
        lcore.template_cache().borrow_mut().insert(key, generation, (gateway, route.arm()), &outer);
    }
    pkt.exit = Exit::Port(route.arm());
    Ok(())
}

/// Replaces all bytes before the inner packet by `outer`.
#[inline(always)]
fn encapsulate<B: Buffer>(
    buffer: &mut B,
    pkt: &PacketState,
    outer: &Outer<'_>,
) -> Result<(), Rejection> {
    // Computed before a header segment may be prepended, which would hide the inner packet.
    let id = datagram_id(&buffer.window(), usize::from(pkt.inner.at), outer.inner_v6);
    reserve_headroom(buffer, pkt, outer_len(outer))?;
    let inner_len = usize::from(pkt.inner.end - pkt.inner.at);
    write_outer_as(&mut buffer.window(), outer, inner_len, id)?;
    Ok(())
}

/// Places the inner packet at offset `headers_len` and truncates the frame after it.
#[inline(always)]
fn reserve_headroom<B: Buffer>(
    buffer: &mut B,
    pkt: &PacketState,
    headers_len: usize,
) -> Result<(), Rejection> {
    trim(buffer, pkt);
    let before = usize::from(pkt.inner.at);
    // Between tunnels of the same header length nothing moves.
    if before != headers_len && !(buffer.strip(before) && buffer.grow(headers_len)) {
        return Err(Rejection::Drop(DropReason::NoHeadroom));
    }
    Ok(())
}

/// Sends a backend's packet through its flow's gateway tunnel with the latest options (those of its
/// own direction, if the gateway carries both directions), or to the client of a plain flow.
#[inline(never)]
pub fn to_client<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), Rejection> {
    let flows = lcore.flows();
    let mut answer = lcore.answer_buffer();
    let rejection_of = |missed| match missed {
        PathError::Gone => Rejection::Drop(DropReason::NoFlow),
        PathError::Busy => Rejection::Drop(DropReason::FlowContended),
    };
    match pkt.hit {
        Some(hit) => {
            flows.answer(&hit, hit.from_initiator(pkt.side), &mut answer).map_err(rejection_of)?;
        }
        None => fill_untracked_answer(&buffer.window(), pkt, lcore, &mut answer)?,
    }
    check_ttl(pkt)?;
    let other_family = pkt.path.crosses();
    let leg = &answer.gateway;
    let tunnel = match leg.tunnel {
        NO_TUNNEL => None,
        id => {
            let tunnel = lcore.snapshot().tunnel_to_gateway(u32::from(id));
            Some(tunnel.ok_or(Rejection::Drop(DropReason::NoFlow))?)
        }
    };
    check_client_mtu(pkt, lcore, tunnel, leg.arm)?;
    update_ecn_and_ttl(buffer, pkt)?;
    if pkt.path.mode == Mode::Nat as u8 {
        let hit = pkt.hit.ok_or(Rejection::Drop(DropReason::NoFlow))?;
        let ends = flows.ends(&hit).map_err(rejection_of)?;
        match other_family {
            true => nat64::from_backend(buffer, pkt, lcore, &ends)?,
            false => nat::from_backend(&mut buffer.window(), pkt, &ends)?,
        }
    }
    if !other_family {
        nat::clamp_mss_option(&mut buffer.window(), pkt, lcore);
    }
    let own = lcore.macs()[usize::from(leg.arm & 1)];
    let Some(tunnel) = tunnel else {
        plain_frame(buffer, pkt, &Macs::new(leg.gateway_mac, own), leg.vlan)?;
        pkt.exit = Exit::Port(leg.arm);
        return Ok(());
    };
    let outer = gateway_outer(pkt, lcore, &answer, own, tunnel);
    encapsulate(buffer, pkt, &outer)?;
    pkt.exit = Exit::Port(leg.arm);
    Ok(())
}

/// Fills in the answer for a flow that is in no table.
#[cold]
fn fill_untracked_answer(
    window: &Window<'_>,
    pkt: &PacketState,
    lcore: &Lcore<'_>,
    answer: &mut Answer,
) -> Result<(), Rejection> {
    if !origin::fill_answer(window, pkt, lcore, answer) {
        return Err(Rejection::Drop(origin::unknown_flow(pkt)));
    }
    lcore.page().count(Counter::AnswersUntracked, 1);
    Ok(())
}

/// Rejects a packet that exceeds its gateway's inner MTU or, for a plain client of the other
/// address family, the MTU of the client's arm.
#[inline(always)]
fn check_client_mtu(
    pkt: &PacketState,
    lcore: &Lcore<'_>,
    tunnel: Option<&SnapshotTunnel>,
    arm: u8,
) -> Result<(), Rejection> {
    let other_family = pkt.path.crosses();
    let (limit, reported) = match tunnel {
        Some(tunnel) => {
            let reported = tunnel.record.flags & tables::record::TUNNEL_REPLY_TOO_BIG != 0;
            (tunnel.record.inner_mtu, reported)
        }
        None if other_family => (lcore.snapshot().settings.mtu_of(arm), true),
        None => return Ok(()),
    };
    if limit == 0 {
        return Ok(());
    }
    let passes = if other_family { nat64::check_mtu(pkt, limit) } else { check_mtu(pkt, limit) };
    passes.map_err(|mtu| match reported && reports_too_big(pkt, lcore) {
        true => Rejection::Reply(Reply::TooBig(mtu)),
        false => Rejection::Drop(DropReason::TooBig),
    })
}

/// Returns the outer headers towards the flow's gateway: those of the latest packet, reversed.
#[inline(always)]
fn gateway_outer<'a>(
    pkt: &PacketState,
    lcore: &Lcore<'_>,
    answer: &'a Answer,
    own: [u8; 6],
    tunnel: &SnapshotTunnel,
) -> Outer<'a> {
    debug_assert!(tunnel.record.flags & TUNNEL_BACKEND == 0);
    let peer = peer_tunnel(pkt, lcore, tunnel).map(|peer| &peer.record);
    let (kind, leg) = (tunnel.kind, &answer.gateway);
    let checksum = tunnel.record.flags & TUNNEL_CHECKSUM != 0;
    let tunnels = (&tunnel.record, peer);
    let outer = outer::to_gateway(kind, leg, own, answer.options(), &pkt.inner, tunnels);
    Outer { checksum, ..outer }
}

/// Returns the tunnel to which an inspected packet crosses: Azure requires packets from External to
/// return on Internal. Answers of the backend itself stay on the request's tunnel.
fn peer_tunnel<'a>(
    pkt: &PacketState,
    lcore: &'a Lcore<'_>,
    tunnel: &SnapshotTunnel,
) -> Option<&'a SnapshotTunnel> {
    let hit = pkt.hit?;
    let inspected = pkt.path.mode != Mode::Nat as u8 && hit.from_initiator(pkt.side);
    if !inspected || tunnel.record.flags & tables::record::TUNNEL_CROSS == 0 {
        return None;
    }
    lcore.snapshot().tunnel(tunnel.record.peer)
}
