//! Configuration and services of the appliance under test, as its operator would write them.

use super::error::Result;
use super::folder::Folder;
pub use super::plane::Plane;
use super::topology::{EGRESS, EGRESS6, INGRESS, INGRESS6, MTU};
use std::fmt::Write;

/// The settings that differ between labs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data plane.
    pub plane: Plane,
    /// CPUs for polling lcores.
    pub lcores: Vec<u16>,
    /// The maximum number of flows.
    pub max_flows: u32,
    /// The AWS gateway's maximum inner packet, in bytes.
    pub aws_inner_mtu: u16,
    /// What Weir does with an AWS gateway's packet that is too big for its path: `reply` (with an
    /// ICMP error) or `drop`.
    pub too_big: &'static str,
    /// Whether a packet of one of the Azure gateway's tunnels is returned through the other one.
    pub cross: bool,
    /// Whether the backends' side has IPv6, with an IPv6 NAT address.
    pub ipv6: bool,
    /// Whether the gateways' side has IPv6.
    pub ingress6: bool,
    /// Lines that are appended to the file, after the keys of section `[control]`.
    pub more: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            plane: Plane::from_env(),
            lcores: vec![1],
            max_flows: 65_536,
            aws_inner_mtu: 8_500,
            too_big: "reply",
            cross: true,
            ipv6: false,
            ingress6: false,
            more: String::new(),
        }
    }
}

impl Settings {
    /// Writes `weir.toml` into a lab's directory.
    pub fn write(&self, folder: &Folder) -> Result<()> {
        folder.write("weir.toml", &self.text(folder)).map(drop)
    }

    fn text(&self, folder: &Folder) -> String {
        let Self { plane, lcores, max_flows, aws_inner_mtu, too_big, cross, more, .. } = self;
        let [plane, attach] = plane.keys();
        let (egress6, nat6) = match self.ipv6 {
            true => (format!(", \"{EGRESS6}/64\""), format!(", \"{EGRESS6}\"")),
            false => Default::default(),
        };
        let ingress6 = if self.ingress6 { format!(", \"{INGRESS6}/64\"") } else { String::new() };
        let (services, region) = (folder.file("services.toml"), folder.shared("region"));
        let (socket, state) = (folder.file("control.sock"), folder.file("state"));
        // The af_packet PMD truncates frames to 2,048 bytes by default. A ring frame of 9,216 bytes
        // holds a frame of 9,001 + 18 bytes with the ring's header, and fits into a buffer. Four
        // ring frames fill a block of nine pages.
        let buffers = 4_096 + 4_096 * lcores.len();
        let ring = format!("framesz=9216,blocksz=36864,qpairs={}", lcores.len());
        let maps = folder.maps();
        format!(
            r#"name = "lab"
services = {services:?}
{plane}

[fastpath]
lcores = {lcores:?}
{attach}
main_core = 0
hugepages = false
memory_mib = 256
buffers = {buffers}
buffer_bytes = 10240
idle = "sleep"

[region]
path = {region:?}
maps = {maps:?}
max_flows = {max_flows}

[ingress]
device = "net_af_packet0,iface=in0,{ring}"
address = ["{INGRESS}/24"{ingress6}]
mtu = {MTU}
tap = "weir-in"

[egress]
device = "net_af_packet1,iface=eg0,{ring}"
address = ["{EGRESS}/24"{egress6}]
mtu = {MTU}
tap = "weir-out"

[nat]
addresses = ["{EGRESS}"{nat6}]

[[gateway]]
name = "aws"
kind = "aws"
sources = ["10.0.1.16/28"]
inner_mtu = {aws_inner_mtu}
too_big = "{too_big}"

[[gateway]]
name = "azure"
kind = "azure"
sources = ["10.0.1.32/28"]
external = {{ port = 10801, vni = 801 }}
internal = {{ port = 10800, vni = 800 }}
cross = {cross}

[health]
listen = ["0.0.0.0:8080"]

[metrics]
listen = "127.0.0.1:19100"

[control]
socket = {socket:?}
state = {state:?}
{more}"#
        )
    }
}

/// A backend of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its address.
    pub address: String,
    /// Its port; 0 is the frontend's port.
    pub port: u16,
    /// Its weight.
    pub weight: u16,
    /// `active`, `terminating`, `quarantined` or `maintenance`.
    pub state: &'static str,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// The line with the key `mode`, and further keys of the service.
    pub mode: String,
    /// The frontends: address, port and protocol.
    pub frontends: Vec<(String, u16, &'static str)>,
    /// Its backends.
    pub backends: Vec<Backend>,
}

/// Writes `services.toml` atomically, as an operator's tool should.
pub fn write_services(folder: &Folder, services: &[Service]) -> Result<()> {
    let mut text = String::new();
    for Service { name, mode, frontends, backends } in services {
        // Writing to a string does not fail.
        let _ = writeln!(text, "[[service]]\nname = {name:?}\n{mode}\nfrontends = [");
        for (address, port, protocol) in frontends {
            let _ = writeln!(
                text,
                "    {{ address = {address:?}, port = {port}, protocol = {protocol:?} }},"
            );
        }
        let _ = writeln!(text, "]\nbackends = [");
        for Backend { address, port, weight, state } in backends {
            let _ = writeln!(
                text,
                "    {{ address = {address:?}, port = {port}, weight = {weight}, \
                 state = {state:?} }},"
            );
        }
        text.push_str("]\n\n");
    }
    folder.write("services.toml", &text).map(drop)
}
