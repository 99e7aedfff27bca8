//! The control packet, and every reason for which one is not taken (RFC 5880, 4.1 and 6.8.6).

use serde::Serialize;

/// Bytes of a packet without authentication.
pub const LENGTH: usize = 24;
/// Bytes of the shortest that has it.
const LENGTH_AUTHENTICATED: usize = 26;
const VERSION: u8 = 1;

const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const INDEPENDENT: u8 = 0x08;
const AUTHENTICATED: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// How a session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Held down by a person or a plan.
    AdminDown,
    /// Nothing is heard, or what is heard is that nothing of us is.
    #[default]
    Down,
    /// They are heard; whether they hear us is not known yet.
    Init,
    /// Both hear each other.
    Up,
}

/// Why a session left Up (RFC 5880, 4.1; 6 to 8 by their names, the rest by number).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Diagnostic {
    /// It didn't.
    #[default]
    None,
    /// Nothing came for the detection time.
    DetectionTimeExpired,
    /// An echo was lost.
    EchoFailed,
    /// The other one said that it is down.
    NeighborSignaledDown,
    /// The forwarding plane was reset.
    ForwardingPlaneReset,
    /// The path is down.
    PathDown,
    /// The path that ours continues is down.
    ConcatenatedPathDown,
    /// A person or a plan.
    AdministrativelyDown,
    /// The path back that ours continues is down.
    ReverseConcatenatedPathDown,
    /// Of a later RFC.
    Other(u8),
}

impl Diagnostic {
    /// Of its number, of which five bits count.
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

    /// Its number.
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

/// Why a packet was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// Fewer bytes than a packet has.
    Short,
    /// Another version than 1.
    Version,
    /// Its length field is too small for what it says that it carries.
    LengthTooSmall,
    /// Its length field goes beyond the datagram.
    LengthBeyondDatagram,
    /// A multiplier of 0.
    Multiplier,
    /// The multipoint bit.
    Multipoint,
    /// The sender's discriminator is 0.
    MyDiscriminator,
    /// It names a session of ours that there is not.
    UnknownDiscriminator,
    /// It names no session of ours, and is from one that claims to hear us.
    NoDiscriminator,
    /// It names no session of ours, and none is with its sender.
    UnknownNeighbour,
    /// It is authenticated, and there is no key here.
    Authenticated,
    /// The session is held down.
    AdminDown,
    /// It came over more hops than it may have (RFC 5881, 5; RFC 5883, 5).
    Hops,
}

impl Discard {
    /// All reasons.
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
        Discard::UnknownNeighbour,
        Discard::Authenticated,
        Discard::AdminDown,
        Discard::Hops,
    ];

    /// Its name in counters.
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
            Discard::UnknownNeighbour => "unknown-neighbour",
            Discard::Authenticated => "authenticated",
            Discard::AdminDown => "admin-down",
            Discard::Hops => "hops",
        }
    }
}

/// How many were not taken, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Discards([u64; Discard::ALL.len()]);

impl Discards {
    /// One more.
    pub fn count(&mut self, why: Discard) {
        self.0[why as usize] += 1;
    }

    /// Of one reason.
    pub fn of(&self, why: Discard) -> u64 {
        self.0[why as usize]
    }

    /// Reasons that occurred, with how often.
    pub fn seen(&self) -> impl Iterator<Item = (Discard, u64)> + '_ {
        Discard::ALL.into_iter().map(|why| (why, self.of(why))).filter(|(_, count)| *count > 0)
    }
}

/// A control packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// Why the sender's session last left Up.
    pub diagnostic: Diagnostic,
    /// The sender's state.
    pub state: State,
    /// Asks for an answer with `last` set: new timers are to be confirmed.
    pub poll: bool,
    /// Answers a poll (the F bit).
    pub last: bool,
    /// The sender's BFD goes on while its control plane doesn't (the C bit).
    pub independent: bool,
    /// The sender wants no packets while the session is up.
    pub demand: bool,
    /// So many intervals without a packet, and the session is down.
    pub multiplier: u8,
    /// The sender's name for the session.
    pub my_discriminator: u32,
    /// The receiver's; 0 while it isn't known.
    pub your_discriminator: u32,
    /// The sender would send no oftener.
    pub desired_transmit_us: u32,
    /// The sender can receive no oftener; 0 says that it wants none.
    pub required_receive_us: u32,
    /// The same of echo packets; 0 says that it takes none.
    pub required_echo_us: u32,
}

impl Packet {
    /// Reads a datagram. The rules of RFC 5880, 6.8.6 that need no session, in its order.
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
            last: flags & FINAL != 0,
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
        let strange = !matches!(packet.state, State::Down | State::AdminDown);
        if packet.your_discriminator == 0 && strange {
            return Err(Discard::NoDiscriminator);
        }
        // The RFC looks for the session first. One that is not ours is of no interest here, and
        // what an unknown sender proves by its key neither.
        if authenticated { Err(Discard::Authenticated) } else { Ok(packet) }
    }

    /// Writes it.
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
            | bit(self.last, FINAL)
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
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
