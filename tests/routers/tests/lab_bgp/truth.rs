//! Routes exist only while the service behind them works: over the management network, whose
//! session does not depend on the data plane.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use routers::Frr;
use serde_json::json;
use tests::lab::settings::{Plane, write_services};

use crate::place::{
    FOUR, Outcome, Over, Place, Plan, SIX, alone, neighbor, policy, served, services,
};
use crate::routes::{epoch, frr, shown_for, wait_until_gone, wait_until_there, within};

/// The promised time until the route is withdrawn.
const PROMISED: Duration = Duration::from_secs(1);
/// The number of attempts, each of which must keep the promise.
const TRIES: usize = 3;

fn place(plane: Plane, config: &'static str) -> Outcome<(Place, Frr)> {
    let policy = policy(&neighbor(Over::Management, &json!({})));
    let mut place = Place::new(&Plan { plane, config, ..Plan::new(policy) })?;
    let frr = frr(&place, Over::Management, &[])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    wait_until_there(&mut place, &frr, SIX)?;
    Ok((place, frr))
}

/// Breaks something and repairs it, a few times; the session never ends.
fn broken(
    what: &str,
    (mut place, frr): (Place, Frr),
    act: impl Fn(&mut Place) -> Outcome,
    mend: impl Fn(&mut Place) -> Outcome,
) -> Outcome {
    let before = epoch(&frr, Over::Management)?;
    let mut took = Vec::new();
    for _ in 0..TRIES {
        let begun = Instant::now();
        act(&mut place)?;
        took.push(shown_for(&mut place, &frr, FOUR, begun)?);
        wait_until_gone(&mut place, &frr, SIX)?;
        mend(&mut place)?;
        wait_until_there(&mut place, &frr, FOUR)?;
        wait_until_there(&mut place, &frr, SIX)?;
    }
    within(&format!("{what}, shown by FRR for"), &took, PROMISED);
    assert_eq!(epoch(&frr, Over::Management)?, before, "the session lived on");
    place.asks()
}

#[test]
fn routes_go_within_a_second_when_the_poll_loop_stands_still() -> Outcome {
    let _alone = alone();
    let signal = |signal: Signal| {
        move |place: &mut Place| -> Outcome {
            Ok(place.weir.fastpath.as_ref().ok_or("no fastpath")?.signal(signal)?)
        }
    };
    let place = place(Plane::asked(), "")?;
    broken("it stands still", place, signal(Signal::SIGSTOP), signal(Signal::SIGCONT))
}

#[test]
fn routes_go_within_a_second_when_the_poll_loop_is_killed() -> Outcome {
    let _alone = alone();
    let place = place(Plane::Dpdk, "")?;
    let kill = |place: &mut Place| Ok(place.weir.kill_fastpath()?);
    let start = |place: &mut Place| {
        place.weir.start_fastpath()?;
        Ok(place.weir.wait_until_able()?)
    };
    broken("it is killed", place, kill, start)
}

/// The XDP programs forward packets without their loader, but its liveness is no longer reported.
#[test]
fn routes_go_within_a_second_when_the_loader_of_xdp_is_killed() -> Outcome {
    let _alone = alone();
    let place = place(Plane::Xdp { native: false }, "")?;
    let kill = |place: &mut Place| Ok(place.weir.kill_fastpath()?);
    let start = |place: &mut Place| {
        place.weir.start_fastpath()?;
        Ok(place.weir.wait_until_able()?)
    };
    broken("its loader is killed", place, kill, start)
}

/// With XDP: DPDK's af_packet, which replaces a NIC in the lab, reports every link as up.
#[test]
fn routes_go_within_a_second_when_a_link_goes_down() -> Outcome {
    let _alone = alone();
    let place = place(Plane::Xdp { native: false }, "")?;
    let set = |how: &'static str| {
        move |place: &mut Place| -> Outcome {
            Ok(place.lab.cloud.ip(&[&format!("link set wire {how}")])?)
        }
    };
    broken("the link is down", place, set("down"), set("up"))
}

#[test]
fn a_local_service_is_announced_while_it_has_a_local_backend() -> Outcome {
    let _alone = alone();
    let (mut place, frr) = place(Plane::asked(), "")?;
    let local = "external_policy = \"local\"";
    let say = |place: &Place, hosts: &[usize], state| {
        write_services(&place.lab.folder, &served(&place.lab, local, hosts, state))
    };
    say(&place, &[0], "active")?;
    wait_until_there(&mut place, &frr, FOUR)?;
    let before = epoch(&frr, Over::Management)?;
    for (hosts, state) in [(&[0][..], "terminating"), (&[], "active")] {
        say(&place, hosts, state)?;
        wait_until_gone(&mut place, &frr, FOUR)?;
        wait_until_gone(&mut place, &frr, SIX)?;
        say(&place, &[0, 1], "active")?;
        wait_until_there(&mut place, &frr, FOUR)?;
        wait_until_there(&mut place, &frr, SIX)?;
    }
    assert_eq!(epoch(&frr, Over::Management)?, before, "the session lived on");
    place.asks()
}

#[test]
fn a_service_without_backends_is_announced_or_not_as_is_configured() -> Outcome {
    let _alone = alone();
    for (config, stays) in [("", true), ("[bgp]\nno_backends = \"withdraw\"\n", false)] {
        let (mut place, frr) = place(Plane::asked(), config)?;
        let mut all = served(&place.lab, "", &[], "active");
        all[1] = services(&place.lab, "").remove(1);
        let generation = place.weir.status()?.generation;
        write_services(&place.lab.folder, &all)?;
        place.weir.wait_for_generation(generation + 1)?;
        if stays {
            // As long as the other case takes, and longer.
            std::thread::sleep(PROMISED);
            wait_until_there(&mut place, &frr, FOUR)?;
        } else {
            wait_until_gone(&mut place, &frr, FOUR)?;
        }
        // The other service is not affected.
        wait_until_there(&mut place, &frr, SIX)?;
        write_services(&place.lab.folder, &services(&place.lab, ""))?;
        wait_until_there(&mut place, &frr, FOUR)?;
        place.asks()?;
    }
    Ok(())
}
