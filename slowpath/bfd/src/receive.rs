//! The ports on which packets arrive, with what the kernel knows of each: how many hops it had
//! left, whom it was sent to, and by which interface it came.

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

/// Over one hop (RFC 5881, 4).
pub const SINGLE_HOP: u16 = 3784;
/// Over several (RFC 5883, 5).
pub const MULTIHOP: u16 = 4784;

/// More than any packet has: those with authentication are known by their length too.
const ROOM: usize = 128;

/// A datagram.
#[derive(Debug)]
pub struct Arrived {
    /// Whose.
    pub from: IpAddr,
    /// Which of our addresses it was sent to.
    pub to: Option<IpAddr>,
    /// The number of the interface by which it came.
    pub interface: u32,
    /// Hops that it had left.
    pub ttl: u8,
    /// On the port for several hops.
    pub multihop: bool,
    /// Its bytes.
    pub bytes: [u8; ROOM],
    /// How many of them.
    pub length: usize,
}

/// One port of one family.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    multihop: bool,
}

impl Receiver {
    /// Within a tokio runtime.
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

    /// Whether something may have arrived.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        // A socket that fails has something to say as well: the read tells.
        self.socket.poll_recv_ready(context).map(drop)
    }

    /// The next datagram, if there is one.
    pub fn take(&self) -> Option<Arrived> {
        let taken = self
            .socket
            .try_io(Interest::READABLE, || receive(self.socket.as_raw_fd(), self.multihop));
        // Errors here are those of datagrams that somebody sent, and end with them.
        taken.ok()
    }
}

/// The port for packets over one hop, or over several.
pub fn port(multihop: bool) -> u16 {
    if multihop { MULTIHOP } else { SINGLE_HOP }
}

fn receive(socket: i32, multihop: bool) -> io::Result<Arrived> {
    let mut bytes = [0; ROOM];
    let mut said = nix::cmsg_space!(nix::libc::in6_pktinfo, nix::libc::in_pktinfo, i32, i32);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message =
        recvmsg::<SockaddrStorage>(socket, &mut parts, Some(&mut said), MsgFlags::empty())?;
    let from = message.address.as_ref().and_then(|address| {
        let four = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    });
    // What the kernel doesn't say counts as over too many hops, and is counted there.
    let (mut to, mut interface, mut ttl) = (None, 0, 0);
    for said in message.cmsgs()? {
        match said {
            ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
                ttl = u8::try_from(hops).unwrap_or_default();
            }
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                // The address is in the network's order, as the bytes lie.
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
    Ok(Arrived { from, to, interface, ttl, multihop, bytes, length })
}
