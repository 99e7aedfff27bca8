//! Configuration of a neighbor, for each of the routing daemons.

use crate::network::{OUR_ASN, THEIR_ASN};

/// Configuration of a neighbor with two sessions.
#[derive(Clone, Default)]
pub struct Plan {
    /// How the speaker and the neighbor are connected.
    pub topology: Topology,
    /// The neighbor is internal (iBGP).
    pub internal: bool,
    /// TCP-MD5 key of both sessions.
    pub password: Option<&'static str>,
    /// BFD for both sessions; ignored for GoBGP.
    pub bfd: bool,
    /// Long-lived graceful restart (RFC 9494).
    pub long_lived: bool,
    /// Further lines of FRR's neighbor configuration; `ADDRESS` is replaced by the speaker's
    /// address.
    pub frr: &'static str,
}

/// How the speaker and the neighbor are connected.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum Topology {
    /// On one link.
    #[default]
    Direct,
    /// On one link, with link-local IPv6 addresses.
    LinkLocal,
    /// With a router in between.
    Routed,
}

impl Topology {
    /// Returns the speaker's and the neighbor's addresses, for IPv4 and IPv6.
    pub fn ends(self) -> [(&'static str, &'static str); 2] {
        match self {
            Topology::Direct => [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")],
            Topology::LinkLocal => [("10.0.0.1", "10.0.0.2"), ("fe80::1", "fe80::2")],
            Topology::Routed => [("10.0.1.1", "10.0.2.2"), ("fd01::1", "fd02::2")],
        }
    }

    /// Returns the zone of a link-local address, or an empty string.
    fn zone(self, local: &str) -> &'static str {
        if self == Topology::LinkLocal && name(local) == "six" { "%there" } else { "" }
    }
}

/// Returns BIRD's name of the session with one of the speaker's addresses.
pub fn name(local: &str) -> &'static str {
    if local.contains(':') { "six" } else { "four" }
}

impl Plan {
    fn asn(&self) -> u32 {
        if self.internal { OUR_ASN } else { THEIR_ASN }
    }

    /// Returns the configuration for FRR.
    pub fn frr(&self) -> String {
        let mut text = format!(
            "router bgp {}\n bgp router-id 10.0.0.2\n no bgp ebgp-requires-policy\n \
             no bgp network import-check\n bgp log-neighbor-changes\n",
            self.asn()
        );
        if self.long_lived {
            text += " bgp long-lived-graceful-restart stale-time 60\n";
        }
        let mut active = String::new();
        for (local, neighbor) in self.topology.ends() {
            text += &format!(
                " neighbor {local} remote-as {OUR_ASN}\n neighbor {local} timers connect 1\n \
                 neighbor {local} capability extended-nexthop\n"
            );
            if !self.topology.zone(local).is_empty() {
                text += &format!(" neighbor {local} interface there\n");
            }
            if self.topology == Topology::Routed {
                text += &format!(" neighbor {local} ebgp-multihop 2\n");
            }
            if self.topology != Topology::Direct {
                text += &format!(" neighbor {local} update-source {neighbor}\n");
            }
            if let Some(password) = self.password {
                text += &format!(" neighbor {local} password {password}\n");
            }
            if self.bfd {
                text += &format!(" neighbor {local} bfd\n");
            }
            text += &self.frr.replace("ADDRESS", local);
            active += &format!("  neighbor {local} activate\n");
        }
        for family in ["ipv4", "ipv6"] {
            let one = if family == "ipv4" { "192.0.2.99/32" } else { "2001:db8::99/128" };
            text += &format!(
                " address-family {family} unicast\n{active}  network {one}\n exit-address-family\n"
            );
        }
        text
    }

    /// Returns the configuration for BIRD.
    pub fn bird(&self) -> String {
        let mut text = "log stderr all;\nrouter id 10.0.0.2;\nprotocol device {}\n\
             protocol static { ipv4; route 192.0.2.99/32 blackhole; }\n\
             protocol static { ipv6; route 2001:db8::99/128 blackhole; }\n"
            .to_owned();
        let mut more = String::new();
        if let Some(password) = self.password {
            more += &format!(" password \"{password}\";");
        }
        if self.long_lived {
            more += " graceful restart on; long lived graceful restart on;";
        }
        if self.bfd {
            let paths =
                if self.topology == Topology::Routed { "multihop" } else { "interface \"there\"" };
            text += &format!("protocol bfd {{ {paths} {{ interval 300 ms; multiplier 3; }}; }}\n");
            more += if self.topology == Topology::Routed { " bfd on;" } else { " bfd graceful;" };
        }
        if self.topology == Topology::Routed {
            more += " multihop 2;";
        }
        for (local, neighbor) in self.topology.ends() {
            let (asn, zone) = (self.asn(), self.topology.zone(local));
            let channels = "import all; export where source = RTS_STATIC;";
            text += &format!(
                "protocol bgp {} {{ local {neighbor} as {asn}; neighbor {local}{zone} as {OUR_ASN};\
                 {more}\n \
                 connect retry time 1; connect delay time 1; error wait time 1, 2;\n \
                 ipv4 {{ extended next hop on; {channels} }}; ipv6 {{ {channels} }}; }}\n",
                name(local)
            );
        }
        text
    }

    /// Returns the configuration for GoBGP.
    pub fn gobgp(&self) -> String {
        let asn = self.asn();
        let mut text = format!("[global.config]\n as = {asn}\n router-id = \"10.0.0.2\"\n");
        for (local, neighbor) in self.topology.ends() {
            let zone = self.topology.zone(local);
            text += &format!(
                "[[neighbors]]\n [neighbors.config]\n  neighbor-address = \"{local}{zone}\"\n  \
                 peer-as = {OUR_ASN}\n"
            );
            if let Some(password) = self.password {
                text += &format!("  auth-password = \"{password}\"\n");
            }
            text += " [neighbors.timers.config]\n  connect-retry = 1\n  hold-time = 90\n  \
                     keepalive-interval = 30\n  idle-hold-time-after-reset = 1\n \
                     [neighbors.graceful-restart.config]\n  enabled = true\n  restart-time = 60\n";
            if self.long_lived {
                text += "  long-lived-enabled = true\n";
            }
            if self.topology == Topology::Routed {
                text += &format!(
                    " [neighbors.ebgp-multihop.config]\n  enabled = true\n  multihop-ttl = 2\n \
                     [neighbors.transport.config]\n  local-address = \"{neighbor}\"\n"
                );
            }
            for family in ["ipv4-unicast", "ipv6-unicast"] {
                text += &format!(
                    " [[neighbors.afi-safis]]\n  [neighbors.afi-safis.config]\n   \
                     afi-safi-name = \"{family}\"\n  \
                     [neighbors.afi-safis.mp-graceful-restart.config]\n   enabled = true\n"
                );
                if self.long_lived {
                    text += "  [neighbors.afi-safis.long-lived-graceful-restart.config]\n   \
                             enabled = true\n   restart-time = 60\n";
                }
            }
        }
        text
    }
}
