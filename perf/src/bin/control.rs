//! The control plane's price: services with their backends go in as objects, through the tables and
//! the reconciler into a plane's maps in memory, and out again.
//!
//! The shape is that of the load-balancing benchmark whose figures `PROMISES.md` names: all objects
//! are made first; then each round inserts all of them, waits until the plane is so, deletes all
//! and waits until it is empty. CPU time is the process's own. Bytes are those of the heap that are
//! still reachable after an insert, over what was there before; objects are the caller's and don't
//! count.

use std::alloc::System;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use config::checked::ArmName;
use nix::time::{ClockId, clock_gettime};
use state::address::Address;
use state::appliance::Appliance;
use state::frontend::{Kind, Said};
use state::maps::{MapPlane, MemoryMaps, Options, Sizes};
use state::name::{Name, Precedence, Source};
use state::object::{BackendsSpec, Change, Key, Member, Object, Objects, ServiceSpec, Spec};
use state::plane::Plane;
use state::reconcile::{Now, Reconciler, Settings};
use state::reflect::Reflector;
use state::writer::Writer;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Measures the control plane: objects in, maps written, objects out.
#[derive(Parser)]
struct Args {
    /// How many services, each with a frontend
    #[arg(long, default_value_t = 50_000)]
    services: u32,
    /// How many backends each service has, no two services the same
    #[arg(long, default_value_t = 1)]
    backends: u32,
    /// Changes that a source brings at once
    #[arg(long, default_value_t = 500)]
    batch: usize,
    /// How often all go in and out
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

/// Everything between objects and maps.
struct Control {
    objects: Objects,
    reflector: Reflector,
    writer: Writer,
    reconciler: Reconciler,
    plane: MapPlane<MemoryMaps>,
    appliance: Appliance,
}

/// What one phase took.
#[derive(Clone, Copy)]
struct Took {
    wall: Duration,
    cpu: Duration,
}

impl Control {
    fn new(rows: usize) -> Control {
        let plane = MapPlane::new(MemoryMaps::new(Sizes::all(rows)), Options::default());
        Control {
            objects: Objects::default(),
            reflector: Reflector::new(Precedence::default(), ArmName::Egress),
            writer: Writer::new(),
            reconciler: Reconciler::new(Settings::default()),
            plane,
            appliance: Appliance::default(),
        }
    }

    /// Makes the changes, a batch a transaction, and steps until the plane is so.
    fn run(&mut self, changes: &[Change], batch: usize) -> Result<Took, String> {
        let (wall, cpu) = (Instant::now(), cpu_time()?);
        for changes in changes.chunks(batch) {
            let now = SystemTime::now();
            let mut events = Vec::with_capacity(changes.len());
            for change in changes {
                let event = self.objects.apply(change, now).map_err(|e| e.to_string())?;
                events.extend(event);
            }
            let mut transaction = self.writer.begin(now);
            let told = self.reflector.apply(&self.objects, &events, &mut transaction);
            transaction.commit();
            if let Some(told) = told.first() {
                return Err(format!("{} was not taken: {:?}", told.key, told.verdict));
            }
            self.step();
        }
        let wanted = self.writer.tables().revision();
        while self.reconciler.reconciled() < wanted {
            self.step();
            if wall.elapsed() > Duration::from_secs(120) {
                return Err("the plane is not so after two minutes".to_owned());
            }
        }
        Ok(Took { wall: wall.elapsed(), cpu: cpu_time()?.saturating_sub(cpu) })
    }

    fn step(&mut self) {
        let now = Now { steady: Instant::now(), wall: SystemTime::now() };
        let news = self.writer.news(self.reconciler.seen());
        self.reconciler.step(now, &news, &self.appliance, &mut self.plane);
    }
}

fn cpu_time() -> Result<Duration, String> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_err(|e| e.to_string())?;
    Ok(Duration::from(time))
}

/// Bytes and number of what is allocated.
fn heap() -> (usize, usize) {
    let stats = HEAP.stats();
    (
        stats.bytes_allocated.saturating_sub(stats.bytes_deallocated),
        stats.allocations.saturating_sub(stats.deallocations),
    )
}

/// The objects of all services: what is asked to be, and then not to be any more.
fn changes(args: &Args) -> Result<(Vec<Change>, Vec<Change>), String> {
    let (mut puts, mut deletes) = (Vec::new(), Vec::new());
    let source = Source::new("kubernetes");
    let mut add = |object: Object| {
        let Key { kind, name, source } = object.key();
        deletes.push(Change::delete(Key { kind, name, source }));
        puts.push(Change::put(object));
    };
    for n in 0..args.services {
        let name = Name::new(&format!("bench/service-{n}")).map_err(|e| e.to_string())?;
        let front = Address::new(IpAddr::V4(Ipv4Addr::from(0x6440_0000 + n)), 80, 6);
        let frontends = vec![Said::new(front, Kind::LoadBalancer)];
        let spec = ServiceSpec { frontends, ..ServiceSpec::default() };
        add(Object::new(name.clone(), source.clone(), Spec::Service(Arc::new(spec))));
        let member = |b: u32| {
            let at = Ipv4Addr::from(0x0a00_0000 + n * args.backends + b);
            Member::new(IpAddr::V4(at), 8080, 6)
        };
        let endpoints = (0..args.backends).map(member).collect();
        let spec = BackendsSpec { service: name.clone(), endpoints };
        let slice = Name::new(&format!("bench/service-{n}-1")).map_err(|e| e.to_string())?;
        add(Object::new(slice, source.clone(), Spec::Backends(Arc::new(spec))));
    }
    Ok((puts, deletes))
}

fn measure(args: &Args) -> Result<(), String> {
    let (puts, deletes) = changes(args)?;
    let rows = (args.services as usize) * (args.backends as usize + 1) + 1;
    let (before, before_count) = heap();
    let mut control = Control::new(rows);
    let per = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(args.services);
    println!("{} services with {} backends each", args.services, args.backends);
    println!(
        "round  insert us CPU  delete us CPU   together  services/s in and out  bytes  objects"
    );
    let mut totals = Vec::new();
    for round in 1..=args.rounds {
        let inserted = control.run(&puts, args.batch)?;
        let (reachable, count) = heap();
        let lines = control.plane.dump().len();
        if lines < args.services as usize {
            return Err(format!("only {lines} records are in the plane"));
        }
        let deleted = control.run(&deletes, args.batch)?;
        if !control.plane.dump().is_empty() {
            return Err("the plane is not empty after all is deleted".to_owned());
        }
        let together = per(inserted.cpu) + per(deleted.cpu);
        totals.push(together);
        let rate = |took: Took| f64::from(args.services) / took.wall.as_secs_f64();
        println!(
            "{round:>5}  {:>13.2}  {:>13.2}  {together:>9.2}  {:>10.0}  {:>9.0}  {:>5.0}  {:>7.1}",
            per(inserted.cpu),
            per(deleted.cpu),
            rate(inserted),
            rate(deleted),
            reachable.saturating_sub(before) as f64 / f64::from(args.services),
            count.saturating_sub(before_count) as f64 / f64::from(args.services),
        );
    }
    totals.sort_by(f64::total_cmp);
    println!("median of {} rounds: {:.2} us CPU a service", args.rounds, totals[totals.len() / 2]);
    Ok(())
}

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("control: {error}");
            ExitCode::from(1)
        }
    }
}
