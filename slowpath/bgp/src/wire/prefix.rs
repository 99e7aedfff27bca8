//! Encoding of prefixes: a length in bits, followed by the minimum number of octets.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::family::Family;
use super::read::Reader;

/// Returns the encoded size in octets.
pub fn size(prefix: &IpNet) -> usize {
    1 + usize::from(prefix.prefix_len()).div_ceil(8)
}

/// Appends `prefix`.
pub fn write(prefix: &IpNet, to: &mut Vec<u8>) {
    to.push(prefix.prefix_len());
    let octets = size(prefix) - 1;
    match prefix.network() {
        std::net::IpAddr::V4(address) => to.extend_from_slice(&address.octets()[..octets]),
        std::net::IpAddr::V6(address) => to.extend_from_slice(&address.octets()[..octets]),
    }
}

/// Decodes all prefixes of `field`; `None` if one is longer than its family allows or exceeds the
/// field. Bits past the prefix length are cleared. Multicast prefixes are no unicast routes and are
/// left out (RFC 4271 section 6.3).
pub fn read_all(family: Family, field: &[u8]) -> Option<Vec<IpNet>> {
    let mut reader = Reader(field);
    let mut prefixes = Vec::new();
    while !reader.is_empty() {
        let length = reader.u8()?;
        let octets = reader.take(usize::from(length).div_ceil(8))?;
        let prefix = match family {
            Family::Ipv4Unicast => {
                let mut address = [0; 4];
                address.get_mut(..octets.len())?.copy_from_slice(octets);
                IpNet::V4(Ipv4Net::new(Ipv4Addr::from(address), length).ok()?)
            }
            Family::Ipv6Unicast => {
                let mut address = [0; 16];
                address.get_mut(..octets.len())?.copy_from_slice(octets);
                IpNet::V6(Ipv6Net::new(Ipv6Addr::from(address), length).ok()?)
            }
        };
        if !prefix.addr().is_multicast() || length == 0 {
            prefixes.push(prefix.trunc());
        }
    }
    Some(prefixes)
}
