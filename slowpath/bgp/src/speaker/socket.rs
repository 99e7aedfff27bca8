//! Sockets as BGP wants them: signed (RFC 2385), guarded by hop counts (RFC 5082), in the class of
//! a network's own traffic, from the address and by the interface that are configured.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::Wanted;
use crate::peer::settings::Settings;

/// The class of a network's own traffic, DSCP CS6.
const CLASS: u32 = 0xc0;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// The longest key that the kernel takes.
pub(super) const LONGEST_KEY: usize = 80;

sockopt_impl!(
    /// Signed with this key is what comes from an address and goes there.
    Signed,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_MD5SIG,
    KeyOfPeer
);
sockopt_impl!(
    /// What arrives with fewer hops left is dropped.
    LeastHopsV4,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MINTTL,
    libc::c_int
);
sockopt_impl!(
    /// The same of IPv6.
    LeastHopsV6,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MINHOPCOUNT,
    libc::c_int
);

/// `struct tcp_md5sig` of the kernel.
#[repr(C, align(8))]
pub struct KeyOfPeer {
    address: [u8; 128],
    flags: u8,
    prefix: u8,
    length: u16,
    interface: i32,
    key: [u8; LONGEST_KEY],
}

impl KeyOfPeer {
    /// An empty key takes the former one away.
    fn new(peer: IpAddr, key: &[u8]) -> io::Result<KeyOfPeer> {
        let mut octets = Vec::with_capacity(28);
        match peer {
            // Family, port, address.
            IpAddr::V4(peer) => {
                octets.extend((libc::AF_INET as u16).to_ne_bytes());
                octets.extend([0; 2]);
                octets.extend(peer.octets());
            }
            // Family, port, flow, address.
            IpAddr::V6(peer) => {
                octets.extend((libc::AF_INET6 as u16).to_ne_bytes());
                octets.extend([0; 6]);
                octets.extend(peer.octets());
            }
        }
        let mut address = [0; 128];
        address[..octets.len()].copy_from_slice(&octets);
        let mut room = [0; LONGEST_KEY];
        let too_long = || {
            let said = format!("a key of {} octets; TCP-MD5 takes {LONGEST_KEY}", key.len());
            io::Error::new(io::ErrorKind::InvalidInput, said)
        };
        room.get_mut(..key.len()).ok_or_else(too_long)?.copy_from_slice(key);
        let length = key.len() as u16;
        Ok(KeyOfPeer { address, flags: 0, prefix: 0, length, interface: 0, key: room })
    }
}

/// From now on `socket` takes from `peer` only what is signed with `key`, and signs; none: neither.
pub(super) fn sign(socket: &impl AsFd, peer: IpAddr, key: Option<&str>) -> io::Result<()> {
    let value = KeyOfPeer::new(peer, key.unwrap_or_default().as_bytes())?;
    match setsockopt(socket, Signed, &value) {
        // There was none to take away.
        Err(nix::errno::Errno::ENOENT) if key.is_none() => Ok(()),
        done => Ok(done?),
    }
}

/// A socket that listens.
pub(super) fn listen(at: SocketAddr, interface: Option<&str>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM.nonblocking(), None)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    // All addresses, one of them and one interface are three listeners on one port: each
    // connection comes to the narrowest.
    socket.set_reuse_port(true)?;
    if let Some(interface) = interface {
        bind_device(&socket, interface)?;
    }
    // Its answers have to pass the guard of who has one; who they go to is known later.
    set_hops(&socket, at.is_ipv4(), u8::MAX)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// From now on `socket` knows one interface only.
fn bind_device(socket: &impl AsFd, interface: &str) -> io::Result<()> {
    let bound = SockRef::from(socket).bind_device(Some(interface.as_bytes()));
    bound.map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => {
            let said =
                format!("there is no interface `{interface}`; ip link shows those there are");
            io::Error::new(io::ErrorKind::NotFound, said)
        }
        _ => error,
    })
}

/// Whether a connection of `from` to `local` is one that `wanted` allows: its address is known.
pub(super) fn is_of(wanted: &Wanted, from: SocketAddr, local: IpAddr) -> bool {
    let scope = match from {
        SocketAddr::V6(six) => six.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    // The kernel says the network of addresses that count on one alone.
    let elsewhere = |name: &str| !nix::net::if_::if_nametoindex(name).is_ok_and(|is| is == scope);
    let here = scope == 0 || !wanted.interface.as_deref().is_some_and(elsewhere);
    here && wanted.settings.transport.local.is_none_or(|own| own == local)
}

/// A connection to the peer.
pub(super) async fn connect(wanted: &Wanted) -> io::Result<TcpStream> {
    let Settings { peer, transport, .. } = &wanted.settings;
    let socket = if peer.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(interface) = &wanted.interface {
        bind_device(&socket, interface)?;
    }
    prepare(&socket, &wanted.settings)?;
    if let Some(key) = &transport.md5 {
        sign(&socket, peer.ip(), Some(key))?;
    }
    let scope = scope(*peer, wanted.interface.as_deref())?;
    if let Some(local) = transport.local {
        socket.bind(within(SocketAddr::new(local, 0), scope))?;
    }
    socket.connect(within(*peer, scope)).await
}

/// The network that an address counts in, where it counts in one alone (fe80::).
fn scope(peer: SocketAddr, interface: Option<&str>) -> io::Result<u32> {
    match (peer, interface) {
        (SocketAddr::V6(peer), _) if peer.scope_id() != 0 => Ok(peer.scope_id()),
        (SocketAddr::V6(_), Some(name)) => Ok(nix::net::if_::if_nametoindex(name)?),
        _ => Ok(0),
    }
}

fn within(address: SocketAddr, scope: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(six) => SocketAddrV6::new(*six.ip(), six.port(), 0, scope).into(),
        four => four,
    }
}

/// What every connection with a peer is given, whoever began it.
pub(super) fn prepare(socket: &impl AsFd, settings: &Settings) -> io::Result<()> {
    let (four, transport) = (settings.peer.is_ipv4(), &settings.transport);
    let hops = transport.hops.unwrap_or(1).max(1);
    let far = transport.ttl_security || settings.is_internal(settings.peer_asn);
    set_hops(socket, four, if far { u8::MAX } else { hops })?;
    if transport.ttl_security {
        let least = 256 - i32::from(hops);
        match four {
            true => setsockopt(socket, LeastHopsV4, &least)?,
            false => setsockopt(socket, LeastHopsV6, &least)?,
        }
    }
    SockRef::from(socket).set_tcp_nodelay(true)
}

fn set_hops(socket: &impl AsFd, four: bool, hops: u8) -> io::Result<()> {
    let socket = SockRef::from(socket);
    match four {
        true => socket.set_ttl_v4(hops.into()).and_then(|()| socket.set_tos_v4(CLASS)),
        false => socket.set_unicast_hops_v6(hops.into()).and_then(|()| socket.set_tclass_v6(CLASS)),
    }
}

/// Where to listen for a peer: on its own local address, or on all of its family.
pub(super) fn place(settings: &Settings, port: u16) -> SocketAddr {
    let any: IpAddr = match settings.peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(settings.transport.local.unwrap_or(any), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_laid_out_as_the_kernel_wants_it_and_one_too_long_is_refused() {
        assert_eq!(size_of::<KeyOfPeer>(), 216);
        let six = KeyOfPeer::new("fd00::2".parse().unwrap(), b"secret").unwrap();
        assert_eq!((six.address[8], six.address[23], six.length), (0xfd, 2, 6));
        let four = KeyOfPeer::new(Ipv4Addr::new(10, 0, 0, 2).into(), b"").unwrap();
        assert_eq!((&four.address[4..8], four.length), (&[10, 0, 0, 2][..], 0));
        let long = KeyOfPeer::new(Ipv4Addr::LOCALHOST.into(), &[b'x'; LONGEST_KEY + 1]);
        assert!(long.err().unwrap().to_string().contains("81 octets"));
    }
}
