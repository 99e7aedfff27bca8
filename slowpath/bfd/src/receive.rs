//! Reception of BFD packets, with the TTL, destination address and interface that the kernel
//! reports.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// UDP port of single-hop BFD (RFC 5881 section 4).
pub const SINGLE_HOP: u16 = 3784;
/// UDP port of multihop BFD (RFC 5883 section 5).
pub const MULTIHOP: u16 = 4784;

/// Size of the receive buffer in bytes, larger than any BFD packet of RFC 5880 (at most 52 bytes,
/// with SHA1).
const BUFFER_SIZE: usize = 128;

/// A received datagram.
#[derive(Debug)]
pub struct Datagram {
    /// Source address.
    pub from: IpAddr,
    /// Destination address; `None` if the kernel did not report it.
    pub to: Option<IpAddr>,
    /// Index of the receiving interface; 0 if the kernel did not report it.
    pub interface: u32,
    /// TTL or hop limit; 0 if the kernel did not report it.
    pub ttl: u8,
    /// Received on the multihop port.
    pub multihop: bool,
    /// Received bytes.
    pub bytes: [u8; BUFFER_SIZE],
    /// Number of received bytes.
    pub length: usize,
}

/// Receiving socket of one port and address family.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    multihop: bool,
}

impl Receiver {
    /// Opens a socket. Must be called within a tokio runtime.
    pub fn open(domain: Domain, multihop: bool) -> io::Result<Receiver> {
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        let address: IpAddr = match domain {
            Domain::IPV6 => {
                socket.set_only_v6(true)?;
                setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
                setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
                Ipv6Addr::UNSPECIFIED.into()
            }
            _ => {
                setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
                setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
                Ipv4Addr::UNSPECIFIED.into()
            }
        };
        socket.bind(&SocketAddr::new(address, port(multihop)).into())?;
        Ok(Receiver { socket: UdpSocket::from_std(socket.into())?, multihop })
    }

    /// Returns ready when a datagram may have arrived.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        // `poll_recv_ready` fails only while the runtime shuts down, which ends the driver too.
        self.socket.poll_recv_ready(context).map(drop)
    }

    /// Returns the next datagram, if there is one. `None` also after an error of the socket.
    pub fn next_datagram(&self) -> Option<Datagram> {
        let received = self
            .socket
            .try_io(Interest::READABLE, || receive(self.socket.as_raw_fd(), self.multihop));
        // An error other than `WouldBlock` concerns a single datagram and is cleared by the read.
        received.ok()
    }
}

/// Returns the UDP port of multihop or single-hop BFD.
pub fn port(multihop: bool) -> u16 {
    if multihop { MULTIHOP } else { SINGLE_HOP }
}

fn receive(socket: i32, multihop: bool) -> io::Result<Datagram> {
    let mut bytes = [0; BUFFER_SIZE];
    let mut control = nix::cmsg_space!(nix::libc::in6_pktinfo, nix::libc::in_pktinfo, i32, i32);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message =
        recvmsg::<SockaddrStorage>(socket, &mut parts, Some(&mut control), MsgFlags::empty())?;
    let from = message.address.as_ref().and_then(|address| {
        let four = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    });
    // Without a reported TTL, the TTL is 0, so that the packet is discarded and counted as `hops`.
    let (mut to, mut interface, mut ttl) = (None, 0, 0);
    for control in message.cmsgs()? {
        match control {
            ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
                ttl = u8::try_from(hops).unwrap_or_default();
            }
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                // The address is in network byte order.
                to = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                interface = info.ipi_ifindex.cast_unsigned();
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                interface = info.ipi6_ifindex;
            }
            _ => {}
        }
    }
    let length = message.bytes;
    let from = from.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Datagram { from, to, interface, ttl, multihop, bytes, length })
}
