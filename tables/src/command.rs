//! Commands from slowpath to lcores and events from lcores to slowpath: the messages of the rings.
//!
//! A message consists of words from another process. Decoding accepts exactly the words that
//! encoding produces, so that encoding a decoded message yields the same words.

mod trace;

use crate::ring::Message;
use packet::addr::Addr;
use std::fmt;

pub use trace::{Decision, Stage, TraceExit, TraceState};

/// Error for a message of unknown form; contains its first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAMessage(pub u64);

impl fmt::Display for NotAMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown ring message: first word {:#018x}", self.0)
    }
}

impl std::error::Error for NotAMessage {}

/// Filter of packets to trace; absent fields match any packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceFilter {
    /// Source address.
    pub src: Option<Addr>,
    /// Destination address.
    pub dst: Option<Addr>,
    /// Source port, in host byte order.
    pub sport: Option<u16>,
    /// Destination port, in host byte order.
    pub dport: Option<u16>,
    /// IP protocol number.
    pub proto: Option<u8>,
    /// Number of packets to trace; 0 ends a trace.
    pub count: u32,
}

impl TraceFilter {
    /// Returns whether a packet matches the filter.
    pub fn matches(&self, src: Addr, sport: u16, dst: Addr, dport: u16, proto: u8) -> bool {
        self.src.is_none_or(|expected| expected == src)
            && self.dst.is_none_or(|expected| expected == dst)
            && self.sport.is_none_or(|expected| expected == sport)
            && self.dport.is_none_or(|expected| expected == dport)
            && self.proto.is_none_or(|expected| expected == proto)
    }
}

/// A message from slowpath to an lcore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read this generation from the next burst on, and confirm with [`Event::Switched`].
    Switch {
        /// The committed generation.
        generation: u32,
    },
    /// Report the stages of the next packets that match the filter. It replaces the filter of an
    /// earlier trace. The loader of the XDP programs ignores this command.
    Trace(TraceFilter),
    /// Drain (true) or end a drain. Both data planes ignore it, because a drain only makes health
    /// checks fail and changes nothing for packets.
    Drain(bool),
}

/// A message from an lcore to slowpath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The lcore now reads this generation and no longer uses older ones.
    Switched {
        /// The generation.
        generation: u32,
    },
    /// The MAC address of a next hop is needed and not resolved.
    NextHopNeeded {
        /// Next hop id.
        next_hop: u32,
    },
    /// One stage of a traced packet.
    TraceStage {
        /// Sequence number of the traced packet.
        packet: u32,
        /// Number of the [`Stage`].
        stage: u8,
        /// State after the stage: the words of a [`TraceState`].
        words: [u64; 5],
    },
    /// An ICMP error about an outer packet of this appliance reported a lower MTU.
    PathMtu {
        /// Next hop id.
        next_hop: u32,
        /// Reported MTU in bytes, which limits the outer IP packet.
        mtu: u16,
    },
}

// Kinds of messages, the low byte of the first word: commands, then events.
const SWITCH: u64 = 1;
const TRACE: u64 = 2;
const DRAIN: u64 = 3;
const SWITCHED: u64 = 17;
const NEXT_HOP_NEEDED: u64 = 18;
const TRACE_STAGE: u64 = 19;
const PATH_MTU: u64 = 20;

/// Returns the first word of a message: kind (8 bits), a small value (24 bits), and a 32-bit value.
const fn first(kind: u64, small: u32, word: u32) -> u64 {
    kind | (small as u64) << 8 | (word as u64) << 32
}

const fn short(word: u64) -> Message {
    Message([word, 0, 0, 0, 0, 0, 0, 0])
}

impl Command {
    /// Encodes the command as a message.
    pub fn encode(&self) -> Message {
        match self {
            Command::Switch { generation } => short(first(SWITCH, 0, *generation)),
            Command::Drain(on) => short(first(DRAIN, u32::from(*on), 0)),
            Command::Trace(filter) => encode_filter(filter),
        }
    }

    /// Decodes a message, or fails if it is not a command.
    pub fn decode(message: &Message) -> Result<Command, NotAMessage> {
        let word = message.0[0];
        let (small, high) = ((word as u32) >> 8, (word >> 32) as u32);
        let command = match word & 0xff {
            SWITCH => Command::Switch { generation: high },
            DRAIN => Command::Drain(small == 1),
            TRACE => Command::Trace(decode_filter(&message.0)),
            _ => return Err(NotAMessage(word)),
        };
        if command.encode() == *message { Ok(command) } else { Err(NotAMessage(word)) }
    }
}

impl Event {
    /// Encodes the event as a message.
    pub fn encode(&self) -> Message {
        match self {
            Event::Switched { generation } => short(first(SWITCHED, 0, *generation)),
            Event::NextHopNeeded { next_hop } => short(first(NEXT_HOP_NEEDED, 0, *next_hop)),
            Event::PathMtu { next_hop, mtu } => short(first(PATH_MTU, u32::from(*mtu), *next_hop)),
            Event::TraceStage { packet, stage, words: [a, b, c, d, e] } => {
                let word = first(TRACE_STAGE, u32::from(*stage), *packet);
                Message([word, *a, *b, *c, *d, *e, 0, 0])
            }
        }
    }

    /// Decodes a message, or fails if it is not an event.
    pub fn decode(message: &Message) -> Result<Event, NotAMessage> {
        let [word, a, b, c, d, e, ..] = message.0;
        let (small, high) = ((word as u32) >> 8, (word >> 32) as u32);
        let event = match word & 0xff {
            SWITCHED => Event::Switched { generation: high },
            NEXT_HOP_NEEDED => Event::NextHopNeeded { next_hop: high },
            PATH_MTU => Event::PathMtu { next_hop: high, mtu: small as u16 },
            TRACE_STAGE => {
                Event::TraceStage { packet: high, stage: small as u8, words: [a, b, c, d, e] }
            }
            _ => return Err(NotAMessage(word)),
        };
        if event.encode() == *message { Ok(event) } else { Err(NotAMessage(word)) }
    }
}

// Bits of the fields that a trace filter contains.
const HAS_SRC: u32 = 1;
const HAS_DST: u32 = 2;
const HAS_SPORT: u32 = 4;
const HAS_DPORT: u32 = 8;
const HAS_PROTO: u32 = 16;

fn encode_filter(filter: &TraceFilter) -> Message {
    let flag = |has: bool, flag: u32| if has { flag } else { 0 };
    let has = flag(filter.src.is_some(), HAS_SRC)
        | flag(filter.dst.is_some(), HAS_DST)
        | flag(filter.sport.is_some(), HAS_SPORT)
        | flag(filter.dport.is_some(), HAS_DPORT)
        | flag(filter.proto.is_some(), HAS_PROTO);
    let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
    let src = filter.src.unwrap_or_default().words;
    let dst = filter.dst.unwrap_or_default().words;
    let (sport, dport) = (filter.sport.unwrap_or(0), filter.dport.unwrap_or(0));
    let ports = u64::from(sport) | u64::from(dport) << 16;
    let ports = ports | u64::from(filter.proto.unwrap_or(0)) << 32;
    Message([
        first(TRACE, has, filter.count),
        pair(src[0], src[1]),
        pair(src[2], src[3]),
        pair(dst[0], dst[1]),
        pair(dst[2], dst[3]),
        ports,
        0,
        0,
    ])
}

fn decode_filter(words: &[u64; 8]) -> TraceFilter {
    let [word, s0, s1, d0, d1, ports, ..] = *words;
    let has = (word as u32) >> 8;
    let (lo, hi) = (|w: u64| w as u32, |w: u64| (w >> 32) as u32);
    let addr = |a: u64, b: u64| Addr { words: [lo(a), hi(a), lo(b), hi(b)] };
    TraceFilter {
        src: (has & HAS_SRC != 0).then(|| addr(s0, s1)),
        dst: (has & HAS_DST != 0).then(|| addr(d0, d1)),
        sport: (has & HAS_SPORT != 0).then_some(ports as u16),
        dport: (has & HAS_DPORT != 0).then_some((ports >> 16) as u16),
        proto: (has & HAS_PROTO != 0).then_some((ports >> 32) as u8),
        count: (word >> 32) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILTER: TraceFilter = TraceFilter {
        src: Some(Addr { words: [1, 2, 3, 4] }),
        dst: None,
        sport: None,
        dport: Some(443),
        proto: Some(6),
        count: 9,
    };

    #[test]
    fn messages_round_trip() {
        let all = TraceFilter { dst: FILTER.src, sport: Some(u16::MAX), ..FILTER };
        for filter in [FILTER, all, TraceFilter::default()] {
            let trace = Command::Trace(filter);
            assert_eq!(Command::decode(&trace.encode()), Ok(trace));
        }
        for command in
            [Command::Switch { generation: u32::MAX }, Command::Drain(true), Command::Drain(false)]
        {
            assert_eq!(Command::decode(&command.encode()), Ok(command));
            assert!(Event::decode(&command.encode()).is_err());
        }
        for event in [
            Event::Switched { generation: 7 },
            Event::NextHopNeeded { next_hop: 3 },
            Event::PathMtu { next_hop: u32::MAX, mtu: u16::MAX },
            Event::TraceStage { packet: 1, stage: u8::MAX, words: [1, 2, 3, 4, u64::MAX] },
        ] {
            assert_eq!(Event::decode(&event.encode()), Ok(event));
            assert!(Command::decode(&event.encode()).is_err());
        }
        assert_eq!(Command::decode(&Message::default()), Err(NotAMessage(0)));
    }

    #[test]
    fn filter_matches_all_given_fields() {
        let (a, b) = (FILTER.src.unwrap(), Addr::UNSPECIFIED);
        assert!(FILTER.matches(a, 5, b, 443, 6) && FILTER.matches(a, 6, a, 443, 6));
        assert!(!FILTER.matches(b, 5, b, 443, 6));
        assert!(!FILTER.matches(a, 5, b, 444, 6) && !FILTER.matches(a, 5, b, 443, 17));
    }

    proptest! {
        #[test]
        fn decoded_words_encode_to_themselves(kind in 0u64..24, words: [u64; 8]) {
            for first in [words[0], (words[0] & !0xff) | kind, kind | words[0] << 32] {
                let mut message = Message(words);
                message.0[0] = first;
                if let Ok(command) = Command::decode(&message) {
                    prop_assert_eq!(command.encode(), message);
                }
                if let Ok(event) = Event::decode(&message) {
                    prop_assert_eq!(event.encode(), message);
                }
            }
        }
    }
}
