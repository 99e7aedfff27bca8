//! Measures three ways of keeping flows in the kernel, in turn and in one run: time of a packet of
//! a known flow and of a new one, and what a full table does. Needs root; takes half a minute.
//!
//! One packet of an AWS gateway runs through the programs by BPF_PROG_TEST_RUN; the program makes
//! its flow from a count, so that flows are begun in one order and met in another, and the packet
//! stays as it is. Figures are nanoseconds a packet, medians, the smallest and largest beside them;
//! those of `none` (parse, key, hash, the test's own cost) are what all the others contain.

use aya::maps::{Array, HashMap, MapData};
use aya::programs::{TestRun, Xdp};
use aya::{Ebpf, EbpfLoader, TestRunOptions, VerifierLogLevel};
use packet::addr::Addr;
use packet::ethernet::Macs;
use packet::geneve::{OWN_OPTIONS, own_options};
use packet::tunnel::{Kind, Outer, outer_len, write_outer};
use packet::window::Window;
use std::error::Error;
use std::time::Instant;

type Failure = Box<dyn Error>;
type Rig = [u64; 10];

const PROGRAMS: [&str; 4] = ["none", "lru", "hash", "array"];
const FLOWS: [u32; 4] = [1, 1 << 10, 1 << 16, 1 << 20];
const ROUNDS: usize = 5;
/// Odd, so that every flow is met once in `mask + 1` turns, far from the one before.
const STRIDE: u64 = 0x9e37_79b1;
/// Entries of the small tables that are filled up.
const SMALL: u32 = 1 << 16;

/// One program with maps of its own.
struct Subject {
    name: &'static str,
    ebpf: Ebpf,
    frame: Vec<u8>,
    buckets: u64,
}

impl Subject {
    fn load(name: &'static str, entries: u32) -> Result<Subject, Failure> {
        let mut loader = EbpfLoader::new();
        loader.verifier_log_level(VerifierLogLevel::DISABLE);
        match name {
            "lru" => loader.map_max_entries("LRU", entries),
            "hash" => loader.map_max_entries("HASH", entries),
            _ => loader.map_max_entries("ENTRIES", entries).map_max_entries("WORDS", entries / 4),
        };
        loader.map_max_entries("PATHS", entries * 2);
        let mut ebpf = loader.load(ebpf_fallback::STATE)?;
        program(&mut ebpf, name)?.load()?;
        Ok(Subject { name, ebpf, frame: frame()?, buckets: u64::from(entries / 4 - 1) })
    }

    fn rig(&mut self) -> Result<Array<&mut MapData, Rig>, Failure> {
        Ok(Array::try_from(self.ebpf.map_mut("RIG").ok_or("no map RIG")?)?)
    }

    /// Runs `count` packets of flows from `first` on; nanoseconds each, hits, refusals.
    fn run(
        &mut self,
        (first, flows): (u64, u32),
        stride: u64,
        count: u32,
        entries: u64,
    ) -> Result<(f64, u64, u64), Failure> {
        let buckets = self.buckets;
        let mut rig = self.rig()?;
        let paths = rig.get(&0, 0)?[6];
        let mask = u64::from(flows - 1);
        rig.set(0, [0, first, mask, stride, entries, buckets, paths, 0, 0, 0], 0)?;
        let (name, frame) = (self.name, self.frame.clone());
        let options = TestRunOptions { data_in: Some(&frame), repeat: count, ..Default::default() };
        let ran = program(&mut self.ebpf, name)?.test_run(options)?;
        let after = self.rig()?.get(&0, 0)?;
        Ok((ran.duration.as_nanos() as f64, after[7], after[8]))
    }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, Failure> {
    Ok(ebpf.program_mut(name).ok_or("no such program")?.try_into()?)
}

/// What an AWS gateway sends: a SYN in GENEVE with three options.
fn frame() -> Result<Vec<u8>, Failure> {
    let mut options = [0; OWN_OPTIONS];
    own_options(&mut options, 1, 2, 3);
    let outer = Outer {
        kind: Kind::Geneve,
        macs: Macs::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
        vlan: 0,
        src: Addr::v4(u32::from_ne_bytes([10, 0, 1, 20])),
        dst: Addr::v4(u32::from_ne_bytes([10, 0, 1, 10])),
        sport: 50_000,
        dport: 6081,
        vni: 0,
        options: &options,
        inner_v6: false,
        inner_eth: None,
        tos: 0,
        ttl: 64,
        df: true,
        checksum: false,
    };
    let mut inner = vec![0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 6, 0, 0, 198, 51, 100, 7];
    inner.extend([203, 0, 113, 10, 0x9c, 0x40, 0, 80]);
    inner.resize(64, 0);
    let mut frame = vec![0; outer_len(&outer)];
    frame.extend(&inner);
    let written = write_outer(&mut Window::new(&mut frame), &outer, inner.len());
    written.map_err(|_| "the frame is too short for its headers")?;
    Ok(frame)
}

fn median(mut times: Vec<f64>) -> (f64, f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[0], times[times.len() - 1])
}

/// Known flows and new ones, in tables of which they fill the half.
fn times() -> Result<(), Failure> {
    println!(
        "ns a packet, median (lowest..highest of {ROUNDS}); `none` is contained in the others"
    );
    let mut new = Vec::new();
    for flows in FLOWS {
        let mut subjects = Vec::new();
        for name in PROGRAMS {
            subjects.push(Subject::load(name, (flows * 2).max(1 << 10))?);
        }
        for subject in &mut subjects {
            let (ns, _, refused) = subject.run((0, flows), 1, flows, 1)?;
            if flows > FLOWS[1] {
                new.push((subject.name, flows, ns));
            }
            if refused > 0 {
                println!("  {}: {refused} of {flows} flows were refused", subject.name);
            }
        }
        let mut rounds = vec![Vec::new(); subjects.len()];
        for _ in 0..ROUNDS {
            for (subject, times) in subjects.iter_mut().zip(&mut rounds) {
                let (ns, hits, _) = subject.run((0, flows), STRIDE, 1 << 20, 1)?;
                if subject.name != "none" && hits < 1 << 20 {
                    println!("  {}: only {hits} of {} hits", subject.name, 1 << 20);
                }
                times.push(ns);
            }
        }
        for (subject, times) in subjects.iter().zip(rounds) {
            let (ns, low, high) = median(times);
            println!("  {:<6} known, of {flows:>8} flows  {ns:>6} ({low}..{high})", subject.name);
        }
    }
    for (name, flows, ns) in new {
        println!("  {name:<6} new, one entry,   {flows:>8} flows  {ns:>6}");
    }
    for name in PROGRAMS {
        let mut subject = Subject::load(name, 1 << 21)?;
        let (ns, _, refused) = subject.run((0, 1 << 19), 1, 1 << 19, 2)?;
        println!("  {name:<6} new, two entries,   524288 flows  {ns:>6}, {refused} refused");
    }
    Ok(())
}

/// What a full table does to those who are in it, and to those who want in.
fn full() -> Result<(), Failure> {
    println!("a table of {SMALL} entries:");
    for name in &PROGRAMS[1..] {
        let mut subject = Subject::load(name, SMALL)?;
        let (mut begun, mut first_refused) = (0, None);
        while begun < SMALL {
            let (_, _, refused) = subject.run((begun.into(), 1 << 30), 1, 512, 1)?;
            begun += 512;
            if refused > 0 && first_refused.is_none() {
                first_refused = Some(begun);
            }
        }
        let (refused, lost) = more(&mut subject)?;
        println!(
            "  {name:<6} first refusal at {first_refused:?} flows; of {SMALL} more {refused} \
             refused, {lost} live ones thrown out"
        );
    }
    Ok(())
}

/// As many flows again; how many were refused, and how many entries are gone.
fn more(subject: &mut Subject) -> Result<(u64, u64), Failure> {
    let before = live(subject)?;
    let (_, _, refused) = subject.run((SMALL.into(), 1 << 30), 1, SMALL, 1)?;
    let after = live(subject)?;
    let came = u64::from(SMALL) - refused;
    Ok((refused, before + came - after))
}

/// Entries that are in use.
fn live(subject: &mut Subject) -> Result<u64, Failure> {
    let name = match subject.name {
        "lru" => "LRU",
        "hash" => "HASH",
        _ => {
            let map = subject.ebpf.map("ENTRIES").ok_or("no map ENTRIES")?;
            let entries = Array::<_, [u64; 8]>::try_from(map)?;
            return Ok(
                entries.iter().filter(|e| matches!(e, Ok(e) if e[0] & 2 != 0)).count() as u64
            );
        }
    };
    let map = subject.ebpf.map(name).ok_or("no such map")?;
    let began = Instant::now();
    let count = HashMap::<_, [u32; 11], [u32; 4]>::try_from(map)?.keys().count();
    println!("  {name}: a walk over {count} entries by system calls took {:?}", began.elapsed());
    Ok(count as u64)
}

fn main() -> Result<(), Failure> {
    times()?;
    full()
}
