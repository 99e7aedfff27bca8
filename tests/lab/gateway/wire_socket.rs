//! The gateway's two sockets on the wire: raw, for both UDP ports must be its own choice and the
//! answer must be seen as it came, wrong checksums included.

use crate::lab::error::{LabError, Result};
use crate::lab::tun::wait;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrLike, bind,
    recv, send, sendto, setsockopt, socket, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

/// Room for what arrives while this process waits for a core: the poll loop under test never yields
/// one, and a frame that is lost here would be blamed on the appliance.
const ROOM: usize = 64 << 20;

/// Frames of one interface, all protocols or IPv4 only.
pub struct Frames(OwnedFd);

impl Frames {
    /// Opens a packet socket on `interface`, in the calling thread's namespace.
    pub fn open(interface: &str, protocol: SockProtocol) -> Result<Self> {
        let what = || format!("a packet socket on {interface}");
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, protocol)
            .map_err(LabError::errno(what()))?;
        setsockopt(&fd, sockopt::RcvBufForce, &ROOM).map_err(LabError::errno(what()))?;
        let addresses = nix::ifaddrs::getifaddrs().map_err(LabError::errno(what()))?;
        let link = addresses
            .filter(|a| a.interface_name == interface)
            .find_map(|a| a.address.filter(|s| s.family() == Some(AddressFamily::Packet)));
        let link = link.ok_or_else(|| {
            LabError::Asked(format!("there is no interface {interface} here; see: ip link"))
        })?;
        bind(fd.as_raw_fd(), &link).map_err(LabError::errno(what()))?;
        Ok(Self(fd))
    }

    /// The next frame; `None` when none came for a while.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<&'b mut [u8]>> {
        match recv(self.0.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(len) => return Ok(Some(&mut buffer[..len])),
            // An interface that goes down says so once; frames come again when it is up.
            Err(nix::errno::Errno::ENETDOWN | nix::errno::Errno::EAGAIN) => {}
            Err(e) => return Err(LabError::errno("receiving from the wire")(e)),
        }
        wait(&self.0)?;
        Ok(None)
    }

    /// Sends a frame as it is; `false` when the system did not take it.
    pub fn send(&self, frame: &[u8]) -> bool {
        send(self.0.as_raw_fd(), frame, MsgFlags::empty()).is_ok()
    }
}

/// The wire of the gateway.
pub struct Wire {
    frames: Frames,
    packets: OwnedFd,
    /// Holds the port, so that the kernel does not answer "port unreachable" in our place; a second
    /// gateway in the namespace holds it as well. What it collects is never read.
    _held: Socket,
}

impl Wire {
    /// Opens the wire in the calling thread's namespace.
    pub fn open(interface: &str, port: u16) -> Result<Self> {
        let held = || {
            let held = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
            held.set_reuse_address(true)?;
            held.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into())?;
            Ok(held)
        };
        let held = held().map_err(LabError::io(format!("holding UDP port {port}")))?;
        let frames = Frames::open(interface, SockProtocol::EthIp)?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let packets = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw)
            .map_err(LabError::errno("a raw IPv4 socket"))?;
        Ok(Self { frames, packets, _held: held })
    }

    /// Sends an IPv4 packet; the kernel finds the way and the neighbour.
    pub fn send(&self, to: Ipv4Addr, packet: &[u8]) -> bool {
        let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
        sendto(self.packets.as_raw_fd(), packet, &to, MsgFlags::empty()).is_ok()
    }

    /// The next frame; `None` when none came for a while.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<&'b mut [u8]>> {
        self.frames.receive(buffer)
    }
}
