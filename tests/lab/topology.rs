//! The lab's namespaces and wires. Offloads of the virtual devices are disabled, and so are the
//! frames with which kernels would answer in place of the appliance.

use super::error::Result;
use super::folder::Folder;
use super::gateway::{Gateway, GatewaySetup};
use super::netns::Netns;
use super::plane::Plane;
use super::prefix::Prefix;
use super::server::Server;
use super::tun::Tun;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Weir's address on the gateways' side.
pub const INGRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 10);
/// Weir's IPv6 address on the gateways' side, if enabled.
pub const INGRESS6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0x10);
/// Weir's address on the backends' side, which is also its NAT address.
pub const EGRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 10);
/// The AWS gateway's nodes.
pub const NODES: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 0, 1, 21), Ipv4Addr::new(10, 0, 1, 22), Ipv4Addr::new(10, 0, 1, 23)];
/// The Azure gateway's own address.
pub const AZURE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 33);
/// Clients that come through the AWS gateway.
pub const AWS_CLIENTS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(192, 0, 2, 2),
    Ipv4Addr::new(192, 0, 2, 3),
    Ipv4Addr::new(192, 0, 2, 4),
];
/// A client with IPv6 inside the AWS gateway's tunnel.
pub const AWS_CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 1);
/// An IPv6 server on the far side of the AWS gateway, for which Weir has no service.
pub const AWS_SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 9);
/// Weir's IPv6 address on the backends' side.
pub const EGRESS6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0x10);
/// A server on the far side of the AWS gateway, for which Weir has no service.
pub const AWS_SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
/// A client that comes through the Azure gateway.
pub const AZURE_CLIENT: Ipv4Addr = Ipv4Addr::new(172, 16, 1, 1);
/// A server on the internal side of the Azure gateway, for which Weir has no service.
pub const AZURE_SERVER: Ipv4Addr = Ipv4Addr::new(172, 16, 9, 9);
/// The frontend that most clients use.
pub const FRONTEND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// The port of the hosts' HTTP servers.
pub const HTTP: u16 = 8_080;
/// The MTU of the wires, that of a cloud's jumbo interface.
pub const MTU: u16 = 9_001;

/// Inner MAC addresses of the two ends of the Azure gateway's tunnels. They differ, because the
/// kernel drops an inner frame with the device's own source address.
const AZURE_MACS: [&str; 2] = ["02:00:00:00:a2:0e", "02:00:00:00:a2:01"];

/// A backend host behind Weir.
pub struct Host {
    /// Its name, which its server reports.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its IPv6 address, which [`Lab::add_ipv6`] assigns.
    pub address6: Ipv6Addr,
    /// Its namespace.
    pub ns: Arc<Netns>,
    /// Its HTTP server on [`HTTP`].
    pub server: Server,
}

/// All namespaces with their wires.
pub struct Lab {
    /// The gateways.
    pub cloud: Netns,
    /// The appliance.
    pub weir: Arc<Netns>,
    /// The network behind the appliance.
    pub lan: Netns,
    /// The AWS gateway's two sides: the clients, and the server for which Weir has no service.
    pub aws: [Netns; 2],
    /// The Azure gateway's two sides: the client, and the server for which Weir has no service.
    pub azure: [Netns; 2],
    /// The servers for which Weir has no service. Traffic that Weir returns reaches them.
    pub beyond: Vec<Server>,
    /// The backends.
    pub hosts: Vec<Host>,
    /// The lab's files.
    pub folder: Arc<Folder>,
}

impl Lab {
    /// Creates a lab with one backend per name, at 10.0.2.11 and following.
    pub fn new(hosts: &[&str]) -> Result<Self> {
        let folder = Arc::new(Folder::new()?);
        let mut lab = Self {
            cloud: Netns::new("cloud")?,
            weir: Arc::new(Netns::new("weir")?),
            lan: Netns::new("lan")?,
            aws: [Netns::new("aws-client")?, Netns::new("aws-server")?],
            azure: [Netns::new("azure-client")?, Netns::new("azure-server")?],
            beyond: Vec::new(),
            hosts: Vec::new(),
            folder,
        };
        lab.wire_ingress()?;
        lab.wire_egress()?;
        lab.set_up_for(Plane::from_env())?;
        lab.wire_azure()?;
        hosts.iter().try_for_each(|name| lab.add_host(name))?;
        Ok(lab)
    }

    /// Lets the appliance's kernel use the appliance's ports (XDP) or hides their frames from it
    /// (DPDK). An operator does this by binding the NIC to another driver.
    pub fn set_up_for(&self, plane: Plane) -> Result<()> {
        set_up_for(&self.weir, &["in0", "eg0"], plane)
    }

    fn wire_ingress(&self) -> Result<()> {
        veth((&self.cloud, "wire"), (&self.weir, "in0"))?;
        let addresses: Vec<String> = NODES
            .iter()
            .chain([&AZURE, &Ipv4Addr::new(10, 0, 1, 1)])
            .map(|address| format!("addr add {address}/24 dev wire"))
            .collect();
        self.cloud.ip(&addresses.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn wire_egress(&self) -> Result<()> {
        self.lan.ip(&["link add br0 mtu 9001 type bridge mcast_snooping 0", "link set br0 up"])?;
        veth((&self.lan, "to-weir"), (&self.weir, "eg0"))?;
        self.lan.ip(&["link set to-weir master br0"])
    }

    fn wire_azure(&mut self) -> Result<()> {
        self.azure_tunnels([(801, 10_801), (800, 10_800)])?;
        let address = SocketAddr::from((AZURE_SERVER, 80));
        self.beyond.push(Server::start(&self.azure[1], "beyond-azure", address)?);
        Ok(())
    }

    /// Creates both tunnels of the Azure gateway, external and internal, each with its VNI and UDP
    /// port.
    /// The VXLAN devices are created in the namespace of the wire, which outer packets use, and
    /// moved to the namespaces of the inner packets. Existing devices are replaced; connections
    /// survive that.
    pub fn azure_tunnels(&self, ends: [(u32, u16); 2]) -> Result<()> {
        for (side, (name, (vni, port))) in
            ["external", "internal"].into_iter().zip(ends).enumerate()
        {
            let (ns, mac, other) = (&self.azure[side], AZURE_MACS[side], AZURE_MACS[1 - side]);
            self.cloud.ip(&[&format!(
                "link add {name} address {mac} mtu 1500 type vxlan id {vni} dstport {port} \
                 local {AZURE} remote {INGRESS} dev wire nolearning noudpcsum"
            )])?;
            let (own, hop) = match side {
                0 => (AZURE_CLIENT, "172.16.1.254"),
                _ => (AZURE_SERVER, "172.16.9.254"),
            };
            if ns.ip(&[&format!("link show {name}")]).is_ok() {
                ns.ip(&[&format!("link del {name}")])?;
            }
            self.cloud.ip(&[&format!("link set {name} netns {}", ns.path())])?;
            no_offloads(ns, name)?;
            ns.ip(&[
                &format!("link set {name} up"),
                &format!("addr add {own}/32 dev {name}"),
                &format!("route add {hop}/32 dev {name}"),
                &format!("route add default via {hop} dev {name}"),
                // The other end's address, which the cloud's fabric would supply.
                &format!("neigh add {hop} lladdr {other} dev {name} nud permanent"),
            ])?;
        }
        Ok(())
    }

    /// Adds IPv6 addresses to the AWS gateway's sides and to the hosts; call after `aws_gateway`.
    /// The outer packets remain IPv4, as on AWS.
    pub fn add_ipv6(&self) -> Result<()> {
        let sides = [("near", AWS_CLIENT6), ("far", AWS_SERVER6)];
        for (ns, (device, address)) in self.aws.iter().zip(sides) {
            ns.sysctl(&format!("ipv6/conf/{device}/disable_ipv6"), "0")?;
            ns.ip(&[
                &format!("addr add {address}/128 dev {device} nodad"),
                &format!("route add ::/0 dev {device}"),
            ])?;
        }
        for host in &self.hosts {
            // The hosts' link has no router to solicit.
            host.ns.sysctl("ipv6/conf/eth0/accept_ra", "0")?;
            host.ns.sysctl("ipv6/conf/eth0/disable_ipv6", "0")?;
            host.ns.ip(&[
                &format!("addr add {}/64 dev eth0 nodad", host.address6),
                &format!("route add ::/0 via {EGRESS6} dev eth0"),
            ])?;
        }
        Ok(())
    }

    /// Adds a path from the hosts to [`Lab::cloud`] that bypasses the appliance, for direct server
    /// return, and a route from there through the appliance to the frontends.
    pub fn bypass_weir(&self) -> Result<()> {
        veth((&self.cloud, "back"), (&self.lan, "router"))?;
        self.lan.ip(&["link set router master br0"])?;
        let routes = ["addr add 10.0.2.1/24 dev back", "route add 203.0.113.0/24 via 10.0.1.10"];
        self.cloud.ip(&routes)?;
        let back = "route replace default via 10.0.2.1 dev eth0";
        self.hosts.iter().try_for_each(|host| host.ns.ip(&[back]))
    }

    /// Adds a backend host with an HTTP server on [`HTTP`], at the next address of 10.0.2.0/24.
    pub fn add_host(&mut self, name: &str) -> Result<()> {
        let number = self.hosts.len() as u8;
        let (ns, port) = (Arc::new(Netns::new(name)?), format!("h{number}"));
        let address = Ipv4Addr::new(10, 0, 2, 11 + number);
        veth((&self.lan, &port), (&ns, "eth0"))?;
        self.lan.ip(&[&format!("link set {port} master br0")])?;
        ns.ip(&[
            &format!("addr add {address}/24 dev eth0"),
            // Answers that a backend sends directly to clients are routed through Weir.
            &format!("route add default via {EGRESS} dev eth0"),
        ])?;
        let server = Server::start(&ns, name, (Ipv6Addr::UNSPECIFIED, HTTP).into())?;
        let address6 = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0x11 + u16::from(number));
        self.hosts.push(Host { name: name.to_owned(), address, address6, ns, server });
        Ok(())
    }

    /// Starts the AWS gateway with the behavior of `setup` and the lab's addresses.
    pub fn aws_gateway(&mut self, setup: GatewaySetup) -> Result<Gateway> {
        let [client, server] = &self.aws;
        let (near, far) = (Tun::new(client, "near", 8_500)?, Tun::new(server, "far", 8_500)?);
        let mut lines: Vec<String> =
            AWS_CLIENTS.iter().map(|address| format!("addr add {address}/32 dev near")).collect();
        lines.push("link set near txqueuelen 10000".into());
        lines.push("route add default dev near".into());
        client.ip(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
        server.ip(&[
            &format!("addr add {AWS_SERVER}/32 dev far"),
            "link set far txqueuelen 10000",
            "route add default dev far",
        ])?;
        if !self.beyond.iter().any(|server| server.name() == "beyond-aws") {
            let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
            self.beyond.push(Server::start(server, "beyond-aws", address)?);
        }
        let setup = GatewaySetup {
            nodes: NODES.to_vec(),
            appliances: vec![INGRESS],
            wire: "wire".into(),
            far: vec![
                Prefix { address: AWS_SERVER.into(), len: 24 },
                Prefix { address: AWS_SERVER6.into(), len: 64 },
            ],
            ..setup
        };
        Gateway::start(&self.cloud, setup, near, Some(far))
    }
}

/// Connects two namespaces by a veth pair, with both ends up and offloads disabled.
pub fn veth((a, one): (&Netns, &str), (b, two): (&Netns, &str)) -> Result<()> {
    a.ip(&[&format!(
        "link add {one} mtu {MTU} txqueuelen 10000 type veth peer name {two} mtu {MTU} \
         txqueuelen 10000 netns {}",
        b.path()
    )])?;
    for (ns, name) in [(a, one), (b, two)] {
        no_offloads(ns, name)?;
        ns.ip(&[&format!("link set {name} up")])?;
    }
    Ok(())
}

/// Disables offloads. With offloads a veth passes on frames of 64 kB and without checksums, which
/// real hardware would have divided and completed.
fn no_offloads(ns: &Netns, name: &str) -> Result<()> {
    let args = ["-K", name, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
    ns.command("ethtool", &args).map(drop)
}

/// Lets the kernel of an appliance's namespace use these ports (XDP) or hides their frames from it
/// (DPDK).
pub fn set_up_for(ns: &Netns, ports: &[&str], plane: Plane) -> Result<()> {
    if plane.is_xdp() { enable_arp(ns, ports) } else { silence_kernel(ns, ports) }
}

/// Keeps the kernel of the appliance's namespace from using the ports.
///
/// With the af_packet PMD the kernel receives every frame too. The ports have no address, but the
/// exception TAPs do, and a Linux host answers for all its addresses on all its interfaces: the
/// kernel would answer ARP and probes a second time. A packet socket takes its copy before the
/// `netdev` ingress hook, so a drop in that hook hides frames from the kernel and not from the PMD
/// (verified with Linux 6.18 and nftables 1.0.6). `arp_ignore` 8 and `rp_filter` 1, which suppress
/// most answers where nf_tables is missing, are set too.
fn silence_kernel(ns: &Netns, ports: &[&str]) -> Result<()> {
    let chains: Vec<String> = ports
        .iter()
        .map(|port| {
            format!(
                "chain {port} {{\n type filter hook ingress device \"{port}\" priority 0; \
                 policy drop;\n}}\n"
            )
        })
        .collect();
    let table = format!("{NO_TABLE}table netdev lab {{\n{}}}\n", chains.concat());
    ns.command_with_input("nft", &["-f", "-"], &table)?;
    ports.iter().try_for_each(|port| set_arp_policy(ns, port, ["8", "1"]))
}

/// Reverts [`silence_kernel`].
fn enable_arp(ns: &Netns, ports: &[&str]) -> Result<()> {
    ns.command_with_input("nft", &["-f", "-"], NO_TABLE)?;
    ports.iter().try_for_each(|port| set_arp_policy(ns, port, ["0", "0"]))
}

/// An nft script that removes the lab's table, whether it exists or not.
const NO_TABLE: &str = "table netdev lab\ndelete table netdev lab\n";

fn set_arp_policy(ns: &Netns, port: &str, [arp_ignore, rp_filter]: [&str; 2]) -> Result<()> {
    ns.sysctl(&format!("ipv4/conf/{port}/arp_ignore"), arp_ignore)?;
    ns.sysctl(&format!("ipv4/conf/{port}/rp_filter"), rp_filter)
}
