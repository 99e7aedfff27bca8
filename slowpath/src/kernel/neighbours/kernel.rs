//! Next hops in the kernel: a link, a route, its neighbors, and how to probe one.
//!
//! Requests go through the crate `netlink`. Notifications come by a socket of their own, which is
//! non-blocking: the control loop reads it in each iteration, without a runtime in between.

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
use netlink::{Netlink, family, unless};

/// The multicast groups that say something about next hops.
const GROUPS: [Group; 4] = [Group::Link, Group::Neigh, Group::Ipv4Route, Group::Ipv6Route];

/// How many datagrams one look at the news takes at most; the rest waits for the next look.
const NEWS_AT_ONCE: usize = 256;

/// A network interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The kernel's number for it.
    pub index: u32,
    /// Its own MAC address.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Set up by somebody (`IFF_UP`).
    pub up: bool,
}

/// How a destination is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The address to ask a MAC for: the router's, or the destination's own.
    pub via: IpAddr,
    /// MTU of the route in bytes, where it has one of its own.
    pub mtu: Option<u32>,
}

/// A neighbour as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Interface it is behind.
    pub index: u32,
    /// Its address.
    pub addr: IpAddr,
    /// Its MAC, or none while it is being asked for or does not answer.
    pub mac: Option<[u8; 6]>,
    /// True while the kernel trusts it without a new question.
    pub fresh: bool,
}

/// What the kernel reported by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// A neighbour changed.
    Neighbour(Neighbour),
    /// Routes or links changed, or news were lost: look at everything again.
    Everything,
}

/// The kernel as next hops need it; the tests have one of their own.
pub trait Kernel {
    /// The interface of this name, or none.
    fn link(&mut self, name: &str) -> io::Result<Option<Link>>;
    /// The way to `to` that leaves by interface `index`, or none.
    fn route(&mut self, index: u32, to: IpAddr) -> io::Result<Option<Route>>;
    /// All neighbours behind interface `index`.
    fn neighbours(&mut self, index: u32) -> io::Result<Vec<Neighbour>>;
    /// Makes the kernel ask for the MAC of `addr`, or verify the one it has.
    fn probe(&mut self, index: u32, addr: IpAddr) -> io::Result<()>;
    /// What changed since the last call.
    fn news(&mut self) -> Vec<News>;
}

/// The real one.
pub struct LinuxKernel {
    netlink: Netlink,
    notifications: Socket,
}

impl LinuxKernel {
    /// Opens the socket for notifications; that for requests is opened by the first.
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

/// The messages in one datagram, as many as are whole.
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
        let nowhere = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];
        let routes = unless(routes, &nowhere)?.unwrap_or_default();
        Ok(routes.first().map(|route| read_route(route, to)))
    }

    fn neighbours(&mut self, index: u32) -> io::Result<Vec<Neighbour>> {
        let known = self.netlink.all(|kernel| {
            let mut request = kernel.neighbours().get();
            request.message_mut().attributes.push(NeighbourAttribute::IfIndex(index));
            request.execute()
        })?;
        let of_link = known.iter().filter(|neighbor| neighbor.header.ifindex == index);
        Ok(of_link.filter_map(read_neighbour).collect())
    }

    fn probe(&mut self, index: u32, addr: IpAddr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(addr);
        message.header.ifindex = index;
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(addr.into()));
        self.netlink.change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
    }

    fn news(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        for _ in 0..NEWS_AT_ONCE {
            match self.notifications.recv_from_full() {
                Ok((datagram, _)) => {
                    news.extend(messages(&datagram).iter().map(|m| match &m.payload {
                        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(entry)) => {
                            read_neighbour(entry).map_or(News::Everything, News::Neighbour)
                        }
                        _ => News::Everything,
                    }));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The kernel had more to say than the socket holds, or worse: look at everything.
                Err(_) => {
                    news.push(News::Everything);
                    break;
                }
            }
        }
        news
    }
}

/// Reads what the appliance needs of an Ethernet interface; `None` of any other.
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

fn read_neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
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
    let known = !matches!(
        state,
        NeighbourState::Incomplete | NeighbourState::Failed | NeighbourState::None
    );
    let fresh = matches!(
        state,
        NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp
    );
    let index = message.header.ifindex;
    Some(Neighbour { index, addr, mac: mac.filter(|_| known), fresh })
}

#[cfg(test)]
mod tests;
