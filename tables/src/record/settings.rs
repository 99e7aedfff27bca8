//! Appliance-wide settings and their limits.

use packet::addr::Addr;

use super::{NoService, Prefix};
use crate::rows::records;

/// Number of punt classes (packets to this host's kernel).
pub const PUNT_CLASSES: usize = 4;

/// Timeouts of flows and fragments in seconds.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// TCP until the client sends again after a reply; if replies bypass this appliance, until the
    /// client's second packet.
    pub tcp_embryonic_s: u32,
    /// TCP, established, half-closed, or reset after it was established.
    pub tcp_established_s: u32,
    /// TCP after FIN from both sides, or after a reset before it was established.
    pub tcp_closed_s: u32,
    /// UDP and other non-TCP protocols until the client sends again after a reply; capped at the
    /// protocol's own timeout.
    pub udp_embryonic_s: u32,
    /// UDP, confirmed.
    pub udp_s: u32,
    /// All other protocols, confirmed.
    pub other_s: u32,
    /// Fragments of one datagram.
    pub fragment_s: u32,
}

impl Timeouts {
    /// Defaults. Those of confirmed flows are the idle timeouts of AWS's Gateway Load Balancer:
    /// 350 s for TCP, 120 s for other protocols.
    pub const DEFAULT: Timeouts = Timeouts {
        tcp_embryonic_s: 20,
        tcp_established_s: 350,
        tcp_closed_s: 10,
        udp_embryonic_s: 30,
        udp_s: 120,
        other_s: 120,
        fragment_s: 15,
    };
}

#[cfg(not(target_arch = "bpf"))]
impl Timeouts {
    /// Returns the longest timeout in seconds; timeouts of single services are not considered.
    pub fn longest_s(&self) -> u32 {
        let Timeouts { tcp_established_s, tcp_embryonic_s, tcp_closed_s, .. } = *self;
        let tcp = tcp_established_s.max(tcp_embryonic_s).max(tcp_closed_s);
        tcp.max(self.udp_s).max(self.other_s).max(self.fragment_s)
    }
}

/// Rate limits of ICMP errors per second and lcore; 0 for no limit.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorLimits {
    /// Errors sent per arm and kind (too big, time exceeded).
    pub by_arm: u32,
    /// Errors sent to one network: an IPv4 /24 or IPv6 /64.
    pub to_network: u32,
    /// Received errors about Weir's tunnel packets that are evaluated for a path MTU.
    pub path_mtu: u32,
}

/// Rate limits of new flows per second and lcore; 0 for no limit.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewFlowLimits {
    /// Flows that need their entry: NAT and proxies.
    pub translated: u32,
    /// Tunnel and direct-server-return flows, which can be forwarded without an entry.
    pub tunneled: u32,
}

impl NewFlowLimits {
    /// Returns whether there is a limit of `translated` flows if the argument is true, else of
    /// `tunneled` flows.
    #[inline(always)]
    pub const fn is_limited(&self, translated: bool) -> bool {
        (if translated { self.translated } else { self.tunneled }) != 0
    }
}

/// Maximum number of local addresses, over both arms.
pub const LOCAL_ADDRS: usize = 16;
/// Maximum number of NAT addresses, over both arms.
pub const NAT_ADDRS: usize = 8;

/// A local address of the appliance.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Local {
    /// The address; unspecified ends the list.
    pub addr: Addr,
    /// Arm: 0 ingress, 1 egress.
    pub arm: u8,
    /// Must be zero.
    pub pad: u8,
    /// MTU of the arm's port in bytes; 0 if unknown.
    pub mtu: u16,
}

/// Maximum number of local ports.
pub const LOCAL_PORTS: usize = 32;
/// Maximum number of BGP neighbors whose packets have the punt class of local ports.
pub const NEIGHBORS: usize = 32;

/// [`LocalPort::flags`]: packets to the port go to this host, even if a frontend matches. Each
/// entry has this flag.
pub const PORT_OWN: u8 = 1;
/// [`LocalPort::flags`]: packets to the port have the punt class of local ports, from any source.
pub const PORT_PROTECTED: u8 = 2;

/// A port on which this host listens.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocalPort {
    /// Port in host byte order; 0 ends the list.
    pub port: u16,
    /// Addresses with this port: bit n stands for `Settings::locals[n]`.
    pub locals: u16,
    /// IP protocol number.
    pub proto: u8,
    /// Bit mask of `PORT_*`.
    pub flags: u8,
    /// Must be zero.
    pub pad: [u8; 2],
}

const _: () = assert!(LOCAL_ADDRS <= 16);

/// Appliance-wide settings. An lcore copies them when it switches generations.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Addresses of this host. Packets to these are punted unless they belong to a tunnel, a
    /// frontend or a NAT flow.
    pub locals: [Local; LOCAL_ADDRS],
    /// Source addresses for NAT, each on the backends' arm; unspecified ends the list.
    pub nat: [Local; NAT_ADDRS],
    /// Timeouts of flows and fragments.
    pub timeouts: Timeouts,
    /// First NAT source port.
    pub nat_port_first: u16,
    /// Last NAT source port.
    pub nat_port_last: u16,
    /// Punted packets per second and lcore by [`crate::punt::PuntClass`]; 0 for no limit.
    pub punt_limits: [u32; PUNT_CLASSES],
    /// Limits of ICMP errors per second and lcore.
    pub error_limits: ErrorLimits,
    /// A [`NoService`] for plain packets that match no service (`Return` is impossible and drops).
    pub plain_no_service: u8,
    /// Must be zero.
    pub pad: [u8; 3],
    /// Ports on which this host listens; port 0 ends the list.
    pub local_ports: [LocalPort; LOCAL_PORTS],
    /// BGP neighbors; an unspecified address ends the list.
    pub neighbors: [Addr; NEIGHBORS],
    /// By arm, the IPv4 network from which outer source addresses of IP-in-IP are chosen; length 0
    /// if the arm's own address is the only source.
    pub ipip_sources: [Prefix; 2],
    /// Limits of new flows per second and lcore.
    pub new_flow_limits: NewFlowLimits,
}

records!(Settings: 1360);

impl Settings {
    /// No addresses, default timeouts; plain packets without a service are dropped.
    pub const EMPTY: Settings = Settings {
        locals: [Local { addr: Addr::UNSPECIFIED, arm: 0, pad: 0, mtu: 0 }; LOCAL_ADDRS],
        nat: [Local { addr: Addr::UNSPECIFIED, arm: 0, pad: 0, mtu: 0 }; NAT_ADDRS],
        timeouts: Timeouts::DEFAULT,
        nat_port_first: 1024,
        nat_port_last: 32767,
        punt_limits: [0; PUNT_CLASSES],
        error_limits: ErrorLimits { by_arm: 0, to_network: 0, path_mtu: 0 },
        plain_no_service: NoService::Drop as u8,
        pad: [0; 3],
        local_ports: [LocalPort { port: 0, locals: 0, proto: 0, flags: 0, pad: [0; 2] };
            LOCAL_PORTS],
        neighbors: [Addr::UNSPECIFIED; NEIGHBORS],
        ipip_sources: [Prefix { addr: Addr::UNSPECIFIED, len: 0, pad: [0; 3] }; 2],
        new_flow_limits: NewFlowLimits { translated: 0, tunneled: 0 },
    };

    /// Returns the outer source of IP-in-IP over IPv4 on this arm for a flow's hash, or `None` if
    /// no network is set. Most flows get different sources, so that a backend's NIC spreads them
    /// over its queues. The low half of the hash selects the source, because the high half selects
    /// the backend and is therefore similar for all flows of a backend.
    #[inline(always)]
    pub fn ipip_source(&self, arm: u8, hash: u64) -> Option<Addr> {
        let network = &self.ipip_sources[usize::from(arm & 1)];
        (network.len != 0).then(|| network.v4_host(hash as u32))
    }

    /// Returns whether [`Settings::ipip_source`] returns this address for some flow.
    #[inline(always)]
    pub fn is_ipip_source(&self, addr: &Addr) -> bool {
        let [ingress, egress] = &self.ipip_sources;
        ingress.len != 0 && ingress.holds(addr) || egress.len != 0 && egress.holds(addr)
    }

    /// Addresses of this host.
    pub fn local_addresses(&self) -> impl Iterator<Item = &Addr> {
        listed(&self.locals).map(|local| &local.addr)
    }

    /// Source addresses for NAT.
    pub fn nat_addresses(&self) -> impl Iterator<Item = &Addr> {
        listed(&self.nat).map(|local| &local.addr)
    }

    /// Returns whether this is an address of this host.
    #[inline(always)]
    pub fn is_local(&self, addr: &Addr) -> bool {
        self.local_addresses().any(|local| local == addr)
    }

    /// Returns whether the address is a NAT address or an IP-in-IP source, at which this host does
    /// not listen.
    #[inline(always)]
    pub fn is_source(&self, addr: &Addr) -> bool {
        self.nat_addresses().any(|nat| nat == addr) || self.is_ipip_source(addr)
    }

    /// Returns the local address on `arm` of the same family as `like`.
    pub fn local_on(&self, arm: u8, like: &Addr) -> Option<&Addr> {
        let on_arm = listed(&self.locals).filter(|local| local.arm & 1 == arm & 1);
        on_arm.map(|local| &local.addr).find(|addr| addr.is_v4() == like.is_v4())
    }

    /// MTU of an arm's port in bytes; 0 if unknown.
    pub fn mtu_of(&self, arm: u8) -> u16 {
        self.locals.iter().find(|local| local.arm == arm).map_or(0, |local| local.mtu)
    }

    /// Flags (`PORT_*`) of a port at a local address; 0 if it is not listed.
    #[inline(always)]
    pub fn own_port(&self, addr: &Addr, proto: u8, port: u16) -> u8 {
        let at = self.locals_at(addr);
        let mut flags = 0;
        if at == 0 || port == 0 {
            return flags;
        }
        for local_port in &self.local_ports {
            if local_port.port == 0 {
                break;
            }
            let same = local_port.port == port && local_port.proto == proto;
            if same && u32::from(local_port.locals) & at != 0 {
                flags |= local_port.flags;
            }
        }
        flags
    }

    /// Returns whether a BGP neighbor has this address.
    #[inline(always)]
    pub fn is_neighbor(&self, addr: &Addr) -> bool {
        for neighbor in &self.neighbors {
            if is_end(neighbor) {
                break;
            }
            if is_same(neighbor, addr) {
                return true;
            }
        }
        false
    }

    /// Returns bit n for the first of `locals` that equals `addr`, or 0. The search ends at the
    /// first match: a value accumulated over the loop would be distinct verifier state per set of
    /// matches.
    #[inline(always)]
    fn locals_at(&self, addr: &Addr) -> u32 {
        for (n, local) in self.locals.iter().enumerate() {
            if is_end(&local.addr) {
                break;
            }
            if is_same(&local.addr, addr) {
                return 1 << n;
            }
        }
        0
    }
}

/// The entries before the first unspecified address.
#[inline(always)]
fn listed(locals: &[Local]) -> impl Iterator<Item = &Local> {
    locals.iter().take_while(|local| !is_end(&local.addr))
}

/// Compares word by word, with a branch for each: the kernel's verifier then abandons a differing
/// address at its first differing word.
#[inline(always)]
fn is_same(a: &Addr, b: &Addr) -> bool {
    let same = |n: usize| a.words[n] == b.words[n];
    same(3) && same(2) && same(1) && same(0)
}

#[inline(always)]
fn is_end(addr: &Addr) -> bool {
    let [a, b, c, d] = addr.words;
    a | b | c | d == 0
}
