//! `TableSet`: everything that a generation says, as one consistent view of the region.
//!
//! An lcore keeps one for the generation that it has acknowledged and takes the next one between
//! two bursts. It stays valid until the lcore acknowledges a later one: until then no commit reuses
//! what it reads.

use crate::atomic::Ordering;

use packet::addr::Addr;
use packet::ip::{Ip, L4};

use crate::addresses::Addresses;
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
use crate::versioned::Twin;

static NO_SETTINGS: Settings = Settings::EMPTY;
static NO_KINDS: FrontendKinds =
    FrontendKinds { lengths: [0; 2], hosts: 0, networks: 0, scopes: 0, probes: 0 };

/// One generation of all tables. Cheap to copy.
#[derive(Clone, Copy)]
pub struct TableSet<'r> {
    generation: u32,
    /// Read once, since every look-up asks for it. In the kernel each part of the program has a set
    /// of its own, and few look frontends up.
    #[cfg(not(target_arch = "bpf"))]
    pub(crate) kinds: &'r FrontendKinds,
    pub(crate) parts: Parts<'r>,
}

/// Where the tables lie, in whichever generation.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'r> {
    pub(crate) tunnels: Rows<'r, Twin<Tunnel>>,
    pub(crate) settings: Rows<'r, Twin<Settings>>,
    pub(crate) services: Rows<'r, Twin<Service>>,
    #[cfg(not(target_arch = "bpf"))]
    pub(crate) notes: Rows<'r, NoteCell>,
    pub(crate) kinds: Rows<'r, Twin<FrontendKinds>>,
    pub(crate) frontends: Frontends<'r>,
    pub(crate) addresses: Addresses<'r>,
    pub(crate) backends: Rows<'r, Twin<Backend>>,
    pub(crate) next_hops: Rows<'r, NextHopCell>,
    pub(crate) slots: Rows<'r, Slot>,
}

/// What the slot arena is read by. In a value of the kernel's map lie two words.
#[cfg(not(target_arch = "bpf"))]
type Slot = crate::atomic::AtomicU32;
#[cfg(target_arch = "bpf")]
type Slot = crate::atomic::AtomicU64;

impl<'r> Parts<'r> {
    #[inline]
    pub(crate) fn new(region: &'r Region) -> Parts<'r> {
        Parts {
            tunnels: region.slice(Section::Tunnels),
            settings: region.slice(Section::Settings),
            services: region.slice(Section::Services),
            #[cfg(not(target_arch = "bpf"))]
            notes: region.slice(Section::ServiceNotes),
            kinds: region.slice(Section::FrontendKinds),
            frontends: Frontends::new(region),
            addresses: Addresses::of_frontends(region),
            backends: region.slice(Section::Backends),
            next_hops: region.slice(Section::NextHops),
            slots: region.slice(Section::Slots),
        }
    }
}

/// Whose an ICMP error is by the packet that it quotes, see [`TableSet::quoted_service`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotedService {
    /// No frontend has the quoted packet's sender.
    None,
    /// A service has it whose answers only the flow's entry can lead back: NAT, or a proxy.
    NeedsFlow,
    /// This service has it, whose backend is found by selection alone.
    Stateless(u32),
}

impl Region {
    /// The tables as `generation` sees them. It must be the committed one, or the one that the
    /// calling lcore has acknowledged last.
    #[inline]
    pub fn tables(&self, generation: u32) -> TableSet<'_> {
        TableSet::of(Parts::new(self), generation)
    }
}

impl<'r> TableSet<'r> {
    #[inline]
    pub(crate) fn of(parts: Parts<'r>, generation: u32) -> TableSet<'r> {
        #[cfg(not(target_arch = "bpf"))]
        let kinds = kinds(parts.kinds, generation);
        TableSet {
            generation,
            #[cfg(not(target_arch = "bpf"))]
            kinds,
            parts,
        }
    }

    /// Which frontends there are at all.
    #[inline(always)]
    #[cfg(not(target_arch = "bpf"))]
    pub(crate) fn kinds(&self) -> &'r FrontendKinds {
        self.kinds
    }

    /// Which frontends there are at all. A copy, so that the verifier forgets where they lay.
    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    pub(crate) fn kinds(&self) -> FrontendKinds {
        kinds(self.parts.kinds, self.generation).copied()
    }

    /// Which generation it is; 0 is empty.
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// A tunnel by its id.
    #[inline(always)]
    pub fn tunnel(&self, id: u32) -> Option<&'r Tunnel> {
        self.parts.tunnels.row(id)?.get(self.generation)
    }

    /// What holds for all; [`Settings::EMPTY`] before the first commit that says something.
    #[inline(always)]
    pub fn settings(&self) -> &'r Settings {
        self.parts
            .settings
            .row(0)
            .and_then(|twin| twin.get(self.generation))
            .unwrap_or(&NO_SETTINGS)
    }

    /// The service for a packet to `addr:port` with IP protocol `proto`, by the match order:
    /// the scope's own frontends if it has any, else those for all; a single address before
    /// networks, longer networks first; in each the exact key, then any port, then any protocol.
    /// `scope_key` is 0 for plain packets.
    #[inline(always)]
    pub fn frontend(&self, scope_key: u64, addr: &Addr, port: u16, proto: u8) -> Option<u32> {
        let (parts, kinds, at) = (&self.parts, self.kinds(), self.generation);
        // The protocol of our marks is nobody's.
        if proto == ADDRESS_MARK {
            return None;
        }
        // Where all frontends are single addresses with port and protocol, there is one question.
        if kinds.are_plain() {
            return parts.frontends.target(&FrontendKey::host(0, addr, port, proto), at);
        }
        // A function of its own in the kernel, which the verifier sees once.
        #[cfg(target_arch = "bpf")]
        return crate::parts::service(self.scope(scope_key), addr, port, proto, at);
        #[cfg(not(target_arch = "bpf"))]
        parts.frontends.service(kinds, self.scope(scope_key), addr, port, proto, at)
    }

    /// The service of an ICMP error by the packet that it quotes: an answer from the frontend to
    /// which the error is addressed. For errors whose flow is in no table, as where routers spread
    /// packets over several appliances and the flow is another one's.
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

    /// As [`TableSet::frontend`], where there is more than single addresses; of this scope.
    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    pub(crate) fn service_of(&self, scope: u64, addr: &Addr, port: u16, proto: u8) -> Option<u32> {
        let (kinds, at) = (self.kinds(), self.generation);
        self.parts.frontends.service(&kinds, scope, addr, port, proto, at)
    }

    /// Whether a single-address frontend on whatever port has this address.
    #[inline]
    pub fn address_marked(&self, scope_key: u64, addr: &Addr) -> bool {
        let key = address_mark(self.scope(scope_key), addr);
        self.kinds().hosts != 0 && self.parts.frontends.target(&key, self.generation).is_some()
    }

    /// The addresses that may have frontends, in any scope: for others there is surely none. `None`
    /// while any address may have one, because a network is a frontend.
    #[inline(always)]
    pub fn acquaintances(&self) -> Option<Addresses<'r>> {
        (self.kinds().networks == 0).then_some(self.parts.addresses)
    }

    /// The scope whose frontends count for `scope_key`.
    #[inline(always)]
    fn scope(&self, scope_key: u64) -> u64 {
        if scope_key == 0 || self.kinds().scopes == 0 {
            return 0;
        }
        let own = self.parts.frontends.target(&scope_mark(scope_key), self.generation);
        if own.is_some() { scope_key } else { 0 }
    }

    /// A service by its id.
    #[inline(always)]
    pub fn service(&self, id: u32) -> Option<&'r Service> {
        self.parts.services.row(id)?.get(self.generation)
    }

    /// A backend by its id. Whoever has its incarnation compares it: ids are used again.
    #[inline(always)]
    pub fn backend(&self, id: u32) -> Option<&'r Backend> {
        self.parts.backends.row(id)?.get(self.generation)
    }

    /// The backend of `service` for a flow's hash, whose high half picks the slot.
    #[inline(always)]
    pub fn pick(&self, service: &Service, hash: u64) -> Option<u32> {
        let array = &service.slots[0];
        if array.count == 0 {
            return (service.single != NONE).then_some(service.single);
        }
        self.slot(array.first.checked_add(slot_of(array.count, hash))?)
    }

    /// Asks for the line that [`TableSet::pick`] will read: among many services it is in no cache.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub fn prefetch_pick(&self, service: u32, hash: u64) {
        let Some(SlotArray { first, count, .. }) = self.service(service).map(|s| s.slots[0]) else {
            return;
        };
        if let Some(slot) = self.parts.slots.row(first.wrapping_add(slot_of(count, hash))) {
            crate::flow::prefetch(slot);
        }
    }

    /// What a client's packet does to its flow of `service`, whose backend has failed. Where the
    /// service has no other backend to serve instead, the flow stays: if all have failed, it is as
    /// likely the checks.
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

    /// Word `at` of the slot arena.
    #[inline(always)]
    pub(crate) fn slot(&self, at: u32) -> Option<u32> {
        #[cfg(not(target_arch = "bpf"))]
        return Some(self.parts.slots.row(at)?.load(Ordering::Relaxed));
        // Chosen of the two by a shift and not by an address: the verifier then doesn't care how
        // the number came about, and a search is one way to look at.
        #[cfg(target_arch = "bpf")]
        Some((self.parts.slots.row(at / 2)?.load(Ordering::Relaxed) >> (at % 2 * 32)) as u32)
    }

    /// A next hop, as known now: it has no generation.
    #[inline(always)]
    pub fn next_hop(&self, id: u32) -> Option<NextHop> {
        self.parts.next_hops.row(id)?.load()
    }

    /// A next hop with its address.
    #[inline(always)]
    pub fn next_hop_to(&self, id: u32) -> Option<(Addr, NextHop)> {
        let cell = self.parts.next_hops.row(id)?;
        Some((cell.addr(), cell.load()?))
    }

    /// The id of the next hop at `addr` behind `arm`.
    #[inline(always)]
    pub fn next_hop_at(&self, addr: &Addr, arm: u8) -> Option<u32> {
        next_hop::find(self.parts.next_hops, addr, arm)
    }

    /// The backend that packets from the probe source `addr` go to.
    #[inline]
    pub fn probe(&self, addr: &Addr) -> Option<u32> {
        if !self.may_be_probe(addr) {
            return None;
        }
        self.parts.frontends.target(&probe_mark(addr), self.generation)
    }

    /// Whether `addr` may be a probe source. Of other addresses, one of 32 may be so for each.
    #[inline(always)]
    pub fn may_be_probe(&self, addr: &Addr) -> bool {
        self.kinds().probes & probe_bit(addr) != 0
    }
}

/// All of something, for lcores that copy it and for dumps.
#[cfg(not(target_arch = "bpf"))]
impl<'r> TableSet<'r> {
    /// All tunnels with their ids. An lcore copies them at each switch.
    pub fn tunnels(&self) -> impl Iterator<Item = (u32, &'r Tunnel)> {
        numbered(self.parts.tunnels, self.generation)
    }

    /// All services with their ids, for dumps.
    pub fn services(&self) -> impl Iterator<Item = (u32, &'r Service)> {
        numbered(self.parts.services, self.generation)
    }

    /// The name of a service that this generation sees.
    pub fn service_name(&self, id: u32) -> Option<String> {
        self.service(id)?;
        Some(self.parts.notes.get(id as usize)?.name())
    }

    /// What a service's slots were made of, where its writer told.
    pub fn service_note(&self, id: u32) -> Option<&'r ServiceNote> {
        self.parts.notes.get(id as usize)?.note.get(self.generation)
    }

    /// All backends of a service in their order, where its writer told.
    pub fn members(&self, id: u32) -> impl Iterator<Item = Member> + use<'r> {
        let run = self.service_note(id).map(|note| note.members).unwrap_or_default();
        let mut words = self.slots(&run);
        std::iter::from_fn(move || Some(Member::of([words.next()?, words.next()?])))
    }

    /// The source ranges of a service as they were asked for.
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
        numbered(self.parts.backends, self.generation)
    }

    /// All frontends with their services, for dumps; in no order.
    pub fn frontends(&self) -> impl Iterator<Item = (&'r FrontendKey, u32)> {
        self.entries().filter(|(key, _)| key.proto != ADDRESS_MARK)
    }

    /// All frontends with their services and what their writer noted of them; in no order.
    pub fn frontend_notes(&self) -> impl Iterator<Item = (&'r FrontendKey, u32, u32)> {
        let real = |entry: &&Entry| entry.key().proto != ADDRESS_MARK;
        self.seen().filter(real).map(|entry| (entry.key(), entry.target(), entry.note()))
    }

    /// Frontends and marks.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'r FrontendKey, u32)> {
        self.seen().map(|entry| (entry.key(), entry.target()))
    }

    /// The entries of frontends and marks.
    pub(crate) fn seen(&self) -> impl Iterator<Item = &'r Entry> {
        let at = self.generation;
        self.parts.frontends.entries.iter().filter(move |entry| entry.life.sees(at))
    }

    /// All next hops in use: id, address, record; for dumps.
    pub fn next_hops(&self) -> impl Iterator<Item = (u32, Addr, NextHop)> + use<'r> {
        let cells = self.parts.next_hops.iter().enumerate();
        cells.filter_map(|(id, cell)| Some((id as u32, cell.addr(), cell.load()?)))
    }

    /// The slots of an array, for dumps and tests; empty when it lies outside the arena.
    pub fn slots(&self, array: &SlotArray) -> impl ExactSizeIterator<Item = u32> + use<'r> {
        let first = array.first as usize;
        let run = self.parts.slots.get(first..first.saturating_add(array.count as usize));
        run.unwrap_or_default().iter().map(|slot| slot.load(Ordering::Relaxed))
    }
}

/// The slot of an array of so many that the high half of a flow's hash picks.
#[inline(always)]
const fn slot_of(count: u32, hash: u64) -> u32 {
    (((hash >> 32) * count as u64) >> 32) as u32
}

/// Which frontends a generation has.
#[inline(always)]
fn kinds(kinds: Rows<'_, Twin<FrontendKinds>>, at: u32) -> &FrontendKinds {
    kinds.row(0).and_then(|twin| twin.get(at)).unwrap_or(&NO_KINDS)
}

#[cfg(not(target_arch = "bpf"))]
fn numbered<T: crate::record::Record>(
    twins: &[Twin<T>],
    at: u32,
) -> impl Iterator<Item = (u32, &T)> {
    twins.iter().enumerate().filter_map(move |(id, twin)| Some((id as u32, twin.get(at)?)))
}
