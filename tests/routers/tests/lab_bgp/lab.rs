//! The lab: the appliance, its two networks, a router on both networks, and a client behind the
//! router.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use routers::{LabError, Netns, namespace};
use serde_json::{Value, json};
use tests::lab::client::{Client, ClientStats, Load};
use tests::lab::process::find;
use tests::lab::settings::{Backend, Plane, Service, Settings};
use tests::lab::topology::{FRONTEND, HTTP, Lab, veth};
use tests::lab::weir::Weir;

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The appliance's AS number.
pub const OUR_ASN: u32 = 65_001;
/// The router's AS number.
pub const THEIR_ASN: u32 = 65_002;
/// The data port's addresses, which routes must have as next hops.
pub const NEXT_HOPS: [&str; 2] = ["10.0.1.10", "fd00:1::10"];
/// The prefix of the IPv4 frontend, as a router shows it.
pub const PREFIX4: &str = "203.0.113.10/32";
/// The prefix of the IPv6 frontend, as a router shows it.
pub const PREFIX6: &str = "2001:db8::10/128";
/// The IPv6 frontend.
const FRONTEND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
/// The directory of object files, below the lab's directory.
const OBJECTS: &str = "objects";
/// The TCP-MD5 key of both sides, in tests with authentication.
pub const KEY: &str = "as-both-sides-know";
/// The directory of TCP-MD5 keys, below the lab's directory.
const SECRETS: &str = "secrets";
/// Maximum wait for an effect; long, because the machine may have only two processors and run other
/// processes.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Serializes the tests if they are threads of one process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The network of the session between the router and the appliance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// The network of the traffic: the session passes the data plane and the exception path.
    DataPort,
    /// Another network, which the data plane does not use.
    Management,
}

impl Network {
    /// Returns the appliance's address.
    pub fn appliance(self) -> &'static str {
        match self {
            Network::DataPort => NEXT_HOPS[0],
            Network::Management => "10.0.9.10",
        }
    }

    /// Returns the router's address.
    pub fn router(self) -> &'static str {
        match self {
            Network::DataPort => "10.0.1.1",
            Network::Management => "10.0.9.1",
        }
    }

    /// Returns the router's interface.
    pub fn device(self) -> &'static str {
        match self {
            Network::DataPort => "data",
            Network::Management => "mgmt",
        }
    }
}

/// The complete lab.
pub struct BgpLab {
    pub weir: Weir,
    pub router: Arc<Netns>,
    pub client: Arc<Netns>,
    pub lab: Lab,
}

/// The parameters of a test.
pub struct Plan {
    pub plane: Plane,
    /// Whether the daemons run under their units.
    pub under_units: bool,
    /// `[bgp]` and other sections at the end of the configuration.
    pub config: &'static str,
    /// Policies, by name.
    pub policies: Vec<(&'static str, Value)>,
}

impl Plan {
    /// Creates a plan with one policy, on the plane selected in the environment.
    pub fn new(policy: Value) -> Plan {
        let policies = vec![("edge", policy)];
        Plan { plane: Plane::from_env(), under_units: false, config: "", policies }
    }
}

impl BgpLab {
    /// Builds everything and starts the appliance; no router runs yet.
    pub fn new(plan: &Plan) -> Outcome<BgpLab> {
        let lab = Lab::new(&["web-1", "web-2"])?;
        let (router, client) = (namespace("router")?, namespace("client")?);
        wire(&lab, &router, &client)?;
        let settings = Settings {
            plane: plan.plane,
            ipv6: true,
            ingress6: true,
            more: plan.config.into(),
            ..Settings::default()
        };
        let services = services(&lab, "");
        let mut weir = Weir::prepare(&lab, &settings, &services)?;
        if plan.under_units {
            weir.use_units()?;
        }
        let objects = lab.folder.file(OBJECTS);
        std::fs::create_dir(&objects).map_err(LabError::io("creating the directory of objects"))?;
        symlink(lab.folder.file("services.toml"), objects.join("services.toml"))
            .map_err(LabError::io("linking the services file into it"))?;
        weir.environment.push(("WEIR_SERVICES".into(), objects.display().to_string()));
        let secrets = lab.folder.file(SECRETS);
        std::fs::create_dir(&secrets).map_err(LabError::io("creating the directory of secrets"))?;
        weir.environment.push(("WEIR_BGP__SECRETS".into(), secrets.display().to_string()));
        if plan.plane.is_xdp() {
            // With DPDK the kernel must not use these ports.
            lab.weir.sysctl("ipv6/conf/in0/disable_ipv6", "0")?;
            lab.weir.sysctl("ipv6/conf/eg0/disable_ipv6", "0")?;
        }
        let mut bgp_lab = BgpLab { weir, router, client, lab };
        for (name, spec) in &plan.policies {
            bgp_lab.write_policy(name, spec)?;
        }
        bgp_lab.weir.launch()?;
        Ok(bgp_lab)
    }

    /// Writes a policy as a file.
    pub fn write_policy(&self, name: &str, spec: &Value) -> Outcome {
        let object = json!({"kind": "BgpPeeringPolicy", "name": name, "spec": spec});
        self.lab.folder.write(&format!("{OBJECTS}/{name}.json"), &object.to_string())?;
        Ok(())
    }

    /// Writes a TCP-MD5 key into the directory of keys, atomically.
    pub fn write_key(&self, name: &str, key: &str) -> Outcome {
        self.lab.folder.write(&format!("{SECRETS}/{name}"), key)?;
        Ok(())
    }

    /// Removes a policy.
    pub fn remove_policy(&self, name: &str) -> Outcome {
        Ok(std::fs::remove_file(self.lab.folder.file(&format!("{OBJECTS}/{name}.json")))?)
    }

    /// Returns the reason and the message of a policy's condition; both empty if it has none.
    pub fn condition(&self, name: &str) -> routers::Result<(String, String)> {
        let all: Value = self.weir.document("/v1/objects/bgp-peering-policies")?;
        let mut items = all["items"].as_array().into_iter().flatten();
        let object = items.find(|object| object["name"] == name);
        let conditions = object.map(|object| &object["status"]["conditions"]);
        let one = conditions.map(|all| all[0].clone()).unwrap_or_default();
        let field = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        Ok((field("reason"), field("message")))
    }

    /// Waits until a policy's condition has this reason, and returns the message.
    pub fn wait_for_condition(&mut self, name: &str, reason: &str) -> Outcome<String> {
        routers::wait_for(&format!("condition {reason} of {name}"), TIMEOUT, || {
            let condition = self.condition(name)?;
            Ok((condition.0 == reason, format!("{condition:?}\n{}", self.weir.logs())))
        })?;
        Ok(self.condition(name)?.1)
    }

    /// Runs `weir ARGUMENTS` as an operator does.
    pub fn command(&self, arguments: &[&str]) -> Outcome<String> {
        let program = find("weir", "cli")?.display().to_string();
        let socket = self.lab.folder.file("control.sock").display().to_string();
        Ok(self.lab.weir.command(&program, &[&["--socket", &socket], arguments].concat())?)
    }

    /// Starts HTTP requests of the client to the IPv4 frontend, five per connection.
    pub fn load(&self, requests: u64, pause: Duration) -> Outcome<Client> {
        let load = Load { pause, ..Load::new((FRONTEND, 80).into(), requests) };
        Ok(Client::start(&self.client, load)?)
    }

    /// Checks that the client gets correct responses from both frontends through the router's
    /// routes.
    pub fn check_responses(&self) -> Outcome {
        let both: [IpAddr; 2] = [FRONTEND.into(), FRONTEND6.into()];
        for frontend in both {
            let load = Load::new(SocketAddr::new(frontend, 80), 100);
            let stats = Client::start(&self.client, load)?.finish()?;
            let why = || format!("{frontend}: {stats}{:?}", self.weir.drops());
            assert_eq!((stats.right, stats.failed, stats.moved), (100, 0, 0), "{}", why());
        }
        Ok(())
    }

    /// Returns the route of a prefix in the router's kernel.
    pub fn fib(&self, prefix: &str) -> routers::Result<String> {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        self.router.command("ip", &[family, "route", "show", prefix])
    }
}

/// Asserts that no request failed.
#[track_caller]
pub fn assert_no_failures(stats: &ClientStats) {
    println!("{stats}");
    assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{stats}");
}

/// Returns a service of each family, with all hosts as active backends; `more` are further keys of
/// both services.
pub fn services(lab: &Lab, more: &str) -> Vec<Service> {
    let hosts: Vec<usize> = (0..lab.hosts.len()).collect();
    services_with(lab, more, &hosts, "active")
}

/// Returns a service of each family with these hosts as backends, in this state.
pub fn services_with(lab: &Lab, more: &str, hosts: &[usize], state: &'static str) -> Vec<Service> {
    let backend = |address| Backend { address, port: HTTP, weight: 100, state };
    let one = |name: &str, frontend: IpAddr, addresses: Vec<String>| Service {
        name: format!("lab/{name}"),
        mode: format!("mode = \"nat\"\n{more}"),
        frontends: vec![(frontend.to_string(), 80, "tcp")],
        backends: addresses.into_iter().map(backend).collect(),
    };
    let four = hosts.iter().map(|host| lab.hosts[*host].address.to_string()).collect();
    let six = hosts.iter().map(|host| lab.hosts[*host].address6.to_string()).collect();
    vec![one("web", FRONTEND.into(), four), one("web6", FRONTEND6.into(), six)]
}

/// Returns a neighbor with these additional keys, and a short connect retry time.
pub fn neighbor(over: Network, more: &Value) -> Value {
    let mut all = json!({"address": over.router(), "asn": THEIR_ASN, "connect_retry_s": 1});
    for (key, value) in more.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    all
}

/// Returns a policy with one router, which announces all services to a neighbor.
pub fn policy(neighbor: &Value) -> Value {
    json!({"routers": [{"local_asn": OUR_ASN, "listen_port": 179,
        "advertisements": [{"services": {}}], "neighbors": [neighbor]}]})
}

/// Connects the appliance, the router and the client. A bridge is between the router and the data
/// port, so the link state of the data port does not affect the router's interface.
fn wire(lab: &Lab, router: &Netns, client: &Netns) -> Outcome {
    veth((&lab.cloud, "to-router"), (router, "data"))?;
    lab.cloud.ip(&[
        "addr flush dev wire",
        "link add br0 mtu 9001 type bridge mcast_snooping 0",
        "link set br0 up",
        "link set wire master br0",
        "link set to-router master br0",
    ])?;
    veth((router, "mgmt"), (&lab.weir, "mgmt0"))?;
    veth((router, "clients"), (client, "eth0"))?;
    for (key, value) in [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")] {
        router.sysctl(key, value)?;
    }
    router.ip(&[
        "addr add 10.0.1.1/24 dev data",
        "addr add fd00:1::1/64 dev data",
        "addr add 10.0.9.1/24 dev mgmt",
        "addr add 198.51.100.1/24 dev clients",
        "addr add 2001:db8:c::1/64 dev clients",
    ])?;
    lab.weir.ip(&["addr add 10.0.9.10/24 dev mgmt0"])?;
    client.ip(&[
        &format!("addr add {}/24 dev eth0", Ipv4Addr::new(198, 51, 100, 2)),
        "addr add 2001:db8:c::2/64 dev eth0",
        "route add default via 198.51.100.1 dev eth0",
        "route add ::/0 via 2001:db8:c::1 dev eth0",
    ])?;
    for host in &lab.hosts {
        host.ns.sysctl("ipv6/conf/eth0/accept_ra", "0")?;
        host.ns.sysctl("ipv6/conf/eth0/disable_ipv6", "0")?;
        host.ns.ip(&[&format!("addr add {}/64 dev eth0 nodad", host.address6)])?;
    }
    Ok(())
}
