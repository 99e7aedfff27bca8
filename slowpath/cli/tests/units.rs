//! Tests the systemd units in a container (`systemd-nspawn`) with an overlay over this machine's
//! file system: what a boot starts, which data plane is skipped, and how failed programs are
//! restarted.
//!
//! The daemons are scripts; `weir`, which selects the plane and prepares the machine, is the real
//! one.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prepares an overlay over `/` and boots it. Runs in a mount namespace of its own; the container
/// has its own network namespace. Arguments: the folder of the test, and the path of `weir`.
const BOOT: &str = r#"
set -e
folder=$1 weir=$2
mkdir "$folder/overlay" "$folder/root" "$folder/out"
mount -t tmpfs tmpfs "$folder/overlay"
mkdir "$folder/overlay/upper" "$folder/overlay/work"
mount -t overlay overlay "$folder/root" \
    -o "lowerdir=/,upperdir=$folder/overlay/upper,workdir=$folder/overlay/work"
cp -r "$folder/files/." "$folder/root/"
touch "$folder/root/usr/bin/weir"
for unit in systemd-networkd-wait-online NetworkManager-wait-online networking \
    ifupdown-wait-online systemd-time-wait-sync; do
    ln -sf /dev/null "$folder/root/etc/systemd/system/$unit.service"
done
systemd-nspawn --quiet --register=no --keep-unit --private-network --directory "$folder/root" \
    --machine "weir-units-$$" --bind-ro "$weir:/usr/bin/weir" --bind "$folder/out:/out" \
    --boot systemd.unit=weir-test.target > "$folder/out/console" 2>&1
"#;

/// The script in place of each daemon: lists drivers like fastpath, ends with exit code 2 if the
/// configuration is rejected, with 1 if `/run/error` exists, and runs otherwise. Does nothing with
/// `--detach` or `--prepare`.
const DAEMON: &str = r#"#!/bin/sh
case "$*" in
*--drivers*) printf 'DPDK 24.11.1\nnet_null\n'; exit ;;
*--detach* | *--prepare*) exit ;;
esac
weir --config /etc/weir/weir.toml plane is dpdk
[ $? = 2 ] && exit 2
[ -e /run/error ] && exit 1
exec sleep infinity
"#;

/// Runs in the container after the boot.
const SCENARIO: &str = r#"
units="weir-auto weir-hugepages weir-plane weir-nics weir-fastpath weir-ebpf-fallback weir-slowpath"
state() {
    for unit in $units; do
        line="$1 $unit"
        for property in ActiveState Result NRestarts; do
            line="$line $(systemctl show --value -p $property $unit)"
        done
        echo "$line"
    done >> /out/states
}
# Waits until a property of a unit has this value.
until_is() {
    tries=0
    until [ "$(systemctl show --value -p $2 $1)" = "$3" ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { echo "$1: $2 is not $3" >> /out/errors; return; }
        sleep 0.05
    done
}
state boot
cp /run/weir/plane /out/plane

cp /etc/weir/dpdk.toml /etc/weir/weir.toml
systemctl restart weir.target
state dpdk
systemctl kill --signal=SEGV weir-fastpath
until_is weir-fastpath NRestarts 1
until_is weir-fastpath ActiveState active
state crashed
touch /run/error
systemctl kill --signal=SEGV weir-fastpath
until_is weir-fastpath Result exit-code
state error
rm /run/error
until_is weir-fastpath ActiveState active
state recovered

systemctl stop weir.target
# The units that are part of the target stop after it, in the reverse order of their start.
for unit in $units; do
    until_is $unit ActiveState inactive
done
state stopped
for unit in weir-slowpath weir-fastpath; do
    systemctl show --value -p InactiveEnterTimestampMonotonic $unit
done > /out/order

echo 'plane = "auto"' > /etc/weir/weir.toml
cat /etc/weir/dpdk.toml | grep -v ^plane >> /etc/weir/weir.toml
systemctl start weir.target
for unit in weir-fastpath weir-ebpf-fallback weir-slowpath; do
    until_is $unit ActiveState failed
done
state rejected

# Values of the machine: a device that does not exist ends the start, an address may follow.
cp /etc/weir/absent.toml /etc/weir/weir.toml
systemctl restart weir.target
state absent
cp /etc/weir/waiting.toml /etc/weir/weir.toml
systemctl start --no-block weir-auto
tries=0
until journalctl --no-pager -u weir-auto | grep -q 'trying again'; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { echo "weir-auto does not wait" >> /out/errors; break; }
    sleep 0.05
done
state waiting
ip address add 10.0.1.10/24 dev data0
until_is weir-auto ActiveState active
state available
journalctl --no-pager -u 'weir-*' > /out/journal
systemctl poweroff
"#;

/// Units and drop-ins of the test, by their paths in the container.
const FILES: [(&str, &str); 4] = [
    (
        "etc/systemd/system/weir-test.target",
        "[Unit]\nRequires=basic.target weir-test.service\nWants=weir.target\nAfter=basic.target\n",
    ),
    (
        "etc/systemd/system/weir-test.service",
        "[Unit]\nAfter=weir.target\n[Service]\nExecStart=/bin/sh /scenario\n",
    ),
    (
        "etc/systemd/system/weir-link.service",
        "[Unit]\nBefore=weir-hugepages.service\n[Service]\nType=oneshot\n\
         ExecStart=/sbin/ip link add data0 type veth peer name data1\n",
    ),
    // The scripts do not notify systemd, and run as root.
    (
        "etc/systemd/system/service.d/weir-test.conf",
        "[Service]\nType=exec\nWatchdogSec=0\nUser=root\nGroup=root\nSupplementaryGroups=\n",
    ),
];

/// `[region]` and `[fastpath]` of a small machine.
const SMALL: &str = "[fastpath]\nhugepages = false\nlcores = [0]\nidle = \"sleep\"\n\
                     memory_mib = 48\nbuffers = 4096\nbuffer_bytes = 2176\n\
                     [region]\nmax_flows = 1024\n";

/// A folder with the files of the container.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("weir-boot-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &str, mode: u32) {
        let path = self.0.join("files").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn output(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join("out").join(name)).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The states of units, by step of the scenario and unit: active state, result, number of restarts.
type States = BTreeMap<(String, String), Vec<String>>;

fn boot(folder: &Folder) -> States {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/systemd");
    for entry in std::fs::read_dir(units).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        folder.file(&format!("etc/systemd/system/{name}"), &text, 0o644);
    }
    for (name, text) in FILES {
        // The drop-in is for the daemons alone.
        let daemons = ["weir-fastpath", "weir-ebpf-fallback", "weir-slowpath"];
        match name.contains("service.d/") {
            true => daemons.iter().for_each(|daemon| {
                folder.file(
                    &name.replace("service.d", &format!("{daemon}.service.d")),
                    text,
                    0o644,
                );
            }),
            false => folder.file(name, text, 0o644),
        }
    }
    for daemon in ["fastpath", "ebpf-fallback", "slowpath"] {
        folder.file(&format!("usr/bin/{daemon}"), DAEMON, 0o755);
    }
    folder.file("scenario", SCENARIO, 0o644);
    let arm =
        |device: &str| format!("[ingress]\ndevice = \"{device}\"\naddress = \"10.0.1.10/24\"\n");
    let auto = format!("plane = \"auto\"\n{SMALL}{}", arm("data0"));
    folder.file("etc/weir/weir.toml", &auto, 0o644);
    folder.file(
        "etc/weir/dpdk.toml",
        &format!("plane = \"dpdk\"\n{SMALL}{}", arm("net_null0")),
        0o644,
    );
    for (name, device) in [("absent", "data9"), ("waiting", "data0")] {
        let arm = arm(device).replace("10.0.1.10/24", "auto");
        let text = format!("plane = \"xdp\"\n{SMALL}{arm}");
        folder.file(&format!("etc/weir/{name}.toml"), &text, 0o644);
    }
    folder.file(
        "etc/systemd/system/weir-hugepages.service.d/link.conf",
        "[Unit]\nWants=weir-link.service\n",
        0o644,
    );

    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-c", BOOT, "sh"]);
    let status = shell.arg(&folder.0).arg(env!("CARGO_BIN_EXE_weir")).status().unwrap();
    let console = folder.output("console");
    assert!(
        status.success(),
        "systemd-nspawn (Debian package systemd-container; needs root): {status}\n{console}"
    );
    let parse = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        ((words[0].clone(), words[1].clone()), words[2..].to_vec())
    };
    folder.output("states").lines().map(parse).collect()
}

#[test]
fn a_boot_starts_one_data_plane_and_failures_are_retried_by_their_kind() {
    let folder = Folder::new();
    let states = boot(&folder);
    let journal = folder.output("journal");
    assert_eq!(folder.output("errors"), "", "{journal}");
    let assert = |step: &str, unit: &str, expected: [&str; 3]| {
        let found = states.get(&(step.to_owned(), unit.to_owned()));
        assert_eq!(
            found.map(Vec::as_slice),
            Some(&expected.map(str::to_owned)[..]),
            "{step}: {unit}: {states:#?}\n{journal}"
        );
    };
    let (active, skipped) = (["active", "success", "0"], ["inactive", "exec-condition", "0"]);
    let stopped = ["inactive", "success", "0"];

    // The arm's interface is no NIC, so that DPDK is not selected.
    let plane = folder.output("plane");
    assert!(
        plane.starts_with("xdp\ningress.device = \"data0\": an interface of software"),
        "{plane}"
    );
    for unit in ["weir-auto", "weir-plane", "weir-ebpf-fallback", "weir-slowpath"] {
        assert("boot", unit, active);
    }
    for unit in ["weir-nics", "weir-fastpath"] {
        assert("boot", unit, skipped);
    }

    for unit in ["weir-hugepages", "weir-plane", "weir-nics", "weir-fastpath", "weir-slowpath"] {
        assert("dpdk", unit, active);
    }
    assert("dpdk", "weir-ebpf-fallback", skipped);
    assert("crashed", "weir-fastpath", ["active", "success", "1"]);
    // slowpath keeps running: a restart of the data plane must not deregister the machine.
    assert("crashed", "weir-slowpath", active);
    assert("error", "weir-fastpath", ["deactivating", "exit-code", "2"]);
    assert("recovered", "weir-fastpath", ["active", "success", "3"]);

    assert("stopped", "weir-slowpath", stopped);
    assert("stopped", "weir-hugepages", stopped);
    assert("stopped", "weir-fastpath", ["inactive", "success", "3"]);
    let order = folder.output("order");
    let order: Vec<u64> = order.lines().map(|line| line.parse().unwrap()).collect();
    assert!(order[0] <= order[1], "slowpath ends before the data plane: {order:?}");

    // net_null0 is no device for XDP, so that plane = "auto" is rejected.
    for unit in ["weir-plane", "weir-fastpath", "weir-ebpf-fallback", "weir-slowpath"] {
        assert("rejected", unit, ["failed", "exit-code", "0"]);
    }
    assert!(journal.contains("plane auto, which may select xdp"), "{journal}");

    assert("absent", "weir-auto", ["failed", "exit-code", "0"]);
    assert!(journal.contains("data9"), "{journal}");
    assert!(journal.contains("time does not help"), "{journal}");
    assert("waiting", "weir-auto", ["activating", "success", "0"]);
    assert("available", "weir-auto", active);
}
