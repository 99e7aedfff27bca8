//! ECMP over two appliances with a real router: one is drained, partly killed and completely
//! killed, while clients have connections through both.
//!
//! Tunnel services lose no connection: the backend of a flow depends only on the flow and the
//! tables, and both appliances have the same seed and therefore the same tables. NAT services
//! lose the connections of the appliance that traffic leaves, which alone has their translations.
//! They are counted here; new connections succeed immediately.

mod appliance;
mod fleet;
mod monitor;
mod traffic;

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use routers::{DEFAULT_TIMEOUT, Daemon, wait_for};

use tests::lab::settings::Plane;

use fleet::{BFD_TIME, Fleet, Mode, Plan, SessionPort};
use traffic::{LASTING, Traffic, assert_no_losses};

type Outcome = Result<(), Box<dyn Error>>;

/// Serializes the tests: four daemons on two cores would disturb each other's measurements.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Responses of each client that show that it continues.
const SOME: u64 = 100;

/// The number of new connections that show that they work.
const NEW: u64 = 60;

/// How long a drain announces GRACEFUL_SHUTDOWN: longer than the checks in the meantime.
const SHUTDOWN: Duration = Duration::from_secs(15);

/// Waits until the clients progress and both appliances carry their share.
fn assert_both_carry(fleet: &Fleet, traffic: &Traffic) -> Outcome {
    let packets = || -> Result<[u64; 2], Box<dyn Error>> {
        let [one, two] = &fleet.appliances;
        Ok([one.packets()?, two.packets()?])
    };
    let before = packets()?;
    traffic.wait_for_responses(SOME)?;
    let after = packets()?;
    let carried = [after[0] - before[0], after[1] - before[1]];
    println!("packets by appliance: {carried:?}");
    let min = (carried[0] + carried[1]) / 20;
    assert!(carried.iter().all(|packets| *packets > min), "both appliances carry: {carried:?}");
    Ok(())
}

/// Checks the packet equation of the appliances whose poll loop was never killed.
fn assert_balanced(fleet: &mut Fleet, numbers: &[usize]) -> Outcome {
    for number in numbers {
        let totals = fleet.appliances[*number].balanced_totals()?;
        println!("weir-{}: {totals} {:?}", number + 1, totals.drops);
    }
    Ok(())
}

/// Why the router stops using an appliance. BGP's hold time would cause it as well, 90 s later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// BFD received nothing for its detection time, and the router ended the session.
    Bfd,
    /// The appliance withdrew its routes or marked them; the session remains.
    Update,
}

/// Waits until the router routes to the second appliance alone, prints the time, and checks the
/// cause.
#[track_caller]
fn assert_traffic_moves(
    fleet: &Fleet,
    what: &str,
    begun: Instant,
    cause: Cause,
    sessions: u64,
) -> Outcome {
    if cause == Cause::Bfd {
        fleet.wait_for_bfd_state(1, false)?;
        println!("{what}: BFD noticed after {:.2?} (detection time {BFD_TIME:?})", begun.elapsed());
    }
    fleet.wait_until_routed([false, true])?;
    println!("{what}: traffic moved after {:.2?}", begun.elapsed());
    let logs = || [Daemon::Bfdd, Daemon::Bgpd].map(|daemon| fleet.frr.log(daemon)).concat();
    match cause {
        Cause::Bfd => {
            let ended = fleet.last_notification(1)?;
            assert!(!fleet.is_established(1)?, "{what}: the session has not ended\n{}", logs());
            assert!(ended.contains("BFD Down"), "{what}: ended by {ended}\n{}", logs());
        }
        Cause::Update => {
            assert_eq!(fleet.sessions(1)?, sessions, "{what}: the session restarted\n{}", logs());
            assert!(fleet.is_established(1)?, "{what}: the session restarted\n{}", logs());
        }
    }
    Ok(())
}

#[test]
fn a_drained_appliance_leaves_and_rejoins_without_a_lost_connection() -> Outcome {
    let _alone = alone();
    let mut fleet = Fleet::start(&Plan::new(Mode::Tunnel, SessionPort::Data))?;
    let traffic = fleet.traffic(true)?;
    assert_both_carry(&fleet, &traffic)?;
    let sessions = fleet.sessions(1)?;

    let begun = Instant::now();
    fleet.appliances[0].drain(false)?;
    assert_traffic_moves(&fleet, "drained", begun, Cause::Update, sessions)?;
    // Packets under way have arrived before the clients have made progress.
    traffic.wait_for_responses(SOME)?;
    let before = fleet.appliances[0].packets()?;
    traffic.wait_for_responses(SOME)?;
    assert_eq!(fleet.appliances[0].packets()?, before, "a drained appliance receives no packets");

    fleet.appliances[0].drain(true)?;
    fleet.wait_until_routed([true, true])?;
    assert_both_carry(&fleet, &traffic)?;
    assert_eq!(fleet.sessions(1)?, sessions, "the session did not restart");
    assert_no_losses(&traffic.finish()?);
    assert_balanced(&mut fleet, &[0, 1])?;
    fleet.stop()?;
    Ok(())
}

/// The poll loop of the first appliance is killed under load, and restarted.
fn fastpath_killed(port: SessionPort, cause: Cause) -> Outcome {
    let _alone = alone();
    let mut fleet = Fleet::start(&Plan::new(Mode::Tunnel, port))?;
    let traffic = fleet.traffic(true)?;
    assert_both_carry(&fleet, &traffic)?;

    let (sessions, begun) = (fleet.sessions(1)?, Instant::now());
    fleet.appliances[0].weir.kill_fastpath()?;
    assert_traffic_moves(&fleet, "fastpath killed", begun, cause, sessions)?;
    traffic.wait_for_responses(SOME)?;

    fleet.appliances[0].restart()?;
    fleet.wait_until_routed([true, true])?;
    fleet.wait_until_served([true, true])?;
    assert_both_carry(&fleet, &traffic)?;
    assert_no_losses(&traffic.finish()?);
    assert_balanced(&mut fleet, &[1])?;
    fleet.stop()?;
    Ok(())
}

#[test]
fn a_killed_fastpath_carrying_bgp_is_bypassed_after_bfd_goes_down() -> Outcome {
    // The XDP programs, and with them BFD, survive their loader. slowpath then withdraws the
    // routes.
    let is_xdp = Plane::from_env().is_xdp();
    fastpath_killed(SessionPort::Data, if is_xdp { Cause::Update } else { Cause::Bfd })
}

#[test]
fn a_killed_fastpath_withdraws_routes_with_bgp_on_the_management_nic() -> Outcome {
    fastpath_killed(SessionPort::Management, Cause::Update)
}

#[test]
fn a_killed_slowpath_changes_no_route_and_loses_no_packet() -> Outcome {
    let _alone = alone();
    let mut fleet = Fleet::start(&Plan::new(Mode::Tunnel, SessionPort::Data))?;
    let traffic = fleet.traffic(true)?;
    assert_both_carry(&fleet, &traffic)?;
    let (sessions, routes, (_, before)) = (fleet.sessions(1)?, fleet.monitor()?, fleet.routed()?);

    fleet.appliances[0].weir.kill_slowpath()?;
    // The router sees the end of the connection first, so that it waits for the restart; that BFD
    // then goes down as well changes nothing.
    fleet.wait_for_bfd_state(1, false)?;
    traffic.wait_for_responses(SOME)?;
    assert_eq!(fleet.routed()?.0, Some([true, true]));
    fleet.appliances[0].restart()?;
    fleet.wait_until_reannounced(1, sessions)?;
    fleet.wait_for_bfd_state(1, true)?;
    assert_both_carry(&fleet, &traffic)?;
    assert_eq!(fleet.routed()?.0, Some([true, true]));
    assert_eq!(routes.changes(&before)?, Vec::<String>::new(), "the routes did not change");
    assert_no_losses(&traffic.finish()?);
    assert_balanced(&mut fleet, &[0, 1])?;
    fleet.stop()?;
    Ok(())
}

#[test]
fn a_dead_appliance_is_bypassed_after_bfd_goes_down_without_a_lost_connection() -> Outcome {
    let _alone = alone();
    let mut fleet = Fleet::start(&Plan::new(Mode::Tunnel, SessionPort::Data))?;
    let traffic = fleet.traffic(true)?;
    assert_both_carry(&fleet, &traffic)?;

    let (sessions, begun) = (fleet.sessions(1)?, Instant::now());
    // The link first: nothing more is sent, not even the ends of connections.
    fleet.appliances[0].link(false)?;
    fleet.appliances[0].kill()?;
    assert_traffic_moves(&fleet, "appliance dead", begun, Cause::Bfd, sessions)?;
    traffic.wait_for_responses(SOME)?;

    fleet.appliances[0].link(true)?;
    fleet.appliances[0].restart()?;
    fleet.wait_until_routed([true, true])?;
    fleet.wait_until_served([true, true])?;
    assert_both_carry(&fleet, &traffic)?;
    assert_no_losses(&traffic.finish()?);
    assert_balanced(&mut fleet, &[1])?;
    fleet.stop()?;
    Ok(())
}

/// Checks that new connections, one after the other by four clients, are all served.
fn new_connections_work(fleet: &Fleet) -> Outcome {
    let begun = Instant::now();
    let stats = fleet.new_connections(NEW)?.finish()?;
    println!("new connections, {:.1?}: {stats}", begun.elapsed());
    assert_eq!((stats.right, stats.failed, stats.connections), (NEW, 0, NEW), "{stats}");
    Ok(())
}

/// Checks that, when traffic leaves the first appliance, exactly its connections are lost.
fn assert_own_connections_lost(fleet: &Fleet, traffic: &Traffic, flows: u64) -> Outcome {
    new_connections_work(fleet)?;
    traffic.wait_for_losses(flows)?;
    traffic.wait_for_responses(SOME)?;
    println!("lost: {} of {} connections; expected {flows}", traffic.lost(), 2 * LASTING);
    assert_eq!(traffic.lost(), flows, "exactly the appliance's connections are lost");
    Ok(())
}

/// Checks the return of the first appliance: the router sends it connections of the other one.
/// These are lost as well, and the remaining ones are not.
fn check_losses_at_return(fleet: &Fleet, traffic: &Traffic) -> Outcome {
    let before = traffic.lost();
    fleet.wait_until_routed([true, true])?;
    fleet.wait_until_served([true, true])?;
    let carried = fleet.appliances[0].packets()?;
    new_connections_work(fleet)?;
    assert!(fleet.appliances[0].packets()? > carried, "new connections use the appliance");
    traffic.wait_for_responses(SOME)?;
    let lost = traffic.lost() - before;
    println!("lost at its return: {lost} of {} connections", 2 * LASTING);
    assert!(lost > 0 && lost < 2 * LASTING, "{lost}");
    Ok(())
}

#[test]
fn a_drained_nat_appliance_sends_graceful_shutdown_and_loses_only_its_own_flows() -> Outcome {
    let _alone = alone();
    let plan = Plan { graceful_shutdown: SHUTDOWN, ..Plan::new(Mode::Nat, SessionPort::Data) };
    let mut fleet = Fleet::start(&plan)?;
    let traffic = fleet.traffic(false)?;
    assert_both_carry(&fleet, &traffic)?;
    assert_eq!(traffic.lost(), 0, "{:?}", traffic.stats());
    let flows = fleet.appliances[0].flows()?;

    let (sessions, begun) = (fleet.sessions(1)?, Instant::now());
    fleet.appliances[0].drain(false)?;
    assert_traffic_moves(&fleet, "drained, GRACEFUL_SHUTDOWN", begun, Cause::Update, sessions)?;
    // The router has another route and uses it immediately. Until all routers do, no packet is
    // routed to a dead end; but flows move, since the router keeps no flow state.
    assert_eq!(fleet.announced(1)?.as_deref(), Some("graceful-shutdown"));
    assert_own_connections_lost(&fleet, &traffic, flows)?;
    wait_for("the withdrawal", SHUTDOWN + DEFAULT_TIMEOUT, || {
        let announced = fleet.announced(1)?;
        Ok((announced.is_none(), format!("{announced:?}")))
    })?;
    assert!(begun.elapsed() >= SHUTDOWN, "withdrawn after {:?}", begun.elapsed());
    assert_eq!(traffic.lost(), flows, "the withdrawal loses no further connection");

    fleet.appliances[0].drain(true)?;
    check_losses_at_return(&fleet, &traffic)?;
    traffic.finish()?;
    assert_balanced(&mut fleet, &[0, 1])?;
    fleet.stop()?;
    Ok(())
}

#[test]
fn a_dead_nat_appliance_loses_only_its_own_flows_and_new_connections_work() -> Outcome {
    let _alone = alone();
    let mut fleet = Fleet::start(&Plan::new(Mode::Nat, SessionPort::Data))?;
    let traffic = fleet.traffic(false)?;
    assert_both_carry(&fleet, &traffic)?;
    assert_eq!(traffic.lost(), 0, "{:?}", traffic.stats());
    let flows = fleet.appliances[0].flows()?;

    let (sessions, begun) = (fleet.sessions(1)?, Instant::now());
    fleet.appliances[0].link(false)?;
    fleet.appliances[0].kill()?;
    assert_traffic_moves(&fleet, "appliance dead", begun, Cause::Bfd, sessions)?;
    assert_own_connections_lost(&fleet, &traffic, flows)?;

    fleet.appliances[0].link(true)?;
    fleet.appliances[0].restart()?;
    check_losses_at_return(&fleet, &traffic)?;
    traffic.finish()?;
    assert_balanced(&mut fleet, &[1])?;
    fleet.stop()?;
    Ok(())
}
