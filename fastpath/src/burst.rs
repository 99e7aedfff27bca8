//! Bursts: packets that are processed together, with their per-packet state.

use crate::verdict::{Exit, Verdict};
use packet::ethernet::Ethernet;
use packet::flow::{FlowKey, Side};
use packet::ip::Ip;
use tables::flow::{Forward, Hit};
use tables::reason::DropReason;
use tables::record::NONE;

pub use tables::outer::Arrival;

/// The capacity of a burst in packets. The number requested per poll is set by `fastpath.burst`.
pub const BURST: usize = config::checked::MAX_BURST as usize;

/// The headers in front of the inner packet and what follows from them. One struct, so that the
/// state of cached headers is copied at once ([`crate::header_cache`]).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OuterHeaders {
    /// The direction from which the packet arrived.
    pub arrival: Arrival,
    /// For tunnel arrivals, the index into the lcore's tunnels.
    pub tunnel: u8,
    /// Length of the GENEVE options in bytes.
    pub options_len: u8,
    /// Bit mask of [`OuterHeaders::CROSSES`] and [`OuterHeaders::USUAL_OPTIONS`].
    pub marks: u8,
    /// For tunnels of gateways to which unmatched packets are returned: the maximum length of such
    /// an inner packet, in bytes. Otherwise 0.
    pub max_returned_len: u16,
    /// Offset of the GENEVE options.
    pub options_at: u16,
    /// The key of the gateway endpoint (GENEVE) or tunnel pair (VXLAN) that the scope stands for; 0
    /// for plain packets.
    pub scope_key: u64,
    /// The scope: the number that the scope table assigned to `scope_key`
    /// ([`FlowKey::scope`]).
    pub scope: u32,
    /// The VNI as received.
    pub vni: u32,
    /// For a gateway's packet, [`crate::leg::header_digest`]: the part of the leg's digest that
    /// depends on these headers alone.
    pub leg_digest: u32,
    /// The Ethernet header.
    pub eth: Ethernet,
    /// Offset of the inner Ethernet header (VXLAN), or 0.
    pub inner_eth: u16,
    /// For tunnel arrivals, the offset of the inner packet.
    pub inner_at: u16,
    /// Ethernet type of the inner packet.
    pub inner_type: u16,
    /// The outermost IP header.
    pub outer: Ip,
}

// One and a half cache lines. In [`PacketState`] half a line precedes it, so that no copy of half a
// line crosses a line boundary.
const _: () =
    assert!(size_of::<OuterHeaders>() == 96 && std::mem::offset_of!(PacketState, headers) == 32);

impl OuterHeaders {
    /// Packets that arrive through this tunnel and are returned leave through its peer tunnel.
    pub const CROSSES: u8 = 1;
    /// The options are exactly a gateway's three GENEVE options in their usual order.
    pub const USUAL_OPTIONS: u8 = 2;
}

impl Default for OuterHeaders {
    /// An empty state, in which nothing is known of the headers.
    fn default() -> OuterHeaders {
        OuterHeaders {
            arrival: Arrival::Plain,
            tunnel: u8::MAX,
            options_len: 0,
            marks: 0,
            max_returned_len: 0,
            options_at: 0,
            scope_key: 0,
            scope: 0,
            vni: 0,
            leg_digest: 0,
            eth: Ethernet::default(),
            inner_eth: 0,
            inner_at: 0,
            inner_type: 0,
            outer: Ip::default(),
        }
    }
}

/// The state of one packet. Offsets count from the current start of the frame.
///
/// Fields that every packet needs come first, and a returned packet writes no others. `pending`
/// shares a cache line with `hit`: after `quoted` it would cost each packet one more line.
/// `service` and `backend` are not adjacent: they are copied from a path that was just written in
/// other pieces, and a read of both at once would stall until those stores complete.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct PacketState {
    /// The verdict so far.
    pub verdict: Verdict,
    /// The destination of the frame.
    pub exit: Exit,
    /// The arm through which the packet arrived.
    pub arm: u8,
    /// The end of `key` that sent the packet (for an ICMP error: the end that receives the quoted
    /// packet).
    pub side: Side,
    /// Service index, or [`tables::record::NONE`].
    pub service: u32,
    /// Number of the packet in a trace, or 0.
    pub traced: u32,
    /// Backend index, or [`tables::record::NONE`].
    pub backend: u32,
    /// Hash of `key`, or 0 if the packet has none.
    pub hash: u64,
    /// The headers in front of the inner packet.
    pub headers: OuterHeaders,
    /// The IP packet that the verdict is about: the inner one, or the outermost one of a plain
    /// packet.
    pub inner: Ip,
    /// The flow key; valid unless `hash` is 0.
    pub key: FlowKey,
    /// The flow, if the lookup found one.
    pub hit: Option<Hit>,
    /// Pending changes to tables that other packets of the burst read: a bit mask of
    /// [`PacketState::NEW_FLOW`] to [`PacketState::EVICT_PORT`].
    pub pending: u8,
    /// The NAT port was taken from an evicted flow; valid with [`PacketState::NEW_FLOW`].
    pub nat_evicts: bool,
    /// The flow's start may have released NAT ports: its own, or those of flows that it evicted;
    /// valid after the flow began.
    pub frees_ports: bool,
    /// The NAT port map from which the port was claimed; valid with [`PacketState::NEW_FLOW`].
    pub nat_map: u32,
    /// Hash of the flow's key on the backend's side, or of `key` if they are equal; valid with
    /// [`PacketState::NEW_FLOW`].
    pub back_hash: u64,
    /// The flow's forwarding information towards the backend; valid with `hit`.
    pub path: Forward,
    /// For an ICMP error, the packet that it quotes.
    pub quoted: Option<Ip>,
}

impl Default for PacketState {
    /// An empty state, for a slot that has not held a packet.
    fn default() -> PacketState {
        PacketState {
            verdict: Verdict::Undecided,
            exit: Exit::None,
            arm: 0,
            side: Side::Low,
            service: NONE,
            traced: 0,
            backend: NONE,
            hash: 0,
            headers: OuterHeaders::default(),
            inner: Ip::default(),
            key: FlowKey::default(),
            hit: None,
            path: Forward::default(),
            quoted: None,
            pending: 0,
            nat_evicts: false,
            frees_ports: false,
            nat_map: NONE,
            back_hash: 0,
        }
    }
}

impl PacketState {
    /// Bit of [`PacketState::pending`]: a flow begins with this packet. Its backend and NAT port
    /// are chosen, but it is not in the table yet.
    pub const NEW_FLOW: u8 = 1;
    /// Bit of [`PacketState::pending`]: the flow adopts the gateway leg of this packet.
    pub const UPDATE_LEG: u8 = 2;
    /// Bit of [`PacketState::pending`]: the flow ends, and the packet is treated as the first of a
    /// new one.
    pub const MOVE_FLOW: u8 = 4;
    /// Bit of [`PacketState::pending`]: the flow ends, and the packet's sender is sent a TCP reset.
    pub const RESET_FLOW: u8 = 8;
    /// Bit of [`PacketState::pending`]: the packet is an ICMP error that may lower a path MTU.
    pub const LEARN_MTU: u8 = 16;
    /// Bit of [`PacketState::pending`]: the packet may have changed the connection state in the
    /// flow's entries. Nothing remains to be done for it, but lookups for later packets of the
    /// burst are outdated.
    pub const RECHECK: u8 = 32;
    /// Bit of [`PacketState::pending`]: no NAT port is free for the flow, and it may take that of
    /// another flow, which earlier packets of the burst may have begun or may need.
    pub const EVICT_PORT: u8 = 64;

    /// Resets the slot for a new packet. Fields that the stages always write before they read them
    /// (headers, key, path; see [`PacketState::reset_flow`]) keep their old contents: clearing them
    /// would cost more than parsing.
    #[inline(always)]
    pub fn reset(&mut self, arm: u8, arrival: Arrival) {
        self.headers.arrival = arrival;
        self.service = NONE;
        self.backend = NONE;
        self.traced = 0;
        self.verdict = Verdict::Undecided;
        self.exit = Exit::None;
        self.arm = arm;
    }

    /// Resets the fields that describe the packet's flow.
    #[inline(always)]
    pub fn reset_flow(&mut self) {
        self.quoted = None;
        self.hit = None;
        self.pending = 0;
    }

    /// Drops the packet for `reason`.
    #[inline(always)]
    pub fn drop(&mut self, reason: DropReason) {
        self.verdict = Verdict::Drop(reason);
        self.exit = Exit::None;
    }

    /// Returns true if the packet's flow is to end before the packet can be decided on.
    #[inline(always)]
    pub fn ends_flow(&self) -> bool {
        self.pending & (PacketState::MOVE_FLOW | PacketState::RESET_FLOW) != 0
    }

    /// Returns true while no stage has decided.
    #[inline(always)]
    pub fn is_undecided(&self) -> bool {
        self.verdict == Verdict::Undecided
    }
}

/// Up to [`BURST`] packets with their state.
pub struct Burst<B> {
    /// The buffers; the first `len` are present unless a caller has taken them.
    pub buffers: [Option<B>; BURST],
    /// The state of each packet.
    pub packets: [PacketState; BURST],
    /// The number of packets.
    pub len: usize,
}

impl<B> Default for Burst<B> {
    fn default() -> Self {
        Burst { buffers: [const { None }; BURST], packets: [PacketState::default(); BURST], len: 0 }
    }
}

impl<B> Burst<B> {
    /// Adds a packet.
    ///
    /// # Panics
    /// Panics if the burst is full.
    #[inline(always)]
    pub fn push(&mut self, buffer: B, arm: u8, arrival: Arrival) {
        self.buffers[self.len] = Some(buffer);
        self.packets[self.len].reset(arm, arrival);
        self.len += 1;
    }

    /// Calls `f` for each packet whose buffer is still present.
    #[inline(always)]
    pub fn each<'a>(&'a mut self, mut f: impl FnMut(&'a mut B, &'a mut PacketState)) {
        for (buffer, pkt) in self.buffers[..self.len].iter_mut().zip(&mut self.packets) {
            if let Some(buffer) = buffer {
                f(buffer, pkt);
            }
        }
    }
}
