//! Examination of a booted appliance: its units, NICs, memory and sandbox, and requests through it;
//! and the configuration that it has.

use crate::Result;
use crate::machine::{METRICS, Machine, journal};
use crate::traffic::{Steps, assert_undisturbed, load};
use nics::guest::Guest;
use nics::machine::DataNic;
use serde_json::Value;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;
use tests::lab::client::Client;
use tests::lab::gateway::{Gateway, GatewaySetup};
use tests::lab::topology::Lab;

/// The configuration, as in an image for many machines: values that differ between machines are
/// `"auto"`.
const CONFIG: &str = r#"name = "auto"
services = "/etc/weir/services.toml"
plane = "auto"

[fastpath]
lcores = [1]
main_core = 0
memory_mib = 128
buffers = 8192
idle = "sleep"

[region]
max_flows = 65536

[ingress]
device = "enp1s0"
address = "auto"

[egress]
device = "enp2s0"
address = "auto"

[nat]
addresses = "auto"

[[gateway]]
name = "aws"
kind = "aws"
sources = ["10.0.1.16/28"]

[health]
listen = ["0.0.0.0:8080"]

[metrics]
listen = "@METRICS@"

[tables]
seed = "Ym9vdCB0ZXN0IDEy"
"#;

/// The services file.
pub const SERVICES: &str = r#"[[service]]
name = "web"
mode = "nat"
frontends = [{ address = "203.0.113.10", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11", port = 8080 }, { address = "10.0.2.12", port = 8080 }]
"#;

/// The services of `weir.target`.
const UNITS: [&str; 7] = [
    "weir-auto",
    "weir-hugepages",
    "weir-plane",
    "weir-nics",
    "weir-fastpath",
    "weir-ebpf-fallback",
    "weir-slowpath",
];

/// The number of requests that must succeed after each boot.
pub const REQUESTS: u64 = 200;

/// The time limit of a command in the guest.
pub const COMMAND: Duration = Duration::from_secs(120);

/// Returns the configuration with this plane.
pub fn config(plane: &str) -> String {
    let plane = format!("plane = \"{plane}\"");
    CONFIG.replace("plane = \"auto\"", &plane).replace("@METRICS@", METRICS)
}

/// Creates a lab with two web servers and an AWS gateway.
pub fn lab() -> Result<(Lab, Gateway)> {
    let mut lab = Lab::new(&["web-1", "web-2"])?;
    let gateway = lab.aws_gateway(GatewaySetup::default())?;
    Ok((lab, gateway))
}

/// Stops the gateway, which checked every packet that the appliance returned.
pub fn finish(gateway: Gateway) -> Result {
    let report = gateway.stop()?;
    println!("{report}");
    assert!(report.answered > 0, "{report}");
    Ok(())
}

/// What a boot selects.
pub struct Expected {
    plane: &'static str,
    /// The driver of the data NICs in the guest's kernel.
    driver: &'static str,
    /// The unit of the data plane, and the units that are skipped.
    data_plane: &'static str,
    skipped: &'static [&'static str],
    /// The capabilities of the data plane, as in `/proc/PID/status`.
    capabilities: u64,
    /// The data plane's open devices: a part of the name, and how many with it are open.
    open: &'static [(&'static str, usize)],
}

/// CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_RAWIO, CAP_SYS_ADMIN.
const FASTPATH: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 17 | 1 << 21;

/// DPDK on NICs that `vfio-pci` drives.
pub const VFIO: Expected = Expected {
    plane: "dpdk",
    driver: "vfio-pci",
    data_plane: "weir-fastpath",
    skipped: &["weir-ebpf-fallback"],
    capabilities: FASTPATH,
    open: &[("anon_inode:[vfio-device]", 2), ("/dev/net/tun", 2), ("/dev/hugepages/weir", 1)],
};

/// DPDK on NICs that `uio_pci_generic` drives, without an IOMMU.
pub const UIO: Expected = Expected {
    driver: "uio_pci_generic",
    open: &[("/dev/uio", 2), ("/dev/net/tun", 2), ("/dev/hugepages/weir", 1)],
    ..VFIO
};

/// XDP on the interfaces of the kernel.
pub const XDP: Expected = Expected {
    plane: "xdp",
    driver: "virtio-pci",
    data_plane: "weir-ebpf-fallback",
    skipped: &["weir-fastpath", "weir-nics"],
    // CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF. CAP_SYS_ADMIN is dropped once the four tracepoints are
    // open. The four open links are theirs; the links to interfaces are pinned and not open.
    capabilities: 1 << 12 | 1 << 38 | 1 << 39,
    open: &[("anon_inode:bpf_link", 4)],
};

/// Waits until the machine forwards, without any command in it; then makes requests, examines the
/// machine, and returns its shell. `boots` has the ids of the boots so far.
pub fn after_boot(
    boot: &str,
    machine: &Machine,
    lab: &Lab,
    expected: &Expected,
    boots: &mut BTreeSet<String>,
    steps: &mut Steps,
) -> Result<Guest> {
    machine.wait_until_it_forwards()?;
    steps.done(&format!("{boot}: forwards"));
    assert_undisturbed(boot, &Client::start(&lab.aws[0], load(REQUESTS))?.finish()?);
    assert_eq!(machine.metric("weir_able")?, 1.0);
    let guest = machine.guest()?;
    let examined = catch_unwind(AssertUnwindSafe(|| examine(&guest, expected, boots)));
    if !matches!(examined, Ok(Ok(()))) {
        println!("--- journal\n{}", journal(&guest).unwrap_or_else(|e| e.to_string()));
    }
    examined.unwrap_or_else(|panic| resume_unwind(panic))?;
    steps.done(&format!("{boot}: 200 requests made, machine examined"));
    Ok(guest)
}

/// Checks what the boot did, and prints it.
fn examine(guest: &Guest, expected: &Expected, boots: &mut BTreeSet<String>) -> Result {
    // Waits for the end of the boot, and fails if a unit has failed.
    let (_, state) = guest.status("systemctl is-system-running --wait", COMMAND)?;
    assert_eq!(state.trim(), "running", "{}", run(guest, "systemctl --failed --no-pager")?);
    println!("{}", run(guest, "uname -r; systemd-analyze time | head -1")?);
    assert!(boots.insert(run(guest, "cat /proc/sys/kernel/random/boot_id")?), "not booted");
    assert_eq!(run(guest, "who")?, "", "users who logged in");

    assert_units(guest, expected)?;
    let journal = "journalctl --boot --quiet --no-pager --output cat --unit 'weir*'";
    assert_eq!(run(guest, &format!("{journal} --priority err"))?, "", "errors of the units");
    let messages = run(guest, journal)?;
    // Messages about parts that do not work although the appliance forwards.
    for lacking in ["not counted", "changed the MAC address", "failed"] {
        let lines: Vec<&str> = messages.lines().filter(|line| line.contains(lacking)).collect();
        assert!(lines.is_empty(), "{lines:#?}");
    }

    let plane = run(guest, "weir plane show")?;
    println!("{plane}");
    let Expected { plane: name, .. } = expected;
    let lines = [format!("plane = \"auto\": {name} "), format!("plane = \"{name}\" ")];
    assert!(lines.iter().any(|line| plane.starts_with(line)), "{plane}");
    for (tap, nic) in ["weir-in", "weir-out"].into_iter().zip(DataNic::ALL) {
        let link = format!("/sys/bus/pci/devices/{}/driver", nic.pci_address());
        let interface = format!("/sys/class/net/{tap}");
        let shown = run(
            guest,
            &format!(
                "basename $(readlink {link}); cat {interface}/address
                 udevadm info --query property {interface} | grep ^ID_NET_LINK_FILE="
            ),
        )?;
        let [driver, mac, file] = shown.lines().collect::<Vec<_>>()[..] else {
            return Err(format!("{tap}: {shown}").into());
        };
        assert_eq!((driver, mac), (expected.driver, nic.mac()), "{tap}");
        // udev, which could replace the address, has read the package's file.
        assert!(file.ends_with("/60-weir.link"), "{tap}: {file}");
    }
    let pages = run(
        guest,
        "cd /sys/kernel/mm/hugepages/hugepages-2048kB; cat nr_hugepages free_hugepages",
    )?;
    println!("hugepages of 2 MiB: {}", pages.replace('\n', ", of which free: "));
    let (reserved, free) = pages.split_once('\n').ok_or("no pages")?;
    assert_eq!((reserved != "0", free), (expected.plane == "dpdk", "0"));
    examine_sandbox(guest, expected)?;

    println!("{}", run(guest, "weir status")?);
    let status: Value = serde_json::from_str(&run(guest, "weir --json status")?)?;
    assert_eq!((&status["able"], &status["reasons"]), (&true.into(), &Value::Array(Vec::new())));
    let nics = status["nics"].as_array().ok_or("no nics")?;
    let states = nics.iter().map(|nic| nic["state"].as_str().unwrap_or_default());
    assert_eq!(states.collect::<Vec<_>>(), ["running", "running"], "{status}");
    Ok(())
}

/// Checks that the data plane runs under its unit's sandbox, with the devices that it needs.
fn examine_sandbox(guest: &Guest, expected: &Expected) -> Result {
    let unit = expected.data_plane;
    let settings = [
        "Type=notify",
        "Group=weir",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "DevicePolicy=closed",
    ];
    let shown = run(guest, &format!("systemctl show {unit}"))?;
    for setting in settings {
        assert!(shown.lines().any(|line| line == setting), "{unit}: {setting}");
    }
    let pid = shown.lines().find_map(|line| line.strip_prefix("MainPID=")).ok_or("no MainPID")?;
    let status = run(guest, &format!("cat /proc/{pid}/status"))?;
    let capabilities = format!("{:016x}", expected.capabilities);
    let lines = [("CapEff", &*capabilities), ("CapPrm", &capabilities), ("NoNewPrivs", "1")];
    for (name, value) in lines.into_iter().chain([("Seccomp", "2")]) {
        assert!(status.contains(&format!("{name}:\t{value}\n")), "{name} {value}: {status}");
    }
    // Linux keeps capabilities per thread: no thread may have others than the expected ones.
    let threads = run(guest, &format!("cat /proc/{pid}/task/*/status"))?;
    let permitted = threads.lines().filter_map(|line| line.strip_prefix("CapPrm:"));
    for set in permitted.map(str::trim) {
        assert_eq!(u64::from_str_radix(set, 16)? & !expected.capabilities, 0, "{threads}");
    }
    let files = run(guest, &format!("find /proc/{pid}/fd -type l -printf '%l\\n' | sort"))?;
    // Other open files, such as DPDK's memory and sockets, are not compared.
    let is_device = |file: &&str| file.starts_with("/dev/") || file.starts_with("anon_inode:");
    let devices: Vec<&str> = files.lines().filter(is_device).collect();
    let distinct: BTreeSet<&str> = devices.iter().copied().collect();
    println!("files of {unit}: {}", distinct.into_iter().collect::<Vec<_>>().join(" "));
    for (part, number) in expected.open {
        let open = devices.iter().filter(|file| file.contains(part)).count();
        assert_eq!(open, *number, "{part} in {devices:?}");
    }
    // DevicePolicy: root can read the disk, but not from within the unit's control group.
    let read = "head -c 1 /dev/nvme0n1 > /dev/null";
    let group = format!("/sys/fs/cgroup/system.slice/{unit}.service/cgroup.procs");
    run(guest, read)?;
    let (status, denied) = guest.status(&format!("echo $$ > {group} && {read}"), COMMAND)?;
    assert!(status != 0 && denied.contains("Operation not permitted"), "{status}: {denied}");
    Ok(())
}

/// Checks the state of each unit: no daemon was started twice, no unit ended with an error.
fn assert_units(guest: &Guest, expected: &Expected) -> Result {
    let units = UNITS.map(|unit| format!("{unit}.service")).join(" ");
    let properties = "Id,ActiveState,SubState,Result,NRestarts";
    let shown = run(guest, &format!("systemctl show --property {properties} {units}"))?;
    let value = |unit: &str, name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or("-").to_owned()
    };
    let states: BTreeSet<String> = shown
        .split("\n\n")
        .map(|unit| {
            let values = properties.split(',').map(|name| value(unit, name));
            values.collect::<Vec<_>>().join(" ")
        })
        .collect();
    println!("{}", states.iter().cloned().collect::<Vec<_>>().join("\n"));
    let daemons = [expected.data_plane, "weir-slowpath"];
    let expected = UNITS.map(|unit| {
        let state = match unit {
            _ if expected.skipped.contains(&unit) => "inactive dead exec-condition 0",
            _ if daemons.contains(&unit) => "active running success 0",
            _ => "active exited success 0",
        };
        format!("{unit}.service {state}")
    });
    assert_eq!(states, BTreeSet::from(expected));
    Ok(())
}

/// Runs a command in the guest, which must succeed, and returns its output without the last line's
/// end.
pub fn run(guest: &Guest, command: &str) -> Result<String> {
    match guest.status(command, COMMAND)? {
        (0, output) => Ok(output.trim_end().to_owned()),
        (status, output) => Err(format!("`{command}` ended with {status}: {output}").into()),
    }
}
