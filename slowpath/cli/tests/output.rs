//! Exit codes of commands whose output cannot be written.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn completions(stdout: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["completions", "bash"]).stdout(stdout).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_full_disk_is_an_error() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = completions(full);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("weir: cannot write to standard output: No space"), "{stderr}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = completions(writer);
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
