//! A generator of spoofed packets: requests that are never continued, first fragments without the
//! rest, packets whose TTL expires on the path, forged packets of other hosts' connections, and
//! packets of gateway endpoints that do not exist.

use super::error::{LabError, Result};
use super::netns::Netns;
use super::topology::{FRONTEND, INGRESS, NODES};
use super::wire::{AWS_CLASS, GENEVE_PORT, ICMP, Options, TCP, UDP, checksum, pseudo, udp4};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

/// The frontend's port whose backends answer a SYN.
pub const ANSWERING: u16 = 81;
/// The frontend's port whose backends never answer.
pub const SILENT: u16 = 82;
/// The frontend's UDP port.
pub const DATAGRAMS: u16 = 53;
/// The source network of spoofed packets, 198.18.0.0/15: 131,072 addresses.
pub const SOURCES: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// IPPROTO_RAW: the sender writes the whole IP header (`man 7 raw`).
const RAW: i32 = 255;
const SYN: u8 = 2;
const RST: u8 = 4;
const TTL: u8 = 64;
/// The flag that more fragments follow, with offset 0 (RFC 791).
const FIRST_FRAGMENT: u16 = 0x2000;
/// The number of kinds of packets; a packet's number selects its kind.
const KINDS: u32 = 8;
/// Spreads the packets' numbers over all TCP sequence numbers: 2^32 divided by the golden ratio.
const SPREAD: u32 = 0x9e37_79b9;

/// The parameters of a flood.
#[derive(Clone, Debug)]
pub struct FloodPlan {
    /// Total number of packets.
    pub packets: u32,
    /// The number of packets between two pauses.
    pub burst: u32,
    /// The length of a pause.
    pub pause: Duration,
    /// The server of the connections under attack.
    pub server: SocketAddrV4,
    /// The clients of those connections; if empty, spoofed addresses.
    pub victims: Vec<SocketAddrV4>,
}

/// A running generator.
pub struct Flood(JoinHandle<Result<u32>>);

impl Flood {
    /// Starts to send from the namespace `clients`, where packets with any source are routed to
    /// Weir. Packets with spoofed gateway endpoints are sent by a gateway node in `cloud`.
    pub fn start(clients: &Netns, cloud: &Netns, plan: FloodPlan) -> Result<Self> {
        let raw =
            clients.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW))))?;
        let raw = raw.map_err(LabError::io("opening a raw socket"))?;
        let node = cloud.run(|| UdpSocket::bind((NODES[2], 0)))?;
        let node = node.map_err(LabError::io("opening a socket at a gateway node"))?;
        let thread = std::thread::Builder::new().name("flood".into());
        let thread = thread.spawn(move || send(&raw, &node, &plan));
        thread.map(Flood).map_err(LabError::io("starting the flood thread"))
    }

    /// Returns whether the generator has ended.
    pub fn finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for the end; returns the number of packets that the kernel accepted.
    pub fn finish(self) -> Result<u32> {
        self.0.join().map_err(|_| LabError::Other("the flood thread panicked".into()))?
    }
}

fn send(raw: &Socket, node: &UdpSocket, plan: &FloodPlan) -> Result<u32> {
    let mut accepted = 0;
    for n in 0..plan.packets {
        if n % plan.burst == 0 {
            std::thread::sleep(plan.pause);
        }
        // The kernel rejects packets while its queue is full. They count as lost in the network.
        let sent = match packet(n, plan) {
            Packet::Plain(to, bytes) => raw.send_to(&bytes, &SocketAddrV4::new(to, 0).into()),
            Packet::Tunneled(bytes) => node.send_to(&bytes, (INGRESS, GENEVE_PORT)),
        };
        accepted += u32::from(sent.is_ok());
    }
    Ok(accepted)
}

enum Packet {
    /// An IP packet, sent to this destination by the clients' route.
    Plain(Ipv4Addr, Vec<u8>),
    /// The UDP payload of a gateway node's packet, which begins with the GENEVE header.
    Tunneled(Vec<u8>),
}

/// Builds the packet with this number.
fn packet(n: u32, plan: &FloodPlan) -> Packet {
    let address = u32::from(SOURCES) + n % 0x2_0000;
    let source = SocketAddrV4::new(address.into(), 1_024 + (n % 60_000) as u16);
    let to = |port| SocketAddrV4::new(FRONTEND, port);
    let victim = plan.victims.get(n as usize / KINDS as usize % plan.victims.len().max(1));
    let victim = *victim.unwrap_or(&source);
    let plain = |bytes| Packet::Plain(FRONTEND, bytes);
    match n % KINDS {
        0 => plain(tcp(source, to(SILENT), SYN, n, TTL)),
        1 => plain(tcp(source, to(ANSWERING), SYN, n, TTL)),
        2 => {
            let from = (*source.ip(), source.port());
            plain(udp4(from, (FRONTEND, DATAGRAMS), &[b"spoofed"], true))
        }
        3 => {
            // The first fragment of a datagram of at least 40 bytes whose rest never arrives.
            let datagram = udp4((*source.ip(), source.port()), (FRONTEND, DATAGRAMS), &[], false);
            let payload = [&datagram[20..], &[0; 24]].concat();
            let header = Ip { id: n as u16, fragment: FIRST_FRAGMENT, ttl: TTL, protocol: UDP };
            plain(ip(*source.ip(), FRONTEND, header, &payload))
        }
        4 => plain(tcp(source, to(SILENT), SYN, n, 1)),
        5 => {
            let reset = tcp(victim, plan.server, RST, n.wrapping_mul(SPREAD), TTL);
            Packet::Plain(*plan.server.ip(), reset)
        }
        6 => Packet::Plain(*plan.server.ip(), too_big(*source.ip(), plan.server, victim, n)),
        _ => {
            let options =
                Options { endpoint: 0xdead_0000 + u64::from(n), attachment: 0, cookie: n };
            let inner = tcp(source, to(SILENT), SYN, n, TTL);
            Packet::Tunneled([&options.geneve(AWS_CLASS, inner[0])[..], &inner].concat())
        }
    }
}

/// The fields that differ between IPv4 headers.
struct Ip {
    id: u16,
    fragment: u16,
    ttl: u8,
    protocol: u8,
}

fn ip(src: Ipv4Addr, dst: Ipv4Addr, header: Ip, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend(header.id.to_be_bytes());
    packet.extend(header.fragment.to_be_bytes());
    packet.extend([header.ttl, header.protocol, 0, 0]);
    packet.extend(src.octets());
    packet.extend(dst.octets());
    let sum = checksum(&[&packet]).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    packet.extend(payload);
    packet
}

fn tcp(from: SocketAddrV4, to: SocketAddrV4, flags: u8, sequence: u32, ttl: u8) -> Vec<u8> {
    let (src, dst) = (*from.ip(), *to.ip());
    let mut segment = Vec::new();
    segment.extend(from.port().to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 0, 5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    let sum = checksum(&[&pseudo(src.into(), dst.into(), TCP, segment.len()), &segment]);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ip(src, dst, Ip { id: 0, fragment: 0, ttl, protocol: TCP }, &segment)
}

/// Builds an ICMP error (fragmentation needed, MTU 552) about a server's packet to a client, with a
/// guessed sequence number in the quote.
fn too_big(router: Ipv4Addr, server: SocketAddrV4, client: SocketAddrV4, guess: u32) -> Vec<u8> {
    let quoted = tcp(server, client, 0x10, guess.wrapping_mul(SPREAD), TTL);
    let mut error = vec![3, 4, 0, 0, 0, 0, 2, 40];
    error.extend(&quoted[..28]);
    let sum = checksum(&[&error]).to_be_bytes();
    error[2..4].copy_from_slice(&sum);
    ip(router, *server.ip(), Ip { id: 0, fragment: 0, ttl: TTL, protocol: ICMP }, &error)
}
