//! What is known of the packet that a CPU works on: one record per CPU, which the stages hand on.

use crate::here::flows;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;
use packet::addr::Addr;
use packet::ethernet::Ethernet;
use packet::flow::{FlowKey, Side};
use packet::ip::{Fragment, Ip};
use packet::rewrite::Rewrite;
use packet::translate::Front;
use tables::counters::VerdictCounter;
use tables::flow::{Answer, Forward, GatewayLeg, Hit, Usual};
use tables::reason::DropReason;
use tables::record::{Mode, NONE};
use tables::region::Region;
use tables::set::TableSet;

pub use tables::outer::Arrival;

/// What Weir answers by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// An ICMP echo reply.
    Echo,
    /// It is too big for the way: [`Work::mtu`].
    TooBig,
    /// Its TTL ended here.
    TimeExceeded,
    /// A TCP reset: the flow's backend has failed.
    Reset,
}

/// Where the frame goes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Nowhere: it is dropped.
    None,
    /// Out of the port of [`Work::exit_arm`].
    Port,
    /// On to this machine's kernel.
    Kernel,
}

/// What is known of one packet. Offsets count from the start of the frame as it lies now.
#[repr(C, align(8))]
pub struct Work {
    /// The outermost IP header.
    pub outer: Ip,
    /// The IP packet that the verdict is about.
    pub inner: Ip,
    /// For an ICMP error, the packet that it quotes; see [`Work::quotes`].
    pub quoted: Ip,
    /// The gateway endpoint that the scope stands for, 0 for plain.
    pub scope_key: u64,
    /// GENEVE's attachment.
    pub attachment: u64,
    /// Hash of `key`.
    pub hash: u64,
    /// Bytes of the frame as it came.
    pub came: u64,
    /// The flow's path: what it says of the way to the backend.
    pub path: Forward,
    /// The way of an answer; its options are the room for all options.
    pub answer: Answer,
    /// The flow of an answer that takes the short way.
    pub usual: Usual,
    /// The gateway's side of this packet.
    pub leg: GatewayLeg,
    /// What the packet's ends become.
    pub to: Rewrite,
    /// What the ends of the packet that it quotes become.
    pub quote: Rewrite,
    /// Where the packet lies in its datagram, as IPv6 writes it.
    pub piece: u16,
    /// What stands in front of the packet in the other family.
    pub new: Front,
    /// Our address towards the backend.
    pub local: Addr,
    /// Number of the next address that NAT may send from.
    pub nat_at: u32,
    /// How many of the backend's family came before it.
    pub nat_nth: u32,
    /// What came of inserting the flow.
    pub done: u32,

    /// The stage after that which remembers a datagram.
    pub then: u32,
    /// Flow key, valid unless `hash` is 0.
    pub key: FlowKey,
    /// The flow's entry towards the backend.
    pub back: FlowKey,
    /// Hash of `back`, set by [`Work::prefetch_back_entry`].
    pub back_hash: u64,
    /// The flow; see [`Work::known`].
    pub hit: Hit,
    /// Tables of which generation.
    pub generation: u32,
    /// Seconds of the region's clock.
    pub now_s: u32,
    /// Interned scope.
    pub scope: u32,
    /// VNI as received.
    pub vni: u32,
    /// Tunnel id, or [`NONE`].
    pub tunnel: u32,
    /// Service id, or [`NONE`].
    pub service: u32,
    /// Backend id, or [`NONE`].
    pub backend: u32,
    /// Digest of the gateway's side.
    pub digest: u32,
    /// GENEVE's flow cookie, of an answer whose flow is not known.
    pub cookie: u32,
    /// Port map that a NAT port was claimed from.
    pub nat_map: u32,
    /// Port that the frame came by: its interface.
    pub ifindex: u32,
    /// Ethernet header.
    pub eth: Ethernet,
    /// Offset of the GENEVE options.
    pub options_at: u16,
    /// Inner Ethernet header (VXLAN), or 0.
    pub inner_eth: u16,
    /// Where the inner packet begins.
    pub inner_at: u16,
    /// Its Ethernet type.
    pub inner_type: u16,
    /// What [`Reply::TooBig`] tells.
    pub mtu: u16,
    /// Bytes of GENEVE options.
    pub options_len: u8,
    /// Arm by which the frame came.
    pub arm: u8,
    /// Arm by which it leaves.
    pub exit_arm: u8,
    /// How it reached us.
    pub arrival: Arrival,
    /// Which end of `key` sent it.
    pub side: Side,
    /// Which end of `back` began.
    pub back_side: Side,
    /// Whether there is an entry of its own towards the backend.
    pub has_back: bool,
    /// Whether `start` was here before.
    pub begins: bool,
    /// Whether another flow was ended for it, in a full table.
    pub made_room: bool,
    /// Whether its flow goes on without an entry, above the limit of new flows.
    pub limited: bool,
    /// Whether it looked for a NAT port of a flow that may be evicted.
    pub took_port: bool,
    /// Whether the flow is known.
    pub known: bool,
    /// Whether it is an answer that goes back without a known flow.
    pub untracked: bool,
    /// Whether it goes back to the client's side.
    pub home: bool,
    /// Whether it has become one of the other family.
    pub crossed: bool,
    /// Whether it is to an address that a backend is probed from.
    pub to_prober: bool,
    /// Whether it is an error that quotes a packet.
    pub quotes: bool,
    /// Whether there was no room to remember its datagram.
    pub no_fragment_slot: bool,
    /// Whether its datagram is remembered.
    pub remembered: bool,
    /// Whether the flow's initiator sent it.
    pub from_initiator: bool,
    /// What was decided.
    pub verdict: VerdictCounter,
    /// Where it goes.
    pub exit: Exit,
    /// Why it is dropped.
    pub reason: DropReason,
    /// What it is answered.
    pub reply: Reply,
}

#[btf_map]
static WORK: PerCpuArray<Work, 1> = PerCpuArray::new();

/// The record of this CPU.
#[inline(always)]
pub fn work() -> Option<&'static mut Work> {
    // SAFETY: a CPU works on one packet at a time, and each stage holds the record only while it
    // runs.
    WORK.get_ptr_mut(0).map(|work| unsafe { &mut *work })
}

impl Work {
    /// The client's address of a packet from the clients' side; of an error, by what it quotes.
    #[inline(always)]
    pub fn client(&self) -> &Addr {
        if self.quotes { &self.quoted.dst } else { &self.inner.src }
    }

    /// Forgets the packet before. Headers, key and path are written before they are read.
    #[inline(always)]
    pub fn begin(&mut self) {
        self.came = 0;
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
        self.known = false;
        self.untracked = false;
        self.quotes = false;
        self.home = false;
        self.crossed = false;
        self.to_prober = false;
        self.remembered = false;
        self.no_fragment_slot = false;
        self.begins = false;
        self.made_room = false;
        self.verdict = VerdictCounter::Drop;
        self.exit = Exit::None;
        self.reason = DropReason::Undecided;
    }

    /// The tables of its generation.
    #[inline(always)]
    pub fn set(&self) -> TableSet<'static> {
        Region.tables(self.generation)
    }

    /// Hashes [`Work::back`] and prefetches the cache lines that its index entry will fill.
    #[inline(always)]
    pub fn prefetch_back_entry(&mut self) {
        self.back_hash = self.back.hash(&Region.hash_key());
        flows().prefetch(self.back_hash);
    }

    /// Whether a new flow of a service with this mode is sent by direct server return, so that its
    /// answers bypass Weir. A gateway's flow never is: its answer would have no way back.
    #[inline(always)]
    pub fn uses_direct_return(&self, mode: u8) -> bool {
        mode == Mode::Dsr as u8 && self.arrival == Arrival::Plain
    }

    /// Whether it is the first piece of a datagram.
    #[inline(always)]
    pub fn is_first(&self) -> bool {
        self.inner.fragment == Fragment::First
    }

    /// Whether it came in a tunnel.
    #[inline(always)]
    pub fn is_tunnelled(&self) -> bool {
        matches!(self.arrival, Arrival::Gateway | Arrival::Backend)
    }
}

/// Copies a record in words of four bytes. An assignment from one map's value to another's would
/// become `memmove`, which goes by single bytes.
#[inline(always)]
pub fn copy<T: Copy>(to: &mut T, from: &T) {
    const { assert!(size_of::<T>() % 4 == 0 && align_of::<T>() >= 4) };
    let to = core::ptr::from_mut(to).cast::<u32>();
    let from = core::ptr::from_ref(from).cast::<u32>();
    for i in 0..size_of::<T>() / 4 {
        // SAFETY: words of the two records, which have no padding.
        unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
    }
}
