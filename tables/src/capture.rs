//! Captures of packets with the decisions about them: the filter, and the record of a frame.
//!
//! Both planes record a packet after the last stage: what it looked like when it arrived, and what
//! left. They summarize it as [`PacketFacts`], to which the capture's [`CaptureFilter`] is applied.
//! The transport is `capture_file` for lcores, and a BPF ring buffer for XDP programs.

#[cfg(not(target_arch = "bpf"))]
use crate::command::{Decision, Stage, TraceExit, TraceState};
use crate::counters::VerdictCounter;
use crate::record::NONE;
use packet::addr::Addr;

/// Maximum number of captures at the same time: one per arm.
pub const MAX_CAPTURES: usize = 2;
/// Minimum number of bytes that a capture copies of each frame.
pub const MIN_SNAP: u16 = 64;
/// Maximum number of bytes that a capture copies of each frame.
pub const MAX_SNAP: u16 = 256;
/// Size in bytes of the BPF ring buffer through which XDP programs pass records to their loader.
pub const BPF_RING_BYTES: u32 = 4 << 20;
/// Number of records of captured packets in a full BPF ring buffer. The kernel puts 8 bytes before
/// each record, which XDP programs do not shorten to the frame's length.
pub const BPF_RING_RECORDS: usize =
    BPF_RING_BYTES as usize / (8 + HEAD_WORDS * 8 + MAX_SNAP as usize);
/// Maximum number of service ids in a filter.
pub const MAX_SERVICES: usize = 8;

/// Value of a filter's byte that matches any packet.
pub const ANY: u8 = u8::MAX;
/// Value of [`RecordHead::reason`] for a packet that was not dropped.
pub const NO_REASON: u8 = u8::MAX;

/// Direction of a packet from the client's side.
pub const REQUEST: u8 = 0;
/// Direction of a packet towards the client's side.
pub const REPLY: u8 = 1;

/// Stage of a record: the frame as it arrived.
pub const BEFORE: u8 = 0;
/// Stage of a record: the frame as it leaves.
pub const AFTER: u8 = 1;

/// Exit of a packet that is dropped.
pub const EXIT_NONE: u8 = 0;
/// Exit of a packet that is sent by the port of [`RecordHead::exit_arm`].
pub const EXIT_PORT: u8 = 1;
/// Exit of a packet that is passed to this host's kernel.
pub const EXIT_KERNEL: u8 = 2;

/// A range of addresses. The mask is in the byte order of [`Addr`].
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AddrRange {
    /// First address; bits outside the mask are zero.
    pub addr: Addr,
    /// Bits that are compared; all zero matches any address.
    pub mask: [u32; 4],
}

impl AddrRange {
    /// Creates the range of addresses that share the first `len` bits with `addr`. `len` counts in
    /// the 128-bit form (IPv4 /24 is 120), at most 128.
    pub fn new(addr: Addr, len: u8) -> AddrRange {
        let bits = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
        let bytes = bits.to_be_bytes();
        let mask = core::array::from_fn(|i| {
            u32::from_ne_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
        });
        let words = core::array::from_fn(|i| addr.words[i] & mask[i]);
        AddrRange { addr: Addr { words }, mask }
    }

    /// Returns whether the range contains an address.
    #[inline(always)]
    pub fn contains(&self, addr: &Addr) -> bool {
        let (a, b, mask) = (&addr.words, &self.addr.words, &self.mask);
        let differs = (a[0] & mask[0]) ^ b[0]
            | (a[1] & mask[1]) ^ b[1]
            | (a[2] & mask[2]) ^ b[2]
            | (a[3] & mask[3]) ^ b[3];
        differs == 0
    }
}

/// Filter of a capture. All conditions must hold.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaptureFilter {
    /// Addresses of the client.
    pub client: AddrRange,
    /// Addresses of the frontend.
    pub frontend: AddrRange,
    /// Ids of services, the first [`CaptureFilter::service_count`] of them.
    pub services: [u32; MAX_SERVICES],
    /// Number of service ids; 0 matches any packet.
    pub service_count: u32,
    /// Port of the client, in host byte order; 0 matches any.
    pub client_port: u16,
    /// Port of the frontend, in host byte order; 0 matches any.
    pub frontend_port: u16,
    /// IP protocol number, or [`ANY`].
    pub proto: u8,
    /// Number of the drop reason, or [`ANY`]: then packets match whether dropped or not.
    pub reason: u8,
    /// Arm on which the packet arrived, or [`ANY`].
    pub arm: u8,
    /// [`REQUEST`], [`REPLY`] or [`ANY`].
    pub direction: u8,
    /// Stage of the records, [`BEFORE`] or [`AFTER`], or [`ANY`] for both.
    pub stage: u8,
    /// Unused, 0.
    pub spare: u8,
    /// Maximum number of bytes that are copied of each frame.
    pub snap: u16,
}

/// Size of a filter in words of 64 bits.
pub const FILTER_WORDS: usize = size_of::<CaptureFilter>() / 8;

const _: () = assert!(size_of::<CaptureFilter>() == 112);

impl Default for CaptureFilter {
    /// A filter that matches every packet.
    fn default() -> CaptureFilter {
        CaptureFilter {
            client: AddrRange::default(),
            frontend: AddrRange::default(),
            services: [NONE; MAX_SERVICES],
            service_count: 0,
            client_port: 0,
            frontend_port: 0,
            proto: ANY,
            reason: ANY,
            arm: ANY,
            direction: ANY,
            stage: ANY,
            spare: 0,
            snap: 192,
        }
    }
}

/// What a filter examines of a packet on which the stages have decided.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketFacts {
    /// Address of the client.
    pub client: Addr,
    /// Address of the frontend.
    pub frontend: Addr,
    /// Service id, or [`NONE`].
    pub service: u32,
    /// Port of the client, in host byte order.
    pub client_port: u16,
    /// Port of the frontend, in host byte order.
    pub frontend_port: u16,
    /// IP protocol number.
    pub proto: u8,
    /// Number of the drop reason, or [`NO_REASON`].
    pub reason: u8,
    /// Arm on which the packet arrived.
    pub arm: u8,
    /// [`REQUEST`] or [`REPLY`].
    pub direction: u8,
}

impl CaptureFilter {
    /// Returns whether a packet matches.
    #[inline(always)]
    pub fn matches(&self, packet: &PacketFacts) -> bool {
        let byte = |expected: u8, found: u8| expected == ANY || expected == found;
        let port = |expected: u16, found: u16| expected == 0 || expected == found;
        byte(self.arm, packet.arm)
            && byte(self.reason, packet.reason)
            && byte(self.direction, packet.direction)
            && byte(self.proto, packet.proto)
            && port(self.client_port, packet.client_port)
            && port(self.frontend_port, packet.frontend_port)
            && self.client.contains(&packet.client)
            && self.frontend.contains(&packet.frontend)
            && self.has_service(packet.service)
    }

    #[inline(always)]
    fn has_service(&self, service: u32) -> bool {
        if self.service_count == 0 {
            return true;
        }
        let mut found = false;
        for (at, id) in self.services.iter().enumerate() {
            found |= (at as u32) < self.service_count && *id == service;
        }
        found
    }

    /// Returns whether records of this stage are wanted.
    #[inline(always)]
    pub fn wants(&self, stage: u8) -> bool {
        self.stage == ANY || self.stage == stage
    }

    /// Encodes the filter in words.
    pub fn words(&self) -> [u64; FILTER_WORDS] {
        let mut words = [0; FILTER_WORDS];
        let parts = [
            &self.client.addr.words,
            &self.client.mask,
            &self.frontend.addr.words,
            &self.frontend.mask,
        ];
        let ids = self.services.iter();
        let halves = parts.into_iter().flatten().chain(ids).copied();
        let ports = u32::from(self.client_port) | u32::from(self.frontend_port) << 16;
        let bytes = u32::from_le_bytes([self.proto, self.reason, self.arm, self.direction]);
        let [low, high] = self.snap.to_le_bytes();
        let last = u32::from_le_bytes([self.stage, self.spare, low, high]);
        let halves = halves.chain([self.service_count, ports, bytes, last]);
        for (at, half) in halves.enumerate() {
            words[at / 2] |= u64::from(half) << (32 * (at % 2));
        }
        words
    }

    /// Decodes words that another process wrote; limits a snap length or a number of services that
    /// is out of range.
    pub fn from_words(words: &[u64; FILTER_WORDS]) -> CaptureFilter {
        let half = |at: usize| (words[at / 2] >> (32 * (at % 2))) as u32;
        let four = |at: usize| core::array::from_fn(|i| half(at + i));
        let range = |at: usize| AddrRange { addr: Addr { words: four(at) }, mask: four(at + 4) };
        let ports = half(25);
        let [proto, reason, arm, direction] = half(26).to_le_bytes();
        let [stage, spare, low, high] = half(27).to_le_bytes();
        CaptureFilter {
            client: range(0),
            frontend: range(8),
            services: core::array::from_fn(|i| half(16 + i)),
            service_count: half(24).min(MAX_SERVICES as u32),
            client_port: ports as u16,
            frontend_port: (ports >> 16) as u16,
            proto,
            reason,
            arm,
            direction,
            stage,
            spare,
            snap: u16::from_le_bytes([low, high]).clamp(MIN_SNAP, MAX_SNAP),
        }
    }
}

/// The first word of a record, in its low half: marks the beginning of a record in a ring.
const MARK: u32 = 0x7065_6377;

/// Size of a record's head in words of 64 bits: one message of a ring.
pub const HEAD_WORDS: usize = 8;

/// Head of a record, which precedes the frame's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// Number of bytes of the frame that follow, at most [`MAX_SNAP`].
    pub len: u16,
    /// Length of the whole frame in bytes.
    pub frame_len: u32,
    /// Time at which the packet was decided on, in nanoseconds of the machine's monotonic clock.
    pub time_ns: u64,
    /// Service id, or [`NONE`].
    pub service: u32,
    /// Backend id, or [`NONE`].
    pub backend: u32,
    /// Number of the packet on its lcore; both stages of a packet have the same.
    pub packet: u32,
    /// Lcore or CPU that processed the packet.
    pub lcore: u16,
    /// Number of the capture, below [`MAX_CAPTURES`].
    pub capture: u8,
    /// Number of the verdict, a [`VerdictCounter`].
    pub verdict: u8,
    /// Number of the drop reason, or [`NO_REASON`].
    pub reason: u8,
    /// Arm on which the packet arrived.
    pub arm: u8,
    /// Arm by which it leaves.
    pub exit_arm: u8,
    /// [`EXIT_NONE`], [`EXIT_PORT`] or [`EXIT_KERNEL`].
    pub exit: u8,
    /// [`BEFORE`] or [`AFTER`].
    pub stage: u8,
    /// [`REQUEST`] or [`REPLY`].
    pub direction: u8,
}

impl RecordHead {
    /// Encodes the head in words.
    #[inline(always)]
    pub const fn words(&self) -> [u64; HEAD_WORDS] {
        [
            MARK as u64 | (self.len as u64) << 32,
            self.time_ns,
            self.service as u64 | (self.backend as u64) << 32,
            self.packet as u64 | (self.frame_len as u64) << 32,
            self.lcore as u64
                | (self.capture as u64) << 16
                | (self.verdict as u64) << 24
                | (self.reason as u64) << 32
                | (self.arm as u64) << 40
                | (self.exit_arm as u64) << 48
                | (self.exit as u64) << 56,
            self.stage as u64 | (self.direction as u64) << 8,
            0,
            0,
        ]
    }

    /// Decodes words that another process wrote; `None` if they are not the head of a record.
    pub fn from_words(words: &[u64; HEAD_WORDS]) -> Option<RecordHead> {
        let len = (words[0] >> 32) as u32;
        if words[0] as u32 != MARK || len > u32::from(MAX_SNAP) {
            return None;
        }
        let [l0, l1, capture, verdict, reason, arm, exit_arm, exit] = words[4].to_le_bytes();
        let [stage, direction, ..] = words[5].to_le_bytes();
        Some(RecordHead {
            len: len as u16,
            frame_len: (words[3] >> 32) as u32,
            time_ns: words[1],
            service: words[2] as u32,
            backend: (words[2] >> 32) as u32,
            packet: words[3] as u32,
            lcore: u16::from_le_bytes([l0, l1]),
            capture,
            verdict,
            reason,
            arm,
            exit_arm,
            exit,
            stage,
            direction,
        })
    }

    /// Returns the verdict, or `None` for an unknown number.
    pub fn verdict(&self) -> Option<VerdictCounter> {
        VerdictCounter::ALL.get(usize::from(self.verdict)).copied()
    }
}

/// Filter of a trace, as the XDP programs read it. All conditions must hold.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRule {
    /// Source addresses.
    pub src: AddrRange,
    /// Destination addresses.
    pub dst: AddrRange,
    /// Source port, in host byte order; a number above 65,535 matches any.
    pub sport: u32,
    /// Destination port, likewise.
    pub dport: u32,
    /// IP protocol number; a number above 255 matches any.
    pub proto: u32,
    /// Unused, 0.
    pub spare: u32,
}

/// Size of a trace's filter in words of 64 bits.
pub const RULE_WORDS: usize = size_of::<TraceRule>() / 8;

impl TraceRule {
    /// Value of a port or protocol that matches any.
    pub const ANY: u32 = u32::MAX;

    /// Returns whether a packet matches.
    #[inline(always)]
    pub fn matches(&self, src: &Addr, sport: u16, dst: &Addr, dport: u16, proto: u8) -> bool {
        (self.sport > u32::from(u16::MAX) || self.sport == u32::from(sport))
            && (self.dport > u32::from(u16::MAX) || self.dport == u32::from(dport))
            && (self.proto > u32::from(u8::MAX) || self.proto == u32::from(proto))
            && self.src.contains(src)
            && self.dst.contains(dst)
    }

    /// Encodes the filter in words.
    pub fn words(&self) -> [u64; RULE_WORDS] {
        let mut words = [0; RULE_WORDS];
        let parts = [&self.src.addr.words, &self.src.mask, &self.dst.addr.words, &self.dst.mask];
        let last = [self.sport, self.dport, self.proto, self.spare];
        let halves = parts.into_iter().flatten().copied().chain(last);
        for (at, half) in halves.enumerate() {
            words[at / 2] |= u64::from(half) << (32 * (at % 2));
        }
        words
    }
}

/// Stages of a trace: the numbers of `command::Stage`, which BPF programs do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TracedStage {
    /// Tunnel identified, inner packet located.
    Decap = 1,
    /// Flow key computed.
    Classify = 2,
    /// Flow looked up.
    Track = 3,
    /// Backend selected.
    Select = 4,
    /// Packet rewritten.
    Encap = 5,
}

/// Size of a [`TraceReport`] in words of 64 bits.
pub const TRACE_WORDS: usize = 6;

/// The state of a traced packet after a stage of the XDP programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceReport {
    /// Number of the packet on its CPU.
    pub packet: u32,
    /// CPU that processed the packet.
    pub lcore: u16,
    /// Number of the stage, a [`TracedStage`].
    pub stage: u8,
    /// Number of the verdict, a [`VerdictCounter`]; valid after the last stage.
    pub verdict: u8,
    /// Number of the drop reason, valid for a dropped packet.
    pub reason: u8,
    /// [`EXIT_NONE`], [`EXIT_PORT`] or [`EXIT_KERNEL`].
    pub exit: u8,
    /// Arm by which the packet leaves.
    pub exit_arm: u8,
    /// Arm on which it arrived.
    pub arm: u8,
    /// Whether its flow was found.
    pub has_flow: bool,
    /// Service id, or [`NONE`].
    pub service: u32,
    /// Backend id, or [`NONE`].
    pub backend: u32,
    /// Scope; 0 for plain packets.
    pub scope: u32,
    /// Size of the inner packet in bytes.
    pub bytes: u32,
    /// Hash of the flow key; 0 if there is none.
    pub hash: u64,
    /// Source port, in host byte order.
    pub sport: u16,
    /// Destination port, in host byte order.
    pub dport: u16,
}

impl TraceReport {
    /// Encodes the report in words.
    #[inline(always)]
    pub const fn words(&self) -> [u64; TRACE_WORDS] {
        [
            self.packet as u64
                | (self.lcore as u64) << 32
                | (self.stage as u64) << 48
                | (self.verdict as u64) << 56,
            self.reason as u64
                | (self.exit as u64) << 8
                | (self.exit_arm as u64) << 16
                | (self.arm as u64) << 24
                | (self.has_flow as u64) << 32,
            self.service as u64 | (self.backend as u64) << 32,
            self.scope as u64 | (self.bytes as u64) << 32,
            self.hash,
            self.sport as u64 | (self.dport as u64) << 16,
        ]
    }

    /// Decodes a report.
    pub fn from_words(words: &[u64; TRACE_WORDS]) -> TraceReport {
        let [_, _, _, _, l0, l1, stage, verdict] = words[0].to_le_bytes();
        let [reason, exit, exit_arm, arm, has_flow, ..] = words[1].to_le_bytes();
        TraceReport {
            packet: words[0] as u32,
            lcore: u16::from_le_bytes([l0, l1]),
            stage,
            verdict,
            reason,
            exit,
            exit_arm,
            arm,
            has_flow: has_flow & 1 != 0,
            service: words[2] as u32,
            backend: (words[2] >> 32) as u32,
            scope: words[3] as u32,
            bytes: (words[3] >> 32) as u32,
            hash: words[4],
            sport: words[5] as u16,
            dport: (words[5] >> 16) as u16,
        }
    }

    /// Returns the state of the packet as lcores report it.
    #[cfg(not(target_arch = "bpf"))]
    pub fn state(&self) -> TraceState {
        let is_last = self.stage == Stage::LAST as u8;
        let verdict = VerdictCounter::ALL.get(usize::from(self.verdict));
        let decision = match verdict.filter(|_| is_last) {
            None => Decision::Undecided,
            Some(VerdictCounter::Return) => Decision::Return,
            Some(VerdictCounter::Tunnel) => Decision::Tunnel,
            Some(VerdictCounter::Nat) => Decision::Nat,
            Some(VerdictCounter::Answer) => Decision::Answer,
            Some(VerdictCounter::Forward) => Decision::Forward,
            Some(VerdictCounter::Punt) => Decision::Punt,
            Some(VerdictCounter::Redirect) => Decision::Redirect,
            Some(VerdictCounter::Reply) => Decision::Reply,
            Some(VerdictCounter::Drop) => Decision::Drop,
        };
        let exit = match self.exit {
            EXIT_PORT if is_last => TraceExit::Port,
            EXIT_KERNEL if is_last => TraceExit::Kernel,
            _ => TraceExit::NoExit,
        };
        TraceState {
            decision: decision as u8,
            reason: if decision == Decision::Drop { self.reason } else { 0 },
            exit: exit as u8,
            exit_arm: self.exit_arm,
            has_flow: self.has_flow,
            arm: self.arm,
            service: self.service,
            backend: self.backend,
            scope: self.scope,
            bytes: self.bytes,
            hash: self.hash,
            sport: self.sport,
            dport: self.dport,
        }
    }
}

#[cfg(test)]
mod tests;
