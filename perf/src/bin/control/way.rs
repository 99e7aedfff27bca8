//! Everything between objects and a plane, in the order of slowpath's control loop.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use config::checked::{ArmName, Config};
use fastpath::lcore::{Lcore, Place};
use map_plane::{MapPlane, MemoryMaps, Options, Sizes as MapSizes};
use slowpath::plane::region::RegionPlane;
use slowpath::plane::rings::Rings;
use state::appliance::Appliance;
use state::name::Precedence;
use state::object::{Change, Event, Objects};
use state::plane::Plane;
use state::reconcile::{Now, Reconciler, Settings};
use state::reflect::Reflector;
use state::writer::Writer;
use tables::command::Command;
use tables::layout::{Layout, Section, Sizes};
use tables::region::{Claim, Region, Role};

use crate::load::Load;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

const CONFIG: &str = r#"
name = "bench"
[fastpath]
lcores = [1]
[ingress]
device = "net_null0"
address = ["10.200.1.10/24"]
mtu = 9001
[egress]
device = "net_null1"
address = ["10.200.2.10/24"]
mtu = 9001
"#;

/// A plane, and whoever serves what is in it.
pub enum Rig<'r> {
    /// The map model in memory.
    Memory(Box<MapPlane<MemoryMaps>>),
    /// A region.
    Region(Box<Served<'r>>),
}

/// A region with its writer, its rings and perhaps its lcore.
pub struct Served<'r> {
    region: &'r Region,
    plane: RegionPlane<'r>,
    rings: Rings<'r>,
    /// Takes its turn after each step; none where another thread is the lcore.
    lcore: Option<Polled<'r>>,
    /// How far its clock is ahead: nobody waits for what the loop does once a second.
    ahead: Duration,
}

impl<'r> Served<'r> {
    /// Attaches as slowpath does.
    pub fn attach(region: &'r Region, lcore: Option<Polled<'r>>) -> Result<Served<'r>, String> {
        let config: Arc<Config> = Arc::new(config::from_toml(CONFIG).map_err(|e| e.render())?);
        let plane = RegionPlane::attach(region, &config).map_err(|e| e.to_string())?;
        let (rings, ahead) = (Rings::attach(region), Duration::ZERO);
        Ok(Served { region, plane, rings, lcore, ahead })
    }

    /// Tells the lcore of a new generation, and hears of what it says.
    fn serve(&mut self) {
        let generation = self.region.generation();
        let behind = self.region.live_lcores().filter(|(_, l)| l.acknowledged() != generation);
        for (lcore, _) in behind {
            self.rings.send(lcore, &Command::Switch { generation });
        }
        if let Some(lcore) = &mut self.lcore {
            lcore.lcore.turn();
        }
        self.rings.take();
    }

    fn is_empty(&self) -> bool {
        let set = self.region.tables(self.region.generation());
        set.services().next().is_none() && set.backends().next().is_none()
    }
}

/// The one lcore of a fastpath.
pub struct Polled<'r> {
    pub lcore: Lcore<'r>,
    /// While it is held, the lcore counts as alive.
    _fastpath: Claim<'r>,
}

/// Joins a region as a fastpath with one lcore.
pub fn lcore(region: &Region) -> Result<Polled<'_>, String> {
    let fastpath = region.claim(Role::Fastpath).map_err(|e| e.to_string())?;
    let macs = [[2, 0, 0, 0, 0, 2]; 2];
    let place = Place { index: 0, count: 1, epoch: fastpath.epoch(), macs };
    let lcore = Lcore::join(region, place).ok_or("the region has no room for an lcore")?;
    Ok(Polled { lcore, _fastpath: fastpath })
}

/// A region's sizes for a load, with nothing to spare but a tenth of the slots.
pub fn sizes(load: &Load) -> Sizes {
    let backends = load.all_backends();
    let table = if load.backends > 1 { load.table } else { 0 };
    let slots = load.services * (table + 2 * load.backends);
    // One service that changes has two of everything for a moment.
    let slots = slots + slots / 10 + 2 * table + 4 * load.backends;
    Sizes {
        services: load.services,
        frontends: load.services,
        backends,
        next_hops: backends,
        slots,
        lcores: 1,
        flows: 1024,
        nat_maps: 0,
        ..Sizes::DEFAULT
    }
}

/// Bytes that tables of these sizes take in a region, an lcore's counters with them.
pub fn table_bytes(sizes: &Sizes) -> usize {
    let layout = Layout::new(sizes);
    let of = |section: &Section| layout.term(*section).bytes;
    let tables = [
        Section::Services,
        Section::ServiceNotes,
        Section::FrontendHeads,
        Section::FrontendBits,
        Section::Frontends,
        Section::Backends,
        Section::NextHops,
        Section::PathMtus,
        Section::Slots,
        Section::Counters,
    ];
    tables.iter().map(of).sum()
}

impl<'r> Rig<'r> {
    /// Maps in memory with room for so many rows.
    pub fn memory(rows: usize) -> Rig<'r> {
        let maps = MemoryMaps::new(MapSizes::all(rows));
        Rig::Memory(Box::new(MapPlane::new(maps, Options::default())))
    }

    fn plane(&mut self) -> &mut dyn Plane {
        match self {
            Rig::Memory(plane) => &mut **plane,
            Rig::Region(served) => &mut served.plane,
        }
    }

    /// What slowpath does between two batches.
    fn between(&mut self) {
        if let Rig::Region(served) = self {
            served.serve();
        }
    }

    /// Lets go of what nobody refers to any more, which the loop does once a second. Tells whether
    /// all of it is gone.
    pub fn empty(&mut self) -> bool {
        let Rig::Region(served) = self else { return self.plane().dump().is_empty() };
        for _ in 0..5 {
            served.ahead += Duration::from_secs(2);
            served.plane.reclaim(Instant::now() + served.ahead, &|_, _| true);
            served.serve();
        }
        served.is_empty()
    }

    /// How many frontends or more it has.
    pub fn lines(&mut self) -> usize {
        match self {
            Rig::Memory(plane) => plane.dump().len(),
            Rig::Region(served) => {
                let set = served.region.tables(served.region.generation());
                set.services().count()
            }
        }
    }
}

/// Everything between objects and a plane.
pub struct Control<'r> {
    pub objects: Objects,
    reflector: Reflector,
    writer: Writer,
    pub reconciler: Reconciler,
    pub rig: Rig<'r>,
    appliance: Appliance,
}

impl<'r> Control<'r> {
    /// With nothing in it.
    pub fn new(rig: Rig<'r>) -> Control<'r> {
        Control {
            objects: Objects::default(),
            reflector: Reflector::new(Precedence::default(), ArmName::Egress),
            writer: Writer::new(),
            reconciler: Reconciler::new(Settings::default()),
            rig,
            appliance: Appliance::default(),
        }
    }

    /// Makes the changes, a batch a transaction, and steps until the plane is so.
    pub fn run(&mut self, changes: &[Change], batch: usize) -> Result<(), String> {
        for changes in changes.chunks(batch.max(1)) {
            self.take(changes)?;
            self.step();
        }
        self.finish()
    }

    /// Steps until the plane is as the tables say, and the lcore has acknowledged it.
    pub fn finish(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while self.reconciler.reconciled() < self.writer.tables().revision() {
            self.step();
            if let Some((address, why)) = self.reconciler.errors().next() {
                return Err(format!("{address}: {why}"));
            }
            if begun.elapsed() > PATIENCE {
                return Err("the plane is not so after two minutes".to_owned());
            }
        }
        Ok(())
    }

    /// Makes rows of changes; tells the revision of the tables.
    pub fn take(&mut self, changes: &[Change]) -> Result<u64, String> {
        let now = SystemTime::now();
        let mut events = Vec::with_capacity(changes.len());
        for change in changes {
            let event = self.objects.apply(change, now).map_err(|e| e.to_string())?;
            events.extend(event);
        }
        self.reflect(&events, now)
    }

    /// Makes rows of what happened to the objects.
    pub fn reflect(&mut self, events: &[Event], now: SystemTime) -> Result<u64, String> {
        let mut transaction = self.writer.begin(now);
        let told = self.reflector.apply(&self.objects, events, &mut transaction);
        let revision = transaction.commit();
        match told.first() {
            Some(told) => Err(format!("{} was not taken: {:?}", told.key, told.verdict)),
            None => Ok(revision),
        }
    }

    /// Once around.
    pub fn step(&mut self) {
        let now = Now { steady: Instant::now(), wall: SystemTime::now() };
        let news = self.writer.news(self.reconciler.seen());
        self.reconciler.step(now, &news, &self.appliance, self.rig.plane());
        self.rig.between();
    }
}
