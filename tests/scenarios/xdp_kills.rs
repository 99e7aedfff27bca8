//! The XDP plane under load: its loader killed, and a change of plane during traffic.

use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;
use aya::{Ebpf, EbpfLoader};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tables::flow::Flows;
use tables::region::{Region, RegionLocation};
use tests::lab::client::ClientStats;
use tests::lab::gateway::{Check, GatewaySetup, Report};
use tests::lab::netns::Netns;
use tests::lab::process::find;
use tests::lab::scenario::{Totals, Wires, at_rest, changing_gateway, service};
use tests::lab::settings::{Plane, Settings};
use tests::lab::topology::{FRONTEND, Lab};
use tests::lab::traffic::Traffic;
use tests::lab::weir::Weir;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Serializes the tests: two labs on two cores would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

/// The pause of a client's worker after each request.
const PAUSE: Duration = Duration::from_millis(5);
/// The time limit of a condition or a response.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The connections of a steady client: one per worker, unless one had to be renewed.
const STEADY: u64 = 24;

/// The maximum number of ARP requests and neighbor solicitations that the appliance's kernel may
/// send; each of its other frames answers a frame that was passed to it.
const MAX_SOLICITATIONS: u64 = 64;

/// Returns settings that keep closed flows, so that the number of flows decreases only if flows are
/// lost.
fn settings(plane: Plane) -> Settings {
    Settings { plane, more: "[flows]\ntcp_closed_s = 3600\n".into(), ..Settings::default() }
}

/// Attaches a program that passes everything to a wire's far end, in native mode, until it is
/// dropped. Without a program there, a veth drops the frames that the other end's program sends.
fn pass_at(ns: &Netns, interface: &'static str) -> Outcome<Ebpf> {
    let attached = ns.run(move || {
        let attach = || -> Outcome<Ebpf> {
            let mut ebpf = EbpfLoader::new().load(xdp_test_programs::BASELINE)?;
            let program: &mut Xdp = ebpf.program_mut("pass").ok_or("no pass")?.try_into()?;
            program.load()?;
            program.attach(interface, XdpMode::Driver)?;
            Ok(ebpf)
        };
        attach().map_err(|e| format!("{interface}: {e:?}"))
    });
    Ok(attached??)
}

/// Asserts that no request failed, no connection moved to another backend, and steady connections
/// were never renewed.
#[track_caller]
fn assert_all_continued(clients: &[(&str, ClientStats)]) {
    for (name, stats) in clients {
        println!("{name}: {stats}");
        assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
        assert!(!name.ends_with("steady") || stats.connections == STEADY, "{name}: {stats}");
    }
}

/// Asserts that all packets that returned to the gateway are correct. Packets that were on the wire
/// during a gap may be lost.
#[track_caller]
fn assert_only_lost(report: &Report) {
    println!("{report}");
    let wrong: u64 = report.failures.values().map(|failure| failure.count).sum();
    assert_eq!(wrong, report.failed(Check::Lost), "{report}");
}

fn program_log(weir: &Weir) -> Outcome<String> {
    Ok(weir.fastpath.as_ref().ok_or("no data plane is running")?.log())
}

#[test]
fn a_loader_killed_under_load_in_native_mode_loses_no_packet_and_moves_no_flow() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2", "web-3"])?;
    let far_ends = [pass_at(&lab.cloud, "wire")?, pass_at(&lab.lan, "to-weir")?];
    let gateway = lab.aws_gateway(changing_gateway())?;
    let two = [service(&lab, &[(0, "active"), (1, "active")])];
    let mut weir = Weir::start(&lab, &settings(Plane::Xdp { native: true }), &two)?;
    let log = program_log(&weir)?;
    assert!(
        ["in0", "eg0"].iter().all(|name| log.contains(&format!("interface={name} mode=native"))),
        "{log}"
    );
    let (before, wires) = (Totals::now(&weir)?, Wires::now(&lab)?);
    let region = Region::open(RegionLocation::maps(lab.folder.maps()))?;
    let flows = Flows::new(&region);
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.wait_for_responses(300)?;
    let generation = weir.status()?.generation;
    weir.change_services(&[service(&lab, &[(0, "active"), (1, "active"), (2, "active")])])?;
    weir.wait_for_generation(generation + 1)?;
    traffic.wait_for_responses(traffic.answered() + 300)?;

    let (live, killed) = (flows.live(), Instant::now());
    weir.kill_fastpath()?;
    let begun = traffic.answered();
    while killed.elapsed() < Duration::from_secs(1) {
        traffic.wait_for_responses(traffic.answered() + 50)?;
    }
    traffic.wait_for_responses(begun + 500)?;
    let (alone, orphaned) = (traffic.answered() - begun, flows.live());
    println!("{alone} responses by each gateway in {:.1?} without a loader", killed.elapsed());
    assert!(orphaned > live, "new flows without a loader: {live}, then {orphaned}");

    weir.start_fastpath()?;
    weir.wait_until_able()?;
    let log = program_log(&weir)?;
    assert!(!log.contains("reattached"), "replaced in place: {log}");
    traffic.wait_for_responses(traffic.answered() + 500)?;
    let later = flows.live();
    println!("flows: {live} before, {orphaned} without a loader, {later} after");
    assert!(later > orphaned, "no flow ended: {orphaned}, then {later}");
    let clients = traffic.finish()?;
    assert_all_continued(&clients);
    let third: u64 = clients.iter().filter_map(|(_, stats)| stats.by_backend.get("web-3")).sum();
    assert!(third > 0, "the third backend serves");
    gateway.wait_until_at_rest();
    let report = gateway.stop()?;
    assert!(report.clean() && report.returned > 0 && report.answered > 0, "{report}");

    let (totals, frames) = at_rest(&lab, &mut weir, &before, &wires)?;
    println!("{totals}; {frames:?}");
    assert_eq!(totals.sides().0, totals.sides().1, "{totals}");
    assert_eq!(frames.to_weir, totals.rx, "{totals}");
    let own = frames.from_weir.checked_sub(totals.tx).ok_or("more frames sent than counted")?;
    assert!(own <= totals.to_kernel + MAX_SOLICITATIONS, "{own}: {totals}");
    weir.stop()?;
    drop(far_ends);
    Ok(())
}

/// Makes one request on a connection; returns the name of the backend.
fn request(stream: &mut TcpStream) -> Outcome<String> {
    stream.write_all(b"GET /1/10 HTTP/1.1\r\nhost: lab\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    stream.read_exact(&mut [0; 10])?;
    let head = String::from_utf8(answer)?;
    let backend = head.lines().find_map(|line| line.strip_prefix("x-backend: "));
    Ok(backend.ok_or("no backend name in the response")?.to_owned())
}

/// A connection without traffic while planes change.
struct IdleConnection {
    stream: TcpStream,
    backend: String,
}

impl IdleConnection {
    fn new(ns: &Netns) -> Outcome<Self> {
        let web = SocketAddr::from((FRONTEND, 80));
        let mut stream = ns.run(move || TcpStream::connect_timeout(&web, TIMEOUT))??;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let backend = request(&mut stream)?;
        Ok(Self { stream, backend })
    }

    /// Asserts that the connection's flow exists before the next request, and that the same backend
    /// answers.
    fn assert_flow_continues(&mut self, weir: &Weir) -> Outcome {
        let flows = weir.flows_of(self.stream.local_addr()?)?;
        assert_eq!(flows.len(), 1, "{flows:?}");
        assert_eq!(request(&mut self.stream)?, self.backend);
        Ok(())
    }
}

#[test]
fn switching_planes_under_load_keeps_tables_flows_and_connections() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2", "web-3"])?;
    let gateway = lab.aws_gateway(GatewaySetup {
        return_timeout: Duration::from_secs(5),
        ..changing_gateway()
    })?;
    let all = [service(&lab, &[(0, "active"), (1, "active"), (2, "active")])];
    let (xdp, dpdk) = (settings(Plane::Xdp { native: false }), settings(Plane::Dpdk));
    let (maps, file) = (
        RegionLocation::maps(lab.folder.maps()),
        RegionLocation::from(&lab.folder.shared("region")),
    );
    let mut weir = Weir::start(&lab, &xdp, &all)?;
    let before = Totals::now(&weir)?;
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.wait_for_responses(500)?;
    let mut silent = IdleConnection::new(&lab.aws[0])?;
    silent.assert_flow_continues(&weir)?;
    for (next, from, to) in [(&dpdk, &maps, &file), (&xdp, &file, &maps)] {
        let live = Flows::new(&Region::open(from)?).live();
        let generation = weir.status()?.generation;
        let begun = Instant::now();
        weir.switch_plane(&lab, next)?;
        let answered = traffic.answered();
        traffic.wait_for_responses(answered + 1)?;
        println!("now {}, next response after {:.1?}", next.plane.program(), begun.elapsed());
        // The daemon that starts first takes over the region of the other plane, and logs that.
        let (logs, taken) =
            (weir.logs(), format!("taken over from the region {}", from.path().display()));
        assert!(logs.contains(&taken), "{taken}: {logs}");
        let log = program_log(&weir)?;
        assert!(log.contains("flows taken over"), "{log}");
        assert!(!from.exists(), "exactly one region");
        let now = Flows::new(&Region::open(to)?).live();
        assert!(live > 0 && now >= live, "{now} of {live} flows are present");
        assert!(weir.status()?.generation >= generation, "the tables are unchanged");
        silent.assert_flow_continues(&weir)?;
        traffic.wait_for_responses(answered + 500)?;
    }
    assert_all_continued(&traffic.finish()?);
    assert_only_lost(&gateway.stop()?);
    // The wires also counted frames for other destinations, so only Weir's counters are checked.
    weir.wait_for("equal counters", TIMEOUT, |weir| {
        let totals = Totals::now(weir)?.since(&before);
        Ok((totals.sides().0 == totals.sides().1, totals.to_string()))
    })?;
    let totals = Totals::now(&weir)?.since(&before);
    println!("{totals}; {:?}", totals.drops);
    weir.stop()?;
    Ok(())
}

/// With exit code 1 the service manager starts a program again, with exit code 2 it does not. The
/// other plane's process may end and free the region, so that a later start may succeed. A program
/// that is not that of the configured plane never succeeds.
#[test]
fn a_region_in_use_by_the_other_plane_is_an_error_to_retry() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::new(&["web-1"])?;
    let mut weir = Weir::prepare(&lab, &settings(Plane::Dpdk), &[service(&lab, &[(0, "active")])])?;
    let config = lab.folder.file("weir.toml");
    let end = |program: &str, plane: &str| -> Outcome<(Option<i32>, String)> {
        // If the program starts instead, `timeout` ends it, and the exit code is 124.
        let mut command = Command::new("timeout");
        command.arg("30").arg(find(program, program)?);
        command.arg("--config").arg(&config).args(["--set", &format!("plane={plane}")]);
        let output = lab.weir.run(move || command.output())??;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    weir.start_fastpath()?;
    weir.start_slowpath()?;
    weir.wait_until_able()?;
    let (code, text) = end("ebpf-fallback", "xdp")?;
    assert!(code == Some(1) && text.contains("a fastpath of the other plane still uses"), "{text}");
    for (program, plane, remedy) in [
        ("fastpath", "xdp", "start ebpf-fallback instead"),
        ("ebpf-fallback", "dpdk", "start fastpath instead"),
    ] {
        let (code, text) = end(program, plane)?;
        assert!(code == Some(2) && text.contains(remedy), "{program}: {code:?} {text}");
    }
    // The next attempt after the other plane has ended succeeds.
    weir.switch_plane(&lab, &settings(Plane::Xdp { native: false }))?;
    Ok(weir.stop()?)
}
