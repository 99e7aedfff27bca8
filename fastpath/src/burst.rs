//! A burst: up to 32 packets taken together, with what the stages know of each.

use crate::verdict::{Exit, Verdict};
use packet::ethernet::Ethernet;
use packet::flow::{FlowKey, Side};
use packet::ip::Ip;
use tables::flow::{Forward, Hit};
use tables::reason::DropReason;

/// Packets in a burst.
pub const BURST: usize = 32;

/// How a packet reached us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Not in a tunnel of ours.
    Plain,
    /// In a gateway's tunnel.
    Gateway,
    /// In the tunnel of a backend, on its return leg.
    Backend,
    /// From this machine's kernel, by the exception port.
    Kernel,
}

/// What is known of one packet. Offsets count from the start of the frame as it lies now.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The verdict so far.
    pub verdict: Verdict,
    /// Where it goes.
    pub exit: Exit,
    /// Arm it came in by.
    pub arm: u8,
    /// How it reached us.
    pub arrival: Arrival,
    /// For tunnel arrivals, index into the lcore's tunnels.
    pub tunnel: u8,
    /// Number under which a trace follows it, or 0.
    pub traced: u32,
    /// Ethernet header.
    pub eth: Ethernet,
    /// Outermost IP header.
    pub outer: Ip,
    /// The IP packet that the verdict is about: the inner one, or `outer` for plain packets.
    pub inner: Ip,
    /// Of the GENEVE options, offset and bytes.
    pub options_at: u16,
    /// Bytes of GENEVE options.
    pub options_len: u8,
    /// VNI as received.
    pub vni: u32,
    /// Inner Ethernet header (VXLAN), or 0.
    pub inner_eth: u16,
    /// Interned scope.
    pub scope: u32,
    /// The gateway endpoint that the scope stands for, 0 for plain.
    pub scope_key: u64,
    /// For an ICMP error, the packet that it quotes.
    pub quoted: Option<Ip>,
    /// Flow key, valid unless the packet has none (`hash` is 0 then).
    pub key: FlowKey,
    /// Which end of `key` sent the packet (for an ICMP error: the end that answers the quote).
    pub side: Side,
    /// Hash of `key`.
    pub hash: u64,
    /// The flow, when it is known.
    pub hit: Option<Hit>,
    /// What the flow's path says of the way to the backend; valid with `hit`.
    pub path: Forward,
    /// Service index, or [`tables::record::NONE`].
    pub service: u32,
    /// Backend index, or [`tables::record::NONE`].
    pub backend: u32,
}

impl Work {
    /// Nothing known yet of a packet that came in by `arm`.
    pub fn new(arm: u8, arrival: Arrival) -> Work {
        Work {
            verdict: Verdict::Undecided,
            exit: Exit::None,
            arm,
            arrival,
            tunnel: u8::MAX,
            traced: 0,
            eth: Ethernet::default(),
            outer: Ip::default(),
            inner: Ip::default(),
            options_at: 0,
            options_len: 0,
            vni: 0,
            inner_eth: 0,
            scope: 0,
            scope_key: 0,
            quoted: None,
            key: FlowKey::default(),
            side: Side::Low,
            hash: 0,
            hit: None,
            path: Forward::default(),
            service: tables::record::NONE,
            backend: tables::record::NONE,
        }
    }

    /// Forgets the packet that stood here before. What the stages always write before they read it
    /// (headers, key, path) keeps its old bytes: clearing them would cost more than parsing.
    #[inline(always)]
    pub fn begin(&mut self, arm: u8, arrival: Arrival) {
        self.verdict = Verdict::Undecided;
        self.exit = Exit::None;
        self.arm = arm;
        self.arrival = arrival;
        self.tunnel = u8::MAX;
        self.traced = 0;
        self.options_len = 0;
        self.inner_eth = 0;
        self.scope = 0;
        self.scope_key = 0;
        self.quoted = None;
        self.hit = None;
        self.service = tables::record::NONE;
        self.backend = tables::record::NONE;
    }

    /// Drops the packet for `reason`.
    #[inline(always)]
    pub fn drop(&mut self, reason: DropReason) {
        self.verdict = Verdict::Drop(reason);
        self.exit = Exit::None;
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
        Burst {
            buffers: [const { None }; BURST],
            work: [Work::new(0, Arrival::Plain); BURST],
            len: 0,
        }
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
    pub fn each(&mut self, mut f: impl FnMut(&mut B, &mut Work)) {
        for (buffer, work) in self.buffers[..self.len].iter_mut().zip(&mut self.work) {
            if let Some(buffer) = buffer {
                f(buffer, work);
            }
        }
    }
}
