//! Leaving the pools, against the emulator: SIGTERM, scheduled events, and processes that are
//! killed and restarted.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

use std::time::Duration;

use azure::membership::Exit;
use cloud_emulators::azure::AzureState;
use cloud_emulators::azure::operation::{End, Outcome};
use cloud_emulators::faults::{Fault, Rule};
use clouds::report::Report;
use simulation::TemporaryFile;

mod machine;
use machine::{
    FIRST, Machine, PUT_NIC, PUT_POOL, Setup, admin_state, change_balancer, listed_addresses, nic,
    pool, referenced_pools,
};

const BY_IP: &str = "membership = \"ip\"";

async fn ready(setup: Setup) -> Machine {
    let mut machine = setup.start().await;
    machine.ready().await;
    machine
}

/// Returns the number of pools that the machine is in, by either kind of entry.
fn memberships(cloud: &AzureState) -> usize {
    referenced_pools(cloud, &nic(0)).len() + listed_addresses(cloud, "weir").len()
}

#[tokio::test]
async fn sigterm_sets_down_waits_for_flows_then_removes_membership() {
    for line in ["", BY_IP] {
        let mut machine = ready(Setup::new().await.with(line)).await;
        machine.appliance.set_flows(3);
        machine.pass(2).await;
        machine.terminate();
        let report = machine.until("leaving", |report| report.drain.is_some()).await;
        assert_eq!(report.drain.unwrap().reason, "leaving: SIGTERM received");
        machine.until_probe("leaving: SIGTERM received").await;
        machine.until_state("down", |w| admin_state(w, "weir", &FIRST.address()) == "Down").await;
        machine.pass(60).await;
        assert_eq!(machine.azure.with(|cloud| memberships(cloud)), 1, "flows are left");
        assert!(!machine.azure.with(|cloud| cloud.serves(&pool("weir"), &FIRST.address())));
        machine.appliance.set_flows(0);
        assert_eq!(machine.wait_for_exit().await, Exit::Drained);
        assert_eq!(machine.azure.with(|cloud| memberships(cloud)), 0);
        assert_eq!(machine.report().phase, "over");
        let writes = (machine.call_count(PUT_POOL, "ok"), machine.call_count(PUT_NIC, "ok"));
        assert_eq!(writes, if line.is_empty() { (1, 2) } else { (3, 0) });
    }
}

#[tokio::test]
async fn remove_setting_selects_removed_memberships() {
    // The setting, whether another party made the membership, and whether it remains.
    for (remove, found, stays) in [
        ("own", false, false),
        ("own", true, true),
        ("always", false, false),
        ("always", true, false),
        ("never", false, true),
        ("never", true, true),
    ] {
        for line in ["", BY_IP] {
            let mut machine = ready(Setup::new().await.with(line)).await;
            if found {
                // Without its state file the next process finds an entry of unknown origin.
                machine.kill().await;
            }
            let line = format!("{line}\nremove = \"{remove}\"");
            let setup =
                if found { Setup::restart_of(&machine) } else { Setup::new().await.with(&line) };
            let mut machine =
                ready(if found { setup.with(&remove_line(remove)) } else { setup }).await;
            machine.terminate();
            assert_eq!(machine.wait_for_exit().await, Exit::Drained);
            let members = machine.azure.with(|cloud| memberships(cloud));
            assert_eq!(members, usize::from(stays), "{remove}, found: {found}, {line:?}");
        }
    }
}

fn remove_line(remove: &str) -> String {
    format!("remove = \"{remove}\"")
}

#[tokio::test]
async fn drain_lasts_until_the_cap_at_most() {
    for line in ["", BY_IP] {
        let mut machine = ready(Setup::new().await.with(line).with("drain_cap_s = 40")).await;
        machine.appliance.set_flows(1);
        machine.azure.with(|cloud| {
            cloud.pace = Duration::from_secs(5);
            let operation = "PUT*".into();
            cloud.outcomes.push(Outcome { operation, end: End::Hang, times: None });
        });
        let began = machine.azure.with(|cloud| cloud.now);
        machine.clock.run_during_calls(true);
        machine.terminate();
        assert_eq!(machine.wait_for_exit().await, Exit::CapOver);
        let took = (machine.azure.with(|cloud| cloud.now) - began).as_secs();
        assert!((40..=75).contains(&took), "{took} s on the emulator's clock, {line:?}");
    }
    let mut machine = ready(Setup::new().await.with("drain_cap_s = 40")).await;
    machine.appliance.set_flows(1);
    machine.azure.fault(Rule::always("*", Fault::Status(503)));
    machine.terminate();
    assert_eq!(machine.wait_for_exit().await, Exit::CapOver);
    let has_finding = |name: &str| machine.report().findings.iter().any(|found| found.name == name);
    assert!(has_finding("call-failed") && has_finding("leave-failed"));
}

#[tokio::test]
async fn earlier_retries_do_not_delay_leaving() {
    let mut machine = ready(Setup::new().await.with("drain_cap_s = 40")).await;
    let refused = Fault::Refuse { status: 503, code: "ServiceUnavailable".into() };
    machine.azure.fault(Rule::always("GET loadBalancers", refused));
    machine.azure.take_calls();
    let azure = machine.azure.clone();
    machine
        .until("called without success", |_| {
            azure.calls().iter().any(|call| call.operation == "GET loadBalancers")
        })
        .await;
    machine.azure.clear_faults();
    machine.terminate();
    assert_eq!(machine.wait_for_exit().await, Exit::Drained);
    assert_eq!(machine.azure.with(|cloud| memberships(cloud)), 0);
}

#[tokio::test]
async fn second_sigterm_or_first_before_discovery_exits_at_once() {
    let mut machine = ready(Setup::new().await).await;
    machine.appliance.set_flows(1);
    machine.terminate();
    machine.until("leaving", |report| report.phase == "leaving").await;
    machine.terminate();
    assert_eq!(machine.wait_for_exit().await, Exit::Forced);
    let setup = Setup::new().await;
    setup.azure.fault(Rule::always("LIST loadBalancers", Fault::Hang));
    let mut machine = setup.start().await;
    machine.terminate();
    assert_eq!(machine.wait_for_exit().await, Exit::Drained);
    assert_eq!(machine.azure.with(|cloud| memberships(cloud)), 0);
}

#[tokio::test]
async fn killed_process_recovers_and_becomes_ready() {
    for line in ["", BY_IP] {
        for after in 0..24 {
            let file = TemporaryFile::new(&format!("killed-{}-{after}", line.len()));
            let mut setup = Setup::new().await.with(line);
            setup.azure.with(|cloud| cloud.pace = Duration::from_secs(3));
            setup.journal = Some(file.0.clone());
            let mut machine = setup.start().await;
            // The process is killed after this number of calls to Resource Manager. If it becomes
            // ready before, it first gets a SIGTERM.
            let azure = machine.azure.clone();
            let enough = 4 + after;
            let calls = || azure.calls().iter().filter(|c| !c.path.contains("metadata")).count();
            let mut leaving = false;
            machine
                .until("so many calls", |report: &Report| {
                    calls() >= enough || report.phase == "ready"
                })
                .await;
            if calls() < enough {
                machine.ready().await;
                machine.terminate();
                leaving = true;
                let over = |report: &Report| calls() >= enough || report.phase == "over";
                machine.until("so many calls", over).await;
            }
            machine.kill().await;
            let mut again = Setup::restart_of(&machine).start().await;
            again.ready().await;
            let state = again.azure.with(|cloud| admin_state(cloud, "weir", &FIRST.address()));
            assert_ne!(state, "Down", "after {enough} calls, leaving: {leaving}");
            again.terminate();
            again.wait_for_exit().await;
            let members = again.azure.with(|cloud| memberships(cloud));
            assert_eq!(members, 0, "killed after {enough} calls, leaving: {leaving}");
        }
    }
}

#[tokio::test]
async fn event_drains_acknowledges_and_waits_for_the_machines_end() {
    for kind in ["Reboot", "Redeploy", "Terminate", "Preempt"] {
        let mut machine = ready(Setup::new().await).await;
        machine.appliance.set_flows(1);
        let id =
            machine.azure.with(|cloud| cloud.schedule(kind, "weir-0", Duration::from_secs(120)));
        let began = machine.azure.with(|cloud| cloud.now);
        let report = machine.until("leaving", |report| report.drain.is_some()).await;
        assert!(report.drain.unwrap().reason.starts_with("leaving: "));
        machine.pass(20).await;
        machine.appliance.set_flows(0);
        let started = |w: &AzureState| w.events.iter().any(|event| event.id == id && event.started);
        machine.until_state("acknowledged", started).await;
        let took = machine.azure.with(|cloud| cloud.now) - began;
        assert!(took.as_secs() < 115, "{kind}: Azure need not wait: {took:?}");
        assert_eq!(machine.azure.with(|cloud| memberships(cloud)), 0);
        machine.until_probe("leaving").await;
        // The probe fails until the event is over; then the machine returns to service by itself.
        let over = |cloud: &AzureState| cloud.events.is_empty();
        machine.until_state("the event's end", over).await;
        machine.ready().await;
        assert_eq!(machine.azure.with(|cloud| memberships(cloud)), 1);
    }
}

/// Returns a machine that went out of service for a reboot and back when the reboot was canceled.
async fn ready_after_canceled_reboot() -> Machine {
    let mut machine = ready(Setup::new().await).await;
    machine.appliance.set_flows(1);
    machine.azure.with(|cloud| cloud.schedule("Reboot", "weir-0", Duration::from_secs(600)));
    machine.until_state("down", |w| admin_state(w, "weir", &FIRST.address()) == "Down").await;
    machine.azure.with(|cloud| {
        cloud.events.clear();
        cloud.incarnation += 1;
    });
    machine.ready().await;
    machine
}

#[tokio::test]
async fn canceled_event_returns_to_service_and_freeze_is_only_reported() {
    let mut machine = ready_after_canceled_reboot().await;
    assert_ne!(machine.azure.with(|cloud| admin_state(cloud, "weir", &FIRST.address())), "Down");
    machine.azure.with(|cloud| cloud.schedule("Freeze", "weir-0", Duration::from_secs(60)));
    machine.until_found("event").await;
    machine.azure.with(|cloud| cloud.schedule("Reboot", "weir-1", Duration::from_secs(60)));
    machine.pass(30).await;
    assert_eq!(machine.report().phase, "ready", "events of other machines are ignored");
}

#[tokio::test]
async fn retries_have_pauses_again_after_a_canceled_event() {
    let mut machine = ready_after_canceled_reboot().await;
    let refused = Fault::Refuse { status: 503, code: "ServiceUnavailable".into() };
    machine.azure.fault(Rule::always("GET loadBalancers", refused));
    machine.azure.take_calls();
    // The pause after the first attempt never ends.
    machine.clock.block_retries(true);
    machine.clock.run_during_calls(true);
    let azure = machine.azure.clone();
    let attempts =
        || azure.calls().iter().filter(|call| call.operation == "GET loadBalancers").count();
    machine.until("called without success", |_| attempts() > 0).await;
    machine.pass(20).await;
    assert_eq!(attempts(), 1);
}

#[tokio::test]
async fn missing_probe_is_reported_and_down_is_not_set() {
    let mut machine = ready(Setup::new().await).await;
    machine.azure.with(|cloud| {
        change_balancer(cloud, |balancer| {
            let rule = &mut balancer["properties"]["loadBalancingRules"][0]["properties"];
            rule.as_object_mut().unwrap().remove("probe");
        });
    });
    machine.until_found("rule-unprobed").await;
    machine.appliance.set_flows(1);
    machine.terminate();
    machine.until_found("no-probe").await;
    machine.pass(10).await;
    assert_eq!(machine.call_count(PUT_POOL, "ok"), 0);
    machine.appliance.set_flows(0);
    assert_eq!(machine.wait_for_exit().await, Exit::Drained);
}
