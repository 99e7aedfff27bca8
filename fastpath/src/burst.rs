//! A burst: packets taken together, with what the stages know of each.

use crate::verdict::{Exit, Verdict};
use packet::ethernet::Ethernet;
use packet::flow::{FlowKey, Side};
use packet::ip::Ip;
use tables::flow::{Forward, Hit};
use tables::reason::DropReason;
use tables::record::NONE;

pub use tables::outer::Arrival;

/// Packets that a burst has room for. How many a poll asks for is a setting, `fastpath.burst`.
pub const BURST: usize = config::checked::MAX_BURST as usize;

/// What stands in front of the inner packet, and what follows from it. One piece, so that what is
/// known of familiar headers is copied at once ([`crate::familiar`]).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front {
    /// How the packet reached us.
    pub arrival: Arrival,
    /// For tunnel arrivals, index into the lcore's tunnels.
    pub tunnel: u8,
    /// Bytes of GENEVE options.
    pub options_len: u8,
    /// [`Front::CROSSES`], [`Front::USUAL_OPTIONS`].
    pub marks: u8,
    /// For gateways' tunnels that return what is for no service: the longest inner packet, bytes.
    pub returned: u16,
    /// Of the GENEVE options, offset and bytes.
    pub options_at: u16,
    /// The gateway endpoint that the scope stands for, 0 for plain.
    pub scope_key: u64,
    /// Interned scope.
    pub scope: u32,
    /// VNI as received.
    pub vni: u32,
    /// A digest of these headers as far as they stand ([`crate::leg::standing`]).
    pub leg: u32,
    /// Ethernet header.
    pub eth: Ethernet,
    /// Inner Ethernet header (VXLAN), or 0.
    pub inner_eth: u16,
    /// Where the inner packet begins, for tunnel arrivals.
    pub inner_at: u16,
    /// Its Ethernet type.
    pub inner_type: u16,
    /// Outermost IP header.
    pub outer: Ip,
}

// A cache line and a half: in [`Work`] half a line stands in front of it, and no copy of half a
// line crosses two.
const _: () = assert!(size_of::<Front>() == 96 && std::mem::offset_of!(Work, front) == 32);

impl Front {
    /// What comes by this tunnel and is returned crosses to its peer.
    pub const CROSSES: u8 = 1;
    /// A gateway's three GENEVE options, in their usual order, and no others.
    pub const USUAL_OPTIONS: u8 = 2;
}

impl Default for Front {
    /// Nothing known yet.
    fn default() -> Front {
        Front {
            arrival: Arrival::Plain,
            tunnel: u8::MAX,
            options_len: 0,
            marks: 0,
            returned: 0,
            options_at: 0,
            scope_key: 0,
            scope: 0,
            vni: 0,
            leg: 0,
            eth: Ethernet::default(),
            inner_eth: 0,
            inner_at: 0,
            inner_type: 0,
            outer: Ip::default(),
        }
    }
}

/// What is known of one packet. Offsets count from the start of the frame as it lies now.
///
/// What every packet needs comes first, and of what is returned nothing else is written. What is
/// pending shares a line with the hit: behind the quoted packet each packet read one line more.
/// `service` and `backend` stand apart: they are copied from a path just written in other pieces,
/// and a read of both at once would wait until those have left the processor.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The verdict so far.
    pub verdict: Verdict,
    /// Where it goes.
    pub exit: Exit,
    /// Arm it came in by.
    pub arm: u8,
    /// Which end of `key` sent the packet (for an ICMP error: the end that answers the quote).
    pub side: Side,
    /// Service index, or [`tables::record::NONE`].
    pub service: u32,
    /// Number under which a trace follows it, or 0.
    pub traced: u32,
    /// Backend index, or [`tables::record::NONE`].
    pub backend: u32,
    /// Hash of `key`.
    pub hash: u64,
    /// What stands in front of the inner packet.
    pub front: Front,
    /// The IP packet that the verdict is about: the inner one, or the outermost for plain packets.
    pub inner: Ip,
    /// Flow key, valid unless the packet has none (`hash` is 0 then).
    pub key: FlowKey,
    /// The flow, when it is known.
    pub hit: Option<Hit>,
    /// What it is still to change in the tables that other packets of its burst read: bits,
    /// [`Work::BEGINS`] to [`Work::EVICTS`].
    pub pending: u8,
    /// Its NAT port was taken from a flow that was evicted; valid with [`Work::BEGINS`].
    pub nat_evicts: bool,
    /// NAT ports may have come back when its flow began: its own, or those of flows that ended for
    /// it; valid once the flow began.
    pub frees_ports: bool,
    /// The NAT port map that its port was claimed from; valid with [`Work::BEGINS`].
    pub nat_map: u32,
    /// Hash of the flow's key on the backend's side, or of `key` where there is no other; valid
    /// with [`Work::BEGINS`].
    pub back_hash: u64,
    /// What the flow's path says of the way to the backend; valid with `hit`.
    pub path: Forward,
    /// For an ICMP error, the packet that it quotes.
    pub quoted: Option<Ip>,
}

impl Default for Work {
    /// Nothing known yet of any packet.
    fn default() -> Work {
        Work {
            verdict: Verdict::Undecided,
            exit: Exit::None,
            arm: 0,
            side: Side::Low,
            service: NONE,
            traced: 0,
            backend: NONE,
            hash: 0,
            front: Front::default(),
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

impl Work {
    /// [`Work::pending`]: a flow begins with it. Its backend and its NAT port are chosen, and it is
    /// not in the table yet.
    pub const BEGINS: u8 = 1;
    /// [`Work::pending`]: its flow takes over the gateway leg that it came with.
    pub const LEG: u8 = 2;
    /// [`Work::pending`]: its flow ends, and the packet is as good as a new one.
    pub const MOVES: u8 = 4;
    /// [`Work::pending`]: its flow ends, and its sender gets a TCP reset.
    pub const RESETS: u8 = 8;
    /// [`Work::pending`]: it is an ICMP error that may lower a path MTU.
    pub const LEARNS: u8 = 16;
    /// [`Work::pending`]: it may have ended what the flow's entries say of an established
    /// connection. Nothing is to be done for it, but look-ups before it are outdated.
    pub const RECHECK: u8 = 32;
    /// [`Work::pending`]: no NAT port is free for its flow, and it may take the one of another
    /// flow. Earlier packets of the burst may have begun or need that.
    pub const EVICTS: u8 = 64;

    /// Forgets the packet that stood here before. What the stages always write before they read it
    /// (headers, key, path; see [`Work::begin_flow`]) keeps its old bytes: clearing them would cost
    /// more than parsing.
    #[inline(always)]
    pub fn begin(&mut self, arm: u8, arrival: Arrival) {
        self.front.arrival = arrival;
        self.service = NONE;
        self.backend = NONE;
        self.traced = 0;
        self.verdict = Verdict::Undecided;
        self.exit = Exit::None;
        self.arm = arm;
    }

    /// Nothing is known yet of the flow that it may be of.
    #[inline(always)]
    pub fn begin_flow(&mut self) {
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

    /// True where the packet's flow is to end before the packet can be decided on.
    #[inline(always)]
    pub fn ends_flow(&self) -> bool {
        self.pending & (Work::MOVES | Work::RESETS) != 0
    }

    /// True while no stage has decided.
    #[inline(always)]
    pub fn open(&self) -> bool {
        self.verdict == Verdict::Undecided
    }
}

/// Up to [`BURST`] packets and what is known of each.
pub struct Burst<B> {
    /// The buffers; the first `len` are present unless a stage's caller has taken them.
    pub buffers: [Option<B>; BURST],
    /// What is known of each.
    pub work: [Work; BURST],
    /// How many there are.
    pub len: usize,
}

impl<B> Default for Burst<B> {
    fn default() -> Self {
        Burst { buffers: [const { None }; BURST], work: [Work::default(); BURST], len: 0 }
    }
}

impl<B> Burst<B> {
    /// Adds a packet; the burst must have room.
    #[inline(always)]
    pub fn push(&mut self, buffer: B, arm: u8, arrival: Arrival) {
        self.buffers[self.len] = Some(buffer);
        self.work[self.len].begin(arm, arrival);
        self.len += 1;
    }

    /// Calls `f` for each packet that is still there.
    #[inline(always)]
    pub fn each<'a>(&'a mut self, mut f: impl FnMut(&'a mut B, &'a mut Work)) {
        for (buffer, work) in self.buffers[..self.len].iter_mut().zip(&mut self.work) {
            if let Some(buffer) = buffer {
                f(buffer, work);
            }
        }
    }
}
