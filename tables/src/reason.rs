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

            /// Meaning of the reason, and its remedy if there is one.
            pub const fn help(self) -> &'static str {
                match self { $(DropReason::$variant => $help,)* }
            }
        }
    };
}

reasons! {
    TooShort "too_short" "The frame ends before its headers do.",
    HeadersSplit "headers_split" "The headers are not contiguous in the first buffer segment: with DPDK, raise fastpath.buffer_bytes.",
    BadIpHeader "bad_ip_header" "IP version, header length or total length contradicts the frame.",
    BadIpChecksum "bad_ip_checksum" "The outer IPv4 header checksum is wrong.",
    BadUdpLength "bad_udp_length" "The outer UDP length contradicts the IP length.",
    OuterFragment "outer_fragment" "The outer packet is a fragment: raise the MTU between gateway and appliance.",
    GeneveVersion "geneve_version" "The GENEVE version is not 0.",
    GeneveOptionOverrun "geneve_option_overrun" "A GENEVE option extends past the option area.",
    GeneveCriticalOption "geneve_critical_option" "An unknown GENEVE option is marked critical (RFC 8926 §3.5).",
    GeneveMissingOption "geneve_missing_option" "One of the gateway's three options is missing or has the wrong length.",
    GeneveControl "geneve_control" "A GENEVE control packet (O bit), which gateways do not send to appliances.",
    TunnelProtocol "tunnel_protocol" "The tunnel carries neither IPv4 nor IPv6.",
    VxlanFlags "vxlan_flags" "The VXLAN header lacks the I flag (RFC 7348 §5).",
    GueHeader "gue_header" "The GUE header has an unknown variant or is a control message.",
    InnerMalformed "inner_malformed" "The inner packet is truncated or its length fields are inconsistent.",
    MartianSource "martian_source" "The source address is not valid for a sender: loopback, multicast, broadcast, or the address of a frontend.",
    TunnelSource "tunnel_source" "The outer source is outside gateway.sources.",
    WrongVni "wrong_vni" "No tunnel on this port has this VNI.",
    WrongPort "wrong_port" "The VNI belongs to a tunnel on another UDP port.",
    NotOurAddress "not_our_address" "The outer destination of a tunnel packet is not an address of this appliance.",
    UnknownBackendTunnel "unknown_backend_tunnel" "The sender of a tunnel packet is not a backend of a tunnel service.",
    NoService "no_service" "No frontend matches and the gateway's no_service is drop.",
    NoBackend "no_backend" "The service has no serving backend.",
    SourceDenied "source_denied" "The service's source_ranges do not allow the client.",
    NoFlow "no_flow" "A backend's answer matches no flow: the flow ended, was evicted or never had an entry.",
    NoNeighbor "no_neighbor" "The next hop's MAC address is not resolved yet; resolution was requested.",
    NoRoute "no_route" "The kernel has no route to the destination.",
    FlowTableFull "flow_table_full" "A flow by NAT or to a proxy needs a flow entry, and none is free: raise region.max_flows. Or its gateway options need an option slab, and none is free: raise region.option_slabs.",
    FlowContended "flow_contended" "The flow's bucket stayed locked for too long.",
    FlowAmbiguous "flow_ambiguous" "Two gateway endpoints have flows with the same 5-tuple and the backend's tunnel cannot distinguish them: use tunnel = \"geneve\". Or two flows of one client to one proxy have the same source port.",
    NatPortsExhausted "nat_ports_exhausted" "All NAT ports towards this backend are in use: extend nat.ports, or add nat.addresses, for which region.nat_maps must suffice.",
    NatNoAddress "nat_no_address" "No NAT address of the backend's family is configured: add one to nat.addresses. Or the arm has no address of the client's family for a flow to a proxy: add one.",
    NatProtocol "nat_protocol" "NAT does not support the protocol (only TCP, UDP and ICMP echo), or a proxy does not (only TCP and UDP).",
    FragmentBeforeFirst "fragment_before_first" "A later fragment without a known first one: it came earlier, or the first was lost, dropped or not tracked.",
    IcmpUnknownFlow "icmp_unknown_flow" "An ICMP error quotes a packet that matches no flow.",
    Congestion "congestion" "The outer header has ECN Congestion Experienced and the inner packet is not ECN-capable (RFC 6040 §4.2).",
    TtlExceeded "ttl_exceeded" "The inner TTL or hop limit expired here.",
    TooBig "too_big" "The packet exceeds the gateway's inner_mtu or the path MTU to the backend, and no ICMP error was sent.",
    TooBigAnswered "too_big_answered" "The packet exceeds the gateway's inner_mtu or the path MTU to the backend, and an ICMP error was sent to its source.",
    NoHeadroom "no_headroom" "The buffer has no headroom for the new outer headers.",
    PuntLimitedLocal "punt_limited_local" "Packets for this machine's own ports (health, API, metrics, punt.local_ports) and from BGP neighbors exceed punt.local_limit_per_s.",
    PuntLimitedNeighbor "punt_limited_neighbor" "ARP and IPv6 neighbor discovery exceed punt.neighbor_limit_per_s.",
    PuntLimitedIcmp "punt_limited_icmp" "ICMP for this machine exceeds punt.icmp_limit_per_s.",
    PuntLimitedOther "punt_limited_other" "Other packets for this machine exceed punt.limit_per_s.",
    PuntFull "punt_full" "The exception port's queue is full: the kernel reads packets too slowly.",
    ForeignDstMac "foreign_dst_mac" "The frame's destination MAC address is not this port's: the switch floods, or the port is promiscuous.",
    ExceptionMalformed "exception_malformed" "The kernel sent a frame that is not a complete IP or ARP packet.",
    ScopeTableFull "scope_table_full" "The table of gateway endpoints is full: raise region.max_scopes.",
    TxQueueFull "tx_queue_full" "The NIC's transmit queue is full.",
    NicUnavailable "nic_unavailable" "The NIC of the arm is being reset, or was removed: `weir status` shows its state.",
    StageMissing "stage_missing" "An XDP program stage is not loaded: restart ebpf-fallback.",
    NotTranslatable "not_translatable" "The packet or ICMP message has no equivalent in the other address family (RFC 7915), or the datagram lacks the checksum that IPv6 requires.",
    NoMatchingService "no_matching_service" "A plain packet matches no frontend and is not addressed to this appliance (`punt.plain_no_service` is drop).",
    NewFlowLimited "new_flow_limited" "New flows by NAT or to proxies exceed flows.nat_new_per_s: a flood, or the limit is too low; raise it (more nat.addresses and region.max_flows raise the derived limit).",
    Undecided "undecided" "No stage decided on the packet. Always zero: any other value is a defect of Weir, please report it.",
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
            assert!(reason.name().bytes().all(|c| c.is_ascii_lowercase() || c == b'_'));
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
