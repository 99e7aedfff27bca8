//! The health endpoint, probed over loopback and as a cloud does, over the wire and the exception
//! path; and the counter of packets that the kernel did not accept.

use std::error::Error;
use std::time::{Duration, Instant};
use tests::lab::scenario::service;
use tests::lab::settings::Settings;
use tests::lab::topology::{INGRESS, Lab};
use tests::lab::weir::{Weir, probe};

#[test]
fn health_probes_follow_the_start_death_and_restart_of_fastpath() -> Result<(), Box<dyn Error>> {
    let lab = Lab::new(&["web-1"])?;
    let services = [service(&lab, &[(0, "active")])];
    let mut weir = Weir::prepare(&lab, &Settings::default(), &services)?;
    weir.start_slowpath()?;
    let soon = Duration::from_secs(30);
    weir.wait_for("503 with a reason without a fastpath", soon, |weir| {
        let response = weir.probe()?;
        Ok((response.starts_with("HTTP/1.1 503") && response.contains("lcore"), response))
    })?;
    weir.start_fastpath()?;
    weir.wait_until_able()?;
    // ARP, TCP and HTTP of the probe pass wire, poll loop, TAP and kernel, and return that way.
    let response = probe(&lab.cloud, INGRESS)?;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    weir.wait_for("the probe's packets in the exception path's counters", soon, |weir| {
        let count = weir.metrics()?.sum("weir_packets_total", &["direction=\"to_kernel\""]);
        Ok((count >= 5.0, count.to_string()))
    })?;

    weir.kill_fastpath()?;
    let killed = Instant::now();
    weir.wait_for("503 after fastpath was killed", soon, |weir| {
        let response = weir.probe()?;
        Ok((response.starts_with("HTTP/1.1 503"), response))
    })?;
    println!("503 was returned {:.0?} after the kill", killed.elapsed());
    assert!(probe(&lab.cloud, INGRESS).is_err(), "probes on the wire are not answered");
    weir.start_fastpath()?;
    weir.wait_until_able()?;
    let response = probe(&lab.cloud, INGRESS)?;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    weir.stop()?;
    Ok(())
}

#[test]
fn only_weir_answers_for_its_addresses() -> Result<(), Box<dyn Error>> {
    let lab = Lab::new(&["web-1"])?;
    let services = [service(&lab, &[(0, "active")])];
    let mut weir = Weir::start(&lab, &Settings::default(), &services)?;
    assert!(probe(&lab.cloud, INGRESS).is_ok());
    // The TAPs, their addresses and the health endpoint still exist. Only the poll loop has ended:
    // if the kernel used the ports as well, it would answer the probe.
    weir.kill_fastpath()?;
    assert!(probe(&lab.cloud, INGRESS).is_err());
    Ok(())
}

#[test]
fn packets_rejected_by_the_kernel_are_counted() -> Result<(), Box<dyn Error>> {
    let lab = Lab::new(&["web-1"])?;
    let services = [service(&lab, &[(0, "active")])];
    let mut weir = Weir::start(&lab, &Settings::default(), &services)?;
    assert!(probe(&lab.cloud, INGRESS).is_ok());
    let lost = |weir: &Weir| -> Result<f64, tests::lab::LabError> {
        Ok(weir.metrics()?.sum("weir_kernel_lost_packets_total", &["arm=\"ingress\""]))
    };
    assert_eq!(lost(&weir)?, 0.0);
    // A TAP that is down accepts nothing: the probe's packets are lost after Weir's counters.
    lab.weir.ip(&["link set weir-in down"])?;
    assert!(probe(&lab.cloud, INGRESS).is_err());
    weir.wait_for("the count of lost packets", Duration::from_secs(30), |weir| {
        let lost = lost(weir)?;
        Ok((lost > 0.0, format!("{lost}")))
    })?;
    let none = weir.metrics()?.sum("weir_kernel_lost_packets_total", &["arm=\"egress\""]);
    assert_eq!(none, 0.0, "only the arm of the TAP loses packets");
    weir.stop()?;
    Ok(())
}
