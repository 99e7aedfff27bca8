//! What Weir asks the kernel over rtnetlink: a link, a route, its neighbours, and to probe one.
//!
//! The kernel answers a request before `send` returns, so the sockets are non-blocking and nothing
//! here ever waits: an answer that isn't there is an error.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// The multicast groups that say something about next hops (linux/rtnetlink.h `RTNLGRP_*`).
const GROUPS: [u32; 4] =
    [1 /* LINK */, 3 /* NEIGH */, 7 /* IPV4_ROUTE */, 11 /* IPV6_ROUTE */];

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
pub struct Netlink {
    asker: Asker,
    heard: Socket,
}

/// Asks the kernel, one request after the other.
pub struct Asker {
    ask: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens both sockets: one to ask, one to be told.
    pub fn open() -> io::Result<Netlink> {
        let mut heard = Socket::new(NETLINK_ROUTE)?;
        heard.bind_auto()?;
        heard.set_non_blocking(true)?;
        for group in GROUPS {
            heard.add_membership(group)?;
        }
        Ok(Netlink { asker: Asker::open()?, heard })
    }
}

impl Asker {
    /// Opens a socket to ask by.
    pub fn open() -> io::Result<Asker> {
        let mut ask = Socket::new(NETLINK_ROUTE)?;
        ask.bind_auto()?;
        ask.connect(&SocketAddr::new(0, 0))?;
        ask.set_non_blocking(true)?;
        Ok(Asker { ask, sequence: 0 })
    }

    /// Sends one request and returns all answers to it.
    pub(crate) fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.ask.send(&bytes, 0)?;

        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.ask.recv_from_full()?;
            for answer in messages(&datagram) {
                if answer.header.sequence_number != self.sequence {
                    continue; // a late answer to a request that was given up
                }
                let part = answer.header.flags & netlink_packet_core::NLM_F_MULTIPART != 0;
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(answers),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    _ => {}
                }
                if !part && flags & NLM_F_ACK == 0 {
                    return Ok(answers);
                }
            }
        }
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

fn none_if(result: io::Result<Vec<RouteNetlinkMessage>>, codes: &[i32]) -> Answers {
    match result {
        Err(e) if e.raw_os_error().is_some_and(|code| codes.contains(&code)) => Ok(Vec::new()),
        other => other,
    }
}

/// What the kernel says to a request.
pub(crate) type Answers = io::Result<Vec<RouteNetlinkMessage>>;

/// What keeps things in the kernel as they are wanted, asked for the first time when there is
/// something to ask.
#[derive(Default)]
pub(crate) struct Keeper(Option<Asker>);

impl Keeper {
    /// All that there is of a kind.
    pub(crate) fn all(&mut self, of: RouteNetlinkMessage) -> Answers {
        self.request(of, NLM_F_DUMP)
    }

    /// Makes a thing; no harm if somebody was faster.
    pub(crate) fn add(&mut self, new: RouteNetlinkMessage) -> io::Result<()> {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        none_if(self.request(new, flags), &[libc::EEXIST]).map(drop)
    }

    /// Takes a thing off; no harm if somebody was faster, which the kernel tells as `gone`.
    pub(crate) fn remove(&mut self, old: RouteNetlinkMessage, gone: i32) -> io::Result<()> {
        none_if(self.request(old, NLM_F_ACK), &[gone]).map(drop)
    }

    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> Answers {
        let asker = match &mut self.0 {
            Some(asker) => asker,
            none => none.insert(Asker::open()?),
        };
        asker.request(message, flags)
    }
}

impl Kernel for Netlink {
    fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let request = self.asker.request(RouteNetlinkMessage::GetLink(message), 0);
        let answers = none_if(request, &[libc::ENODEV])?;
        Ok(answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => read_link(link),
            _ => None,
        }))
    }

    fn route(&mut self, index: u32, to: IpAddr) -> io::Result<Option<Route>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = if to.is_ipv4() { 32 } else { 128 };
        message.attributes.push(RouteAttribute::Destination(to.into()));
        message.attributes.push(RouteAttribute::Oif(index));
        let request = self.asker.request(RouteNetlinkMessage::GetRoute(message), 0);
        let nowhere = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];
        let answers = none_if(request, &nowhere)?;
        Ok(answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(read_route(route, to)),
            _ => None,
        }))
    }

    fn neighbours(&mut self, index: u32) -> io::Result<Vec<Neighbour>> {
        let mut message = NeighbourMessage::default();
        message.attributes.push(NeighbourAttribute::IfIndex(index));
        let answers = self.asker.request(RouteNetlinkMessage::GetNeighbour(message), NLM_F_DUMP)?;
        let of_link = |answer: &RouteNetlinkMessage| match answer {
            RouteNetlinkMessage::NewNeighbour(entry) if entry.header.ifindex == index => {
                read_neighbour(entry)
            }
            _ => None,
        };
        Ok(answers.iter().filter_map(of_link).collect())
    }

    fn probe(&mut self, index: u32, addr: IpAddr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(addr);
        message.header.ifindex = index;
        message.header.flags = NeighbourFlags::Use;
        let addr = match addr {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        };
        message.attributes.push(NeighbourAttribute::Destination(addr));
        let flags = NLM_F_CREATE | NLM_F_ACK;
        self.asker.request(RouteNetlinkMessage::NewNeighbour(message), flags).map(drop)
    }

    fn news(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        for _ in 0..NEWS_AT_ONCE {
            match self.heard.recv_from_full() {
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

fn family(addr: IpAddr) -> AddressFamily {
    if addr.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn read_link(message: &LinkMessage) -> Option<Link> {
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
