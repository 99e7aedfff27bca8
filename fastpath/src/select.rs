//! Stage 5, select: chooses service and backend for packets without a flow, and inserts the new
//! flow.

use crate::burst::{Arrival, Work};
use crate::insert::{adopt, evicted, insert};
use crate::lcore::Lcore;
use crate::origin;
use crate::port::Buffer;
use crate::redirect;
use crate::track::{self, remember, towards_backend};
use crate::verdict::{Reply, Verdict};
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN, Side};
use packet::ip::{Fragment, Ip, L4};
use packet::window::Window;
use tables::affinity::{Client, Stay};
use tables::counters::Counter;
use tables::flow::{Forward, InsertError, PATH_ONE_WAY, PATH_REDIRECT, PORTS};
use tables::fragment::FragmentTarget;
use tables::nat_port;
use tables::reason::DropReason;
use tables::record::{Backend, Mode, NONE, NoService, Service, TunnelKind};
use tables::set::QuotedService;

/// Chooses service and backend for an undecided packet. If a flow begins ([`Work::BEGINS`]), the
/// caller must call [`begin`] afterwards; the memory that it reads is being prefetched. A packet
/// with [`Work::EVICTS`] stays undecided, and the caller must call [`evict`].
#[inline(always)]
pub fn select<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) {
    if work.open()
        && let Err(reason) = choose(&buffer.window(), work, lcore)
    {
        work.drop(reason);
    }
}

/// Completes [`select`] for a packet with [`Work::EVICTS`]: claims a NAT port, if necessary that of
/// another flow.
#[cold]
pub fn evict(work: &mut Work, lcore: &Lcore<'_>) {
    let backend = lcore.set().backend(work.backend).ok_or(DropReason::NoBackend);
    match backend.and_then(|backend| claim(work, lcore, backend, backend.nat_ports)) {
        Ok(_) => begins(work, lcore),
        Err(reason) => {
            work.pending &= !Work::BEGINS;
            work.drop(reason);
        }
    }
}

/// Claims the NAT port of a prepared flow again from the start, since the preceding flow's start
/// released ports.
#[cold]
pub fn claim_again(work: &mut Work, lcore: &Lcore<'_>) {
    if work.path.mode == Mode::Nat as u8 && work.path.flags & PATH_REDIRECT == 0 {
        lcore.nat_ports().unclaim(work.nat_map, work.path.nat_port);
        work.pending |= Work::EVICTS;
        evict(work, lcore);
        work.pending &= !Work::EVICTS;
    }
}

/// Inserts the flow for which [`select`] chose a backend, and decides on the packet.
#[inline(never)]
pub fn begin<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) {
    work.pending &= !Work::BEGINS;
    work.frees_ports = false;
    if let Err(reason) = insert_chosen(&buffer.window(), work, lcore) {
        work.drop(reason);
    }
}

/// Looks up the service of a packet without a flow. Backends' packets, later fragments and ICMP
/// errors do not begin flows.
#[inline(always)]
pub fn look_up(work: &mut Work, lcore: &Lcore<'_>) {
    let ip = &work.inner;
    let begins = work.open()
        && work.front.arrival != Arrival::Backend
        && ip.fragment != Fragment::Later
        && ip.kind != L4::IcmpError
        && !is_own(work, lcore);
    if begins {
        let service = lcore.set().frontend(work.front.scope_key, &ip.dst, ip.dport, ip.proto);
        work.service = service.unwrap_or(NONE);
        if work.service != NONE {
            lcore.set().prefetch_pick(work.service, work.hash);
            lcore.flows().prefetch_claim(work.hash);
        }
    }
}

/// Returns true if a plain packet is addressed to a port that this machine serves itself. Such
/// packets bypass frontends that cover all ports or networks.
#[inline(always)]
fn is_own(work: &Work, lcore: &Lcore<'_>) -> bool {
    let (ip, settings) = (&work.inner, &lcore.snapshot().settings);
    work.front.arrival == Arrival::Plain && settings.own_port(&ip.dst, ip.proto, ip.dport) != 0
}

#[inline(always)]
fn choose(window: &Window<'_>, work: &mut Work, lcore: &Lcore<'_>) -> Result<(), DropReason> {
    let answer = work.front.arrival == Arrival::Backend;
    let translated = || {
        let plain = work.service == NONE && work.front.arrival == Arrival::Plain;
        plain && lcore.snapshot().settings.is_source(&work.inner.dst)
    };
    if answer || work.quoted.is_some() || translated() {
        // The burst's lookups precede its inserts: the flow may have begun within the burst.
        track::look_again(window, work, lcore)?;
        if !work.open() || work.ends_flow() {
            return Ok(());
        }
    }
    if answer {
        if origin::goes_back(window, work, lcore) {
            work.verdict = Verdict::Answer;
            return Ok(());
        }
        return Err(origin::unknown(work));
    }
    if work.inner.fragment == Fragment::Later {
        return later_fragment(work, lcore);
    }
    if let Some(quoted) = work.quoted {
        return for_quote(work, lcore, &quoted);
    }
    match work.service {
        NONE => for_nobody(work, lcore),
        _ => for_service(window, work, lcore),
    }
}

#[inline(never)]
fn for_service(window: &Window<'_>, work: &mut Work, lcore: &Lcore<'_>) -> Result<(), DropReason> {
    let set = lcore.set();
    let service = set.service(work.service).ok_or(DropReason::NoBackend)?;
    if is_martian(work, lcore) {
        return Err(DropReason::MartianSource);
    }
    if !set.admits(service, &work.inner.src) {
        return Err(DropReason::SourceRefused);
    }
    let translated = service.needs_entry();
    let tracked = lcore.admits_new_flow(translated);
    if !tracked {
        // The burst's lookups precede its inserts: the flow may have begun within the burst.
        track::look_again(window, work, lcore)?;
        if !work.open() || work.ends_flow() {
            return Ok(());
        }
        if translated {
            return Err(DropReason::NewFlowLimited);
        }
    }
    if service.proxy_port != 0 {
        redirect::prepare(work, lcore, service)?;
        begins(work, lcore);
        return Ok(());
    }
    let backend = match service.affinity_s {
        0 => set.pick(service, work.hash),
        _ => stay(work, lcore, service),
    };
    let backend = backend.ok_or(DropReason::NoBackend)?;
    let record = set.backend(backend).ok_or(DropReason::NoBackend)?;
    work.backend = backend;
    prepare(work, lcore, service, record)?;
    if !tracked {
        work.pending &= !Work::BEGINS;
        note_origin(window, work, lcore);
        untracked(work, lcore);
    }
    Ok(())
}

/// Handles an ICMP error about an answer of a flow that is in no table. If answers bypass this
/// appliance (direct server return) or are matched without an entry, the error goes to the backend
/// that receives the flow's packets. It begins no flow.
#[cold]
fn for_quote(work: &mut Work, lcore: &Lcore<'_>, quoted: &Ip) -> Result<(), DropReason> {
    let (set, plain) = (lcore.set(), work.front.arrival == Arrival::Plain);
    let own = || set.settings().own_port(&quoted.src, quoted.proto, quoted.sport) != 0;
    if quoted.fragment == Fragment::Later || plain && own() {
        return for_nobody(work, lcore);
    }
    work.service = match set.quoted_service(work.front.scope_key, &work.inner, quoted) {
        QuotedService::Stateless(id) => id,
        QuotedService::NeedsFlow if plain => return Err(DropReason::IcmpUnknownFlow),
        QuotedService::NeedsFlow | QuotedService::None => return for_nobody(work, lcore),
    };
    let service = set.service(work.service).ok_or(DropReason::NoBackend)?;
    if !set.admits(service, &quoted.dst) {
        return Err(DropReason::IcmpUnknownFlow);
    }
    let backend = match service.affinity_s {
        0 => set.pick(service, work.hash),
        _ => stays(work, lcore, service, quoted.dst).map(|(_, backend)| backend),
    };
    let backend = backend.ok_or(DropReason::NoBackend)?;
    work.backend = backend;
    let record = set.backend(backend).ok_or(DropReason::NoBackend)?;
    work.path = Forward::to_backend(&work.inner, work.service, backend, record);
    work.path.mode = Mode::Tunnel as u8;
    towards_backend(work);
    Ok(())
}

/// Returns true if the source address is martian or a frontend's. Frontends behind an inspecting
/// gateway are hosts, so a gateway's packet may come from another frontend's address, but not from
/// its own destination.
fn is_martian(work: &Work, lcore: &Lcore<'_>) -> bool {
    let (src, scope_key) = (&work.inner.src, work.front.scope_key);
    src.is_martian()
        || *src == work.inner.dst
        || work.front.arrival == Arrival::Plain && lcore.set().address_marked(scope_key, src)
}

/// Returns the backend of the client by affinity, and records or refreshes it.
#[inline(never)]
fn stay(work: &Work, lcore: &Lcore<'_>, service: &Service) -> Option<u32> {
    let (set, affinities, now_s) = (lcore.set(), lcore.affinities(), lcore.now_s());
    let (client, backend) = stays(work, lcore, service, work.inner.src)?;
    let stay = Stay { backend, incarnation: set.backend(backend)?.incarnation };
    if affinities.keep(&client, &stay, now_s, service.affinity_s).is_err() {
        lcore.page().count(Counter::AffinitiesUntracked, 1);
    }
    Some(backend)
}

/// Returns the client at an address, and its backend by affinity or else by selection.
fn stays(work: &Work, lcore: &Lcore<'_>, service: &Service, addr: Addr) -> Option<(Client, u32)> {
    let (set, affinities) = (lcore.set(), lcore.affinities());
    let client = Client { scope: work.front.scope, service: work.service, addr };
    let known = affinities.find(&client, lcore.now_s(), service.affinity_s);
    let backend = match known.filter(|stay| set.stays(service, stay)) {
        Some(stay) => stay.backend,
        None => set.pick(service, affinities.hash(&client))?,
    };
    Some((client, backend))
}

/// Handles a later fragment without a known first one: only addresses can decide on it.
fn later_fragment(work: &mut Work, lcore: &Lcore<'_>) -> Result<(), DropReason> {
    let dst = work.inner.dst;
    let ours = lcore.set().address_marked(work.front.scope_key, &dst)
        || (work.front.arrival == Arrival::Plain
            && lcore.snapshot().settings.is_source(&dst)
            && !lcore.snapshot().settings.is_local(&dst));
    if ours {
        return Err(DropReason::FragmentBeforeFirst);
    }
    for_nobody(work, lcore)
}

/// Handles a packet that matches no service.
#[inline(never)]
fn for_nobody(work: &mut Work, lcore: &Lcore<'_>) -> Result<(), DropReason> {
    let snapshot = lcore.snapshot();
    // The lookup is limited to the few packets whose handling depends on it.
    let asks = matches!(work.inner.kind, L4::IcmpEcho { request: true });
    let asks = asks || work.inner.fragment == Fragment::First;
    let marked = asks && lcore.set().address_marked(work.front.scope_key, &work.inner.dst);
    if marked && matches!(work.inner.kind, L4::IcmpEcho { request: true }) {
        if is_martian(work, lcore) {
            return Err(DropReason::MartianSource);
        }
        work.verdict = Verdict::Reply(Reply::Echo);
        return Ok(());
    }
    if work.front.arrival == Arrival::Gateway {
        return match snapshot.tunnels[usize::from(work.front.tunnel)].no_service() {
            NoService::Drop => Err(DropReason::NoService),
            NoService::Punt if work.inner.src.is_martian() => Err(DropReason::MartianSource),
            NoService::Punt => {
                work.verdict = Verdict::Punt;
                Ok(())
            }
            NoService::Return => {
                work.verdict = Verdict::Return;
                if marked && work.inner.fragment == Fragment::First {
                    remember(work, lcore, FragmentTarget::Return);
                }
                Ok(())
            }
        };
    }
    let (dst, settings) = (&work.inner.dst, &snapshot.settings);
    // A backend that answers its clients directly answers probes without a tunnel.
    if settings.is_local(dst) || dst.is_link_local() || lcore.set().probe(dst).is_some() {
        work.verdict = Verdict::Punt;
        return Ok(());
    }
    if settings.is_source(dst) {
        return Err(origin::unknown(work));
    }
    if NoService::from_u8(settings.plain_no_service) == NoService::Punt {
        work.verdict = Verdict::Punt;
        return Ok(());
    }
    Err(DropReason::NoMatchingService)
}

/// Prepares a flow to `backend`, for [`begin`].
fn prepare(
    work: &mut Work,
    lcore: &Lcore<'_>,
    service: &Service,
    backend: &Backend,
) -> Result<(), DropReason> {
    work.path = Forward::to_backend(&work.inner, work.service, work.backend, backend);
    match Mode::from_u8(service.mode) {
        Some(Mode::Nat) => {
            if !work.path.translates(&work.inner) {
                return Err(DropReason::NatProtocol);
            }
            if !claim(work, lcore, backend, backend.nat_ports)? {
                return Ok(());
            }
        }
        Some(Mode::Dsr) if work.front.arrival == Arrival::Plain => {
            work.path.mode = Mode::Dsr as u8;
            work.path.flags = PATH_ONE_WAY;
        }
        // A gateway's flow never uses direct server return: the answer would have no return path.
        Some(Mode::Tunnel | Mode::Dsr) => work.path.mode = Mode::Tunnel as u8,
        None => return Err(DropReason::NoBackend),
    }
    begins(work, lcore);
    Ok(())
}

/// Marks the prepared flow of `work` for insertion.
fn begins(work: &mut Work, lcore: &Lcore<'_>) {
    work.back_hash = work.hash;
    if let Some((back, _)) = back(work) {
        work.back_hash = lcore.flows().hash(&back);
        lcore.flows().prefetch(work.back_hash);
    }
    work.pending |= Work::BEGINS;
}

/// Returns the flow's key on the backend's side and the initiator's end of it, or `None` if answers
/// bypass this appliance.
fn back(work: &Work) -> Option<(FlowKey, Side)> {
    let path = &work.path;
    if path.is_nat() {
        return Some(path.key_behind(&work.inner));
    }
    let is_tunnel = path.mode == Mode::Tunnel as u8;
    is_tunnel.then_some((FlowKey { scope: SCOPE_PLAIN, ..work.key }, work.side))
}

/// Inserts the prepared flow.
fn insert_chosen(
    window: &Window<'_>,
    work: &mut Work,
    lcore: &Lcore<'_>,
) -> Result<(), DropReason> {
    let service = lcore.set().service(work.service).ok_or(DropReason::NoBackend)?;
    if work.path.flags & PATH_REDIRECT != 0 {
        redirect::begin(window, work, lcore, service)?;
        towards_backend(work);
        return Ok(());
    }
    if work.path.mode == Mode::Nat as u8 {
        return insert_translated(window, work, lcore, service);
    }
    note_origin(window, work, lcore);
    let done = match insert(window, work, lcore, service, back(work), NONE) {
        // Weir's own options distinguish endpoints where 5-tuples do not. Plain answers, which have
        // no options, belong to the first flow.
        Err(InsertError::BackTaken(_)) if service.tunnel == TunnelKind::Geneve as u8 => {
            insert(window, work, lcore, service, None, NONE)
        }
        done => done,
    };
    match done {
        Ok(()) => towards_backend(work),
        Err(InsertError::Full | InsertError::Contended | InsertError::NoSlab) => {
            untracked(work, lcore);
        }
        Err(InsertError::BackTaken(_)) => return Err(DropReason::FlowAmbiguous),
        Err(InsertError::Exists(_) | InsertError::OptionsTooLong) => {
            return Err(DropReason::FlowContended);
        }
    }
    Ok(())
}

/// Records the return leg for answers of a tunnel flow whose entry is gone or was never created.
fn note_origin(window: &Window<'_>, work: &Work, lcore: &Lcore<'_>) {
    if work.path.mode == Mode::Tunnel as u8 {
        origin::note(window, work, lcore);
    }
}

/// Forwards a packet of a tunnel or direct-server-return flow without an entry: selection finds the
/// same backend again, and only answers need the entry.
fn untracked(work: &mut Work, lcore: &Lcore<'_>) {
    lcore.page().count(Counter::FlowsUntracked, 1);
    towards_backend(work);
}

/// Inserts a translated flow whose port is claimed: both entries or neither. If another flow has
/// the entry on the backend's side, the next local address is tried.
fn insert_translated(
    window: &Window<'_>,
    work: &mut Work,
    lcore: &Lcore<'_>,
    service: &Service,
) -> Result<(), DropReason> {
    let backend = lcore.set().backend(work.backend);
    loop {
        let map = work.nat_map;
        let Err(error) = insert(window, work, lcore, service, back(work), map) else {
            towards_backend(work);
            return Ok(());
        };
        lcore.nat_ports().release(map, work.path.nat_port);
        work.frees_ports = true;
        match error {
            // Another flow has the port through another map: another local address may be free.
            InsertError::BackTaken(_) if !work.nat_evicts => {
                let backend = backend.ok_or(DropReason::NoBackend)?;
                claim(work, lcore, backend, map + 1)?;
            }
            InsertError::BackTaken(_) => return Err(DropReason::NatPortsExhausted),
            InsertError::Exists(_) => return adopt(work, lcore).ok_or(DropReason::FlowContended),
            InsertError::Full | InsertError::NoSlab => return Err(DropReason::FlowTableFull),
            InsertError::Contended | InsertError::OptionsTooLong => {
                return Err(DropReason::FlowContended);
            }
        }
    }
}

/// Claims a NAT port towards a backend: a free port of the maps from `first` on (one per local
/// address of the backend's family), else the port of a flow that can be evicted. Returns false if
/// the caller must call [`evict`] for the latter.
fn claim(
    work: &mut Work,
    lcore: &Lcore<'_>,
    backend: &Backend,
    first: u32,
) -> Result<bool, DropReason> {
    if backend.nat_ports == NONE {
        return Err(DropReason::NatNoAddress);
    }
    let settings = &lcore.snapshot().settings;
    let ours = settings.nat.iter().take_while(|ours| ours.addr != Addr::UNSPECIFIED);
    let ours = ours.filter(|ours| ours.addr.is_v4() == backend.addr.is_v4());
    let maps = (backend.nat_ports..NONE).zip(ours);
    let mut addresses = 0;
    for (map, ours) in maps.clone() {
        addresses += 1;
        let range = settings.nat_port_first..=settings.nat_port_last;
        let free = || lcore.nat_ports().claim(map, range, lcore.index(), lcore.count());
        if map >= first
            && let Some(port) = free()
        {
            (*work.path.nat_addr_mut(), work.path.nat_port) = (ours.addr, port);
            (work.nat_map, work.nat_evicts) = (map, false);
            return Ok(true);
        }
    }
    if first == backend.nat_ports && work.pending & Work::EVICTS == 0 {
        work.pending |= Work::EVICTS;
        return Ok(false);
    }
    // All ports of all addresses are in use. Only one address is examined, so that a failure costs
    // the same for any number of addresses.
    let nth = (work.hash as u32).checked_rem(addresses).ok_or(DropReason::NatNoAddress)?;
    let (map, ours) = maps.clone().nth(nth as usize).ok_or(DropReason::NatNoAddress)?;
    let (ip, path) = (&work.inner, &work.path);
    let key = |proto, port| path.key_from(ip, proto, &ours.addr, port).0;
    let port = evicted_port(lcore, map, path.proto_behind(ip), key);
    let port = port.ok_or(DropReason::NatPortsExhausted)?;
    (*work.path.nat_addr_mut(), work.path.nat_port) = (ours.addr, port);
    (work.nat_map, work.nat_evicts) = (map, true);
    Ok(true)
}

/// Takes a port of an exhausted map from an unconfirmed or reset flow, among the few that were
/// allocated longest ago. A port belongs to one flow, either of the new flow's protocol or of the
/// other one. `back` returns the backend-side key of a flow with this protocol and port.
#[cold]
fn evicted_port(
    lcore: &Lcore<'_>,
    map: u32,
    proto: u8,
    back: impl Fn(u8, u16) -> FlowKey,
) -> Option<u16> {
    let (flows, ports) = (lcore.flows(), lcore.nat_ports());
    let (settings, place) = (&lcore.snapshot().settings, (lcore.index(), lcore.count()));
    let range = settings.nat_port_first..=settings.nat_port_last;
    let holder = |proto, port| {
        let key = back(proto, port);
        flows.find(flows.hash(&key), &key)
    };
    for _ in 0..PORTS {
        let port = ports.oldest(map, range.clone(), place)?;
        let hit = holder(proto, port).or_else(|| holder(nat_port::other_proto(proto), port));
        if evicted(lcore, hit.and_then(|hit| flows.evict(&hit))) && ports.take_port(map, port) {
            return Some(port);
        }
    }
    None
}
