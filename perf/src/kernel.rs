//! The journey in the kernel, asked for many packets at once (BPF_PROG_TEST_RUN).
//!
//! A test run hands each packet on as the last run left it, so the packets are written in the
//! kernel too, each anew and of another flow: program `feed` of `xdp_test_programs::BENCH`, which
//! goes on to the journey. What it costs by itself is measured in the same run and subtracted.

mod packets;
mod setting;

use crate::world::{self, Family, MACS, Policy, Work};
use aya::maps::{Array, MapData, ProgramArray};
use aya::programs::{TestRun, Xdp};
use aya::{Ebpf, EbpfLoader, TestRunOptions, VerifierLogLevel};
use ebpf_fallback::ports::{Place, Port};
use ebpf_fallback::program::Program;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
pub use packets::{Direction, Packets};
pub use setting::{Failure, Order, Setting};
use std::path::PathBuf;
use tables::counters::VerdictCounter;
use tables::flow::{Flows, Snapshot};
use tables::fragment::Fragments;
use tables::reason::DropReason;
use tables::record::TunnelKind;
use tables::region::{Place as Where, Region};
use tables::scope::Scopes;

/// The order of buckets, the same in every run.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Packets of a call into the kernel: some tens of milliseconds.
pub const CALL: u32 = 1 << 16;
/// By which interface test runs come in: loopback.
const LOOPBACK: u32 = 1;

/// Runs on the first processor from now on, whose page of counters the region has.
///
/// # Errors
/// The kernel's.
pub fn stay() -> Result<(), Failure> {
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
    /// Loads it; nobody gets its packets yet.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn load() -> Result<Feeder, Failure> {
        let mut ebpf = EbpfLoader::new().load(xdp_test_programs::BENCH)?;
        let next = ProgramArray::try_from(ebpf.take_map("NEXT").ok_or("no map NEXT")?)?;
        program(&mut ebpf, "feed")?.load()?;
        Ok(Feeder { ebpf, next })
    }

    /// Who gets its packets; without anybody they are dropped.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn lead_to(&mut self, to: &mut Xdp) -> Result<(), Failure> {
        Ok(self.next.set(0, to.fd()?, 0)?)
    }

    /// Begins anew with these packets.
    ///
    /// # Errors
    /// The map's.
    pub fn begin(&mut self, packets: &Packets) -> Result<(), Failure> {
        let map = self.ebpf.map_mut("ENDS").ok_or("no map ENDS")?;
        let mut ends = Array::<_, packets::Words>::try_from(map)?;
        for (n, words) in (0..).zip(packets.ends()) {
            ends.set(n, words, 0)?;
        }
        let map = self.ebpf.map_mut("FEED").ok_or("no map FEED")?;
        Ok(Array::<_, packets::Fed>::try_from(map)?.set(0, packets.fed(), 0)?)
    }

    /// Runs the next `packets`; nanoseconds each.
    ///
    /// # Errors
    /// The kernel's, and that a packet could not be written.
    pub fn run(&mut self, packets: u32) -> Result<f64, Failure> {
        let before = self.turn()?;
        // As long as what the last call left may be: the program makes its own of it.
        let frame = [0; packets::LONGEST];
        let ns = repeated(program(&mut self.ebpf, "feed")?, &frame, packets)?;
        match self.turn()? - before == u64::from(packets) {
            true => Ok(ns),
            false => Err("a packet was not written".into()),
        }
    }

    /// Packets so far.
    fn turn(&self) -> Result<u64, Failure> {
        let map = self.ebpf.map("FEED").ok_or("no map FEED")?;
        Ok(Array::<_, packets::Fed>::try_from(map)?.get(&0, 0)?[0])
    }
}

/// Programs that do least, on a packet that stays as it is.
pub struct Floor(Ebpf);

impl Floor {
    /// Loads the programs of this name.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn load(name: &str) -> Result<Floor, Failure> {
        let mut loader = EbpfLoader::new();
        loader.verifier_log_level(VerifierLogLevel::DISABLE);
        let mut ebpf = loader.load(xdp_test_programs::FLOOR)?;
        program(&mut ebpf, name)?.load()?;
        Ok(Floor(ebpf))
    }

    /// The program itself.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn program(&mut self, name: &str) -> Result<&mut Xdp, Failure> {
        program(&mut self.0, name)
    }

    /// Nanoseconds of each of so many packets.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(&mut self, name: &str, packets: u32) -> Result<f64, Failure> {
        let setting =
            Setting { work: Work::Tunnel, family: Family::V4, gateway: TunnelKind::Geneve };
        let frame = packets::request(&setting).bytes();
        repeated(program(&mut self.0, name)?, &frame, packets)
    }
}

/// Tables in kernel maps, and the journey on them.
pub struct World {
    setting: Setting,
    region: Region,
    place: Where,
    program: Program,
}

impl Drop for World {
    fn drop(&mut self) {
        // What is left of the folder names this process, which is over then.
        let _ = self.place.remove();
    }
}

impl World {
    /// Loads the journey for a setting, with room for twice as many flows.
    ///
    /// # Errors
    /// The region's, the kernel's.
    pub fn load(setting: Setting, flows: u32) -> Result<World, Failure> {
        let Setting { work, family, gateway } = setting;
        let id = std::process::id();
        let folder = format!("/sys/fs/bpf/weir-bench-{id}-{work:?}-{family:?}-{gateway:?}");
        let folder = PathBuf::from(folder);
        let place = Where::Maps(folder.clone());
        let region = Region::create_or_open(&place, &world::sizes(flows * 2), SEED)?;
        let program = match Program::load(&region, &folder, 1) {
            Ok(program) => program,
            Err(e) => {
                let _ = place.remove();
                return Err(e.into());
            }
        };
        let mut world = World { setting, region, place, program };
        let ports = MACS.map(|mac| Port::new(LOOPBACK, mac));
        world.program.settle(&Place { ports, ..Place::default() })?;
        world.renew()?;
        Ok(world)
    }

    /// What goes in this direction of so many of its flows, which must be known.
    ///
    /// # Errors
    /// A flow is not.
    pub fn packets(
        &self,
        direction: Direction,
        flows: u32,
        order: Order,
    ) -> Result<Packets, Failure> {
        Packets::of(self.setting(), self.snapshots(), direction, flows, order)
    }

    /// What it is furnished for.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Forgets all flows.
    ///
    /// # Errors
    /// The writer's refusal.
    pub fn renew(&mut self) -> Result<(), Failure> {
        self.region.renew();
        self.program.clear_flow_hints()?;
        // As the loader does before it attaches the program.
        Flows::new(&self.region).recover();
        Fragments::new(&self.region).recover();
        Scopes::new(&self.region).recover();
        let Setting { work, family, gateway } = self.setting;
        world::furnish(&self.region, &Policy { gateway, ..Policy::of(work, family) })
    }

    /// The flows that it knows.
    fn snapshots(&self) -> Vec<Snapshot> {
        let flows = Flows::new(&self.region);
        (0..flows.capacity()).filter_map(|path| flows.snapshot(path)).collect()
    }

    /// The journey's first program.
    ///
    /// # Errors
    /// The object has none.
    pub fn entry(&mut self) -> Result<&mut Xdp, Failure> {
        Ok(self.program.entry()?)
    }

    /// How many flows it knows.
    pub fn flows(&self) -> u32 {
        Flows::new(&self.region).live()
    }

    /// Packets that had this verdict.
    pub fn verdicts(&self, verdict: VerdictCounter) -> u64 {
        self.region.counters().sum(|page| page.verdict_count(verdict))
    }

    /// Why packets were dropped, and how many.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let counters = self.region.counters();
        let of = |reason| (reason, counters.sum(|page| page.dropped(0, reason)));
        DropReason::ALL.iter().map(|reason| of(*reason)).filter(|(_, n)| *n > 0).collect()
    }
}

fn repeated(program: &Xdp, frame: &[u8], packets: u32) -> Result<f64, Failure> {
    let options = TestRunOptions { data_in: Some(frame), repeat: packets, ..Default::default() };
    Ok(program.test_run(options)?.duration.as_nanos() as f64)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, Failure> {
    Ok(ebpf.program_mut(name).ok_or("no such program")?.try_into()?)
}

#[cfg(test)]
mod tests;
