//! Upgrade to a version whose region and store have other formats, back to the former version, and
//! again to the new one, which is committed. Flows in all modes must neither end nor move, also if
//! everything is killed meanwhile or a disk is full.

use package_test::Container;
use package_test::Result;
use package_test::appliance::config;
use package_test::artifacts::{package_in, target};
use package_test::page::upgrade_commands;
use package_test::tree::Tree;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tests::lab::client::{Client, Load};
use tests::lab::container::SYSTEM_CALLS;
use tests::lab::decap::{Answer, Decap};
use tests::lab::gateway::{Gateway, GatewaySetup};
use tests::lab::server::Server;
use tests::lab::settings::Plane;
use tests::lab::topology::{AWS_CLIENTS, AWS_SERVER, FRONTEND, Host, Lab};

/// The frontend of the service in tunnel mode.
const TUNNEL_FRONTEND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 23);
/// The frontend of the service in DSR mode.
const DSR_FRONTEND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 24);
/// The frontend of the service whose packets a local proxy gets.
const PROXY_FRONTEND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 25);
/// The port of the local proxy.
const PROXY: u16 = 9_000;
/// The client of the service in DSR mode, whose packets come without a gateway's tunnel.
const DSR_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);

/// How long the machine may take for the requests of a step. A packet that is lost while nothing
/// forwards is sent again after TCP's retransmission timeout.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The number of further requests that each client must complete after a step.
const REQUESTS: u64 = 100;
/// Delays in milliseconds after which everything is killed during a switch.
const KILLS: [u64; 4] = [30, 120, 300, 700];
/// Delays in milliseconds after which everything is killed during an installation.
const INSTALL_KILLS: [u64; 4] = [400, 1000, 1800, 2600];
/// Kills the package manager and all programs.
const KILL_ALL: &str =
    "pkill --signal KILL --exact 'weir|fastpath|slowpath|ebpf-fallback|apt-get|dpkg|dpkg-deb'";

#[test]
#[ignore = "boots a container: make upgrade-test"]
fn dpdk_is_upgraded_rolled_back_and_committed_with_its_flows() -> Result {
    Scenario::new(Plane::Dpdk)?.run()
}

#[test]
#[ignore = "boots a container: make upgrade-test"]
fn xdp_is_upgraded_rolled_back_and_committed_with_its_flows() -> Result {
    Scenario::new(Plane::Xdp { native: false })?.run()
}

/// An appliance in a container, with a client of each mode that makes requests all the time.
struct Scenario {
    container: Container,
    clients: Vec<(&'static str, Client)>,
    data_plane: String,
    begun: Instant,
    // Dropped in this order: the container ends before the lab's namespaces are removed.
    _gateway: Gateway,
    _backends: Vec<(Decap, Vec<Server>)>,
    _proxy: Server,
    lab: Lab,
    _tree: Tree,
}

impl Scenario {
    fn new(plane: Plane) -> Result<Scenario> {
        let begun = Instant::now();
        let target = target()?;
        let tree = Tree::copy(&target.join("package-test"), "bookworm")?;
        tree.mount_bpf_at_boot()?;
        for (from, to) in [("deb", "root/former"), ("next/deb", "root/next")] {
            let package = package_in(&target.join(from), "weir")?;
            let to = tree.root().join(to);
            std::fs::create_dir_all(&to)?;
            std::fs::copy(package, to.join("weir_1_amd64.deb"))?;
        }
        let mut lab = Lab::new(&["web-1", "web-2"])?;
        lab.set_up_for(plane)?;
        let backends = tunnel_backends(&lab)?;
        lab.bypass_weir()?;
        let proxy = Server::start(&lab.weir, "proxy", (Ipv4Addr::UNSPECIFIED, PROXY).into())?;
        let gateway = lab.aws_gateway(GatewaySetup::default())?;
        let more = ["--capability=all", SYSTEM_CALLS].map(str::to_owned);
        let container = Container::boot(tree.root(), &lab.weir.path(), &more)?;
        container.run("apt-get install --yes /root/former/weir_1_amd64.deb")?;
        tree.write("/etc/weir/weir.toml", &config(plane))?;
        tree.write("/etc/weir/services.toml", SERVICES)?;
        container.run(
            // The region and the interfaces are still those of the packaged configuration.
            "systemctl stop weir-slowpath weir-fastpath; rm -f /dev/shm/weir/region; \
             ip link delete weir-in; ip link delete weir-out; systemctl restart weir.target",
        )?;
        container.until("weir status")?;
        if !plane.is_xdp() {
            // The route of the proxy's responses to the clients.
            lab.weir.ip(&["route replace default via 10.0.1.1 dev weir-in"])?;
        }
        // An object of the API, which only the store has.
        container.run("weir backend drain proxied 10.0.2.12:8080")?;
        let clients = start_clients(&lab)?;
        let data_plane = format!("weir-{}", plane.program());
        let scenario = Scenario {
            container,
            clients,
            data_plane,
            begun,
            _gateway: gateway,
            _backends: backends,
            _proxy: proxy,
            lab,
            _tree: tree,
        };
        scenario.continues("version 1 forwards")?;
        Ok(scenario)
    }

    fn run(mut self) -> Result {
        let result = self.steps();
        if let Err(error) = &result {
            // Ending the clients may take as long as a connection lives.
            self.clients.iter().for_each(|(_, client)| client.stop_requests());
            eprintln!("{error}\n{}", self.container.journal());
            return result;
        }
        self.container.shut_down()
    }

    fn steps(&mut self) -> Result {
        self.restarts()?;
        self.full_disk()?;
        self.pending()?;
        self.switch("New version", "convert the region from format 13 to 14, start")?;
        self.back("by the tool of the previous version, start")?;
        self.killed_meanwhile()?;
        self.full_memory()?;
        self.drained()?;
        self.commit()?;
        self.finish_clients()
    }

    /// Ends the clients, each of which must have had its first connections all the time.
    fn finish_clients(&mut self) -> Result {
        self.clients.iter().for_each(|(_, client)| client.stop_requests());
        for (name, client) in self.clients.drain(..) {
            let stats = client.finish()?;
            println!("{name}: {stats}");
            // A flow that had ended or moved would have failed or reached another backend.
            assert!(stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
            assert_eq!(stats.connections, WORKERS, "{name}: the first connections: {stats}");
        }
        Ok(())
    }

    /// Runs the page's commands that restart a process, and those of a drain, without an upgrade.
    fn restarts(&self) -> Result {
        let data_plane = self.data_plane.trim_start_matches("weir-");
        for heading in ["slowpath", data_plane, "Drain by hand"] {
            for command in upgrade_commands(heading)? {
                println!("# {command}\n{}", self.container.run(&command)?);
            }
            self.container.until("weir status")?;
            self.continues(heading)?;
        }
        Ok(())
    }

    /// Without space for the programs or their documents, the installation changes nothing.
    fn full_disk(&self) -> Result {
        let processes = self.processes()?;
        for full in ["/var/lib/weir-upgrade", "/usr/share/doc/weir"] {
            self.container
                .run(&format!("mkdir -p {full} && mount -t tmpfs -o size=64k full {full}"))?;
            let install = "cd /root/next && apt-get install --yes ./weir_1_amd64.deb";
            let refused = self.container.output(install)?;
            let text =
                String::from_utf8_lossy(&refused.stdout) + String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success(), "{full}: {text}");
            assert!(text.contains("No space left on device"), "{full}: {text}");
            self.container.run(&format!("umount {full}"))?;
            assert_eq!(self.processes()?, processes, "{full}");
            self.switched()?;
            self.continues(&format!("refused: {full} is full"))?;
        }
        Ok(())
    }

    /// Returns the ids of the main processes of slowpath and of the data plane.
    fn processes(&self) -> Result<[String; 2]> {
        Ok([
            self.container.property("weir-slowpath", "MainPID")?,
            self.container.property(&self.data_plane, "MainPID")?,
        ])
    }

    /// After the installation the former version goes on, also if its processes are killed.
    fn pending(&self) -> Result {
        let text = self.install("New version", "next")?;
        assert!(text.contains("the region gets another format"), "{text}");
        self.continues("installed, not switched")?;
        for unit in ["weir-slowpath", self.data_plane.as_str()] {
            let process = self.container.property(unit, "MainPID")?;
            self.container.run(&format!("kill -KILL {process}"))?;
            let show = format!("systemctl show --value --property MainPID {unit}");
            self.container.until(&format!(
                "p=$({show}); [ $p != 0 ] && [ $p != {process} ] && \
                 readlink /proc/$p/exe | grep -q /var/lib/weir-upgrade/previous && weir status"
            ))?;
            self.continues(&format!("{unit} killed before the switch"))?;
        }
        Ok(())
    }

    /// Runs the commands of the page that follow the installation.
    fn switch(&self, heading: &str, plan: &str) -> Result {
        let commands = upgrade_commands(heading)?;
        let [_, plan_command, apply] = commands.as_slice() else {
            return Err(format!("{heading}: three commands expected: {commands:?}").into());
        };
        let text = self.container.run(plan_command)?;
        println!("# {plan_command}\n{text}");
        assert!(text.contains(plan) && text.contains("flows stay"), "{text}");
        let text = self.container.run(apply)?;
        println!("# {apply}\n{text}");
        assert!(text.contains("no packet was forwarded for at most"), "{text}");
        self.switched()?;
        self.continues(heading)
    }

    fn back(&self, plan: &str) -> Result {
        self.install("Back to the former version", "former")?;
        self.continues("former version installed, not switched")?;
        self.switch("Back to the former version", plan)
    }

    /// Kills the package manager, the tool and both daemons during an installation and during the
    /// switch that follows, at several moments and in both directions.
    fn killed_meanwhile(&self) -> Result {
        for (n, delay) in KILLS.into_iter().enumerate() {
            let (heading, folder) = match n % 2 {
                0 => ("New version", "next"),
                _ => ("Back to the former version", "former"),
            };
            let install = self.install_command(heading, folder)?;
            self.kill_all_after(INSTALL_KILLS[n], &install)?;
            self.continues(&format!("{heading}: everything killed during the installation"))?;
            for complete in upgrade_commands("Interrupted installation")? {
                self.container.run(&format!("cd /root/{folder} && {complete}"))?;
            }
            self.kill_all_after(delay, "weir upgrade apply")?;
            let left = self.container.run("ls /dev/shm/weir")?;
            println!(
                "left by the kill after {delay} ms: {}",
                left.split_whitespace().collect::<Vec<_>>().join(" ")
            );
            // The same command completes what was begun.
            self.container.run("weir upgrade apply")?;
            self.switched()?;
            self.continues(&format!("{heading}: everything killed after {delay} ms"))?;
        }
        Ok(())
    }

    /// Without memory for the converted copy of the region, nothing is stopped.
    fn full_memory(&self) -> Result {
        self.install("New version", "next")?;
        let process = self.container.property(&self.data_plane, "MainPID")?;
        self.container.run(
            "free=$(stat --file-system --format '%a * %S' /dev/shm); \
             fallocate --length $((free - 65536)) /dev/shm/full",
        )?;
        let refused = self.container.output("weir upgrade apply")?;
        let text = String::from_utf8_lossy(&refused.stdout);
        assert_eq!(refused.status.code(), Some(1), "{text}");
        assert!(text.contains("free memory, or enlarge it"), "{text}");
        assert_eq!(self.container.property(&self.data_plane, "MainPID")?, process);
        self.continues("refused without memory")?;
        self.container.run("rm /dev/shm/full")?;
        self.switch("New version", "convert the region")
    }

    /// Runs a command, and after a delay in milliseconds kills it and all programs.
    fn kill_all_after(&self, delay: u64, command: &str) -> Result {
        let seconds = delay as f64 / 1000.0;
        self.container.run(&format!(
            "({command}) > /root/killed 2>&1 & sleep {seconds}; {KILL_ALL}; wait; true"
        ))?;
        Ok(())
    }

    /// If nothing converts the region, nothing is switched until the flows have ended.
    fn drained(&mut self) -> Result {
        self.install("Back to the former version", "former")?;
        // The tool that converts back.
        self.container.run("rm /var/lib/weir-upgrade/previous/weir")?;
        let processes = self.processes()?;
        let plan = self.container.run("weir upgrade plan")?;
        assert!(plan.contains("nothing converts format 14 to 13") && plan.contains(" flows end"));
        for (arguments, expected) in [
            ("", "flows would be lost: add --drain or --lose-flows"),
            (" --drain --wait 1", "the drain was ended, nothing was switched"),
        ] {
            let refused = self.container.output(&format!("weir upgrade apply{arguments}"))?;
            let text = String::from_utf8_lossy(&refused.stderr);
            assert!(refused.status.code() == Some(2) && text.contains(expected), "{text}");
            assert_eq!(self.processes()?, processes, "{arguments}");
            self.container.until("weir status")?;
            self.continues(&format!("refused: weir upgrade apply{arguments}"))?;
        }
        self.finish_clients()?;
        let text = self.container.run("weir upgrade apply --drain")?;
        println!("# weir upgrade apply --drain\n{text}");
        assert!(text.contains(" flows left") && text.contains("switched to version"), "{text}");
        self.switched()?;
        self.clients = start_clients(&self.lab)?;
        self.continues("drained, then switched with an empty region")?;
        self.install("New version", "next")?;
        self.switch("New version", "convert the region from format 13 to 14, start")
    }

    /// After a commit, the installation of the former version is refused.
    fn commit(&self) -> Result {
        let commands = upgrade_commands("Stay")?;
        let [commit] = commands.as_slice() else {
            return Err(format!("one command expected: {commands:?}").into());
        };
        // A disk on which no file can be created.
        let record = "/var/lib/weir-upgrade/committed";
        self.container.run(&format!(
            "mkdir -p {record} && mount -t tmpfs -o size=4k,nr_inodes=1 full {record}"
        ))?;
        let refused = self.container.output(commit)?;
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2), "{text}");
        assert!(text.contains("No space left on device"), "{text}");
        self.container.run(&format!("umount {record}"))?;
        let plan = self.container.run("weir upgrade plan")?;
        assert!(plan.contains("store       format 2; `weir upgrade commit` converts it"), "{plan}");
        assert!(plan.contains("previous    ") && !plan.contains("previous    none"), "{plan}");
        let done = self.container.run(commit)?;
        println!("# {commit}\n{done}");
        assert!(done.contains("the store has format 3"), "{done}");
        let commands = upgrade_commands("Back to the former version")?;
        let install = commands.first().ok_or("no command")?.replace("./former", "/root/former");
        let refused = self.container.output(&install.replace("install", "install --yes"))?;
        // apt passes what the package's script says through its standard output.
        let text =
            String::from_utf8_lossy(&refused.stdout) + String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && text.contains("Nothing was changed"), "{text}");
        self.switched()?;
        self.continues("committed; the former version is refused")
    }

    /// Installs the package of the folder by the page's first command.
    fn install(&self, heading: &str, folder: &str) -> Result<String> {
        self.container.run(&self.install_command(heading, folder)?)
    }

    fn install_command(&self, heading: &str, folder: &str) -> Result<String> {
        let commands = upgrade_commands(heading)?;
        let install = commands.first().ok_or("no command")?;
        let install =
            install.replace("./former/weir", "./weir").replace("install", "install --yes");
        Ok(format!("cd /root/{folder} && {install}"))
    }

    /// Waits until the installed version runs.
    fn switched(&self) -> Result {
        self.container
            .until("weir status && weir upgrade plan | grep -q 'nothing: the installed'")?;
        Ok(())
    }

    /// Waits until each client has completed [`REQUESTS`] more requests, without a failed request
    /// or a moved flow, and until slowpath shows the drained backend again.
    fn continues(&self, step: &str) -> Result {
        for (name, client) in &self.clients {
            client.wait_for_open(TIMEOUT).map_err(|e| format!("{step}, {name}: {e}"))?;
            let wanted = client.stats().right + REQUESTS;
            client.wait_for(wanted, TIMEOUT).map_err(|e| format!("{step}, {name}: {e}"))?;
            let stats = client.stats();
            assert!(stats.failed == 0 && stats.moved == 0, "{step}, {name}: {stats}");
        }
        // The object of the API is in force, once slowpath serves again.
        let object = self.container.until("weir services proxied | grep -q terminating");
        object.map_err(|e| format!("{step}: {e}"))?;
        println!("{:6.1} s  {step}", self.begun.elapsed().as_secs_f64());
        Ok(())
    }
}

const SERVICES: &str = r#"[[service]]
name = "web"
mode = "nat"
frontends = [{ address = "203.0.113.10", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11", port = 8080 }, { address = "10.0.2.12", port = 8080 }]

[[service]]
name = "tunnel"
mode = "tunnel"
tunnel = "gue"
frontends = [{ address = "203.0.113.23", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11" }, { address = "10.0.2.12" }]

[[service]]
name = "dsr"
mode = "dsr"
tunnel = "ipip"
frontends = [{ address = "203.0.113.24", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11" }, { address = "10.0.2.12" }]

[[service]]
name = "proxied"
mode = "nat"
proxy_redirect = { port = 9000 }
frontends = [{ address = "203.0.113.25", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11", port = 8080 }, { address = "10.0.2.12", port = 8080 }]
"#;

/// The number of connections of each client.
const WORKERS: u64 = 4;

/// Starts one client for each mode.
fn start_clients(lab: &Lab) -> Result<Vec<(&'static str, Client)>> {
    let behind_gateway = AWS_CLIENTS.map(IpAddr::from).to_vec();
    let clients = [
        ("NAT", FRONTEND),
        ("tunnel", TUNNEL_FRONTEND),
        ("return", AWS_SERVER),
        ("redirect", PROXY_FRONTEND),
        ("DSR", DSR_FRONTEND),
    ];
    clients
        .into_iter()
        .map(|(name, target)| {
            let (ns, sources) = match target {
                DSR_FRONTEND => (&lab.cloud, vec![DSR_CLIENT.into()]),
                _ => (&lab.aws[0], behind_gateway.clone()),
            };
            Ok((name, Client::start(ns, load(sources, (target, 80).into()))?))
        })
        .collect()
}

/// Returns a load whose connections last until the client is stopped.
fn load(sources: Vec<IpAddr>, target: SocketAddr) -> Load {
    Load {
        sources,
        workers: WORKERS,
        per_connection: u64::MAX,
        pause: Duration::from_millis(10),
        patience: TIMEOUT,
        ..Load::new(target, u64::MAX)
    }
}

/// Makes each host a tunnel backend with web servers on the frontends of the tunnel services.
/// Answers to the clients behind the gateway go back through the tunnel.
fn tunnel_backends(lab: &Lab) -> Result<Vec<(Decap, Vec<Server>)>> {
    let serve = |host: &Host| -> Result<(Decap, Vec<Server>)> {
        let decap = Decap::start(&host.ns, Answer::Tunnel)?;
        host.ns.ip(&["route add 192.0.2.0/24 dev decap0"])?;
        let server = |frontend| -> Result<Server> {
            host.ns.ip(&[&format!("addr add {frontend}/32 dev lo")])?;
            Ok(Server::start(&host.ns, &host.name, (frontend, 80).into())?)
        };
        let servers = [TUNNEL_FRONTEND, DSR_FRONTEND].into_iter().map(server);
        Ok((decap, servers.collect::<Result<_>>()?))
    };
    lab.hosts.iter().map(serve).collect()
}
