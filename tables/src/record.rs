//! Records that slowpath writes and both data planes read.
//!
//! All records are plain `repr(C)` data of fixed size without padding, so that they can be
//! checksummed, dumped and stored in BPF maps unchanged. References between records are `u32`
//! indices; a reader checks each one before use and never trusts the other process.

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

/// Index that refers to no record.
pub const NONE: u32 = u32::MAX;

/// Action for a packet that matches no service (`Tunnel::no_service`,
/// `Settings::plain_no_service`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
#[repr(u8)]
pub enum NoService {
    /// Return it to the gateway unchanged (gateways only).
    Return = 0,
    /// Drop it as `no_service`, or as `no_matching_service` if it arrived without a tunnel.
    Drop = 1,
    /// Pass it to this host's kernel.
    Punt = 2,
}

impl NoService {
    /// Returns the action for a record's number; an unknown number means `Drop`, the safe choice.
    #[inline(always)]
    pub const fn from_u8(n: u8) -> NoService {
        match n {
            0 => NoService::Return,
            2 => NoService::Punt,
            _ => NoService::Drop,
        }
    }
}

/// [`Tunnel::flags`]: a returned packet leaves by [`Tunnel::peer`] (Azure pairs an external and an
/// internal tunnel).
pub const TUNNEL_CROSS: u16 = 1;
/// [`Tunnel::flags`]: answer an inner packet larger than `inner_mtu` with an ICMP error.
pub const TUNNEL_REPLY_TOO_BIG: u16 = 2;
/// [`Tunnel::flags`]: compute the outer UDP checksum of sent packets, which otherwise is zero.
pub const TUNNEL_CHECKSUM: u16 = 4;
/// [`Tunnel::flags`]: no longer configured, accepted for a grace period.
pub const TUNNEL_RETIRED: u16 = 8;
/// [`Tunnel::flags`]: not a gateway's tunnel; it carries replies from backends of tunnel services.
pub const TUNNEL_BACKEND: u16 = 16;
/// [`Tunnel::flags`]: retired because the gateway's tunnel got another port or VNI; packets to the
/// gateway leave by the tunnel [`Tunnel::successor`].
pub const TUNNEL_REPLACED: u16 = 32;

/// [`Tunnel::side`]: the external tunnel of an Azure gateway's pair, by which packets from the
/// clients' side arrive.
pub const SIDE_EXTERNAL: u8 = 1;
/// [`Tunnel::side`]: the internal tunnel of the pair, by which packets from the application's side
/// arrive.
pub const SIDE_INTERNAL: u8 = 2;

/// Maximum number of source prefixes per gateway tunnel.
pub const TUNNEL_SOURCES: usize = 8;

/// An IP prefix in the 128-bit form of addresses.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Prefix {
    /// Network address.
    pub addr: Addr,
    /// Prefix length in bits, 0 to 128 (an IPv4 /24 is 120).
    pub len: u8,
    /// Must be zero.
    pub pad: [u8; 3],
}

impl Prefix {
    /// Returns whether the prefix contains an address. It has no branches or 128-bit operations,
    /// since the BPF programs evaluate it for each packet.
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

    /// Returns the address of this IPv4 network with the low bits of `n` as host bits.
    #[inline(always)]
    pub fn v4_host(&self, n: u32) -> Addr {
        let network_bits = u32::from(self.len).saturating_sub(96).min(32);
        let hosts = (u64::from(u32::MAX) >> network_bits) as u32;
        let [a, b, c, d] = self.addr.words;
        Addr { words: [a, b, c, d | (n & hosts).to_be()] }
    }
}

/// Encoding in the slot arena.
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

/// A gateway tunnel, or one for replies of backends. When an lcore switches to a new generation, it
/// copies all of its tunnels.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tunnel {
    /// Local address: the outer destination.
    pub local: Addr,
    /// Permitted outer sources: the first `source_count`. An empty list permits none.
    pub sources: [Prefix; TUNNEL_SOURCES],
    /// For VXLAN, the gateway endpoint's key, for which [`crate::scope`] allocates the scope: the
    /// same for both tunnels of a pair.
    pub scope_key: u64,
    /// VXLAN network identifier; unused for GENEVE, which echoes any VNI.
    pub vni: u32,
    /// Id of the tunnel by which returned packets leave, or [`NONE`] for this tunnel.
    pub peer: u32,
    /// Gateway number; the same for all tunnels of a gateway.
    pub gateway: u16,
    /// Outer UDP destination port, in host byte order.
    pub port: u16,
    /// Class of the gateway's three GENEVE options (0x0108 on AWS).
    pub option_class: u16,
    /// Maximum size of the inner IP packet in bytes (8,500 on AWS).
    pub inner_mtu: u16,
    /// Bit mask of `TUNNEL_*`.
    pub flags: u16,
    /// Encapsulation: a [`TunnelKind`].
    pub kind: u8,
    /// Action for packets without a service: a [`NoService`].
    pub no_service: u8,
    /// Number of valid entries in `sources`.
    pub source_count: u8,
    /// Arm on which the tunnel's packets arrive: 0 ingress, 1 egress.
    pub arm: u8,
    /// Which of an Azure gateway's two tunnels it is: [`SIDE_EXTERNAL`], [`SIDE_INTERNAL`], or 0
    /// for other tunnels and those that an earlier version wrote.
    pub side: u8,
    /// Id of the tunnel that took this one's place, if [`TUNNEL_REPLACED`] is set.
    pub successor: u8,
}

impl Tunnel {
    /// Returns the id of the tunnel that took this one's place.
    #[inline(always)]
    pub fn successor(&self) -> Option<u32> {
        if self.flags & TUNNEL_REPLACED != 0 { Some(self.successor.into()) } else { None }
    }

    /// Returns whether the tunnel accepts packets from the outer source `source`.
    #[inline(always)]
    pub fn admits(&self, source: &Addr) -> bool {
        let mut admitted = false;
        for (i, prefix) in self.sources.iter().enumerate() {
            admitted |= i < usize::from(self.source_count) && prefix.holds(source);
        }
        admitted
    }
}

/// Forwarding mode: how a service's packets reach its backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Destination rewritten to the backend, source to one of [`Settings::nat`].
    Nat = 1,
    /// Encapsulated, inner packet unchanged; replies return through this appliance.
    Tunnel = 2,
    /// Encapsulated, for plain flows; the backend replies to the client directly.
    Dsr = 3,
}

impl Mode {
    /// Returns the mode for a record's number, or `None` if there is none.
    pub const fn from_u8(n: u8) -> Option<Mode> {
        match n {
            1 => Some(Mode::Nat),
            2 => Some(Mode::Tunnel),
            3 => Some(Mode::Dsr),
            _ => None,
        }
    }
}

/// [`Service::flags`]: compute the outer UDP checksum of packets to backends, which otherwise is
/// zero.
pub const SERVICE_CHECKSUM: u16 = 1;
/// [`Service::flags`]: set DF in the outer header.
pub const SERVICE_DF: u16 = 2;
/// [`Service::flags`]: answer packets that exceed the MTU towards the backend with an ICMP error.
pub const SERVICE_REPLY_TOO_BIG: u16 = 4;
/// [`Service::flags`]: the source ranges are a deny list instead of an allow list.
pub const SERVICE_DENY: u16 = 8;
/// [`Service::flags`]: slots are filled by weight alone, without Maglev. Only dumps read this flag.
pub const SERVICE_RANDOM: u16 = 16;

/// [`Service::flags`]: UDP flows and ICMP echo flows stay with a failed backend.
pub const SERVICE_FAILED_UDP_KEEP: u16 = 32;
/// [`Service::flags`]: reset TCP connections to a failed backend.
pub const SERVICE_FAILED_TCP_RESET: u16 = 64;

/// A run of the slot arena: `count` words from `first`. In a Maglev array, words are backend ids.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotArray {
    /// Index of the first slot in the arena.
    pub first: u32,
    /// Number of slots, a prime for a Maglev array; 0 if there is no array.
    pub count: u32,
}

impl SlotArray {
    /// No array.
    pub const EMPTY: SlotArray = SlotArray { first: 0, count: 0 };
}

/// A service: its policy and its selection of backends.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Service {
    /// The Maglev array. It is empty if at most one backend serves.
    pub slots: SlotArray,
    /// The only serving backend if `slots` is empty, or [`NONE`] if none serves.
    pub single: u32,
    /// Bounds of the service's source ranges: see [`crate::run`]. Without any, all clients are
    /// permitted.
    pub ranges: SlotArray,
    /// Ids of the backends to which clients may have affinity, ascending.
    pub affinity_backends: SlotArray,
    /// Session affinity timeout in seconds; 0 for no affinity.
    pub affinity_s: u32,
    /// VNI of the tunnel to the backends (VXLAN, GENEVE).
    pub vni: u32,
    /// Idle timeout of established TCP flows in seconds; 0 for that of the settings.
    pub tcp_idle_s: u32,
    /// UDP destination port of the tunnel to the backends, in host byte order.
    pub tunnel_port: u16,
    /// Bit mask of `SERVICE_*`.
    pub flags: u16,
    /// Upper bound for the MSS option of forwarded SYNs in bytes; 0 for none.
    pub mss: u16,
    /// Forwarding mode: a [`Mode`].
    pub mode: u8,
    /// A [`TunnelKind`] in modes tunnel and dsr, else 0.
    pub tunnel: u8,
    /// Port of the local proxy that receives the service's flows, in host byte order; 0 for none.
    pub proxy_port: u16,
    /// UDP idle timeout in seconds; 0 for that of the settings.
    pub udp_idle_s: u16,
}

/// How a flow whose backend has failed ([`BackendState::is_failed`]) is handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WhenFailed {
    /// Keep the flow with its backend.
    Keep,
    /// End the flow; the packet begins a new one with a healthy backend.
    Move,
    /// End the flow and answer the client with a TCP reset.
    Reset,
}

impl Service {
    /// A NAT service without backends, limits or timeouts of its own.
    pub const EMPTY: Service = Service {
        slots: SlotArray::EMPTY,
        single: NONE,
        ranges: SlotArray::EMPTY,
        affinity_backends: SlotArray::EMPTY,
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

    /// Returns the idle timeout in seconds of the service's established flows of protocol `proto`;
    /// 0 for that of [`Settings::timeouts`].
    #[inline(always)]
    pub const fn idle_s(&self, proto: u8) -> u32 {
        match proto {
            TCP => self.tcp_idle_s,
            UDP => self.udp_idle_s as u32,
            _ => 0,
        }
    }

    /// Returns whether the service's flows need their flow entry, because Weir rewrites their
    /// addresses (NAT or a proxy). For all other flows, selection alone finds the backend again.
    #[inline(always)]
    pub fn needs_entry(&self) -> bool {
        self.mode == Mode::Nat as u8 || self.proxy_port != 0
    }

    /// Returns how this packet of the client affects its flow when the backend has failed. A SYN
    /// opens a connection, for which any backend is suitable; a reset ends the connection itself.
    /// Flows of protocols whose state is not tracked are kept.
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

/// Key of a frontend. Port 0 matches any port, protocol 0 any protocol.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct FrontendKey {
    /// Gateway endpoint to which the frontend is limited (`Tunnel::scope_key`, GENEVE endpoint id);
    /// 0 for all.
    pub scope_key: u64,
    /// Address, or network address if `prefix_len` is below 128.
    pub addr: Addr,
    /// Port in host byte order; 0 for any.
    pub port: u16,
    /// IP protocol; 0 for any. [`ADDRESS_MARK`] marks an address that has frontends.
    pub proto: u8,
    /// Prefix length in bits; 128 for a single address.
    pub prefix_len: u8,
    /// Must be zero.
    pub pad: u32,
}

impl FrontendKey {
    /// Returns the key of a single address.
    #[inline(always)]
    pub(crate) const fn host(scope_key: u64, addr: &Addr, port: u16, proto: u8) -> FrontendKey {
        FrontendKey { scope_key, addr: *addr, port, proto, prefix_len: 128, pad: 0 }
    }
}

/// Protocol number of marks (255 is reserved by IANA): entries of the frontend table that describe
/// an address, a scope or a probe source instead of a frontend (see `lookup`).
pub const ADDRESS_MARK: u8 = 255;

/// State of a backend in the tables. New flows go to `Active` backends, or to `Terminating` ones if
/// none is active. `Terminating` and `Maintenance` backends keep their flows; for a failed one the
/// service determines how flows are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BackendState {
    /// Serves new and established flows.
    Active = 0,
    /// Keeps its flows, gets no new ones (unless no backend is active).
    Terminating = 1,
    /// Failed its health checks.
    Quarantined = 2,
    /// Taken out of service by the operator.
    Maintenance = 3,
    /// No source defines it any longer.
    Removed = 4,
}

impl BackendState {
    /// Returns whether a backend in this state (a number of [`BackendState`]) has failed.
    #[inline(always)]
    pub const fn is_failed(state: u8) -> bool {
        state == BackendState::Quarantined as u8 || state == BackendState::Removed as u8
    }
}

/// A backend: its address and how to reach it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Backend {
    /// IP address of the backend.
    pub addr: Addr,
    /// Probe source: packets from this address on the exception path go to exactly this backend,
    /// through its service's tunnel. Unspecified for none.
    pub probe: Addr,
    /// Number of times this id was reused for another backend; flows store it.
    pub incarnation: u32,
    /// Id of the next hop towards the backend, or [`NONE`].
    pub next_hop: u32,
    /// First of the backend's NAT port maps (one per NAT address of its family), or [`NONE`].
    pub nat_ports: u32,
    /// Service whose tunnel carries probe packets to the backend, or [`NONE`].
    pub probe_service: u32,
    /// Port in host byte order; 0 keeps the packet's destination port (wildcard frontends).
    pub port: u16,
    /// State: a number of [`BackendState`].
    pub state: u8,
    /// Arm on which the backend is reached: 0 ingress, 1 egress.
    pub arm: u8,
    /// Must be zero.
    pub pad: u32,
}

records!(Tunnel: 208, Service: 52, FrontendKey: 32, Backend: 56);

/// Maximum length of an object name (`[cluster/]namespace/name`) in bytes of UTF-8.
pub const NAME_BYTES: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(octets: [u8; 4]) -> Addr {
        Addr::v4(u32::from_ne_bytes(octets))
    }

    #[test]
    fn prefix_contains_matching_addresses() {
        let addr = |octets: [u8; 16]| Addr::from_octets(octets);
        let address = addr([0xfd, 0x55, 0xaa, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        for len in 0..=128 {
            let prefix = Prefix { addr: address.masked(len), len, pad: [0; 3] };
            assert!(prefix.holds(&address), "{len}");
            for bit in 0..128_u8 {
                let mut other = address.octets();
                other[usize::from(bit / 8)] ^= 0x80 >> (bit % 8);
                let other = addr(other);
                assert_eq!(prefix.holds(&other), other.in_prefix(&address, len), "{len}, {bit}");
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
        let address = v4([100, 64, 0b1010_1010, 0b0101_0101]);
        for bits in 0..=32 {
            let prefix = Prefix { addr: address.masked(96 + bits), len: 96 + bits, pad: [0; 3] };
            let last = prefix.v4_host(u32::MAX);
            assert!(prefix.holds(&last) && prefix.holds(&prefix.v4_host(0x1234_5678)), "{bits}");
            assert_eq!(prefix.v4_host(0), prefix.addr);
            let hosts = u32::from_be(last.words[3]) - u32::from_be(prefix.addr.words[3]);
            assert_eq!(u64::from(hosts) + 1, 1 << (32 - bits), "{bits}");
        }
    }

    #[test]
    fn ip_in_ip_sources_are_chosen_by_arm_from_their_whole_network() {
        let mut settings = Settings::EMPTY;
        assert_eq!(settings.ipip_source(1, 77), None);
        assert!(!settings.is_ipip_source(&v4([100, 64, 7, 1])));
        let network = v4([100, 64, 7, 0]);
        settings.ipip_sources[1] = Prefix { addr: network, len: 120, pad: [0; 3] };
        assert_eq!(settings.ipip_source(0, 77), None);
        // The high half of the hash is constant, because it selects the backend and is therefore
        // similar for all flows of a backend.
        let drawn: Vec<Addr> =
            (0..256_u64).filter_map(|n| settings.ipip_source(1, 5 << 32 | n)).collect();
        assert!(drawn.iter().all(|addr| settings.is_ipip_source(addr)));
        let distinct: std::collections::HashSet<_> = drawn.iter().map(|a| a.words[3]).collect();
        assert_eq!(distinct.len(), 256);
        assert!(!settings.is_ipip_source(&v4([100, 64, 8, 0])));
    }
}
