//! One socket per kind of tunnel: a UDP socket if the kind has a port, else a raw one.

use super::envelope::Kind;
use crate::lab::error::{LabError, Result};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, recvfrom, sendto};
use socket2::{Domain, Protocol, Type};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A socket that receives one kind of tunnel.
pub struct Socket {
    kind: Kind,
    socket: socket2::Socket,
}

impl Socket {
    /// Opens the socket in the calling thread's namespace, for all local addresses. A UDP socket
    /// receives from both families, a raw one from the kind's outer family.
    pub fn open(kind: Kind) -> Result<Self> {
        let what = || format!("opening a socket for {kind:?}");
        let (domain, socket_type, protocol) = match kind {
            Kind::Geneve | Kind::Vxlan | Kind::Gue => (Domain::IPV6, Type::DGRAM, Protocol::UDP),
            Kind::Ip4In4 => (Domain::IPV4, Type::RAW, Protocol::from(4)),
            Kind::Ip6In4 => (Domain::IPV4, Type::RAW, Protocol::from(41)),
            Kind::Ip4In6 => (Domain::IPV6, Type::RAW, Protocol::from(4)),
            Kind::Ip6In6 => (Domain::IPV6, Type::RAW, Protocol::from(41)),
        };
        let open = || {
            let socket = socket2::Socket::new(domain, socket_type, Some(protocol))?;
            socket.set_nonblocking(true)?;
            if let Some(port) = kind.port() {
                socket.set_only_v6(false)?;
                socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
            }
            Ok(socket)
        };
        let socket = open().map_err(LabError::io(what()))?;
        Ok(Self { kind, socket })
    }

    /// Returns the kind of tunnel.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the next payload and its sender, or `None` if there is none now.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<(IpAddr, &'b [u8])>> {
        let (len, from) = match recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), buffer) {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::ECONNREFUSED | Errno::EHOSTUNREACH) => return Ok(None),
            Err(e) => return Err(LabError::errno("receiving from a tunnel")(e)),
        };
        let Some(from) = from else { return Ok(None) };
        let peer = match (from.as_sockaddr_in(), from.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::from(v4.ip()),
            (_, Some(v6)) => v6.ip().to_canonical(),
            _ => return Ok(None),
        };
        // A raw IPv4 socket delivers the outer header as well.
        let raw4 = matches!(self.kind, Kind::Ip4In4 | Kind::Ip6In4);
        let skip = if raw4 { usize::from(buffer[0] & 15) * 4 } else { 0 };
        Ok(buffer.get(skip..len).map(|payload| (peer, payload)))
    }

    /// Sends `payload` in an outer packet to `peer`; returns false if the kernel did not accept
    /// it.
    pub fn send(&self, peer: IpAddr, payload: &[u8]) -> bool {
        let peer = match (self.kind.port(), peer) {
            (Some(_), IpAddr::V4(v4)) => IpAddr::V6(v4.to_ipv6_mapped()),
            _ => peer,
        };
        let to = SockaddrStorage::from(SocketAddr::new(peer, self.kind.port().unwrap_or(0)));
        sendto(self.socket.as_raw_fd(), payload, &to, MsgFlags::empty()).is_ok()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
