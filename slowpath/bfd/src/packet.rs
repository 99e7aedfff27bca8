//! The BFD control packet, and the reasons to discard one (RFC 5880 sections 4.1 and 6.8.6).

use serde::Serialize;

/// Size of a packet without authentication, in bytes.
pub const LENGTH: usize = 24;
/// Minimum value of the length field of a packet with authentication, in bytes.
const LENGTH_AUTHENTICATED: usize = 26;
const VERSION: u8 = 1;

const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const INDEPENDENT: u8 = 0x08;
const AUTHENTICATED: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// State of a session (RFC 5880 section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Administratively down.
    AdminDown,
    /// No packets are received, or the neighbor reports Down.
    #[default]
    Down,
    /// Packets of the neighbor are received; whether the neighbor receives ours is not known yet.
    Init,
    /// Both directions work.
    Up,
}

/// Reason for the last change of a session's state (RFC 5880 section 4.1). Codes without a name are
/// kept as numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Diagnostic {
    /// No diagnostic (0).
    #[default]
    None,
    /// No packet for the detection time (1).
    DetectionTimeExpired,
    /// Echo function failed (2).
    EchoFailed,
    /// The neighbor signaled session down (3).
    NeighborSignaledDown,
    /// Forwarding plane reset (4).
    ForwardingPlaneReset,
    /// Path down (5).
    PathDown,
    /// Concatenated path down (6).
    ConcatenatedPathDown,
    /// Administratively down (7).
    AdministrativelyDown,
    /// Reverse concatenated path down (8).
    ReverseConcatenatedPathDown,
    /// A code assigned later.
    Other(u8),
}

impl Diagnostic {
    /// Returns the diagnostic of a code, of which the low five bits count.
    pub fn from_code(code: u8) -> Diagnostic {
        match code & 0x1f {
            0 => Diagnostic::None,
            1 => Diagnostic::DetectionTimeExpired,
            2 => Diagnostic::EchoFailed,
            3 => Diagnostic::NeighborSignaledDown,
            4 => Diagnostic::ForwardingPlaneReset,
            5 => Diagnostic::PathDown,
            6 => Diagnostic::ConcatenatedPathDown,
            7 => Diagnostic::AdministrativelyDown,
            8 => Diagnostic::ReverseConcatenatedPathDown,
            other => Diagnostic::Other(other),
        }
    }

    /// Returns the code.
    pub fn code(self) -> u8 {
        match self {
            Diagnostic::None => 0,
            Diagnostic::DetectionTimeExpired => 1,
            Diagnostic::EchoFailed => 2,
            Diagnostic::NeighborSignaledDown => 3,
            Diagnostic::ForwardingPlaneReset => 4,
            Diagnostic::PathDown => 5,
            Diagnostic::ConcatenatedPathDown => 6,
            Diagnostic::AdministrativelyDown => 7,
            Diagnostic::ReverseConcatenatedPathDown => 8,
            Diagnostic::Other(code) => code & 0x1f,
        }
    }
}

/// Why a packet was discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// The datagram is shorter than 24 bytes.
    Short,
    /// The version is not 1.
    Version,
    /// The length field is below the minimum for the packet's flags.
    LengthTooSmall,
    /// The length field exceeds the datagram.
    LengthBeyondDatagram,
    /// The detection multiplier is 0.
    Multiplier,
    /// The multipoint bit is set.
    Multipoint,
    /// The sender's discriminator is 0.
    MyDiscriminator,
    /// Your Discriminator matches no session.
    UnknownDiscriminator,
    /// Your Discriminator is 0 although the sender's state is Init or Up.
    NoDiscriminator,
    /// Your Discriminator is 0 and no session has this sender as neighbor.
    UnknownNeighbor,
    /// The packet is authenticated, which is not supported.
    Authenticated,
    /// The session is administratively down.
    AdminDown,
    /// The TTL is too low (RFC 5881 section 5, RFC 5883 section 5).
    Hops,
}

impl Discard {
    /// All reasons, in the order of the counters.
    pub const ALL: [Discard; 13] = [
        Discard::Short,
        Discard::Version,
        Discard::LengthTooSmall,
        Discard::LengthBeyondDatagram,
        Discard::Multiplier,
        Discard::Multipoint,
        Discard::MyDiscriminator,
        Discard::UnknownDiscriminator,
        Discard::NoDiscriminator,
        Discard::UnknownNeighbor,
        Discard::Authenticated,
        Discard::AdminDown,
        Discard::Hops,
    ];

    /// Returns the name of the reason in counters.
    pub fn name(self) -> &'static str {
        match self {
            Discard::Short => "short",
            Discard::Version => "version",
            Discard::LengthTooSmall => "length-too-small",
            Discard::LengthBeyondDatagram => "length-beyond-datagram",
            Discard::Multiplier => "multiplier",
            Discard::Multipoint => "multipoint",
            Discard::MyDiscriminator => "my-discriminator",
            Discard::UnknownDiscriminator => "unknown-discriminator",
            Discard::NoDiscriminator => "no-discriminator",
            Discard::UnknownNeighbor => "unknown-neighbor",
            Discard::Authenticated => "authenticated",
            Discard::AdminDown => "admin-down",
            Discard::Hops => "hops",
        }
    }
}

/// Counters of discarded packets, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Discards([u64; Discard::ALL.len()]);

impl Discards {
    /// Counts a packet.
    pub fn count(&mut self, why: Discard) {
        self.0[why as usize] += 1;
    }

    /// Returns the counter of a reason.
    pub fn get(&self, why: Discard) -> u64 {
        self.0[why as usize]
    }

    /// Returns the reasons with a counter above 0, and the counters.
    pub fn nonzero(&self) -> impl Iterator<Item = (Discard, u64)> + '_ {
        Discard::ALL.into_iter().map(|why| (why, self.get(why))).filter(|(_, count)| *count > 0)
    }
}

/// A BFD control packet without authentication (RFC 5880 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// Reason for the last change of the sender's state.
    pub diagnostic: Diagnostic,
    /// State of the sender.
    pub state: State,
    /// P: the sender requests a packet with F set, to confirm new timers.
    pub poll: bool,
    /// F: response to a packet with P set.
    pub final_bit: bool,
    /// C: the sender's BFD is independent of its control plane.
    pub independent: bool,
    /// D: the sender requests demand mode: no periodic packets while both sides are up.
    pub demand: bool,
    /// Detect Mult: number of missed intervals after which the session is down.
    pub multiplier: u8,
    /// Discriminator of the sender.
    pub my_discriminator: u32,
    /// Discriminator of the receiver; 0 if unknown.
    pub your_discriminator: u32,
    /// Desired Min TX Interval in microseconds.
    pub desired_transmit_us: u32,
    /// Required Min RX Interval in microseconds; 0 requests no packets.
    pub required_receive_us: u32,
    /// Required Min Echo RX Interval in microseconds; 0 if echo is not supported.
    pub required_echo_us: u32,
}

impl Packet {
    /// Parses a datagram and applies the rules of RFC 5880 section 6.8.6 that need no session, in
    /// the order of that section.
    pub fn parse(bytes: &[u8]) -> Result<Packet, Discard> {
        let head: &[u8; LENGTH] = bytes.first_chunk().ok_or(Discard::Short)?;
        let (flags, length) = (head[1], usize::from(head[3]));
        let authenticated = flags & AUTHENTICATED != 0;
        if head[0] >> 5 != VERSION {
            return Err(Discard::Version);
        }
        if length < if authenticated { LENGTH_AUTHENTICATED } else { LENGTH } {
            return Err(Discard::LengthTooSmall);
        }
        if length > bytes.len() {
            return Err(Discard::LengthBeyondDatagram);
        }
        if head[2] == 0 {
            return Err(Discard::Multiplier);
        }
        if flags & MULTIPOINT != 0 {
            return Err(Discard::Multipoint);
        }
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let state = match head[1] >> 6 {
            0 => State::AdminDown,
            1 => State::Down,
            2 => State::Init,
            _ => State::Up,
        };
        let packet = Packet {
            diagnostic: Diagnostic::from_code(head[0]),
            state,
            poll: flags & POLL != 0,
            final_bit: flags & FINAL != 0,
            independent: flags & INDEPENDENT != 0,
            demand: flags & DEMAND != 0,
            multiplier: head[2],
            my_discriminator: word(4),
            your_discriminator: word(8),
            desired_transmit_us: word(12),
            required_receive_us: word(16),
            required_echo_us: word(20),
        };
        if packet.my_discriminator == 0 {
            return Err(Discard::MyDiscriminator);
        }
        let needs_discriminator = !matches!(packet.state, State::Down | State::AdminDown);
        if packet.your_discriminator == 0 && needs_discriminator {
            return Err(Discard::NoDiscriminator);
        }
        // RFC 5880 looks up the session before it checks authentication. No session here has a key,
        // so the order makes no difference.
        if authenticated { Err(Discard::Authenticated) } else { Ok(packet) }
    }

    /// Encodes the packet.
    pub fn emit(&self) -> [u8; LENGTH] {
        let state = match self.state {
            State::AdminDown => 0,
            State::Down => 1,
            State::Init => 2,
            State::Up => 3,
        };
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let mut bytes = [0; LENGTH];
        bytes[0] = VERSION << 5 | self.diagnostic.code();
        bytes[1] = state << 6
            | bit(self.poll, POLL)
            | bit(self.final_bit, FINAL)
            | bit(self.independent, INDEPENDENT)
            | bit(self.demand, DEMAND);
        bytes[2] = self.multiplier;
        bytes[3] = LENGTH as u8;
        let words = [
            self.my_discriminator,
            self.your_discriminator,
            self.desired_transmit_us,
            self.required_receive_us,
            self.required_echo_us,
        ];
        for (field, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            field.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
