//! The plane `xdp`: the XDP programs, run packet by packet (BPF_PROG_TEST_RUN).
//!
//! The programs are loaded once per set of table sizes, because the verifier takes longer than a
//! case. A case begins with the region of its sizes reset to the initial state.

use super::loaded::{Loaded, checked};
use aya::TestRunOptions;
use aya::programs::TestRun;
use ebpf_fallback::program::Program;
use ebpf_fallback::runtime_config::{Port, RuntimeConfig};
use std::collections::HashMap;
use std::path::PathBuf;
use tables::counters::ArmCounter;
use tables::layout::Sizes;
use tables::region::{Region, RegionLocation};
use tests::cases::addresses::{IN_MAC, OUT_MAC};
use tests::cases::{Change, Counts, Exit, Plane, Setup};
use tests::lab::netns::Netns;

/// The interfaces of the test's namespace: the arms, then those of the kernel's probes.
const DEVICES: [&str; 4] = ["in0", "eg0", "probes0", "probes1"];
/// Bytes for the output: all buffers that the kernel's test run has for a packet.
const OUTPUT_BYTES: usize = 18 * 4_096;
/// Returns a new network namespace with the interfaces of the programs.
pub fn namespace(name: &str) -> tests::lab::Result<Netns> {
    let namespace = Netns::new(name)?;
    let lines = DEVICES.map(|device| format!("link add {device} type veth peer {device}-far"));
    namespace.ip(&lines.each_ref().map(String::as_str))?;
    Ok(namespace)
}

/// An arbitrary seed for the region.
pub const SEED: u64 = 0x5745_4952;

// Return values of XDP programs (`enum xdp_action` of linux/bpf.h).
const ABORTED: u32 = 0;
const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;
const REDIRECT: u32 = 4;

/// The loaded programs, and the region in kernel maps that they use.
struct Rig {
    region: &'static Region,
    program: Program,
    folder: PathBuf,
}

/// The XDP programs, and the case that is loaded.
pub struct Xdp {
    /// Loaded programs by the sizes of their region.
    rigs: HashMap<Vec<(&'static str, u32)>, Rig>,
    config: RuntimeConfig,
    /// The key of the loaded case in `rigs`.
    key: Option<Vec<(&'static str, u32)>>,
    loaded: Option<Loaded>,
    out: Vec<u8>,
}

impl Drop for Xdp {
    fn drop(&mut self) {
        self.loaded = None;
        for rig in self.rigs.values() {
            // An error is ignored: the next test uses another directory.
            let _ = RegionLocation::maps(rig.folder.clone()).remove();
        }
    }
}

impl Xdp {
    /// Creates the plane. Must run on the thread that sends the frames, in the namespace with
    /// [`DEVICES`].
    pub fn new() -> Xdp {
        on_first_processor();
        let [ingress, egress, probes0, probes1] = DEVICES.map(index);
        let ports = [Port::new(ingress, IN_MAC), Port::new(egress, OUT_MAC)];
        let config =
            RuntimeConfig { ports, kernel: [probes0, probes1], ..RuntimeConfig::default() };
        Xdp { rigs: HashMap::new(), config, key: None, loaded: None, out: vec![0; OUTPUT_BYTES] }
    }

    /// Returns the current case's tables.
    pub fn loaded(&mut self) -> &mut Loaded {
        self.loaded.as_mut().expect("a loaded case")
    }

    /// Returns the programs of the loaded case.
    pub fn program(&mut self) -> &mut Program {
        let key = self.key.as_ref().expect("a loaded case");
        &mut self.rigs.get_mut(key).expect("the plane of the loaded case").program
    }

    /// Runs the programs on one packet that arrives at `device` (an interface index) with `first`
    /// bytes in the first buffer; returns the outgoing frame, if there is one.
    fn run(&mut self, device: u32, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)> {
        let ports = self.config.ports;
        let kernel = self.config.kernel;
        let arm = u8::from(device == ports[1].ifindex || device == kernel[1]);
        let mut context = Vec::new();
        for word in [0, first as u32, 0, device, 0, 0] {
            context.extend(word.to_ne_bytes());
        }
        let sent = self.sent(1 - arm);
        let mut out = std::mem::take(&mut self.out);
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..Default::default()
        };
        let program = self.program().entry().expect("a first stage");
        let done = program.test_run(options).unwrap_or_else(|e| panic!("{e:?}"));
        let bytes = out[..done.data_size_out as usize].to_vec();
        self.out = out;
        let plain = device == ports[usize::from(arm)].ifindex;
        let exit = match done.return_value {
            DROP => return Vec::new(),
            PASS => Exit::Kernel(arm),
            TX if plain => Exit::Port(arm),
            REDIRECT if plain => Exit::Port(1 - arm),
            // The return code of a packet from the kernel does not show through which arm it
            // leaves; the counters do.
            REDIRECT if self.sent(1 - arm) != sent => Exit::Port(1 - arm),
            REDIRECT => Exit::Port(arm),
            ABORTED => panic!("the program was aborted"),
            other => panic!("the program returned {other}"),
        };
        vec![(exit, bytes)]
    }

    /// Returns the packets that an arm's port sent.
    fn sent(&mut self, arm: u8) -> u64 {
        let counters = self.loaded().region.counters();
        counters.sum(|page| page.arm_count(arm, ArmCounter::TxPackets))
    }

    /// Sets the programs' clock to `second`, which holds until the kernel's current second ends.
    pub fn set_clock(&mut self, second: u32) {
        self.config.skew_s = second.wrapping_sub(self.loaded().region.now_s());
        let config = self.config;
        self.program().configure(&config).unwrap_or_else(|e| panic!("{e}"));
    }
}

impl Plane for Xdp {
    fn name(&self) -> &str {
        "xdp"
    }

    fn load(&mut self, setup: &Setup) {
        self.loaded = None;
        let sizes = hugepages::plan::sizes(&checked(setup));
        let key = sizes.settings().to_vec();
        let number = self.rigs.len();
        let config = self.config;
        let rig = self.rigs.entry(key.clone()).or_insert_with(|| rig(&sizes, number));
        rig.region.renew();
        self.config = RuntimeConfig { skew_s: 0, ..config };
        rig.program.configure(&self.config).unwrap_or_else(|e| panic!("{e}"));
        self.loaded = Some(Loaded::over(setup, rig.region));
        self.key = Some(key);
    }

    fn change(&mut self, change: &Change) {
        self.loaded().apply(change);
    }

    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        self.run(self.config.ports[usize::from(arm)].ifindex, frame, frame.len())
    }

    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)> {
        self.run(self.config.ports[usize::from(arm)].ifindex, frame, first)
    }

    fn kernel_sends(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        self.run(self.config.kernel[usize::from(arm)], frame, frame.len())
    }

    fn advance_s(&mut self, seconds: u32) {
        let now_s = self.loaded().region.now_s().wrapping_add(self.config.skew_s);
        self.set_clock(now_s.wrapping_add(seconds));
        self.loaded().advance_s(seconds);
    }

    fn counts(&self) -> Counts {
        self.loaded.as_ref().map(Loaded::counts).unwrap_or_default()
    }
}

/// Creates a region of these sizes in kernel maps, and loads the programs on it.
fn rig(sizes: &Sizes, number: usize) -> Rig {
    let folder = PathBuf::from(format!("/sys/fs/bpf/weir-cases-{}-{number}", std::process::id()));
    let location = RegionLocation::maps(folder.clone());
    let region = Region::create_or_open(&location, sizes, SEED).unwrap_or_else(|e| panic!("{e}"));
    let region: &'static Region = Box::leak(Box::new(region));
    let program = Program::load(region, &folder, 1).unwrap_or_else(|e| panic!("{e}"));
    Rig { region, program, folder }
}

fn index(device: &str) -> u32 {
    nix::net::if_::if_nametoindex(device).unwrap_or_else(|e| panic!("{device}: {e}"))
}

/// Pins the thread: the region of a case has a page of counters for one processor only.
fn on_first_processor() {
    let mut first = nix::sched::CpuSet::new();
    first.set(0).expect("a valid CPU number");
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &first).expect("CPU affinity");
}
