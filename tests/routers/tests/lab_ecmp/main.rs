//! Tests of ECMP over two appliances with a real router: one appliance is drained, or one or both
//! of its daemons are killed, while clients have connections through both appliances.
//!
//! Tunnel services lose no connection: the backend of a flow depends only on the flow and the
//! tables, and both appliances have the same seed and therefore the same tables. NAT services lose
//! the connections of the appliance that traffic leaves, which alone has their translations. The
//! tests count these losses; new connections succeed immediately.

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

/// Number of further responses of each client that show that it makes progress.
const SOME: u64 = 100;

/// Number of new connections to open in a check that new connections work.
const NEW: u64 = 60;

/// How long a drain announces GRACEFUL_SHUTDOWN before it withdraws: longer than the checks in the
/// meantime take.
const GRACEFUL_SHUTDOWN: Duration = Duration::from_secs(15);

/// Waits until each client has made progress, and asserts that each appliance received more than
/// 5 % of the packets meanwhile.
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

/// Checks that the packet counters of these appliances (0 or 1) balance. Their fastpath must never
/// have been killed, which loses packets uncounted.
fn assert_balanced(fleet: &mut Fleet, indices: &[usize]) -> Outcome {
    for index in indices {
        let totals = fleet.appliances[*index].balanced_totals()?;
        println!("weir-{}: {totals} {:?}", index + 1, totals.drops);
    }
    Ok(())
}

/// Why the router stops using an appliance. BGP's hold timer would have the same effect, but only
/// after 90 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// BFD received nothing for its detection time, and the router ended the session.
    Bfd,
    /// The appliance withdrew its routes or announced them with GRACEFUL_SHUTDOWN; the session
    /// remains.
    Update,
}

/// Waits until the router routes to the second appliance alone, prints the time since `begun`, and
/// checks the cause. `sessions` is the earlier number of sessions with the first appliance.
#[track_caller]
fn assert_traffic_moves(
    fleet: &Fleet,
    what: &str,
    begun: Instant,
    cause: Cause,
    sessions: u64,
) -> Outcome {
    if cause == Cause::Bfd {
        fleet.wait_for_bfd_down(1)?;
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
    let traffic = fleet.steady_and_fresh_traffic()?;
    assert_both_carry(&fleet, &traffic)?;
    let sessions = fleet.sessions(1)?;

    let begun = Instant::now();
    fleet.appliances[0].drain()?;
    assert_traffic_moves(&fleet, "drained", begun, Cause::Update, sessions)?;
    // Packets in flight have arrived once the clients have made progress.
    traffic.wait_for_responses(SOME)?;
    let before = fleet.appliances[0].packets()?;
    traffic.wait_for_responses(SOME)?;
    assert_eq!(fleet.appliances[0].packets()?, before, "a drained appliance receives no packets");

    fleet.appliances[0].undo_drain()?;
    fleet.wait_until_routed([true, true])?;
    assert_both_carry(&fleet, &traffic)?;
    assert_eq!(fleet.sessions(1)?, sessions, "the session did not restart");
    assert_no_losses(&traffic.finish()?);
    assert_balanced(&mut fleet, &[0, 1])?;
    fleet.stop()?;
    Ok(())
}

/// Kills fastpath of the first appliance under load and restarts it. Connections must not be lost.
fn fastpath_killed(port: SessionPort, cause: Cause) -> Outcome {
    let _alone = alone();
    let mut fleet = Fleet::start(&Plan::new(Mode::Tunnel, port))?;
    let traffic = fleet.steady_and_fresh_traffic()?;
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
    // With XDP, fastpath is only the loader: the programs still carry BFD when it is killed, and
    // slowpath withdraws the routes.
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
    let traffic = fleet.steady_and_fresh_traffic()?;
    assert_both_carry(&fleet, &traffic)?;
    let (sessions, routes, (_, before)) = (fleet.sessions(1)?, fleet.monitor()?, fleet.routed()?);

    fleet.appliances[0].weir.kill_slowpath()?;
    // The router sees the end of the TCP connection first and keeps the routes for the restart;
    // that BFD then goes down as well changes nothing.
    fleet.wait_for_bfd_down(1)?;
    traffic.wait_for_responses(SOME)?;
    assert_eq!(fleet.routed()?.0, Some([true, true]));
    fleet.appliances[0].restart()?;
    fleet.wait_until_reannounced(1, sessions)?;
    fleet.wait_for_bfd_up(1)?;
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
    let traffic = fleet.steady_and_fresh_traffic()?;
    assert_both_carry(&fleet, &traffic)?;

    let (sessions, begun) = (fleet.sessions(1)?, Instant::now());
    // The link goes down first, so that nothing is sent any more, not even the end of a connection.
    fleet.appliances[0].set_link_down()?;
    fleet.appliances[0].kill()?;
    assert_traffic_moves(&fleet, "appliance dead", begun, Cause::Bfd, sessions)?;
    traffic.wait_for_responses(SOME)?;

    fleet.appliances[0].set_link_up()?;
    fleet.appliances[0].restart()?;
    fleet.wait_until_routed([true, true])?;
    fleet.wait_until_served([true, true])?;
    assert_both_carry(&fleet, &traffic)?;
    assert_no_losses(&traffic.finish()?);
    assert_balanced(&mut fleet, &[1])?;
    fleet.stop()?;
    Ok(())
}

/// Checks that [`NEW`] new connections are all served.
fn assert_new_connections_work(fleet: &Fleet) -> Outcome {
    let begun = Instant::now();
    let stats = fleet.new_connections(NEW)?.finish()?;
    println!("new connections, {:.1?}: {stats}", begun.elapsed());
    assert_eq!((stats.right, stats.failed, stats.connections), (NEW, 0, NEW), "{stats}");
    Ok(())
}

/// Checks that exactly the `flows` connections of the first appliance are lost when traffic leaves
/// it.
fn assert_own_connections_lost(fleet: &Fleet, traffic: &Traffic, flows: u64) -> Outcome {
    assert_new_connections_work(fleet)?;
    traffic.wait_for_losses(flows)?;
    traffic.wait_for_responses(SOME)?;
    println!("lost: {} of {} connections; expected {flows}", traffic.lost(), 2 * LASTING);
    assert_eq!(traffic.lost(), flows, "exactly the appliance's connections are lost");
    Ok(())
}

/// Checks that, when the first appliance returns, some connections are lost but not all: the router
/// moves connections of the other appliance to it.
fn check_losses_at_return(fleet: &Fleet, traffic: &Traffic) -> Outcome {
    let before = traffic.lost();
    fleet.wait_until_routed([true, true])?;
    fleet.wait_until_served([true, true])?;
    let carried = fleet.appliances[0].packets()?;
    assert_new_connections_work(fleet)?;
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
    let plan =
        Plan { graceful_shutdown: GRACEFUL_SHUTDOWN, ..Plan::new(Mode::Nat, SessionPort::Data) };
    let mut fleet = Fleet::start(&plan)?;
    let traffic = fleet.steady_traffic()?;
    assert_both_carry(&fleet, &traffic)?;
    assert_eq!(traffic.lost(), 0, "{:?}", traffic.stats());
    let flows = fleet.appliances[0].flows()?;

    let (sessions, begun) = (fleet.sessions(1)?, Instant::now());
    fleet.appliances[0].drain()?;
    assert_traffic_moves(&fleet, "drained, GRACEFUL_SHUTDOWN", begun, Cause::Update, sessions)?;
    // The router has another route and uses it at once. The marked route stays until all routers
    // have moved, so that no packet is black-holed. Flows move nevertheless, because the router
    // keeps no flow state.
    assert_eq!(fleet.announced(1)?.as_deref(), Some("graceful-shutdown"));
    assert_own_connections_lost(&fleet, &traffic, flows)?;
    wait_for("the withdrawal", GRACEFUL_SHUTDOWN + DEFAULT_TIMEOUT, || {
        let announced = fleet.announced(1)?;
        Ok((announced.is_none(), format!("{announced:?}")))
    })?;
    assert!(begun.elapsed() >= GRACEFUL_SHUTDOWN, "withdrawn after {:?}", begun.elapsed());
    assert_eq!(traffic.lost(), flows, "the withdrawal loses no further connection");

    fleet.appliances[0].undo_drain()?;
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
    let traffic = fleet.steady_traffic()?;
    assert_both_carry(&fleet, &traffic)?;
    assert_eq!(traffic.lost(), 0, "{:?}", traffic.stats());
    let flows = fleet.appliances[0].flows()?;

    let (sessions, begun) = (fleet.sessions(1)?, Instant::now());
    fleet.appliances[0].set_link_down()?;
    fleet.appliances[0].kill()?;
    assert_traffic_moves(&fleet, "appliance dead", begun, Cause::Bfd, sessions)?;
    assert_own_connections_lost(&fleet, &traffic, flows)?;

    fleet.appliances[0].set_link_up()?;
    fleet.appliances[0].restart()?;
    check_losses_at_return(&fleet, &traffic)?;
    traffic.finish()?;
    assert_balanced(&mut fleet, &[1])?;
    fleet.stop()?;
    Ok(())
}
