//! The journey in the kernel, asked for many packets at once (BPF_PROG_TEST_RUN).
//!
//! A test run hands each packet on as the last run left it, so the packets are written in the
//! kernel too, each anew and of another flow: program `feed` of `ebpf_fallback::BENCH`, which goes
//! on to the journey. What it costs by itself is measured in the same run and subtracted.

use crate::feed::{REQUEST, Requests};
use crate::world::{self, Family, MACS, Work};
use aya::maps::{Array, MapData, ProgramArray};
use aya::programs::{TestRun, Xdp};
use aya::{Ebpf, EbpfLoader, TestRunOptions, VerifierLogLevel};
use ebpf_fallback::ports::{Place, Port};
use ebpf_fallback::program::Program;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::error::Error;
use std::path::PathBuf;
use tables::counters::VerdictCounter;
use tables::flow::Flows;
use tables::fragment::Fragments;
use tables::reason::DropReason;
use tables::region::{Place as Where, Region};
use tables::scope::Scopes;

/// Why nothing was measured.
pub type Failure = Box<dyn Error>;

/// Packets of a call into the kernel: some tens of milliseconds.
pub const CALL: u32 = 1 << 16;
/// By which interface test runs come in: loopback.
const LOOPBACK: u32 = 1;
/// In which order flows are met. Each is met once in a round, far from the one before; but paths
/// lie in the order in which flows began, and a processor fetches by itself what is read in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// That in which they begin.
    Begun,
    /// Another one.
    Other,
}

impl Order {
    /// From one flow's number to the next; odd.
    const fn stride(self) -> u64 {
        match self {
            Order::Begun => 0x9e37_79b1,
            Order::Other => 0x85eb_ca6b,
        }
    }
}

/// The order of buckets, the same in every run.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes in front of a request's inner packet.
const INNER: usize = REQUEST - 64;
/// Of the map `FEED`, in words: turn, mask, stride, two of the first flow's ends, the frame.
const FRAME_AT: usize = 5;
const WORDS: usize = FRAME_AT + REQUEST.div_ceil(8);

type Fed = [u64; WORDS];

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
        let mut ebpf = EbpfLoader::new().load(ebpf_fallback::BENCH)?;
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

    /// Begins anew with so many flows, a power of two, of what `work` asks for.
    ///
    /// # Errors
    /// The map's.
    pub fn begin(&mut self, work: Work, flows: u32, order: Order) -> Result<(), Failure> {
        let fed = fed(&frame(work)?, flows, order.stride());
        let map = self.ebpf.map_mut("FEED").ok_or("no map FEED")?;
        Ok(Array::<_, Fed>::try_from(map)?.set(0, fed, 0)?)
    }

    /// Runs the next `packets`; nanoseconds each.
    ///
    /// # Errors
    /// The kernel's, and that a packet could not be written.
    pub fn run(&mut self, packets: u32) -> Result<f64, Failure> {
        let before = self.turn()?;
        // As long as what the last call left may be: the program makes its own of it.
        let frame = [0; REQUEST];
        let ns = repeated(program(&mut self.ebpf, "feed")?, &frame, packets)?;
        match self.turn()? - before == u64::from(packets) {
            true => Ok(ns),
            false => Err("a packet was not written".into()),
        }
    }

    /// Packets so far.
    fn turn(&self) -> Result<u64, Failure> {
        let map = self.ebpf.map("FEED").ok_or("no map FEED")?;
        Ok(Array::<_, Fed>::try_from(map)?.get(&0, 0)?[0])
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
        let mut ebpf = loader.load(ebpf_fallback::FLOOR)?;
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
        repeated(program(&mut self.0, name)?, &frame(Work::Tunnel)?, packets)
    }
}

/// Tables in kernel maps, and the journey on them.
pub struct World {
    work: Work,
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
    /// Loads the journey for what `work` asks for, with room for twice as many flows.
    ///
    /// # Errors
    /// The region's, the kernel's.
    pub fn load(work: Work, flows: u32) -> Result<World, Failure> {
        let folder = format!("/sys/fs/bpf/weir-bench-{}-{work:?}", std::process::id());
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
        let mut world = World { work, region, place, program };
        let ports = MACS.map(|mac| Port::new(LOOPBACK, mac));
        world.program.settle(&Place { ports, ..Place::default() })?;
        world.renew()?;
        Ok(world)
    }

    /// Forgets all flows.
    ///
    /// # Errors
    /// The writer's refusal.
    pub fn renew(&mut self) -> Result<(), Failure> {
        self.region.renew();
        // As the loader does before it attaches the program.
        Flows::new(&self.region).recover();
        Fragments::new(&self.region).recover();
        Scopes::new(&self.region).recover();
        world::furnish(&self.region, self.work, Family::V4)
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

/// The first flow's frame.
fn frame(work: Work) -> Result<[u8; REQUEST], Failure> {
    let mut frame = [0; REQUEST];
    match Requests::new(work, Family::V4).write(0, &mut frame) {
        true => Ok(frame),
        false => Err("the frame has another length".into()),
    }
}

/// What the map `FEED` is told.
fn fed(frame: &[u8; REQUEST], flows: u32, stride: u64) -> Fed {
    let byte = |at: usize| u64::from(frame[INNER + at]);
    let half = |at: usize| byte(at) << 8 | byte(at + 1);
    let word = |at: usize| half(at) << 16 | half(at + 2);
    let sum: u64 = [0, 2, 4, 6, 8].into_iter().map(half).sum();
    let mut fed = [0; WORDS];
    fed[1] = u64::from(flows - 1);
    fed[2] = stride;
    fed[3] = word(12) | word(16) << 32;
    fed[4] = word(20) | sum << 32;
    for (at, bytes) in frame.chunks(8).enumerate() {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        fed[FRAME_AT + at] = u64::from_ne_bytes(padded);
    }
    fed
}

fn repeated(program: &Xdp, frame: &[u8], packets: u32) -> Result<f64, Failure> {
    let options = TestRunOptions { data_in: Some(frame), repeat: packets, ..Default::default() };
    Ok(program.test_run(options)?.duration.as_nanos() as f64)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, Failure> {
    Ok(ebpf.program_mut(name).ok_or("no such program")?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebpf_fallback::program::STAGES;

    /// Small, so that it takes no time.
    const FLOWS: u32 = 256;

    fn all_have(work: Work, verdict: VerdictCounter) {
        stay().unwrap();
        let (mut feeder, mut world) = (Feeder::load().unwrap(), World::load(work, FLOWS).unwrap());
        feeder.begin(work, FLOWS, Order::Begun).unwrap();
        feeder.run(FLOWS).unwrap();
        assert_eq!(world.verdicts(verdict), 0, "{work:?}: nobody gets them yet");
        feeder.lead_to(world.entry().unwrap()).unwrap();
        for round in 1..=3 {
            let order = if round == 1 { Order::Begun } else { Order::Other };
            feeder.begin(work, FLOWS, order).unwrap();
            feeder.run(FLOWS).unwrap();
            assert_eq!(world.drops(), [], "{work:?}");
            assert_eq!(world.verdicts(verdict), round * u64::from(FLOWS), "{work:?}");
        }
        let known = match work {
            Work::Return => 0,
            _ => FLOWS,
        };
        assert_eq!(world.flows(), known, "{work:?}");
        // The same flows by other paths than those that are remembered.
        world.renew().unwrap();
        assert_eq!(world.flows(), 0, "{work:?}");
        for order in [Order::Other, Order::Begun] {
            let before = world.verdicts(verdict);
            feeder.begin(work, FLOWS, order).unwrap();
            feeder.run(FLOWS).unwrap();
            assert_eq!(world.drops(), [], "{work:?}");
            assert_eq!(world.verdicts(verdict) - before, u64::from(FLOWS), "{work:?}");
        }
        assert_eq!(world.flows(), known, "{work:?}");
        only_the_first_stage(&mut feeder, &mut world, verdict);
        world.renew().unwrap();
        assert_eq!(world.flows(), 0, "{work:?}");
    }

    /// Strangers' packets and those of known flows need no other.
    fn only_the_first_stage(feeder: &mut Feeder, world: &mut World, verdict: VerdictCounter) {
        for stage in 0..STAGES.len() {
            world.program.unset(stage).unwrap();
        }
        let before = world.verdicts(verdict);
        feeder.run(FLOWS).unwrap();
        // A flow whose entry lies where few do takes the long way.
        let (drops, missing) = (world.drops(), DropReason::StageMissing);
        assert!(drops.iter().all(|(reason, _)| *reason == missing), "{drops:?}");
        let usual = world.verdicts(verdict) - before;
        assert!(usual > u64::from(FLOWS / 10 * 9), "{usual} of {FLOWS}");
    }

    #[test]
    fn every_packet_makes_its_journey() {
        all_have(Work::Return, VerdictCounter::Return);
        all_have(Work::Tunnel, VerdictCounter::Tunnel);
        all_have(Work::Nat, VerdictCounter::Nat);
    }

    #[test]
    fn floors_run() {
        for name in ["nothing", "look_up", "parse"] {
            Floor::load(name).unwrap().run(name, 4).unwrap();
        }
    }
}
