//! The playground: it starts in the background, each command that it prints works, and after its
//! end nothing is left.

#![expect(clippy::unwrap_used, reason = "a test ends at the first error")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tests::lab::process::find;

/// A playground of this test, which is ended with the test.
struct Playground {
    home: PathBuf,
}

impl Playground {
    fn run(&self, command: &str) -> Output {
        let program = find("playground", "tests").unwrap();
        let output = Command::new(program).arg("--home").arg(&self.home).arg(command).output();
        output.unwrap()
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        // If the test has stopped it already, this only reports that it is not running.
        self.run("stop");
    }
}

fn text(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr];
    both.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Runs a command line as the user's shell does, after the `export` that is printed.
fn shell(home: &Path, line: &str) -> String {
    let script = format!("export PATH={}/bin:$PATH\n{line}", home.display());
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "`{line}`: {}\n{}", output.status, text(&output));
    text(&output)
}

#[test]
fn each_printed_command_works_and_nothing_is_left() {
    let home = std::env::temp_dir().join(format!("weir-playground-{}", std::process::id()));
    let playground = Playground { home: home.clone() };
    let started = playground.run("start");
    assert!(started.status.success(), "{}", text(&started));
    let printed = text(&started);
    let export = format!("  export PATH={}/bin:$PATH", home.display());
    assert!(printed.lines().any(|line| line == export), "{printed}");
    let is_command = |line: &&str| {
        line.starts_with("  ") && !line.trim_start().starts_with('#') && *line != export
    };
    let commands: Vec<&str> = printed.lines().filter(is_command).map(str::trim).collect();
    assert_eq!(commands.len(), 10, "{printed}");
    let expected = [
        ("weir status", "generation"),
        ("weir services", "10.0.2.11"),
        ("weir top", "lab/web"),
        ("weir flows", "203.0.113.10:80"),
        ("weir explain", "lab/web"),
        ("weir trace", "10.0.2.1"),
        ("client curl", "web-"),
        ("weir backend", "10.0.2.11"),
        ("kill", "0 failed"),
        ("appliance curl", "weir_packets_total"),
    ];
    for (command, (start, content)) in commands.iter().zip(expected) {
        assert!(command.starts_with(start), "{command}");
        // Without a terminal, the live view prints samples.
        let samples = if start == "weir top" { " --samples 2" } else { "" };
        let output = shell(&home, &format!("{command}{samples}"));
        assert!(output.contains(content), "`{command}` prints no {content:?}:\n{output}");
    }
    // A second start changes nothing.
    let again = text(&playground.run("start"));
    assert!(again.contains("already running") && again.contains(&export), "{again}");
    // The killed slowpath was restarted, and no request failed meanwhile.
    let status = "for n in $(seq 30); do weir status && exit 0; sleep 1; done; exit 1";
    shell(&home, status);
    let pid: u32 = std::fs::read_to_string(home.join("pid")).unwrap().trim().parse().unwrap();
    let stopped = playground.run("stop");
    let report = text(&stopped);
    assert!(stopped.status.success() && report.contains(" 0 failed"), "{report}");
    assert!(report.contains("slowpath ended") && !report.contains("faults"), "{report}");
    // The process may still exist as a zombie, which has no program.
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    assert!(!home.exists() && program.is_err(), "{program:?}");
    assert!(text(&playground.run("stop")).contains("not running"));
}
