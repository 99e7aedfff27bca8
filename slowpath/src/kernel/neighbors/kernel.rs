//! Kernel interface for next hops: links, routes, neighbors and probes.
//!
//! Requests use the crate `netlink`. Notifications use a separate non-blocking socket, which the
//! control loop reads in each iteration without an async runtime.

use std::io;
use std::net::IpAddr;

use netlink::rtnetlink::MulticastGroup as Group;
use netlink::rtnetlink::packet_core::{NLM_F_CREATE, NetlinkMessage, NetlinkPayload};
use netlink::rtnetlink::packet_route::RouteNetlinkMessage;
use netlink::rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink::rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink::rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric,
};
use netlink::rtnetlink::sys::{Socket, protocols::NETLINK_ROUTE};
use netlink::{Netlink, family, none_on_errno};

/// Multicast groups with notifications that concern next hops.
const GROUPS: [Group; 4] = [Group::Link, Group::Neigh, Group::Ipv4Route, Group::Ipv6Route];

/// Maximum number of datagrams read by one call of [`Kernel::poll_events`]; the next call reads the
/// others.
const EVENTS_PER_POLL: usize = 256;

/// A network interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Maximum size of an IP packet in bytes.
    pub mtu: u32,
    /// Whether the interface is administratively up (`IFF_UP`).
    pub up: bool,
}

/// The route to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Address to resolve: that of the router, or the destination itself.
    pub via: IpAddr,
    /// MTU of the route in bytes, if it has one.
    pub mtu: Option<u32>,
}

/// A neighbor entry of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// Index of its interface.
    pub index: u32,
    /// Address of the neighbor.
    pub addr: IpAddr,
    /// MAC; `None` while it is being resolved or the neighbor doesn't respond.
    pub mac: Option<[u8; 6]>,
    /// Whether the kernel considers the entry valid without another probe.
    pub fresh: bool,
}

/// A notification from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelEvent {
    /// A neighbor changed.
    Neighbor(Neighbor),
    /// Routes or links changed, or notifications were lost: read everything again.
    Resync,
}

/// The kernel operations that next hops need; a trait, so that tests can emulate them.
pub trait Kernel {
    /// Returns the interface of this name, if it exists and has a MAC address.
    fn link(&mut self, name: &str) -> io::Result<Option<Link>>;
    /// Returns the route to `to` through the interface `index`, if there is one.
    fn route(&mut self, index: u32, to: IpAddr) -> io::Result<Option<Route>>;
    /// Returns all neighbors on the interface `index`.
    fn neighbors(&mut self, index: u32) -> io::Result<Vec<Neighbor>>;
    /// Makes the kernel resolve `addr`, or verify its entry.
    fn probe(&mut self, index: u32, addr: IpAddr) -> io::Result<()>;
    /// Returns pending notifications; a call may leave some to the next one.
    fn poll_events(&mut self) -> Vec<KernelEvent>;
}

/// The Linux kernel, through rtnetlink.
pub struct LinuxKernel {
    netlink: Netlink,
    notifications: Socket,
}

impl LinuxKernel {
    /// Opens the socket for notifications. The socket for requests is opened by the first request.
    pub fn open() -> io::Result<LinuxKernel> {
        let mut notifications = Socket::new(NETLINK_ROUTE)?;
        notifications.bind_auto()?;
        notifications.set_non_blocking(true)?;
        for group in GROUPS {
            notifications.add_membership(group as u32)?;
        }
        Ok(LinuxKernel { netlink: Netlink::default(), notifications })
    }
}

/// Parses the complete messages of a datagram.
fn messages(mut bytes: &[u8]) -> Vec<NetlinkMessage<RouteNetlinkMessage>> {
    let mut found = Vec::new();
    while let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) {
        let length = (message.header.length as usize).next_multiple_of(4);
        found.push(message);
        match bytes.get(length..) {
            Some(rest) if length > 0 && !rest.is_empty() => bytes = rest,
            _ => break,
        }
    }
    found
}

impl Kernel for LinuxKernel {
    fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        Ok(self.netlink.link(name)?.as_ref().and_then(read_link))
    }

    fn route(&mut self, index: u32, to: IpAddr) -> io::Result<Option<Route>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        message.attributes.push(RouteAttribute::Destination(to.into()));
        message.attributes.push(RouteAttribute::Oif(index));
        let routes = self.netlink.all(|kernel| kernel.route().get(message).execute());
        let no_route = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];
        let routes = none_on_errno(routes, &no_route)?.unwrap_or_default();
        Ok(routes.first().map(|route| read_route(route, to)))
    }

    fn neighbors(&mut self, index: u32) -> io::Result<Vec<Neighbor>> {
        let all = self.netlink.all(|kernel| {
            let mut request = kernel.neighbours().get();
            request.message_mut().attributes.push(NeighbourAttribute::IfIndex(index));
            request.execute()
        })?;
        let of_link = all.iter().filter(|neighbor| neighbor.header.ifindex == index);
        Ok(of_link.filter_map(read_neighbor).collect())
    }

    fn probe(&mut self, index: u32, addr: IpAddr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(addr);
        message.header.ifindex = index;
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(addr.into()));
        self.netlink.change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
    }

    fn poll_events(&mut self) -> Vec<KernelEvent> {
        let mut events = Vec::new();
        for _ in 0..EVENTS_PER_POLL {
            match self.notifications.recv_from_full() {
                Ok((datagram, _)) => {
                    events.extend(messages(&datagram).iter().map(|m| match &m.payload {
                        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(entry)) => {
                            read_neighbor(entry).map_or(KernelEvent::Resync, KernelEvent::Neighbor)
                        }
                        _ => KernelEvent::Resync,
                    }));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The socket's buffer overflowed (`ENOBUFS`), or another error: read everything
                // again.
                Err(_) => {
                    events.push(KernelEvent::Resync);
                    break;
                }
            }
        }
        events
    }
}

/// Parses a link message; `None` if it has no MAC address of six bytes, or no MTU.
pub fn read_link(message: &LinkMessage) -> Option<Link> {
    let mac = message.attributes.iter().find_map(|a| match a {
        LinkAttribute::Address(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok(),
        _ => None,
    })?;
    let mtu = message.attributes.iter().find_map(|a| match a {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    })?;
    let up = message.header.flags.contains(LinkFlags::Up);
    Some(Link { index: message.header.index, mac, mtu, up })
}

fn read_route(message: &RouteMessage, to: IpAddr) -> Route {
    let via = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Gateway(RouteAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
        RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    });
    let mtu = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Metrics(metrics) => metrics.iter().find_map(|m| match m {
            RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
            _ => None,
        }),
        _ => None,
    });
    Route { via: via.unwrap_or(to), mtu }
}

fn read_neighbor(message: &NeighbourMessage) -> Option<Neighbor> {
    let addr = message.attributes.iter().find_map(|a| match a {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    })?;
    let mac = message.attributes.iter().find_map(|a| match a {
        NeighbourAttribute::LinkLayerAddress(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    let state = message.header.state;
    let has_mac = !matches!(
        state,
        NeighbourState::Incomplete | NeighbourState::Failed | NeighbourState::None
    );
    let fresh = matches!(
        state,
        NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp
    );
    let index = message.header.ifindex;
    Some(Neighbor { index, addr, mac: mac.filter(|_| has_mac), fresh })
}

#[cfg(test)]
mod tests;
