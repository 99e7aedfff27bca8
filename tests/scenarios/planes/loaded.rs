//! The state that all planes in this process share: a region with a case's tables, compiled by
//! slowpath from the case's configuration, and an lcore that reads them.

use config::Config;
use config::checked::VxlanEnd;
use fastpath::lcore::{Lcore, LcoreConfig};
use slowpath::kernel::neighbors::Resolved;
use slowpath::plane::region::RegionPlane;
use slowpath::sources::desired::{Desired, appliance, open_store};
use state::name::Source;
use state::reconcile::{Now, Reconciler, Settings};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tables::address_filter::AddressFilter;
use tables::affinity::Affinities;
use tables::counters::{ArmCounter, VerdictCounter};
use tables::flow::Flows;
use tables::fragment::Fragments;
use tables::layout::Sizes;
use tables::reason::DropReason;
use tables::region::Region;
use tests::cases::addresses::{IN_MAC, OUT_MAC};
use tests::cases::{Change, Counts, Setup};

/// Returns the sizes of a region for the tables of `setup`.
pub fn sizes(setup: &Setup) -> Sizes {
    hugepages::plan::sizes(&checked(setup))
}

/// A case's tables and the lcore.
pub struct Loaded {
    /// The region, which only this process uses.
    pub region: &'static Region,
    /// The lcore that reads it.
    pub lcore: Lcore<'static>,
    setup: Setup,
    config: Arc<Config>,
    desired: Desired,
    reconciler: Reconciler,
    /// slowpath's clock. Each change advances it by two seconds, more than the interval at which
    /// slowpath checks draining backends.
    slowpath_clock: Instant,
    /// The writer of the tables; `None` if the test writes them itself.
    pub target: Option<RegionPlane<'static>>,
    /// The number of packets without a verdict that the test expects: 0, unless the test skips the
    /// stages.
    pub undecided: u64,
}

impl Loaded {
    /// Creates a region with the tables of `setup`.
    pub fn new(setup: &Setup) -> Loaded {
        let sizes = sizes(setup);
        // Leaked, since the lcore and the writer borrow it for the whole test.
        let region = match setup.seed {
            None => Region::anonymous(&sizes),
            Some(seed) => Region::anonymous_with(&sizes, seed),
        };
        Loaded::over(setup, Box::leak(Box::new(region.expect("memory for a small region"))))
    }

    /// Loads the tables of `setup` into a region in its initial state.
    pub fn over(setup: &Setup, region: &'static Region) -> Loaded {
        let config = Arc::new(checked(setup));
        let mut target = RegionPlane::attach(region, &config).expect("a region without a writer");
        target.set_appliance(&appliance(&config));
        let routers = setup.routers.iter();
        let routers = routers.map(|router| router.parse().expect("an address")).collect();
        target.set_neighbors(routers);
        // The fastpath does this before its lcores join.
        Flows::new(region).recover();
        Fragments::new(region).recover();
        Affinities::new(region).recover();
        let lcore_config = LcoreConfig { index: 0, count: 1, epoch: 1, macs: [IN_MAC, OUT_MAC] };
        let lcore = Lcore::join(region, lcore_config).expect("capacity for one lcore");
        let (setup, target) = (setup.clone(), Some(target));
        let store = Arc::new(open_store(None).expect("a store without persistence"));
        let desired = Desired::new(&config, store, &[], SystemTime::UNIX_EPOCH);
        let reconciler =
            Reconciler::new(Settings { frontends_per_step: usize::MAX, ..Settings::default() });
        let slowpath_clock = Instant::now();
        let mut loaded = Loaded {
            region,
            lcore,
            setup,
            config,
            desired,
            reconciler,
            slowpath_clock,
            target,
            undecided: 0,
        };
        loaded.reconcile();
        loaded
    }

    /// Changes the control state. When this returns, the lcore uses the new tables.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Services(file) => return self.change(file),
            Change::Tunnels(ends) => {
                let [external, internal] = ends.map(|(port, vni)| VxlanEnd { port, vni });
                let mut config = Config::clone(&self.config);
                config.gateways.iter_mut().for_each(|g| g.set_vxlan_ends(external, internal));
                self.config = Arc::new(config);
                let target = self.target.as_mut().expect("slowpath's writer");
                target.configure(Arc::clone(&self.config));
                self.reconciler.start_full_pass();
            }
        }
        self.reconcile();
    }

    /// Replaces the services file. When this returns, the lcore uses the new tables.
    pub fn change(&mut self, services: &str) {
        services.clone_into(&mut self.setup.services);
        self.reconcile();
    }

    /// Writes the services to the tables. When this returns, the lcore uses them.
    fn reconcile(&mut self) {
        let services = config::services_from_toml(&self.setup.services, &self.config)
            .unwrap_or_else(|e| panic!("{}", e.render()));
        self.slowpath_clock += Duration::from_secs(2);
        let now = Now { steady: self.slowpath_clock, wall: SystemTime::UNIX_EPOCH };
        let source = Source::new("file");
        let objects = state::services::objects(&services, &source).expect("valid names");
        self.desired.apply_now(&objects, &[], now.wall).expect("valid objects");
        let target = self.target.as_mut().expect("slowpath's writer");
        let news = self.desired.writer.changes_since(self.reconciler.observed());
        self.reconciler.step(now, &news, &appliance(&self.config), target);
        assert_eq!(self.reconciler.errors().next(), None, "services that fit");
        if let Some(outcome) = target.take_outcome() {
            outcome.expect("tables that fit");
        }
        self.lcore.poll_control();
        resolve(&self.setup, target);
        let tables = self.desired.writer.tables();
        target.reclaim(now.steady, &|addr, port| tables.has_instance_at(addr, port));
        self.lcore.poll_control();
    }

    /// Advances the clock, and sweeps the flow table and the scopes once.
    pub fn advance_s(&mut self, seconds: u32) {
        self.lcore.advance_s(seconds);
        self.lcore.sweep(self.setup.max_flows);
        self.lcore.release_scopes(u32::MAX);
    }

    /// Returns all counters of the region.
    pub fn counts(&self) -> Counts {
        self.check_addresses();
        self.check_undecided();
        let counters = self.region.counters();
        let arms = |counter: ArmCounter| {
            counters.sum(|page| page.arm_count(0, counter) + page.arm_count(1, counter))
        };
        let verdicts = VerdictCounter::ALL.iter().filter(|v| **v != VerdictCounter::Drop);
        let verdicts: BTreeMap<&'static str, u64> =
            verdicts.map(|v| (v.name(), counters.sum(|page| page.verdict_count(*v)))).collect();
        let drops = DropReason::ALL.iter().map(|reason| (*reason, self.dropped(*reason)));
        Counts {
            verdicts,
            drops: drops.collect(),
            received: arms(ArmCounter::RxPackets),
            from_kernel: arms(ArmCounter::FromKernelPackets),
            originated: arms(ArmCounter::OriginatedPackets),
            sent: arms(ArmCounter::TxPackets),
            to_kernel: arms(ArmCounter::ToKernelPackets),
        }
    }

    /// Returns the packets of both arms that were dropped for `reason`.
    fn dropped(&self, reason: DropReason) -> u64 {
        let counters = self.region.counters();
        counters.sum(|page| page.dropped(0, reason) + page.dropped(1, reason))
    }

    /// Asserts that every packet got a verdict, whatever else the test checks.
    fn check_undecided(&self) {
        let undecided = self.dropped(DropReason::Undecided);
        let setup = self.setup.name;
        assert_eq!(undecided, self.undecided, "packets without a verdict, tables {setup}");
    }

    /// Asserts that the address filter contains the target of every flow: packets to addresses that
    /// the filter lacks are returned as unmatched.
    fn check_addresses(&self) {
        let (filter, flows) = (AddressFilter::of_flows(self.region), Flows::new(self.region));
        for flow in (0..flows.capacity()).filter_map(|path| flows.snapshot(path)) {
            let (target, _) = flow.front.end(flow.initiator.other());
            assert!(filter.may_contain(&target), "the address filter lacks a flow's {target}");
        }
    }
}

/// Checks at the end of every case and test, also of those that check no counters.
impl Drop for Loaded {
    fn drop(&mut self) {
        // A second panic would hide why the test fails.
        if !std::thread::panicking() {
            self.check_undecided();
        }
    }
}

/// Returns the configuration of a setup.
pub fn checked(setup: &Setup) -> Config {
    let text = setup.config("net_null0", "net_null1");
    config::from_toml(&text).unwrap_or_else(|e| panic!("{}", e.render()))
}

/// Sets the MAC address of each next hop from the setup.
fn resolve(setup: &Setup, target: &mut RegionPlane<'_>) {
    for (arm, to, _) in target.next_hops() {
        let neighbor = setup.neighbors.iter().find(|n| {
            n.arm == arm && n.address.parse::<IpAddr>().is_ok_and(|address| address == to)
        });
        let src_mac = [IN_MAC, OUT_MAC][usize::from(arm)];
        let mac = neighbor.map(|n| n.mac);
        target.set_next_hop(&Resolved { arm, to, mac, src_mac, mtu: 9_001 });
    }
}
