//! The initial tables of cases, in the form that an operator writes.

use super::addresses::{EGRESS, EGRESS_ROUTER, INGRESS, ROUTER, backend_mac};
use crate::frames::Mac;

/// A host with a known MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// Its address.
    pub address: &'static str,
    /// The arm on whose link it is.
    pub arm: u8,
    /// Its MAC address.
    pub mac: Mac,
}

/// The initial state of a case: a configuration, a services file, and the neighbors on the links.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The name in failure messages.
    pub name: &'static str,
    /// `[[gateway]]` entries.
    pub gateways: String,
    /// The services file.
    pub services: String,
    /// `region.max_flows`.
    pub max_flows: u32,
    /// `region.max_fragments`.
    pub max_fragments: u32,
    /// `region.max_affinities`.
    pub max_affinities: u32,
    /// `region.max_scopes`.
    pub max_scopes: u32,
    /// `region.option_slabs`.
    pub option_slabs: u32,
    /// Further keys of `[region]`.
    pub region: &'static str,
    /// `nat.ports`.
    pub nat_ports: &'static str,
    /// `nat.addresses`, as a TOML list.
    pub nat_addresses: &'static str,
    /// The seed of the tables; if `None`, each region has a random one.
    pub seed: Option<u64>,
    /// `egress.ipip_sources`.
    pub ipip_sources: &'static str,
    /// Keys of `[punt]`.
    pub punt: &'static str,
    /// Keys of `[icmp]`; by default they disable all rate limits.
    pub icmp: &'static str,
    /// Addresses of BGP neighbors.
    pub routers: Vec<&'static str>,
    /// Further keys of `[flows]`.
    pub flows: &'static str,
    /// `flows.nat_new_per_s` and `flows.tunnel_new_per_s`; by default there are no limits.
    pub new_flows: &'static str,
    /// Hosts with known MAC addresses.
    pub neighbors: Vec<Neighbor>,
    /// The number of frames after which the queue to the kernel is full.
    pub kernel_capacity: usize,
}

/// The AWS gateway of the cases.
const AWS: &str = r#"
[[gateway]]
name = "aws"
kind = "aws"
sources = ["10.0.1.0/24"]
"#;

/// Keys that disable the rate limits of ICMP errors.
const UNLIMITED: &str = "errors_per_s = 0\nerrors_per_network_per_s = 0\npath_mtu_errors_per_s = 0";

/// The Azure gateway of the cases.
const AZURE: &str = r#"
[[gateway]]
name = "azure"
kind = "azure"
sources = ["10.0.1.0/24"]
external = { port = 10801, vni = 801 }
internal = { port = 10800, vni = 800 }
"#;

impl Setup {
    fn new(name: &'static str, gateways: &str, services: &str) -> Setup {
        let egress = |n: u8, address| Neighbor { address, arm: EGRESS, mac: backend_mac(n) };
        Setup {
            name,
            gateways: gateways.into(),
            services: services.into(),
            max_flows: 1024,
            max_fragments: 64,
            max_affinities: 64,
            max_scopes: 64,
            option_slabs: 64,
            region: "",
            nat_ports: "1024-32767",
            nat_addresses: r#"["10.0.2.20", "fd00:2::20"]"#,
            seed: None,
            ipip_sources: "",
            punt: "",
            icmp: UNLIMITED,
            routers: Vec::new(),
            flows: "",
            new_flows: "nat_new_per_s = 0",
            neighbors: vec![
                Neighbor { address: "10.0.1.1", arm: INGRESS, mac: ROUTER },
                Neighbor { address: "fd00:1::1", arm: INGRESS, mac: ROUTER },
                Neighbor { address: "10.0.2.1", arm: EGRESS, mac: EGRESS_ROUTER },
                egress(11, "10.0.2.11"),
                egress(12, "10.0.2.12"),
                egress(11, "fd00:2::11"),
                egress(12, "fd00:2::12"),
            ],
            kernel_capacity: usize::MAX,
        }
    }

    /// Adds keys to the last gateway.
    pub fn gateway(mut self, keys: &str) -> Setup {
        self.gateways += keys;
        self.gateways += "\n";
        self
    }

    /// Sets the name.
    pub fn named(mut self, name: &'static str) -> Setup {
        self.name = name;
        self
    }

    /// Returns the configuration file, with these DPDK devices of the arms.
    pub fn config(&self, ingress: &str, egress: &str) -> String {
        let Setup { gateways, nat_ports, nat_addresses, punt, flows, new_flows, .. } = self;
        let Setup { max_flows, max_fragments, max_affinities, max_scopes, .. } = self;
        let Setup { option_slabs, ipip_sources, icmp, region, .. } = self;
        // One map for each pair of a backend (64) and a NAT address of the backend's family. A list
        // of two or more addresses has at least one of each family, so that at most all but one are
        // of the same family.
        let nat_maps = 64 * (nat_addresses.matches('"').count() / 2).saturating_sub(1).max(1);
        format!(
            r#"name = "cases"
[fastpath]
lcores = [1]
main_core = 0
hugepages = false
[region]
path = "/dev/shm/weir-cases/region"
max_services = 16
max_frontends = 64
max_backends = 64
max_next_hops = 64
slots = 65536
nat_maps = {nat_maps}
max_flows = {max_flows}
max_fragments = {max_fragments}
max_affinities = {max_affinities}
max_scopes = {max_scopes}
option_slabs = {option_slabs}
{region}
[ingress]
device = "{ingress}"
address = ["10.0.1.10/24", "fd00:1::10/64"]
gateway = "10.0.1.1"
mtu = 9001
[egress]
device = "{egress}"
address = ["10.0.2.10/24", "fd00:2::10/64"]
ipip_sources = "{ipip_sources}"
mtu = 9001
[nat]
addresses = {nat_addresses}
ports = "{nat_ports}"
[punt]
{punt}
[icmp]
{icmp}
[flows]
{flows}
{new_flows}
{gateways}"#
        )
    }
}

/// Formats a `[[service]]` section of the services file.
pub fn service(name: &str, keys: &str, frontends: &str, backends: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\n{keys}\nfrontends = [{frontends}]\n\
         backends = [{backends}]\n"
    )
}

/// The IPv4 frontend of "web".
pub const WEB: &str = r#"{address = "203.0.113.10", port = 80, protocol = "tcp"}"#;
/// The single backend of "web".
pub const WEB_BACKEND: &str = r#"{address = "10.0.2.11", port = 8080}"#;

/// Builds three NAT services with one backend each: "web" and "web6" at TCP port 80 of
/// 203.0.113.10 and 2001:db8:f::10, and "any" at all of 203.0.113.20.
pub fn web_by_nat() -> String {
    service("web", "mode = \"nat\"", WEB, WEB_BACKEND)
        + &service(
            "web6",
            "mode = \"nat\"",
            r#"{address = "2001:db8:f::10", port = 80, protocol = "tcp"}"#,
            r#"{address = "fd00:2::11", port = 8080}"#,
        )
        + &service(
            "any",
            "mode = \"nat\"",
            r#"{address = "203.0.113.20"}"#,
            r#"{address = "10.0.2.12"}"#,
        )
}

/// Builds services with the frontends of [`web_by_nat`] and one at all of 2001:db8:f::20, with
/// backends of the other family.
fn web_translated() -> String {
    let service = |name: &str, policy: &str, frontend: &str, backend: &str| {
        let keys = format!("mode = \"nat\"\nnat_policy = \"{policy}\"");
        service(name, &keys, frontend, backend)
    };
    let web6 = r#"{address = "2001:db8:f::10", port = 80, protocol = "tcp"}"#;
    service("web46", "nat46", WEB, r#"{address = "fd00:2::11", port = 8080}"#)
        + &service("any46", "nat46", r#"{address = "203.0.113.20"}"#, r#"{address = "fd00:2::12"}"#)
        + &service("web64", "nat64", web6, WEB_BACKEND)
        + &service(
            "any64",
            "nat64",
            r#"{address = "2001:db8:f::20"}"#,
            r#"{address = "10.0.2.12"}"#,
        )
}

/// Builds a service "web" with a tunnel to its single backend.
pub fn web_by_tunnel(mode: &str, tunnel: &str, backend: &str) -> String {
    let keys = format!("mode = \"{mode}\"\ntunnel = \"{tunnel}\"");
    service("web", &keys, WEB, &format!("{{address = \"{backend}\"}}"))
}

/// An AWS gateway without services.
pub fn aws_return() -> Setup {
    Setup::new("aws return only", AWS, "")
}

/// An AWS gateway, services with NAT through the egress arm.
pub fn aws_nat() -> Setup {
    Setup::new("aws nat44 two-arm", AWS, &web_by_nat())
}

/// An AWS gateway, a service through a GENEVE tunnel to one inspection appliance.
pub fn aws_chain() -> Setup {
    Setup::new("tunnel geneve chain", AWS, &web_by_tunnel("tunnel", "geneve", "10.0.2.11"))
}

/// An AWS gateway, a service through this kind of tunnel, whose answers return through Weir.
pub fn aws_tunnel(tunnel: &str) -> Setup {
    Setup::new("tunnel with return leg", AWS, &web_by_tunnel("tunnel", tunnel, "10.0.2.11"))
}

/// An Azure gateway without services.
pub fn azure_return() -> Setup {
    Setup::new("azure return only", AZURE, "")
}

/// An Azure gateway, services with NAT.
pub fn azure_nat() -> Setup {
    Setup::new("azure nat44 two-arm", AZURE, &web_by_nat())
}

/// No gateway, a service with direct server return.
pub fn plain_dsr(tunnel: &str, backend: &str) -> Setup {
    Setup::new("dsr plain", "", &web_by_tunnel("dsr", tunnel, backend))
}

/// No gateway, services with NAT.
pub fn plain_nat() -> Setup {
    Setup::new("nat44 plain", "", &web_by_nat())
}

/// An AWS gateway, services with backends of the other family.
pub fn aws_translated() -> Setup {
    Setup::new("aws nat46 and nat64", AWS, &web_translated())
}

/// An Azure gateway, services with backends of the other family.
pub fn azure_translated() -> Setup {
    Setup::new("azure nat46 and nat64", AZURE, &web_translated())
}

/// No gateway, services with backends of the other family.
pub fn plain_translated() -> Setup {
    Setup::new("nat46 and nat64 plain", "", &web_translated())
}

/// Returns setups that together have every kind of gateway, mode and tunnel.
pub fn default_setups() -> Vec<Setup> {
    let tunnels = ["geneve", "vxlan", "gue", "ipip"];
    let dsr = ["vxlan", "gue", "ipip"].map(|tunnel| plain_dsr(tunnel, "10.0.2.11"));
    let others = [aws_return(), aws_nat(), aws_chain(), azure_return(), azure_nat(), plain_nat()];
    let others = others.into_iter().chain([aws_translated(), plain_translated()]);
    tunnels.map(aws_tunnel).into_iter().chain(dsr).chain(others).collect()
}
