//! The lifecycle of an appliance at AWS: it registers itself and gets traffic once AWS reports it
//! healthy; its slowpath is killed and restarted; on SIGTERM it deregisters under live flows, none
//! of which loses a packet.
//!
//! AWS is an emulator. Its API listens on the appliance's loopback, and it probes as the load
//! balancer does: from the gateway's side, over the wire, through the data plane. The emulated
//! gateway sends the packets that the target's state permits.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cloud_emulators::Emulator;
use cloud_emulators::faults::{Fault, Rule};
use cloud_emulators::state::AwsState;
use cloud_emulators::target::State;
use tests::lab::Result as LabResult;
use tests::lab::client::{Client, ClientStats, Load};
use tests::lab::gateway::{Admits, Gateway};
use tests::lab::scenario::{Totals, Wires, at_rest, changing_gateway, service};
use tests::lab::settings::Settings;
use tests::lab::topology::{AWS_CLIENTS, AWS_SERVER, FRONTEND, INGRESS, Lab};
use tests::lab::weir::Weir;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The address of the emulator's API in the appliance's namespace.
const API: &str = "127.0.0.1:4566";
/// The time limit of a condition.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// The interval between the emulator's steps.
const STEP: Duration = Duration::from_millis(100);
/// The target group's deregistration delay in seconds: a deregistered target keeps its flows that
/// long.
const DELAY: u64 = 60;

/// Sections of the configuration: registration at AWS, and flows that end soon after their
/// connection is closed.
const AWS: &str = "[aws]\ncluster = \"north\"\nidle_s = 1\n\n[flows]\ntcp_closed_s = 1\n";

/// Starts the daemons as children of the test, as root, unless `WEIR_LAB_UNITS` is set.
const AS_CHILDREN: bool = false;
/// Starts the daemons under their units.
const UNDER_UNITS: bool = true;

/// The result of one step of the emulator: the target's state, and whether its probe succeeded.
type Observation = (State, bool);

/// The emulated AWS of the lab, while it runs.
struct Aws {
    emulator: Emulator,
    gateway: Arc<Gateway>,
    observations: Arc<Mutex<Vec<Observation>>>,
    /// Whether the emulator probes the target and advances its clock.
    probes: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<LabResult<()>>>,
}

fn current_thread_runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime of one thread")
}

/// Returns the emulator's sample with the lab's appliance. The target group has this failover
/// attribute, and its targets are unhealthy after `unhealthy` failed probes.
fn state(mac: &str, failover: &str, unhealthy: u32) -> AwsState {
    let mut state = AwsState::sample("ip");
    let ingress = &mut state.instances[0].interfaces[1];
    ingress.mac = mac.to_owned();
    ingress.addresses = vec![INGRESS.to_string()];
    state.good = false;
    let group = &mut state.groups[0];
    (group.interval, group.timeout, group.healthy, group.unhealthy) = (1, 1, 2, unhealthy);
    let set = [
        ("deregistration_delay.timeout_seconds", DELAY.to_string()),
        ("target_failover.on_unhealthy", failover.to_owned()),
        ("target_failover.on_deregistration", failover.to_owned()),
    ];
    group.attributes.extend(set.map(|(key, value)| (key.to_owned(), value)));
    state
}

impl Aws {
    fn start(lab: &Lab, gateway: Gateway, state: AwsState) -> Outcome<Aws> {
        let rebalances = state.groups[0].attributes["target_failover.on_unhealthy"] == "rebalance";
        let stop = Arc::new(AtomicBool::new(false));
        let probes = Arc::new(AtomicBool::new(false));
        let observations = Arc::new(Mutex::new(Vec::new()));
        let gateway = Arc::new(gateway);
        gateway.admit(Admits::None);
        let (sender, receiver) = std::sync::mpsc::channel();
        let stopped = Arc::clone(&stop);
        let serving = lab.weir.thread("aws", move || {
            current_thread_runtime().block_on(async move {
                let listener = tokio::net::TcpListener::bind(API).await.expect("a free port");
                let _ = sender.send(Emulator::listen(listener, state).expect("the bound address"));
                while !stopped.load(Ordering::Relaxed) {
                    tokio::time::sleep(STEP).await;
                }
            });
        })?;
        let emulator = receiver.recv()?;
        let (aws, sends, saw, stopped) =
            (emulator.clone(), Arc::clone(&gateway), Arc::clone(&observations), Arc::clone(&stop));
        let begins = Arc::clone(&probes);
        // The probes' sockets are opened here, in the gateway's namespace.
        let probing = lab.cloud.thread("aws-probes", move || {
            current_thread_runtime().block_on(async move {
                while !stopped.load(Ordering::Relaxed) {
                    tokio::time::sleep(STEP).await;
                    if !begins.load(Ordering::Relaxed) {
                        continue;
                    }
                    aws.probe().await;
                    aws.advance(STEP);
                    let target = aws.with(|state| state.groups[0].targets.first().cloned());
                    sends.admit(admits(target.as_ref().map(|t| t.state), rebalances));
                    if let Some(target) = target {
                        let mut saw = saw.lock().unwrap_or_else(PoisonError::into_inner);
                        saw.push((target.state, target.good));
                    }
                }
            });
        })?;
        Ok(Aws { emulator, gateway, observations, probes, stop, threads: vec![serving, probing] })
    }

    /// Returns the state of the appliance's target, or `None` if it is not registered.
    fn state(&self) -> Option<State> {
        self.emulator.with(|state| state.groups[0].targets.first().map(|target| target.state))
    }

    /// Waits for a condition; fails early if a daemon ends.
    fn until(&self, weir: &mut Weir, what: &str, fits: impl Fn(&Aws) -> bool) -> LabResult<()> {
        weir.wait_for(what, WAIT_LIMIT, |_| Ok((fits(self), format!("{:?}", self.state()))))
    }

    /// Stops the emulator and returns its results.
    fn finish(mut self) -> Outcome<(Arc<Gateway>, Vec<Observation>)> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a thread of the emulator panicked")??;
        }
        let observations = self.observations.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok((Arc::clone(&self.gateway), observations))
    }

    /// Returns the number of observations so far.
    fn observations(&self) -> usize {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns how many of these calls are successful ones of `operation`.
    fn calls(&self, operation: &str, calls: &[cloud_emulators::Call]) -> usize {
        calls.iter().filter(|call| call.operation == operation && call.status == 200).count()
    }
}

/// Returns the packets that a gateway sends to its only target in this state. With `rebalances` the
/// gateway sends none to an unhealthy target: it would move the target's flows to another one.
fn admits(state: Option<State>, rebalances: bool) -> Admits {
    match state {
        Some(State::Healthy) => Admits::All,
        Some(State::Draining) => Admits::ExistingFlows,
        Some(State::Unhealthy) if !rebalances => Admits::ExistingFlows,
        _ => Admits::None,
    }
}

/// Starts long-lived connections, to the service and to a server without a service.
fn long_lived(lab: &Lab) -> Outcome<[Client; 2]> {
    let sources = AWS_CLIENTS.iter().map(|address| (*address).into()).collect();
    let web = Load {
        sources,
        workers: 16,
        per_connection: u64::MAX,
        // Some responses are long, so that events occur in the middle of one.
        lengths: vec![10, 1_000, 100_000],
        pause: Duration::from_millis(40),
        ..Load::new((FRONTEND, 80).into(), u64::MAX)
    };
    let beyond = Load { target: (AWS_SERVER, 80).into(), workers: 2, ..web.clone() };
    Ok([Client::start(&lab.aws[0], web)?, Client::start(&lab.aws[0], beyond)?])
}

#[track_caller]
fn assert_all_continued(clients: &[(&str, ClientStats)]) {
    for (name, stats) in clients {
        println!("{name}: {stats}");
        assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
    }
}

/// Checks that a client with a new flow is not served.
fn assert_no_new_flows(lab: &Lab, gateway: &Gateway) -> Outcome {
    let before = gateway.report();
    let load = Load {
        workers: 1,
        patience: Duration::from_secs(1),
        ..Load::new((FRONTEND, 80).into(), 1)
    };
    let stats = Client::start(&lab.aws[0], load)?.finish()?;
    let after = gateway.report();
    assert_eq!((stats.right, stats.failed), (0, 1), "{stats}");
    assert!(after.not_admitted > before.not_admitted && after.flows == before.flows, "{after}");
    Ok(())
}

/// The counters of Weir and of the wires before the first probe.
type Before = (Totals, Wires);

/// Starts everything, the daemons under their units if `under_units`, and waits until AWS reports
/// healthy.
fn begin(
    lab: &mut Lab,
    (failover, unhealthy): (&str, u32),
    under_units: bool,
) -> Outcome<(Aws, Weir, Before)> {
    let gateway = lab.aws_gateway(changing_gateway())?;
    let settings = Settings { more: AWS.into(), ..Settings::default() };
    let services = [service(lab, &[(0, "active"), (1, "active")])];
    let mut weir = Weir::prepare(lab, &settings, &services)?;
    if under_units {
        weir.use_units()?;
    }
    let url = format!("http://{API}");
    let names = ["AWS_ENDPOINT_URL", "AWS_EC2_METADATA_SERVICE_ENDPOINT"];
    weir.environment = names.map(|name| (name.to_owned(), url.clone())).to_vec();
    let mac = lab.weir.command("ip", &["-json", "link", "show", "in0"])?;
    let mac: serde_json::Value = serde_json::from_str(&mac)?;
    let mac = mac[0]["address"].as_str().ok_or("in0 has no address")?;
    let aws = Aws::start(lab, gateway, state(mac, failover, unhealthy))?;
    weir.start_slowpath()?;
    // Without a fastpath the appliance is not able: probes get 503, and slowpath does not register
    // it.
    weir.wait_for("503 with the reason", WAIT_LIMIT, |weir| {
        let response = weir.probe()?;
        let why = response.contains("no kernel interface") || response.contains("not registered");
        Ok((response.starts_with("HTTP/1.1 503") && why, response))
    })?;
    assert_eq!(aws.state(), None);
    weir.start_fastpath()?;
    weir.wait_until_able()?;
    weir.wait_for_next_hops()?;
    let before = (Totals::now(&weir)?, Wires::now(lab)?);
    aws.probes.store(true, Ordering::Relaxed);
    aws.until(&mut weir, "a healthy target", |aws| aws.state() == Some(State::Healthy))?;
    Ok((aws, weir, before))
}

/// Waits until slowpath ends by itself with status 0, and returns its log.
fn wait_for_exit(weir: &mut Weir) -> Outcome<String> {
    let mut slowpath = weir.slowpath.take().ok_or("no slowpath")?;
    let status = slowpath.wait(WAIT_LIMIT)?;
    let log = slowpath.log();
    assert!(status.success(), "{status}\n{}", slowpath.log_tail());
    Ok(log)
}

/// Ends both clients' flows, waits for slowpath to leave AWS, and checks that all packets are
/// accounted for.
fn shut_down(
    lab: &Lab,
    aws: Aws,
    mut weir: Weir,
    clients: [Client; 2],
    before: &Before,
) -> Outcome<Vec<Observation>> {
    let [web, beyond] = clients;
    web.stop_requests();
    beyond.stop_requests();
    assert_all_continued(&[("web", web.finish()?), ("beyond", beyond.finish()?)]);
    let log = wait_for_exit(&mut weir)?;
    assert!(log.contains("cloud lifecycle ended cloud=AWS outcome=Drained"), "{log}");
    assert_eq!(aws.state(), Some(State::Draining), "deregistration ended before the delay");
    let calls = aws.emulator.take_calls();
    let counts = ["RegisterTargets", "DeregisterTargets"].map(|name| aws.calls(name, &calls));
    assert_eq!(counts, [1, 1], "one registration in the whole test");
    let (gateway, observations) = aws.finish()?;
    // slowpath is restarted without AWS to read the counters of the fastpath, which kept running.
    Settings::default().write(&lab.folder)?;
    weir.start_slowpath()?;
    weir.wait_until_able()?;
    let gateway = Arc::into_inner(gateway).ok_or("the gateway is still shared")?;
    let report = gateway.stop()?;
    println!("{report}");
    assert!(report.clean() && report.awaited == 0 && report.returned > 0, "{report}");
    let (totals, frames) = at_rest(lab, &mut weir, &before.0, &before.1)?;
    println!("{totals} {:?}", totals.drops);
    assert_eq!(totals.sides().0, totals.sides().1, "{totals}");
    assert_eq!((frames.to_weir, frames.from_weir), (totals.rx, totals.tx));
    weir.stop()?;
    Ok(observations)
}

#[test]
fn registers_recovers_from_a_kill_and_deregisters_without_packet_loss() -> Outcome {
    complete_lifecycle(AS_CHILDREN)
}

/// The stop timeout of slowpath's unit is shorter than the deregistration: systemd ends the unit
/// with an error unless slowpath extends it.
#[test]
fn registers_recovers_from_a_kill_and_deregisters_under_the_units() -> Outcome {
    complete_lifecycle(UNDER_UNITS)
}

fn complete_lifecycle(under_units: bool) -> Outcome {
    let begun = Instant::now();
    let mut lab = Lab::new(&["web-1", "web-2"])?;
    let (aws, mut weir, before) = begin(&mut lab, ("no_rebalance", 10), under_units)?;
    let clients = long_lived(&lab)?;
    clients[0].wait_for(300, WAIT_LIMIT)?;

    weir.kill_slowpath()?;
    let more = clients[0].stats().right + 100;
    clients[0].wait_for(more, WAIT_LIMIT)?;
    weir.start_slowpath()?;
    weir.wait_until_able()?;
    let more = clients[0].stats().right + 100;
    clients[0].wait_for(more, WAIT_LIMIT)?;
    assert_ne!(aws.state(), Some(State::Draining));
    aws.until(&mut weir, "a healthy target", |aws| aws.state() == Some(State::Healthy))?;

    // The first deregistration fails. The probes' results until the retry show whether slowpath
    // returns 503 before it deregisters.
    let busy = Fault::Refuse { status: 503, code: "ServiceUnavailable".into() };
    aws.emulator.fault(Rule::first(1, "DeregisterTargets", busy));
    let observed_before = aws.observations();
    let slowpath = weir.slowpath.as_ref().ok_or("no slowpath")?;
    slowpath.signal(nix::sys::signal::Signal::SIGTERM)?;
    aws.until(&mut weir, "draining", |aws| aws.state() == Some(State::Draining))?;
    let at_term = clients[0].stats().right;
    clients[0].wait_for(at_term + 300, WAIT_LIMIT)?;
    assert_no_new_flows(&lab, &aws.gateway)?;
    let observations = shut_down(&lab, aws, weir, clients, &before)?;
    let first = observations[observed_before..]
        .iter()
        .find(|(_, good)| !good)
        .ok_or("no 503 was observed")?;
    assert_ne!(first.0, State::Draining, "503 was returned before AWS accepted the deregistration");
    println!("{:.1?}", begun.elapsed());
    Ok(())
}

#[test]
fn deregisters_before_returning_503_where_unhealthy_targets_lose_flows() -> Outcome {
    let begun = Instant::now();
    let mut lab = Lab::new(&["web-1", "web-2"])?;
    let (aws, mut weir, before) = begin(&mut lab, ("rebalance", 2), AS_CHILDREN)?;
    let clients = long_lived(&lab)?;
    clients[0].wait_for(100, WAIT_LIMIT)?;
    // The first deregistration fails. The retry takes long enough for two probes: if slowpath
    // returned 503 before it deregisters, the target would be unhealthy and lose its flows.
    let busy = Fault::Refuse { status: 503, code: "ServiceUnavailable".into() };
    aws.emulator.fault(Rule::first(1, "DeregisterTargets", busy));
    let slowpath = weir.slowpath.as_ref().ok_or("no slowpath")?;
    slowpath.signal(nix::sys::signal::Signal::SIGTERM)?;
    aws.until(&mut weir, "draining", |aws| aws.state() == Some(State::Draining))?;
    weir.wait_for("503 once draining", WAIT_LIMIT, |weir| {
        let response = weir.probe()?;
        let leaving = response.contains("leaving: SIGTERM");
        Ok((response.starts_with("HTTP/1.1 503") && leaving, response))
    })?;
    let more = clients[0].stats().right + 100;
    clients[0].wait_for(more, WAIT_LIMIT)?;
    let observations = shut_down(&lab, aws, weir, clients, &before)?;
    assert!(!observations.contains(&(State::Unhealthy, false)), "{observations:?}");
    println!("{:.1?}", begun.elapsed());
    Ok(())
}
