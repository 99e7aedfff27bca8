//! Honest clients and their backends: their packets, and the checks of how those are forwarded. An
//! *end* is an address with a port.

use super::plan::Mode;
use super::wire::{End, Template, ends};
use crate::feed::{INNER, PLAIN};
use crate::fixture::{BACKEND, FRONTENDS, MACS};
use tests::frames::{Frame, Ip, flags, tcp, udp};

/// The first client's address, 10.64.0.0.
const CLIENTS_AT: u32 = 0x0a40_0000;
/// The backends' port, with NAT.
const BACKEND_PORT: u16 = 8080;

/// A packet of a client or a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet {
    /// TCP SYN.
    Syn,
    /// TCP SYN with ACK.
    SynAck,
    /// TCP ACK without data.
    Ack,
    /// TCP segment with data.
    Data,
    /// TCP segment of 1,400 bytes, which must not be fragmented.
    Large,
    /// UDP datagram.
    Udp,
    /// TCP reset.
    Reset,
}

const PACKETS: [Packet; 7] = [
    Packet::Syn,
    Packet::SynAck,
    Packet::Ack,
    Packet::Data,
    Packet::Large,
    Packet::Udp,
    Packet::Reset,
];

impl Packet {
    fn ip(self, src: &str, dst: &str) -> Ip {
        match self {
            Packet::Syn => tcp(src, dst, flags::SYN),
            Packet::SynAck => tcp(src, dst, flags::SYN | flags::ACK),
            Packet::Ack => tcp(src, dst, flags::ACK),
            Packet::Data => tcp(src, dst, flags::PSH | flags::ACK).payload(b"GET / HTTP/1.1\r\n"),
            Packet::Large => tcp(src, dst, flags::ACK).sized(1_400),
            Packet::Udp => udp(src, dst).payload(b"who?"),
            Packet::Reset => tcp(src, dst, flags::RST),
        }
    }
}

/// The sender of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The client.
    Client,
    /// The backend.
    Backend,
}

/// The sender, the time in half round trips since the flow's first packet, and the packet.
pub type Step = (Side, u64, Packet);

/// A TCP connection until it is established and both sides have sent data.
pub const TCP: &[Step] = &[
    (Side::Client, 0, Packet::Syn),
    (Side::Backend, 1, Packet::SynAck),
    (Side::Client, 2, Packet::Ack),
    (Side::Client, 2, Packet::Data),
    (Side::Backend, 3, Packet::Data),
    (Side::Client, 4, Packet::Ack),
];

/// Two UDP exchanges of request and response.
pub const UDP: &[Step] = &[
    (Side::Client, 0, Packet::Udp),
    (Side::Backend, 1, Packet::Udp),
    (Side::Client, 2, Packet::Udp),
    (Side::Backend, 3, Packet::Udp),
];

/// The repeated exchange of established TCP flows.
pub const TCP_REPEAT: &[Step] =
    &[(Side::Client, 0, Packet::Large), (Side::Backend, 1, Packet::Data)];
/// The repeated exchange of established UDP flows.
pub const UDP_REPEAT: &[Step] = &[(Side::Client, 0, Packet::Udp), (Side::Backend, 1, Packet::Udp)];

/// A client and the state of its flow.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The client's end.
    pub client: End,
    /// The frontend that it sends to.
    pub front: End,
    /// Whether the client uses UDP, else TCP.
    pub udp: bool,
    /// Half a round trip, nanoseconds.
    pub half_ns: u64,
    /// The index of the tally that counts its losses.
    pub tally: usize,
    /// The address of the backend that received the client's first packet and, with NAT, Weir's end
    /// towards that backend.
    route: Option<(u32, End)>,
}

impl Client {
    /// Creates the client with this number.
    pub fn new(number: u32, mode: Mode, udp: bool, half_ns: u64, tally: usize) -> Client {
        let client = End { addr: CLIENTS_AT + number, port: 20_000 + (number % 9_973) as u16 };
        let port = if udp { 53 } else { 80 };
        let front = End { addr: mode.target() + number % FRONTENDS, port };
        Client { client, front, udp, half_ns, tally, route: None }
    }

    /// Returns the backend's end, with NAT; its address is zero before the first packet.
    pub fn backend(&self) -> End {
        End { addr: self.route.map_or(0, |(backend, _)| backend), port: BACKEND_PORT }
    }

    /// Returns Weir's end towards the backend, with NAT; zero before the first packet.
    pub fn nat_end(&self) -> End {
        self.route.map_or(End::default(), |(_, nat_end)| nat_end)
    }

    /// Writes a packet of the client's flow; `None` if the packet would not pass through Weir.
    pub fn write<'f>(
        &self,
        mode: Mode,
        side: Side,
        packet: Packet,
        frames: &'f mut Frames,
    ) -> Option<&'f [u8]> {
        let template = match side {
            Side::Client => frames.clients[packet as usize].ends(self.client, self.front),
            Side::Backend => {
                let (from, to) = match mode {
                    Mode::Dsr => return None,
                    Mode::Nat => (self.backend(), self.nat_end()),
                    Mode::Return | Mode::Tunnel => (self.front, self.client),
                };
                frames.backends[packet as usize].ends(from, to)
            }
        };
        Some(template.bytes())
    }

    /// Returns whether a packet of the flow left correctly: by `arm`, as `frame`. The first packet
    /// determines the backend; all later ones must reach that backend from the same end of Weir.
    pub fn check(&mut self, mode: Mode, side: Side, arm: u8, frame: &[u8]) -> bool {
        let inner = || ends(frame, INNER);
        match (mode, side) {
            (Mode::Return, Side::Client) => arm == 0 && inner() == Some((self.client, self.front)),
            (_, Side::Backend) => arm == 0 && inner() == Some((self.front, self.client)),
            (_, Side::Client) => {
                let Some((nat_end, backend)) = ends(frame, PLAIN).filter(|_| arm == 1) else {
                    return false;
                };
                let nat_end = if mode == Mode::Nat { nat_end } else { End::default() };
                let route = (backend.addr, nat_end);
                *self.route.get_or_insert(route) == route
            }
        }
    }
}

/// The frame templates of all packets, of clients and of backends.
#[derive(Clone, Debug)]
pub struct Frames {
    clients: Vec<Template>,
    backends: Vec<Template>,
}

impl Frames {
    /// Builds the templates of a mode.
    pub fn new(mode: Mode) -> Frames {
        let (client, front) = ("10.64.0.0:20000", "203.0.0.0:80");
        let of_client = |packet: &Packet| mode.arriving(packet.ip(client, front));
        let of_backend = |packet: &Packet| match mode {
            Mode::Return => mode.arriving(packet.ip(front, client)),
            _ => Template::plain(Frame::new(BACKEND, MACS[1], packet.ip(front, client)).bytes()),
        };
        Frames {
            clients: PACKETS.iter().map(of_client).collect(),
            backends: PACKETS.iter().map(of_backend).collect(),
        }
    }

    /// Returns the template of a client's packet.
    pub fn client(&self, packet: Packet) -> &Template {
        &self.clients[packet as usize]
    }

    /// Returns a backend's datagram with these ends.
    pub fn answer(&mut self, from: End, to: End) -> &[u8] {
        self.backends[Packet::Udp as usize].ends(from, to).bytes()
    }

    /// Returns the template of a backend's packet.
    pub fn backend(&self, packet: Packet) -> &Template {
        &self.backends[packet as usize]
    }
}
