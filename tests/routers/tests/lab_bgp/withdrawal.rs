//! Tests that a route exists only while its service works. The session uses the management network,
//! so that it does not depend on the data plane.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use routers::Frr;
use serde_json::json;
use tests::lab::settings::{Plane, write_services};

use crate::lab::{
    BgpLab, Network, Outcome, PREFIX4, PREFIX6, Plan, alone, neighbor, policy, services,
    services_with,
};
use crate::routes::{
    assert_within, frr, session_number, shown_for, wait_until_gone, wait_until_present,
};

/// Maximum time until a route is withdrawn, as documented.
const WITHDRAWAL_LIMIT: Duration = Duration::from_secs(1);
/// Number of attempts, each of which must keep the limit.
const ATTEMPTS: usize = 3;

/// Starts the appliance and FRR, and waits until FRR has both routes.
fn bgp_lab(plane: Plane, config: &'static str) -> Outcome<(BgpLab, Frr)> {
    let policy = policy(&neighbor(Network::Management, &json!({})));
    let mut bgp_lab = BgpLab::new(&Plan { plane, config, ..Plan::new(policy) })?;
    let frr = frr(&bgp_lab, Network::Management, &[])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    Ok((bgp_lab, frr))
}

/// Breaks something by `act` and repairs it, [`ATTEMPTS`] times. Asserts that the IPv4 route is
/// withdrawn within the limit, the IPv6 route as well (its time is not measured), that both return
/// after the repair, and that the session never ends.
fn break_and_repair(
    what: &str,
    (mut bgp_lab, frr): (BgpLab, Frr),
    act: impl Fn(&mut BgpLab) -> Outcome,
    repair: impl Fn(&mut BgpLab) -> Outcome,
) -> Outcome {
    let before = session_number(&frr, Network::Management)?;
    let mut took = Vec::new();
    for _ in 0..ATTEMPTS {
        let begun = Instant::now();
        act(&mut bgp_lab)?;
        took.push(shown_for(&mut bgp_lab, &frr, PREFIX4, begun)?);
        wait_until_gone(&mut bgp_lab, &frr, PREFIX6)?;
        repair(&mut bgp_lab)?;
        wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
        wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    }
    assert_within(&format!("{what}: route still shown by FRR after"), &took, WITHDRAWAL_LIMIT);
    assert_eq!(session_number(&frr, Network::Management)?, before, "the session did not restart");
    bgp_lab.check_responses()
}

#[test]
fn routes_are_withdrawn_within_a_second_of_a_stalled_poll_loop() -> Outcome {
    let _alone = alone();
    let signal = |signal: Signal| {
        move |bgp_lab: &mut BgpLab| -> Outcome {
            Ok(bgp_lab.weir.fastpath.as_ref().ok_or("no fastpath")?.signal(signal)?)
        }
    };
    let bgp_lab = bgp_lab(Plane::from_env(), "")?;
    break_and_repair("fastpath stopped", bgp_lab, signal(Signal::SIGSTOP), signal(Signal::SIGCONT))
}

#[test]
fn routes_are_withdrawn_within_a_second_of_a_killed_poll_loop() -> Outcome {
    let _alone = alone();
    let bgp_lab = bgp_lab(Plane::Dpdk, "")?;
    let kill = |bgp_lab: &mut BgpLab| Ok(bgp_lab.weir.kill_fastpath()?);
    let start = |bgp_lab: &mut BgpLab| {
        bgp_lab.weir.start_fastpath()?;
        Ok(bgp_lab.weir.wait_until_able()?)
    };
    break_and_repair("fastpath killed", bgp_lab, kill, start)
}

/// The XDP programs forward packets without their loader, but slowpath no longer sees that they do.
#[test]
fn routes_are_withdrawn_within_a_second_of_a_killed_xdp_loader() -> Outcome {
    let _alone = alone();
    let bgp_lab = bgp_lab(Plane::Xdp { native: false }, "")?;
    let kill = |bgp_lab: &mut BgpLab| Ok(bgp_lab.weir.kill_fastpath()?);
    let start = |bgp_lab: &mut BgpLab| {
        bgp_lab.weir.start_fastpath()?;
        Ok(bgp_lab.weir.wait_until_able()?)
    };
    break_and_repair("XDP loader killed", bgp_lab, kill, start)
}

/// Only with XDP: DPDK's af_packet driver, which replaces a NIC in the lab, reports every link as
/// up.
#[test]
fn routes_are_withdrawn_within_a_second_of_a_link_down() -> Outcome {
    let _alone = alone();
    let bgp_lab = bgp_lab(Plane::Xdp { native: false }, "")?;
    let set = |how: &'static str| {
        move |bgp_lab: &mut BgpLab| -> Outcome {
            Ok(bgp_lab.lab.cloud.ip(&[&format!("link set wire {how}")])?)
        }
    };
    break_and_repair("link down", bgp_lab, set("down"), set("up"))
}

#[test]
fn a_local_service_is_advertised_while_it_has_a_local_backend() -> Outcome {
    let _alone = alone();
    let (mut bgp_lab, frr) = bgp_lab(Plane::from_env(), "")?;
    let local = "external_policy = \"local\"";
    let write = |bgp_lab: &BgpLab, hosts: &[usize], state| {
        write_services(&bgp_lab.lab.folder, &services_with(&bgp_lab.lab, local, hosts, state))
    };
    write(&bgp_lab, &[0], "active")?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    let before = session_number(&frr, Network::Management)?;
    for (hosts, state) in [(&[0][..], "terminating"), (&[], "active")] {
        write(&bgp_lab, hosts, state)?;
        wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
        wait_until_gone(&mut bgp_lab, &frr, PREFIX6)?;
        write(&bgp_lab, &[0, 1], "active")?;
        wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
        wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    }
    assert_eq!(session_number(&frr, Network::Management)?, before, "the session did not restart");
    bgp_lab.check_responses()
}

#[test]
fn a_service_without_backends_is_advertised_as_configured() -> Outcome {
    let _alone = alone();
    for (config, stays) in [("", true), ("[bgp]\nno_backends = \"withdraw\"\n", false)] {
        let (mut bgp_lab, frr) = bgp_lab(Plane::from_env(), config)?;
        let mut all = services_with(&bgp_lab.lab, "", &[], "active");
        all[1] = services(&bgp_lab.lab, "").remove(1);
        let generation = bgp_lab.weir.status()?.generation;
        write_services(&bgp_lab.lab.folder, &all)?;
        bgp_lab.weir.wait_for_generation(generation + 1)?;
        if stays {
            // A withdrawal would be visible after this time.
            std::thread::sleep(WITHDRAWAL_LIMIT);
            wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
        } else {
            wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
        }
        // The other service is not affected.
        wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
        write_services(&bgp_lab.lab.folder, &services(&bgp_lab.lab, ""))?;
        wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
        bgp_lab.check_responses()?;
    }
    Ok(())
}
