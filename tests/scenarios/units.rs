//! The daemons under their units: their messages to the service manager, and the work of each
//! program with the user, capabilities and restrictions of its unit.

use std::error::Error;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use patience::{check, poll};
use tables::region::Region;
use tests::lab::client::{Client, Load};
use tests::lab::container::{ADMIN, Image, NOBODY, WEIR, check_journal, write_etc};
use tests::lab::scenario::{changing_gateway, service};
use tests::lab::settings::{Plane, Settings, write_services};
use tests::lab::stepper::Stepper;
use tests::lab::topology::{FRONTEND, Lab};
use tests::lab::weir::Weir;

/// Upper bound of any wait.
const PATIENCE: Duration = Duration::from_secs(30);
/// The watchdog's timeout in the tests. The daemons send a keep-alive message every quarter of it.
const WATCHDOG: Duration = Duration::from_secs(1);

/// The region's file in shared memory.
const SHM: &str = "/dev/shm/weir/region";
/// The region's file on hugepages of 2 MiB.
const HUGE: &str = "/dev/hugepages/weir-region";
/// The line of `/proc/PID/smaps` of a mapping with such pages.
const HUGEPAGE: &str = "KernelPageSize:     2048 kB";
/// The number of reserved hugepages of the default size.
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// An emulated service manager.
struct ServiceManager {
    socket: UnixDatagram,
}

impl ServiceManager {
    /// Creates the socket, and sets the environment with which both daemons of an appliance send to
    /// it.
    fn of(weir: &mut Weir, lab: &Lab) -> Result<ServiceManager, Box<dyn Error>> {
        let path = lab.folder.file("notify");
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(WATCHDOG))?;
        weir.environment = vec![
            ("NOTIFY_SOCKET".to_owned(), path.display().to_string()),
            ("WATCHDOG_USEC".to_owned(), WATCHDOG.as_micros().to_string()),
        ];
        Ok(ServiceManager { socket })
    }

    /// Returns the next message; `None` if none arrives for [`WATCHDOG`].
    fn next(&self) -> Result<Option<String>, std::io::Error> {
        let mut bytes = [0; 1024];
        match self.socket.recv(&mut bytes) {
            Ok(len) => Ok(Some(String::from_utf8_lossy(&bytes[..len]).into_owned())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for a message that contains the line.
    fn wait_for(&self, line: &str) -> Result<String, Box<dyn Error>> {
        let begun = Instant::now();
        let mut received = Vec::new();
        while begun.elapsed() < PATIENCE {
            if let Some(message) = self.next()? {
                if message.lines().any(|found| found == line) {
                    return Ok(message);
                }
                received.push(message);
            }
        }
        Err(format!("no {line}, but {received:?}").into())
    }

    /// Waits until no keep-alive message has arrived for [`WATCHDOG`].
    fn wait_for_silence(&self) -> Result<(), Box<dyn Error>> {
        let (begun, mut last_message) = (Instant::now(), Instant::now());
        while begun.elapsed() < PATIENCE {
            if self.next()?.is_some_and(|message| message == "WATCHDOG=1") {
                last_message = Instant::now();
            }
            if last_message.elapsed() >= WATCHDOG {
                return Ok(());
            }
        }
        Err("the keep-alive messages do not stop".into())
    }
}

#[test]
fn fastpath_sends_no_keep_alive_while_one_lcore_is_stopped() -> Result<(), Box<dyn Error>> {
    let lab = Lab::new(&["web-1"])?;
    let settings = Settings { plane: Plane::Dpdk, lcores: vec![0, 1], ..Settings::default() };
    let mut weir = Weir::prepare(&lab, &settings, &[service(&lab, &[(0, "active")])])?;
    let manager = ServiceManager::of(&mut weir, &lab)?;
    weir.start_fastpath()?;
    let ready = manager.wait_for("READY=1")?;
    assert!(ready.contains("STATUS=2 lcore(s) poll; ingress (net_af_packet0"), "{ready}");
    let region = Region::open(&lab.folder.shared("region"))?;
    assert_eq!(region.live_lcores().count(), 2, "ready once the lcores poll");
    manager.wait_for("WATCHDOG=1")?;
    manager.wait_for("WATCHDOG=1")?;
    // The other lcore and the control thread go on.
    let stopped = Stepper::seize(weir.fastpath.as_ref().ok_or("no fastpath")?)?;
    manager.wait_for_silence()?;
    drop(stopped);
    manager.wait_for("WATCHDOG=1")?;
    weir.stop()?;
    let stopping = manager.wait_for("STOPPING=1")?;
    assert!(stopping.contains("\nSTATUS="), "{stopping}");
    Ok(())
}

#[test]
fn ebpf_fallback_reports_readiness_keep_alive_and_its_end() -> Result<(), Box<dyn Error>> {
    let lab = Lab::new(&["web-1"])?;
    let settings = Settings { plane: Plane::Xdp { native: false }, ..Settings::default() };
    let mut weir = Weir::prepare(&lab, &settings, &[service(&lab, &[(0, "active")])])?;
    let manager = ServiceManager::of(&mut weir, &lab)?;
    weir.start_fastpath()?;
    let ready = manager.wait_for("READY=1")?;
    assert!(ready.contains("STATUS=generic XDP on in0, generic XDP on eg0"), "{ready}");
    assert!(lab.weir.command("ip", &["link", "show", "in0"])?.contains("xdp"), "attached");
    manager.wait_for("WATCHDOG=1")?;
    manager.wait_for("WATCHDOG=1")?;
    let loader = weir.fastpath.as_ref().ok_or("no loader")?.id().to_string();
    lab.weir.command("kill", &["-STOP", &loader])?;
    manager.wait_for_silence()?;
    lab.weir.command("kill", &["-CONT", &loader])?;
    manager.wait_for("WATCHDOG=1")?;
    weir.stop()?;
    manager.wait_for("STOPPING=1")?;
    Ok(())
}

/// Writes the files of an appliance, and returns its configuration with the paths of an installed
/// appliance. The path of the region's file is `region`.
fn installed(lab: &Lab, plane: Plane, region: &str) -> Result<String, Box<dyn Error>> {
    Settings { plane, ..Settings::default() }.write(&lab.folder)?;
    write_services(&lab.folder, &[service(lab, &[(0, "active")])])?;
    lab.set_up_for(plane)?;
    let mut config = std::fs::read_to_string(lab.folder.file("weir.toml"))?;
    for (from, to) in [
        (lab.folder.file("services.toml"), "/etc/weir/services.toml"),
        (lab.folder.shared("region"), region),
        (lab.folder.maps(), "/sys/fs/bpf/weir"),
        (lab.folder.file("control.sock"), "/run/weir/control.sock"),
        (lab.folder.file("state"), "/var/lib/weir"),
    ] {
        config = config.replace(&format!("{:?}", from.display().to_string()), &format!("{to:?}"));
    }
    // Both daemons read the seed that one generates.
    config += "\n[tables]\nseed = \"generate\"\n";
    Ok(config)
}

/// Creates a container with this configuration, the lab's services, and further files in
/// `/etc/weir`.
fn image(lab: &Lab, config: &str, more: &[(&str, &str)]) -> Result<Image, Box<dyn Error>> {
    let services = std::fs::read_to_string(lab.folder.file("services.toml"))?;
    let etc = [&[("weir.toml", config), ("services.toml", &services)], more].concat();
    Image::create(lab.folder.file("root"), "/etc/weir/weir.toml".as_ref(), &etc)
}

/// Asserts that clients behind the gateway are served.
fn assert_served(lab: &Lab) -> Result<(), Box<dyn Error>> {
    let stats = Client::start(&lab.aws[0], Load::new((FRONTEND, 80).into(), 40))?.finish()?;
    assert!(stats.right == 40 && stats.failed == 0, "{stats}");
    Ok(())
}

/// Runs an appliance under its units in a container: start, traffic, `weir`, reload and stop.
fn run_under_units(plane: Plane) -> Result<(), Box<dyn Error>> {
    let mut lab = Lab::new(&["web-1"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    let config = installed(&lab, plane, SHM)?;
    // Listening on a port below 1024 requires CAP_NET_BIND_SERVICE.
    let config = config.replace("\"0.0.0.0:8080\"", "\"0.0.0.0:8080\", \"127.0.0.1:88\"");
    let container = image(&lab, &config, &[])?.boot(&lab.weir)?;
    let data_plane = format!("weir-{}.service", plane.program());
    let units = [&*data_plane, "weir-slowpath.service"];

    if plane.is_xdp() {
        // systemd mounts this file system on a machine. In a container, nspawn mounts /sys
        // read-only and without this directory.
        container.run(
            "mount -o remount,rw /sys && mkdir -p /sys/fs/bpf &&
             mount -t bpf -o mode=0700 bpf /sys/fs/bpf && mount -o remount,ro /sys",
        )?;
    }
    // The command returns once both units have reported their readiness.
    container.systemctl(&format!("start {}", units.join(" ")))?;
    let mut weir = Weir::in_namespace(&lab.weir, &lab.folder, plane)?;
    weir.wait_until_able().map_err(|error| format!("{error}\n{}", container.journal()))?;

    assert_served(&lab)?;

    for unit in units {
        assert_eq!(container.process_status(unit, "NoNewPrivs")?, "1", "{unit}");
        assert_eq!(container.process_status(unit, "Seccomp")?, "2", "{unit}: filtered");
    }
    let slowpath = units[1];
    let ids = container.process_status(slowpath, "Uid")?;
    assert!(ids.split('\t').all(|id| id == WEIR.to_string()), "{ids}");
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_BPF. slowpath has dropped the unit's
    // CAP_DAC_READ_SEARCH.
    let capabilities = container.process_status(slowpath, "CapEff")?;
    assert_eq!(u64::from_str_radix(&capabilities, 16)?, 1 << 10 | 1 << 12 | 1 << 39);
    poll("a status that says able", PATIENCE, || {
        let status = container.property(slowpath, "StatusText").map_err(|e| e.to_string())?;
        check(status.starts_with("able, generation "), || status)
    })?;
    let answer = lab.weir.command("curl", &["-s", "http://127.0.0.1:88/"])?;
    assert!(answer.contains("\"able\":true"), "{answer}");

    // Members of weir-admin may use the control socket; others may not.
    let as_group = |group: u32| {
        let ids = format!("--reuid {NOBODY} --regid {group} --clear-groups");
        container.run(&format!("setpriv {ids} /weir/weir status"))
    };
    let shown = as_group(ADMIN)?;
    assert!(shown.contains("able"), "{shown}");
    let denied = as_group(NOBODY).err().ok_or("any user may use the control socket")?;
    assert!(denied.to_string().to_lowercase().contains("permission denied"), "{denied}");
    let region = if plane.is_xdp() { "/sys/fs/bpf/weir/HEADER" } else { SHM };
    let about = container.run(&format!("stat --format='%G %a' {region}"))?;
    assert_eq!(about.trim(), "weir 660");

    container.systemctl(&format!("reload {slowpath}"))?;
    let log = format!("journalctl --no-pager --unit {slowpath}");
    container.until(&format!("{log} | grep 'reading configuration and services again'"))?;
    let state = format!("systemctl show --value --property ActiveState {slowpath}");
    container.until(&format!("{state} | grep --line-regexp active"))?;
    assert_eq!(container.property(slowpath, "NRestarts")?, "0", "{}", container.run(&log)?);

    // A slowpath that is killed starts again, and both serve after a restart of the data plane.
    container.systemctl(&format!("kill --signal=KILL {slowpath}"))?;
    container.systemctl(&format!("restart {data_plane}"))?;
    weir.wait_until_able()?;
    assert_served(&lab)?;
    for unit in [units[1], units[0]] {
        container.systemctl(&format!("stop {unit}"))?;
        assert_eq!(container.property(unit, "Result")?, "success", "{unit}");
    }
    container.run(&format!("test -e {region}"))?;
    check_journal(&container)?;
    container.shut_down()?;
    gateway.stop()?;
    Ok(())
}

#[test]
fn slowpath_and_fastpath_work_under_their_units() -> Result<(), Box<dyn Error>> {
    run_under_units(Plane::Dpdk)
}

#[test]
fn slowpath_and_ebpf_fallback_work_under_their_units() -> Result<(), Box<dyn Error>> {
    run_under_units(Plane::Xdp { native: false })
}

/// The number of hugepages that the machine had reserved before the test; restored on drop.
struct Reserved(String);

impl Reserved {
    fn remember() -> std::io::Result<Reserved> {
        std::fs::read_to_string(RESERVED).map(Reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(RESERVED, &self.0) {
            eprintln!("{RESERVED}: {error}; write {} into it", self.0.trim());
        }
    }
}

#[test]
fn slowpath_and_fastpath_work_on_hugepages_under_their_units() -> Result<(), Box<dyn Error>> {
    let mut lab = Lab::new(&["web-1"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    let config = installed(&lab, Plane::Dpdk, HUGE)?;
    let config = config.replace("hugepages = false", "hugepages = true");
    let reserved = Reserved::remember()?;
    let container = image(&lab, &config, &[])?.boot(&lab.weir)?;
    // nspawn mounts /sys read-only. The unit reserves hugepages of each NUMA node in
    // /sys/devices/system/node.
    container.run("mount -o remount,rw /sys/devices")?;
    container.systemctl("start weir-hugepages.service")?;
    container.systemctl("start weir-fastpath.service weir-slowpath.service")?;
    let mut weir = Weir::in_namespace(&lab.weir, &lab.folder, Plane::Dpdk)?;
    weir.wait_until_able().map_err(|error| format!("{error}\n{}", container.journal()))?;
    assert_served(&lab)?;
    let about = container.run(&format!("stat --format='%G %a' {HUGE}"))?;
    assert_eq!(about.trim(), "weir 660");
    let mapped = |unit: &str| -> Result<u32, Box<dyn Error>> {
        let maps = format!("/proc/{}/smaps", container.property(unit, "MainPID")?);
        let region = container.run(&format!("grep -A 3 ' {HUGE}$' {maps}"))?;
        assert!(region.contains(HUGEPAGE), "{unit}: {region}");
        Ok(container.run(&format!("grep -c '{HUGEPAGE}' {maps}"))?.trim().parse()?)
    };
    // The region, and with fastpath DPDK's memory.
    assert_eq!(mapped("weir-slowpath.service")?, 1);
    let of_fastpath = mapped("weir-fastpath.service")?;
    assert!(of_fastpath > 1, "{of_fastpath}");
    for unit in ["weir-slowpath.service", "weir-fastpath.service"] {
        container.systemctl(&format!("stop {unit}"))?;
        assert_eq!(container.property(unit, "Result")?, "success", "{unit}");
    }
    check_journal(&container)?;
    container.shut_down()?;
    drop(reserved);
    gateway.stop()?;
    Ok(())
}

/// Creates a self-signed certificate for `localhost`, and returns it and its key in PEM.
fn certificate(lab: &Lab) -> Result<[String; 2], Box<dyn Error>> {
    let files = ["cert.pem", "key.pem"].map(|name| lab.folder.file(name));
    let [cert, key] = files.each_ref().map(|path| path.display().to_string());
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    let leaf = ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &cert];
    lab.weir.command("openssl", &[&["req", "-x509"], &curve[..], &names, &leaf].concat())?;
    Ok([std::fs::read_to_string(&files[0])?, std::fs::read_to_string(&files[1])?])
}

/// Returns the status of a request to the API with this token, whose server must have the last
/// certificate of [`certificate`].
fn api_status(lab: &Lab, token: &str) -> Result<String, Box<dyn Error>> {
    let (cert, bearer) = (lab.folder.file("cert.pem"), format!("Authorization: Bearer {token}"));
    let cert = cert.display().to_string();
    let output =
        ["--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{http_code}"];
    let input = ["--max-time", "20", "--cacert", &cert, "--header", &bearer];
    let url = ["https://localhost:8443/v1/objects/services"];
    Ok(lab.weir.command("curl", &[&output[..], &input, &url].concat())?)
}

#[test]
fn slowpath_serves_tls_and_reloads_replaced_secrets_under_its_unit() -> Result<(), Box<dyn Error>> {
    let lab = Lab::new(&["web-1"])?;
    let slowpath = "weir-slowpath.service";
    let config = installed(&lab, Plane::Dpdk, SHM)?
        + "[api]\nlisten = \"127.0.0.1:8443\"\ntoken_file = \"/etc/weir/token\"\n\
           tls_cert = \"/etc/weir/cert.pem\"\ntls_key = \"/etc/weir/key.pem\"\n\
           token_overlap_s = 0\n";
    let (first, second) = ("the-first-token-of-clients", "the-second-token-of-clients");
    let [cert, key] = certificate(&lab)?;
    let secrets = [("token", first), ("cert.pem", &*cert), ("key.pem", &*key)];
    let container = image(&lab, &config, &secrets)?.boot(&lab.weir)?;
    let start = format!("start --job-mode=ignore-dependencies {slowpath}");
    container.systemctl(&start)?;
    assert_eq!(api_status(&lab, first)?, "200");
    assert_eq!(api_status(&lab, second)?, "401");

    let root = lab.folder.file("root");
    let [cert, key] = certificate(&lab)?;
    assert!(api_status(&lab, first).is_err(), "curl trusts the new certificate only");
    for (name, text) in [("cert.pem", &*cert), ("key.pem", &*key), ("token", second)] {
        write_etc(&root, name, text)?;
    }
    poll("the replaced certificate and token", PATIENCE, || {
        let status = api_status(&lab, second).map_err(|error| error.to_string())?;
        check(status == "200", || status)
    })?;
    assert_eq!(api_status(&lab, first)?, "401");
    assert_eq!(container.property(slowpath, "NRestarts")?, "0");
    check_journal(&container)?;

    // The check of the journal detects a unit that forbids a system call of slowpath.
    container.systemctl(&format!("stop {slowpath}"))?;
    let forbid = "[Service]\nSystemCallFilter=~listen\nRestart=no\n";
    let drop_in = format!("/etc/systemd/system/{slowpath}.d");
    container.run(&format!("mkdir {drop_in} && printf '{forbid}' > {drop_in}/forbid.conf"))?;
    container.systemctl("daemon-reload")?;
    assert!(container.systemctl(&start).is_err(), "slowpath cannot start");
    let denied = check_journal(&container).err().ok_or("the denial is not detected")?;
    assert!(denied.to_string().contains("status=31/SYS"), "{denied}");
    container.shut_down()
}
