//! Starts and ends the lab in the background.

use super::home::Home;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use patience::poll;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::lab::{LabError, Result};

/// Time limit for the lab to serve its first requests.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for the lab to end: clients complete their requests, both daemons stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts the lab in a session of its own and waits until it serves.
pub fn start(home: &Home) -> Result<()> {
    if let Some(pid) = running(home) {
        println!("The playground is already running (process {pid}).\n");
        return show(home);
    }
    home.remove()?;
    let path = home.log();
    let opening = || LabError::io(format!("creating {}", path.display()));
    let log = File::create(&path).map_err(opening())?;
    let copy = log.try_clone().map_err(opening())?;
    let program = std::env::current_exe().map_err(LabError::io("finding this program"))?;
    println!("Starting the lab: gateways, Weir, four web servers and clients.");
    let mut child = Command::new("setsid")
        .arg(program)
        .arg("--home")
        .arg(home.path())
        .arg("run")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(copy)
        .spawn()
        .map_err(LabError::io("starting setsid (package util-linux)"))?;
    poll("the lab's first answers", START_TIMEOUT, || {
        if home.file("commands").is_file() {
            return Ok(Ok(()));
        }
        match child.try_wait() {
            Ok(None) => Err(log_text(home)),
            Ok(Some(status)) => Ok(Err(LabError::Ended {
                program: "playground run".into(),
                status: status.to_string(),
                log: log_text(home),
            })),
            Err(source) => Ok(Err(LabError::Io { what: "waiting for the lab".into(), source })),
        }
    })??;
    show(home)
}

/// Ends the lab and waits until it has ended.
pub fn stop(home: &Home) -> Result<()> {
    let Some(pid) = running(home) else {
        println!("The playground is not running.");
        return home.remove();
    };
    kill(Pid::from_raw(pid), Signal::SIGTERM)
        .map_err(LabError::errno(format!("sending SIGTERM to {pid}")))?;
    poll("the end of the lab", STOP_TIMEOUT, || match running(home) {
        None => Ok(()),
        Some(_) => Err(log_text(home)),
    })?;
    home.remove()?;
    // The log contains the number of failed requests.
    print!("{}", log_text(home));
    println!("The playground has ended; nothing is left.");
    let log = home.log();
    std::fs::remove_file(&log).map_err(LabError::io(format!("removing {}", log.display())))
}

/// Prints the commands to try.
fn show(home: &Home) -> Result<()> {
    home.read("commands").map(|text| print!("{text}"))
}

/// Returns the process id of the running lab. The program is compared too, because the file of a
/// killed lab may contain an id that now belongs to another process.
fn running(home: &Home) -> Option<i32> {
    let pid: i32 = home.read("pid").ok()?.trim().parse().ok()?;
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let name = program.file_name()?.to_string_lossy().into_owned();
    // The kernel appends " (deleted)" if the program was built anew.
    name.starts_with("playground").then_some(pid)
}

fn log_text(home: &Home) -> String {
    std::fs::read_to_string(home.log()).unwrap_or_default()
}
