//! Backend health: how long a dead or hanging backend still gets new flows, health verdicts across
//! a restart of slowpath, and probes through a tunnel.

use slowpath::metrics::declared::{self, Presence};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::lab::client::{Client, Load};
use tests::lab::decap::{Answer, Decap, TunnelKind};
use tests::lab::scenario::{changing_gateway, service};
use tests::lab::server::Server;
use tests::lab::settings::{Plane, Service, Settings};
use tests::lab::topology::{AWS_CLIENTS, FRONTEND, HTTP, Lab};
use tests::lab::weir::{CheckNow, Metrics, Weir};

type Outcome = Result<(), Box<dyn Error>>;

/// Serializes the tests: two poll loops on two cores would disturb each other's measurements.
static ALONE: Mutex<()> = Mutex::new(());

/// `interval_ms` of the health checks of [`checked`].
const INTERVAL: Duration = Duration::from_secs(1);
/// `timeout_ms` of these health checks.
const TIMEOUT: Duration = Duration::from_millis(500);
/// `fall` of these health checks: failed probes until a backend is unhealthy.
const FALL: u32 = 2;
/// The time limit of a condition.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Returns the maximum detection time that the settings of [`checked`] give: `fall` intervals after
/// the last successful probe, the jitter of 10 %, and the timeout.
fn detection_limit() -> Duration {
    INTERVAL * FALL + INTERVAL / 10 + TIMEOUT
}

/// Returns the lab's service with HTTP health checks.
fn checked(lab: &Lab) -> Service {
    let web = service(lab, &[(0, "active"), (1, "active"), (2, "active")]);
    let mode = "mode = \"nat\"\nhealth = { kind = \"http\", path = \"/1/10\", interval_ms = 1000, \
                timeout_ms = 500, rise = 2, fall = 2, jitter_percent = 10 }";
    Service { mode: mode.into(), ..web }
}

/// Starts clients that begin a new flow for each request; requests may fail.
fn clients(lab: &Lab) -> Result<Client, Box<dyn Error>> {
    let load = Load {
        sources: AWS_CLIENTS.iter().map(|address| IpAddr::V4(*address)).collect(),
        per_connection: 1,
        lengths: vec![10],
        pause: Duration::from_millis(20),
        patience: Duration::from_millis(200),
        ..Load::new(SocketAddr::from((FRONTEND, 80)), u64::MAX)
    };
    Ok(Client::start(&lab.aws[0], load)?)
}

/// Returns the number of flows begun with the backend at this address so far.
fn new_flows(weir: &Weir, address: &str) -> Result<u64, Box<dyn Error>> {
    let services = weir.services()?;
    let backends = services.iter().flat_map(|service| &service.backends);
    Ok(backends.filter(|one| one.address == address).map(|one| one.new_flows).sum())
}

/// Waits until slowpath reports a backend's health in this state.
fn wait_for_state(weir: &mut Weir, address: &str, state: &str) -> Result<(), Box<dyn Error>> {
    let start = format!("{address}:");
    weir.wait_for(&format!("state {state} of {address}"), WAIT_LIMIT, |weir| {
        let checks = weir.checks()?;
        let is = |one: &CheckNow| one.backend.starts_with(&start) && one.state == state;
        Ok((checks.iter().any(is), format!("{checks:?} {:?}", weir.drops()?)))
    })?;
    Ok(())
}

/// Returns the time from now until the last new flow to a backend, after a period without any.
fn last_new_flow(weir: &Weir, address: &str) -> Result<Duration, Box<dyn Error>> {
    let (begun, mut last) = (Instant::now(), Duration::ZERO);
    let mut before = new_flows(weir, address)?;
    while begun.elapsed() < last + detection_limit() + 2 * INTERVAL {
        std::thread::sleep(Duration::from_millis(10));
        let now = new_flows(weir, address)?;
        if now != before {
            (before, last) = (now, begun.elapsed());
        }
    }
    Ok(last)
}

#[track_caller]
fn assert_within_limit(what: &str, last: Duration) {
    let intervals = last.as_secs_f64() / INTERVAL.as_secs_f64();
    let limit = detection_limit();
    println!("{what}: the last new flow {intervals:.2} intervals later (limit {limit:.1?})");
    assert!(last > Duration::ZERO, "{what}: new flows use the backend until the verdict");
    // An interval more, because on a busy machine probes, commit and observation are late.
    assert!(last <= limit + INTERVAL, "{what}: {last:.1?}, the limit is {limit:.1?}");
}

#[test]
fn dead_or_hung_backends_lose_new_flows_in_time_and_verdicts_survive_a_restart() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2", "web-3"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    let mut weir = Weir::start(&lab, &Settings::default(), &[checked(&lab)])?;
    let address: Vec<String> = lab.hosts.iter().map(|host| host.address.to_string()).collect();
    for one in &address {
        wait_for_state(&mut weir, one, "healthy")?;
    }
    let client = clients(&lab)?;
    client.wait_for(100, WAIT_LIMIT)?;

    // The backend fails: its listener is closed.
    let mut stopped = lab.hosts.remove(0);
    let to = SocketAddr::from(([0, 0, 0, 0], HTTP));
    let other = SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP + 1));
    stopped.server = Server::start(&stopped.ns, "elsewhere", other)?;
    assert_within_limit("failed", last_new_flow(&weir, &address[0])?);
    wait_for_state(&mut weir, &address[0], "unhealthy")?;

    // The backend hangs: its kernel accepts connections, but no server responds.
    let hung = &mut lab.hosts[0];
    hung.server = Server::start(&hung.ns, "elsewhere", other)?;
    let listener = hung.ns.run(move || TcpListener::bind(to))??;
    assert_within_limit("hung", last_new_flow(&weir, &address[1])?);
    wait_for_state(&mut weir, &address[1], "unhealthy")?;

    // After a restart neither backend gets a flow, from the first moment until the checker has
    // probed again.
    let before = [new_flows(&weir, &address[0])?, new_flows(&weir, &address[1])?];
    weir.kill_slowpath()?;
    weir.start_slowpath()?;
    weir.wait_until_able()?;
    let first = weir.checks()?;
    let unhealthy = first.iter().filter(|one| one.state == "unhealthy").count();
    assert_eq!(unhealthy, 2, "{first:?}");
    std::thread::sleep(detection_limit() + INTERVAL);
    let after = [new_flows(&weir, &address[0])?, new_flows(&weir, &address[1])?];
    assert_eq!(after, before, "no health verdict was lost");
    for one in &address[..2] {
        wait_for_state(&mut weir, one, "unhealthy")?;
    }

    // Both are detected as healthy again.
    drop(listener);
    stopped.server = Server::start(&stopped.ns, "web-1", to)?;
    lab.hosts[0].server = Server::start(&lab.hosts[0].ns, "web-2", to)?;
    for (one, before) in address.iter().zip(before) {
        wait_for_state(&mut weir, one, "healthy")?;
        weir.wait_for("new flows again", WAIT_LIMIT, |weir| {
            let now = new_flows(weir, one).unwrap_or_default();
            Ok((now > before, now.to_string()))
        })?;
    }
    let metrics = weir.metrics()?;
    assert!(metrics.sum("weir_health_probes_total", &["result=\"good\""]) > 0.0);
    assert_eq!(metrics.sum("weir_health_backends", &["state=\"healthy\""]), 3.0);
    assert_data_plane_is_measured(&weir, &metrics)?;
    drop(client);
    gateway.stop()?;
    weir.stop()?;
    Ok(())
}

/// Asserts that each metric of the running data plane has samples, and that related values are
/// consistent.
fn assert_data_plane_is_measured(weir: &Weir, metrics: &Metrics) -> Result<(), Box<dyn Error>> {
    let found = declared::compare(&weir.metrics_text()?);
    assert!(found.differences.is_empty(), "{:#?}", found.differences);
    let is_dpdk = metrics.sum("weir_lcore_iterations_total", &[]) > 0.0;
    // Statistics by queue exist where the driver counts them: `make nics`.
    let of_hardware = ["weir_nic_queue_received_packets_total", "weir_nic_driver_stat"];
    for one in declared::all() {
        let of_plane = ["weir_data_plane_", "weir_lcore_", "weir_nic_"];
        let is_expected = match one.presence {
            Presence::Always => true,
            Presence::Dpdk => is_dpdk,
            Presence::Xdp => !is_dpdk,
            _ => false,
        };
        let is_of_plane = of_plane.iter().any(|prefix| one.name.starts_with(prefix));
        if is_expected && is_of_plane && !of_hardware.contains(&one.name.as_str()) {
            assert!(found.sampled.contains(&one.name), "{} has no sample", one.name);
        }
    }
    if is_dpdk {
        let sum = |name: &str, labels: &[&str]| metrics.sum(name, labels);
        let bursts = sum("weir_lcore_bursts_total", &[]);
        assert!(bursts > 0.0 && bursts <= sum("weir_lcore_iterations_total", &[]) * 4.0);
        assert!((sum("weir_lcore_burst_packets_count", &[]) - bursts).abs() <= bursts * 0.01);
        assert!(sum("weir_lcore_burst_packets_sum", &[]) >= bursts);
        assert!(sum("weir_lcore_time_seconds_total", &["state=\"idle\""]) > 0.0);
    }
    Ok(())
}

/// A tunnel service whose single backend has a probe source.
const TUNNELED: &str = r#"
[[service]]
name = "lab/chain"
mode = "tunnel"
tunnel = "vxlan"
table_size = 251
health = { kind = "http", path = "/1/10", interval_ms = 500, timeout_ms = 400, fall = 2 }
frontends = [{ address = "203.0.113.21", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11", probe = "198.18.0.1" }]
"#;

#[test]
fn a_tunnel_backend_is_probed_through_the_tunnel() -> Outcome {
    through_the_tunnel(Plane::Dpdk, Answer::Tunnel)
}

#[test]
fn a_backend_that_answers_a_probe_directly_is_healthy() -> Outcome {
    through_the_tunnel(Plane::Dpdk, Answer::Plain)
}

#[test]
fn a_backend_that_answers_an_xdp_probe_directly_is_healthy() -> Outcome {
    through_the_tunnel(Plane::Xdp { native: false }, Answer::Plain)
}

#[test]
fn a_tunnel_backend_is_probed_through_the_xdp_programs() -> Outcome {
    through_the_tunnel(Plane::Xdp { native: false }, Answer::Tunnel)
}

/// Checks that a tunnel backend is probed through its tunnel, and that a stopped server and a
/// stopped tunnel end make it unhealthy.
fn through_the_tunnel(plane: Plane, answers: Answer) -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::new(&["web-1"])?;
    let host = &lab.hosts[0];
    let decap = Decap::start(&host.ns, answers)?;
    let route = match answers {
        Answer::Plain => "route add 198.18.0.1/32 via 10.0.2.10",
        _ => "route add 198.18.0.1/32 dev decap0",
    };
    host.ns.ip(&["addr add 203.0.113.21/32 dev lo", route])?;
    let web = SocketAddr::from(([203, 0, 113, 21], 80));
    let server = Server::start(&host.ns, "web-1", web)?;
    let settings = Settings { plane, ..Settings::default() };
    let mut weir = Weir::prepare(&lab, &settings, &[])?;
    lab.folder.write("services.toml", TUNNELED)?;
    weir.start_slowpath()?;
    weir.start_fastpath()?;
    weir.wait_until_able()?;
    // With DPDK the operator adds a route by which probes to the frontend leave through the arm,
    // via any neighbor. With XDP the probes' mark does that. Weir itself adds the source address.
    if plane == Plane::Dpdk {
        lab.weir.ip(&["route add 203.0.113.21/32 via 10.0.2.11 dev weir-out"])?;
    }
    wait_for_state(&mut weir, "10.0.2.11", "healthy")?;
    assert!(decap.counts().decapsulated(TunnelKind::Vxlan) > 3, "probes use the tunnel");
    // The health check fails although the host's other server still answers on its own address:
    // probes take the path of client packets.
    drop(server);
    wait_for_state(&mut weir, "10.0.2.11", "unhealthy")?;
    let _server = Server::start(&host.ns, "web-1", web)?;
    wait_for_state(&mut weir, "10.0.2.11", "healthy")?;
    drop(decap);
    wait_for_state(&mut weir, "10.0.2.11", "unhealthy")?;
    weir.stop()?;
    Ok(())
}
