//! The lab: two appliances behind a real router, clients on the other side of the router, and
//! backends on the segment of the appliances.
//!
//! ```text
//!   client --- router (FRR) --+-- segment --+-- weir-1   one arm, BGP and BFD, next hop: data port
//!                             |             +-- weir-2
//!                             |             +-- web-0, web-1, web-2
//!                             +-- management, optional: BGP and BFD over separate NICs
//! ```
//! There is no cloud gateway: clients send to the frontends' addresses, and the router has routes
//! to these addresses through both appliances. The router distributes flows by a hash of addresses,
//! protocol and ports.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use routers::{DEFAULT_TIMEOUT, Daemon, Frr, Netns, Result, namespace, wait_for};
use serde_json::Value;
use tests::lab::client::{Client, Load};
use tests::lab::decap::{Answer, Decap};
use tests::lab::server::Server;
use tests::lab::topology::veth;

use crate::appliance::{Appliance, session_address};
use crate::monitor::Monitor;
use crate::traffic::Traffic;

/// The frontends' addresses.
pub const FRONTEND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
pub const FRONTEND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 0x10);
/// The port of frontends and backends.
pub const HTTP: u16 = 80;
/// The router's addresses on the segment.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
pub const ROUTER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
/// The router's address on the management network.
pub const ROUTER_MANAGEMENT: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 1);
/// The AS numbers of the appliances and of the router.
pub const OUR_ASN: u32 = 65_001;
pub const THEIR_ASN: u32 = 65_000;
/// Backends `web-0` and following, at 10.0.1.20 and following.
pub const BACKENDS: u8 = 3;
/// BFD parameters of both sides. The multiplier exceeds the usual 3, because two cores may run the
/// router, two poll loops, two control processes and all clients.
pub const BFD_MS: u64 = 300;
pub const BFD_MULTIPLIER: u32 = 5;
/// BFD's detection time.
pub const BFD_TIME: Duration = Duration::from_millis(BFD_MS * BFD_MULTIPLIER as u64);
/// The time limit of a connection attempt to a closed port.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The hashed fields, in the encoding of Linux's `fib_multipath_hash_fields`.
const ADDRESSES_PROTOCOL_PORTS: &str = "0x37";

/// A port that is closed on the appliances.
const DISCARD: u16 = 9;

/// The clients' addresses.
const CLIENTS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(192, 0, 2, 2),
    Ipv4Addr::new(192, 0, 2, 3),
    Ipv4Addr::new(192, 0, 2, 4),
];
const CLIENT6: &str = "fd00:c::1";

/// How services reach their backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Through IPIP; backends answer clients directly. The backend of a flow depends only on the
    /// flow and the tables, so that both appliances select the same backend.
    Tunnel,
    /// By address translation; answers return through the appliance that received the request,
    /// which alone has the flow's state.
    Nat,
}

/// The port over which the appliances' BGP and BFD sessions with the router run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPort {
    /// The data port: through the exception path.
    Data,
    /// A NIC of its own.
    Management,
}

/// The parameters of a test.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub mode: Mode,
    pub port: SessionPort,
    /// How long a drain announces GRACEFUL_SHUTDOWN before it withdraws.
    pub graceful_shutdown: Duration,
}

impl Plan {
    /// Creates a plan without GRACEFUL_SHUTDOWN.
    pub fn new(mode: Mode, port: SessionPort) -> Plan {
        Plan { mode, port, graceful_shutdown: Duration::ZERO }
    }
}

/// A backend: a server, the decapsulation of IPIP packets, and their namespace.
struct Backend {
    _decap: Decap,
    _server: Server,
    _ns: Arc<Netns>,
}

/// The complete lab.
pub struct Fleet {
    pub frr: Frr,
    pub appliances: [Appliance; 2],
    port: SessionPort,
    router: Arc<Netns>,
    client: Arc<Netns>,
    _backends: Vec<Backend>,
}

impl Fleet {
    /// Starts everything, and waits until BFD is up and the router routes to both appliances.
    pub fn start(plan: &Plan) -> Result<Fleet> {
        let (router, client) = (namespace("router")?, namespace("client")?);
        wire(&router, &client)?;
        let backends = (0..BACKENDS).map(|number| backend(&router, number));
        let backends: Vec<Backend> = backends.collect::<Result<_>>()?;
        let frr = Frr::start(&router, &[Daemon::Bgpd, Daemon::Bfdd], &frr(plan))?;
        let appliances = [Appliance::start(&router, 1, plan)?, Appliance::start(&router, 2, plan)?];
        let port = plan.port;
        let fleet = Fleet { frr, appliances, port, router, client, _backends: backends };
        for number in [1, 2] {
            fleet.wait_for_bfd_up(number)?;
        }
        fleet.wait_until_routed([true, true])?;
        fleet.wait_until_served([true, true])?;
        Ok(fleet)
    }

    /// Starts clients with long-lived connections of both families.
    pub fn steady_traffic(&self) -> Result<Traffic> {
        Traffic::start(&self.client, &CLIENTS.map(IpAddr::V4), false)
    }

    /// Starts the clients of [`Fleet::steady_traffic`], and one with short-lived connections.
    pub fn steady_and_fresh_traffic(&self) -> Result<Traffic> {
        Traffic::start(&self.client, &CLIENTS.map(IpAddr::V4), true)
    }

    /// Makes `requests` IPv4 requests over as many connections.
    pub fn new_connections(&self, requests: u64) -> Result<Client> {
        let target = SocketAddr::from((FRONTEND, HTTP));
        let sources = CLIENTS.map(IpAddr::V4).to_vec();
        let load = Load { sources, per_connection: 1, workers: 4, ..Load::new(target, requests) };
        Client::start(&self.client, load)
    }

    /// Returns to which appliances the router's kernel routes, or `None` while the two families
    /// differ, and the routes as text.
    pub fn routed(&self) -> Result<(Option<[bool; 2]>, String)> {
        let four = self.router.command("ip", &["route", "show", &FRONTEND.to_string()])?;
        let six = self.router.command("ip", &["-6", "route", "show", &FRONTEND6.to_string()])?;
        let is_in = |routes: &str, address: IpAddr| routes.contains(&format!("via {address} "));
        let by = |appliance: &Appliance| {
            let of_four = is_in(&four, appliance.address.into());
            (of_four == is_in(&six, appliance.address6.into())).then_some(of_four)
        };
        let [one, two] = &self.appliances;
        Ok((by(one).zip(by(two)).map(|(one, two)| [one, two]), format!("{four}{six}")))
    }

    /// Waits until the router routes to these appliances, for both families.
    pub fn wait_until_routed(&self, expected: [bool; 2]) -> Result<()> {
        let what = format!("routes to {expected:?} of the appliances");
        let look = || {
            let (now, output) = self.routed()?;
            Ok((now == Some(expected), output))
        };
        let result = wait_for(&what, DEFAULT_TIMEOUT, look);
        result.map(drop).inspect_err(|_| {
            // On failure, FRR's state is printed.
            let commands = ["show bgp summary", "show bgp", "show ip route", "show ipv6 route"];
            for command in commands {
                eprintln!("{command}: {}", self.frr.query(command).unwrap_or_default());
            }
            self.appliances.iter().for_each(|one| eprintln!("{}", one.weir.logs()));
        })
    }

    /// Waits until the router's kernel has the MAC addresses of these appliances. While the kernel
    /// resolves an address, it sends the flows of that appliance to the other one. The flows would
    /// move back later, which NAT flows do not survive.
    pub fn wait_until_served(&self, served: [bool; 2]) -> Result<()> {
        for (appliance, _) in self.appliances.iter().zip(served).filter(|(_, served)| *served) {
            for address in [IpAddr::V4(appliance.address), IpAddr::V6(appliance.address6)] {
                wait_for(&format!("the MAC address of {address}"), DEFAULT_TIMEOUT, || {
                    // The port is closed: a refusal shows that the path works in both directions.
                    let connected = self.router.run(move || {
                        TcpStream::connect_timeout(&(address, DISCARD).into(), CONNECT_TIMEOUT)
                    })?;
                    let refused =
                        connected.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
                    Ok((refused, format!("{connected:?}, drops {:?}", appliance.weir.drops())))
                })?;
            }
        }
        Ok(())
    }

    /// Waits until the router's BFD session with an appliance (1 or 2) is up.
    pub fn wait_for_bfd_up(&self, number: u8) -> Result<()> {
        self.wait_for_bfd_state(number, true)
    }

    /// Waits until the router's BFD session with an appliance (1 or 2) is down.
    pub fn wait_for_bfd_down(&self, number: u8) -> Result<()> {
        self.wait_for_bfd_state(number, false)
    }

    /// FRR 8.4 replaces its BFD session by a second one once BGP has supplied the local address,
    /// and ends the BGP session then. Only the second BFD session counts here.
    fn wait_for_bfd_state(&self, number: u8, up: bool) -> Result<()> {
        let address = session_address(number, self.port).to_string();
        wait_for(&format!("BFD with {address}, up: {up}"), DEFAULT_TIMEOUT, || {
            let output = self.frr.json("show bfd peers")?;
            let mut peers = output.as_array().into_iter().flatten();
            let peer = peers.find(|peer| peer["peer"] == address && peer["local"].is_string());
            let is_up = peer.map(|peer| peer["status"] == "up");
            Ok((is_up == Some(up), output.to_string()))
        })
        .map(drop)
    }

    /// Returns a field of the router's session with an appliance (1 or 2).
    fn neighbor(&self, number: u8, name: &str) -> Result<Value> {
        let address = session_address(number, self.port).to_string();
        let mut output = self.frr.json(&format!("show bgp neighbors {address}"))?;
        Ok(output[&address][name].take())
    }

    /// Returns how often the router's session with an appliance (1 or 2) was established.
    pub fn sessions(&self, number: u8) -> Result<u64> {
        Ok(self.neighbor(number, "connectionsEstablished")?.as_u64().unwrap_or(0))
    }

    /// Returns whether the router's session with an appliance (1 or 2) is established.
    pub fn is_established(&self, number: u8) -> Result<bool> {
        Ok(self.neighbor(number, "bgpState")? == "Established")
    }

    /// Returns the last NOTIFICATION of the router's session with an appliance (1 or 2), as FRR
    /// shows it.
    pub fn last_notification(&self, number: u8) -> Result<String> {
        Ok(self.neighbor(number, "lastNotificationReason")?.to_string())
    }

    /// Waits until the router's session with an appliance (1 or 2) was established more than
    /// `before` times and the router has no stale route, which it would keep only over a restart.
    pub fn wait_until_reannounced(&self, number: u8, before: u64) -> Result<()> {
        let address = session_address(number, self.port).to_string();
        wait_for(&format!("fresh routes of {address}"), DEFAULT_TIMEOUT, || {
            let (sessions, output) = (self.sessions(number)?, self.frr.json("show bgp ipv4")?);
            let stale = output.to_string().contains("\"stale\":true");
            Ok((sessions > before && !stale, format!("{sessions} sessions: {output}")))
        })
        .map(drop)
    }

    /// Returns the communities with which an appliance (1 or 2) announces the frontend; `None` if
    /// it does not.
    pub fn announced(&self, number: u8) -> Result<Option<String>> {
        let output = self.frr.json(&format!("show bgp ipv4 unicast {FRONTEND}/32"))?;
        let address = session_address(number, self.port).to_string();
        let paths = output["paths"].as_array().into_iter().flatten();
        let path = paths.clone().find(|path| path["peer"]["peerId"] == address.as_str());
        Ok(path.map(|path| path["community"]["string"].as_str().unwrap_or_default().to_owned()))
    }

    /// Starts to record the router's route changes.
    pub fn monitor(&self) -> Result<Monitor> {
        Monitor::start(&self.router)
    }

    /// Stops the daemons of both appliances.
    pub fn stop(self) -> Result<()> {
        let Fleet { appliances, .. } = self;
        appliances.into_iter().try_for_each(Appliance::stop)
    }
}

/// Creates the segment and the management network at the router, and connects the client.
fn wire(router: &Arc<Netns>, client: &Arc<Netns>) -> Result<()> {
    // Policy 3 hashes the given fields. Policy 1 hashes the same ones, but prefers the hash in the
    // packet's metadata. Over a veth that is the hash of the client's socket, which changes after
    // each timeout: a real router would not receive it.
    for (key, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/fib_multipath_hash_policy", "3"),
        ("ipv6/fib_multipath_hash_policy", "3"),
        ("ipv4/fib_multipath_hash_fields", ADDRESSES_PROTOCOL_PORTS),
        ("ipv6/fib_multipath_hash_fields", ADDRESSES_PROTOCOL_PORTS),
    ] {
        router.sysctl(key, value)?;
    }
    let bridge = |name: &str, address: &str| {
        router.ip(&[
            &format!("link add {name} mtu 9001 type bridge mcast_snooping 0"),
            &format!("link set {name} up"),
            &format!("address add {address}/24 dev {name}"),
        ])
    };
    bridge("segment", &ROUTER.to_string())?;
    bridge("management", &ROUTER_MANAGEMENT.to_string())?;
    router.ip(&[&format!("address add {ROUTER6}/64 dev segment")])?;
    veth((router, "clients"), (client, "eth0"))?;
    router
        .ip(&["address add 192.0.2.254/24 dev clients", "address add fd00:c::fe/64 dev clients"])?;
    let addresses = CLIENTS.map(|address| format!("address add {address}/24 dev eth0"));
    client.ip(&addresses.each_ref().map(String::as_str))?;
    client.ip(&[
        &format!("address add {CLIENT6}/64 dev eth0"),
        "route add default via 192.0.2.254",
        "route add default via fd00:c::fe",
    ])
}

/// Creates a backend for both modes: it serves its own addresses, and the frontends' addresses in
/// IPIP packets.
fn backend(router: &Arc<Netns>, number: u8) -> Result<Backend> {
    let name = format!("web-{number}");
    let ns = namespace(&name)?;
    veth((router, &name), (&ns, "eth0"))?;
    router.ip(&[&format!("link set {name} master segment")])?;
    ns.ip(&[
        &format!("address add 10.0.1.2{number}/24 dev eth0"),
        &format!("address add fd00:1::2{number}/64 dev eth0"),
        &format!("route add default via {ROUTER}"),
        &format!("route add default via {ROUTER6}"),
        &format!("address add {FRONTEND}/32 dev lo"),
        &format!("address add {FRONTEND6}/128 dev lo"),
    ])?;
    let decap = Decap::start(&ns, Answer::Plain)?;
    let server = Server::start(&ns, &name, (Ipv6Addr::UNSPECIFIED, HTTP).into())?;
    Ok(Backend { _decap: decap, _server: server, _ns: ns })
}

/// Returns FRR's configuration. Routes with GRACEFUL_SHUTDOWN get local preference 0, so that they
/// are used only without an alternative, as RFC 8326 section 4 requires.
fn frr(plan: &Plan) -> String {
    let (mut sessions, mut active) = (String::new(), String::new());
    for number in [1, 2] {
        let address = session_address(number, plan.port);
        sessions += &format!(
            " neighbor {address} remote-as {OUR_ASN}\n neighbor {address} timers connect 1\n \
             neighbor {address} bfd\n \
             neighbor {address} bfd {BFD_MULTIPLIER} {BFD_MS} {BFD_MS}\n"
        );
        active +=
            &format!("  neighbor {address} activate\n  neighbor {address} route-map TAKE in\n");
    }
    let families = ["ipv4", "ipv6"].map(|family| {
        format!(
            " address-family {family} unicast\n{active}  maximum-paths 4\n exit-address-family\n"
        )
    });
    format!(
        "router bgp {THEIR_ASN}\n bgp router-id {ROUTER}\n bgp log-neighbor-changes\n{sessions}{}\
         exit\nlog timestamp precision 3\n\
         bgp community-list standard LEAVES permit graceful-shutdown\n\
         route-map TAKE permit 10\n match community LEAVES\n set local-preference 0\nexit\n\
         route-map TAKE permit 20\nexit\n",
        families.concat()
    )
}
