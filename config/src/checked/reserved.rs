//! Ports that the appliance itself uses at its arms' addresses. Frontends may not use them:
//! otherwise, for example, the cloud's health probes would be balanced to a backend.
//!
//! The services file, and each object before it becomes a table row, are validated with
//! [`Reserved::holder`]. A frontend for any port or for a network may still match packets to these
//! ports, so slowpath writes the ports to the region as well ([`Reserved::ports`]).

use std::net::{IpAddr, SocketAddr};

use super::{Config, Prefix};

/// Maximum number of ports that the region can hold ([`Reserved::ports`]).
pub const MAX_LOCAL_PORTS: usize = 32;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Ports that are reserved with every configuration: BGP (RFC 4271), and BFD (RFC 5881 §4, RFC 5883
/// §5).
const ROUTING: [(u8, u16, &str); 4] = [
    (TCP, 179, "BGP"),
    (UDP, 3784, "BFD (single hop)"),
    (UDP, 4784, "BFD (multihop)"),
    (UDP, 3785, "BFD (echo)"),
];

/// A port of the appliance itself, and the setting that reserves it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedPort {
    /// The listener's address; `0.0.0.0` for all IPv4 addresses, `::` for all addresses of both
    /// families.
    pub addr: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Port number.
    pub port: u16,
    /// Setting or protocol that uses the port: `health.listen`, `gateway "edge"`, `BGP`.
    pub holder: String,
    /// Packets to the port are in punt class `local`, whatever their source.
    pub protected: bool,
    /// The port belongs to a gateway's tunnel: packets to it are never looked up among frontends.
    pub tunnel: bool,
}

/// Use of a port by the appliance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortUse {
    /// A listener of this machine, in punt class `local`.
    Listener,
    /// BGP or BFD: packets of configured neighbors are in punt class `local`, others are not.
    Routing,
    /// A gateway's tunnel.
    Tunnel,
}

/// All ports that the appliance itself uses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reserved {
    addresses: Vec<IpAddr>,
    ports: Vec<ReservedPort>,
}

impl Reserved {
    /// Returns the ports that `config` reserves.
    pub fn of(config: &Config) -> Reserved {
        let arms = config.arms().flat_map(|(_, arm)| &arm.addresses);
        let addresses = arms.map(|interface| interface.addr).collect();
        let mut reserved = Reserved { addresses, ports: Vec::new() };
        let (health, metrics) = (&config.health, &config.metrics);
        reserved.listeners("health.listen", &health.listen);
        reserved.listeners("health.tcp", &health.tcp);
        reserved.listeners("metrics.listen", &metrics.listen);
        reserved.listeners("api.listen", config.api.iter().flat_map(|api| &api.listen));
        let any = IpAddr::from([0; 16]);
        for port in &config.punt.local_ports {
            reserved.add((any, TCP, *port), "punt.local_ports", PortUse::Listener);
        }
        for (protocol, port, holder) in ROUTING {
            reserved.add((any, protocol, port), holder, PortUse::Routing);
        }
        for gateway in &config.gateways {
            let holder = format!("gateway \"{}\"", gateway.name);
            for tunnel in &gateway.tunnels {
                reserved.add((tunnel.local, UDP, tunnel.port), &holder, PortUse::Tunnel);
            }
        }
        reserved
    }

    fn listeners<'a>(&mut self, holder: &str, all: impl IntoIterator<Item = &'a SocketAddr>) {
        for socket in all {
            self.add((socket.ip(), TCP, socket.port()), holder, PortUse::Listener);
        }
    }

    /// Adds a port, unless no arm has its address, as for loopback or a management network.
    fn add(&mut self, (addr, protocol, port): (IpAddr, u8, u16), holder: &str, port_use: PortUse) {
        let holder = holder.to_owned();
        let protected = port_use == PortUse::Listener;
        let tunnel = port_use == PortUse::Tunnel;
        let new = ReservedPort { addr, protocol, port, holder, protected, tunnel };
        if self.addresses.iter().any(|own| new.covers(*own)) {
            self.ports.push(new);
        }
    }

    /// Returns the appliance's port that a frontend at exactly this address, port and protocol
    /// would occupy. `0.0.0.0` and `::`, as written for node ports, stand for all addresses of the
    /// arms of that family.
    ///
    /// Frontends with any port and networks do not conflict: they remain usable for other traffic,
    /// and packets to reserved ports bypass them.
    pub fn holder(&self, prefix: &Prefix, port: u16, protocol: u8) -> Option<&ReservedPort> {
        if port == 0 || !prefix.is_single() {
            return None;
        }
        let v4 = prefix.addr.is_ipv4();
        let family = self.addresses.iter().filter(|own| own.is_ipv4() == v4);
        let mut taken = family.filter(|own| prefix.addr.is_unspecified() || **own == prefix.addr);
        taken.find_map(|own| {
            let same = |p: &&ReservedPort| p.port == port && p.protocol == protocol;
            self.ports.iter().filter(same).find(|p| p.covers(*own))
        })
    }

    /// Returns the ports whose packets go to the kernel, for the region: all but those of tunnels.
    /// A port is listed once for each address or setting that reserves it.
    pub fn ports(&self) -> impl Iterator<Item = &ReservedPort> {
        self.ports.iter().filter(|port| !port.tunnel)
    }

    /// Returns the number of distinct protocol and port pairs in [`Reserved::ports`].
    pub fn distinct(&self) -> usize {
        let mut all: Vec<(u8, u16)> = self.ports().map(|p| (p.protocol, p.port)).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }
}

impl ReservedPort {
    /// Returns whether the port is reserved on `own`, an address of an arm.
    pub fn covers(&self, own: IpAddr) -> bool {
        match self.addr {
            IpAddr::V4(addr) if addr.is_unspecified() => own.is_ipv4(),
            IpAddr::V6(addr) if addr.is_unspecified() => true,
            addr => addr == own,
        }
    }
}
