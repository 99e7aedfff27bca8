//! Daemons killed and stopped under load: no packet is lost while slowpath is dead, and no flow
//! moves when either daemon is killed.

use socket2::{Domain, SockAddr, Socket, Type};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tables::flow::Flows;
use tables::region::Region;
use tests::lab::client::ClientStats;
use tests::lab::gateway::{Check, GatewaySetup};
use tests::lab::scenario::{Totals, Wires, at_rest, changing_gateway, service};
use tests::lab::settings::Settings;
use tests::lab::stepper::Stepper;
use tests::lab::topology::{FRONTEND, Lab};
use tests::lab::traffic::Traffic;
use tests::lab::weir::Weir;

type Outcome = Result<(), Box<dyn Error>>;

/// Serializes the tests: two poll loops on two cores would disturb each other's measurements.
static ALONE: Mutex<()> = Mutex::new(());

/// The pause of a client's worker after each request.
const PAUSE: Duration = Duration::from_millis(5);

/// Asserts that no request failed and no connection moved to another backend.
#[track_caller]
fn assert_all_continued(clients: &[(&str, ClientStats)]) {
    for (name, stats) in clients {
        println!("{name}: {stats}");
        assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
    }
}

#[test]
fn slowpath_killed_under_load_loses_no_packet_and_moves_no_flow() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2", "web-3"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    let two = [service(&lab, &[(0, "active"), (1, "active")])];
    let mut weir = Weir::start(&lab, &Settings::default(), &two)?;
    let (before, wires) = (Totals::now(&weir)?, Wires::now(&lab)?);
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.wait_for_responses(300)?;
    let generation = weir.status()?.generation;
    weir.kill_slowpath()?;
    // The services file changes while slowpath is dead; the change is applied at the restart.
    traffic.wait_for_responses(600)?;
    weir.change_services(&[service(&lab, &[(0, "active"), (1, "active"), (2, "active")])])?;
    traffic.wait_for_responses(800)?;
    weir.start_slowpath()?;
    weir.wait_until_able()?;
    weir.wait_for_generation(generation + 1)?;
    traffic.wait_for_responses(traffic.answered() + 700)?;
    let clients = traffic.finish()?;
    assert_all_continued(&clients);
    let third: u64 = clients.iter().filter_map(|(_, stats)| stats.by_backend.get("web-3")).sum();
    assert!(third > 0, "the change of the file took effect after the restart");
    let report = gateway.stop()?;
    assert!(report.clean() && report.returned > 0 && report.answered > 0, "{report}");
    let (totals, frames) = at_rest(&lab, &mut weir, &before, &wires)?;
    println!("{totals}");
    assert_eq!(totals.sides().0, totals.sides().1, "{totals}");
    assert_eq!((frames.to_weir, frames.from_weir), (totals.rx, totals.tx));
    weir.stop()?;
    Ok(())
}

#[test]
fn fastpath_killed_under_load_moves_no_flow_and_connections_continue() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2", "web-3"])?;
    let gateway = lab.aws_gateway(GatewaySetup {
        return_timeout: Duration::from_secs(5),
        ..changing_gateway()
    })?;
    let all = [service(&lab, &[(0, "active"), (1, "active"), (2, "active")])];
    let mut weir = Weir::start(&lab, &Settings::default(), &all)?;
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.wait_for_responses(500)?;
    let killed = Instant::now();
    weir.kill_fastpath()?;
    weir.start_fastpath()?;
    let before = traffic.answered();
    traffic.wait_for_responses(before + 1)?;
    println!("the gap, from SIGKILL to the next answered request: {:.0?}", killed.elapsed());
    weir.wait_until_able()?;
    traffic.wait_for_responses(traffic.answered() + 700)?;
    let clients = traffic.finish()?;
    assert_all_continued(&clients);
    let report = gateway.stop()?;
    println!("{report}");
    // Packets on the wire during the gap are lost; all that returned are correct.
    let lost = report.failed(Check::Lost);
    let wrong: u64 = report.failures.values().map(|failure| failure.count).sum();
    assert!(lost > 0, "the gateway detected the gap: {report}");
    assert_eq!(wrong, lost, "{report}");
    weir.stop()?;
    Ok(())
}

/// The maximum number of instructions to step after a bucket is locked, so that a new flow's entry
/// is incomplete.
const DEEP: u32 = 600;

/// Begins connections that are not continued, a few hundred per second, until `stop` is set.
fn begin_connections(stop: &AtomicBool) {
    let web = SockAddr::from(SocketAddr::from((FRONTEND, 80)));
    while !stop.load(Ordering::Relaxed) {
        if let Ok(socket) = Socket::new(Domain::IPV4, Type::STREAM, None) {
            // In progress, or rejected by a full queue: both are acceptable.
            let _ = socket.set_nonblocking(true).and_then(|()| socket.connect(&web));
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Runs the lcore until it has locked one of the watched buckets, and steps it further while it
/// holds the lock.
fn step_into_a_lock(stepper: &mut Stepper, flows: &Flows<'_>) -> Outcome {
    let words = flows.lock_words();
    stepper.watch([1, 3, 5, 7].map(|eighth| &words[words.len() * eighth / 8]))?;
    let (begun, mut stops) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(60) {
        if !stepper.run_until_written(Duration::from_secs(60))? {
            break;
        }
        stops += 1;
        // A stop may also be the write that unlocks, or one of a tag in the word. After each stop
        // the depth is reduced: a better optimized program holds the lock for fewer instructions.
        let (mut steps, deep) = (0, DEEP / stops);
        while steps < deep && flows.locked() > 0 {
            stepper.step()?;
            steps += 1;
        }
        if flows.locked() > 0 {
            println!("{steps} instructions after it locked a bucket, at stop {stops}");
            return Ok(());
        }
    }
    Err(format!("the lcore never stopped in a bucket's lock, {stops} stops").into())
}

/// Returns the number in front of the last occurrence of `what` in the log.
fn logged_count(log: &str, what: &str) -> Option<u64> {
    let (before, _) = log.rsplit_once(what)?;
    before.trim_end().rsplit([' ', '"']).next()?.parse().ok()
}

#[test]
fn fastpath_killed_inside_a_bucket_lock_moves_no_flow_and_frees_the_lock() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2", "web-3"])?;
    let gateway = lab.aws_gateway(GatewaySetup {
        return_timeout: Duration::from_secs(5),
        ..changing_gateway()
    })?;
    let all = [service(&lab, &[(0, "active"), (1, "active"), (2, "active")])];
    // Few buckets, so that one of the watched ones is soon used.
    let settings = Settings {
        max_flows: 4096,
        more: "[flows]\ntcp_closed_s = 2\n".into(),
        ..Settings::default()
    };
    let mut weir = Weir::start(&lab, &settings, &all)?;
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.wait_for_responses(300)?;
    let region = Region::open(&lab.folder.shared("region"))?;
    let flows = Flows::new(&region);
    let fastpath = weir.fastpath.take().ok_or("no fastpath")?;
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let connections = lab.aws[0].thread("connections", move || begin_connections(&until))?;
    let mut stepper = Stepper::seize(&fastpath)?;
    let stepped = step_into_a_lock(&mut stepper, &flows);
    stop.store(true, Ordering::Relaxed);
    stepped?;
    let killed = Instant::now();
    stepper.kill(fastpath)?;
    assert!(flows.locked() > 0, "the dead lcore still holds the lock");
    let live = flows.live();
    connections.join().map_err(|_| "the thread that opens connections panicked")??;
    weir.start_fastpath()?;
    let before = traffic.answered();
    traffic.wait_for_responses(before + 1)?;
    println!("the gap, from SIGKILL to the next answered request: {:.0?}", killed.elapsed());
    weir.wait_until_able()?;
    let log = weir.fastpath.as_ref().ok_or("no fastpath")?.log();
    let count = |what| logged_count(&log, what);
    let (adopted, freed) = (count("flows taken over"), count("stale locks released"));
    let cleared = count("incomplete ones cleared");
    println!("of {live} flows {adopted:?} taken over, {cleared:?} cleared, {freed:?} locks freed");
    assert!(adopted.is_some_and(|n| n > 0) && freed.is_some_and(|n| n > 0), "{log}");
    assert_eq!(adopted, Some(live.into()), "each complete flow is adopted");
    traffic.wait_for_responses(before + 700)?;
    assert_all_continued(&traffic.finish()?);
    assert_eq!(flows.locked(), 0);
    let report = gateway.stop()?;
    let wrong: u64 = report.failures.values().map(|failure| failure.count).sum();
    assert_eq!(wrong, report.failed(Check::Lost), "{report}");
    weir.stop()?;
    Ok(())
}

#[test]
fn a_stopped_poll_loop_accounts_for_every_packet_it_received() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1"])?;
    let gateway = lab.aws_gateway(GatewaySetup {
        return_timeout: Duration::from_secs(5),
        ..changing_gateway()
    })?;
    let mut weir = Weir::start(&lab, &Settings::default(), &[service(&lab, &[(0, "active")])])?;
    let before = Totals::now(&weir)?;
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.wait_for_responses(300)?;
    let process = weir.fastpath.take().ok_or("no fastpath")?;
    process.stop(Duration::from_secs(10))?;
    let totals = Totals::now(&weir)?.since(&before);
    println!("{totals}");
    assert_eq!(totals.sides().0, totals.sides().1, "{totals}");
    weir.start_fastpath()?;
    weir.wait_until_able()?;
    traffic.wait_for_responses(traffic.answered() + 300)?;
    assert_all_continued(&traffic.finish()?);
    let report = gateway.stop()?;
    let wrong: u64 = report.failures.values().map(|failure| failure.count).sum();
    assert_eq!(wrong, report.failed(Check::Lost), "{report}");
    Ok(())
}
