//! A lifecycle that runs against the emulator, with an appliance that records what it sets.
#![expect(dead_code, reason = "each test file uses a part of it")]

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use azure::client;
use azure::credentials::Variables;
use azure::runner::{AzureAppliance, AzureLifecycle, Cloud};
use azure::types::{TunnelEnd, Tunnels};
use cloud_emulators::azure::{AzureState, Emulator};
use clouds::appliance::Ingress;
use clouds::report::Report;
use clouds::retry::{Pause, Policy};
use clouds::runner::Runner;
use config::checked::{Azure, Config};
use serde_json::Value;
use simulation::azure_fixture::Member;
use simulation::{EmulatedClock, LifecycleTask, Recorder};
use tokio::sync::watch;

pub const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-0000000000aa/resourceGroups/north";
pub const PUT_NIC: &str = "NetworkInterfaces_CreateOrUpdate";
pub const PUT_POOL: &str = "LoadBalancerBackendAddressPools_CreateOrUpdate";

/// Returns the id of a `Microsoft.Network` resource.
pub fn network(kind: &str, name: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Network/{kind}/{name}")
}

pub fn gateway() -> String {
    network("loadBalancers", "gw")
}

pub fn pool(name: &str) -> String {
    format!("{}/backendAddressPools/{name}", gateway())
}

/// Returns the id of the data interface of `weir-N`.
pub fn nic(number: u8) -> String {
    network("networkInterfaces", &format!("weir-{number}-data"))
}

pub fn machine_id(number: u8) -> String {
    format!("{GROUP}/providers/Microsoft.Compute/virtualMachines/weir-{number}")
}

/// A machine: `weir-N`, or an instance of the scale set `weirs`.
#[derive(Clone, Copy)]
pub struct Vm {
    pub number: u8,
    pub scale_set: bool,
}

pub const FIRST: Vm = Vm { number: 0, scale_set: false };
pub const SECOND: Vm = Vm { number: 1, scale_set: false };
pub const INSTANCE: Vm = Vm { number: 0, scale_set: true };

impl Vm {
    fn last(self) -> u8 {
        self.number + if self.scale_set { 30 } else { 11 }
    }

    pub fn address(self) -> String {
        format!("10.1.0.{}", self.last())
    }

    pub fn address6(self) -> String {
        format!("fd00:1::{}", self.last())
    }

    pub fn id(self) -> String {
        let set = format!("{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/weirs");
        match self.scale_set {
            true => format!("{set}/virtualMachines/{}", self.number),
            false => machine_id(self.number),
        }
    }

    pub fn nic(self) -> String {
        match self.scale_set {
            true => format!("{}/networkInterfaces/data", self.id()),
            false => nic(self.number),
        }
    }

    pub fn ingress(self) -> Ingress {
        let addresses = [self.address(), self.address6()].map(|a| a.parse().unwrap());
        Ingress { mac: [0, 0x22, 0x48, 0x0a, 1, self.last()], addresses: addresses.to_vec() }
    }
}

/// Returns a configuration with these lines in `[azure]`.
pub fn configured(vm: Vm, azure: &Emulator, imds: &str, lines: &str) -> Config {
    config::from_toml(&format!(
        "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\nmtu = 1600\n\
         address = [\"{}/24\", \"{}/64\"]\n[fastpath]\nlcores = [1]\n\
         [health]\nlisten = [\"0.0.0.0:8080\"]\n\
         [[gateway]]\nname = \"gw\"\nkind = \"azure\"\nsources = [\"10.1.0.0/24\"]\n\
         [[gateway]]\nname = \"gw6\"\nkind = \"azure\"\nsources = [\"fd00:1::/64\"]\n\
         external = {{ port = 2667, vni = 867 }}\ninternal = {{ port = 2666, vni = 866 }}\n\
         [azure]\nmetadata = \"{imds}\"\nresource_manager = \"{}\"\n{lines}\n",
        vm.address(),
        vm.address6(),
        azure.url
    ))
    .unwrap()
}

pub fn tunnels(external: (u16, u32), internal: (u16, u32)) -> Tunnels {
    let end = |(port, vni)| TunnelEnd { port, vni };
    Tunnels { external: end(external), internal: end(internal) }
}

/// Returns an appliance with the configured tunnels in force.
fn appliance(azure: &Emulator, vm: Vm) -> Recorder<Member> {
    let pools = vec![(pool("weir"), vm.address()), (pool("weir6"), vm.address6())];
    let in_force = [
        ("gw".to_owned(), tunnels((10801, 801), (10800, 800))),
        ("gw6".to_owned(), tunnels((2667, 867), (2666, 866))),
    ];
    Recorder::new(Member::new(azure, pools, in_force.into()), vm.ingress())
}

/// Parameters of a lifecycle to start; tests change them.
pub struct Setup {
    pub azure: Emulator,
    pub vm: Vm,
    pub appliance: Arc<Recorder<Member>>,
    pub clock: EmulatedClock<Emulator>,
    /// Lines in `[azure]`.
    pub lines: String,
    pub journal: Option<PathBuf>,
}

impl Setup {
    pub async fn new() -> Setup {
        Setup::for_vm(Emulator::start(AzureState::sample()).await.unwrap(), FIRST)
    }

    /// Returns parameters for another machine, or for the same one after its process ended.
    pub fn for_vm(azure: Emulator, vm: Vm) -> Setup {
        let clock = EmulatedClock::new(azure.clone());
        let appliance = Arc::new(appliance(&azure, vm));
        Setup { azure, vm, appliance, clock, lines: "pool = \"weir\"".to_owned(), journal: None }
    }

    /// Returns parameters for a new process on the same machine, whose process has ended.
    pub fn restart_of(before: &Machine) -> Setup {
        let clock = before.clock.for_another_process();
        let setup = Setup::for_vm(before.azure.clone(), before.vm);
        Setup { clock, journal: before.journal.clone(), lines: before.lines.clone(), ..setup }
    }

    /// Adds a line to `[azure]`.
    pub fn with(mut self, line: &str) -> Setup {
        self.lines = format!("{}\n{line}", self.lines);
        self
    }

    pub async fn start(self) -> Machine {
        let Setup { azure, vm, appliance, clock, lines, journal } = self;
        let imds = azure.machine(&vm.id()).await.unwrap();
        let config = configured(vm, &azure, &imds, &lines);
        let settings: Azure = config.azure.clone().unwrap();
        let running = LifecycleTask::start(&azure, appliance.reports(), |signals, cancel| {
            let cloud = cloud(&azure, &settings, Arc::new(clock.clone()), cancel);
            let shared = Arc::clone(&appliance) as Arc<dyn AzureAppliance>;
            let lifecycle = AzureLifecycle::new(&config, settings, cloud, shared);
            let runner = Runner::new(lifecycle, journal.clone());
            runner.with_pause(Arc::new(clock.clone())).run(signals)
        });
        Machine { azure, vm, appliance, clock, lines, journal, running }
    }
}

/// Returns clients that trust the emulator's certificate authority.
pub fn cloud(
    azure: &Emulator,
    settings: &Azure,
    pause: Arc<dyn Pause>,
    cancel: watch::Receiver<bool>,
) -> Cloud {
    let client = client::Settings {
        roots: Some(azure.ca.clone()),
        timeout: Duration::from_secs(5),
        policy: Policy::API,
        seed: 7,
    };
    Cloud::with_settings(settings, client, Variables::default(), pause, cancel).unwrap()
}

/// A running lifecycle.
pub struct Machine {
    pub azure: Emulator,
    pub vm: Vm,
    pub appliance: Arc<Recorder<Member>>,
    pub clock: EmulatedClock<Emulator>,
    lines: String,
    journal: Option<PathBuf>,
    running: LifecycleTask<Emulator>,
}

impl Deref for Machine {
    type Target = LifecycleTask<Emulator>;

    fn deref(&self) -> &LifecycleTask<Emulator> {
        &self.running
    }
}

impl DerefMut for Machine {
    fn deref_mut(&mut self) -> &mut LifecycleTask<Emulator> {
        &mut self.running
    }
}

impl Machine {
    /// Waits for a report with the finding of this name.
    pub async fn until_found(&mut self, name: &str) -> Report {
        self.until(name, |report| report.findings.iter().any(|found| found.name == name)).await
    }

    /// Waits for a probe answer of 503 whose reasons contain `part`; if that is empty, for a 200.
    pub async fn until_probe(&mut self, part: &str) {
        let fits = |reason: &str| reason.contains(part) && reason.is_empty() == part.is_empty();
        self.appliance.until_probe(part, fits).await;
    }

    /// Waits until the emulator's state satisfies `fits`.
    pub async fn until_state(&mut self, what: &str, mut fits: impl FnMut(&AzureState) -> bool) {
        let azure = self.azure.clone();
        self.until(what, |_| azure.with(|cloud| fits(cloud))).await;
    }
}

/// Returns the names of the pools to which an interface's IP configurations refer.
pub fn referenced_pools(cloud: &AzureState, nic: &str) -> Vec<String> {
    let body = cloud.find(nic).map(|resource| resource.body.clone()).unwrap_or_default();
    let parts = body["properties"]["ipConfigurations"].as_array().cloned().unwrap_or_default();
    let pools = |part: &Value| part["properties"]["loadBalancerBackendAddressPools"].clone();
    let ids = parts.iter().flat_map(|part| pools(part).as_array().cloned().unwrap_or_default());
    ids.filter_map(|id| Some(id["id"].as_str()?.rsplit('/').next()?.to_owned())).collect()
}

/// Changes the stored body of a pool, which gets a new ETag.
pub fn change_pool(cloud: &mut AzureState, name: &str, change: impl FnOnce(&mut Value)) {
    change_balancer(cloud, |balancer| {
        let pools = balancer["properties"]["backendAddressPools"].as_array_mut().unwrap();
        change(pools.iter_mut().find(|pool| pool["name"] == name).unwrap());
    });
}

pub fn change_balancer(cloud: &mut AzureState, change: impl FnOnce(&mut Value)) {
    change_body(cloud, &gateway(), change);
}

pub fn change_body(cloud: &mut AzureState, id: &str, change: impl FnOnce(&mut Value)) {
    change(&mut cloud.find_mut(id).unwrap().body);
    cloud.touch(id);
}

/// Returns the addresses of a pool's entries by address.
pub fn listed_addresses(cloud: &AzureState, name: &str) -> Vec<String> {
    let balancer = cloud.find(&gateway()).unwrap().body.clone();
    let pools = balancer["properties"]["backendAddressPools"].as_array().unwrap().clone();
    let pool = pools.into_iter().find(|pool| pool["name"] == name).unwrap();
    let entries = pool["properties"]["loadBalancerBackendAddresses"].clone();
    let address = |entry: &Value| Some(entry["properties"]["ipAddress"].as_str()?.to_owned());
    entries.as_array().into_iter().flatten().filter_map(address).collect()
}

/// Returns the administrative state of a machine's entry in a pool.
pub fn admin_state(cloud: &AzureState, name: &str, address: &str) -> String {
    cloud.admin(&pool(name), address).unwrap_or_default()
}
