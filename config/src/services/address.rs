//! Addresses of frontends and backends.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checked::Prefix;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Scope of a frontend: packets from outside the cluster or from within.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum TrafficScope {
    /// Packets from outside the cluster, which are those that an appliance receives.
    #[default]
    External,
    /// Packets from within the cluster. Such frontends are stored, get backends and are dumped for
    /// other components to read; an appliance receives no such packets.
    Internal,
}

/// Address of a frontend; unique over all services.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// A single address or a network.
    pub prefix: Prefix,
    /// Port; 0 for any.
    pub port: u16,
    /// IP protocol number; 0 for any.
    pub protocol: u8,
    /// Whether the frontend is for packets from outside or within the cluster.
    pub traffic_scope: TrafficScope,
    /// Gateway endpoint to which the frontend is restricted (GENEVE endpoint ID, external VNI); 0
    /// for all.
    pub endpoint: u64,
}

impl Address {
    /// Creates the address of an external frontend for all gateway endpoints.
    pub fn new(addr: IpAddr, port: u16, protocol: u8) -> Address {
        let len = if addr.is_ipv4() { 32 } else { 128 };
        let prefix = Prefix { addr, len };
        Address { prefix, port, protocol, traffic_scope: TrafficScope::External, endpoint: 0 }
    }

    /// Returns the same address for packets from within the cluster.
    pub fn internal(self) -> Address {
        Address { traffic_scope: TrafficScope::Internal, ..self }
    }

    /// Returns whether the address is IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.prefix.addr.is_ipv4()
    }
}

/// Formats as `203.0.113.10:80/TCP`, `[::1]:80/TCP/i` (internal) or `10.0.0.0/8:*/*`, with `@1f2e`
/// appended for an endpoint.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.prefix.is_single(), self.prefix.addr) {
            (true, IpAddr::V4(v4)) => write!(f, "{v4}")?,
            (true, IpAddr::V6(v6)) => write!(f, "[{v6}]")?,
            (false, IpAddr::V4(v4)) => write!(f, "{v4}/{}", self.prefix.len)?,
            (false, IpAddr::V6(v6)) => write!(f, "[{v6}/{}]", self.prefix.len)?,
        }
        write_port_and_protocol(f, self.port, self.protocol)?;
        if self.traffic_scope == TrafficScope::Internal {
            f.write_str("/i")?;
        }
        match self.endpoint {
            0 => Ok(()),
            endpoint => write!(f, "@{endpoint:x}"),
        }
    }
}

/// Address of a backend, which several services may share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// IP address of the backend.
    pub addr: IpAddr,
    /// Port; 0 keeps the frontend's.
    pub port: u16,
    /// IP protocol number; 0 for any.
    pub protocol: u8,
}

/// Formats like [`Address`].
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addr {
            IpAddr::V4(v4) => write!(f, "{v4}")?,
            IpAddr::V6(v6) => write!(f, "[{v6}]")?,
        }
        write_port_and_protocol(f, self.port, self.protocol)
    }
}

fn write_port_and_protocol(f: &mut fmt::Formatter<'_>, port: u16, protocol: u8) -> fmt::Result {
    match port {
        0 => f.write_str(":*/")?,
        port => write!(f, ":{port}/")?,
    }
    match protocol {
        0 => f.write_str("*"),
        1 => f.write_str("ICMP"),
        6 => f.write_str("TCP"),
        17 => f.write_str("UDP"),
        58 => f.write_str("ICMPv6"),
        132 => f.write_str("SCTP"),
        number => write!(f, "{number}"),
    }
}

/// Returns whether the IP address is the unspecified address, `0.0.0.0` or `::`.
pub fn is_unspecified(address: &Address) -> bool {
    address.prefix.is_single() && address.prefix.addr.is_unspecified()
}

/// Returns the address with its IP address replaced by `0.0.0.0` or `::`; `None` for a network.
pub fn wildcard_of(address: &Address) -> Option<Address> {
    let addr = match address.prefix.addr {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let prefix = Prefix { addr, len: address.prefix.len };
    address.prefix.is_single().then_some(Address { prefix, ..*address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_addresses() {
        let web = Address::new("203.0.113.10".parse().unwrap(), 80, 6);
        assert_eq!(web.to_string(), "203.0.113.10:80/TCP");
        let inner = Address::new("::1".parse().unwrap(), 53, 17).internal();
        assert_eq!(inner.to_string(), "[::1]:53/UDP/i");
        let all = Prefix { addr: "10.0.0.0".parse().unwrap(), len: 8 };
        let all = Address { prefix: all, port: 0, protocol: 0, endpoint: 0x1f2e, ..web };
        assert_eq!(all.to_string(), "10.0.0.0/8:*/*@1f2e");
        let backend = Endpoint { addr: "fd00::2".parse().unwrap(), port: 0, protocol: 132 };
        assert_eq!(backend.to_string(), "[fd00::2]:*/SCTP");
    }
}
