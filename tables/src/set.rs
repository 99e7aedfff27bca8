//! `TableSet`: a consistent view of all tables of one generation.
//!
//! An lcore holds the set of the generation that it has acknowledged and takes the next one between
//! two bursts. The set stays valid until the lcore acknowledges a later generation; until then no
//! commit reuses the memory that it reads.

use crate::atomic::Ordering;

use packet::addr::Addr;
use packet::ip::{Ip, L4};

use crate::address_filter::AddressFilter;
use crate::layout::Section;
#[cfg(not(target_arch = "bpf"))]
use crate::lookup::Entry;
use crate::lookup::{FrontendKinds, Frontends, address_mark, probe_bit, probe_mark, scope_mark};
use crate::next_hop::{self, NextHop, NextHopCell};
#[cfg(not(target_arch = "bpf"))]
use crate::note::{Member, NoteCell, ServiceNote};
use crate::record::{
    ADDRESS_MARK, Backend, BackendState, FrontendKey, NONE, Service, Settings, Tunnel, WhenFailed,
};
#[cfg(not(target_arch = "bpf"))]
use crate::record::{Prefix, SlotArray};
use crate::region::Region;
use crate::rows::{Numbered, Rows};
use crate::versioned::Versioned;

static NO_SETTINGS: Settings = Settings::EMPTY;
static NO_KINDS: FrontendKinds =
    FrontendKinds { lengths: [0; 2], hosts: 0, networks: 0, scopes: 0, probes: 0 };

/// One generation of all tables; cheap to copy.
#[derive(Clone, Copy)]
pub struct TableSet<'r> {
    generation: u32,
    /// Read once, since every lookup of a frontend needs it. BPF programs do not have this field:
    /// each creates its own set, and few of them look up frontends.
    #[cfg(not(target_arch = "bpf"))]
    pub(crate) kinds: &'r FrontendKinds,
    pub(crate) views: TableViews<'r>,
}

/// Views of the sections that hold the tables, independent of the generation.
#[derive(Clone, Copy)]
pub(crate) struct TableViews<'r> {
    pub(crate) tunnels: Rows<'r, Versioned<Tunnel>>,
    pub(crate) settings: Rows<'r, Versioned<Settings>>,
    pub(crate) services: Rows<'r, Versioned<Service>>,
    #[cfg(not(target_arch = "bpf"))]
    pub(crate) notes: Rows<'r, NoteCell>,
    pub(crate) kinds: Rows<'r, Versioned<FrontendKinds>>,
    pub(crate) frontends: Frontends<'r>,
    pub(crate) addresses: AddressFilter<'r>,
    pub(crate) backends: Rows<'r, Versioned<Backend>>,
    pub(crate) next_hops: Rows<'r, NextHopCell>,
    pub(crate) slots: Rows<'r, Slot>,
}

/// Element type of the slot arena. A BPF map value holds two 4-byte slots.
#[cfg(not(target_arch = "bpf"))]
type Slot = crate::atomic::AtomicU32;
#[cfg(target_arch = "bpf")]
type Slot = crate::atomic::AtomicU64;

impl<'r> TableViews<'r> {
    #[inline]
    pub(crate) fn new(region: &'r Region) -> TableViews<'r> {
        TableViews {
            tunnels: region.slice(Section::Tunnels),
            settings: region.slice(Section::Settings),
            services: region.slice(Section::Services),
            #[cfg(not(target_arch = "bpf"))]
            notes: region.slice(Section::ServiceNotes),
            kinds: region.slice(Section::FrontendKinds),
            frontends: Frontends::new(region),
            addresses: AddressFilter::of_frontends(region),
            backends: region.slice(Section::Backends),
            next_hops: region.slice(Section::NextHops),
            slots: region.slice(Section::Slots),
        }
    }
}

/// The service to which an ICMP error belongs, by the packet that it quotes: see
/// [`TableSet::quoted_service`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotedService {
    /// No frontend matches the quoted packet's source.
    None,
    /// The service rewrites addresses (NAT or a proxy), so that only the flow's entry leads to the
    /// backend.
    NeedsFlow,
    /// Selection alone finds the backend of this service.
    Stateless(u32),
}

impl Region {
    /// Returns the tables of `generation`, which must be the committed one or the one that the
    /// calling lcore acknowledged last.
    #[inline]
    pub fn tables(&self, generation: u32) -> TableSet<'_> {
        TableSet::of(TableViews::new(self), generation)
    }
}

impl<'r> TableSet<'r> {
    #[inline]
    pub(crate) fn of(views: TableViews<'r>, generation: u32) -> TableSet<'r> {
        #[cfg(not(target_arch = "bpf"))]
        let kinds = kinds(views.kinds, generation);
        TableSet {
            generation,
            #[cfg(not(target_arch = "bpf"))]
            kinds,
            views,
        }
    }

    /// Kinds of frontends that exist.
    #[inline(always)]
    #[cfg(not(target_arch = "bpf"))]
    pub(crate) fn kinds(&self) -> &'r FrontendKinds {
        self.kinds
    }

    /// Kinds of frontends that exist. Returns a copy, so that the verifier does not track the map
    /// value.
    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    pub(crate) fn kinds(&self) -> FrontendKinds {
        kinds(self.views.kinds, self.generation).copied()
    }

    /// The generation of this set; the set of generation 0 is empty.
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns a tunnel by its id.
    #[inline(always)]
    pub fn tunnel(&self, id: u32) -> Option<&'r Tunnel> {
        self.views.tunnels.row(id)?.get(self.generation)
    }

    /// Returns the tunnel by which packets go to the gateway of a flow whose leg has the tunnel
    /// `id`: that one or, if the gateway has replaced it, its successor. The flow's client may have
    /// nothing to send, so that no packet would update the leg.
    #[inline(always)]
    pub fn tunnel_to_gateway(&self, id: u32) -> Option<&'r Tunnel> {
        let tunnel = self.tunnel(id)?;
        match tunnel.successor() {
            Some(successor) => self.tunnel(successor),
            None => Some(tunnel),
        }
    }

    /// Appliance-wide settings; [`Settings::EMPTY`] until they are first committed.
    #[inline(always)]
    pub fn settings(&self) -> &'r Settings {
        self.views
            .settings
            .row(0)
            .and_then(|versioned| versioned.get(self.generation))
            .unwrap_or(&NO_SETTINGS)
    }

    /// Returns the service for a packet to `addr:port` with IP protocol `proto`.
    ///
    /// Match order: the scope's own frontends if it has any, else those without a scope; a single
    /// address before networks, and longer prefixes first; for each of these the exact key, then
    /// any port, then any protocol, then any of both. `scope_key` is 0 for plain packets.
    #[inline(always)]
    pub fn frontend(&self, scope_key: u64, addr: &Addr, port: u16, proto: u8) -> Option<u32> {
        let (views, kinds, at) = (&self.views, self.kinds(), self.generation);
        // No packet matches the reserved protocol number of marks.
        if proto == ADDRESS_MARK {
            return None;
        }
        // If all frontends are single addresses with port and protocol, one lookup suffices.
        if kinds.are_plain() {
            return views.frontends.target(&FrontendKey::host(0, addr, port, proto), at);
        }
        // A separate function in the kernel, which the verifier checks once.
        #[cfg(target_arch = "bpf")]
        return crate::parts::service(self.scope(scope_key), addr, port, proto, at);
        #[cfg(not(target_arch = "bpf"))]
        views.frontends.service(kinds, self.scope(scope_key), addr, port, proto, at)
    }

    /// Returns the service of an ICMP error by the packet that it quotes, which was a reply from
    /// the frontend to which the error is addressed.
    ///
    /// Callers use this for errors whose flow is in no table, for example because ECMP routers
    /// delivered the error to an appliance other than the one that has the flow.
    #[inline(always)]
    pub fn quoted_service(&self, scope_key: u64, error: &Ip, quoted: &Ip) -> QuotedService {
        if error.dst != quoted.src {
            return QuotedService::None;
        }
        match self.frontend(scope_key, &quoted.src, quoted.sport, quoted.proto) {
            None => QuotedService::None,
            Some(id) => match self.service(id) {
                Some(service) if !service.needs_entry() => QuotedService::Stateless(id),
                _ => QuotedService::NeedsFlow,
            },
        }
    }

    /// As [`TableSet::frontend`] for frontends of every kind, in the scope whose frontends apply.
    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    pub(crate) fn service_of(&self, scope: u64, addr: &Addr, port: u16, proto: u8) -> Option<u32> {
        let (kinds, at) = (self.kinds(), self.generation);
        self.views.frontends.service(&kinds, scope, addr, port, proto, at)
    }

    /// Returns whether any single-address frontend in the scope has this address, on any port.
    #[inline]
    pub fn address_marked(&self, scope_key: u64, addr: &Addr) -> bool {
        let key = address_mark(self.scope(scope_key), addr);
        self.kinds().hosts != 0 && self.views.frontends.target(&key, self.generation).is_some()
    }

    /// Filter of the addresses that may have frontends in any scope; an address that it rejects has
    /// none. `None` if a network is a frontend, because then any address may match.
    #[inline(always)]
    pub fn address_filter(&self) -> Option<AddressFilter<'r>> {
        (self.kinds().networks == 0).then_some(self.views.addresses)
    }

    /// Returns the key of the scope whose frontends apply: `scope_key` if that scope has frontends,
    /// else 0.
    #[inline(always)]
    fn scope(&self, scope_key: u64) -> u64 {
        if scope_key == 0 || self.kinds().scopes == 0 {
            return 0;
        }
        let own = self.views.frontends.target(&scope_mark(scope_key), self.generation);
        if own.is_some() { scope_key } else { 0 }
    }

    /// Returns a service by its id.
    #[inline(always)]
    pub fn service(&self, id: u32) -> Option<&'r Service> {
        self.views.services.row(id)?.get(self.generation)
    }

    /// Returns a backend by its id. Ids are reused, so callers that stored an incarnation compare
    /// it.
    #[inline(always)]
    pub fn backend(&self, id: u32) -> Option<&'r Backend> {
        self.views.backends.row(id)?.get(self.generation)
    }

    /// Selects the backend of `service` for a flow's hash, whose high half picks the slot.
    #[inline(always)]
    pub fn pick(&self, service: &Service, hash: u64) -> Option<u32> {
        let array = &service.slots;
        if array.count == 0 {
            return (service.single != NONE).then_some(service.single);
        }
        self.slot(array.first.checked_add(slot_of(array.count, hash))?)
    }

    /// Prefetches the line that [`TableSet::pick`] reads. With many services, that line is in no
    /// cache.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub fn prefetch_pick(&self, service: u32, hash: u64) {
        let Some(SlotArray { first, count }) = self.service(service).map(|s| s.slots) else {
            return;
        };
        if let Some(slot) = self.views.slots.row(first.wrapping_add(slot_of(count, hash))) {
            crate::flow::prefetch(slot);
        }
    }

    /// Returns how a client's packet affects its flow of `service` when the flow's backend has
    /// failed. If the service has no other healthy backend, the flow is kept: when all backends
    /// fail, the health checks are the more likely cause.
    #[inline(always)]
    pub fn when_failed(&self, service: u32, kind: L4, hash: u64) -> WhenFailed {
        let Some(service) = self.service(service) else { return WhenFailed::Keep };
        let what = service.when_failed(kind);
        if what == WhenFailed::Keep {
            return what;
        }
        let other = self.pick(service, hash).and_then(|id| self.backend(id));
        match other {
            Some(backend) if !BackendState::is_failed(backend.state) => what,
            _ => WhenFailed::Keep,
        }
    }

    /// Returns word `at` of the slot arena.
    #[inline(always)]
    pub(crate) fn slot(&self, at: u32) -> Option<u32> {
        #[cfg(not(target_arch = "bpf"))]
        return Some(self.views.slots.row(at)?.load(Ordering::Relaxed));
        // The shift selects one of the two slots without a data-dependent address. The verifier
        // then does not track the value of `at`, and checks a search along one path only.
        #[cfg(target_arch = "bpf")]
        Some((self.views.slots.row(at / 2)?.load(Ordering::Relaxed) >> (at % 2 * 32)) as u32)
    }

    /// Returns the current state of a next hop; next hops are not versioned.
    #[inline(always)]
    pub fn next_hop(&self, id: u32) -> Option<NextHop> {
        self.views.next_hops.row(id)?.load()
    }

    /// Returns a next hop with its address.
    #[inline(always)]
    pub fn next_hop_to(&self, id: u32) -> Option<(Addr, NextHop)> {
        let cell = self.views.next_hops.row(id)?;
        Some((cell.addr(), cell.load()?))
    }

    /// Returns the id of the next hop at `addr` on `arm`.
    #[inline(always)]
    pub fn next_hop_at(&self, addr: &Addr, arm: u8) -> Option<u32> {
        next_hop::find(self.views.next_hops, addr, arm)
    }

    /// Returns the backend that receives packets from the probe source `addr`.
    #[inline]
    pub fn probe(&self, addr: &Addr) -> Option<u32> {
        if !self.may_be_probe(addr) {
            return None;
        }
        self.views.frontends.target(&probe_mark(addr), self.generation)
    }

    /// Returns whether `addr` may be a probe source. Each configured source causes false positives
    /// for about one of 32 other addresses.
    #[inline(always)]
    pub fn may_be_probe(&self, addr: &Addr) -> bool {
        self.kinds().probes & probe_bit(addr) != 0
    }
}

/// Iterators over whole tables, for dumps and for lcores, which copy the tunnels.
#[cfg(not(target_arch = "bpf"))]
impl<'r> TableSet<'r> {
    /// All tunnels with their ids. An lcore copies them when it switches generations.
    pub fn tunnels(&self) -> impl Iterator<Item = (u32, &'r Tunnel)> {
        numbered(self.views.tunnels, self.generation)
    }

    /// All services with their ids, for dumps.
    pub fn services(&self) -> impl Iterator<Item = (u32, &'r Service)> {
        numbered(self.views.services, self.generation)
    }

    /// Returns the name of a service that this generation sees.
    pub fn service_name(&self, id: u32) -> Option<String> {
        self.service(id)?;
        Some(self.views.notes.get(id as usize)?.name())
    }

    /// Returns the inputs of a service's slots, if its writer recorded them.
    pub fn service_note(&self, id: u32) -> Option<&'r ServiceNote> {
        self.views.notes.get(id as usize)?.note.get(self.generation)
    }

    /// All backends of a service in their order; empty if its writer recorded none.
    pub fn members(&self, id: u32) -> impl Iterator<Item = Member> + use<'r> {
        let run = self.service_note(id).map(|note| note.members).unwrap_or_default();
        let mut words = self.slots(&run);
        std::iter::from_fn(move || Some(Member::of([words.next()?, words.next()?])))
    }

    /// Source ranges of a service as configured.
    pub fn source_ranges(&self, id: u32) -> impl Iterator<Item = Prefix> + use<'r> {
        let run = self.service_note(id).map(|note| note.ranges).unwrap_or_default();
        let mut words = self.slots(&run);
        std::iter::from_fn(move || {
            let mut word = || words.next();
            Some(Prefix::of([word()?, word()?, word()?, word()?, word()?]))
        })
    }

    /// All backends with their ids, for dumps.
    pub fn backends(&self) -> impl Iterator<Item = (u32, &'r Backend)> {
        numbered(self.views.backends, self.generation)
    }

    /// All frontends with their services, for dumps; unordered.
    pub fn frontends(&self) -> impl Iterator<Item = (&'r FrontendKey, u32)> {
        self.entries().filter(|(key, _)| key.proto != ADDRESS_MARK)
    }

    /// All frontends with their services and their notes
    /// ([`Writer::put_noted_frontend`](crate::writer::Writer::put_noted_frontend)); unordered.
    pub fn frontend_notes(&self) -> impl Iterator<Item = (&'r FrontendKey, u32, u32)> {
        let frontends = self.visible_entries().filter(|entry| entry.key().proto != ADDRESS_MARK);
        frontends.map(|entry| (entry.key(), entry.target(), entry.note()))
    }

    /// Keys and targets of frontends and marks.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'r FrontendKey, u32)> {
        self.visible_entries().map(|entry| (entry.key(), entry.target()))
    }

    /// Entries of frontends and marks that this generation sees.
    pub(crate) fn visible_entries(&self) -> impl Iterator<Item = &'r Entry> {
        let at = self.generation;
        self.views.frontends.entries.iter().filter(move |entry| entry.lifetime.sees(at))
    }

    /// All next hops in use as id, address and record, for dumps.
    pub fn next_hops(&self) -> impl Iterator<Item = (u32, Addr, NextHop)> + use<'r> {
        let cells = self.views.next_hops.iter().enumerate();
        cells.filter_map(|(id, cell)| Some((id as u32, cell.addr(), cell.load()?)))
    }

    /// The slots of an array, for dumps and tests; empty if it lies outside the arena.
    pub fn slots(&self, array: &SlotArray) -> impl ExactSizeIterator<Item = u32> + use<'r> {
        let first = array.first as usize;
        let run = self.views.slots.get(first..first.saturating_add(array.count as usize));
        run.unwrap_or_default().iter().map(|slot| slot.load(Ordering::Relaxed))
    }
}

/// Maps the high half of a flow's hash to a slot of an array of `count` slots.
#[inline(always)]
const fn slot_of(count: u32, hash: u64) -> u32 {
    (((hash >> 32) * count as u64) >> 32) as u32
}

/// Kinds of frontends in generation `at`.
#[inline(always)]
fn kinds(kinds: Rows<'_, Versioned<FrontendKinds>>, at: u32) -> &FrontendKinds {
    kinds.row(0).and_then(|versioned| versioned.get(at)).unwrap_or(&NO_KINDS)
}

#[cfg(not(target_arch = "bpf"))]
fn numbered<T: crate::record::Record>(
    records: &[Versioned<T>],
    at: u32,
) -> impl Iterator<Item = (u32, &T)> {
    records
        .iter()
        .enumerate()
        .filter_map(move |(id, versioned)| Some((id as u32, versioned.get(at)?)))
}
