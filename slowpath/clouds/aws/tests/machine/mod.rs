//! A lifecycle that runs against the emulator, with an appliance that records what it sets.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws::account;
use aws::imds::Metadata;
use aws::runner::{AwsLifecycle, Cloud};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use cloud_emulators::Emulator;
use cloud_emulators::state::AwsState;
use cloud_emulators::target::State;
use clouds::appliance::{Appliance, Ingress};
use clouds::runner::Runner;
use config::checked::{Aws, Config};
use simulation::{EmulatedClock, LifecycleTask, Probes, Recorder};

pub const OWN: &str = "i-00000000000000001";
pub const OWN_IP: &str = "10.0.1.11";
pub const GROUP: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/north/\
                         0123456789abcdef";
/// Maximum wait of [`Machine::until_unavailable`], after which the test fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn configured(aws: &str) -> Config {
    config::from_toml(&format!(
        "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.11/24\"]\n\
         [nat]\naddresses = [\"10.0.1.11\"]\n[fastpath]\nlcores = [1]\n[aws]\n{aws}\n"
    ))
    .unwrap()
}

/// Returns the settings of an `[aws]` table with this line.
pub fn settings(line: &str) -> Aws {
    configured(line).aws.unwrap()
}

/// Returns the ingress port of the first instance in the emulator's sample.
pub fn ingress() -> Ingress {
    Ingress { mac: [2, 0, 10, 0, 1, 1], addresses: vec![OWN_IP.parse().unwrap()] }
}

/// The target's health probes in the emulator.
pub struct Probed(Emulator);

impl Probes for Probed {
    /// State of the target in the emulator.
    type State = Option<State>;

    fn set_passing(&self, pass: bool) -> Option<State> {
        self.0.with(|cloud| {
            cloud.good = pass;
            [OWN, OWN_IP].into_iter().for_each(|id| cloud.set_probe_result(id, pass));
            [OWN, OWN_IP].into_iter().find_map(|id| cloud.state(GROUP, id))
        })
    }
}

/// Parameters of a lifecycle to start; tests change them.
pub struct Setup {
    pub aws: Emulator,
    pub appliance: Arc<Recorder<Probed>>,
    pub clock: EmulatedClock<Emulator>,
    pub settings: Aws,
    pub journal: Option<PathBuf>,
}

impl Setup {
    pub async fn new(target_type: &str) -> Setup {
        Setup::with_emulator(Emulator::start(AwsState::sample(target_type)).await.unwrap())
    }

    /// Returns parameters for a new process on the same machine, whose process has ended.
    pub fn restart_of(before: &Machine) -> Setup {
        Setup::with_emulator(before.aws.clone())
    }

    fn with_emulator(aws: Emulator) -> Setup {
        let clock = EmulatedClock::new(aws.clone());
        let appliance = Arc::new(Recorder::new(Probed(aws.clone()), ingress()));
        let settings = settings("cluster = \"north\"");
        Setup { aws, appliance, clock, settings, journal: None }
    }

    pub fn start(self) -> Machine {
        let Setup { aws, appliance, clock, settings, journal } = self;
        // Credentials of the sample's role.
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let key = Credentials::new("AKIDEXAMPLE", secret, None, None, "sample");
        let account = account::Settings {
            endpoint: Some(aws.url.clone()),
            credentials: Some(SharedCredentialsProvider::new(key)),
            seed: 7,
            ..account::Settings::default()
        };
        let running = LifecycleTask::start(&aws, appliance.reports(), |signals, cancel| {
            let metadata = Metadata::new(Some(&aws.url), 7, cancel.clone()).unwrap();
            let cloud = Cloud::with_settings(metadata, account, Arc::new(clock.clone()), cancel);
            let config = configured("cluster = \"north\"");
            let appliance = Arc::clone(&appliance) as Arc<dyn Appliance>;
            let lifecycle = AwsLifecycle::new(&config, settings, cloud, appliance);
            Runner::new(lifecycle, journal).with_pause(Arc::new(clock.clone())).run(signals)
        });
        Machine { aws, appliance, clock, running }
    }
}

/// A running lifecycle.
pub struct Machine {
    pub aws: Emulator,
    pub appliance: Arc<Recorder<Probed>>,
    pub clock: EmulatedClock<Emulator>,
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
    /// Waits until the probe's answer is exactly this text: the reasons of a 503, empty for a 200.
    pub async fn until_probe(&mut self, answer: &str) {
        self.appliance.until_probe(answer, |probe| probe == answer).await;
    }

    /// Waits until the emulator has answered this operation with 503.
    pub async fn until_unavailable(&mut self, operation: &str) {
        let called = async {
            while !self.aws.take_calls().iter().any(|c| c.operation == operation && c.status == 503)
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let result = tokio::time::timeout(TEST_TIMEOUT, called).await;
        assert!(result.is_ok(), "{operation} was not called: {:#?}", self.report());
    }
}
