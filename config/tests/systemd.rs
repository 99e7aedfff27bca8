//! Tests of the systemd units: their order, restarts and timeouts, and `systemd-analyze verify`.
//! `slowpath/cli/tests/units.rs` boots them.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "weir.target";
/// Units that run once and precede the daemons, in their order.
const ONCE: [&str; 4] =
    ["weir-auto.service", "weir-hugepages.service", "weir-plane.service", "weir-nics.service"];
const DATA_PLANES: [&str; 2] = ["weir-fastpath.service", "weir-ebpf-fallback.service"];
const SLOWPATH: &str = "weir-slowpath.service";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")
}

fn unit(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

fn services() -> Vec<&'static str> {
    ONCE.into_iter().chain(DATA_PLANES).chain([SLOWPATH]).collect()
}

/// Returns all values of a key of a unit, in order.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(name, _)| *name == key).map(|(_, value)| value).collect()
}

/// Returns the value of a key that occurs once.
fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let all = values(unit, key);
    assert_eq!(all.len(), 1, "{key}: {all:?}");
    all[0]
}

/// Returns whether a list of units, such as `After=`, has this one.
fn lists(unit: &str, key: &str, other: &str) -> bool {
    values(unit, key).iter().any(|value| value.split_whitespace().any(|name| name == other))
}

#[test]
fn the_target_starts_and_stops_all_units() {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut expected: Vec<&str> = services().into_iter().chain([TARGET]).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let target = unit(TARGET);
    assert_eq!(value(&target, "WantedBy"), "multi-user.target");
    for name in services() {
        let unit = unit(name);
        assert!(lists(&target, "Wants", name), "{name}");
        assert_eq!(value(&unit, "PartOf"), TARGET, "{name}");
        // Only the target is enabled; it wants the services.
        assert!(!unit.contains("[Install]"), "{name}");
        assert_eq!(value(&unit, "EnvironmentFile"), "-/etc/default/weir", "{name}");
        // Requires= or BindsTo= would stop a unit when another one is restarted or fails.
        assert!(!unit.contains("\nRequires=") && !unit.contains("\nBindsTo="), "{name}");
    }
}

#[test]
fn addresses_memory_plane_and_nics_precede_the_data_plane_which_precedes_slowpath() {
    for (earlier, later) in ONCE.iter().zip(&ONCE[1..]) {
        assert!(lists(&unit(later), "After", earlier), "{later} after {earlier}");
    }
    let fastpath = unit(DATA_PLANES[0]);
    for name in ONCE {
        assert!(lists(&fastpath, "After", name) && lists(&fastpath, "Wants", name), "{name}");
        assert_eq!(value(&unit(name), "Type"), "oneshot", "{name}");
        assert_eq!(value(&unit(name), "RemainAfterExit"), "yes", "{name}");
    }
    let (xdp, slowpath) = (unit(DATA_PLANES[1]), unit(SLOWPATH));
    assert!(lists(&xdp, "After", "weir-plane.service"));
    for name in ["weir-plane.service"].into_iter().chain(DATA_PLANES) {
        assert!(lists(&slowpath, "After", name) && lists(&slowpath, "Wants", name), "{name}");
    }
}

#[test]
fn a_data_plane_is_skipped_only_if_the_plane_is_the_other_one() {
    for (name, plane) in DATA_PLANES.into_iter().zip(["dpdk", "xdp"]) {
        let unit = unit(name);
        let condition = value(&unit, "ExecCondition");
        assert!(condition.contains(&format!("plane is {plane};")), "{name}: {condition}");
        // The shell command with another program in place of weir, which exits with `code`.
        let skipped = |code: i32| {
            let script = condition.split('\'').nth(1).unwrap();
            let script = script.replacen("/usr/bin/weir", "f", 1);
            let script = format!("f() {{ return {code}; }}; {script}");
            let status = Command::new("sh").args(["-c", &script]).status().unwrap();
            // systemd skips a unit for 1 to 254.
            status.code() != Some(0)
        };
        assert_eq!([0, 1, 2, 127].map(skipped), [false, true, false, false], "{name}");
    }
    let condition = unit("weir-nics.service");
    assert!(value(&condition, "ExecCondition").ends_with("plane is dpdk"));
}

#[test]
fn crashes_restart_at_once_errors_wait_and_a_wrong_configuration_ends_the_attempts() {
    for (name, delay) in [(DATA_PLANES[0], "5"), (DATA_PLANES[1], "5"), (SLOWPATH, "1")] {
        let unit = unit(name);
        assert_eq!(value(&unit, "Restart"), "on-failure", "{name}");
        assert_eq!(value(&unit, "RestartSec"), "100ms", "{name}");
        // No limit on the number of restarts: systemd restarts the daemon after every crash.
        assert_eq!(value(&unit, "StartLimitIntervalSec"), "0", "{name}");
        // The programs exit with 2 if the configuration is rejected.
        assert_eq!(value(&unit, "RestartPreventExitStatus"), "2", "{name}");
        // systemd 252 has no back-off: RestartSteps= is unknown to it.
        assert!(!unit.contains("RestartSteps"), "{name}");
        // Runs the `ExecStopPost` command with `echo` in place of `sleep`, for results that systemd
        // passes in the environment.
        let command = value(&unit, "ExecStopPost").split('\'').nth(1).unwrap();
        let command = command.replace("$$", "$").replace("|| sleep", "|| echo sleep");
        let sleep = |result: &str, status: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &command]).env("SERVICE_RESULT", result).env("EXIT_STATUS", status);
            String::from_utf8(shell.output().unwrap().stdout).unwrap()
        };
        // The exit status is empty if a command before the program fails.
        for status in ["1", ""] {
            assert_eq!(sleep("exit-code", status), format!("sleep {delay}\n"), "{name}");
        }
        for (result, status) in [
            ("success", "0"),
            ("exit-code", "2"),
            ("signal", "SEGV"),
            ("core-dump", "ABRT"),
            ("watchdog", "ABRT"),
            ("exec-condition", ""),
        ] {
            assert_eq!(sleep(result, status), "", "{name}: {result}");
        }
        // A failing preparation must not prevent the start: RestartPreventExitStatus= applies only
        // to the exit status of the program, which reports the same fault.
        let prepare = values(&unit, "ExecStartPre");
        assert!(prepare.iter().all(|command| command.starts_with('-')), "{name}: {prepare:?}");
        let stop: u64 = value(&unit, "TimeoutStopSec").parse().unwrap();
        assert!(stop > delay.parse().unwrap(), "{name}");
    }
}

#[test]
fn stop_timeout_of_slowpath_exceeds_the_drain_cap() {
    let config = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.11/24\"]\n\
                  [nat]\naddresses = [\"10.0.1.11\"]\n[fastpath]\nlcores = [1]\n\
                  [aws]\ncluster = \"north\"\n";
    let cap = config::from_toml(config).unwrap().aws.unwrap().lifecycle.drain_cap.as_secs();
    let stop: u64 = value(&unit(SLOWPATH), "TimeoutStopSec").parse().unwrap();
    assert!(stop > cap, "TimeoutStopSec={stop} is not longer than aws.drain_cap_s = {cap}");
}

#[test]
fn no_unit_gives_the_shared_directory_to_its_user() {
    for name in services() {
        let unit = unit(name);
        let directories = values(&unit, "RuntimeDirectory");
        assert!(directories.is_empty(), "{name}: systemd would change its owner");
    }
    // Each daemon prepares the directory before it starts, and may write to it.
    for name in DATA_PLANES.into_iter().chain([SLOWPATH]) {
        let unit = unit(name);
        let prepare = "-+/usr/bin/slowpath --config /etc/weir/weir.toml --prepare";
        assert_eq!(values(&unit, "ExecStartPre"), [prepare], "{name}");
        assert!(lists(&unit, "ReadWritePaths", "-/run/weir"), "{name}");
    }
    let tmpfiles = folder().join("../../package/tmpfiles.conf");
    let tmpfiles = std::fs::read_to_string(tmpfiles).unwrap();
    assert!(tmpfiles.lines().any(|line| line == "d /run/weir 1775 root weir -"), "{tmpfiles}");
}

#[test]
fn file_descriptor_limit_covers_probes_and_listeners() {
    // health.probes_at_once at its maximum, 4,000 for listeners, the rest for files.
    let limit: u64 = value(&unit(SLOWPATH), "LimitNOFILE").parse().unwrap();
    assert!(limit >= 10_000 + 4_000 + 2_000, "LimitNOFILE={limit}");
}

#[test]
fn units_pass_systemd_analyze_verify() {
    let folder = std::env::temp_dir().join(format!("weir-units-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for name in services().into_iter().chain([TARGET]) {
        // Weir may not be installed on the machine that runs the tests: name an existing program.
        let mut text = unit(name);
        for program in ["fastpath", "slowpath", "ebpf-fallback", "weir"] {
            text = text.replace(&format!("=/usr/bin/{program} "), "=/bin/true ");
            text = text.replace(&format!("=-/usr/bin/{program} "), "=-/bin/true ");
        }
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        verify.arg(path);
    }
    let result = verify.output();
    std::fs::remove_dir_all(&folder).unwrap();
    let output = result.unwrap_or_else(|e| panic!("systemd-analyze (Debian package systemd): {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !stderr.contains("weir"), "{stderr}");
}
