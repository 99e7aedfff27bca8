//! What holds for the whole appliance, in a record of its own.

use packet::addr::Addr;

use super::NoService;

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
        udp_s: 120,
        other_s: 120,
        fragment_s: 15,
    };
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
    /// Punted packets per second and lcore; 0 for no limit.
    pub punt_limit: u32,
    /// A [`NoService`] for plain packets that are for nobody (`Return` is not possible: drops).
    pub plain_no_service: u8,
    /// Zero.
    pub pad: [u8; 3],
}

impl Settings {
    /// No addresses, the clouds' timeouts, plain packets for nobody are dropped.
    pub const EMPTY: Settings = Settings {
        locals: [Local { addr: Addr::UNSPECIFIED, arm: 0, pad: 0, mtu: 0 }; LOCAL_ADDRS],
        nat: [Local { addr: Addr::UNSPECIFIED, arm: 0, pad: 0, mtu: 0 }; NAT_ADDRS],
        timeouts: Timeouts::DEFAULT,
        nat_port_first: 1024,
        nat_port_last: 32767,
        punt_limit: 0,
        plain_no_service: NoService::Drop as u8,
        pad: [0; 3],
    };
}
