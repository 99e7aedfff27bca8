//! Tests of the systemd units: their order, their timeouts, and `systemd-analyze verify`.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::path::Path;
use std::process::Command;

const UNITS: [&str; 2] = ["weir-fastpath.service", "weir-slowpath.service"];

fn unit(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns the value of a key of a unit.
fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(name, _)| *name == key).map(|(_, value)| value).next().unwrap()
}

#[test]
fn slowpath_follows_fastpath_and_its_stop_timeout_exceeds_the_drain_cap() {
    let config = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.11/24\"]\n\
                  [nat]\naddresses = [\"10.0.1.11\"]\n[fastpath]\nlcores = [1]\n\
                  [aws]\ncluster = \"north\"\n";
    let cap = config::from_toml(config).unwrap().aws.unwrap().lifecycle.drain_cap.as_secs();
    let slowpath = unit(UNITS[1]);
    let stop: u64 = value(&slowpath, "TimeoutStopSec").parse().unwrap();
    assert!(stop > cap, "TimeoutStopSec={stop} is not longer than aws.drain_cap_s = {cap}");
    assert!(value(&slowpath, "After").contains(UNITS[0]));
    assert!(value(&slowpath, "Wants").contains(UNITS[0]));
    // Requires= or BindsTo= would stop slowpath when fastpath is restarted.
    assert!(!slowpath.contains("\nRequires=") && !slowpath.contains("\nBindsTo="));
    for name in UNITS {
        assert_eq!(value(&unit(name), "Restart"), "on-failure");
    }
}

#[test]
fn file_descriptor_limit_covers_probes_and_listeners() {
    // health.probes_at_once at its maximum, 4,000 for listeners, the rest for files.
    let limit: u64 = value(&unit(UNITS[1]), "LimitNOFILE").parse().unwrap();
    assert!(limit >= 10_000 + 4_000 + 2_000, "LimitNOFILE={limit}");
}

#[test]
fn units_pass_systemd_analyze_verify() {
    let folder = std::env::temp_dir().join(format!("weir-units-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for name in UNITS {
        // Weir's programs do not exist where it is not installed: replace them with an existing
        // one.
        let text = unit(name).replace("/usr/bin/fastpath", "/bin/true");
        let text = text.replace("/usr/bin/slowpath", "/bin/true");
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        verify.arg(path);
    }
    let result = verify.output();
    std::fs::remove_dir_all(&folder).unwrap();
    let output = result.unwrap_or_else(|e| panic!("systemd-analyze (Debian package systemd): {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !stderr.contains("weir-"), "{stderr}");
}
