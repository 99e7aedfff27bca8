//! The control path from objects to a plane, in the order of slowpath's control loop.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use config::checked::{ArmName, Config};
use fastpath::lcore::{Lcore, LcoreConfig};
use map_plane::{MapPlane, MemoryMaps, Options, Sizes as MapSizes};
use slowpath::plane::region::RegionPlane;
use slowpath::plane::rings::Rings;
use state::appliance::Appliance;
use state::name::Precedence;
use state::object::{Change, Event, Objects};
use state::plane::Plane;
use state::reconcile::{Now, Reconciler, Settings};
use state::reflect::Reflector;
use state::tables::Tables;
use state::writer::Writer;
use tables::command::Command;
use tables::layout::{Layout, Section, Sizes};
use tables::region::{Claim, Region, Role};

use crate::load::Load;

/// The time limit of any single wait.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The appliance of the measurements.
pub const CONFIG: &str = r#"
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

/// A plane and, for a region, its rings and its lcore.
pub enum Harness<'r> {
    /// The in-memory map plane.
    Memory(Box<MapPlane<MemoryMaps>>),
    /// A region.
    Region(Box<AttachedRegion<'r>>),
}

/// A region with its writer, its rings and optionally its lcore.
pub struct AttachedRegion<'r> {
    region: &'r Region,
    plane: RegionPlane<'r>,
    rings: Rings<'r>,
    /// Polled after each step; `None` where another thread is the lcore.
    lcore: Option<PolledLcore<'r>>,
    /// How far the plane's clock is ahead of the real one, so that work that is due once a second
    /// need not be waited for.
    ahead: Duration,
}

impl<'r> AttachedRegion<'r> {
    /// Attaches to a region as slowpath does.
    pub fn attach(
        region: &'r Region,
        lcore: Option<PolledLcore<'r>>,
    ) -> Result<AttachedRegion<'r>, String> {
        let config: Arc<Config> = Arc::new(config::from_toml(CONFIG).map_err(|e| e.render())?);
        let plane = RegionPlane::attach(region, &config).map_err(|e| e.to_string())?;
        let (rings, ahead) = (Rings::attach(region), Duration::ZERO);
        Ok(AttachedRegion { region, plane, rings, lcore, ahead })
    }

    /// Notifies the lcore of a new generation and processes its events.
    fn process_lcore(&mut self) {
        let generation = self.region.generation();
        let behind = self.region.live_lcores().filter(|(_, l)| l.acknowledged() != generation);
        for (lcore, _) in behind {
            self.rings.send(lcore, &Command::Switch { generation });
        }
        if let Some(lcore) = &mut self.lcore {
            lcore.lcore.run_periodic();
        }
        self.rings.take();
    }

    fn is_empty(&self) -> bool {
        let set = self.region.tables(self.region.generation());
        set.services().next().is_none() && set.backends().next().is_none()
    }
}

/// The single lcore of a fastpath.
pub struct PolledLcore<'r> {
    pub lcore: Lcore<'r>,
    /// The fastpath's claim; while it is held, the lcore counts as alive.
    _fastpath: Claim<'r>,
}

/// Attaches to a region as a fastpath with one lcore.
pub fn lcore(region: &Region) -> Result<PolledLcore<'_>, String> {
    let fastpath = region.claim(Role::Fastpath).map_err(|e| e.to_string())?;
    let macs = [[2, 0, 0, 0, 0, 2]; 2];
    let config = LcoreConfig { index: 0, count: 1, epoch: fastpath.epoch(), macs };
    let lcore = Lcore::join(region, config).ok_or("the region has no status line for the lcore")?;
    Ok(PolledLcore { lcore, _fastpath: fastpath })
}

/// Returns a region's sizes for a load. Only the slots have spare capacity: a tenth, and enough for
/// one service to change.
pub fn sizes(load: &Load) -> Sizes {
    let backends = load.all_backends();
    let table = if load.backends > 1 { load.table } else { 0 };
    let slots = load.services * (table + 2 * load.backends);
    // While one service changes, two versions of all its entries exist.
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

/// Returns the bytes that tables of these sizes take in a region, including one lcore's counters.
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

impl<'r> Harness<'r> {
    /// Creates a map plane in memory with capacity for `rows` rows.
    pub fn memory(rows: usize) -> Harness<'r> {
        let maps = MemoryMaps::new(MapSizes::all(rows));
        Harness::Memory(Box::new(MapPlane::new(maps, Options::default())))
    }

    fn plane(&mut self) -> &mut dyn Plane {
        match self {
            Harness::Memory(plane) => &mut **plane,
            Harness::Region(attached) => &mut attached.plane,
        }
    }

    /// Performs the work of slowpath between two batches.
    fn process_events(&mut self) {
        if let Harness::Region(attached) = self {
            attached.process_lcore();
        }
    }

    /// Frees entries without references, which slowpath's loop does once a second. Returns whether
    /// the plane is empty afterwards.
    pub fn reclaim(&mut self) -> bool {
        let Harness::Region(attached) = self else { return self.plane().dump().is_empty() };
        for _ in 0..5 {
            attached.ahead += Duration::from_secs(2);
            attached.plane.reclaim(Instant::now() + attached.ahead, &|_, _| true);
            attached.process_lcore();
        }
        attached.is_empty()
    }

    /// Returns the number of rows of the map plane, or of services of the region.
    pub fn row_count(&mut self) -> usize {
        match self {
            Harness::Memory(plane) => plane.dump().len(),
            Harness::Region(attached) => {
                let set = attached.region.tables(attached.region.generation());
                set.services().count()
            }
        }
    }
}

/// The control path from objects to a plane.
pub struct Control<'r> {
    pub objects: Objects,
    reflector: Reflector,
    writer: Writer,
    pub reconciler: Reconciler,
    pub harness: Harness<'r>,
    appliance: Appliance,
}

impl<'r> Control<'r> {
    /// Creates an empty control plane.
    pub fn new(harness: Harness<'r>) -> Control<'r> {
        Control {
            objects: Objects::default(),
            reflector: Reflector::new(Precedence::default(), ArmName::Egress),
            writer: Writer::new(),
            reconciler: Reconciler::new(Settings::default()),
            harness,
            appliance: Appliance::default(),
        }
    }

    /// Applies the changes, one transaction per batch, and steps until the plane has them.
    pub fn run(&mut self, changes: &[Change], batch: usize) -> Result<(), String> {
        for changes in changes.chunks(batch.max(1)) {
            self.apply(changes)?;
            self.step();
        }
        self.finish()
    }

    /// Steps until the plane matches the tables and the lcore has acknowledged.
    pub fn finish(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while self.reconciler.reconciled() < self.writer.tables().revision() {
            self.step();
            if let Some((address, why)) = self.reconciler.errors().next() {
                return Err(format!("{address}: {why}"));
            }
            if begun.elapsed() > TIMEOUT {
                return Err("the plane is not up to date after two minutes".to_owned());
            }
        }
        Ok(())
    }

    /// Applies changes to the rows and returns the tables' revision.
    pub fn apply(&mut self, changes: &[Change]) -> Result<u64, String> {
        let now = SystemTime::now();
        let mut events = Vec::with_capacity(changes.len());
        for change in changes {
            let event = self.objects.apply(change, now).map_err(|e| e.to_string())?;
            events.extend(event);
        }
        self.reflect(&events, now)
    }

    /// Applies object events to the rows and returns the tables' revision.
    pub fn reflect(&mut self, events: &[Event], now: SystemTime) -> Result<u64, String> {
        let mut transaction = self.writer.begin(now);
        let changes = self.reflector.apply(&self.objects, events, &mut transaction);
        let revision = transaction.commit();
        match changes.first() {
            Some(change) => Err(format!("{} was not applied: {:?}", change.key, change.verdict)),
            None => Ok(revision),
        }
    }

    /// Returns the tables.
    pub fn tables(&self) -> Tables {
        self.writer.tables()
    }

    /// Runs one iteration of the control loop.
    pub fn step(&mut self) {
        let now = Now { steady: Instant::now(), wall: SystemTime::now() };
        let tables_changes = self.writer.changes_since(self.reconciler.observed());
        self.reconciler.step(now, &tables_changes, &self.appliance, self.harness.plane());
        self.harness.process_events();
    }
}
