//! Drop reasons: one list of counters with their names and help texts.
//!
//! Every dropped packet is counted under exactly one reason, on both data planes.

macro_rules! reasons {
    ($($variant:ident $name:literal $help:literal,)*) => {
        /// Reason for which a packet was dropped.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum DropReason { $(#[doc = $help] $variant,)* }

        impl DropReason {
            /// All reasons in the order of their counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];

            /// Name in metrics, in `weir drops` and in the documentation.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }

            /// Meaning of the reason and its remedy.
            pub const fn help(self) -> &'static str {
                match self { $(DropReason::$variant => $help,)* }
            }
        }
    };
}

reasons! {
    TooShort "too-short" "The frame ends before its headers do.",
    HeadersSplit "headers-split" "The headers do not lie in the first buffer segment: raise the port's buffer size.",
    BadIpHeader "bad-ip-header" "IP version, header length or total length contradict the frame.",
    BadIpChecksum "bad-ip-checksum" "The outer IPv4 header checksum is wrong.",
    BadUdpLength "bad-udp-length" "The outer UDP length contradicts the IP length.",
    OuterFragment "outer-fragment" "The outer packet is a fragment: raise the MTU between gateway and appliance.",
    GeneveVersion "geneve-version" "The GENEVE version is not 0.",
    GeneveOptionOverrun "geneve-option-overrun" "A GENEVE option runs past the option area.",
    GeneveCriticalOption "geneve-critical-option" "An unknown GENEVE option is marked critical (RFC 8926 3.5).",
    GeneveMissingOption "geneve-missing-option" "One of the gateway's three options is missing or has another length.",
    GeneveControl "geneve-control" "A GENEVE control packet (O bit), which no gateway sends to an appliance.",
    TunnelProtocol "tunnel-protocol" "The tunnel carries neither IPv4 nor IPv6.",
    VxlanFlags "vxlan-flags" "The VXLAN header lacks the I flag (RFC 7348 5).",
    GueHeader "gue-header" "The GUE header is of an unknown variant or a control message.",
    InnerMalformed "inner-malformed" "The packet inside the tunnel is cut short or contradicts itself.",
    MartianSource "martian-source" "The source is no address of a sender: loopback, multicast, broadcast, or the address of a frontend.",
    TunnelSource "tunnel-source" "The outer source is outside the gateway's configured sources.",
    WrongVni "wrong-vni" "No tunnel on this port has this VNI.",
    WrongPort "wrong-port" "The VNI belongs to a tunnel on another UDP port.",
    NotOurAddress "not-our-address" "A tunnel packet for an address that is not this appliance's.",
    UnknownBackendTunnel "unknown-backend-tunnel" "A tunnel packet from a sender that is no backend of a tunnel service.",
    NoService "no-service" "No frontend matches and the gateway's no_service is drop.",
    NoBackend "no-backend" "The service has no backend that serves.",
    SourceRefused "source-refused" "The service's source_ranges do not admit the client.",
    NoFlow "no-flow" "An answer for a flow that is not known (any more).",
    NoNeighbor "no-neighbour" "The next hop's MAC address is not known yet; it was asked for.",
    NoRoute "no-route" "The kernel has no route to the destination.",
    FlowTableFull "flow-table-full" "NAT needs a flow entry and none is free: raise region.max_flows.",
    FlowContended "flow-contended" "The flow's bucket stayed locked for too long.",
    FlowAmbiguous "flow-ambiguous" "Two gateway endpoints carry one 5-tuple and the backend's tunnel can't tell them apart: use tunnel = \"geneve\". Or one client's flows to one proxy use one port.",
    NatPortsExhausted "nat-ports-exhausted" "All NAT ports towards this backend are in use: add nat.addresses.",
    NatNoAddress "nat-no-address" "No NAT address of the backend's family is configured: add one to nat.addresses.",
    NatProtocol "nat-protocol" "A protocol that NAT can't translate (only TCP, UDP and ICMP echo).",
    FragmentBeforeFirst "fragment-before-first" "A later fragment came before its datagram's first one.",
    IcmpUnknownFlow "icmp-unknown-flow" "An ICMP error quotes a packet of no known flow.",
    Congestion "congestion" "The outer header says that congestion was met, and the inner packet's ends know no ECN (RFC 6040 4.2).",
    TtlExceeded "ttl-exceeded" "The inner TTL or hop limit ran out here.",
    TooBig "too-big" "The packet exceeds the gateway's inner_mtu or the way to the backend, and no answer was sent.",
    TooBigAnswered "too-big-answered" "As too-big, and an ICMP error was sent back.",
    NoHeadroom "no-headroom" "No room for the new outer headers in front of the packet.",
    PuntLimitedLocal "punt-limited-local" "More packets for this machine's own ports (health, API, metrics, punt.local_ports) and from BGP neighbors than punt.local_limit_per_s allows.",
    PuntLimitedNeighbor "punt-limited-neighbor" "More ARP and IPv6 neighbor discovery than punt.neighbor_limit_per_s allows.",
    PuntLimitedIcmp "punt-limited-icmp" "More ICMP for this machine itself than punt.icmp_limit_per_s allows.",
    PuntLimitedOther "punt-limited-other" "More other packets for this machine itself than punt.limit_per_s allows.",
    PuntFull "punt-full" "The kernel did not take packets fast enough from the exception port.",
    ForeignDstMac "foreign-dst-mac" "The frame's destination MAC address is not this port's: the switch floods, or the port is promiscuous.",
    ExceptionMalformed "exception-malformed" "The kernel sent a frame that is no whole IP or ARP packet.",
    ScopeTableFull "scope-table-full" "More gateway endpoints than region.max_scopes.",
    TxRefused "tx-refused" "The NIC took no more packets.",
    StageMissing "stage-missing" "The kernel's program lacks one of its stages: start ebpf-fallback again.",
    NotTranslatable "not-translatable" "The other address family has no such packet or ICMP message (RFC 7915), or the datagram lacks the checksum that IPv6 demands.",
    NoMatchingService "no-matching-service" "A plain packet that matches no frontend and is not addressed to this appliance (`punt.plain_no_service` is drop).",
    NewFlowLimited "new-flow-limited" "More new flows by NAT or to proxies than flows.nat_new_per_s allows: a flood, or raise it (more nat.addresses and region.max_flows raise what is derived).",
    Undecided "undecided" "No stage decided on the packet. This is always zero: any other value is a defect of Weir, please report it.",
}

const _: () = assert!(DropReason::ALL.len() <= MAX_REASONS);

/// Drop counters per arm in a counter page. It exceeds the number of reasons, so that a new reason
/// does not change the layout.
pub const MAX_REASONS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fit_for_metrics() {
        let mut names: Vec<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::ALL.len());
        for reason in DropReason::ALL {
            assert!(reason.name().bytes().all(|c| c.is_ascii_lowercase() || c == b'-'));
            assert!(reason.help().ends_with('.') && !reason.help().is_empty());
        }
    }

    #[test]
    fn the_order_is_the_counter_index() {
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, i);
        }
    }
}
