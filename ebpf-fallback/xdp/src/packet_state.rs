//! State of the packet that a CPU processes: one record per CPU, shared by the stages.

use crate::cpu_views::flows;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;
use packet::addr::Addr;
use packet::ethernet::Ethernet;
use packet::flow::{FlowKey, Side};
use packet::ip::{Fragment, Ip};
use packet::rewrite::Rewrite;
use packet::translate::NewHeaders;
use tables::capture::PacketFacts;
use tables::counters::VerdictCounter;
use tables::flow::{Answer, Forward, GatewayLeg, Hit, ReplyPath};
use tables::reason::DropReason;
use tables::record::{Mode, NONE};
use tables::region::Region;
use tables::set::TableSet;

pub use tables::outer::Arrival;

/// Replies of the appliance itself.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// An ICMP echo reply.
    Echo,
    /// An ICMP error: the packet exceeds [`PacketState::mtu`].
    TooBig,
    /// An ICMP error: the TTL has expired.
    TimeExceeded,
    /// A TCP reset: the flow's backend has failed.
    Reset,
}

/// How a frame leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It is dropped.
    None,
    /// By the port of [`PacketState::exit_arm`].
    Port,
    /// To this host's kernel.
    Kernel,
}

/// How a frame arrived.
#[derive(Clone, Copy)]
pub struct RxInfo {
    /// Arm on which it arrived.
    pub arm: u8,
    /// Kind of arrival; [`Arrival::Plain`] until the tunnel is known.
    pub arrival: Arrival,
    /// Index of the interface.
    pub ifindex: u32,
    /// Time of arrival, in seconds of the region's clock.
    pub now_s: u32,
    /// Generation of the tables that apply.
    pub generation: u32,
}

/// State of one packet. Offsets are relative to the current start of the frame.
#[repr(C, align(8))]
pub struct PacketState {
    /// The outermost IP header.
    pub outer: Ip,
    /// The IP packet that the verdict concerns.
    pub inner: Ip,
    /// For an ICMP error, the packet that it quotes; see [`PacketState::has_quoted`].
    pub quoted: Ip,
    /// Key of the gateway endpoint (GENEVE) or tunnel pair (VXLAN) that the scope stands for; 0 for
    /// plain packets.
    pub scope_key: u64,
    /// Attachment option of GENEVE.
    pub attachment: u64,
    /// Hash of `key`, or 0 if the packet has none.
    pub hash: u64,
    /// Size of the received frame in bytes.
    pub rx_len: u64,
    /// Size of the frame as it leaves in bytes, set by `finish`.
    pub tx_len: u64,
    /// Number of bytes of the received frame that were copied for a capture; 0 without one.
    pub captured_len: u64,
    /// What a capture's filter examines, set by a fast path while a capture or a trace is on.
    pub facts: PacketFacts,
    /// Path of the flow: how packets reach the backend.
    pub path: Forward,
    /// Path and leg of a reply. Its `options` are also the buffer for the options of a gateway's
    /// packet.
    pub answer: Answer,
    /// Path and leg of a usual reply.
    pub reply_path: ReplyPath,
    /// Gateway leg of this packet.
    pub leg: GatewayLeg,
    /// Rewrite of the packet's addresses and ports.
    pub rewrite: Rewrite,
    /// Rewrite of the quoted packet's addresses and ports.
    pub quote: Rewrite,
    /// Fragment offset and flags of the packet, in the form of IPv6.
    pub fragment_bits: u16,
    /// New headers of a packet translated to the other family.
    pub new_headers: NewHeaders,
    /// Local address towards the backend.
    pub local: Addr,
    /// Index of the next NAT address to try.
    pub nat_at: u32,
    /// Number of NAT addresses of the backend's family that were tried.
    pub nat_nth: u32,
    /// Outcome of the flow's insertion, from `insert` to `begun`.
    pub insert_outcome: u32,

    /// Stage that follows the stage `remember`.
    pub next_stage: u32,
    /// Flow key, valid unless `hash` is 0.
    pub key: FlowKey,
    /// Key of the flow's entry towards the backend.
    pub back: FlowKey,
    /// Hash of `back`, set by [`PacketState::prefetch_back_entry`].
    pub back_hash: u64,
    /// Flow entry; valid if [`PacketState::flow_found`].
    pub hit: Hit,
    /// Number of the packet in a trace: 0 if it is not traced, [`crate::trace::PENDING`] until the
    /// filter was applied.
    pub traced: u32,
    /// Stage that follows the stage `trace`.
    pub traced_next: u32,
    /// The last stage that was reported, and one more; 0 if none was.
    pub traced_stage: u32,
    /// Generation of the tables.
    pub generation: u32,
    /// Seconds of the region's clock.
    pub now_s: u32,
    /// Scope of the packet: the number that the scope table assigned to `scope_key`.
    pub scope: u32,
    /// VNI as received.
    pub vni: u32,
    /// Tunnel id, or [`NONE`].
    pub tunnel: u32,
    /// Service id, or [`NONE`].
    pub service: u32,
    /// Backend id, or [`NONE`].
    pub backend: u32,
    /// Digest of the gateway leg.
    pub digest: u32,
    /// Flow cookie of GENEVE, for a reply of an unknown flow.
    pub cookie: u32,
    /// Port map from which a NAT port was allocated.
    pub nat_map: u32,
    /// Index of the interface on which the frame arrived.
    pub ifindex: u32,
    /// Ethernet header.
    pub eth: Ethernet,
    /// Offset of the GENEVE options.
    pub options_at: u16,
    /// Offset of the inner Ethernet header (VXLAN), or 0.
    pub inner_eth: u16,
    /// Offset of the inner packet.
    pub inner_at: u16,
    /// EtherType of the inner packet.
    pub inner_type: u16,
    /// MTU that [`Reply::TooBig`] reports.
    pub mtu: u16,
    /// Length of the GENEVE options in bytes.
    pub options_len: u8,
    /// Arm on which the frame arrived.
    pub arm: u8,
    /// Arm by which the packet leaves.
    pub exit_arm: u8,
    /// How the packet arrived.
    pub arrival: Arrival,
    /// End of `key` that sent the packet.
    pub side: Side,
    /// End of `back` that is the initiator.
    pub back_side: Side,
    /// Whether the flow has an entry of its own towards the backend.
    pub has_back: bool,
    /// Whether `start` was entered before.
    pub started: bool,
    /// Whether a flow was evicted from the full table for the packet's new flow.
    pub evicted: bool,
    /// Whether the packet's new flow gets no entry, because the limit of new flows is reached.
    pub limited: bool,
    /// Whether `start` has tried to take over the NAT port of a flow that can be evicted.
    pub tried_eviction: bool,
    /// Whether the flow was found.
    pub flow_found: bool,
    /// Whether the packet is a reply that is returned without a known flow.
    pub untracked: bool,
    /// Whether the stage `nat64` translates the packet for the client's side.
    pub to_client: bool,
    /// Whether the packet was translated to the other family.
    pub translated: bool,
    /// Whether the packet's destination is the probe source of a backend.
    pub to_probe_source: bool,
    /// Whether the packet is an ICMP error whose quoted packet was parsed.
    pub has_quoted: bool,
    /// Whether the fragment table had no free entry for the packet's datagram.
    pub no_fragment_slot: bool,
    /// Whether the stage `remember` has processed the packet, even if it could not store an entry.
    pub fragment_recorded: bool,
    /// Whether the flow's initiator sent the packet.
    pub from_initiator: bool,
    /// The verdict, as it is counted.
    pub verdict: VerdictCounter,
    /// How the packet leaves.
    pub exit: Exit,
    /// Drop reason, valid with [`Exit::None`].
    pub reason: DropReason,
    /// Reply that replaces the packet in the stage `reply`.
    pub reply: Reply,
}

#[btf_map]
static PACKET_STATE: PerCpuArray<PacketState, 1> = PerCpuArray::new();

/// Returns the record of this CPU.
#[inline(always)]
pub fn packet_state() -> Option<&'static mut PacketState> {
    // SAFETY: a CPU processes one packet at a time, and each stage borrows the record only while it
    // runs.
    PACKET_STATE.get_ptr_mut(0).map(|pkt| unsafe { &mut *pkt })
}

impl PacketState {
    /// Returns the client's address of a packet from the clients' side; for an error, that of the
    /// packet that it quotes.
    #[inline(always)]
    pub fn client(&self) -> &Addr {
        if self.has_quoted { &self.quoted.dst } else { &self.inner.src }
    }

    /// Resets the record for a new packet, and stores how its frame arrived.
    #[inline(always)]
    pub fn init(&mut self, rx: &RxInfo) {
        self.reset();
        (self.arm, self.arrival, self.ifindex) = (rx.arm, rx.arrival, rx.ifindex);
        (self.now_s, self.generation) = (rx.now_s, rx.generation);
    }

    /// Returns what [`PacketState::init`] stored.
    #[inline(always)]
    pub fn rx_info(&self) -> RxInfo {
        let PacketState { arm, arrival, ifindex, now_s, generation, .. } = *self;
        RxInfo { arm, arrival, ifindex, now_s, generation }
    }

    /// Resets the record for a new packet. The other fields, such as headers, key and path, are not
    /// reset, because they are written before they are read.
    #[inline(always)]
    fn reset(&mut self) {
        self.rx_len = 0;
        self.captured_len = 0;
        self.traced = 0;
        self.tunnel = NONE;
        self.service = NONE;
        self.backend = NONE;
        self.scope = 0;
        self.scope_key = 0;
        self.vni = 0;
        self.hash = 0;
        self.options_len = 0;
        self.options_at = 0;
        self.inner_eth = 0;
        self.flow_found = false;
        self.untracked = false;
        self.has_quoted = false;
        self.to_client = false;
        self.translated = false;
        self.to_probe_source = false;
        self.fragment_recorded = false;
        self.no_fragment_slot = false;
        self.started = false;
        self.evicted = false;
        self.verdict = VerdictCounter::Drop;
        self.exit = Exit::None;
        self.reason = DropReason::Undecided;
    }

    /// Returns the tables of the packet's generation.
    #[inline(always)]
    pub fn set(&self) -> TableSet<'static> {
        Region.tables(self.generation)
    }

    /// Hashes [`PacketState::back`] and prefetches the cache lines that its index entry will
    /// occupy.
    #[inline(always)]
    pub fn prefetch_back_entry(&mut self) {
        self.back_hash = self.back.hash(&Region.hash_key());
        flows().prefetch(self.back_hash);
    }

    /// Returns whether a new flow of a service with this mode uses direct server return, so that
    /// its replies bypass this appliance. A gateway's flow never does, because its replies would
    /// have no route back.
    #[inline(always)]
    pub fn uses_direct_return(&self, mode: u8) -> bool {
        mode == Mode::Dsr as u8 && self.arrival == Arrival::Plain
    }

    /// Returns whether the packet is the first fragment of a datagram.
    #[inline(always)]
    pub fn is_first(&self) -> bool {
        self.inner.fragment == Fragment::First
    }

    /// Returns whether the packet arrived in a tunnel.
    #[inline(always)]
    pub fn is_tunneled(&self) -> bool {
        matches!(self.arrival, Arrival::Gateway | Arrival::Backend)
    }
}

/// Copies a record in 4-byte words. An assignment between map values would become `memmove`, which
/// copies single bytes.
#[inline(always)]
pub fn copy<T: Copy>(to: &mut T, from: &T) {
    const { assert!(size_of::<T>() % 4 == 0 && align_of::<T>() >= 4) };
    let to = core::ptr::from_mut(to).cast::<u32>();
    let from = core::ptr::from_ref(from).cast::<u32>();
    for i in 0..size_of::<T>() / 4 {
        // SAFETY: `i` is within both records, which are aligned to words and have no padding.
        unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
    }
}
