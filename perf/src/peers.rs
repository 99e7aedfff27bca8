//! Command lines of the compared programs, which run in turn on the same two cores.

use crate::process::{Program, Reading};

/// The memory that DPDK uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// Pages of 2 MiB.
    Huge,
    /// Pages of 4 kB, if there are no huge ones: 3 to 4 times slower.
    Small,
}

/// The cores of a program's polling lcores. If there is one, the main lcore, which only prints, has
/// the other core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Core {
    /// The first core, the generator's in two-core cases.
    First,
    /// The second core, the forwarder's in two-core cases.
    Second,
    /// Both, for a forwarder with two polling lcores.
    Both,
}

/// MiB of memory for each program.
pub const MEMORY_MIB: u64 = 256;

/// Returns the EAL arguments that all compared programs share. `prefix` distinguishes the files
/// in `/run/dpdk` of two programs that run side by side.
pub fn eal(core: Core, memory: Memory, prefix: &str, devices: &[&str]) -> Vec<String> {
    let mut args = match core {
        Core::First => vec!["-l", "0,1", "--main-lcore", "1"],
        Core::Second => vec!["-l", "0,1"],
        // The main lcore only sleeps and prints: it shares the first core with a polling one.
        Core::Both => vec!["--lcores", "0@0,1@0,2@1"],
    };
    args.extend(match memory {
        Memory::Huge => ["--in-memory", "--no-pci"],
        Memory::Small => ["--no-huge", "--no-pci"],
    });
    let mib = MEMORY_MIB.to_string();
    args.extend(["-m", &mib, "--file-prefix", prefix, "--no-telemetry"]);
    let devices = devices.iter().map(|device| format!("--vdev={device}"));
    args.iter().map(ToString::to_string).chain(devices).collect()
}

/// Returns dpdk-testpmd as Debian builds it (shared libraries), in one of its forwarding modes.
/// With one port it returns packets by the same port, with two it forwards between them.
pub fn testpmd(eal: Vec<String>, mode: &str, ports: usize) -> Program {
    let mut command = vec!["dpdk-testpmd".to_string()];
    command.extend(eal);
    let topology = if ports == 1 { "loop" } else { "paired" };
    let forward = format!("--forward-mode={mode}");
    let topology = format!("--port-topology={topology}");
    let rest = ["--", "--nb-cores=1", "--total-num-mbufs=8192", &forward, &topology];
    command.extend(rest.map(String::from));
    command.extend(["--stats-period", "1", "--auto-start"].map(String::from));
    Program { command, reading: Reading::Testpmd }
}

/// Returns the C loop (`perf/peers/loop.c`), statically linked as Weir is: the reference.
pub fn c_loop(eal: Vec<String>, mode: &str, seconds: u64) -> Program {
    metered(env!("WEIR_C_LOOP"), eal, &[mode, &seconds.to_string()])
}

/// Returns a program that takes EAL arguments, then `--`, then its own, and prints its rate as
/// [`crate::meter::print_rates`] does.
pub fn metered(program: &str, eal: Vec<String>, arguments: &[&str]) -> Program {
    let mut command = vec![program.to_string()];
    command.extend(eal);
    command.push("--".to_string());
    command.extend(arguments.iter().map(ToString::to_string));
    Program { command, reading: Reading::Meter }
}
