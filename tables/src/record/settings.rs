//! What holds for the whole appliance, in a record of its own.

use packet::addr::Addr;

use super::{NoService, Prefix};
use crate::rows::records;

/// How many classes of packets for this machine itself there are.
pub const PUNT_CLASSES: usize = 4;

/// Flow timeouts in seconds (contract §2).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// TCP before both sides were seen.
    pub tcp_embryonic_s: u32,
    /// TCP established and idle.
    pub tcp_established_s: u32,
    /// TCP after FIN from both sides, or RST.
    pub tcp_closed_s: u32,
    /// UDP and what is neither TCP nor UDP, before the client went on after an answer; at most the
    /// protocol's own.
    pub udp_embryonic_s: u32,
    /// UDP.
    pub udp_s: u32,
    /// All other protocols.
    pub other_s: u32,
    /// Fragments of one datagram.
    pub fragment_s: u32,
}

impl Timeouts {
    /// The clouds' own defaults: AWS closes TCP after 350 s, everything else after 120 s.
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
    /// The longest time for which a flow is idle before it ends, but for services with a time of
    /// their own.
    pub fn longest_s(&self) -> u32 {
        let Timeouts { tcp_established_s, tcp_embryonic_s, tcp_closed_s, .. } = *self;
        let tcp = tcp_established_s.max(tcp_embryonic_s).max(tcp_closed_s);
        tcp.max(self.udp_s).max(self.other_s).max(self.fragment_s)
    }
}

/// How many ICMP errors are sent and believed in a second by each lcore; 0 for no limit.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorLimits {
    /// Sent by an arm, of each kind (too-big, time exceeded).
    pub by_arm: u32,
    /// Sent to a network: an IPv4 /24, an IPv6 /64.
    pub to_network: u32,
    /// About our own tunnel packets, looked at for a path MTU.
    pub path_mtu: u32,
}

/// How many flows an lcore begins in a second; 0 for no limit.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewFlowLimits {
    /// Flows that need their entry: by NAT, and to proxies.
    pub translated: u32,
    /// Flows by tunnel and direct return, which go on without an entry.
    pub tunnelled: u32,
}

impl NewFlowLimits {
    /// Whether there is a limit for flows that need their entry (`translated`), or for the others.
    #[inline(always)]
    pub const fn limit(&self, translated: bool) -> bool {
        (if translated { self.translated } else { self.tunnelled }) != 0
    }
}

/// How many addresses of ours an arm may have.
pub const LOCAL_ADDRS: usize = 16;
/// How many NAT addresses there may be in all.
pub const NAT_ADDRS: usize = 8;

/// An address of ours.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Local {
    /// The address; unspecified ends the list.
    pub addr: Addr,
    /// 0 ingress, 1 egress.
    pub arm: u8,
    /// Zero.
    pub pad: u8,
    /// The largest IP packet that the arm's port takes, bytes; 0 where nobody asks.
    pub mtu: u16,
}

/// How many ports of this machine itself there may be.
pub const LOCAL_PORTS: usize = 32;
/// How many BGP neighbors have the punt class of local ports.
pub const NEIGHBORS: usize = 32;

/// [`LocalPort::flags`]: packets to it are this machine's, whichever frontend would match. Set in
/// each entry.
pub const PORT_OWN: u8 = 1;
/// [`LocalPort::flags`]: packets to it have the punt class of local ports, whoever sends them.
pub const PORT_PROTECTED: u8 = 2;

/// A port that this machine itself answers on.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocalPort {
    /// Host order; 0 ends the list.
    pub port: u16,
    /// On which addresses: bit n stands for `Settings::locals[n]`.
    pub locals: u16,
    /// IP protocol.
    pub proto: u8,
    /// `PORT_*`.
    pub flags: u8,
    /// Zero.
    pub pad: [u8; 2],
}

const _: () = assert!(LOCAL_ADDRS <= 16);

/// What holds for the whole appliance. An lcore copies it at each switch.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Addresses of this machine: packets to them are punted unless a tunnel or NAT claims them.
    pub locals: [Local; LOCAL_ADDRS],
    /// Source addresses for NAT; unspecified ends the list. Each is on the backends' arm.
    pub nat: [Local; NAT_ADDRS],
    /// Flow timeouts.
    pub timeouts: Timeouts,
    /// First NAT source port.
    pub nat_port_first: u16,
    /// Last NAT source port.
    pub nat_port_last: u16,
    /// Punted packets per second and lcore by [`crate::punt::PuntClass`]; 0 for no limit.
    pub punt_limits: [u32; PUNT_CLASSES],
    /// ICMP errors per second and lcore.
    pub error_limits: ErrorLimits,
    /// A [`NoService`] for plain packets that are for nobody (`Return` is not possible: drops).
    pub plain_no_service: u8,
    /// Zero.
    pub pad: [u8; 3],
    /// Ports of this machine itself; one with port 0 ends the list.
    pub local_ports: [LocalPort; LOCAL_PORTS],
    /// BGP neighbors; unspecified ends the list.
    pub neighbors: [Addr; NEIGHBORS],
    /// By arm, the IPv4 network from which IP in IP's outer sources are drawn; its length is 0
    /// where the arm's own address is the only source.
    pub ipip_sources: [Prefix; 2],
    /// New flows per second and lcore.
    pub new_flow_limits: NewFlowLimits,
}

records!(Settings: 1360);

impl Settings {
    /// No addresses, the clouds' timeouts, plain packets for nobody are dropped.
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
        new_flow_limits: NewFlowLimits { translated: 0, tunnelled: 0 },
    };

    /// The outer source of IP in IP over IPv4 by this arm, for a flow's hash: another one for most
    /// flows, so that a backend's NIC spreads them over its queues. None where no network is set.
    /// The low half of the hash decides, because the high half picks the backend.
    #[inline(always)]
    pub fn ipip_source(&self, arm: u8, hash: u64) -> Option<Addr> {
        let network = &self.ipip_sources[usize::from(arm & 1)];
        (network.len != 0).then(|| network.v4_host(hash as u32))
    }

    /// Whether [`Settings::ipip_source`] gives this address for some flow.
    #[inline(always)]
    pub fn is_ipip_source(&self, addr: &Addr) -> bool {
        let [ingress, egress] = &self.ipip_sources;
        ingress.len != 0 && ingress.holds(addr) || egress.len != 0 && egress.holds(addr)
    }

    /// The addresses of this machine.
    pub fn local_addresses(&self) -> impl Iterator<Item = &Addr> {
        listed(&self.locals).map(|local| &local.addr)
    }

    /// The addresses that NAT sends from.
    pub fn nat_addresses(&self) -> impl Iterator<Item = &Addr> {
        listed(&self.nat).map(|local| &local.addr)
    }

    /// Whether this is an address of this machine.
    #[inline(always)]
    pub fn is_local(&self, addr: &Addr) -> bool {
        self.local_addresses().any(|local| local == addr)
    }

    /// Whether an address is ours as a source alone: NAT's, and what IP in IP is sent from.
    #[inline(always)]
    pub fn is_source(&self, addr: &Addr) -> bool {
        self.nat_addresses().any(|nat| nat == addr) || self.is_ipip_source(addr)
    }

    /// Our address of the family of `like` on `arm`.
    pub fn local_on(&self, arm: u8, like: &Addr) -> Option<&Addr> {
        let on_arm = listed(&self.locals).filter(|local| local.arm & 1 == arm & 1);
        on_arm.map(|local| &local.addr).find(|addr| addr.is_v4() == like.is_v4())
    }

    /// The largest IP packet that an arm's port takes, bytes; 0 where that is not known.
    pub fn mtu_of(&self, arm: u8) -> u16 {
        self.locals.iter().find(|local| local.arm == arm).map_or(0, |local| local.mtu)
    }

    /// What is known of a port at an address of this machine: `PORT_*`, 0 for nothing.
    #[inline(always)]
    pub fn own_port(&self, addr: &Addr, proto: u8, port: u16) -> u8 {
        let at = self.locals_at(addr);
        let mut flags = 0;
        if at == 0 || port == 0 {
            return flags;
        }
        for known in &self.local_ports {
            if known.port == 0 {
                break;
            }
            let same = known.port == port && known.proto == proto;
            if same && u32::from(known.locals) & at != 0 {
                flags |= known.flags;
            }
        }
        flags
    }

    /// Whether a BGP neighbor has this address.
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

    /// Bit n for the first of `locals` that is this address; 0 for none. What a loop collects over
    /// its turns is a state of its own for the kernel's verifier, which then looks at each set of
    /// matches; so a search ends with the first.
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

/// Those that are set; an unspecified address ends the list.
#[inline(always)]
fn listed(locals: &[Local]) -> impl Iterator<Item = &Local> {
    locals.iter().take_while(|local| !is_end(&local.addr))
}

/// Word by word: the kernel's verifier forgets a word that differs before it looks at the next.
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
