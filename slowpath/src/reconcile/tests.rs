//! Tests of the control loop over a region of the test, with emulated lcores and simulated time.

use super::*;
use std::net::IpAddr;
use std::path::PathBuf;
use std::task::{Context, Waker};
use std::time::SystemTime;

use crate::health::Able;
use crate::kernel::neighbors::kernel::{KernelEvent, Link, Neighbor, Route};
use crate::sources::file::{ConfigFile, Reader, watch};
use packet::flow::FlowKey;
use state::frontend::Progress;
use tables::command::{Command, Event};
use tables::flow::{Flows, Forward, GatewayLeg, NewFlow};
use tables::layout::Sizes;
use tables::record::BackendState;
use tables::region::Role;
use tables::ring::{Consumer, Producer, SharedSlots};

mod checks;
mod configure;
mod frozen;
mod hops;
mod neighbors;
mod removals;

const CONFIG: &str = r#"
    name = "weir-t"
    [fastpath]
    lcores = [1]
    [ingress]
    device = "net_null0"
    address = ["10.0.1.10/24"]
    mtu = 9001
    [egress]
    device = "net_null1"
    address = ["10.0.2.10/24"]
    mtu = 9001
    [nat]
    addresses = ["10.0.2.10"]
    [[gateway]]
    name = "aws"
    kind = "aws"
    sources = ["10.0.1.0/24"]
"#;

/// A kernel that resolves every neighbor immediately.
struct ResolvingKernel;

impl Kernel for ResolvingKernel {
    fn link(&mut self, name: &str) -> std::io::Result<Option<Link>> {
        let index = u32::from(name.ends_with("out"));
        Ok(Some(Link { index, mac: [2, 0, 0, 0, 1, index as u8], mtu: 9001, up: true }))
    }
    fn route(&mut self, _: u32, to: IpAddr) -> std::io::Result<Option<Route>> {
        Ok(Some(Route { via: to, mtu: None }))
    }
    fn neighbors(&mut self, index: u32) -> std::io::Result<Vec<Neighbor>> {
        let neighbors = (11..14).map(|last| Neighbor {
            index,
            addr: IpAddr::from([10, 0, 2, last]),
            mac: Some([2, 0, 0, 0, 2, last]),
            fresh: true,
        });
        Ok(neighbors.collect())
    }
    fn probe(&mut self, _: u32, _: IpAddr) -> std::io::Result<()> {
        Ok(())
    }
    fn poll_events(&mut self) -> Vec<KernelEvent> {
        Vec::new()
    }
}

/// An lcore without packets: it joins, takes commands, switches and acknowledges.
struct FakeLcore<'r> {
    region: &'r Region,
    commands: Consumer<SharedSlots<'r>>,
    events: Producer<SharedSlots<'r>>,
}

impl<'r> FakeLcore<'r> {
    fn join(region: &'r Region) -> FakeLcore<'r> {
        let lcore = &region.lcores()[0];
        lcore.join(region, region.epoch(Role::Fastpath), 1);
        lcore.set_link(0, true);
        lcore.set_link(1, true);
        FakeLcore {
            region,
            commands: Consumer::attach(SharedSlots::commands(region, 0).unwrap()),
            events: Producer::attach(SharedSlots::events(region, 0).unwrap()),
        }
    }

    fn run_once(&mut self) {
        let lcore = &self.region.lcores()[0];
        lcore.count_iteration();
        while let Some(message) = self.commands.pop() {
            if let Command::Switch { generation } = Command::decode(&message).unwrap() {
                lcore.acknowledge(generation);
                assert!(self.events.push(&Event::Switched { generation }.encode()));
            }
        }
    }
}

/// Returns a store without persistence.
fn memory_store() -> Arc<Store> {
    Arc::new(crate::sources::desired::open_store(None).unwrap())
}

/// The environment of a control loop: a region, a services file, a store and a clock.
struct Fixture {
    region: &'static Region,
    config: Arc<Config>,
    services: PathBuf,
    /// Path of the configuration file; `None` if the loop watches none.
    file: Option<PathBuf>,
    /// The reader of the files, which [`Fixture::pass`] runs in place of its thread.
    reader: Option<Reader>,
    store: Arc<Store>,
    /// Whether the store's disk responds to writes.
    disk_responds: bool,
    now: Instant,
}

impl Fixture {
    fn new(name: &str) -> Fixture {
        let folder = std::env::temp_dir().join(format!("weir-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let services = folder.join("services.toml");
        let mut config = config::from_toml(CONFIG).unwrap();
        config.services = Some(services.clone());
        // Leaked, because the control loop refers to it while the fixture is borrowed mutably.
        let region = Box::leak(Box::new(Region::anonymous(&Sizes::SMALL).unwrap()));
        let (file, reader, store) = (None, None, memory_store());
        let config = Arc::new(config);
        let now = Instant::now();
        Fixture { region, config, services, file, reader, store, disk_responds: true, now }
    }

    /// Replaces the services file by renaming a new file, as editors and Kubernetes do.
    fn write(&self, text: &str) {
        let beside = self.services.with_extension("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, &self.services).unwrap();
    }

    /// Writes the services file: the service `default/web` with these backends, each an address and
    /// optionally further fields.
    fn backends(&self, backends: &[&str]) {
        let backends: Vec<String> = backends
            .iter()
            .map(|b| match b.split_once(' ') {
                Some((addr, rest)) => format!("{{address = \"{addr}\", port = 80, {rest}}}"),
                None => format!("{{address = \"{b}\", port = 80}}"),
            })
            .collect();
        self.write(&format!(
            "[[service]]\nname = \"default/web\"\nmode = \"nat\"\ntable_size = 251\n\
             frontends = [{{address = \"203.0.113.1\", port = 80, protocol = \"tcp\"}}]\n\
             backends = [{}]\n",
            backends.join(", ")
        ));
    }

    fn start(&mut self) -> (Reconcile<'static>, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        let plane = RegionPlane::attach(self.region, &self.config).unwrap();
        let config = Arc::clone(&self.config);
        let file = self.file.as_ref().map(|path| ConfigFile::new(path, &[], self.config.plane));
        let (files, reader) = watch(&config, file, wake(&shared));
        (self.reader, self.store) = (Some(reader), memory_store());
        let reconcile = Reconcile::new(
            config,
            plane,
            Box::new(ResolvingKernel),
            Arc::clone(&shared),
            Arc::clone(&self.store),
            files,
            Now { steady: self.now, wall: SystemTime::UNIX_EPOCH },
        );
        (reconcile, shared)
    }

    /// Advances the time by `ms` milliseconds in steps of 20. Each step runs the control loop, the
    /// reader, the store if its disk responds, and the lcore.
    fn pass(
        &mut self,
        ms: u64,
        reconcile: &mut Reconcile<'_>,
        mut lcore: Option<&mut FakeLcore<'_>>,
    ) {
        for _ in 0..ms / 20 {
            self.now += Duration::from_millis(20);
            reconcile.step(Now { steady: self.now, wall: SystemTime::UNIX_EPOCH });
            self.reader.iter_mut().for_each(|reader| reader.poll(self.now));
            if self.disk_responds {
                self.store.write_waiting();
            }
            if let Some(lcore) = &mut lcore {
                lcore.run_once();
            }
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.services.parent().unwrap());
    }
}

fn able(shared: &Shared) -> Able {
    shared.able_now()
}

/// Returns the id of the only service, and the last address byte and id of each backend.
fn ids(region: &Region) -> (u32, Vec<(u8, u32)>) {
    let set = region.tables(region.generation());
    let backends = set.backends().map(|(id, b)| (b.addr.octets()[15], id));
    (set.services().next().unwrap().0, backends.collect())
}

#[test]
fn the_first_file_is_committed_and_makes_the_appliance_able() {
    let mut fixture = Fixture::new("first");
    let (mut reconcile, shared) = fixture.start();
    fixture.pass(200_000, &mut reconcile, None);
    assert!(
        able(&shared).reasons.iter().any(|r| r.contains("services file was rejected")),
        "{:?}",
        able(&shared)
    );
    let _fastpath = fixture.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(fixture.region);
    fixture.backends(&["10.0.2.11", "10.0.2.12"]);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    assert!(fixture.region.generation() >= 1);
    assert_eq!(able(&shared), Able { able: true, reasons: vec![] });

    let set = fixture.region.tables(fixture.region.generation());
    let web = "203.0.113.1".parse::<IpAddr>().unwrap().into();
    let id = set.frontend(0, &web, 80, 6).unwrap();
    let service = set.service(id).unwrap();
    assert_eq!(service.slots.count, 251);
    for hash in [0, u64::MAX, 1 << 63] {
        let backend = set.backend(set.pick(service, hash).unwrap()).unwrap();
        let hop = set.next_hop(backend.next_hop).unwrap();
        assert_eq!(hop.mac, [2, 0, 0, 0, 2, backend.addr.octets()[15]]);
        assert!(hop.known && hop.arm == 1 && hop.src_mac == [2, 0, 0, 0, 1, 1] && hop.mtu == 9001);
    }
    assert_eq!(set.tunnels().count(), 1);
    assert_eq!(set.settings().nat_port_first, 1024);
}

#[test]
fn an_invalid_file_is_rejected_as_a_whole() {
    let mut fixture = Fixture::new("bad");
    let (mut reconcile, shared) = fixture.start();
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    let (before, at) = (ids(fixture.region), fixture.region.generation());
    // The first service is valid, the second has a misspelled key.
    let good = std::fs::read_to_string(&fixture.services).unwrap().replace("2.11", "2.12");
    fixture.write(&format!("{good}\n[[service]]\nname = \"b\"\nmodus = \"nat\"\n"));
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!((ids(fixture.region), fixture.region.generation()), (before, at));
    let error = shared.status_now().services_file.error.unwrap();
    assert!(error.contains("modus"), "{error}");
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(shared.status_now().services_file.error, None);
}

#[test]
fn a_frontend_rejected_by_the_region_keeps_its_state_and_names_the_setting() {
    let mut fixture = Fixture::new("full");
    let (mut reconcile, shared) = fixture.start();
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    let (before, at) = (ids(fixture.region), fixture.region.generation());
    let many: Vec<String> = (1..=40).map(|n| format!("10.0.2.{n}")).collect();
    fixture.backends(&many.iter().map(String::as_str).collect::<Vec<_>>());
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!((ids(fixture.region), fixture.region.generation()), (before.clone(), at));
    assert_eq!(shared.status_now().services_file.error, None, "the file is in force");
    let tables = reconcile.desired.writer.tables();
    let status = tables.frontends().next().unwrap().status();
    let Progress::Error(why) = status.progress else { panic!("{status:?}") };
    assert!(why.contains("region.max_"), "{why}");
    fixture.backends(&["10.0.2.11", "10.0.2.12"]);
    fixture.pass(1000, &mut reconcile, None);
    let after = ids(fixture.region);
    assert_eq!((after.0, after.1[0], after.1.len()), (before.0, before.1[0], 2));
}

#[test]
fn a_file_whose_commit_fails_is_rolled_back() {
    let mut fixture = Fixture::new("tunnels");
    let (mut reconcile, shared) = fixture.start();
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    let (before, at) = (ids(fixture.region), fixture.region.generation());
    let tunnels = (1..=20).map(|vni| {
        format!(
            "[[service]]\nname = \"t{vni}\"\nmode = \"tunnel\"\ntunnel = \"vxlan\"\nvni = {vni}\n\
             frontends = [{{address = \"203.0.113.2\", port = {vni}, protocol = \"tcp\"}}]\n\
             backends = [{{address = \"10.0.2.12\"}}]\n"
        )
    });
    fixture.write(&format!("allow_removal = true\n{}", tunnels.collect::<String>()));
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!((ids(fixture.region), fixture.region.generation()), (before, at));
    let error = shared.status_now().services_file.error.unwrap();
    assert!(error.contains("tunnels"), "{error}");
    let tables = reconcile.desired.writer.tables();
    let names: Vec<String> = tables.services().map(|service| service.name.to_string()).collect();
    assert_eq!(names, ["default/web"]);
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(shared.status_now().services_file.error, None);
}

#[test]
fn a_frontend_is_done_when_every_lcore_has_acknowledged_it() {
    let mut fixture = Fixture::new("done");
    let (mut reconcile, _) = fixture.start();
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    let progress = |reconcile: &Reconcile<'_>| {
        reconcile.desired.writer.tables().frontends().next().unwrap().status().progress
    };
    assert_eq!(progress(&reconcile), Progress::Pending, "no lcore polls");
    let _fastpath = fixture.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(fixture.region);
    fixture.pass(100, &mut reconcile, Some(&mut lcore));
    assert_eq!(progress(&reconcile), Progress::Done);
    fixture.backends(&["10.0.2.11", "10.0.2.12"]);
    for _ in 0..100 {
        fixture.region.lcores()[0].count_iteration();
        fixture.pass(20, &mut reconcile, None);
    }
    assert_eq!(progress(&reconcile), Progress::Pending, "the lcore lags");
    fixture.pass(200, &mut reconcile, Some(&mut lcore));
    assert_eq!(progress(&reconcile), Progress::Done);
}

/// BGP advertises frontends that are done, and reads their progress only when it is notified.
#[test]
fn bgp_is_notified_of_frontends_that_are_done_without_a_new_generation() {
    let mut fixture = Fixture::new("restarted");
    let (mut reconcile, _) = fixture.start();
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    drop(reconcile);
    let (mut reconcile, shared) = fixture.start();
    let generation = fixture.region.generation();
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(fixture.region.generation(), generation);
    let progress = |reconcile: &Reconcile<'_>| {
        reconcile.desired.writer.tables().frontends().next().unwrap().status().progress
    };
    let notified = || {
        let wait = std::pin::pin!(shared.changes().wait());
        wait.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    assert_eq!(progress(&reconcile), Progress::Pending, "no lcore is running");
    // The next step does not check the lcores' status, which would notify BGP as well.
    while reconcile.lcores.is_due(fixture.now + Duration::from_millis(20)) {
        fixture.pass(20, &mut reconcile, None);
    }
    let _fastpath = fixture.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(fixture.region);
    while notified() {}
    fixture.pass(20, &mut reconcile, Some(&mut lcore));
    assert_eq!((progress(&reconcile), notified()), (Progress::Done, true));
}

#[test]
fn a_lagging_lcore_delays_a_change_and_clears_able() {
    let mut fixture = Fixture::new("lag");
    let (mut reconcile, shared) = fixture.start();
    let _fastpath = fixture.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(fixture.region);
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    let first = fixture.region.generation();
    fixture.backends(&["10.0.2.11", "10.0.2.12"]);
    // The lcore polls, but does not process its commands.
    for _ in 0..100 {
        fixture.region.lcores()[0].count_iteration();
        fixture.pass(20, &mut reconcile, None);
    }
    assert_eq!(fixture.region.generation(), first + 1);
    let reasons = able(&shared).reasons;
    assert!(reasons.iter().any(|r| r.contains("serves generation")), "{reasons:?}");
    fixture.backends(&["10.0.2.12"]);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(fixture.region.generation(), first + 1, "the third generation waits");
    assert_eq!(shared.status_now().services_file.error, None);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    assert!(fixture.region.generation() >= first + 2);
    assert!(able(&shared).able);
}

#[test]
fn a_stopped_lcore_or_a_link_down_clears_able() {
    let mut fixture = Fixture::new("dead");
    let (mut reconcile, shared) = fixture.start();
    let _fastpath = fixture.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(fixture.region);
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    assert!(able(&shared).able);
    fixture.region.lcores()[0].set_link(1, false);
    fixture.pass(200, &mut reconcile, Some(&mut lcore));
    assert_eq!(able(&shared).reasons, ["the link of egress is down"]);
    fixture.region.lcores()[0].set_link(1, true);
    fixture.pass(200, &mut reconcile, Some(&mut lcore));
    assert!(able(&shared).able);
    fixture.pass(2500, &mut reconcile, None);
    assert_eq!(able(&shared).reasons, ["lcore 0 does not poll"]);
}

#[test]
fn a_killed_slowpath_recovers_its_ids() {
    let mut fixture = Fixture::new("killed");
    let (mut reconcile, _) = fixture.start();
    fixture.backends(&["10.0.2.11", "10.0.2.12", "10.0.2.13"]);
    fixture.pass(1000, &mut reconcile, None);
    let (before, at) = (ids(fixture.region), fixture.region.generation());
    drop(reconcile);
    // The file changed while slowpath was down: the middle backend is gone.
    fixture.backends(&["10.0.2.13", "10.0.2.11"]);
    let (mut reconcile, _) = fixture.start();
    // Long enough for the removed backend to drain.
    fixture.pass(2000, &mut reconcile, None);
    let after = ids(fixture.region);
    assert_eq!(after.0, before.0);
    for (last, id) in &after.1 {
        assert!(before.1.contains(&(*last, *id)), "{last} has another id");
    }
    assert!(fixture.region.generation() > at);
    drop(reconcile);
    let at = fixture.region.generation();
    let (mut reconcile, _) = fixture.start();
    fixture.pass(3000, &mut reconcile, None);
    assert_eq!(fixture.region.generation(), at, "the same file changes nothing");
}

#[test]
fn a_slowpath_killed_between_any_two_steps_converges_to_the_same_state() {
    for steps in 0..25 {
        let mut fixture = Fixture::new(&format!("steps{steps}"));
        let (mut reconcile, _) = fixture.start();
        fixture.backends(&["10.0.2.11"]);
        fixture.pass(600, &mut reconcile, None);
        let (web, before) = ids(fixture.region);
        fixture.backends(&["10.0.2.11", "10.0.2.12 state = \"terminating\""]);
        fixture.pass(20 * steps, &mut reconcile, None);
        drop(reconcile);
        let (mut reconcile, _) = fixture.start();
        fixture.pass(1000, &mut reconcile, None);
        let (again, after) = ids(fixture.region);
        assert_eq!((again, after[0], after.len()), (web, before[0], 2), "after {steps} steps");
        let set = fixture.region.tables(fixture.region.generation());
        let service = set.service(web).unwrap();
        assert_eq!(service.single, before[0].1, "a terminating backend gets no new flows");
        let state = set.backend(after[1].1).unwrap().state;
        assert_eq!(state, BackendState::Terminating as u8);
    }
}

#[test]
fn a_removed_backend_without_flows_frees_its_id() {
    let mut fixture = Fixture::new("leaves");
    let (mut reconcile, _) = fixture.start();
    fixture.backends(&["10.0.2.11", "10.0.2.12"]);
    fixture.pass(1000, &mut reconcile, None);
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(5000, &mut reconcile, None);
    assert_eq!(ids(fixture.region).1.len(), 1);
    for last in 13..40 {
        let other = format!("10.0.2.{last}");
        fixture.backends(&["10.0.2.11", &other]);
        fixture.pass(4000, &mut reconcile, None);
        let (_, after) = ids(fixture.region);
        let highest = after.iter().rev().take(2).map(|(_, id)| *id).max();
        assert!(highest <= Some(2), "ids of removed backends are reused: {after:?}");
    }
    let set = fixture.region.tables(fixture.region.generation());
    let hops = set.next_hops().count();
    assert!(hops <= 4, "next hops of removed backends are freed: {hops}");
}

#[test]
fn a_removed_backend_drains_until_its_last_flow() {
    let mut fixture = Fixture::new("drains");
    let (mut reconcile, _) = fixture.start();
    fixture.backends(&["10.0.2.11", "10.0.2.12"]);
    fixture.pass(1000, &mut reconcile, None);
    let (web, both) = ids(fixture.region);
    let record = *fixture.region.tables(fixture.region.generation()).backend(both[1].1).unwrap();

    let flows = Flows::new(fixture.region).as_owner(0, 1);
    flows.recover();
    let client = "192.0.2.1".parse::<IpAddr>().unwrap().into();
    let (front, front_initiator) = FlowKey::new(1, 17, client, 4000, record.addr, 80);
    let forward =
        Forward { service: web, backend: both[1].1, proto: 17, mode: 1, ..Forward::default() };
    let flow = NewFlow {
        front,
        front_initiator,
        back: None,
        forward,
        gateway: GatewayLeg::default(),
        digest: 0,
        nat_map: tables::record::NONE,
        idle_s: 0,
    };
    let hit = flows.insert(&flow, &[], 1).unwrap();

    let retained = |fixture: &Fixture| {
        let set = fixture.region.tables(fixture.region.generation());
        *set.backend(both[1].1).expect("the backend has a flow")
    };
    let removed = BackendState::Removed as u8;
    fixture.backends(&["10.0.2.11", "10.0.2.12 state = \"maintenance\""]);
    // Longer than a removed backend keeps its flows.
    fixture.pass(400_000, &mut reconcile, None);
    assert_eq!(
        retained(&fixture).state,
        BackendState::Terminating as u8,
        "a source still lists it"
    );
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(20_000, &mut reconcile, None);
    assert_eq!(retained(&fixture).state, removed);
    drop(reconcile);
    let (mut reconcile, _) = fixture.start();
    fixture.pass(20_000, &mut reconcile, None);
    let set = fixture.region.tables(fixture.region.generation());
    let retained = retained(&fixture);
    assert_eq!(retained.state, removed, "also after a restart");
    assert_eq!((retained.incarnation, retained.nat_ports), (record.incarnation, record.nat_ports));
    assert_eq!(set.service(web).unwrap().single, both[0].1, "new flows go elsewhere");

    assert!(flows.remove(&hit).is_some());
    fixture.pass(5000, &mut reconcile, None);
    assert!(fixture.region.tables(fixture.region.generation()).backend(both[1].1).is_none());
}

#[test]
fn full_passes_without_changes_commit_nothing() {
    let mut fixture = Fixture::new("quiet");
    let (mut reconcile, _) = fixture.start();
    let service = |n: u32| {
        format!(
            "[[service]]\nname = \"s{n}\"\nmode = \"nat\"\ntable_size = 251\n\
             frontends = [{{address = \"203.0.113.{n}\", port = 80, protocol = \"tcp\"}}]\n\
             backends = [{{address = \"10.0.2.11\", port = 80}}, \
                         {{address = \"10.0.2.12\", port = 80}}]\n"
        )
    };
    fixture.write(&(1..=10).map(service).collect::<String>());
    fixture.pass(1000, &mut reconcile, None);
    let at = fixture.region.generation();
    assert_eq!(fixture.region.tables(at).services().count(), 10);
    fixture.pass(130_000, &mut reconcile, None);
    assert_eq!(fixture.region.generation(), at);
}

#[test]
fn a_frontend_may_move_from_one_service_to_another() {
    let mut fixture = Fixture::new("moves");
    let (mut reconcile, _) = fixture.start();
    let file = |owner: &str| {
        let service = |name: &str, port: u16| {
            format!(
                "[[service]]\nname = \"{name}\"\nmode = \"nat\"\n\
                 frontends = [{{address = \"203.0.113.1\", port = {port}, protocol = \"tcp\"}}]\n\
                 backends = [{{address = \"10.0.2.11\", port = 80}}]\n"
            )
        };
        let (a, b) = if owner == "a" { (80, 81) } else { (81, 80) };
        service("a", a) + &service("b", b)
    };
    let web = "203.0.113.1".parse::<IpAddr>().unwrap().into();
    for owner in ["a", "b", "a"] {
        fixture.write(&file(owner));
        fixture.pass(1000, &mut reconcile, None);
        let set = fixture.region.tables(fixture.region.generation());
        let named = |port| set.service_name(set.frontend(0, &web, port, 6).unwrap()).unwrap();
        let other = if owner == "a" { "b" } else { "a" };
        assert_eq!((named(80).as_str(), named(81).as_str()), (owner, other));
    }
}

#[test]
fn a_new_backend_waits_for_its_mac_up_to_the_timeout() {
    let mut fixture = Fixture::new("resolve");
    let (mut reconcile, _shared) = fixture.start();
    let _fastpath = fixture.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(fixture.region);
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    let first = fixture.region.generation();

    // The next hop is resolved in the generation that adds the backend.
    fixture.backends(&["10.0.2.11", "10.0.2.12"]);
    while fixture.region.generation() == first {
        fixture.pass(20, &mut reconcile, Some(&mut lcore));
    }
    let set = fixture.region.tables(fixture.region.generation());
    let (_, backends) = ids(fixture.region);
    let new = backends.iter().find(|(last, _)| *last == 12).unwrap();
    let hop = set.next_hop(set.backend(new.1).unwrap().next_hop).unwrap();
    assert!(hop.known && hop.mac == [2, 0, 0, 0, 2, 12]);

    // A next hop that doesn't respond delays its change for a bounded time.
    let second = fixture.region.generation();
    fixture.backends(&["10.0.2.11", "10.0.2.12", "10.0.2.99"]);
    fixture.pass(1500, &mut reconcile, Some(&mut lcore));
    assert_eq!(fixture.region.generation(), second);
    fixture.pass(2000, &mut reconcile, Some(&mut lcore));
    assert_eq!(ids(fixture.region).1.len(), 3);
}
