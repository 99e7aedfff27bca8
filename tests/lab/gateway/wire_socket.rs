//! The gateway's sockets on the wire: a packet socket for receiving, a raw IPv4 socket for sending,
//! and a UDP socket that reserves the port. The first two are raw: the gateway chooses both UDP
//! ports itself, and must see answers as they arrive, including wrong checksums.

use crate::lab::error::{LabError, Result};
use crate::lab::tun::wait;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrLike, bind,
    recv, send, sendto, setsockopt, socket, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

/// Receive buffer size in bytes. Frames arrive while this process waits for a core that the poll
/// loop under test may occupy. A frame lost here would be reported as lost by the appliance.
const SOCKET_BUFFER: usize = 64 << 20;

/// A packet socket for the frames of one interface, of one EtherType or all.
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a packet socket on `interface`, in the calling thread's namespace.
    pub fn open(interface: &str, protocol: SockProtocol) -> Result<Self> {
        let what = || format!("opening a packet socket on {interface}");
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, protocol)
            .map_err(LabError::errno(what()))?;
        setsockopt(&fd, sockopt::RcvBufForce, &SOCKET_BUFFER).map_err(LabError::errno(what()))?;
        let addresses = nix::ifaddrs::getifaddrs().map_err(LabError::errno(what()))?;
        let link = addresses
            .filter(|a| a.interface_name == interface)
            .find_map(|a| a.address.filter(|s| s.family() == Some(AddressFamily::Packet)));
        let link = link.ok_or_else(|| {
            LabError::Other(format!("no interface {interface}; list them with: ip link"))
        })?;
        bind(fd.as_raw_fd(), &link).map_err(LabError::errno(what()))?;
        Ok(Self(fd))
    }

    /// Returns the next frame. If there is none, waits for one for at most
    /// [`POLL_INTERVAL`](crate::lab::tun::POLL_INTERVAL) and returns `None`; the next call returns
    /// the frame.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<&'b mut [u8]>> {
        match recv(self.0.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(len) => return Ok(Some(&mut buffer[..len])),
            // The kernel reports once that the interface went down; frames arrive again when it is
            // up.
            Err(nix::errno::Errno::ENETDOWN | nix::errno::Errno::EAGAIN) => {}
            Err(e) => return Err(LabError::errno("receiving from the wire")(e)),
        }
        wait(&self.0)?;
        Ok(None)
    }

    /// Sends a frame unchanged; returns false if the kernel did not accept it.
    pub fn send(&self, frame: &[u8]) -> bool {
        send(self.0.as_raw_fd(), frame, MsgFlags::empty()).is_ok()
    }
}

/// Sockets through which the gateway exchanges packets with the appliance.
pub struct Wire {
    frames: PacketSocket,
    packets: OwnedFd,
    /// Is bound to the gateway's UDP port, so that the kernel does not send "port unreachable".
    /// A second gateway in the namespace can bind the port as well. Datagrams that the socket
    /// receives are never read.
    _reserved: Socket,
}

impl Wire {
    /// Opens the sockets in the calling thread's namespace.
    pub fn open(interface: &str, port: u16) -> Result<Self> {
        let reserve = || {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_reuse_address(true)?;
            socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into())?;
            Ok(socket)
        };
        let reserved = reserve().map_err(LabError::io(format!("reserving UDP port {port}")))?;
        let frames = PacketSocket::open(interface, SockProtocol::EthIp)?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let packets = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw)
            .map_err(LabError::errno("opening a raw IPv4 socket"))?;
        Ok(Self { frames, packets, _reserved: reserved })
    }

    /// Sends an IPv4 packet, for which the kernel looks up route and neighbor; returns false if the
    /// kernel did not accept it.
    pub fn send(&self, to: Ipv4Addr, packet: &[u8]) -> bool {
        let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
        sendto(self.packets.as_raw_fd(), packet, &to, MsgFlags::empty()).is_ok()
    }

    /// Returns the next frame, like [`PacketSocket::receive`].
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<&'b mut [u8]>> {
        self.frames.receive(buffer)
    }
}
