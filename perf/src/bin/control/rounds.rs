//! Inserts and deletes all services several times and measures each round.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use tables::region::{Region, RegionLocation};

use crate::heap::heap;
use crate::load::Load;
use crate::pipeline::{self, AttachedRegion, Control, Harness};

/// An arbitrary seed for hashing addresses.
const SEED: u64 = 0x5745_4952;

/// The duration of one phase.
#[derive(Clone, Copy)]
struct PhaseTime {
    wall: Duration,
    cpu: Duration,
}

/// The plane that services are written to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    /// The in-memory map plane.
    Memory,
    /// The fastpath's region.
    Region,
    /// The region in kernel maps.
    Maps,
}

/// The figures of one round, per service.
#[derive(Clone, Copy)]
pub struct Round {
    /// Microseconds of CPU time for insert and delete.
    pub cpu_us: [f64; 2],
    /// Services per second for insert and delete.
    pub rate: [f64; 2],
    /// Reachable heap bytes after the insert, less those before the first round.
    pub heap_bytes: f64,
    /// Live allocations after the insert, less those before the first round.
    pub heap_count: f64,
}

/// All rounds of one plane.
pub struct Rounds {
    pub plane: Plane,
    pub load: Load,
    pub rounds: Vec<Round>,
    /// Bytes of the plane itself per service; zero where it is part of the heap.
    pub plane_bytes: f64,
}

fn time_phase(run: impl FnOnce() -> Result<(), String>) -> Result<PhaseTime, String> {
    let (wall, cpu) = (Instant::now(), cpu_time()?);
    run()?;
    Ok(PhaseTime { wall: wall.elapsed(), cpu: cpu_time()?.saturating_sub(cpu) })
}

fn cpu_time() -> Result<Duration, String> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_err(|e| e.to_string())?;
    Ok(Duration::from(time))
}

/// A directory for kernel maps, removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // If removal fails, the maps remain under a name with this process's id.
        let _ = RegionLocation::maps(self.0.clone()).remove();
    }
}

/// Measures the given number of rounds on a plane.
pub fn measure(plane: Plane, load: Load, rounds: u32, batch: usize) -> Result<Rounds, String> {
    let sizes = pipeline::sizes(&load);
    let folder = PathBuf::from(format!("/sys/fs/bpf/weir-control-{}", std::process::id()));
    let (region, _folder) = match plane {
        Plane::Memory => (None, None),
        Plane::Region => (Some(Region::anonymous(&sizes)), None),
        Plane::Maps => {
            let location = RegionLocation::maps(folder.clone());
            (Some(Region::create_or_open(&location, &sizes, SEED)), Some(Folder(folder)))
        }
    };
    let region = region.transpose().map_err(|e| e.to_string())?;
    let (puts, deletes) = load.changes()?;
    let before = heap();
    let harness = match &region {
        None => Harness::memory(load.services as usize * (load.backends as usize + 1) + 1),
        Some(region) => Harness::Region(Box::new(AttachedRegion::attach(
            region,
            Some(pipeline::lcore(region)?),
        )?)),
    };
    let mut control = Control::new(harness);
    let mut all = Vec::new();
    for _ in 0..rounds {
        let inserted = time_phase(|| control.run(&puts, batch))?;
        let reachable = heap();
        let rows = control.harness.row_count();
        if rows < load.services as usize {
            return Err(format!("the plane has only {rows} rows"));
        }
        let mut empty = false;
        let deleted = time_phase(|| {
            control.run(&deletes, batch)?;
            empty = control.harness.reclaim();
            Ok(())
        })?;
        if !empty {
            return Err("the plane is not empty after all objects are deleted".to_owned());
        }
        let services = f64::from(load.services);
        let by = |bytes: usize, before: usize| bytes.saturating_sub(before) as f64 / services;
        let both = [inserted, deleted];
        all.push(Round {
            cpu_us: both.map(|took| took.cpu.as_secs_f64() * 1e6 / services),
            rate: both.map(|took| services / took.wall.as_secs_f64()),
            heap_bytes: by(reachable.0, before.0),
            heap_count: by(reachable.1, before.1),
        });
    }
    let bytes = if region.is_some() { pipeline::table_bytes(&sizes) as f64 } else { 0.0 };
    Ok(Rounds { plane, load, rounds: all, plane_bytes: bytes / f64::from(load.services) })
}
