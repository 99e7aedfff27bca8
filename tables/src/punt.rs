//! Classes of punted packets (packets to this host), for both data planes. Each class has its own
//! limit and drop reason, so that a flood of one class does not affect the others.

use packet::ethernet;
use packet::ip::{ICMP, ICMPV6, Ip, TCP, UDP};

use crate::reason::DropReason;
use crate::record::{PORT_PROTECTED, Settings};

pub use crate::record::PUNT_CLASSES;

/// EtherType of ARP.
const ARP: u16 = 0x0806;
/// ICMPv6 types of neighbor discovery: router and neighbor solicitation and advertisement, redirect
/// (RFC 4861 §4).
const DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;
/// Hop limit of neighbor discovery packets, which no forwarded packet can have (RFC 4861 §7.1).
const ON_LINK: u8 = 255;

/// Class of a punted packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PuntClass {
    /// TCP or UDP to a configured port (health, API, metrics, `punt.local_ports`) or from a BGP
    /// neighbor, or a backend's reply to a health probe.
    Local = 0,
    /// ARP and IPv6 neighbor discovery.
    Neighbor = 1,
    /// All other ICMP and ICMPv6.
    Icmp = 2,
    /// Everything else.
    Other = 3,
}

/// Properties of a packet that determine its class.
#[derive(Clone, Copy, Debug)]
pub struct PuntedPacket<'a> {
    /// EtherType of the frame.
    pub ethertype: u16,
    /// The IP packet; [`Ip::default`] if the frame contains none.
    pub ip: &'a Ip,
    /// First byte after the IP header, which is the type of an ICMP message.
    pub icmp: u8,
    /// Whether the packet arrived without a tunnel.
    pub plain: bool,
    /// Whether the packet's destination is the probe source of a backend.
    pub probe: bool,
}

impl PuntClass {
    /// All classes in the order of [`Settings::punt_limits`].
    pub const ALL: [PuntClass; PUNT_CLASSES] =
        [PuntClass::Local, PuntClass::Neighbor, PuntClass::Icmp, PuntClass::Other];

    /// Returns the class of a packet.
    #[inline(always)]
    pub fn of(punted: &PuntedPacket<'_>, settings: &Settings) -> PuntClass {
        let ip = punted.ip;
        match punted.ethertype {
            ARP => return PuntClass::Neighbor,
            ethernet::IPV4 | ethernet::IPV6 => {}
            _ => return PuntClass::Other,
        }
        match (ip.proto, ip.v6) {
            (ICMP, false) => PuntClass::Icmp,
            (ICMPV6, true) if ip.ttl == ON_LINK && DISCOVERY.contains(&punted.icmp) => {
                PuntClass::Neighbor
            }
            (ICMPV6, true) => PuntClass::Icmp,
            (TCP | UDP, _) if punted.probe => PuntClass::Local,
            (TCP | UDP, _) if punted.plain => {
                let port = settings.own_port(&ip.dst, ip.proto, ip.dport);
                match port & PORT_PROTECTED != 0 || settings.is_neighbor(&ip.src) {
                    true => PuntClass::Local,
                    false => PuntClass::Other,
                }
            }
            _ => PuntClass::Other,
        }
    }

    /// Returns the drop reason of packets above the class's limit.
    #[inline(always)]
    pub const fn reason(self) -> DropReason {
        match self {
            PuntClass::Local => DropReason::PuntLimitedLocal,
            PuntClass::Neighbor => DropReason::PuntLimitedNeighbor,
            PuntClass::Icmp => DropReason::PuntLimitedIcmp,
            PuntClass::Other => DropReason::PuntLimitedOther,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Local, LocalPort, PORT_OWN};
    use packet::addr::Addr;

    fn v4(octets: [u8; 4]) -> Addr {
        Addr::v4(u32::from_ne_bytes(octets))
    }

    fn settings() -> Settings {
        let mut settings = Settings::EMPTY;
        settings.locals[0] = Local { addr: v4([10, 0, 1, 10]), ..Local::default() };
        settings.locals[1] = Local { addr: v4([10, 0, 2, 10]), arm: 1, ..Local::default() };
        let port = |port, locals, flags| LocalPort { port, locals, proto: TCP, flags, pad: [0; 2] };
        settings.local_ports[0] = port(8080, 0b01, PORT_OWN | PORT_PROTECTED);
        settings.local_ports[1] = port(179, 0b11, PORT_OWN);
        settings.neighbors[0] = v4([10, 0, 1, 1]);
        settings
    }

    fn tcp(src: [u8; 4], dst: [u8; 4], dport: u16) -> Ip {
        Ip { src: v4(src), dst: v4(dst), dport, proto: TCP, ..Ip::default() }
    }

    fn class(ethertype: u16, ip: &Ip, icmp: u8) -> PuntClass {
        let punted = PuntedPacket { ethertype, ip, icmp, plain: true, probe: false };
        PuntClass::of(&punted, &settings())
    }

    #[test]
    fn configured_ports_neighbors_and_probe_replies_are_local() {
        const IPV4: u16 = ethernet::IPV4;
        let (foreign, router) = ([198, 51, 100, 7], [10, 0, 1, 1]);
        let probe = tcp(foreign, [10, 0, 1, 10], 8080);
        assert_eq!(class(IPV4, &probe, 0), PuntClass::Local);
        // Another port, another protocol, an address without this listener, and BGP from an address
        // that is not a neighbor's.
        for junk in [
            tcp(foreign, [10, 0, 1, 10], 8082),
            Ip { proto: UDP, ..probe },
            tcp(foreign, [10, 0, 2, 10], 8080),
            tcp(foreign, [10, 0, 1, 10], 179),
        ] {
            assert_eq!(class(IPV4, &junk, 0), PuntClass::Other, "{junk:?}");
        }
        // Packets of sessions that were opened by this host arrive on any port.
        for port in [179, 40_000] {
            assert_eq!(class(IPV4, &tcp(router, [10, 0, 1, 10], port), 0), PuntClass::Local);
        }
        let tunneled =
            PuntedPacket { ethertype: IPV4, ip: &probe, icmp: 0, plain: false, probe: false };
        assert_eq!(PuntClass::of(&tunneled, &settings()), PuntClass::Other);
        let answer = PuntedPacket { probe: true, ..tunneled };
        assert_eq!(PuntClass::of(&answer, &settings()), PuntClass::Local);
    }

    #[test]
    fn arp_discovery_and_icmp_have_separate_classes() {
        let none = Ip::default();
        assert_eq!(class(ARP, &none, 0), PuntClass::Neighbor);
        assert_eq!(class(0x88cc, &none, 0), PuntClass::Other);
        assert_eq!(class(ethernet::IPV4, &none, 0), PuntClass::Other);
        let icmp = Ip { proto: ICMP, ..Ip::default() };
        assert_eq!(class(ethernet::IPV4, &icmp, 8), PuntClass::Icmp);
        let icmpv6 = Ip { proto: ICMPV6, v6: true, ttl: 255, ..Ip::default() };
        for kind in 133..=137 {
            assert_eq!(class(ethernet::IPV6, &icmpv6, kind), PuntClass::Neighbor);
        }
        assert_eq!(class(ethernet::IPV6, &icmpv6, 128), PuntClass::Icmp);
        // A forwarded packet is not valid neighbor discovery.
        let routed = Ip { ttl: 254, ..icmpv6 };
        assert_eq!(class(ethernet::IPV6, &routed, 135), PuntClass::Icmp);
    }

    #[test]
    fn each_class_has_a_reason_of_its_own() {
        let reasons: Vec<&str> = PuntClass::ALL.map(|class| class.reason().name()).to_vec();
        let names = ["local", "neighbor", "icmp", "other"].map(|n| format!("punt_limited_{n}"));
        assert_eq!(reasons, names);
        for (at, class) in PuntClass::ALL.iter().enumerate() {
            assert_eq!(*class as usize, at);
        }
    }
}
