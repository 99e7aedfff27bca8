//! `Lcore`: the state of one lcore that the stages read.

mod iteration;

use crate::burst::{Burst, PacketState};
use crate::capture::Taps;
use crate::clock::Clock;
use crate::control::Control;
use crate::header_cache::HeaderCache;
use crate::punt_limit::PuntLimit;
use crate::snapshot::Snapshot;
use crate::template_cache::TemplateCache;
use crate::trace::{Stage, Trace};
use packet::addr::Addr;
use packet::window::Window;
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::sync::atomic::AtomicU32;
use tables::address_filter::AddressFilter;
use tables::affinity::Affinities;
use tables::counters::LcorePage;
use tables::error_limit::ErrorLimit;
use tables::flow::{Answer, Flows, Hit};
use tables::fragment::Fragments;
use tables::nat_port::NatPorts;
use tables::new_flow_limit::NewFlowLimit;
use tables::reason::DropReason;
use tables::record::{NONE, TunnelKind};
use tables::region::Region;
use tables::return_leg::ReturnLegs;
use tables::scope::Scopes;
use tables::set::TableSet;

/// An empty cache of the last scope: it matches no endpoint, since no tunnel kind is 0.
const NO_SCOPE: ((u8, u16, u64), u32) = ((0, 0, 0), 0);

/// The identity of an lcore and what it shares with the others.
#[derive(Clone, Copy, Debug)]
pub struct LcoreConfig {
    /// Index of this lcore, from 0.
    pub index: u32,
    /// Number of lcores.
    pub count: u32,
    /// The fast path's epoch in the region.
    pub epoch: u32,
    /// MAC addresses of the arms (the same one twice on a one-armed appliance).
    pub macs: [[u8; 6]; 2],
}

/// The state of one lcore. Nothing in it is shared except the region.
pub struct Lcore<'r> {
    config: LcoreConfig,
    control: Control<'r>,
    clock: Clock,
    flows: Flows<'r>,
    flow_addresses: AddressFilter<'r>,
    fragments: Fragments<'r>,
    affinities: Affinities<'r>,
    nat_ports: NatPorts<'r>,
    scopes: Scopes<'r>,
    return_legs: ReturnLegs<'r>,
    page: LcorePage<'r>,
    /// Number of bursts when the sampled iteration began.
    sampled_bursts: u64,
    punt_limit: PuntLimit,
    error_limit: ErrorLimit,
    new_flow_limit: NewFlowLimit,
    sweep_cursor: u32,
    /// The time up to which path records have been swept, in microseconds of the lcore's clock.
    swept_us: u64,
    /// The next scope to check for disuse.
    scope_cursor: u32,
    /// The last gateway endpoint looked up, and its scope.
    last_scope: Cell<((u8, u16, u64), u32)>,
    header_cache: RefCell<HeaderCache>,
    template_cache: RefCell<TemplateCache>,
    answer: RefCell<Answer>,
    path_mtus: &'r [AtomicU32],
    taps: RefCell<Taps>,
}

impl<'r> Lcore<'r> {
    /// Joins the region. Returns `None` if the region has no capacity for an lcore with this index.
    pub fn join(region: &'r Region, config: LcoreConfig) -> Option<Lcore<'r>> {
        let status = region.lcores().get(config.index as usize)?;
        let lcore = config.index as u8;
        Some(Lcore {
            config,
            control: Control::join(region, status, config.index, config.epoch),
            clock: Clock::new(region),
            flows: Flows::of_lcore(region, lcore, config.epoch),
            flow_addresses: AddressFilter::of_flows(region),
            fragments: Fragments::new(region).as_owner(lcore, config.epoch),
            affinities: Affinities::new(region).as_owner(lcore, config.epoch),
            nat_ports: NatPorts::new(region),
            scopes: Scopes::new(region),
            return_legs: ReturnLegs::new(region),
            page: region.counters().lcore(config.index)?,
            sampled_bursts: 0,
            punt_limit: PuntLimit::default(),
            error_limit: ErrorLimit::new(),
            new_flow_limit: NewFlowLimit::new(),
            sweep_cursor: config.index,
            swept_us: 0,
            scope_cursor: 0,
            last_scope: Cell::new(NO_SCOPE),
            header_cache: RefCell::default(),
            template_cache: RefCell::default(),
            answer: RefCell::new(Answer::empty()),
            path_mtus: region.path_mtus(),
            taps: RefCell::default(),
        })
    }

    /// Returns true while packets are captured.
    #[inline(always)]
    pub fn is_capturing(&self) -> bool {
        self.taps.borrow().is_on()
    }

    /// Returns the captures of this lcore.
    pub(crate) fn taps(&self) -> &RefCell<Taps> {
        &self.taps
    }

    /// Begins the captures in `taps`, and leaves the previous ones there.
    pub fn exchange_taps(&mut self, taps: &mut Taps) {
        std::mem::swap(self.taps.get_mut(), taps);
        self.taps.get_mut().begin(taps);
    }

    /// Returns true while a trace runs.
    #[inline(always)]
    pub fn is_tracing(&self) -> bool {
        self.control.is_tracing()
    }

    /// Reports the state of traced packets after `stage`. After [`Stage::Decap`], first selects the
    /// packets to trace.
    #[cold]
    pub fn trace<B>(&self, burst: &mut Burst<B>, stage: Stage) {
        if stage == Stage::Decap {
            self.control.trace.borrow_mut().select(burst);
        }
        burst.packets[..burst.len].iter().for_each(|pkt| self.trace_packet(pkt, stage));
    }

    /// Like [`Lcore::trace`], for one packet.
    #[cold]
    pub fn trace_packet(&self, pkt: &PacketState, stage: Stage) {
        if pkt.traced != 0 {
            self.control.send_event(Trace::event(pkt, stage));
        }
    }

    /// Ends the trace of a burst after the last stage.
    #[cold]
    pub fn trace_done(&self) {
        self.control.trace.borrow_mut().burst_done();
    }

    /// Counts a dropped packet, both by arm and reason and for its service.
    #[inline]
    pub fn count_drop(&self, pkt: &PacketState, reason: DropReason) {
        self.page.drop(pkt.arm, reason);
        if pkt.service != NONE {
            self.page.service_drop(pkt.service);
        }
    }

    /// Counts a packet that leaves, for its service and backend.
    #[inline(always)]
    pub fn count_passage(&self, pkt: &PacketState, bytes: u64) {
        if pkt.service != NONE {
            self.page.forwarded(pkt.service, pkt.backend, bytes);
        }
    }

    /// Returns the cell of the learned path MTU towards a next hop, in bytes; it holds 0 if none is
    /// learned.
    #[inline(always)]
    pub fn learned_mtu(&self, next_hop: u32) -> Option<&AtomicU32> {
        self.path_mtus.get(next_hop as usize)
    }

    /// Returns the index of this lcore.
    pub fn index(&self) -> u32 {
        self.config.index
    }

    /// Returns the number of lcores.
    pub fn count(&self) -> u32 {
        self.config.count
    }

    /// Returns the MAC addresses of the arms.
    #[inline(always)]
    pub fn macs(&self) -> &[[u8; 6]; 2] {
        &self.config.macs
    }

    /// Returns the table set of this iteration.
    #[inline(always)]
    pub fn set(&self) -> &TableSet<'r> {
        self.control.set()
    }

    /// Returns the tunnels and settings of this iteration.
    #[inline(always)]
    pub fn snapshot(&self) -> &Snapshot {
        self.control.snapshot()
    }

    /// Returns the control rings and the state that commands change.
    pub fn control(&self) -> &Control<'r> {
        &self.control
    }

    /// Returns the flow table.
    #[inline(always)]
    pub fn flows(&self) -> &Flows<'r> {
        &self.flows
    }

    /// Returns the filter of destination addresses of flows.
    #[inline(always)]
    pub fn flow_addresses(&self) -> &AddressFilter<'r> {
        &self.flow_addresses
    }

    /// Returns the stamp by which the fragment table refers to a flow's front entry (that of the
    /// client's side).
    pub fn front_stamp(&self, hit: &Hit) -> u32 {
        if hit.is_front() { hit.stamp } else { self.flows.front_stamp(hit).unwrap_or(hit.stamp) }
    }

    /// Returns the fragment table, with the current lifetime of its entries.
    pub fn fragments(&self) -> Fragments<'r> {
        self.fragments.with_lifetime(self.snapshot().settings.timeouts.fragment_s)
    }

    /// Returns the affinity table.
    pub fn affinities(&self) -> Affinities<'r> {
        self.affinities
    }

    /// Returns the NAT port maps.
    pub fn nat_ports(&self) -> NatPorts<'r> {
        self.nat_ports
    }

    /// Returns the return legs, for answers whose flow is in no table.
    pub fn return_legs(&self) -> ReturnLegs<'r> {
        self.return_legs
    }

    /// Returns the scope of a gateway endpoint, or `None` if the table is full. An appliance has
    /// few endpoints, so the last one is cached.
    #[inline(always)]
    pub fn scope(&self, kind: TunnelKind, gateway: u16, endpoint: u64) -> Option<u32> {
        let key = (kind as u8, gateway, endpoint);
        let (last, scope) = self.last_scope.get();
        if last == key {
            return Some(scope);
        }
        let scope = self.scopes.intern(kind as u8, gateway, endpoint, self.clock.now_s())?;
        self.last_scope.set((key, scope));
        Some(scope)
    }

    /// Returns the cache of outer headers.
    #[inline(always)]
    pub fn header_cache(&self) -> Ref<'_, HeaderCache> {
        self.header_cache.borrow()
    }

    /// Adds the outer headers of `pkt` to the cache.
    pub fn cache_header(&self, window: &Window<'_>, pkt: &PacketState) {
        self.header_cache.borrow_mut().insert(window, pkt, self.snapshot());
    }

    /// Returns the templates of outer headers towards backends.
    #[inline(always)]
    pub fn template_cache(&self) -> &RefCell<TemplateCache> {
        &self.template_cache
    }

    /// Returns a reusable buffer for an answer, which need not be created and cleared each time. It
    /// holds the contents of the previous use.
    #[inline(always)]
    pub fn answer_buffer(&self) -> RefMut<'_, Answer> {
        self.answer.borrow_mut()
    }

    /// Returns this lcore's counters.
    #[inline(always)]
    pub fn page(&self) -> LcorePage<'r> {
        self.page
    }

    /// Returns the counts of packets punted in the current second, for their limit.
    pub fn punt_limit(&self) -> &PuntLimit {
        &self.punt_limit
    }

    /// Returns the rate limiter of ICMP errors: of those sent, and of those whose path MTU is
    /// adopted.
    pub fn error_limit(&self) -> &ErrorLimit {
        &self.error_limit
    }

    /// Returns true if the limit of new flows admits one more. `needs_entry` is true for a flow
    /// whose packets cannot be forwarded without a table entry: NAT, or redirection to a proxy.
    #[inline(always)]
    pub fn admits_new_flow(&self, needs_entry: bool) -> bool {
        let limits = &self.snapshot().settings.new_flow_limits;
        self.new_flow_limit.admits(limits, needs_entry, self.clock.now_ns())
    }

    /// Counts a new flow towards the limit of new flows.
    #[inline(always)]
    pub fn count_new_flow(&self, needs_entry: bool) {
        let limits = &self.snapshot().settings.new_flow_limits;
        self.new_flow_limit.count(limits, needs_entry, self.clock.now_ns());
    }

    /// Returns the time of the region's clock in seconds.
    #[inline(always)]
    pub fn now_s(&self) -> u32 {
        self.clock.now_s()
    }

    /// Returns the local address on `arm` in the family of `like`.
    #[inline(always)]
    pub fn local_on(&self, arm: u8, like: &Addr) -> Option<&Addr> {
        self.snapshot().local_on(arm, like)
    }
}
