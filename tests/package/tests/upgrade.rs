//! Upgrade to a version whose region has another format, back, and again to stay, with flows in
//! NAT, tunnel and return mode that must neither end nor move, also if everything is killed
//! meanwhile.

use package_test::Container;
use package_test::Result;
use package_test::appliance::config;
use package_test::artifacts::{package_in, target};
use package_test::page::upgrade_commands;
use package_test::tree::Tree;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tests::lab::client::{Client, Load};
use tests::lab::container::SYSTEM_CALLS;
use tests::lab::decap::{Answer, Decap};
use tests::lab::gateway::{Gateway, Setup};
use tests::lab::server::Server;
use tests::lab::settings::Plane;
use tests::lab::topology::{AWS_CLIENTS, AWS_SERVER, FRONTEND, Host, Lab};

/// The frontend of the service in tunnel mode.
const TUNNEL_FRONTEND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 23);

/// How long the machine may take for the requests of a step. A request that is lost in the gap is
/// sent again after TCP's timeout.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The number of further requests that each client must complete after a step.
const REQUESTS: u64 = 100;
/// Delays after which everything is killed during a switch.
const KILLS: [u64; 4] = [30, 120, 300, 700];

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

/// An appliance in a container, with clients that use both services all the time.
struct Scenario {
    container: Container,
    clients: Vec<(&'static str, Client)>,
    data_plane: String,
    begun: Instant,
    // In this order: the container leaves the lab's namespace before that goes.
    _gateway: Gateway,
    _backends: Vec<(Decap, Server)>,
    _lab: Lab,
    _tree: Tree,
}

impl Scenario {
    fn new(plane: Plane) -> Result<Scenario> {
        let begun = Instant::now();
        let target = target()?;
        let tree = Tree::copy(&target.join("package-test"), "bookworm")?;
        tree.mount_bpf_at_boot()?;
        for (folder, place) in [("deb", "root/former"), ("next/deb", "root/next")] {
            let package = package_in(&target.join(folder), "weir")?;
            let place = tree.root().join(place);
            std::fs::create_dir_all(&place)?;
            std::fs::copy(package, place.join("weir_1_amd64.deb"))?;
        }
        let mut lab = Lab::new(&["web-1", "web-2"])?;
        lab.set_up_for(plane)?;
        let backends = tunnel_backends(&lab)?;
        let gateway = lab.aws_gateway(Setup::default())?;
        let more = ["--capability=all", SYSTEM_CALLS].map(str::to_owned);
        let container = Container::boot(tree.root(), &lab.weir.path(), &more)?;
        container.run("apt-get install --yes /root/former/weir_1_amd64.deb")?;
        tree.write("/etc/weir/weir.toml", &config(plane))?;
        tree.write("/etc/weir/services.toml", SERVICES)?;
        container.run(
            "systemctl stop weir-slowpath weir-fastpath; rm -f /dev/shm/weir/region; \
             systemctl restart weir.target",
        )?;
        container.until("weir status")?;
        let web = SocketAddr::from((FRONTEND, 80));
        let tunnel = SocketAddr::from((TUNNEL_FRONTEND, 80));
        let beyond = SocketAddr::from((AWS_SERVER, 80));
        let clients = [("NAT", web), ("tunnel", tunnel), ("return", beyond)]
            .into_iter()
            .map(|(name, target)| Ok((name, Client::start(&lab.aws[0], load(target))?)))
            .collect::<Result<_>>()?;
        let data_plane = format!("weir-{}", plane.program());
        let scenario = Scenario {
            container,
            clients,
            data_plane,
            begun,
            _gateway: gateway,
            _backends: backends,
            _lab: lab,
            _tree: tree,
        };
        scenario.continues("version 1 forwards")?;
        Ok(scenario)
    }

    fn run(self) -> Result {
        let result = self.steps();
        self.clients.iter().for_each(|(_, client)| client.stop_requests());
        if let Err(error) = &result {
            // Ending the clients may take as long as a connection lives.
            eprintln!("{error}\n{}", self.container.journal());
            return result;
        }
        for (name, client) in self.clients {
            let stats = client.finish()?;
            println!("{name}: {stats}");
            // A flow that had ended or moved would have failed or reached another backend.
            assert!(stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
            assert_eq!(stats.connections, WORKERS, "{name}: the first connections: {stats}");
        }
        self.container.shut_down()
    }

    fn steps(&self) -> Result {
        self.pending()?;
        self.switch("New version", "convert the region from format 13 to 14, start")?;
        self.back("by the tool of the previous version, start")?;
        self.killed_meanwhile()?;
        self.full_memory()?;
        self.commit()
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

    /// Kills the tool and both daemons at some moments of a switch, in both directions.
    fn killed_meanwhile(&self) -> Result {
        for (n, delay) in KILLS.into_iter().enumerate() {
            let (heading, folder) = match n % 2 {
                0 => ("New version", "next"),
                _ => ("Back to the former version", "former"),
            };
            self.install(heading, folder)?;
            self.container.run(&format!(
                "weir upgrade apply > /root/killed 2>&1 & sleep {}; \
                 pkill --signal KILL --exact 'weir|fastpath|slowpath|ebpf-fallback'; wait; true",
                delay as f64 / 1000.0
            ))?;
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

    /// Without memory for the copy nothing is stopped.
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
        assert!(text.contains("free memory there"), "{text}");
        assert_eq!(self.container.property(&self.data_plane, "MainPID")?, process);
        self.continues("refused without memory")?;
        self.container.run("rm /dev/shm/full")?;
        self.switch("New version", "convert the region")
    }

    /// After a commit the former version is not installed.
    fn commit(&self) -> Result {
        for command in upgrade_commands("Stay")? {
            println!("# {command}\n{}", self.container.run(&command)?);
        }
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
        let commands = upgrade_commands(heading)?;
        let install = commands.first().ok_or("no command")?;
        let install =
            install.replace("./former/weir", "./weir").replace("install", "install --yes");
        self.container.run(&format!("cd /root/{folder} && {install}"))
    }

    /// Waits until the installed version runs.
    fn switched(&self) -> Result {
        self.container
            .until("weir status && weir upgrade plan | grep -q 'nothing: the installed'")?;
        Ok(())
    }

    /// Waits until each client has completed further requests, each flow without a failure.
    fn continues(&self, step: &str) -> Result {
        for (name, client) in &self.clients {
            client.wait_for_open(TIMEOUT).map_err(|e| format!("{step}, {name}: {e}"))?;
            let wanted = client.stats().right + REQUESTS;
            client.wait_for(wanted, TIMEOUT).map_err(|e| format!("{step}, {name}: {e}"))?;
            let stats = client.stats();
            assert!(stats.failed == 0 && stats.moved == 0, "{step}, {name}: {stats}");
        }
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
"#;

const WORKERS: u64 = 4;

/// Connections that last for the whole test.
fn load(target: SocketAddr) -> Load {
    Load {
        sources: AWS_CLIENTS.map(Into::into).to_vec(),
        workers: WORKERS,
        per_connection: u64::MAX,
        pause: Duration::from_millis(10),
        patience: TIMEOUT,
        ..Load::new(target, u64::MAX)
    }
}

/// Makes each host a tunnel backend with a web server on the tunnel service's frontend.
fn tunnel_backends(lab: &Lab) -> Result<Vec<(Decap, Server)>> {
    let serve = |host: &Host| -> Result<(Decap, Server)> {
        let decap = Decap::start(&host.ns, Answer::Tunnel)?;
        host.ns.ip(&[
            &format!("addr add {TUNNEL_FRONTEND}/32 dev lo"),
            "route add 192.0.2.0/24 dev decap0",
        ])?;
        let server = Server::start(&host.ns, &host.name, (TUNNEL_FRONTEND, 80).into())?;
        Ok((decap, server))
    };
    lab.hosts.iter().map(serve).collect()
}
