//! The planes that cases run over.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use config::checked::Config;
use hugepages::Unreadable;
use map_plane::{FaultyMaps, MapPlane, MemoryMaps, Options, Sizes};
use slowpath::plane::region::RegionPlane;
use state::appliance::Appliance;
use state::plane::Plane;
use tables::region::{Claim, Region, RegionLocation, Role};

/// Number of slots of Maglev tables; small, so that they are built quickly.
const MAGLEV_SIZE: u32 = 251;
/// Number of failing writes per 1,000 writes to the faulty maps.
const FAULTS: u32 = 100;

/// The plane below the reconciler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaneKind {
    /// Maps in memory.
    Memory,
    /// Maps in memory where one in ten writes fails.
    Faulty,
    /// The region in a file, as for the DPDK fastpath.
    File,
    /// The region in kernel maps, as with `plane = "xdp"`.
    KernelMaps,
}

impl PlaneKind {
    pub fn is_region(self) -> bool {
        matches!(self, PlaneKind::File | PlaneKind::KernelMaps)
    }

    /// Creates an empty plane. The seed selects the writes that fail.
    pub fn create(self, seed: u64) -> Box<dyn TestPlane> {
        match self {
            PlaneKind::Memory => Box::new(Maps::create(0, seed)),
            PlaneKind::Faulty => Box::new(Maps::create(FAULTS, seed)),
            PlaneKind::File => Box::new(InRegion::create("dpdk")),
            PlaneKind::KernelMaps => Box::new(InRegion::create("xdp")),
        }
    }
}

/// A plane, and the process that writes it.
pub trait TestPlane {
    /// Returns the plane as the reconciler writes it.
    fn plane(&mut self) -> &mut dyn Plane;
    /// Applies new attributes of the appliance.
    fn set_appliance(&mut self, appliance: &Appliance);
    /// Ends the process and starts another over the same state.
    fn restart(&mut self, appliance: &Appliance);
    /// Performs the work that other processes and the control loop do between steps.
    fn between_steps(&mut self, now: Instant);
    /// Returns a number that increases with each write.
    fn writes(&self) -> u64;
    /// Returns the number of injected write errors.
    fn faults(&self) -> u64;
}

/// Maps in memory.
struct Maps(MapPlane<FaultyMaps<MemoryMaps>>);

/// Returns the options that a plane of maps derives from the appliance.
fn options(appliance: &Appliance) -> Options {
    Options {
        addresses: appliance.addresses.clone(),
        open_cluster: appliance.external_cluster_ip,
        maglev_size: MAGLEV_SIZE,
        ..Options::default()
    }
}

impl Maps {
    fn create(per_mille: u32, seed: u64) -> Maps {
        let maps = FaultyMaps::new(MemoryMaps::new(Sizes::all(1000)), per_mille, seed);
        Maps(MapPlane::new(maps, options(&Appliance::default())))
    }
}

impl TestPlane for Maps {
    fn plane(&mut self) -> &mut dyn Plane {
        &mut self.0
    }

    /// Restarts the plane, because it reads `open_cluster` only when it is created.
    fn set_appliance(&mut self, appliance: &Appliance) {
        self.restart(appliance);
    }

    fn restart(&mut self, appliance: &Appliance) {
        self.0 = MapPlane::new(self.0.maps().clone(), options(appliance));
    }

    fn between_steps(&mut self, _: Instant) {}

    fn writes(&self) -> u64 {
        self.0.maps().maps.writes()
    }

    fn faults(&self) -> u64 {
        self.0.maps().failed()
    }
}

/// The region, with a fastpath of one lcore without packets.
struct InRegion {
    config: Arc<Config>,
    location: RegionLocation,
    plane: Option<RegionPlane<'static>>,
    fastpath: &'static Region,
    _claim: Claim<'static>,
}

/// Number of regions created by this test process, for their names.
static COUNT: AtomicU32 = AtomicU32::new(0);

fn config(plane: &str) -> Config {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let own = format!("weir-cases-{}-{number}", std::process::id());
    let text = format!(
        r#"
        name = "weir-cases"
        plane = "{plane}"
        [tables]
        maglev_size = {MAGLEV_SIZE}
        [region]
        path = "/dev/shm/{own}/region"
        maps = "/sys/fs/bpf/{own}"
        max_services = 64
        max_frontends = 128
        max_backends = 128
        max_next_hops = 128
        slots = 32768
        max_flows = 1024
        option_slabs = 16
        max_fragments = 16
        nat_maps = 512
        max_scopes = 16
        ring_slots = 16
        [fastpath]
        lcores = [1]
        [ingress]
        device = "net_af_packet0,iface=weir-cases0"
        address = ["198.18.1.10/24", "2001:db8:1::10/64"]
        mtu = 1500
        [egress]
        device = "net_af_packet1,iface=weir-cases1"
        address = ["10.0.0.254/8", "fd00::ffff/64"]
        mtu = 1500
        "#
    );
    config::from_toml(&text).unwrap()
}

/// Opens a region that stays mapped until the test process ends.
fn open(config: &Config) -> &'static Region {
    let opened = hugepages::open_region(config, Unreadable::Fail).unwrap();
    Box::leak(Box::new(opened.region))
}

impl InRegion {
    fn create(plane: &str) -> InRegion {
        let config = Arc::new(config(plane));
        let fastpath = open(&config);
        let claim = fastpath.claim(Role::Fastpath).unwrap();
        fastpath.lcores()[0].join(fastpath, claim.epoch(), 1);
        let location = match config.plane {
            config::checked::Plane::Dpdk => RegionLocation::from(&config.region.path),
            config::checked::Plane::Xdp => RegionLocation::maps(config.region.maps.clone()),
        };
        assert_eq!(fastpath.path(), Some(location.path()));
        let mut plane = InRegion { config, location, plane: None, fastpath, _claim: claim };
        plane.restart(&Appliance::default());
        plane
    }
}

impl TestPlane for InRegion {
    fn plane(&mut self) -> &mut dyn Plane {
        self.plane.as_mut().expect("the plane exists except during a restart")
    }

    fn set_appliance(&mut self, appliance: &Appliance) {
        let plane = self.plane.as_mut().expect("the plane exists except during a restart");
        plane.set_appliance(appliance);
    }

    fn restart(&mut self, appliance: &Appliance) {
        self.plane = None;
        let mut plane = RegionPlane::attach(open(&self.config), &self.config).unwrap();
        plane.set_appliance(appliance);
        self.plane = Some(plane);
    }

    fn between_steps(&mut self, now: Instant) {
        self.fastpath.lcores()[0].acknowledge(self.fastpath.generation());
        self.plane
            .as_mut()
            .expect("the plane exists except during a restart")
            .reclaim(now, &|_, _| true);
    }

    fn writes(&self) -> u64 {
        u64::from(self.fastpath.generation())
    }

    fn faults(&self) -> u64 {
        0
    }
}

impl Drop for InRegion {
    fn drop(&mut self) {
        self.plane = None;
        let _ = self.location.remove();
        match &self.location {
            RegionLocation::File { path, .. } => {
                drop(std::fs::remove_dir(path.parent().expect("a folder")))
            }
            RegionLocation::Maps { path: folder, .. } => {
                let name = folder.display().to_string().trim_start_matches('/').replace('/', ":");
                let _ = std::fs::remove_file(PathBuf::from(format!("/run/weir/{name}.lock")));
            }
        }
    }
}
