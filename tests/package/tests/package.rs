//! The package in a clean Debian: installed, configured, restarted, rebooted, upgraded, removed and
//! purged as the book's page on the installation says, while clients behind an emulated gateway use
//! a service.

use package_test::Container;
use package_test::Result;
use package_test::appliance::config;
use package_test::artifacts::{package, target};
use package_test::page;
use package_test::traffic::{Steps, assert_undisturbed, load};
use package_test::tree::{Tree, run};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::lab::client::Client;
use tests::lab::container::{SYSTEM_CALLS, check_journal};
use tests::lab::gateway::GatewaySetup;
use tests::lab::settings::Plane;
use tests::lab::topology::{FRONTEND, Lab};

const PROGRAMS: [&str; 4] = ["fastpath", "slowpath", "ebpf-fallback", "weir"];

const SERVICES: &str = r#"[[service]]
name = "web"
mode = "nat"
frontends = [{ address = "203.0.113.10", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11", port = 8080 }, { address = "10.0.2.12", port = 8080 }]
"#;

/// The number of requests that must succeed in each phase.
const REQUESTS: u64 = 200;

/// The time limit of a phase's requests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Every section of the page that has commands. `Build` was run by `make package-test`.
const SECTIONS: [&str; 7] =
    ["Build", "Install", "Look at it", "Configure it", "Start", "Upgrade", "Remove"];

#[test]
#[ignore = "boots a container: make package-test"]
fn debian_12_installs_runs_upgrades_and_purges_the_package() -> Result {
    scenario("bookworm", Plane::Dpdk)
}

#[test]
#[ignore = "boots a container: make package-test"]
fn debian_13_installs_runs_upgrades_and_purges_the_package() -> Result {
    scenario("trixie", Plane::Dpdk)
}

#[test]
#[ignore = "boots a container: make package-test"]
fn debian_12_with_xdp_runs_upgrades_and_purges_the_package() -> Result {
    scenario("bookworm", Plane::Xdp { native: false })
}

/// Loads the SBOM and validates it; then prints the crate of each program, from the list of crates
/// that the program contains (section `.dep-v0`, in the format of `cargo auditable`).
const VALIDATE: &str = r#"
import sys, json, zlib, gzip
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
text = gzip.open(sys.argv[1], "rt").read()
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
assert error is None, error
names = [component["name"] for component in json.loads(text)["components"]]
assert len(names) > 100 and "dpdk" in names and "tokio" in names and "aya-ebpf" in names, names
for section in sys.argv[2:]:
    packages = json.loads(zlib.decompress(open(section, "rb").read()))["packages"]
    assert len(packages) > 20, packages
    print(*[package["name"] for package in packages if package.get("root")])
"#;

#[test]
#[ignore = "needs lintian and a validator: make package-test"]
fn the_package_passes_lintian_and_has_a_valid_sbom_and_debug_symbols() -> Result {
    let (package, symbols) = (package("weir")?, package("weir-dbgsym")?);
    let faults = ["--fail-on", "error,warning", "--allow-root"];
    run(Command::new("lintian").args(faults).args([&package, &symbols]))?;

    let folder = target()?.join("package-test").join(format!("files-{}", std::process::id()));
    let unpack = |from: &Path| run(Command::new("dpkg-deb").arg("-x").arg(from).arg(&folder));
    unpack(&package)?;
    unpack(&symbols)?;
    let mut validate = Command::new("../../.tools/cyclonedx/bin/python");
    validate.args(["-c", VALIDATE]).arg(folder.join("usr/share/doc/weir/sbom.cdx.json.gz"));
    for program in PROGRAMS {
        let path = folder.join("usr/bin").join(program);
        let section = folder.join(program);
        let dump = format!("--dump-section=.dep-v0={}", section.display());
        run(Command::new("objcopy").arg(dump).arg(&path).arg(folder.join("copy")))?;
        validate.arg(section);
        let sections = |file: &Path| {
            run(Command::new("readelf").args(["--wide", "--sections", "--notes"]).arg(file))
        };
        let text = sections(&path)?;
        assert!(!text.contains(".debug_line"), "{program} has debug symbols");
        let id = text.split_once("Build ID: ").and_then(|(_, rest)| rest.split_whitespace().next());
        let (start, end) = id.and_then(|id| id.split_at_checked(2)).ok_or("no build ID")?;
        let file = folder.join(format!("usr/lib/debug/.build-id/{start}/{end}.debug"));
        assert!(sections(&file)?.contains(".debug_line"), "{program}: symbols of {id:?}");
        let page = folder.join(format!("usr/share/man/man1/{program}.1.gz"));
        assert!(page.exists(), "{}", page.display());
    }
    let roots = run(&mut validate)?;
    std::fs::remove_dir_all(&folder)?;
    assert_eq!(roots.lines().collect::<Vec<_>>(), ["fastpath", "slowpath", "ebpf-fallback", "cli"]);
    Ok(())
}

/// Boots a tree in the appliance's network namespace. Weir needs more capabilities and system calls
/// than nspawn leaves by default.
fn boot(tree: &Tree, lab: &Lab) -> Result<Container> {
    let more = ["--capability=all", SYSTEM_CALLS].map(str::to_owned);
    Container::boot(tree.root(), &lab.weir.path(), &more)
}

fn scenario(suite: &str, plane: Plane) -> Result {
    let mut steps = Steps::start();
    let package = package("weir")?;
    let tree = Tree::copy(&target()?.join("package-test"), suite)?;
    tree.mount_bpf_at_boot()?;
    let mut lab = Lab::new(&["web-1", "web-2"])?;
    lab.set_up_for(plane)?;
    let gateway = lab.aws_gateway(GatewaySetup::default())?;
    let container = boot(&tree, &lab)?;
    steps.done("tree copied and booted");
    let (before, network) = (tree.files()?, network(&lab)?);
    let machine = Machine { tree: &tree, container, config: config(plane) };
    let data_plane = format!("weir-{}", plane.program());

    assert_eq!(page::headings(), SECTIONS, "sections of the page with commands");
    machine.deliver(&package)?;
    let text = machine.section("Install")?;
    assert!(text.contains("weir: running without a NIC"), "{text}");
    machine.section("Look at it")?;
    let sockets = machine.container.run("stat --format %G:%a /run/weir/control.sock")?;
    assert_eq!(sockets.trim(), "weir-admin:660");
    let modes = machine.container.run("stat --format %U:%G:%a /etc/weir /etc/weir/*")?;
    assert_eq!(
        modes.lines().collect::<Vec<_>>(),
        ["root:weir:750", "root:weir:640", "root:weir:640"]
    );
    // slowpath runs as the user that its unit names, fastpath in the group.
    let user = machine.container.run("ps -o user= -C slowpath; ps -o group= -C fastpath")?;
    assert_eq!(user.split_whitespace().collect::<Vec<_>>(), ["weir", "weir"]);
    steps.done("installed, running without a NIC");

    machine.section("Configure it")?;
    machine.section("Start")?;
    let client = Client::start(&lab.aws[0], load(u64::MAX))?;
    client.wait_for(REQUESTS, TIMEOUT)?;
    steps.done("configured, forwarding");

    // The restart of slowpath that systemd performs after a crash, under traffic.
    let first = machine.container.property("weir-slowpath", "MainPID")?;
    machine.container.run("systemctl kill --kill-whom=main --signal=KILL weir-slowpath")?;
    client.wait_for(client.stats().right + REQUESTS, TIMEOUT)?;
    let second = machine.wait_for_another("weir-slowpath", &first)?;
    client.wait_for(client.stats().right + REQUESTS, TIMEOUT)?;
    assert_undisturbed("slowpath restarted", &client.stats());
    steps.done("slowpath killed and restarted");

    // The installation replaces slowpath and leaves the data plane running, which the page's next
    // commands restart.
    let process = machine.container.property(&data_plane, "MainPID")?;
    machine.deliver_repacked(&package)?;
    let upgrade = page::commands("Upgrade")?;
    let (install, switch) = upgrade.split_first().ok_or("no command")?;
    let text = machine.container.run(install)?;
    assert!(text.contains(&format!("{data_plane} still runs the previous version")), "{text}");
    machine.wait_for_another("weir-slowpath", &second)?;
    assert_eq!(machine.container.property(&data_plane, "MainPID")?, process);
    client.wait_for(client.stats().right + REQUESTS, TIMEOUT)?;
    assert_undisturbed("upgraded", &client.stats());
    switch.iter().try_for_each(|command| machine.command(command))?;
    assert_ne!(machine.container.property(&data_plane, "MainPID")?, process);
    client.wait_for_open(TIMEOUT)?;
    client.wait_for(client.stats().right + REQUESTS, TIMEOUT)?;
    assert_undisturbed("data plane restarted", &client.stats());
    steps.done("upgraded, data plane restarted");

    client.stop_requests();
    assert_undisturbed("upgraded", &client.finish()?);

    check_journal(&machine.container)?;
    machine.container.shut_down()?;
    clear_network(&lab, &network)?;
    let container = boot(&tree, &lab)?;
    let machine = Machine { container, ..machine };
    machine.container.until("weir status")?;
    let stats = Client::start(&lab.aws[0], load(REQUESTS))?.finish()?;
    assert_undisturbed("rebooted", &stats);
    steps.done("rebooted, forwarding again");

    let remove = page::commands("Remove")?;
    let [remove, purge] = remove.as_slice() else {
        return Err(format!("Remove: two commands expected: {remove:?}").into());
    };
    machine.container.run(remove)?;
    steps.done("removed");
    let kept = machine.container.run("cat /etc/weir/weir.toml")?;
    assert_eq!(kept, machine.config, "a removal keeps the configuration");
    let failed =
        lab.aws[0].command("curl", &["--max-time", "3", &format!("http://{FRONTEND}/1/1")]);
    assert!(failed.is_err(), "a removed appliance forwards: {failed:?}");
    // Installed again, it starts with the configuration that was kept.
    machine.container.run(install)?;
    machine.container.until("weir status")?;
    steps.done("installed again");
    machine.container.run(remove)?;
    machine.container.run(purge)?;
    // The kernel's own files of a BPF file system end in .debug.
    let left = machine.container.run(
        "ls -d /dev/shm/* /run/weir* 2> /dev/null; \
         find /sys/fs/bpf -mindepth 1 ! -name '*.debug' 2> /dev/null; ps -e -o comm= | \
         grep -E '^(fastpath|slowpath|ebpf-fallback)'; systemctl list-units --all --plain \
         --no-legend 'weir*'; true",
    )?;
    assert_eq!(left.trim(), "", "left in the running system");
    assert_eq!(self::network(&lab)?, network, "left in the network");
    check_journal(&machine.container)?;
    machine.container.shut_down()?;
    let after = tree.files()?;
    let list = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect();
    let (left, missing): (Vec<_>, Vec<_>) = (list(&after, &before), list(&before, &after));
    assert!(left.is_empty() && missing.is_empty(), "left: {left:#?}, missing: {missing:#?}");
    let report = gateway.stop()?;
    assert!(report.answered > 0, "{report}");
    steps.done("removed and purged");
    Ok(())
}

/// A container with its tree.
struct Machine<'a> {
    tree: &'a Tree,
    container: Container,
    /// The configuration that the operator writes.
    config: String,
}

impl Machine<'_> {
    /// Puts the package into root's home.
    fn deliver(&self, package: &Path) -> Result {
        std::fs::copy(package, self.tree.root().join("root/weir_1_amd64.deb"))?;
        Ok(())
    }

    /// Replaces the package in root's home by the same package with a later version.
    fn deliver_repacked(&self, package: &Path) -> Result {
        self.container.run("rm /root/*.deb")?;
        let folder = self.tree.root().join("root/repacked");
        run(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&folder))?;
        let control = folder.join("DEBIAN/control");
        let text = std::fs::read_to_string(&control)?;
        let version =
            text.lines().find(|line| line.starts_with("Version: ")).ok_or("no version")?;
        std::fs::write(&control, text.replacen(version, &format!("{version}+2"), 1))?;
        let package = self.tree.root().join("root/weir_2_amd64.deb");
        let fast = ["--root-owner-group", "-Zgzip", "-z1", "--build"];
        run(Command::new("dpkg-deb").args(fast).arg(&folder).arg(&package))?;
        Ok(std::fs::remove_dir_all(&folder)?)
    }

    /// Runs the commands of a section of the page and returns what they printed.
    fn section(&self, heading: &str) -> Result<String> {
        let mut text = String::new();
        for command in page::commands(heading)? {
            println!("# {command}");
            text += &self.documented(&command)?;
        }
        Ok(text)
    }

    fn command(&self, command: &str) -> Result {
        println!("# {command}");
        self.documented(command).map(drop)
    }

    /// Runs a command of the page, which must succeed, with the exceptions below.
    fn documented(&self, command: &str) -> Result<String> {
        if command.starts_with("cp ") {
            let text = self.container.run(command)?;
            // The operator edits the copy, and writes services.
            self.tree.write("/etc/weir/weir.toml", &self.config)?;
            self.tree.write("/etc/weir/services.toml", SERVICES)?;
            return Ok(text);
        }
        match command {
            // Not able until both processes have started.
            "weir status" => self.container.until(command),
            // Exit code 1: the container's machine has faults, which depend on the test's host.
            "weir doctor" => {
                let output = self.container.output(command)?;
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                match output.status.code() {
                    Some(0 | 1) if text.contains("configuration") => Ok(text),
                    _ => Err(format!("weir doctor: {output:?}").into()),
                }
            }
            _ => self.container.run(command),
        }
    }

    /// Waits until a unit has another main process than `process` and Weir is able again; returns
    /// the id of that process.
    fn wait_for_another(&self, unit: &str, process: &str) -> Result<String> {
        let show = format!("systemctl show --value --property MainPID {unit}");
        let test = format!("p=$({show}); [ $p != 0 ] && [ $p != {process} ] && weir status");
        self.container.until(&test)?;
        self.container.property(unit, "MainPID")
    }
}

/// Returns what an appliance may change in its network: interfaces with their programs, addresses
/// and routing rules, each as a command of `ip` that would remove it.
fn network(lab: &Lab) -> Result<BTreeSet<String>> {
    let ip = |args: &[&str]| lab.weir.command("ip", args);
    let mut found = BTreeSet::new();
    for line in ip(&["-oneline", "link"])?.lines() {
        let name = line.split([':', '@']).nth(1).unwrap_or_default().trim();
        found.insert(format!("link delete dev {name}"));
        if line.contains("xdp") {
            found.insert(format!("link set dev {name} xdp off"));
        }
    }
    for line in ip(&["-oneline", "address"])?.lines() {
        if let [_, name, _, address, ..] = line.split_whitespace().collect::<Vec<_>>()[..] {
            found.insert(format!("address delete {address} dev {name}"));
        }
    }
    for family in ["-4", "-6"] {
        for line in ip(&[family, "rule"])?.lines() {
            let (preference, rule) = line.split_once(':').ok_or_else(|| line.to_owned())?;
            found.insert(format!("{family} rule delete preference {preference} {}", rule.trim()));
        }
    }
    Ok(found)
}

/// Restores the network to what it was `before`, as the reboot of a machine would: the lab's
/// network outlives the container.
fn clear_network(lab: &Lab, before: &BTreeSet<String>) -> Result {
    for command in network(lab)?.difference(before) {
        // Fails for the second interface of a veth pair, which was deleted with the first.
        let _ = lab.weir.command("ip", &command.split(' ').collect::<Vec<_>>());
    }
    assert_eq!(&network(lab)?, before);
    Ok(())
}
