//! The records that slowpath writes and both data planes read.
//!
//! All are plain `repr(C)` data of fixed size without padding, so that they can be checksummed,
//! dumped, and laid into BPF maps unchanged. Indices between them are `u32` and are checked by
//! whoever follows them: a reader never trusts the other process.

mod settings;

use packet::addr::Addr;
use packet::ip::{L4, TCP, UDP};
use packet::rewrite::{ACK, RST, SYN};

use crate::rows::records;

pub use crate::rows::Record;
pub use packet::tunnel::TunnelKind;
pub use settings::{
    ErrorLimits, LOCAL_ADDRS, LOCAL_PORTS, Local, LocalPort, NAT_ADDRS, NEIGHBORS, NewFlowLimits,
    PORT_OWN, PORT_PROTECTED, PUNT_CLASSES, Settings, Timeouts,
};

/// "No such record": an index that refers to nothing.
pub const NONE: u32 = u32::MAX;

/// What is done with a packet that matches no service (`Tunnel::no_service`,
/// `Settings::plain_no_service`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
#[repr(u8)]
pub enum NoService {
    /// Back to the gateway, untouched (gateways only).
    Return = 0,
    /// Dropped as `no-service`.
    Drop = 1,
    /// To this machine's kernel.
    Punt = 2,
}

impl NoService {
    /// Returns what a record's number stands for; an unknown number drops, the safe side.
    #[inline(always)]
    pub const fn from_u8(n: u8) -> NoService {
        match n {
            0 => NoService::Return,
            2 => NoService::Punt,
            _ => NoService::Drop,
        }
    }
}

/// [`Tunnel::flags`]: `return` leaves by [`Tunnel::peer`] (Azure crosses External and Internal).
pub const TUNNEL_CROSS: u16 = 1;
/// [`Tunnel::flags`]: answer an inner packet above `inner_mtu` with an ICMP error.
pub const TUNNEL_REPLY_TOO_BIG: u16 = 2;
/// [`Tunnel::flags`]: outer UDP checksum is filled in where it could be zero.
pub const TUNNEL_CHECKSUM: u16 = 4;
/// [`Tunnel::flags`]: no longer configured, accepted for a grace period.
pub const TUNNEL_RETIRED: u16 = 8;
/// [`Tunnel::flags`]: not a gateway's: what backends of tunnel services send back comes by it.
pub const TUNNEL_BACKEND: u16 = 16;

/// How many source prefixes a gateway tunnel admits.
pub const TUNNEL_SOURCES: usize = 8;

/// A prefix; `len` counts in the 128-bit form.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Prefix {
    /// The network.
    pub addr: Addr,
    /// Bits that count, 0 to 128 (IPv4 /24 is 120).
    pub len: u8,
    /// Zero.
    pub pad: [u8; 3],
}

impl Prefix {
    /// Whether it holds an address. Without branches and wide numbers: the kernel's program asks it
    /// of each packet.
    #[inline(always)]
    pub fn holds(&self, addr: &Addr) -> bool {
        let mut differs = 0;
        for i in 0..4 {
            let bits = u32::from(self.len).saturating_sub(32 * i as u32).min(32);
            let mask = !((u64::from(u32::MAX) >> bits) as u32);
            differs |= (addr.words[i] ^ self.addr.words[i]) & mask.to_be();
        }
        differs == 0
    }

    /// The address of this IPv4 network whose host bits are the low ones of `n`.
    #[inline(always)]
    pub fn v4_host(&self, n: u32) -> Addr {
        let network_bits = u32::from(self.len).saturating_sub(96).min(32);
        let hosts = (u64::from(u32::MAX) >> network_bits) as u32;
        let [a, b, c, d] = self.addr.words;
        Addr { words: [a, b, c, d | (n & hosts).to_be()] }
    }
}

/// As the slot arena keeps it.
#[cfg(not(target_arch = "bpf"))]
impl Prefix {
    pub(crate) fn words(&self) -> [u32; 5] {
        let [a, b, c, d] = self.addr.words;
        [a, b, c, d, u32::from(self.len)]
    }

    pub(crate) fn of([a, b, c, d, len]: [u32; 5]) -> Prefix {
        Prefix { addr: Addr { words: [a, b, c, d] }, len: len as u8, pad: [0; 3] }
    }
}

/// A tunnel by which a gateway reaches us. An lcore copies the live ones at each switch.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tunnel {
    /// Our address, the outer destination.
    pub local: Addr,
    /// Admitted outer sources; the first `source_count`. None admits nothing.
    pub sources: [Prefix; TUNNEL_SOURCES],
    /// For VXLAN, what its scope is interned from: the same for both tunnels of a pair.
    pub scope_key: u64,
    /// VXLAN network identifier; unused for GENEVE (any VNI is echoed).
    pub vni: u32,
    /// The tunnel that `return` crosses to, or [`NONE`].
    pub peer: u32,
    /// Gateway number, the same for all tunnels of one gateway.
    pub gateway: u16,
    /// Outer UDP destination port, host order.
    pub port: u16,
    /// GENEVE option class of the gateway's three options (0x0108 on AWS).
    pub option_class: u16,
    /// Largest inner IP packet in bytes (8,500 on AWS).
    pub inner_mtu: u16,
    /// `TUNNEL_*`.
    pub flags: u16,
    /// A [`TunnelKind`].
    pub kind: u8,
    /// A [`NoService`].
    pub no_service: u8,
    /// How many of `sources` count.
    pub source_count: u8,
    /// Arm it arrives on: 0 ingress, 1 egress.
    pub arm: u8,
    /// Zero.
    pub pad: [u8; 2],
}

impl Tunnel {
    /// Whether the gateway's nodes may send from `source`.
    #[inline(always)]
    pub fn admits(&self, source: &Addr) -> bool {
        let mut admitted = false;
        for (i, prefix) in self.sources.iter().enumerate() {
            admitted |= i < usize::from(self.source_count) && prefix.holds(source);
        }
        admitted
    }
}

/// How a service's packets reach its backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Rewritten to the backend, source NAT to an address of ours.
    Nat = 1,
    /// In a tunnel, inner packet unchanged, with a return leg.
    Tunnel = 2,
    /// In a tunnel, for plain flows: the backend answers by itself.
    Dsr = 3,
}

impl Mode {
    /// The mode for its number in a record, if it is one.
    pub const fn from_u8(n: u8) -> Option<Mode> {
        match n {
            1 => Some(Mode::Nat),
            2 => Some(Mode::Tunnel),
            3 => Some(Mode::Dsr),
            _ => None,
        }
    }
}

/// [`Service::flags`]: outer UDP checksum is filled in where it could be zero.
pub const SERVICE_CHECKSUM: u16 = 1;
/// [`Service::flags`]: outer DF is set.
pub const SERVICE_DF: u16 = 2;
/// [`Service::flags`]: too big for the way to the backend is answered with an ICMP error.
pub const SERVICE_REPLY_TOO_BIG: u16 = 4;
/// [`Service::flags`]: clients in its source ranges are refused, and not the only ones admitted.
pub const SERVICE_DENY: u16 = 8;
/// [`Service::flags`]: its slots are filled by weight alone. For dumps; no packet asks.
pub const SERVICE_RANDOM: u16 = 16;

/// [`Service::flags`]: UDP flows and pings stay with a failed backend.
pub const SERVICE_FAILED_UDP_KEEP: u16 = 32;
/// [`Service::flags`]: TCP connections to a failed backend are reset.
pub const SERVICE_FAILED_TCP_RESET: u16 = 64;

/// Slot arrays that a service may refer to at once: the current one and those being retired.
pub const SLOT_ARRAYS: usize = 4;

/// A run of the slot arena: `count` words from `first`, of a Maglev array backend ids.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotArray {
    /// First slot's index in the arena.
    pub first: u32,
    /// How many, of a Maglev array a prime; 0 for "none".
    pub count: u32,
    /// When flows need it no more, seconds of the region's clock; 0 for the current one.
    pub retire_s: u32,
}

/// A service: its policy and its choice of backends.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Service {
    /// `slots[0]` is the current one. All empty when at most one backend serves.
    pub slots: [SlotArray; SLOT_ARRAYS],
    /// The only serving backend when `slots[0]` is empty, or [`NONE`] when nothing serves.
    pub single: u32,
    /// Bounds of its source ranges: see [`crate::run`]. Without any, everybody is admitted.
    pub ranges: SlotArray,
    /// Ids of the backends that its clients may stay with, in rising order.
    pub stays: SlotArray,
    /// Seconds for which a client stays with its backend; 0 for no affinity.
    pub affinity_s: u32,
    /// VNI towards the backends (VXLAN, GENEVE).
    pub vni: u32,
    /// TCP established idle time in seconds; 0 for the gateway's.
    pub tcp_idle_s: u32,
    /// UDP destination port of the tunnel to the backends, host order.
    pub tunnel_port: u16,
    /// `SERVICE_*`.
    pub flags: u16,
    /// Upper bound for the MSS option of passing SYNs; 0 for none.
    pub mss: u16,
    /// A [`Mode`].
    pub mode: u8,
    /// A [`TunnelKind`] for modes tunnel and dsr, else 0.
    pub tunnel: u8,
    /// Port of the proxy on this machine that its flows go to, host order; 0 for none.
    pub proxy_port: u16,
    /// UDP idle time in seconds; 0 for the settings'.
    pub udp_idle_s: u16,
}

/// What becomes of a flow whose backend has failed ([`BackendState::is_failed`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WhenFailed {
    /// It stays with its backend.
    Keep,
    /// The flow ends, and the packet begins a new one with a backend that serves.
    Move,
    /// The flow ends, and the client is answered with a TCP reset.
    Reset,
}

impl Service {
    /// By NAT, without backends, and with no limit or time of its own.
    pub const EMPTY: Service = Service {
        slots: [SlotArray { first: 0, count: 0, retire_s: 0 }; SLOT_ARRAYS],
        single: NONE,
        ranges: SlotArray { first: 0, count: 0, retire_s: 0 },
        stays: SlotArray { first: 0, count: 0, retire_s: 0 },
        affinity_s: 0,
        vni: 0,
        tcp_idle_s: 0,
        tunnel_port: 0,
        flags: 0,
        mss: 0,
        mode: Mode::Nat as u8,
        tunnel: 0,
        proxy_port: 0,
        udp_idle_s: 0,
    };

    /// Seconds for which its flows of this protocol may be idle once they are established; 0 for
    /// the time that [`Settings::timeouts`] gives.
    #[inline(always)]
    pub const fn idle_s(&self, proto: u8) -> u32 {
        match proto {
            TCP => self.tcp_idle_s,
            UDP => self.udp_idle_s as u32,
            _ => 0,
        }
    }

    /// Whether its flows go on only with an entry of theirs: they are translated, by NAT or for a
    /// proxy. Of all others selection alone finds the backend again.
    #[inline(always)]
    pub fn needs_entry(&self) -> bool {
        self.mode == Mode::Nat as u8 || self.proxy_port != 0
    }

    /// What this packet of the client does to its flow, whose backend has failed. A SYN opens a
    /// connection, for which any backend will do, and a reset ends one by itself. Of a protocol of
    /// which Weir knows no states, the flow stays.
    #[inline(always)]
    pub fn when_failed(&self, kind: L4) -> WhenFailed {
        match kind {
            L4::Tcp { .. } if self.flags & SERVICE_FAILED_TCP_RESET == 0 => WhenFailed::Keep,
            L4::Tcp { flags } if flags & RST != 0 => WhenFailed::Keep,
            L4::Tcp { flags } if flags & (SYN | ACK) == SYN => WhenFailed::Move,
            L4::Tcp { .. } => WhenFailed::Reset,
            L4::Udp | L4::IcmpEcho { .. } if self.flags & SERVICE_FAILED_UDP_KEEP == 0 => {
                WhenFailed::Move
            }
            _ => WhenFailed::Keep,
        }
    }
}

/// What a frontend is found by. Any port is port 0; any protocol is protocol 0.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct FrontendKey {
    /// Gateway endpoint it is limited to (`Tunnel::scope_key`, GENEVE endpoint id); 0 for all.
    pub scope_key: u64,
    /// Address or network.
    pub addr: Addr,
    /// Host order; 0 for any.
    pub port: u16,
    /// IP protocol; 0 for any. [`ADDRESS_MARK`] for the entry that says "here are frontends".
    pub proto: u8,
    /// 128 for one address, fewer bits for a network.
    pub prefix_len: u8,
    /// Zero.
    pub pad: u32,
}

impl FrontendKey {
    /// The key of a single address.
    #[inline(always)]
    pub(crate) const fn host(scope_key: u64, addr: &Addr, port: u16, proto: u8) -> FrontendKey {
        FrontendKey { scope_key, addr: *addr, port, proto, prefix_len: 128, pad: 0 }
    }
}

/// The protocol number of an address mark (255 is reserved by IANA).
pub const ADDRESS_MARK: u8 = 255;

/// State of a backend as the tables know it. Only `Active` ones get new flows. `Terminating` and
/// `Maintenance` keep theirs; of a failed one the service says what becomes of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BackendState {
    /// Serves.
    Active = 0,
    /// Keeps its flows, gets no new ones (unless nothing is active).
    Terminating = 1,
    /// Failed its checks.
    Quarantined = 2,
    /// Taken out by the operator.
    Maintenance = 3,
    /// No source names it any more.
    Removed = 4,
}

impl BackendState {
    /// Whether a backend of this state, as its record has it, can no longer be expected to answer.
    #[inline(always)]
    pub const fn is_failed(state: u8) -> bool {
        state == BackendState::Quarantined as u8 || state == BackendState::Removed as u8
    }
}

/// A backend: where it is and how to reach it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Backend {
    /// Its address.
    pub addr: Addr,
    /// Packets from this source on the exception path go to exactly this backend, through its
    /// service's tunnel; unspecified for none.
    pub probe: Addr,
    /// Counts how often this id was given to another backend; stored in flows.
    pub incarnation: u32,
    /// Index of the next hop towards it.
    pub next_hop: u32,
    /// First of its NAT port maps (one per NAT address of its family), or [`NONE`].
    pub nat_ports: u32,
    /// Service whose tunnel carries its probe packets, or [`NONE`].
    pub probe_service: u32,
    /// Host order; 0 keeps the frontend's port (wildcard frontends).
    pub port: u16,
    /// A [`BackendState`].
    pub state: u8,
    /// Arm behind which it is: 0 ingress, 1 egress.
    pub arm: u8,
    /// Zero.
    pub pad: u32,
}

records!(Tunnel: 208, Service: 100, FrontendKey: 32, Backend: 56);

/// Length of the longest object name, in bytes of UTF-8 (`[cluster/]namespace/name`).
pub const NAME_BYTES: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(octets: [u8; 4]) -> Addr {
        Addr::v4(u32::from_ne_bytes(octets))
    }

    #[test]
    fn a_prefix_holds_what_its_bits_say() {
        let addr = |octets: [u8; 16]| Addr::from_octets(octets);
        let ours = addr([0xfd, 0x55, 0xaa, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        for len in 0..=128 {
            let prefix = Prefix { addr: ours.masked(len), len, pad: [0; 3] };
            assert!(prefix.holds(&ours), "{len}");
            for bit in 0..128_u8 {
                let mut other = ours.octets();
                other[usize::from(bit / 8)] ^= 0x80 >> (bit % 8);
                let other = addr(other);
                assert_eq!(prefix.holds(&other), other.in_prefix(&ours, len), "{len}, {bit}");
            }
        }
    }

    #[test]
    fn a_service_gives_each_protocol_its_own_idle_time() {
        let service = Service { tcp_idle_s: 86_400, udp_idle_s: 30, ..Service::EMPTY };
        assert_eq!([6, 17, 1].map(|proto| service.idle_s(proto)), [86_400, 30, 0]);
    }

    #[test]
    fn hosts_of_a_network_fill_it_and_lie_in_it() {
        let ours = v4([100, 64, 0b1010_1010, 0b0101_0101]);
        for bits in 0..=32 {
            let prefix = Prefix { addr: ours.masked(96 + bits), len: 96 + bits, pad: [0; 3] };
            let last = prefix.v4_host(u32::MAX);
            assert!(prefix.holds(&last) && prefix.holds(&prefix.v4_host(0x1234_5678)), "{bits}");
            assert_eq!(prefix.v4_host(0), prefix.addr);
            let hosts = u32::from_be(last.words[3]) - u32::from_be(prefix.addr.words[3]);
            assert_eq!(u64::from(hosts) + 1, 1 << (32 - bits), "{bits}");
        }
    }

    #[test]
    fn sources_of_ip_in_ip_are_drawn_by_arm_from_all_of_their_network() {
        let mut settings = Settings::EMPTY;
        assert_eq!(settings.ipip_source(1, 77), None);
        assert!(!settings.is_ipip_source(&v4([100, 64, 7, 1])));
        let network = v4([100, 64, 7, 0]);
        settings.ipip_sources[1] = Prefix { addr: network, len: 120, pad: [0; 3] };
        assert_eq!(settings.ipip_source(0, 77), None);
        // Backends are picked by the high half alone.
        let drawn: Vec<Addr> =
            (0..256_u64).filter_map(|n| settings.ipip_source(1, 5 << 32 | n)).collect();
        assert!(drawn.iter().all(|addr| settings.is_ipip_source(addr)));
        let distinct: std::collections::HashSet<_> = drawn.iter().map(|a| a.words[3]).collect();
        assert_eq!(distinct.len(), 256);
        assert!(!settings.is_ipip_source(&v4([100, 64, 8, 0])));
    }
}
