//! A session with its sending socket. Received packets arrive on the sockets of the driver.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Instant;

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};

use crate::machine::{Machine, Output};
use crate::packet::{Discard, Discards, Packet};
use crate::receive::{Datagram, port};
use crate::settings::{Key, Settings};
use crate::status::{SessionStatus, SocketStats};

/// First source port: packets must be sent from a port in the range 49152 to 65535 (RFC 5881
/// section 4).
const FIRST_PORT: u16 = 49_152;
/// Traffic class (the IPv4 TOS byte): DSCP CS6, network control, so that BFD has priority over the
/// traffic whose path it monitors.
const TRAFFIC_CLASS: u32 = 0xc0;

/// A session: its state machine and the socket for its packets.
pub(crate) struct Session {
    pub(crate) key: Key,
    pub(crate) machine: Machine,
    /// Source port of its packets, unique among sessions.
    pub(crate) port: u16,
    socket: Option<Socket>,
    /// Index of the interface that the session is bound to; `None` without one, and before the
    /// first packet is sent.
    interface: Option<u32>,
    discards: Discards,
    unsent: u64,
    last_error: Option<String>,
}

impl Session {
    /// Creates a session with a source port that is not in `taken`.
    pub(crate) fn new(
        key: Key,
        settings: Settings,
        discriminator: u32,
        seed: u64,
        taken: &[u16],
        now: Instant,
    ) -> Session {
        let begin = (seed >> 32) as u16;
        let ports =
            (0..=u16::MAX - FIRST_PORT).map(|n| FIRST_PORT + n.wrapping_add(begin) % 16_384);
        Session {
            // With more sessions than ports, the first port is shared, which is harmless: neighbors
            // identify sessions by discriminator.
            port: ports.into_iter().find(|port| !taken.contains(port)).unwrap_or(FIRST_PORT),
            machine: Machine::new(settings, discriminator, seed, now),
            key,
            socket: None,
            interface: None,
            discards: Discards::default(),
            unsent: 0,
            last_error: None,
        }
    }

    /// Returns whether a packet without our discriminator belongs to this session.
    pub(crate) fn matches_datagram(&self, datagram: &Datagram) -> bool {
        let Key { peer, local, multihop, .. } = &self.key;
        *peer == datagram.from
            && *multihop == datagram.multihop
            && local.is_none_or(|local| Some(local) == datagram.to)
            && self.interface.is_none_or(|interface| interface == datagram.interface)
    }

    /// Processes a packet for this session.
    pub(crate) fn receive(
        &mut self,
        datagram: &Datagram,
        packet: &Packet,
        now: Instant,
    ) -> Result<Output, Discard> {
        let low_ttl = datagram.multihop && datagram.ttl < self.machine.settings.minimum_ttl;
        let result = if low_ttl { Err(Discard::Hops) } else { self.machine.receive(packet, now) };
        result.inspect_err(|why| self.discards.count(*why))
    }

    /// Sends a packet, and opens the socket if needed. An error is logged once; sending is retried
    /// with the next packet.
    pub(crate) fn send(&mut self, packet: &Packet) {
        let sent = self.try_send(packet);
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
            // Another program uses the port: the next packet is sent from the next port.
            self.port = self.port.wrapping_add(1).max(FIRST_PORT);
        }
        let last_error = sent.err().map(|error| error.to_string());
        match &last_error {
            Some(why) => {
                self.unsent += 1;
                // Reopen the socket: an interface that was recreated has a new index, and a missing
                // address may be back.
                self.socket = None;
                if self.last_error.is_none() {
                    tracing::warn!(
                        event = "bfd_packet_unsent",
                        neighbor = %self.key,
                        error = %why,
                        "BFD packet not sent"
                    );
                }
            }
            None if self.last_error.is_some() => {
                tracing::info!(
                    event = "bfd_packets_sent_again",
                    neighbor = %self.key,
                    "BFD packets are sent again"
                );
            }
            None => {}
        }
        self.last_error = last_error;
    }

    fn try_send(&mut self, packet: &Packet) -> io::Result<()> {
        if self.socket.is_none() {
            self.interface = match &self.key.interface {
                Some(name) => Some(if_nametoindex(name.as_str()).map_err(|error| {
                    io::Error::other(format!("there is no interface `{name}`: {error}"))
                })?),
                None => None,
            };
            self.socket = Some(self.open()?);
        }
        let Some(socket) = &self.socket else { return Ok(()) };
        let port = port(self.key.multihop);
        let to: SocketAddr = match self.key.peer {
            IpAddr::V4(peer) => (peer, port).into(),
            // The scope ID only matters for link-local addresses (fe80::/10).
            IpAddr::V6(peer) => {
                SocketAddrV6::new(peer, port, 0, self.interface.unwrap_or_default()).into()
            }
        };
        socket.send_to(&packet.emit(), &to.into()).map(drop)
    }

    fn open(&self) -> io::Result<Socket> {
        let four = self.key.peer.is_ipv4();
        let domain = if four { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        let any: IpAddr =
            if four { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        if let Some(interface) = &self.key.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        if four {
            socket.set_ttl_v4(u8::MAX.into())?;
            socket.set_tos_v4(TRAFFIC_CLASS)?;
        } else {
            socket.set_only_v6(true)?;
            socket.set_unicast_hops_v6(u8::MAX.into())?;
            socket.set_tclass_v6(TRAFFIC_CLASS)?;
        }
        let from = match (self.key.local.unwrap_or(any), self.interface) {
            (IpAddr::V6(from), interface) => {
                SocketAddrV6::new(from, self.port, 0, interface.unwrap_or_default()).into()
            }
            (from, _) => SocketAddr::new(from, self.port),
        };
        socket.bind(&from.into())?;
        // The socket never reads: neighbors send to the well-known port.
        Ok(socket)
    }

    /// Returns the status of the session.
    pub(crate) fn status(&self, now: Instant) -> SessionStatus {
        let last_error = self.last_error.as_ref();
        let stats = SocketStats { discards: &self.discards, unsent: self.unsent, last_error };
        SessionStatus::of(&self.key, &self.machine, &stats, now)
    }
}
