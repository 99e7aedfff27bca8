//! The lifecycle of an appliance at Azure: it joins the pool by its interface and takes ports and
//! VNIs of the tunnels from the pool; its slowpath is killed and restarted; it follows changed
//! tunnels under live flows; on SIGTERM it leaves without ending a flow.
//!
//! Azure is an emulator. Its Resource Manager API listens on the appliance's loopback (TLS), and it
//! probes as the load balancer does: from the gateway's side, over the wire, through the data
//! plane. The gateway is the kernel's VXLAN; packets that Azure would not send to the member are
//! dropped on the clients' side.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cloud_emulators::azure::{AzureState, Emulator};
use serde_json::{Value, json};
use tests::lab::Result as LabResult;
use tests::lab::client::{Client, ClientStats, Load};
use tests::lab::netns::Netns;
use tests::lab::scenario::{Totals, service};
use tests::lab::settings::Settings;
use tests::lab::topology::{AZURE_SERVER, FRONTEND, INGRESS, Lab};
use tests::lab::weir::Weir;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The emulator's addresses in the appliance's namespace: Resource Manager, and metadata.
const API: [&str; 2] = ["127.0.0.1:4567", "127.0.0.1:4568"];
/// The time limit of a condition.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// The interval between the emulator's steps.
const STEP: Duration = Duration::from_millis(100);
/// The resource group of the emulator's sample.
const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-0000000000aa/resourceGroups/north";

/// VNI and port of the external and of the internal tunnel.
type Ends = [(u32, u16); 2];
/// The pool's tunnels at first.
const FIRST: Ends = [(901, 2001), (900, 2000)];
/// The pool's tunnels after the first change.
const OTHER_VNIS: Ends = [(911, 2001), (910, 2000)];
/// The pool's tunnels after the second change.
const ALL_OTHER: Ends = [(921, 3001), (920, 3000)];

/// The result of one step of the emulator: the administrative state of the appliance's entry, or
/// `None` without an entry, and whether the probe succeeded.
type Observation = (Option<String>, bool);

/// Returns the id of a network resource in the sample's resource group.
fn network(kind: &str, name: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Network/{kind}/{name}")
}

fn pool() -> String {
    network("loadBalancers", "gw") + "/backendAddressPools/weir"
}

fn tunnel(kind: &str, (vni, port): (u32, u16)) -> Value {
    json!({ "type": kind, "protocol": "VXLAN", "port": port, "identifier": vni })
}

/// Sets the pool's tunnels.
fn set_tunnels(state: &mut AzureState, ends: Ends) {
    let id = network("loadBalancers", "gw");
    let mut body = state.find(&id).expect("a resource of the sample").body.clone();
    let tunnels = json!([tunnel("External", ends[0]), tunnel("Internal", ends[1])]);
    body["properties"]["backendAddressPools"][0]["properties"]["tunnelInterfaces"] = tunnels;
    state.write(&id, body);
}

/// Returns the emulator's sample with the lab's appliance.
fn state(mac: &str) -> AzureState {
    let mut state = AzureState::sample();
    let id = network("networkInterfaces", "weir-0-data");
    let mut interface = state.find(&id).expect("a resource of the sample").body.clone();
    interface["properties"]["macAddress"] = mac.replace(':', "-").to_uppercase().into();
    let first = &mut interface["properties"]["ipConfigurations"][0]["properties"];
    first["privateIPAddress"] = INGRESS.to_string().into();
    interface["tags"] = json!({ "owner": "other" });
    state.write(&id, interface);
    set_tunnels(&mut state, FIRST);
    state.good = false;
    state.interval = Duration::from_secs(1);
    state.pace = Duration::from_secs(1);
    state.pause = 1;
    state
}

/// The emulated Azure of the lab, while it runs.
struct Azure {
    emulator: Emulator,
    observations: Arc<Mutex<Vec<Observation>>>,
    stop: Stop,
    threads: Vec<JoinHandle<LabResult<()>>>,
}

/// Ends the emulator's threads on drop, also if the test fails: they hold their namespaces.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn current_thread_runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime of one thread")
}

impl Azure {
    fn start(lab: &Lab, state: AzureState) -> Outcome<Azure> {
        let stop = Stop(Arc::new(AtomicBool::new(false)));
        let observations = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = std::sync::mpsc::channel();
        let stopped = Arc::clone(&stop.0);
        let serving = lab.weir.thread("azure", move || {
            current_thread_runtime().block_on(async move {
                let [resources, metadata] = API.map(tokio::net::TcpListener::bind);
                let resources = resources.await.expect("a free port");
                let metadata = metadata.await.expect("a free port");
                let emulator = Emulator::listen(resources, metadata, &[], state);
                let _ = sender.send(emulator.expect("the bound address"));
                while !stopped.load(Ordering::Relaxed) {
                    tokio::time::sleep(STEP).await;
                }
            });
        })?;
        let emulator = receiver.recv()?;
        let (azure, saw, stopped) =
            (emulator.clone(), Arc::clone(&observations), Arc::clone(&stop.0));
        // The probes' sockets are opened here, in the gateway's namespace.
        let probing = lab.cloud.thread("azure-probes", move || {
            current_thread_runtime().block_on(async move {
                while !stopped.load(Ordering::Relaxed) {
                    tokio::time::sleep(STEP).await;
                    azure.probe().await;
                    azure.advance(STEP);
                    let observation = azure.with(|state| entry(state));
                    saw.lock().unwrap_or_else(PoisonError::into_inner).push(observation);
                }
            });
        })?;
        Ok(Azure { emulator, observations, stop, threads: vec![serving, probing] })
    }

    /// Returns the current state of the appliance's entry in the pool.
    fn entry(&self) -> Observation {
        self.emulator.with(|state| entry(state))
    }

    /// Returns whether Azure sends traffic to the appliance.
    fn serves(&self) -> bool {
        self.emulator.with(|state| state.serves(&pool(), &INGRESS.to_string()))
    }

    /// Waits for a condition; fails early if a daemon ends.
    fn until(&self, weir: &mut Weir, what: &str, fits: impl Fn(&Azure) -> bool) -> LabResult<()> {
        weir.wait_for(what, WAIT_LIMIT, |_| Ok((fits(self), format!("{:?}", self.entry()))))
    }

    /// Returns the writes that Azure accepted.
    fn writes(&self) -> Vec<String> {
        let calls = self.emulator.calls().into_iter();
        let writes = calls.filter(|c| c.method == "PUT" && (200..300).contains(&c.status));
        writes.map(|call| call.operation).collect()
    }

    /// Stops the emulator and returns its results.
    fn finish(mut self) -> Outcome<Vec<Observation>> {
        drop(self.stop);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a thread of the emulator panicked")??;
        }
        Ok(self.observations.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn entry(state: &AzureState) -> Observation {
    let own = INGRESS.to_string();
    let backend = state.backends.iter().find(|b| b.address == own);
    let state = |_| state.admin(&pool(), &own).unwrap_or_else(|| "None".to_owned());
    (backend.map(state), backend.is_some_and(|backend| backend.good))
}

/// The packets that the gateway sends: none, those of established connections, or all.
#[derive(Clone, Copy)]
enum Sends {
    Nothing,
    Established,
    All,
}

/// Sets the gateway's packet filter on its client side.
fn gateway(clients: &Netns, sends: Sends) -> LabResult<()> {
    let rule = match sends {
        Sends::Nothing => "drop",
        Sends::Established => "ct state new drop",
        // This rule enables connection tracking, or established connections would later be new.
        Sends::All => "ct state new accept",
    };
    let text = format!(
        "table ip fabric\ndelete table ip fabric\ntable ip fabric {{\n\
         chain out {{ type filter hook output priority 0; oifname \"external\" {rule}; }}\n}}\n"
    );
    clients.command_with_input("nft", &["-f", "-"], &text).map(drop)
}

/// Starts long-lived connections, to the service and to a server without a service.
fn long_lived(lab: &Lab) -> Outcome<[Client; 2]> {
    let web = Load {
        workers: 16,
        per_connection: u64::MAX,
        // Some responses are long, so that events occur in the middle of one.
        lengths: vec![10, 1_000, 100_000],
        pause: Duration::from_millis(40),
        // Weir's tunnels may differ from the pool's for half a minute, and TCP's retransmission
        // timeouts double: a segment lost then may be sent again 102 s after the first time.
        patience: Duration::from_secs(150),
        ..Load::new((FRONTEND, 80).into(), u64::MAX)
    };
    let beyond = Load { target: (AZURE_SERVER, 80).into(), workers: 2, ..web.clone() };
    Ok([Client::start(&lab.azure[0], web)?, Client::start(&lab.azure[0], beyond)?])
}

/// Waits until both clients have completed further requests.
fn complete_requests(clients: &[Client; 2], requests: u64) -> LabResult<()> {
    for client in clients {
        client.wait_for(client.stats().right + requests, Duration::from_secs(120))?;
    }
    Ok(())
}

#[track_caller]
fn assert_all_continued(clients: &[(&str, ClientStats)]) {
    for (name, stats) in clients {
        println!("{name}: {stats}");
        assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
    }
}

/// Checks that a client with a new flow is not served.
fn assert_no_new_flows(lab: &Lab) -> Outcome {
    let load = Load {
        workers: 1,
        patience: Duration::from_secs(1),
        ..Load::new((FRONTEND, 80).into(), 1)
    };
    let stats = Client::start(&lab.azure[0], load)?.finish()?;
    assert_eq!((stats.right, stats.failed), (0, 1), "{stats}");
    Ok(())
}

/// Waits until the appliance is ready and reports these tunnels as in force.
fn ready_with(weir: &mut Weir, ends: Ends) -> LabResult<()> {
    weir.wait_for("the pool's tunnels", Duration::from_secs(90), |weir| {
        let status: Value = weir.document("/cloud")?;
        let in_force = &status["tunnels"][0]["in_force"];
        let now = ["external", "internal"].map(|side| {
            let number = |what: &str| in_force[format!("{side}_{what}")].as_u64().unwrap_or(0);
            (number("vni") as u32, number("port") as u16)
        });
        Ok((status["phase"] == "ready" && now == ends, status.to_string()))
    })
}

/// Starts everything and waits until Azure sends traffic.
fn begin(lab: &mut Lab) -> Outcome<(Azure, Weir)> {
    lab.azure_tunnels(FIRST)?;
    gateway(&lab.azure[0], Sends::Nothing)?;
    let azure_section = format!(
        "[azure]\npool = \"weir\"\nidle_s = 1\nresource_manager = \"https://localhost:4567\"\n\
         metadata = \"http://{}\"\n\n[flows]\ntcp_closed_s = 1\n",
        API[1]
    );
    let settings = Settings { more: azure_section, ..Settings::default() };
    let services = [service(lab, &[(0, "active"), (1, "active")])];
    let mut weir = Weir::prepare(lab, &settings, &services)?;
    let mac = lab.weir.command("ip", &["-json", "link", "show", "in0"])?;
    let mac: Value = serde_json::from_str(&mac)?;
    let mac = mac[0]["address"].as_str().ok_or("in0 has no address")?;
    let azure = Azure::start(lab, state(mac))?;
    let ca = lab.folder.file("azure.pem");
    std::fs::write(&ca, &azure.emulator.ca)?;
    weir.environment = vec![("SSL_CERT_FILE".to_owned(), ca.display().to_string())];
    weir.start_slowpath()?;
    // Without a fastpath the appliance is not able: probes get 503, and the appliance does not join
    // the pool.
    weir.wait_for("503 with the reason", WAIT_LIMIT, |weir| {
        let response = weir.probe()?;
        Ok((response.starts_with("HTTP/1.1 503") && response.len() > 80, response))
    })?;
    assert_eq!(azure.entry().0, None);
    weir.start_fastpath()?;
    weir.wait_until_able()?;
    weir.wait_for_next_hops()?;
    azure.until(&mut weir, "a pool member with adminState Up", Azure::serves)?;
    gateway(&lab.azure[0], Sends::All)?;
    Ok((azure, weir))
}

/// Waits until slowpath ends by itself with status 0, and checks that the appliance has left the
/// pool.
fn wait_for_exit(azure: &Azure, weir: &mut Weir) -> Outcome {
    let mut slowpath = weir.slowpath.take().ok_or("no slowpath")?;
    let status = slowpath.wait(WAIT_LIMIT)?;
    let log = slowpath.log();
    assert!(status.success(), "{status}\n{}", slowpath.log_tail());
    assert!(log.contains("cloud lifecycle ended cloud=Azure outcome=Drained"), "{log}");
    let interface = network("networkInterfaces", "weir-0-data");
    let interface = azure.emulator.with(|state| state.find(&interface).cloned());
    let body = interface.ok_or("the interface does not exist")?.body;
    let pools =
        body.pointer("/properties/ipConfigurations/0/properties/loadBalancerBackendAddressPools");
    assert_eq!(pools, Some(&serde_json::json!([])), "still in the pool, or no pool list: {body}");
    assert_eq!(body["tags"]["owner"], "other", "tags of other owners are retained");
    Ok(())
}

#[test]
fn joins_follows_tunnel_changes_recovers_from_a_kill_and_leaves_without_breaking_a_flow() -> Outcome
{
    let begun = Instant::now();
    let mut lab = Lab::new(&["web-1", "web-2"])?;
    let (azure, mut weir) = begin(&mut lab)?;
    ready_with(&mut weir, FIRST)?;
    let clients = long_lived(&lab)?;
    complete_requests(&clients, 50)?;

    weir.kill_slowpath()?;
    complete_requests(&clients, 50)?;
    weir.start_slowpath()?;
    weir.wait_until_able()?;
    ready_with(&mut weir, FIRST)?;
    complete_requests(&clients, 50)?;
    assert_eq!(azure.writes(), ["PUT networkInterfaces"], "one registration in the whole test");

    for ends in [OTHER_VNIS, ALL_OTHER] {
        azure.emulator.with(|state| set_tunnels(state, ends));
        lab.azure_tunnels(ends)?;
        ready_with(&mut weir, ends)?;
        complete_requests(&clients, 50)?;
        // Otherwise the retransmission of a lost segment may fall into the next change, and TCP
        // would repeat it only minutes later.
        for client in &clients {
            client.wait_for_open(Duration::from_secs(150))?;
        }
    }
    let metrics = weir.metrics()?;
    assert_eq!(metrics.sum("weir_cloud_tunnels_differ", &[]), 0.0);
    assert!(metrics.sum("weir_ready", &[]) > 0.0);

    let slowpath = weir.slowpath.as_ref().ok_or("no slowpath")?;
    slowpath.signal(nix::sys::signal::Signal::SIGTERM)?;
    let down = Some("Down".to_owned());
    azure.until(&mut weir, "adminState Down", |azure| azure.entry() == (down.clone(), false))?;
    gateway(&lab.azure[0], Sends::Established)?;
    complete_requests(&clients, 50)?;
    assert_no_new_flows(&lab)?;
    assert_eq!(azure.entry().0, down, "a pool member while it has flows");

    let [web, beyond] = clients;
    web.stop_requests();
    beyond.stop_requests();
    assert_all_continued(&[("web", web.finish()?), ("beyond", beyond.finish()?)]);
    wait_for_exit(&azure, &mut weir)?;
    let observations = azure.finish()?;
    // The entry was `Down` before it was removed, so that flows had time to end.
    let states: Vec<Option<&str>> =
        observations.iter().map(|(state, _)| state.as_deref()).collect();
    let mut order: Vec<Option<&str>> = states;
    order.dedup();
    assert_eq!(order, [None, Some("None"), Some("Down"), None]);

    // slowpath is restarted without Azure to read the counters of the fastpath, which kept running.
    Settings::default().write(&lab.folder)?;
    weir.start_slowpath()?;
    weir.wait_until_able()?;
    let totals = Totals::now(&weir)?;
    println!("{totals} {:?}", totals.drops);
    assert_eq!(totals.sides().0, totals.sides().1, "{totals}");
    weir.stop()?;
    println!("{:.1?}", begun.elapsed());
    Ok(())
}
