//! Test of the history of events: it has drains, backends, sessions and restarts, also after
//! slowpath was killed.

use routers::Daemon;
use serde_json::{Value, json};
use tests::lab::settings::{Plane, write_services};

use crate::lab::{BgpLab, Network, Outcome, PREFIX4, Plan, alone, neighbor, policy, services_with};
use crate::routes::{frr, wait_until_present};

/// Returns the records of `weir events`, which reads the history's files if slowpath does not run.
fn events(bgp_lab: &BgpLab) -> Outcome<Vec<Value>> {
    let config = bgp_lab.lab.folder.file("weir.toml").display().to_string();
    let text = bgp_lab.command(&["--config", &config, "events", "--json"])?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Waits until the history has a record of this event, and returns the last one.
fn recorded(bgp_lab: &BgpLab, event: &str) -> Outcome<Value> {
    Ok(patience::eventually(event, || {
        let all = events(bgp_lab).map_err(|error| error.to_string())?;
        let found = all.iter().rev().find(|record| record["event"] == event);
        found.cloned().ok_or_else(|| format!("{all:?}"))
    }))
}

#[test]
fn the_history_has_drains_backends_sessions_and_restarts_also_after_a_kill() -> Outcome {
    let _alone = alone();
    let policy = policy(&neighbor(Network::Management, &json!({})));
    let mut bgp_lab = BgpLab::new(&Plan { plane: Plane::Dpdk, ..Plan::new(policy) })?;
    let mut frr = frr(&bgp_lab, Network::Management, &[])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    recorded(&bgp_lab, "bgp_session_established")?;
    assert_eq!(recorded(&bgp_lab, "data_plane_attached")?["fields"]["starts"], 1);

    bgp_lab.command(&["drain"])?;
    recorded(&bgp_lab, "drain_started")?;
    bgp_lab.command(&["drain", "--undo"])?;
    recorded(&bgp_lab, "drain_ended")?;

    // Nothing listens on this port of the backends.
    let checked =
        "health = { kind = \"tcp\", port = 9, interval_ms = 200, timeout_ms = 100, fall = 1 }";
    write_services(&bgp_lab.lab.folder, &services_with(&bgp_lab.lab, checked, &[0], "active"))?;
    let unhealthy = recorded(&bgp_lab, "backend_unhealthy")?;
    assert!(
        unhealthy["fields"]["service"].as_str().is_some_and(|name| name.starts_with("lab/web"))
    );
    recorded(&bgp_lab, "backends_empty")?;

    frr.kill(Daemon::Bgpd)?;
    assert_eq!(recorded(&bgp_lab, "bgp_session_closed")?["severity"], "warning");

    bgp_lab.weir.kill_slowpath()?;
    let before = events(&bgp_lab)?;
    bgp_lab.weir.kill_fastpath()?;
    bgp_lab.weir.start_fastpath()?;
    patience::eventually("the second start of the data plane", || {
        let log = bgp_lab.weir.fastpath.as_ref().map(|process| process.log()).unwrap_or_default();
        let starts = log.matches("event=data_plane_ready").count();
        patience::check(starts == 2, || log)
    });
    bgp_lab.weir.start_slowpath()?;
    recorded(&bgp_lab, "slowpath_ended_uncleanly")?;
    let attached = patience::eventually("the restart of the data plane", || {
        let found = recorded(&bgp_lab, "data_plane_attached").map_err(|e| e.to_string())?;
        let is_new = found["number"].as_u64() > Some(before.len() as u64);
        patience::check(is_new, || found.to_string()).map(|()| found)
    });
    assert_eq!(
        (&attached["fields"]["starts"], &attached["fields"]["unobserved"]),
        (&json!(1), &json!(true))
    );

    let all = events(&bgp_lab)?;
    assert_eq!(all[..before.len()], before[..], "nothing is lost");
    let numbers = all.iter().filter_map(|record| record["number"].as_u64());
    assert!(numbers.eq(1..=all.len() as u64), "{all:?}");
    Ok(())
}
