//! BGP sockets: authentication, hop limits (GTSM, RFC 5082), DSCP CS6, and the configured local
//! address and interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::authentication;
use super::config::PeerConfig;
use crate::peer::settings::Settings;

/// Traffic class octet of network control traffic: DSCP CS6 (RFC 4594).
const TRAFFIC_CLASS: u32 = 0xc0;
/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 128;

sockopt_impl!(
    /// Minimum TTL of received packets; others are dropped.
    MinimumTtlV4,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MINTTL,
    libc::c_int
);
sockopt_impl!(
    /// Minimum hop limit of received IPv6 packets; others are dropped.
    MinimumTtlV6,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MINHOPCOUNT,
    libc::c_int
);

/// Returns a socket bound to `at` and `interface`, which does not listen yet.
pub(super) fn bind(at: SocketAddr, interface: Option<&str>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM.nonblocking(), None)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    // Listeners on all addresses, on one of them and on one interface share a port; the kernel
    // delivers each connection to the most specific one.
    socket.set_reuse_port(true)?;
    if let Some(interface) = interface {
        bind_device(&socket, interface)?;
    }
    // The SYN-ACK must pass a peer's GTSM check, and the peer is not known yet.
    set_ttl_and_class(&socket, at.is_ipv4(), u8::MAX)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

/// Starts to listen on a bound socket. The peers' keys must already be installed on it.
pub(super) fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Binds `socket` to one interface.
fn bind_device(socket: &impl AsFd, interface: &str) -> io::Result<()> {
    let bound = SockRef::from(socket).bind_device(Some(interface.as_bytes()));
    bound.map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => {
            let text = format!("there is no interface `{interface}`; list them by ip link");
            io::Error::new(io::ErrorKind::NotFound, text)
        }
        _ => error,
    })
}

/// Returns whether `config` allows a connection from `from` to the local address. The caller has
/// already matched the remote address.
pub(super) fn allows(config: &PeerConfig, from: SocketAddr, local: IpAddr) -> bool {
    let scope = match from {
        SocketAddr::V6(six) => six.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    // The kernel gives a scope only for link-local addresses.
    let differs = |name: &str| !nix::net::if_::if_nametoindex(name).is_ok_and(|is| is == scope);
    let interface_matches = scope == 0 || !config.interface.as_deref().is_some_and(differs);
    interface_matches && config.settings.transport.local.is_none_or(|own| own == local)
}

/// Connects to the peer.
pub(super) async fn connect(config: &PeerConfig) -> io::Result<TcpStream> {
    let Settings { peer, transport, .. } = &config.settings;
    let socket = if peer.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(interface) = &config.interface {
        bind_device(&socket, interface)?;
    }
    prepare(&socket, &config.settings)?;
    authentication::before_connect(&socket, peer.ip(), transport)?;
    let scope = scope(*peer, config.interface.as_deref())?;
    if let Some(local) = transport.local {
        socket.bind(with_scope(SocketAddr::new(local, 0), scope))?;
    }
    socket.connect(with_scope(*peer, scope)).await
}

/// Returns the scope ID of a peer's IPv6 address: the one that it has, or the index of `interface`;
/// otherwise 0. The kernel uses scope IDs only for link-local addresses (fe80::/10).
fn scope(peer: SocketAddr, interface: Option<&str>) -> io::Result<u32> {
    match (peer, interface) {
        (SocketAddr::V6(peer), _) if peer.scope_id() != 0 => Ok(peer.scope_id()),
        (SocketAddr::V6(_), Some(name)) => Ok(nix::net::if_::if_nametoindex(name)?),
        _ => Ok(0),
    }
}

fn with_scope(address: SocketAddr, scope: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(six) => SocketAddrV6::new(*six.ip(), six.port(), 0, scope).into(),
        four => four,
    }
}

/// Sets TTL, minimum TTL, traffic class and TCP_NODELAY of a connection with a peer, whichever side
/// opened it.
pub(super) fn prepare(socket: &impl AsFd, settings: &Settings) -> io::Result<()> {
    let (is_ipv4, transport) = (settings.peer.is_ipv4(), &settings.transport);
    let hops = transport.hops.unwrap_or(1).max(1);
    let full_ttl = transport.ttl_security || settings.is_internal(settings.peer_asn);
    set_ttl_and_class(socket, is_ipv4, if full_ttl { u8::MAX } else { hops })?;
    set_minimum_ttl(socket, is_ipv4, minimum_ttl(settings))?;
    SockRef::from(socket).set_tcp_nodelay(true)
}

/// Returns the minimum TTL of a peer's packets (RFC 5082 section 3); 0 without GTSM.
pub(super) fn minimum_ttl(settings: &Settings) -> u8 {
    let transport = &settings.transport;
    // 256 minus the maximum number of hops.
    if transport.ttl_security { u8::MAX - (transport.hops.unwrap_or(1).max(1) - 1) } else { 0 }
}

/// Makes the kernel drop packets that arrive at `socket` with a TTL lower than `minimum`.
pub(super) fn set_minimum_ttl(socket: &impl AsFd, is_ipv4: bool, minimum: u8) -> io::Result<()> {
    let minimum = libc::c_int::from(minimum);
    match is_ipv4 {
        true => setsockopt(socket, MinimumTtlV4, &minimum)?,
        false => setsockopt(socket, MinimumTtlV6, &minimum)?,
    }
    Ok(())
}

/// Sets the TTL or hop limit of sent packets, and their traffic class.
fn set_ttl_and_class(socket: &impl AsFd, is_ipv4: bool, ttl: u8) -> io::Result<()> {
    let socket = SockRef::from(socket);
    match is_ipv4 {
        true => socket.set_ttl_v4(ttl.into()).and_then(|()| socket.set_tos_v4(TRAFFIC_CLASS)),
        false => socket
            .set_unicast_hops_v6(ttl.into())
            .and_then(|()| socket.set_tclass_v6(TRAFFIC_CLASS)),
    }
}

/// Returns the address to listen on for a peer: its configured local address, or the wildcard of
/// its family.
pub(super) fn listen_address(settings: &Settings, port: u16) -> SocketAddr {
    let any: IpAddr = match settings.peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(settings.transport.local.unwrap_or(any), port)
}
