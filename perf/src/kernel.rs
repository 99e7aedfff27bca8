//! Runs the XDP packet path on many packets per call (BPF_PROG_TEST_RUN).
//!
//! The kernel does not restore the packet between the repetitions of a test run. Therefore program
//! `feed` of `xdp_test_programs::BENCH` writes the next packet at each repetition, and tail-calls
//! the packet path. The cost of `feed` alone is measured in the same run and subtracted.

mod packets;
mod setting;

use crate::capture::Capture;
use crate::fixture::{self, Family, MACS, Policy, Workload};
use aya::maps::{Array, MapData, ProgramArray};
use aya::programs::{TestRun, Xdp};
use aya::{Ebpf, EbpfLoader, TestRunOptions, VerifierLogLevel};
use ebpf_fallback::program::Program;
use ebpf_fallback::runtime_config::{Port, RuntimeConfig};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
pub use packets::{Direction, Packets};
pub use setting::{Failure, Order, Setting};
use std::path::PathBuf;
use tables::capture::BPF_RING_RECORDS;
use tables::counters::VerdictCounter;
use tables::flow::{Flows, Snapshot};
use tables::fragment::Fragments;
use tables::reason::DropReason;
use tables::record::TunnelKind;
use tables::region::{Region, RegionLocation};
use tables::scope::Scopes;

/// The hash seed, which determines the buckets of the tables; the same in every run.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Packets per call into the kernel: some tens of milliseconds.
pub const CALL: u32 = 1 << 16;
/// Packets per call while all packets are captured: the ring buffer holds both records of each.
pub const CAPTURED_CALL: u32 = 1 << 12;
const _: () = assert!(2 * CAPTURED_CALL as usize <= BPF_RING_RECORDS);
/// The ingress interface of test runs: loopback.
const LOOPBACK: u32 = 1;

/// Pins the thread to the first processor, whose counter page exists in the region.
///
/// # Errors
/// The kernel's error.
pub fn pin_to_first_cpu() -> Result<(), Failure> {
    let mut first = CpuSet::new();
    first.set(0)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &first)?)
}

/// The program that writes packets.
pub struct Feeder {
    ebpf: Ebpf,
    next: ProgramArray<MapData>,
}

impl Feeder {
    /// Loads the program; its packets are dropped until [`Feeder::set_target`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn load() -> Result<Feeder, Failure> {
        let mut ebpf = EbpfLoader::new().load(xdp_test_programs::BENCH)?;
        let next = ProgramArray::try_from(ebpf.take_map("NEXT").ok_or("no map NEXT")?)?;
        program(&mut ebpf, "feed")?.load()?;
        Ok(Feeder { ebpf, next })
    }

    /// Sets the program that receives the packets; without one they are dropped.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_target(&mut self, to: &mut Xdp) -> Result<(), Failure> {
        Ok(self.next.set(0, to.fd()?, 0)?)
    }

    /// Starts again with these packets, at the first one.
    ///
    /// # Errors
    /// The map's error.
    pub fn start(&mut self, packets: &Packets) -> Result<(), Failure> {
        let map = self.ebpf.map_mut("ENDS").ok_or("no map ENDS")?;
        let mut ends = Array::<_, packets::Words>::try_from(map)?;
        for (n, words) in (0..).zip(packets.ends()) {
            ends.set(n, words, 0)?;
        }
        let map = self.ebpf.map_mut("FEED").ok_or("no map FEED")?;
        Ok(Array::<_, packets::FeedState>::try_from(map)?.set(0, packets.feed_state(), 0)?)
    }

    /// Runs the next `packets` and returns nanoseconds per packet.
    ///
    /// # Errors
    /// The kernel's error, or a packet that could not be written.
    pub fn run(&mut self, packets: u32) -> Result<f64, Failure> {
        let before = self.position()?;
        // As long as the longest packet; the program `feed` resizes the frame.
        let frame = [0; packets::LONGEST];
        let ns = repeated(program(&mut self.ebpf, "feed")?, &frame, packets)?;
        match self.position()? - before == u64::from(packets) {
            true => Ok(ns),
            false => Err("a packet was not written".into()),
        }
    }

    /// Returns the number of packets written since [`Feeder::start`].
    fn position(&self) -> Result<u64, Failure> {
        let map = self.ebpf.map("FEED").ok_or("no map FEED")?;
        Ok(Array::<_, packets::FeedState>::try_from(map)?.get(&0, 0)?[0])
    }
}

/// A minimal program, run on a packet that stays unchanged. Its time is a lower bound.
pub struct Floor(Ebpf);

impl Floor {
    /// Loads the program with this name.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn load(name: &str) -> Result<Floor, Failure> {
        let mut loader = EbpfLoader::new();
        loader.verifier_log_level(VerifierLogLevel::DISABLE);
        let mut ebpf = loader.load(xdp_test_programs::BASELINE)?;
        program(&mut ebpf, name)?.load()?;
        Ok(Floor(ebpf))
    }

    /// Returns the program.
    ///
    /// # Errors
    /// No program has this name.
    pub fn program(&mut self, name: &str) -> Result<&mut Xdp, Failure> {
        program(&mut self.0, name)
    }

    /// Runs `packets` packets and returns nanoseconds per packet.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn run(&mut self, name: &str, packets: u32) -> Result<f64, Failure> {
        let setting =
            Setting { work: Workload::Tunnel, family: Family::V4, gateway: TunnelKind::Geneve };
        let frame = packets::request(&setting).bytes();
        repeated(program(&mut self.0, name)?, &frame, packets)
    }
}

/// Tables in kernel maps, and the XDP programs that use them.
pub struct KernelFixture {
    setting: Setting,
    region: Region,
    location: RegionLocation,
    program: Program,
}

impl Drop for KernelFixture {
    fn drop(&mut self) {
        // If removal fails, the maps remain under a name with this process's id.
        let _ = self.location.remove();
    }
}

impl KernelFixture {
    /// Loads the programs for a setting, with capacity for twice `flows` flows.
    ///
    /// # Errors
    /// The region's or the kernel's error.
    pub fn load(setting: Setting, flows: u32) -> Result<KernelFixture, Failure> {
        let Setting { work, family, gateway } = setting;
        let id = std::process::id();
        let folder = format!("/sys/fs/bpf/weir-bench-{id}-{work:?}-{family:?}-{gateway:?}");
        let folder = PathBuf::from(folder);
        let location = RegionLocation::maps(folder.clone());
        let region = Region::create_or_open(&location, &fixture::sizes(flows * 2), SEED)?;
        let program = match Program::load(&region, &folder, 1) {
            Ok(program) => program,
            Err(e) => {
                let _ = location.remove();
                return Err(e.into());
            }
        };
        let mut fixture = KernelFixture { setting, region, location, program };
        let ports = MACS.map(|mac| Port::new(LOOPBACK, mac));
        fixture.program.configure(&RuntimeConfig { ports, ..RuntimeConfig::default() })?;
        fixture.reset()?;
        Ok(fixture)
    }

    /// Returns the packets of this direction for `flows` flows, a power of two. The flows must
    /// exist unless the packets are requests.
    ///
    /// # Errors
    /// A flow does not exist.
    pub fn packets(
        &self,
        direction: Direction,
        flows: u32,
        order: Order,
    ) -> Result<Packets, Failure> {
        Packets::of(self.setting(), self.snapshots(), direction, flows, order)
    }

    /// Returns the setting of the tables.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Begins a capture that lasts.
    ///
    /// # Errors
    /// The map's error.
    pub fn capture(&mut self, capture: Capture) -> Result<(), Failure> {
        let filter = capture.filter();
        Ok(self.program.set_captures([filter.as_ref(), None], u64::MAX)?)
    }

    /// Takes the records of captured packets and discards them.
    pub fn drop_captured(&mut self) {
        self.program.take_captured(|_, _| {}, |_| {});
    }

    /// Returns the number of records for which the ring buffer had no space.
    ///
    /// # Errors
    /// The map's error.
    pub fn lost_captured(&mut self) -> Result<u64, Failure> {
        Ok(self.program.lost_captured()?.as_flattened().iter().sum())
    }

    /// Empties the region and fills its tables again, so that no flow remains.
    ///
    /// # Errors
    /// The writer's error.
    pub fn reset(&mut self) -> Result<(), Failure> {
        self.region.renew();
        self.program.clear_flow_hints()?;
        // As the loader does before it attaches the program.
        Flows::new(&self.region).recover();
        Fragments::new(&self.region).recover();
        Scopes::new(&self.region).recover();
        let Setting { work, family, gateway } = self.setting;
        fixture::fill_tables(&self.region, &Policy { gateway, ..Policy::of(work, family) })
    }

    /// Returns snapshots of all flows.
    fn snapshots(&self) -> Vec<Snapshot> {
        let flows = Flows::new(&self.region);
        (0..flows.capacity()).filter_map(|path| flows.snapshot(path)).collect()
    }

    /// Returns the entry program.
    ///
    /// # Errors
    /// The object has none.
    pub fn entry(&mut self) -> Result<&mut Xdp, Failure> {
        Ok(self.program.entry()?)
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> u32 {
        Flows::new(&self.region).live()
    }

    /// Returns the number of packets with this verdict.
    pub fn verdicts(&self, verdict: VerdictCounter) -> u64 {
        self.region.counters().sum(|page| page.verdict_count(verdict))
    }

    /// Returns the drop reasons of the ingress arm with nonzero counts, and the counts.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let counters = self.region.counters();
        let of = |reason| (reason, counters.sum(|page| page.dropped(0, reason)));
        DropReason::ALL.iter().map(|reason| of(*reason)).filter(|(_, n)| *n > 0).collect()
    }
}

/// Runs a program repeatedly on one frame, and returns nanoseconds per repetition.
fn repeated(program: &Xdp, frame: &[u8], packets: u32) -> Result<f64, Failure> {
    let options = TestRunOptions { data_in: Some(frame), repeat: packets, ..Default::default() };
    Ok(program.test_run(options)?.duration.as_nanos() as f64)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, Failure> {
    Ok(ebpf.program_mut(name).ok_or("no such program")?.try_into()?)
}

#[cfg(test)]
mod tests;
