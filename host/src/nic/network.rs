//! Addresses, default routes and kinds of the interfaces, from rtnetlink.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::IpAddr;

use netlink::Netlink;
use netlink::rtnetlink::packet_route::AddressFamily;
use netlink::rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use netlink::rtnetlink::packet_route::link::{LinkAttribute, LinkInfo, LinkMessage};
use netlink::rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use serde::{Serialize, Serializer};

/// Properties of the kernel's interfaces that sysfs does not have, by the name of the interface.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Network {
    /// Kind of virtual interfaces: `veth`, `vlan`, `vxlan`, `tun`, ...
    pub kinds: BTreeMap<String, String>,
    /// IP addresses with their prefix lengths.
    pub addresses: BTreeMap<String, Vec<Address>>,
    /// Default routes in use: those of the main table with the smallest metric of their family.
    pub default_routes: BTreeMap<String, Vec<DefaultRoute>>,
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The IP address.
    pub address: IpAddr,
    /// Prefix length of its network.
    pub length: u8,
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A default route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct DefaultRoute {
    /// Whether it is a route of IPv6, otherwise of IPv4.
    pub ipv6: bool,
    /// The router; `None` if the route has none.
    pub gateway: Option<IpAddr>,
    /// Metric of the route; the smallest one is used.
    pub metric: u32,
}

impl Display for DefaultRoute {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.ipv6 { "::/0" } else { "0.0.0.0/0" })?;
        self.gateway.map_or(Ok(()), |gateway| write!(f, " via {gateway}"))
    }
}

/// The kernel's interfaces could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read interfaces, addresses and routes over rtnetlink: {0}")]
pub struct NetworkError(#[from] io::Error);

impl Network {
    /// Reads the interfaces of this process's network namespace.
    pub fn read() -> Result<Network, NetworkError> {
        let mut netlink = Netlink::default();
        let links: Vec<LinkMessage> = netlink.all(|kernel| kernel.link().get().execute())?;
        let addresses = netlink.all(|kernel| kernel.address().get().execute())?;
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            routes.extend(netlink.all(|kernel| kernel.route().get(request).execute())?);
        }
        Ok(Network::of(&links, &addresses, &routes))
    }

    fn of(links: &[LinkMessage], addresses: &[AddressMessage], routes: &[RouteMessage]) -> Network {
        let names: BTreeMap<u32, String> = links
            .iter()
            .filter_map(|link| Some((link.header.index, link_name(link)?.to_owned())))
            .collect();
        let mut network = Network::default();
        for link in links {
            if let (Some(name), Some(kind)) = (link_name(link), link_kind(link)) {
                network.kinds.insert(name.to_owned(), kind);
            }
        }
        for message in addresses {
            let name = names.get(&message.header.index);
            if let (Some(name), Some(address)) = (name, local_address(message)) {
                let of_interface = network.addresses.entry(name.clone()).or_default();
                of_interface.push(Address { address, length: message.header.prefix_len });
            }
        }
        let all: Vec<(u32, DefaultRoute)> = routes.iter().flat_map(default_routes).collect();
        let smallest = |ipv6| {
            let of_family = all.iter().filter(move |(_, route)| route.ipv6 == ipv6);
            of_family.map(|(_, route)| route.metric).min()
        };
        for (index, route) in &all {
            if let (Some(name), true) =
                (names.get(index), smallest(route.ipv6) == Some(route.metric))
            {
                network.default_routes.entry(name.clone()).or_default().push(*route);
            }
        }
        network
    }
}

fn link_name(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

fn link_kind(link: &LinkMessage) -> Option<String> {
    let infos = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    })?;
    infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}

/// Returns the interface's own address: on a point-to-point link `Address` is the peer's.
fn local_address(message: &AddressMessage) -> Option<IpAddr> {
    let attributes = || message.attributes.iter();
    let local = attributes().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    local.or_else(|| {
        attributes().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })
}

fn gateway_of(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        RouteAttribute::Gateway(RouteAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    })
}

/// Returns the interface index and the route for each next hop of a default route of the main
/// table; none for other routes. Tables of policy routing are not considered: clouds' agents add
/// one with a default route for each secondary NIC.
fn default_routes(message: &RouteMessage) -> Vec<(u32, DefaultRoute)> {
    let header = &message.header;
    let table = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    let table = table.unwrap_or(u32::from(header.table));
    if header.destination_prefix_length != 0
        || header.kind != RouteType::Unicast
        || table != u32::from(RouteHeader::RT_TABLE_MAIN)
    {
        return Vec::new();
    }
    let metric = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    let route = |gateway| DefaultRoute {
        ipv6: header.address_family == AddressFamily::Inet6,
        gateway,
        metric: metric.unwrap_or(0),
    };
    let mut routes = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => {
                routes.push((*index, route(gateway_of(&message.attributes))));
            }
            RouteAttribute::MultiPath(hops) => {
                let hop_route = hops
                    .iter()
                    .map(|hop| (hop.interface_index, route(gateway_of(&hop.attributes))));
                routes.extend(hop_route);
            }
            _ => {}
        }
    }
    routes
}

#[cfg(test)]
mod tests;
