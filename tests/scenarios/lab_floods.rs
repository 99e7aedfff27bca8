//! Real TCP beside floods of spoofed packets, on both planes and in each mode: established
//! connections continue, new ones succeed, and far fewer ICMP errors are sent than the flood has
//! packets.
//!
//! The flow table is much smaller than the flood. The gateway's three clients have round trips of
//! 1, 20 and 100 ms, and their flows stay unconfirmed that long. The gateway delays the answers to
//! cause these round trips. With direct server return, answers bypass the gateway, and there is one
//! client, on Weir's link.

use patience::{check, poll};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::lab::client::{Client, ClientStats, Load};
use tests::lab::decap::{Answer, Decap};
use tests::lab::flood::{ANSWERING, DATAGRAMS, Flood, FloodPlan, SILENT};
use tests::lab::gateway::{Gateway, GatewaySetup};
use tests::lab::netns::Netns;
use tests::lab::server::Server;
use tests::lab::settings::{Backend, Plane, Service, Settings};
use tests::lab::topology::{AWS_CLIENTS, AWS_SERVER, FRONTEND, Lab};
use tests::lab::weir::{Metrics, Weir};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Serializes the tests: two labs on two cores would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

/// The planes on which each test runs.
const PLANES: [Plane; 2] = [Plane::Dpdk, Plane::Xdp { native: false }];
/// `region.max_flows`. Half of them may be unconfirmed. Five of eight packets of the flood begin a
/// flow, so an unconfirmed flow is evicted after at least 0.4 s, which is four of the longest round
/// trips. Even a tenth of the flood exceeds that half, should a busy machine lose the rest.
const MAX_FLOWS: u32 = 2_048;
/// Packets of the flood.
const FLOOD: u32 = 20_000;
/// Packets between two pauses of the flood; with [`PAUSE`] at most 4,000 packets per second.
const BURST: u32 = 40;
/// The length of these pauses.
const PAUSE: Duration = Duration::from_millis(10);
/// Round trips of the gateway's clients.
const ROUND_TRIPS_MS: [u64; 3] = [1, 20, 100];
/// Connections established before the flood.
const ESTABLISHED: u64 = 12;
/// Workers that open a new connection for each request, before and during the flood.
const NEW: u64 = 12;
/// Connections that are opened after the flood.
const AFTERWARDS: u64 = 40;
/// `icmp.errors_per_s`.
const ERRORS_PER_S: u64 = 100;
/// The port of the web server, to which the clients connect.
const WEB: u16 = 80;
/// The time limit of a condition.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The lab for one mode: everything but Weir.
struct Fixture {
    gateway: Option<Gateway>,
    /// The backends' programs, which serve until they are dropped.
    _backends: Vec<(Option<Decap>, Vec<Server>)>,
    lab: Lab,
    /// The address to which the clients connect.
    web: SocketAddrV4,
}

impl Fixture {
    fn new(mode: &str) -> Outcome<Fixture> {
        let mut lab = Lab::new(&["web-1", "web-2"])?;
        let backends = lab.hosts.iter().map(|host| serve(&host.ns, &host.name, mode));
        let backends = backends.collect::<Outcome<_>>()?;
        let delays = ROUND_TRIPS_MS.map(Duration::from_millis);
        let delays = AWS_CLIENTS.into_iter().zip(delays).collect();
        let gateway = match mode {
            "dsr" => {
                lab.bypass_weir()?;
                None
            }
            _ => Some(lab.aws_gateway(GatewaySetup { delays, ..GatewaySetup::default() })?),
        };
        let web = if mode == "return" { AWS_SERVER } else { FRONTEND };
        let fixture =
            Fixture { lab, gateway, _backends: backends, web: SocketAddrV4::new(web, WEB) };
        // ICMP errors are counted where clients would receive them, whatever their address.
        let table = "table inet observed {\n counter errors {\n }\n chain in {\n type filter hook \
                     prerouting priority -300;\n icmp type time-exceeded counter name errors\n \
                     }\n}\n";
        fixture.clients().command_with_input("nft", &["-f", "-"], table)?;
        Ok(fixture)
    }

    /// Returns the namespace of the clients.
    fn clients(&self) -> &Netns {
        if self.gateway.is_some() { &self.lab.aws[0] } else { &self.lab.cloud }
    }

    /// Returns the load of the clients for this mode.
    fn load(&self, requests: u64) -> Load {
        let sources: Vec<IpAddr> = match self.gateway {
            Some(_) => AWS_CLIENTS[..3].iter().map(|address| IpAddr::V4(*address)).collect(),
            None => vec![Ipv4Addr::new(10, 0, 1, 1).into()],
        };
        let web = SocketAddr::V4(self.web);
        Load { sources, patience: TIMEOUT, ..Load::new(web, requests) }
    }

    /// Returns the local ends of the connections to the web server.
    fn connections(&self) -> Outcome<Vec<SocketAddrV4>> {
        let rows = self.clients().command("ss", &["-H", "-t", "-n", "state", "established"])?;
        let web = self.web.to_string();
        let ends = rows.lines().filter_map(|row| {
            let mut columns = row.split_whitespace().skip(2);
            let (local, peer) = (columns.next()?, columns.next()?);
            (peer == web).then(|| local.parse().ok())?
        });
        Ok(ends.collect())
    }

    /// Waits until all connections before the flood are established, and returns them.
    fn all_connections(&self) -> Outcome<Vec<SocketAddrV4>> {
        let what = format!("{ESTABLISHED} established connections");
        let connections = poll(&what, TIMEOUT, || {
            let connections = self.connections().map_err(|error| error.to_string())?;
            let found = || format!("{connections:?}");
            check(connections.len() as u64 == ESTABLISHED, found).map(|()| connections)
        })?;
        Ok(connections)
    }

    /// Returns the number of ICMP errors that reached the clients' side.
    fn errors(&self) -> Outcome<u64> {
        let list = ["list", "counter", "inet", "observed", "errors"];
        let text = self.clients().command("nft", &list)?;
        let count = text.split_whitespace().skip_while(|token| *token != "packets").nth(1);
        Ok(count.ok_or("no counter")?.parse()?)
    }
}

/// Makes a host a backend of all services: it answers on TCP ports [`WEB`] and [`ANSWERING`], and
/// is silent on [`SILENT`] and on UDP port [`DATAGRAMS`].
fn serve(ns: &Netns, name: &str, mode: &str) -> Outcome<(Option<Decap>, Vec<Server>)> {
    let silent = format!(
        "table inet silent {{ chain in {{ type filter hook input priority 0; \
         tcp dport {SILENT} drop; udp dport {DATAGRAMS} drop; }}; }}"
    );
    ns.command_with_input("nft", &["-f", "-"], &silent)?;
    let decap = match mode {
        "tunnel" => Some(Decap::start(ns, Answer::Tunnel)?),
        "dsr" => Some(Decap::start(ns, Answer::Plain)?),
        _ => None,
    };
    if decap.is_some() {
        ns.ip(&[&format!("addr add {FRONTEND}/32 dev lo")])?;
    }
    if mode == "tunnel" {
        ns.ip(&["route add 192.0.2.0/24 dev decap0", "route add 198.18.0.0/15 dev decap0"])?;
    }
    let server = |port| Server::start(ns, name, SocketAddr::from(([0, 0, 0, 0], port)));
    Ok((decap, [WEB, ANSWERING].map(server).into_iter().collect::<Result<_, _>>()?))
}

fn services(lab: &Lab, mode: &str) -> Vec<Service> {
    let keys = match mode {
        "tunnel" => "mode = \"tunnel\"\ntunnel = \"geneve\"\ntable_size = 251",
        "dsr" => "mode = \"dsr\"\ntunnel = \"ipip\"\ntable_size = 251",
        _ => "mode = \"nat\"\ntable_size = 251",
    };
    let frontends = [(WEB, "tcp"), (ANSWERING, "tcp"), (SILENT, "tcp"), (DATAGRAMS, "udp")];
    let service = |(port, protocol): (u16, &'static str)| Service {
        name: format!("lab/{protocol}-{port}"),
        mode: keys.into(),
        frontends: vec![(FRONTEND.to_string(), port, protocol)],
        backends: lab
            .hosts
            .iter()
            .map(|host| Backend {
                address: host.address.to_string(),
                port: 0,
                weight: 100,
                state: "active",
            })
            .collect(),
    };
    frontends.map(service).into()
}

/// Runs clients before, during and after a flood, and asserts what the file's first paragraph
/// says.
fn flooded(plane: Plane, mode: &str) -> Outcome {
    let fixture = Fixture::new(mode)?;
    let settings = Settings {
        plane,
        max_flows: MAX_FLOWS,
        more: format!("[icmp]\nerrors_per_s = {ERRORS_PER_S}\n"),
        ..Settings::default()
    };
    let weir = Weir::start(&fixture.lab, &settings, &services(&fixture.lab, mode))?;
    let about = |text: &str| {
        let gateway = fixture.gateway.as_ref().map(|gateway| gateway.report().to_string());
        format!("{mode} on {plane:?}: {text}\n{:?}\n{gateway:?}", weir.drops())
    };
    let load_defaults = fixture.load(u64::MAX);
    let pause = Duration::from_millis(20);
    let steady =
        Load { workers: ESTABLISHED, per_connection: u64::MAX, pause, ..load_defaults.clone() };
    let steady = Client::start(fixture.clients(), steady)?;
    let victims = fixture.all_connections().map_err(|e| about(&e.to_string()))?;
    let new = Load { workers: NEW, per_connection: 1, lengths: vec![10], pause, ..load_defaults };
    let new = Client::start(fixture.clients(), new)?;
    new.wait_for(NEW, TIMEOUT).map_err(|e| about(&e.to_string()))?;

    let (begun, before) = (Instant::now(), [steady.stats(), new.stats()]);
    let plan =
        FloodPlan { packets: FLOOD, burst: BURST, pause: PAUSE, server: fixture.web, victims };
    let flood = Flood::start(fixture.clients(), &fixture.lab.cloud, plan)?;
    let sent = flood.finish()?;
    let during = [steady.stats(), new.stats()];
    let afterwards = fixture.load(AFTERWARDS);
    let afterwards = Load { workers: 4, per_connection: 1, lengths: vec![10], ..afterwards };
    let afterwards = Client::start(fixture.clients(), afterwards)?.finish()?;
    steady.stop_requests();
    new.stop_requests();
    let (steady, new) = (steady.finish()?, new.finish()?);
    let (metrics, took) = (weir.metrics()?, begun.elapsed());
    let errors = fixture.errors()?;
    let count = |name: &str| metrics.sum(&format!("weir_{name}_total"), &[]) as u64;
    let evicted = count("flows_evicted");
    let summary = format!(
        "{sent} packets in {took:.1?}, {evicted} flows evicted, {errors} errors; \
         {steady}{new}{afterwards}"
    );
    println!("{mode} on {plane:?}: {summary}");

    // The flood exceeded the table, and clients were active all the time.
    assert!(sent > 2 * MAX_FLOWS, "{}", about(&summary));
    assert!(evicted > u64::from(MAX_FLOWS) / 4, "{}", about(&summary));
    for (before, during) in before.iter().zip(&during) {
        assert!(during.right > before.right, "{}", about(&summary));
    }
    assert_established_continued(&steady, &about(&summary));
    let tried = new.right + new.failed;
    assert!(new.failed * 20 <= tried && new.moved == 0, "{}", about(&summary));
    assert_eq!((afterwards.right, afterwards.failed), (AFTERWARDS, 0), "{}", about(&summary));
    if mode != "return" {
        assert_eq!(steady.by_backend.len(), 2, "{}", about(&summary));
    }
    assert_errors_limited(&metrics, errors, took, &about(&summary));
    if let Some(gateway) = fixture.gateway {
        gateway.stop()?;
    }
    weir.stop()?;
    Ok(())
}

/// Asserts that each worker kept its initial connection and backend.
#[track_caller]
fn assert_established_continued(steady: &ClientStats, about: &str) {
    assert_eq!((steady.failed, steady.moved, steady.connections), (0, 0, ESTABLISHED), "{about}");
}

/// Asserts that errors reach the clients' side, within the limit of an arm.
#[track_caller]
fn assert_errors_limited(metrics: &Metrics, errors: u64, took: Duration, about: &str) {
    let limited = metrics.sum("weir_icmp_errors_limited_total", &[]) as u64;
    // Each processor or lcore has its own limit per second. Besides whole seconds, `took` contains
    // parts of at most two.
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let max = ERRORS_PER_S * processors * (took.as_secs() + 2);
    assert!(errors > 0 && errors <= max, "{errors} errors, at most {max}: {about}");
    assert!(limited > 0, "{about}");
}

fn on_both_planes(mode: &str) -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    PLANES.into_iter().try_for_each(|plane| flooded(plane, mode))
}

#[test]
fn a_flood_does_not_affect_returned_connections() -> Outcome {
    on_both_planes("return")
}

#[test]
fn a_flood_does_not_affect_tunneled_connections() -> Outcome {
    on_both_planes("tunnel")
}

#[test]
fn a_flood_does_not_affect_dsr_connections() -> Outcome {
    on_both_planes("dsr")
}

#[test]
fn a_flood_does_not_affect_nat_connections() -> Outcome {
    on_both_planes("nat")
}
