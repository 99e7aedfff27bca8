//! Ports that the appliance itself answers on at its arms' addresses. No frontend may have them:
//! the cloud's health probe would be balanced to a backend.
//!
//! This is the one rule. The services file is checked against it, and so is every object of every
//! source before it becomes a row; the region gets the ports for packets that a wildcard frontend
//! or a network would match ([`Reserved::ports`]).

use std::net::{IpAddr, SocketAddr};

use super::{Config, Prefix};

/// Most ports that the region has room for ([`Reserved::ports`]).
pub const MAX_LOCAL_PORTS: usize = 32;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Ports that no setting moves: a router connects to the first, and BFD's are fixed by RFC 5881 4
/// and RFC 5883 5; echo packets come to 3785.
const ROUTING: [(u8, u16, &str); 4] = [
    (TCP, 179, "BGP"),
    (UDP, 3784, "BFD (single hop)"),
    (UDP, 4784, "BFD (multihop)"),
    (UDP, 3785, "BFD (echo)"),
];

/// A port of the appliance itself, and the setting that says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedPort {
    /// The listener's address; unspecified for all addresses of the family, `::` for both.
    pub addr: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// The port.
    pub port: u16,
    /// The setting or protocol that has it: `health.listen`, `gateway "edge"`, `BGP`.
    pub holder: String,
    /// What arrives for it has the punt class `local`, from any source.
    pub protected: bool,
    /// It is a tunnel's: packets to it never reach a look-up of frontends.
    pub tunnel: bool,
}

/// All ports of the appliance itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reserved {
    addresses: Vec<IpAddr>,
    ports: Vec<ReservedPort>,
}

impl Reserved {
    /// The ports that `config` reserves.
    pub fn of(config: &Config) -> Reserved {
        let arms = config.arms().flat_map(|(_, arm)| &arm.addresses);
        let addresses = arms.map(|interface| interface.addr).collect();
        let mut reserved = Reserved { addresses, ports: Vec::new() };
        let (health, metrics) = (&config.health, &config.metrics);
        reserved.listeners("health.listen", &health.listen);
        reserved.listeners("health.tcp", &health.tcp);
        reserved.listeners("metrics.listen", std::slice::from_ref(&metrics.listen));
        reserved.listeners("api.listen", config.api.iter().flat_map(|api| &api.listen));
        let any = IpAddr::from([0; 16]);
        for port in &config.punt.local_ports {
            reserved.add((any, TCP, *port), "punt.local_ports", (true, false));
        }
        for (protocol, port, holder) in ROUTING {
            reserved.add((any, protocol, port), holder, (false, false));
        }
        for gateway in &config.gateways {
            let holder = format!("gateway \"{}\"", gateway.name);
            for tunnel in &gateway.tunnels {
                reserved.add((tunnel.local, UDP, tunnel.port), &holder, (false, true));
            }
        }
        reserved
    }

    fn listeners<'a>(&mut self, holder: &str, all: impl IntoIterator<Item = &'a SocketAddr>) {
        for socket in all {
            self.add((socket.ip(), TCP, socket.port()), holder, (true, false));
        }
    }

    /// Adds a port, unless it is at an address that no arm has: loopback, a management network.
    fn add(
        &mut self,
        (addr, protocol, port): (IpAddr, u8, u16),
        holder: &str,
        (protected, tunnel): (bool, bool),
    ) {
        let holder = holder.to_owned();
        let new = ReservedPort { addr, protocol, port, holder, protected, tunnel };
        if self.addresses.iter().any(|own| new.covers(*own)) {
            self.ports.push(new);
        }
    }

    /// The port of the appliance that a frontend at exactly this address, port and protocol would
    /// have; `0.0.0.0` and `::` stand for all own addresses, as node ports are written.
    ///
    /// A frontend of any port or of a network is no conflict: it stays usable for all else, and
    /// packets to these ports go past it.
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

    /// The ports whose packets are the kernel's, for the region: all but the tunnels', each once
    /// per protocol, with what it covers.
    pub fn ports(&self) -> impl Iterator<Item = &ReservedPort> {
        self.ports.iter().filter(|port| !port.tunnel)
    }

    /// How many places the region needs for [`Reserved::ports`].
    pub fn distinct(&self) -> usize {
        let mut all: Vec<(u8, u16)> = self.ports().map(|p| (p.protocol, p.port)).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }
}

impl ReservedPort {
    /// Whether it is on this address of the appliance.
    pub fn covers(&self, own: IpAddr) -> bool {
        match self.addr {
            IpAddr::V4(addr) if addr.is_unspecified() => own.is_ipv4(),
            IpAddr::V6(addr) if addr.is_unspecified() => true,
            addr => addr == own,
        }
    }
}
