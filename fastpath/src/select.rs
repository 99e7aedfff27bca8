//! Stage 5, select: chooses service and backend for packets without a flow, and inserts the new
//! flow.

use crate::burst::{Arrival, PacketState};
use crate::insert::{adopt, count_evicted, insert};
use crate::lcore::Lcore;
use crate::origin;
use crate::port::Buffer;
use crate::proxy;
use crate::track::{self, record_fragment, set_backend_verdict};
use crate::verdict::{Reply, Verdict};
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN, Side};
use packet::ip::{Fragment, Ip, L4};
use packet::window::Window;
use tables::affinity::{Affinity, Client};
use tables::counters::Counter;
use tables::flow::{EVICTION_PORTS, Forward, InsertError, PATH_ONE_WAY, PATH_REDIRECT};
use tables::fragment::FragmentTarget;
use tables::nat_port;
use tables::reason::DropReason;
use tables::record::{Backend, Mode, NONE, NoService, Service, TunnelKind};
use tables::set::QuotedService;

/// Chooses service and backend for an undecided packet. If a flow begins
/// ([`PacketState::NEW_FLOW`]), the caller must call [`begin`] afterwards; the memory that it reads
/// is being prefetched. A packet with [`PacketState::EVICT_PORT`] stays undecided, and the caller
/// must call [`claim_or_evict`].
#[inline(always)]
pub fn select<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    if pkt.is_undecided()
        && let Err(reason) = select_service(&buffer.window(), pkt, lcore)
    {
        pkt.drop(reason);
    }
}

/// Completes [`select`] for a packet with [`PacketState::EVICT_PORT`]: claims a NAT port, if
/// necessary that of another flow.
#[cold]
pub fn claim_or_evict(pkt: &mut PacketState, lcore: &Lcore<'_>) {
    let backend = lcore.set().backend(pkt.backend).ok_or(DropReason::NoBackend);
    match backend.and_then(|backend| claim(pkt, lcore, backend, backend.nat_ports)) {
        Ok(_) => mark_new_flow(pkt, lcore),
        Err(reason) => {
            pkt.pending &= !PacketState::NEW_FLOW;
            pkt.drop(reason);
        }
    }
}

/// Gives back the NAT port of a prepared flow and claims one anew, because the flow that was
/// inserted before it has released ports: the result is that of processing one packet at a time.
#[cold]
pub fn claim_again(pkt: &mut PacketState, lcore: &Lcore<'_>) {
    if pkt.path.mode == Mode::Nat as u8 && pkt.path.flags & PATH_REDIRECT == 0 {
        lcore.nat_ports().unclaim(pkt.nat_map, pkt.path.nat_port);
        pkt.pending |= PacketState::EVICT_PORT;
        claim_or_evict(pkt, lcore);
        pkt.pending &= !PacketState::EVICT_PORT;
    }
}

/// Inserts the flow for which [`select`] chose a backend, and decides on the packet.
#[inline(never)]
pub fn begin<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    pkt.pending &= !PacketState::NEW_FLOW;
    pkt.frees_ports = false;
    if let Err(reason) = insert_selected(&buffer.window(), pkt, lcore) {
        pkt.drop(reason);
    }
}

/// Looks up the service of a packet without a flow. Backends' packets, later fragments and ICMP
/// errors do not begin flows.
#[inline(always)]
pub fn lookup_service(pkt: &mut PacketState, lcore: &Lcore<'_>) {
    let ip = &pkt.inner;
    let begins = pkt.is_undecided()
        && pkt.headers.arrival != Arrival::Backend
        && ip.fragment != Fragment::Later
        && ip.kind != L4::IcmpError
        && !is_to_own_port(pkt, lcore);
    if begins {
        let service = lcore.set().frontend(pkt.headers.scope_key, &ip.dst, ip.dport, ip.proto);
        pkt.service = service.unwrap_or(NONE);
        if pkt.service != NONE {
            lcore.set().prefetch_pick(pkt.service, pkt.hash);
            lcore.flows().prefetch_claim(pkt.hash);
        }
    }
}

/// Returns true if a plain packet is addressed to a port that this machine serves itself. Such
/// packets bypass frontends that cover all ports or networks.
#[inline(always)]
fn is_to_own_port(pkt: &PacketState, lcore: &Lcore<'_>) -> bool {
    let (ip, settings) = (&pkt.inner, &lcore.snapshot().settings);
    pkt.headers.arrival == Arrival::Plain && settings.own_port(&ip.dst, ip.proto, ip.dport) != 0
}

#[inline(always)]
fn select_service(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    let answer = pkt.headers.arrival == Arrival::Backend;
    let to_own_source = || {
        let plain = pkt.service == NONE && pkt.headers.arrival == Arrival::Plain;
        plain && lcore.snapshot().settings.is_source(&pkt.inner.dst)
    };
    if answer || pkt.quoted.is_some() || to_own_source() {
        // The burst's lookups precede its inserts: the flow may have begun within the burst.
        track::find_and_track(window, pkt, lcore)?;
        if !pkt.is_undecided() || pkt.ends_flow() {
            return Ok(());
        }
    }
    if answer {
        if origin::matches_backend(window, pkt, lcore) {
            pkt.verdict = Verdict::Answer;
            return Ok(());
        }
        return Err(origin::unknown_flow(pkt));
    }
    if pkt.inner.fragment == Fragment::Later {
        return handle_later_fragment(pkt, lcore);
    }
    if let Some(quoted) = pkt.quoted {
        return select_for_quote(pkt, lcore, &quoted);
    }
    match pkt.service {
        NONE => handle_unmatched(pkt, lcore),
        _ => select_backend(window, pkt, lcore),
    }
}

/// Chooses the backend for a packet that may begin a flow of its service, and prepares the flow. If
/// the limit of new flows is reached, forwards the packet without an entry or drops it.
#[inline(never)]
fn select_backend(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    let set = lcore.set();
    let service = set.service(pkt.service).ok_or(DropReason::NoBackend)?;
    if has_invalid_source(pkt, lcore) {
        return Err(DropReason::MartianSource);
    }
    if !set.admits(service, &pkt.inner.src) {
        return Err(DropReason::SourceDenied);
    }
    let needs_entry = service.needs_entry();
    let tracked = lcore.admits_new_flow(needs_entry);
    if !tracked {
        // The burst's lookups precede its inserts: the flow may have begun within the burst.
        track::find_and_track(window, pkt, lcore)?;
        if !pkt.is_undecided() || pkt.ends_flow() {
            return Ok(());
        }
        if needs_entry {
            return Err(DropReason::NewFlowLimited);
        }
    }
    if service.proxy_port != 0 {
        proxy::prepare(pkt, lcore, service)?;
        mark_new_flow(pkt, lcore);
        return Ok(());
    }
    let backend = match service.affinity_s {
        0 => set.pick(service, pkt.hash),
        _ => affine_backend(pkt, lcore, service),
    };
    let backend = backend.ok_or(DropReason::NoBackend)?;
    let record = set.backend(backend).ok_or(DropReason::NoBackend)?;
    pkt.backend = backend;
    prepare(pkt, lcore, service, record)?;
    if !tracked {
        pkt.pending &= !PacketState::NEW_FLOW;
        record_return_leg(window, pkt, lcore);
        forward_untracked(pkt, lcore);
    }
    Ok(())
}

/// Handles an ICMP error about an answer of a flow that is in no table. If answers bypass this
/// appliance (direct server return) or are matched without an entry, the error goes to the backend
/// that receives the flow's packets. It begins no flow.
#[cold]
fn select_for_quote(
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    quoted: &Ip,
) -> Result<(), DropReason> {
    let (set, plain) = (lcore.set(), pkt.headers.arrival == Arrival::Plain);
    let own = || set.settings().own_port(&quoted.src, quoted.proto, quoted.sport) != 0;
    if quoted.fragment == Fragment::Later || plain && own() {
        return handle_unmatched(pkt, lcore);
    }
    pkt.service = match set.quoted_service(pkt.headers.scope_key, &pkt.inner, quoted) {
        QuotedService::Stateless(id) => id,
        QuotedService::NeedsFlow if plain => return Err(DropReason::IcmpUnknownFlow),
        QuotedService::NeedsFlow | QuotedService::None => return handle_unmatched(pkt, lcore),
    };
    let service = set.service(pkt.service).ok_or(DropReason::NoBackend)?;
    if !set.admits(service, &quoted.dst) {
        return Err(DropReason::IcmpUnknownFlow);
    }
    let backend = match service.affinity_s {
        0 => set.pick(service, pkt.hash),
        _ => affinity_or_pick(pkt, lcore, service, quoted.dst).map(|(_, backend)| backend),
    };
    let backend = backend.ok_or(DropReason::NoBackend)?;
    pkt.backend = backend;
    let record = set.backend(backend).ok_or(DropReason::NoBackend)?;
    pkt.path = Forward::to_backend(&pkt.inner, pkt.service, backend, record);
    pkt.path.mode = Mode::Tunnel as u8;
    set_backend_verdict(pkt);
    Ok(())
}

/// Returns true if the source address is martian, equals the destination or, for a plain packet, is
/// a frontend's. A gateway's packet may come from a frontend's address: frontends behind an
/// inspecting gateway are hosts.
fn has_invalid_source(pkt: &PacketState, lcore: &Lcore<'_>) -> bool {
    let (src, scope_key) = (&pkt.inner.src, pkt.headers.scope_key);
    src.is_martian()
        || *src == pkt.inner.dst
        || pkt.headers.arrival == Arrival::Plain && lcore.set().address_marked(scope_key, src)
}

/// Returns the backend of the client by affinity, and records or refreshes it.
#[inline(never)]
fn affine_backend(pkt: &PacketState, lcore: &Lcore<'_>, service: &Service) -> Option<u32> {
    let (set, affinities, now_s) = (lcore.set(), lcore.affinities(), lcore.now_s());
    let (client, backend) = affinity_or_pick(pkt, lcore, service, pkt.inner.src)?;
    let affinity = Affinity { backend, incarnation: set.backend(backend)?.incarnation };
    if affinities.put(&client, &affinity, now_s, service.affinity_s).is_err() {
        lcore.page().count(Counter::AffinitiesUntracked, 1);
    }
    Some(backend)
}

/// Returns the client at an address, and its backend by affinity or else by selection.
fn affinity_or_pick(
    pkt: &PacketState,
    lcore: &Lcore<'_>,
    service: &Service,
    addr: Addr,
) -> Option<(Client, u32)> {
    let (set, affinities) = (lcore.set(), lcore.affinities());
    let client = Client { scope: pkt.headers.scope, service: pkt.service, addr };
    let known = affinities.find(&client, lcore.now_s(), service.affinity_s);
    let backend = match known.filter(|affinity| set.is_affinity_valid(service, affinity)) {
        Some(affinity) => affinity.backend,
        None => set.pick(service, affinities.hash(&client))?,
    };
    Some((client, backend))
}

/// Handles a later fragment without a known first one: only addresses can decide on it.
fn handle_later_fragment(pkt: &mut PacketState, lcore: &Lcore<'_>) -> Result<(), DropReason> {
    let dst = pkt.inner.dst;
    let to_weir = lcore.set().address_marked(pkt.headers.scope_key, &dst)
        || (pkt.headers.arrival == Arrival::Plain
            && lcore.snapshot().settings.is_source(&dst)
            && !lcore.snapshot().settings.is_local(&dst));
    if to_weir {
        return Err(DropReason::FragmentBeforeFirst);
    }
    handle_unmatched(pkt, lcore)
}

/// Handles a packet that matches no service.
#[inline(never)]
fn handle_unmatched(pkt: &mut PacketState, lcore: &Lcore<'_>) -> Result<(), DropReason> {
    let snapshot = lcore.snapshot();
    // `marked`: the destination is a frontend's address, on whatever port. The lookup is limited to
    // the few packets whose handling depends on it.
    let is_echo_request = matches!(pkt.inner.kind, L4::IcmpEcho { request: true });
    let needs_mark = is_echo_request || pkt.inner.fragment == Fragment::First;
    let marked = needs_mark && lcore.set().address_marked(pkt.headers.scope_key, &pkt.inner.dst);
    if marked && is_echo_request {
        if has_invalid_source(pkt, lcore) {
            return Err(DropReason::MartianSource);
        }
        pkt.verdict = Verdict::Reply(Reply::Echo);
        return Ok(());
    }
    if pkt.headers.arrival == Arrival::Gateway {
        return match snapshot.tunnels[usize::from(pkt.headers.tunnel)].no_service() {
            NoService::Drop => Err(DropReason::NoService),
            NoService::Punt if pkt.inner.src.is_martian() => Err(DropReason::MartianSource),
            NoService::Punt => {
                pkt.verdict = Verdict::Punt;
                Ok(())
            }
            NoService::Return => {
                pkt.verdict = Verdict::Return;
                if marked && pkt.inner.fragment == Fragment::First {
                    record_fragment(pkt, lcore, FragmentTarget::Return);
                }
                Ok(())
            }
        };
    }
    let (dst, settings) = (&pkt.inner.dst, &snapshot.settings);
    // With direct server return, a backend's answers to probes arrive without a tunnel.
    if settings.is_local(dst) || dst.is_link_local() || lcore.set().probe(dst).is_some() {
        pkt.verdict = Verdict::Punt;
        return Ok(());
    }
    if settings.is_source(dst) {
        return Err(origin::unknown_flow(pkt));
    }
    if NoService::from_u8(settings.plain_no_service) == NoService::Punt {
        pkt.verdict = Verdict::Punt;
        return Ok(());
    }
    Err(DropReason::NoMatchingService)
}

/// Prepares a flow to `backend`, for [`begin`].
fn prepare(
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    service: &Service,
    backend: &Backend,
) -> Result<(), DropReason> {
    pkt.path = Forward::to_backend(&pkt.inner, pkt.service, pkt.backend, backend);
    match Mode::from_u8(service.mode) {
        Some(Mode::Nat) => {
            if !pkt.path.set_nat(&pkt.inner) {
                return Err(DropReason::NatProtocol);
            }
            if !claim(pkt, lcore, backend, backend.nat_ports)? {
                return Ok(());
            }
        }
        Some(Mode::Dsr) if pkt.headers.arrival == Arrival::Plain => {
            pkt.path.mode = Mode::Dsr as u8;
            pkt.path.flags = PATH_ONE_WAY;
        }
        // A gateway's flow never uses direct server return: the answer would have no return path.
        Some(Mode::Tunnel | Mode::Dsr) => pkt.path.mode = Mode::Tunnel as u8,
        None => return Err(DropReason::NoBackend),
    }
    mark_new_flow(pkt, lcore);
    Ok(())
}

/// Marks the prepared flow of `pkt` for insertion.
fn mark_new_flow(pkt: &mut PacketState, lcore: &Lcore<'_>) {
    pkt.back_hash = pkt.hash;
    if let Some((back, _)) = back_key(pkt) {
        pkt.back_hash = lcore.flows().hash(&back);
        lcore.flows().prefetch(pkt.back_hash);
    }
    pkt.pending |= PacketState::NEW_FLOW;
}

/// Returns the flow's key on the backend's side and the initiator's end of it, or `None` if answers
/// bypass this appliance.
fn back_key(pkt: &PacketState) -> Option<(FlowKey, Side)> {
    let path = &pkt.path;
    if path.is_nat() {
        return Some(path.backend_key(&pkt.inner));
    }
    let is_tunnel = path.mode == Mode::Tunnel as u8;
    is_tunnel.then_some((FlowKey { scope: SCOPE_PLAIN, ..pkt.key }, pkt.side))
}

/// Inserts the prepared flow.
fn insert_selected(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    let service = lcore.set().service(pkt.service).ok_or(DropReason::NoBackend)?;
    if pkt.path.flags & PATH_REDIRECT != 0 {
        proxy::begin(window, pkt, lcore, service)?;
        set_backend_verdict(pkt);
        return Ok(());
    }
    if pkt.path.mode == Mode::Nat as u8 {
        return insert_nat(window, pkt, lcore, service);
    }
    record_return_leg(window, pkt, lcore);
    let inserted = match insert(window, pkt, lcore, service, back_key(pkt), NONE) {
        // Weir's own options distinguish endpoints where 5-tuples do not. Plain answers, which have
        // no options, belong to the first flow.
        Err(InsertError::BackTaken(_)) if service.tunnel == TunnelKind::Geneve as u8 => {
            insert(window, pkt, lcore, service, None, NONE)
        }
        result => result,
    };
    match inserted {
        Ok(()) => set_backend_verdict(pkt),
        Err(InsertError::Full | InsertError::Contended | InsertError::NoSlab) => {
            forward_untracked(pkt, lcore);
        }
        Err(InsertError::BackTaken(_)) => return Err(DropReason::FlowAmbiguous),
        Err(InsertError::Exists(_) | InsertError::OptionsTooLong) => {
            return Err(DropReason::FlowContended);
        }
    }
    Ok(())
}

/// Records the return leg of a flow in tunnel mode, for answers when its entry is gone or was never
/// created.
fn record_return_leg(window: &Window<'_>, pkt: &PacketState, lcore: &Lcore<'_>) {
    if pkt.path.mode == Mode::Tunnel as u8 {
        origin::record_return_leg(window, pkt, lcore);
    }
}

/// Forwards a packet of a tunnel or direct-server-return flow without an entry: selection finds the
/// same backend again, and only answers need the entry.
fn forward_untracked(pkt: &mut PacketState, lcore: &Lcore<'_>) {
    lcore.page().count(Counter::FlowsUntracked, 1);
    set_backend_verdict(pkt);
}

/// Inserts a NAT flow whose port is claimed: both entries or neither. If another flow has
/// the entry on the backend's side, the next local address is tried.
fn insert_nat(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    service: &Service,
) -> Result<(), DropReason> {
    let backend = lcore.set().backend(pkt.backend);
    loop {
        let map = pkt.nat_map;
        let Err(error) = insert(window, pkt, lcore, service, back_key(pkt), map) else {
            set_backend_verdict(pkt);
            return Ok(());
        };
        lcore.nat_ports().release(map, pkt.path.nat_port);
        pkt.frees_ports = true;
        match error {
            // Another flow has the port through another map: another local address may be free.
            InsertError::BackTaken(_) if !pkt.nat_evicts => {
                let backend = backend.ok_or(DropReason::NoBackend)?;
                claim(pkt, lcore, backend, map + 1)?;
            }
            InsertError::BackTaken(_) => return Err(DropReason::NatPortsExhausted),
            InsertError::Exists(_) => return adopt(pkt, lcore).ok_or(DropReason::FlowContended),
            InsertError::Full | InsertError::NoSlab => return Err(DropReason::FlowTableFull),
            InsertError::Contended | InsertError::OptionsTooLong => {
                return Err(DropReason::FlowContended);
            }
        }
    }
}

/// Claims a NAT port towards a backend: a free port of the maps from `first` on (one per local
/// address of the backend's family), else the port of a flow that can be evicted. Returns false if
/// the caller must call [`claim_or_evict`] for the latter.
fn claim(
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    backend: &Backend,
    first: u32,
) -> Result<bool, DropReason> {
    if backend.nat_ports == NONE {
        return Err(DropReason::NatNoAddress);
    }
    let settings = &lcore.snapshot().settings;
    let locals = settings.nat.iter().take_while(|local| local.addr != Addr::UNSPECIFIED);
    let locals = locals.filter(|local| local.addr.is_v4() == backend.addr.is_v4());
    let maps = (backend.nat_ports..NONE).zip(locals);
    let mut addresses = 0;
    for (map, local) in maps.clone() {
        addresses += 1;
        let range = settings.nat_port_first..=settings.nat_port_last;
        let free = || lcore.nat_ports().claim(map, range, lcore.index(), lcore.count());
        if map >= first
            && let Some(port) = free()
        {
            (*pkt.path.nat_addr_mut(), pkt.path.nat_port) = (local.addr, port);
            (pkt.nat_map, pkt.nat_evicts) = (map, false);
            return Ok(true);
        }
    }
    if first == backend.nat_ports && pkt.pending & PacketState::EVICT_PORT == 0 {
        pkt.pending |= PacketState::EVICT_PORT;
        return Ok(false);
    }
    // All ports of all addresses are in use. Only one address is examined, so that a failure costs
    // the same for any number of addresses.
    let nth = (pkt.hash as u32).checked_rem(addresses).ok_or(DropReason::NatNoAddress)?;
    let (map, local) = maps.clone().nth(nth as usize).ok_or(DropReason::NatNoAddress)?;
    let (ip, path) = (&pkt.inner, &pkt.path);
    let key = |proto, port| path.key_from(ip, proto, &local.addr, port).0;
    let port = evicted_port(lcore, map, path.backend_proto(ip), key);
    let port = port.ok_or(DropReason::NatPortsExhausted)?;
    (*pkt.path.nat_addr_mut(), pkt.path.nat_port) = (local.addr, port);
    (pkt.nat_map, pkt.nat_evicts) = (map, true);
    Ok(true)
}

/// Takes a port of an exhausted map from a flow that was reset or is unconfirmed (its client has
/// not yet answered the backend's first packet), among the few ports that were allocated longest
/// ago. A port belongs to one flow, either of the new flow's protocol or of the other one. `back`
/// returns the backend-side key of a flow with this protocol and port.
#[cold]
fn evicted_port(
    lcore: &Lcore<'_>,
    map: u32,
    proto: u8,
    back: impl Fn(u8, u16) -> FlowKey,
) -> Option<u16> {
    let (flows, ports) = (lcore.flows(), lcore.nat_ports());
    let (settings, share) = (&lcore.snapshot().settings, (lcore.index(), lcore.count()));
    let range = settings.nat_port_first..=settings.nat_port_last;
    let port_owner = |proto, port| {
        let key = back(proto, port);
        flows.find(flows.hash(&key), &key)
    };
    for _ in 0..EVICTION_PORTS {
        let port = ports.oldest(map, range.clone(), share)?;
        let hit =
            port_owner(proto, port).or_else(|| port_owner(nat_port::other_proto(proto), port));
        let flow = hit.and_then(|hit| flows.evict(&hit));
        if count_evicted(lcore, flow) && ports.take_port(map, port) {
            return Some(port);
        }
    }
    None
}
