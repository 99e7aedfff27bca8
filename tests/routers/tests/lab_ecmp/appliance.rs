//! One of the two appliances: both daemons in a namespace, with one arm and a separate region.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use routers::{Netns, Result};
use tests::lab::LabError;
use tests::lab::folder::Folder;
use tests::lab::process::find;
use tests::lab::scenario::{Totals, Wires};
use tests::lab::settings::Plane;
use tests::lab::topology::{self, MTU, veth};
use tests::lab::weir::Weir;

use crate::fleet::{BACKENDS, BFD_MS, BFD_MULTIPLIER, FRONTEND, FRONTEND6, HTTP, Plan};
use crate::fleet::{Mode, OUR_ASN, ROUTER, ROUTER_MANAGEMENT, ROUTER6, SessionPort, THEIR_ASN};

/// Names of the appliance's ports in its namespace.
const DATA: &str = "in0";
const MANAGEMENT: &str = "mg0";
/// A pause in which a frame on its way arrives and is counted, shorter than the time between two
/// BFD packets.
const REST: Duration = Duration::from_millis(40);

/// An appliance.
pub struct Appliance {
    /// The daemons.
    pub weir: Weir,
    /// The data port's addresses, which are the next hops of the router's routes.
    pub address: Ipv4Addr,
    pub address6: Ipv6Addr,
    number: u8,
    ns: Arc<Netns>,
    router: Arc<Netns>,
    folder: Arc<Folder>,
    /// The counters once the appliance was able for the first time.
    before: (Totals, Wires),
}

impl Appliance {
    /// Connects appliance `number` to the router's segments and starts it.
    pub fn start(router: &Arc<Netns>, number: u8, plan: &Plan) -> Result<Appliance> {
        let (ns, folder) =
            (Arc::new(Netns::new(&format!("weir-{number}"))?), Arc::new(Folder::new()?));
        let plane = Plane::from_env();
        veth((router, &wire(number)), (&ns, DATA))?;
        router.ip(&[&format!("link set {} master segment", wire(number))])?;
        if plan.port == SessionPort::Management {
            veth((router, &format!("mg{number}")), (&ns, MANAGEMENT))?;
            router.ip(&[&format!("link set mg{number} master management")])?;
            let address = session_address(number, plan.port);
            ns.ip(&[&format!("address add {address}/24 dev {MANAGEMENT}")])?;
        }
        topology::set_up_for(&ns, &[DATA], plane)?;
        if plane.is_xdp() {
            // With XDP the kernel also uses the port, which gets the arm's IPv6 address.
            ns.sysctl(&format!("ipv6/conf/{DATA}/disable_ipv6"), "0")?;
        }
        let address6 = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0x10 + u16::from(number));
        let weir = Weir::in_namespace(&ns, &folder, plane)?;
        let before = (Totals::default(), Wires::default());
        let (address, router) = (session_address(number, SessionPort::Data), router.clone());
        let mut made = Appliance { weir, address, address6, number, ns, router, folder, before };
        made.write(plan, plane)?;
        made.weir.start_slowpath()?;
        made.weir.start_fastpath()?;
        made.weir.wait_until_able()?;
        made.weir.wait_for_next_hops()?;
        made.before = made.account_at_rest()?;
        Ok(made)
    }

    fn write(&self, plan: &Plan, plane: Plane) -> Result<()> {
        let path = self.folder.file("objects");
        std::fs::create_dir(&path).map_err(LabError::io(format!("creating {}", path.display())))?;
        self.folder.write("objects/services.toml", &services(plan.mode))?;
        self.folder.write("objects/policy.yaml", &policy(plan))?;
        self.folder.write("weir.toml", &self.configuration(plan, plane)).map(drop)
    }

    fn configuration(&self, plan: &Plan, plane: Plane) -> String {
        let Appliance { address, address6, number, folder, .. } = self;
        let [plane, attach] = plane.keys();
        // The two appliances poll on different CPUs, if there are two.
        let (lcore, main) = (number % 2, 1 - number % 2);
        let (region, maps) = (folder.shared("region"), folder.maps());
        let objects = folder.file("objects");
        let (socket, state) = (folder.file("control.sock"), folder.file("state"));
        let graceful_shutdown = plan.graceful_shutdown.as_secs();
        format!(
            r#"name = "edge-{number}"
services = {objects:?}
{plane}

[fastpath]
lcores = [{lcore}]
{attach}
main_core = {main}
hugepages = false
memory_mib = 256
buffers = 8192
buffer_bytes = 10240
idle = "sleep"

[region]
path = {region:?}
maps = {maps:?}
max_flows = 65536

[ingress]
device = "net_af_packet0,iface={DATA},framesz=9216,blocksz=36864,qpairs=1"
address = ["{address}/24", "{address6}/64"]
gateway = ["{ROUTER}", "{ROUTER6}"]
mtu = {MTU}
tap = "weir-in"

[nat]
addresses = ["{address}", "{address6}"]

[bgp]
graceful_shutdown_s = {graceful_shutdown}

[health]
listen = ["0.0.0.0:8080"]

[metrics]
listen = "127.0.0.1:19100"

[control]
socket = {socket:?}
state = {state:?}
"#
        )
    }

    /// Runs `weir drain`.
    pub fn drain(&self) -> Result<()> {
        self.command(&["drain"])
    }

    /// Runs `weir drain --undo`.
    pub fn undo_drain(&self) -> Result<()> {
        self.command(&["drain", "--undo"])
    }

    fn command(&self, arguments: &[&str]) -> Result<()> {
        let weir = find("weir", "cli")?.display().to_string();
        let socket = self.folder.file("control.sock").display().to_string();
        self.ns.command(&weir, &[&["--socket", &socket], arguments].concat()).map(drop)
    }

    /// Sets the data port's link down at the appliance's end. The router, on the other side of a
    /// bridge, does not notice.
    pub fn set_link_down(&self) -> Result<()> {
        self.ns.ip(&[&format!("link set dev {DATA} down")])
    }

    /// Sets the data port's link up again.
    pub fn set_link_up(&self) -> Result<()> {
        self.ns.ip(&[&format!("link set dev {DATA} up")])
    }

    /// Kills both daemons with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.weir.kill_fastpath()?;
        self.weir.kill_slowpath()
    }

    /// Starts the killed daemons, and waits until the appliance is able.
    pub fn restart(&mut self) -> Result<()> {
        if self.weir.slowpath.is_none() {
            self.weir.start_slowpath()?;
        }
        if self.weir.fastpath.is_none() {
            self.weir.start_fastpath()?;
        }
        self.weir.wait_until_able()
    }

    /// Returns the number of packets that the appliance received from clients for its services.
    pub fn packets(&self) -> Result<u64> {
        Ok(self.weir.services()?.iter().map(|service| service.packets).sum())
    }

    /// Returns the number of flows of all backends.
    pub fn flows(&self) -> Result<u64> {
        let services = self.weir.services()?;
        let backends = services.iter().flat_map(|service| &service.backends);
        Ok(backends.map(|backend| backend.flows).sum())
    }

    /// Stops both daemons: slowpath first, while its BGP speaker can still send over the data port.
    pub fn stop(mut self) -> Result<()> {
        let slowpath = self.weir.slowpath.take();
        slowpath.map_or(Ok(()), |slowpath| slowpath.stop(routers::DEFAULT_TIMEOUT))?;
        self.weir.stop()
    }

    /// Waits until neither the counters nor the router's interface changed for `REST`, and returns
    /// them: a frame on its way would count on one side only.
    fn account_at_rest(&mut self) -> Result<(Totals, Wires)> {
        let (router, wire) = (self.router.clone(), wire(self.number));
        let account = |weir: &Weir| -> Result<(Totals, Wires)> {
            Ok((Totals::now(weir)?, Wires::of(&router, &wire)?))
        };
        let mut last = account(&self.weir)?;
        let what = format!("counters of {} at rest", self.address);
        self.weir.wait_for(&what, routers::DEFAULT_TIMEOUT, |weir| {
            std::thread::sleep(REST);
            let now = account(weir)?;
            let rested = now == last;
            last = now;
            Ok((rested, format!("{last:?}")))
        })?;
        Ok(last)
    }

    /// Waits until the packet counters since the appliance was first able balance, and returns
    /// them. BFD packets never stop, so a poll may observe a packet that is only partly counted.
    pub fn balanced_totals(&mut self) -> Result<Totals> {
        let before = self.before.clone();
        let (address, router) = (self.address, self.router.clone());
        let (wire, mut even) = (wire(self.number), Totals::default());
        let what = format!("balanced counters of {address}");
        self.weir.wait_for(&what, routers::DEFAULT_TIMEOUT, |weir| {
            let first = Wires::of(&router, &wire)?;
            let totals = Totals::now(weir)?.since(&before.0);
            let rested = Wires::of(&router, &wire)? == first;
            let (entered, left) = totals.sides();
            let sent = first.to_weir - before.1.to_weir;
            even = totals;
            let observed = format!("{even}; the router sent {sent} frames; drops {:?}", even.drops);
            Ok((rested && entered == left && even.rx == sent, observed))
        })?;
        Ok(even)
    }
}

/// Returns the name of the router's interface to an appliance.
fn wire(number: u8) -> String {
    format!("weir{number}")
}

/// Returns the appliance's address in the session with the router.
pub fn session_address(number: u8, port: SessionPort) -> Ipv4Addr {
    match port {
        SessionPort::Data => Ipv4Addr::new(10, 0, 1, 10 + number),
        SessionPort::Management => Ipv4Addr::new(10, 0, 9, 10 + number),
    }
}

fn services(mode: Mode) -> String {
    let mut text = String::new();
    let frontends = [("web", IpAddr::V4(FRONTEND)), ("web6", IpAddr::V6(FRONTEND6))];
    for (name, frontend) in frontends {
        let backends = (0..BACKENDS).map(|number| match (mode, frontend) {
            (Mode::Tunnel, _) => format!("{{ address = \"10.0.1.2{number}\" }}"),
            (Mode::Nat, IpAddr::V4(_)) => {
                format!("{{ address = \"10.0.1.2{number}\", port = {HTTP} }}")
            }
            (Mode::Nat, IpAddr::V6(_)) => {
                format!("{{ address = \"fd00:1::2{number}\", port = {HTTP} }}")
            }
        });
        let backends: Vec<String> = backends.collect();
        let how = match mode {
            Mode::Tunnel => "mode = \"dsr\"\ntunnel = \"ipip\"",
            Mode::Nat => "mode = \"nat\"",
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "[[service]]\nname = \"lab/{name}\"\n{how}\ntable_size = 251\n\
             frontends = [{{ address = \"{frontend}\", port = {HTTP}, protocol = \"tcp\" }}]\n\
             backends = [{}]\n",
            backends.join(", ")
        );
    }
    text
}

fn policy(plan: &Plan) -> String {
    let neighbor = match plan.port {
        SessionPort::Data => ROUTER,
        SessionPort::Management => ROUTER_MANAGEMENT,
    };
    format!(
        "\
kind: BgpPeeringPolicy
name: edge
spec:
  routers:
  - local_asn: {OUR_ASN}
    advertisements:
    - services: {{}}
    neighbors:
    - address: {neighbor}
      asn: {THEIR_ASN}
      connect_retry_s: 1
      graceful_restart: {{enabled: true, restart_s: 60}}
      bfd:
        enabled: true
        transmit_ms: {BFD_MS}
        receive_ms: {BFD_MS}
        multiplier: {BFD_MULTIPLIER}
"
    )
}
