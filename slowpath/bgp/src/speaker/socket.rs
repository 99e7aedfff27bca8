//! Sockets as BGP needs them: authenticated, guarded by hop counts (RFC 5082), in the class of
//! network control traffic, from the configured address and by the configured interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::authentication;
use super::wanted::Wanted;
use crate::peer::settings::Settings;

/// The class of a network's own traffic, DSCP CS6.
const CLASS: u32 = 0xc0;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

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
    authentication::before_connect(&socket, peer.ip(), transport)?;
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
    set_least_hops(socket, four, least_hops(settings))?;
    SockRef::from(socket).set_tcp_nodelay(true)
}

/// The hops that packets of a peer must have left (RFC 5082, section 3); 0 where any will do.
pub(super) fn least_hops(settings: &Settings) -> u8 {
    let transport = &settings.transport;
    // 256 less the hops that the way may take.
    if transport.ttl_security { u8::MAX - (transport.hops.unwrap_or(1).max(1) - 1) } else { 0 }
}

/// From now on the kernel drops what arrives at `socket` with fewer than `least` hops left.
pub(super) fn set_least_hops(socket: &impl AsFd, four: bool, least: u8) -> io::Result<()> {
    let least = libc::c_int::from(least);
    match four {
        true => setsockopt(socket, LeastHopsV4, &least)?,
        false => setsockopt(socket, LeastHopsV6, &least)?,
    }
    Ok(())
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
