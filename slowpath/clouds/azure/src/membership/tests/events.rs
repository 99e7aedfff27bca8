//! Tests of scheduled events.

use super::*;

/// Returns how often the probe began to fail for this reason for leaving.
fn count_leaving(harness: &Harness, why: &str) -> usize {
    harness.count(&format!("503 leaving: {why}"))
}

#[test]
fn event_starts_drain_is_acknowledged_last_and_process_stays() {
    for (kind, why) in [
        (EventKind::Reboot, "Azure is about to restart or move this machine"),
        (EventKind::Redeploy, "Azure is about to restart or move this machine"),
        (EventKind::Preempt, "Azure evicts this spot machine"),
        (EventKind::Terminate, "this machine is about to be deleted"),
    ] {
        let mut harness = Harness::ready(settings());
        harness.flows = 1;
        harness.events = vec![event("E1", kind, Some(CLOCK + 900))];
        harness.pass(100);
        assert_eq!((count_leaving(&harness, why), harness.first("503")), (1, 2));
        assert_eq!((harness.count("Acknowledge"), harness.membership.event()), (0, Some("E1")));
        harness.flows = 0;
        harness.pass(10);
        harness.assert_order(&["503", "Down", "Leave", "Acknowledge"]);
        assert_eq!(harness.acknowledged, ["E1"]);
        harness.events[0].started = true;
        harness.pass(3600);
        assert_eq!(
            harness.effects.iter().filter(|(_, effect)| effect.starts_with("exit")).count(),
            0
        );
        assert_eq!((harness.count("Acknowledge"), harness.count("200")), (1, 0));
        harness.forget();
        harness.handle(Event::Terminate);
        assert_eq!(harness.first("exit Drained"), 0);
    }
}

#[test]
fn drain_deadline_is_event_time_minus_removal_time() {
    let mut harness = Harness::ready(settings());
    harness.flows = 9;
    let ahead = (harness.now - harness.begun).as_secs() + 60;
    harness.events = vec![event("E1", EventKind::Preempt, Some(CLOCK + ahead + 30))];
    harness.hangs.push(Call::Leave);
    harness.pass(60);
    assert_eq!((harness.first("503"), harness.first("Leave")), (2, 10));
    assert_eq!(harness.first("leave-failed"), 30);
    // Without a membership to remove there is more time.
    let mut harness = Harness::foreign_member(settings());
    harness.settle();
    harness.flows = 9;
    harness.events = vec![event("E1", EventKind::Preempt, Some(CLOCK + 60 + 30))];
    harness.pass(60);
    assert_eq!(harness.first("Acknowledge"), 25);
    // Without a time, or with one far away, the drain limit applies; with a past one, the drain
    // ends at once.
    for (not_before, end) in [(None, 300), (Some(u64::MAX), 300), (Some(0), 2)] {
        let mut harness = Harness::ready(settings());
        harness.flows = 9;
        harness.events = vec![event("E1", EventKind::Reboot, not_before)];
        harness.pass(400);
        let cap = if end == 300 { harness.first("503") + 300 } else { end };
        assert_eq!(harness.first("Leave"), cap, "{not_before:?}");
    }
}

#[test]
fn canceled_event_returns_machine_to_service() {
    // The event is canceled during the drain.
    let mut harness = Harness::ready(settings());
    harness.flows = 1;
    harness.events = vec![event("E1", EventKind::Reboot, None)];
    harness.pass(10);
    harness.events.clear();
    harness.pass(20);
    harness.assert_order(&["503 leaving", "Down", "200", "Up"]);
    assert!(harness.membership.ready() && harness.membership.leaving().is_none());
    assert_eq!(harness.count("Acknowledge"), 0);
    // The machine is ready only after a query of the pools.
    harness.events = vec![event("E1", EventKind::Reboot, None)];
    harness.pass(10);
    harness.hangs.push(Call::ReadPools);
    harness.events.clear();
    harness.pass(10);
    assert!(harness.membership.leaving().is_none() && !harness.membership.ready());
    harness.hangs.clear();
    let answer = harness.answer(Call::ReadPools);
    harness.handle(Event::Answered(answer));
    harness.pass(10);
    assert!(harness.membership.ready());
    // The event is canceled after the machine has left the pools.
    harness.flows = 0;
    harness.events = vec![event("E2", EventKind::Reboot, None)];
    harness.pass(30);
    harness.assert_order(&["Leave", "Acknowledge"]);
    harness.forget();
    harness.events.clear();
    harness.pass(20);
    harness.assert_order(&["503 not a member", "Join", "200"]);
    assert!(harness.membership.ready());
    // After a SIGTERM, the end of the event does not return the machine to service.
    harness.flows = 1;
    harness.events = vec![event("E3", EventKind::Reboot, None)];
    harness.pass(10);
    harness.handle(Event::Terminate);
    harness.events.clear();
    harness.pass(10);
    harness.flows = 0;
    harness.forget();
    harness.pass(10);
    harness.assert_order(&["Leave", "exit Drained"]);
    assert_eq!((harness.count("200"), harness.count("Acknowledge")), (0, 0));
}

#[test]
fn sigterm_during_an_event_exits_after_acknowledgment() {
    let mut harness = Harness::ready(settings());
    harness.flows = 1;
    harness.events = vec![event("E1", EventKind::Terminate, None)];
    harness.pass(10);
    harness.handle(Event::Terminate);
    harness.flows = 0;
    harness.pass(10);
    harness.assert_order(&[
        "503 leaving: this machine",
        "503 leaving: SIGTERM",
        "Leave",
        "Acknowledge",
    ]);
    harness.assert_order(&["Acknowledge", "exit Drained"]);
    // An unanswered acknowledgment does not delay the exit.
    let mut harness = Harness::ready(settings());
    harness.events = vec![event("E1", EventKind::Terminate, None)];
    harness.hangs.push(Call::Acknowledge);
    harness.handle(Event::Terminate);
    harness.pass(60);
    assert_eq!(harness.first("exit Drained"), 5 + 20);
}

#[test]
fn freeze_and_unknown_events_are_reported_once_without_drain() {
    let mut harness = Harness::ready(settings());
    harness.events =
        vec![event("E1", EventKind::Freeze, None), event("E2", EventKind::Other, None)];
    harness.pass(100);
    assert_eq!(harness.visible_effects(), [(2, "event"), (2, "event")]);
    assert!(harness.membership.ready());
}

#[test]
fn reboot_started_before_first_query_does_not_drain() {
    let mut harness = Harness::ready(settings());
    harness.events = vec![event("E1", EventKind::Reboot, None)];
    harness.events[0].started = true;
    harness.restart();
    harness.pass(60);
    assert!(harness.membership.ready());
    assert_eq!(harness.count("Acknowledge"), 0);
    // A machine that is being deleted does not return to service.
    harness.events[0].kind = EventKind::Terminate;
    harness.restart();
    harness.pass(60);
    assert_eq!(
        (count_leaving(&harness, "this machine is about to be deleted"), harness.count("200")),
        (1, 0)
    );
    assert_eq!(harness.count("Acknowledge"), 0, "the event has started already");
}

#[test]
fn start_on_a_machine_being_deleted_does_not_join_once_that_is_known() {
    let mut harness = Harness::new(settings());
    harness.events = vec![event("E1", EventKind::Terminate, None)];
    harness.start();
    harness.pass(60);
    assert_eq!((harness.writes(), harness.count("200")), (0, 0));
    assert_eq!(harness.acknowledged, ["E1"]);
    // The first answer may take two minutes; the machine joins without it after 4 s.
    let mut harness = Harness::new(settings());
    harness.hangs.push(Call::ReadEvents);
    harness.start();
    harness.pass(30);
    assert_eq!((harness.first("Join"), harness.first("200")), (4, 4));
}

#[test]
fn several_events_are_each_acknowledged() {
    let mut harness = Harness::ready(settings());
    let (one, other) =
        (event("E1", EventKind::Reboot, None), event("E2", EventKind::Terminate, None));
    harness.events = vec![one, other];
    harness.pass(30);
    assert_eq!(harness.acknowledged, ["E1", "E2"]);
    // An event that comes after the machine has left the pools is acknowledged too.
    harness.events.push(event("E3", EventKind::Redeploy, None));
    harness.pass(30);
    assert_eq!(harness.acknowledged, ["E1", "E2", "E3"]);
    // A permanent error is reported, and the event starts by itself.
    harness.fails.insert(Call::Acknowledge, Failure::Invalid);
    harness.events.push(event("E4", EventKind::Redeploy, None));
    harness.forget();
    harness.pass(900);
    assert_eq!((harness.count("Acknowledge"), harness.count("call-rejected")), (1, 1));
}

#[test]
fn disabled_events_are_not_queried() {
    let mut harness = Harness::ready(AzureLifecycleSettings { events: false, ..settings() });
    harness.events = vec![event("E1", EventKind::Terminate, None)];
    harness.pass(60);
    assert_eq!((harness.count("ReadEvents"), harness.count("503")), (0, 0));
    assert!(harness.membership.ready());
}
