//! An appliance that remembers what it was told, and its lifecycle at a stand-in.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws::account;
use aws::imds::Metadata;
use aws::runner::{AwsLifecycle, Cloud};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use clouds::appliance::{Appliance, Ingress};
use clouds::report::Report;
use clouds::runner::Runner;
use config::checked::{Aws, Config};
use simulation::{Running, Time};
use standins::Standin;
use standins::target::State;
use standins::world::World;
use tokio::sync::watch;

pub const OWN: &str = "i-00000000000000001";
pub const OWN_IP: &str = "10.0.1.11";
pub const GROUP: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/north/\
                         0123456789abcdef";
/// No test takes so long; it is told what it waited for.
const PATIENCE: Duration = Duration::from_secs(30);

fn configured(aws: &str) -> Config {
    config::from_toml(&format!(
        "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.11/24\"]\n\
         [nat]\naddresses = [\"10.0.1.11\"]\n[fastpath]\nlcores = [1]\n[aws]\n{aws}\n"
    ))
    .unwrap()
}

/// `[aws]` with this line.
pub fn settings(line: &str) -> Aws {
    configured(line).aws.unwrap()
}

/// The sample's.
pub fn ingress() -> Ingress {
    Ingress { mac: [2, 0, 10, 0, 1, 1], addresses: vec![OWN_IP.parse().unwrap()] }
}

/// What the target was to AWS when probes were told something, and what.
type Told = (Option<State>, String);

pub struct Recorder {
    aws: Standin,
    pub able: Mutex<Result<(), Vec<String>>>,
    pub ingress: Mutex<Option<Ingress>>,
    flows: AtomicU64,
    told: watch::Sender<Vec<Told>>,
    idle: Mutex<Option<Duration>>,
    report: watch::Sender<Report>,
}

impl Recorder {
    fn new(aws: &Standin) -> Recorder {
        Recorder {
            aws: aws.clone(),
            able: Mutex::new(Ok(())),
            ingress: Mutex::new(Some(ingress())),
            flows: AtomicU64::new(0),
            told: watch::Sender::default(),
            idle: Mutex::default(),
            report: watch::Sender::default(),
        }
    }

    /// All that probes were told.
    pub fn told(&self) -> Vec<Told> {
        self.told.borrow().clone()
    }

    /// What they are told now; empty where it is 200.
    pub fn probe(&self) -> String {
        self.told.borrow().last().unwrap().1.clone()
    }

    pub fn idle(&self) -> Option<Duration> {
        *self.idle.lock().unwrap()
    }

    pub fn flows(&self, flows: u64) {
        self.flows.store(flows, Ordering::Relaxed);
    }
}

impl Appliance for Recorder {
    fn able(&self) -> Result<(), Vec<String>> {
        self.able.lock().unwrap().clone()
    }

    fn activity(&self) -> (u64, u64) {
        (self.flows.load(Ordering::Relaxed), 1)
    }

    fn ingress(&self) -> Option<Ingress> {
        self.ingress.lock().unwrap().clone()
    }

    /// The stand-in's probes hear it.
    fn hold_back(&self, reasons: Vec<String>) {
        let told = reasons.join("; ");
        let state = self.aws.with(|world| {
            world.good = reasons.is_empty();
            [OWN, OWN_IP].into_iter().for_each(|id| world.probe(id, reasons.is_empty()));
            [OWN, OWN_IP].into_iter().find_map(|id| world.state(GROUP, id))
        });
        self.told.send_modify(|all| all.push((state, told)));
    }

    fn tcp_idle(&self, idle: Duration) {
        *self.idle.lock().unwrap() = Some(idle);
    }

    fn publish(&self, report: Report) {
        self.report.send_replace(report);
    }
}

/// All that a start needs, to be spoiled.
pub struct Begin {
    pub aws: Standin,
    pub appliance: Arc<Recorder>,
    pub clock: Time<Standin>,
    pub settings: Aws,
    pub kept: Option<PathBuf>,
}

impl Begin {
    pub async fn at(targets: &str) -> Begin {
        Begin::over(Standin::start(World::sample(targets)).await.unwrap())
    }

    /// The same machine after its process ended.
    pub fn again(before: &Machine) -> Begin {
        Begin::over(before.aws.clone())
    }

    fn over(aws: Standin) -> Begin {
        let clock = Time::new(aws.clone());
        let appliance = Arc::new(Recorder::new(&aws));
        let settings = settings("cluster = \"north\"");
        Begin { aws, appliance, clock, settings, kept: None }
    }

    pub fn start(self) -> Machine {
        let Begin { aws, appliance, clock, settings, kept } = self;
        // The key of the sample's role.
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let key = Credentials::new("AKIDEXAMPLE", secret, None, None, "sample");
        let account = account::Settings {
            endpoint: Some(aws.url.clone()),
            credentials: Some(SharedCredentialsProvider::new(key)),
            seed: 7,
            ..account::Settings::default()
        };
        let running = Running::begin(&aws, &appliance.report, |signals, cancel| {
            let metadata = Metadata::new(Some(&aws.url), 7, cancel.clone()).unwrap();
            let cloud = Cloud::over(metadata, account, Arc::new(clock.clone()), cancel);
            let config = configured("cluster = \"north\"");
            let told = Arc::clone(&appliance) as Arc<dyn Appliance>;
            let lifecycle = AwsLifecycle::new(&config, settings, cloud, told);
            Runner::new(lifecycle, kept).with_pause(Arc::new(clock.clone())).run(signals)
        });
        Machine { aws, appliance, clock, running }
    }
}

/// One that runs.
pub struct Machine {
    pub aws: Standin,
    pub appliance: Arc<Recorder>,
    pub clock: Time<Standin>,
    running: Running<Standin>,
}

impl Deref for Machine {
    type Target = Running<Standin>;

    fn deref(&self) -> &Running<Standin> {
        &self.running
    }
}

impl DerefMut for Machine {
    fn deref_mut(&mut self) -> &mut Running<Standin> {
        &mut self.running
    }
}

impl Machine {
    pub async fn until_probe(&mut self, told: &str) {
        let mut heard = self.appliance.told.subscribe();
        let fits = |all: &Vec<Told>| all.last().is_some_and(|last| last.1 == told);
        let came = tokio::time::timeout(PATIENCE, heard.wait_for(fits)).await;
        assert!(came.is_ok(), "probes are not told {told:?}: {:?}", self.appliance.told());
    }

    /// Until the stand-in was asked that.
    pub async fn until_refused(&mut self, operation: &str) {
        let asked = async {
            while !self.aws.take_calls().iter().any(|c| c.operation == operation && c.status == 503)
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, asked).await;
        assert!(came.is_ok(), "{operation} was not asked: {:#?}", self.report());
    }
}
