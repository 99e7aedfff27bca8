//! A writer, a reconciler and a plane of checked maps, with a time that the test controls.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use map_plane::{FaultyMaps, MapPlane, MemoryMaps, Options, Sizes};
use state::address::{Address, Endpoint};
use state::appliance::Appliance;
use state::dump::{self, Form};
use state::frontend::Progress;
use state::name::{Name, Precedence, Source};
use state::plane::Plane;
use state::reconcile::{Now, Reconciler, Settings};
use state::writer::{Transaction, Writer};

pub mod checked;
pub mod model;
pub mod ops;

pub use checked::Checked;

/// Small, so that tables are built quickly.
pub const MAGLEV_SIZE: u32 = 251;

/// Small, so that pruning takes several steps.
pub const PRUNE_AT_ONCE: usize = 3;

/// Maps of these tests: faults are outside, so that the checks inside see what is written.
pub type TestMaps = FaultyMaps<Checked>;

/// Writer, reconciler, plane and time.
pub struct World {
    pub writer: Writer,
    pub reconciler: Reconciler,
    pub plane: MapPlane<TestMaps>,
    pub now: Now,
    pub appliance: Appliance,
}

fn reconciler() -> Reconciler {
    Reconciler::new(Settings { prune_at_once: PRUNE_AT_ONCE, ..Settings::default() })
}

impl World {
    /// Creates a world with maps of these sizes.
    pub fn sized(sizes: Sizes) -> World {
        let now = Now { steady: Instant::now(), wall: SystemTime::UNIX_EPOCH };
        let maps = FaultyMaps::new(Checked::new(MemoryMaps::new(sizes)), 0, 1);
        let plane = MapPlane::new(maps, options(&[]));
        World {
            writer: writer(),
            reconciler: reconciler(),
            plane,
            now,
            appliance: Appliance::default(),
        }
    }

    pub fn new() -> World {
        World::sized(Sizes::default())
    }

    /// Writes in one transaction.
    pub fn write<R>(&self, write: impl FnOnce(&mut Transaction<'_>) -> R) -> R {
        let mut transaction = self.writer.begin(self.now.wall);
        let result = write(&mut transaction);
        transaction.commit();
        result
    }

    pub fn step(&mut self) {
        let news = self.writer.news(self.reconciler.seen());
        self.reconciler.step(self.now, &news, &self.appliance, &mut self.plane);
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.steady += time;
        self.now.wall += time;
    }

    /// Steps until nothing is left to do at the current time.
    pub fn steps(&mut self) {
        self.step();
        while self.reconciler.has_work(self.now.steady) {
            self.step();
        }
    }

    /// Sets the appliance's own addresses.
    pub fn set_addresses(&mut self, addresses: &[&str]) {
        self.appliance.addresses = addresses.iter().map(|text| ip(text)).collect();
        self.plane.set_addresses(self.appliance.addresses.clone());
        self.reconciler.say_again();
    }

    /// Ends the process in any state and starts another with the same maps and empty tables.
    pub fn restart(self) -> World {
        let addresses = self.appliance.addresses.clone();
        World {
            writer: writer(),
            reconciler: reconciler(),
            plane: MapPlane::new(self.plane.into_maps(), Options { addresses, ..options(&[]) }),
            ..self
        }
    }

    /// Advances the time without faults until all work is done, including a full pass.
    pub fn settle(&mut self) {
        self.plane.maps_mut().per_mille = 0;
        for _ in 0..4 {
            self.steps();
            self.pass(Duration::from_secs(60));
        }
        self.reconciler.prune_now(self.now);
        self.steps();
        assert_eq!(self.reconciler.reconciled(), self.writer.tables().revision());
        for row in self.writer.tables().frontends() {
            assert_eq!(row.status().progress, Progress::Done, "{row:?}");
        }
        self.assert_idle();
    }

    /// Checks that a full pass and a prune write nothing.
    pub fn assert_idle(&mut self) {
        let before = (self.plane.maps().maps.writes(), self.plane.acknowledged());
        self.reconciler.say_again();
        self.reconciler.prune_now(self.now);
        self.steps();
        let after = (self.plane.maps().maps.writes(), self.plane.acknowledged());
        let last = self.plane.maps().maps.log.last();
        assert_eq!(after, before, "nothing differed, and {last:?} was written");
    }

    /// Checks that the maps contain what the model expects.
    pub fn assert_is(&self, model: &model::Model) {
        let (there, expected) = (self.lines(), model.lines());
        let missing: Vec<&String> = expected.iter().filter(|l| !there.contains(l)).collect();
        let surplus: Vec<&String> = there.iter().filter(|l| !expected.contains(l)).collect();
        assert!(missing.is_empty() && surplus.is_empty(), "{missing:#?}\nbut {surplus:#?}");
        assert_eq!(there.len(), expected.len(), "a line twice");
    }

    /// Returns the contents of the maps, without identifiers.
    pub fn lines(&self) -> Vec<String> {
        dump::text(&self.plane.dump(), &Form::COMPARED)
    }

    /// Returns the contents of the maps, with identifiers.
    pub fn numbered(&self) -> Vec<String> {
        dump::text(&self.plane.dump(), &Form::default())
    }
}

/// Returns a writer whose source `first` is preferred over `second`.
pub fn writer() -> Writer {
    let writer = Writer::new();
    let mut transaction = writer.begin(SystemTime::UNIX_EPOCH);
    transaction.set_precedence(Precedence::new(["first", "second"].map(Source::new)));
    transaction.commit();
    writer
}

pub fn options(addresses: &[&str]) -> Options {
    let addresses = addresses.iter().map(|text| ip(text)).collect();
    Options { addresses, maglev_size: MAGLEV_SIZE, ..Options::default() }
}

pub fn source() -> Source {
    Source::new("first")
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a TCP address.
pub fn at(text: &str, port: u16) -> Address {
    Address::new(ip(text), port, 6)
}

/// Returns a TCP endpoint at port 8080.
pub fn endpoint(text: &str) -> Endpoint {
    Endpoint { addr: ip(text), port: 8080, protocol: 6 }
}
