//! Tests of scheduled events.

use super::*;

fn left_for(stage: &Stage, why: &str) -> usize {
    stage.count(&format!("503 leaving: {why}"))
}

#[test]
fn an_event_starts_the_drain_is_acknowledged_last_and_the_process_stays() {
    for (kind, why) in [
        (EventKind::Reboot, "Azure is about to restart or move this machine"),
        (EventKind::Redeploy, "Azure is about to restart or move this machine"),
        (EventKind::Preempt, "Azure takes this spot machine back"),
        (EventKind::Terminate, "this machine is about to be deleted"),
    ] {
        let mut stage = Stage::ready(settings());
        stage.flows = 1;
        stage.events = vec![event("E1", kind, Some(CLOCK + 900))];
        stage.pass(100);
        assert_eq!((left_for(&stage, why), stage.first("503")), (1, 2));
        assert_eq!((stage.count("Acknowledge"), stage.life.event()), (0, Some("E1")));
        stage.flows = 0;
        stage.pass(10);
        stage.order(&["503", "Down", "Leave", "Acknowledge"]);
        assert_eq!(stage.acknowledged, ["E1"]);
        stage.events[0].started = true;
        stage.pass(3600);
        assert_eq!(stage.heard.iter().filter(|(_, told)| told.starts_with("exit")).count(), 0);
        assert_eq!((stage.count("Acknowledge"), stage.count("200")), (1, 0));
        stage.forget();
        stage.hear(Event::Terminate);
        assert_eq!(stage.first("exit Drained"), 0);
    }
}

#[test]
fn the_drain_is_bounded_by_the_events_time_less_what_leaving_takes() {
    let mut stage = Stage::ready(settings());
    stage.flows = 9;
    let ahead = (stage.now - stage.begun).as_secs() + 60;
    stage.events = vec![event("E1", EventKind::Preempt, Some(CLOCK + ahead + 30))];
    stage.hangs.push(Call::Leave);
    stage.pass(60);
    assert_eq!((stage.first("503"), stage.first("Leave")), (2, 10));
    assert_eq!(stage.first("leave-failed"), 30);
    // Without a membership to remove there is more time.
    let mut stage = Stage::found(settings());
    stage.calm();
    stage.flows = 9;
    stage.events = vec![event("E1", EventKind::Preempt, Some(CLOCK + 60 + 30))];
    stage.pass(60);
    assert_eq!(stage.first("Acknowledge"), 25);
    // Without a time, or with one that is past or far away, the drain limit applies.
    for (not_before, end) in [(None, 300), (Some(u64::MAX), 300), (Some(0), 2)] {
        let mut stage = Stage::ready(settings());
        stage.flows = 9;
        stage.events = vec![event("E1", EventKind::Reboot, not_before)];
        stage.pass(400);
        let cap = if end == 300 { stage.first("503") + 300 } else { end };
        assert_eq!(stage.first("Leave"), cap, "{not_before:?}");
    }
}

#[test]
fn an_event_that_vanishes_brings_it_back() {
    // During the drain.
    let mut stage = Stage::ready(settings());
    stage.flows = 1;
    stage.events = vec![event("E1", EventKind::Reboot, None)];
    stage.pass(10);
    stage.events.clear();
    stage.pass(20);
    stage.order(&["503 leaving", "Down", "200", "Up"]);
    assert!(stage.life.ready() && stage.life.leaving().is_none());
    assert_eq!(stage.count("Acknowledge"), 0);
    // It is ready once a query has shown that.
    stage.events = vec![event("E1", EventKind::Reboot, None)];
    stage.pass(10);
    stage.hangs.push(Call::Look);
    stage.events.clear();
    stage.pass(10);
    assert!(stage.life.leaving().is_none() && !stage.life.ready());
    stage.hangs.clear();
    let answer = stage.answer(Call::Look);
    stage.hear(Event::Told(answer));
    stage.pass(10);
    assert!(stage.life.ready());
    // After it has left the pools.
    stage.flows = 0;
    stage.events = vec![event("E2", EventKind::Reboot, None)];
    stage.pass(30);
    stage.order(&["Leave", "Acknowledge"]);
    stage.forget();
    stage.events.clear();
    stage.pass(20);
    stage.order(&["503 not a member", "Join", "200"]);
    assert!(stage.life.ready());
    // Unless a SIGTERM was received too.
    stage.flows = 1;
    stage.events = vec![event("E3", EventKind::Reboot, None)];
    stage.pass(10);
    stage.hear(Event::Terminate);
    stage.events.clear();
    stage.pass(10);
    stage.flows = 0;
    stage.forget();
    stage.pass(10);
    stage.order(&["Leave", "exit Drained"]);
    assert_eq!((stage.count("200"), stage.count("Acknowledge")), (0, 0));
}

#[test]
fn sigterm_during_an_event_ends_after_the_acknowledgement() {
    let mut stage = Stage::ready(settings());
    stage.flows = 1;
    stage.events = vec![event("E1", EventKind::Terminate, None)];
    stage.pass(10);
    stage.hear(Event::Terminate);
    stage.flows = 0;
    stage.pass(10);
    stage.order(&["503 leaving: this machine", "503 leaving: SIGTERM", "Leave", "Acknowledge"]);
    stage.order(&["Acknowledge", "exit Drained"]);
    // An unanswered acknowledgment does not delay the exit.
    let mut stage = Stage::ready(settings());
    stage.events = vec![event("E1", EventKind::Terminate, None)];
    stage.hangs.push(Call::Acknowledge);
    stage.hear(Event::Terminate);
    stage.pass(60);
    assert_eq!(stage.first("exit Drained"), 5 + 20);
}

#[test]
fn a_freeze_and_what_we_do_not_know_are_told_once_and_nobody_leaves() {
    let mut stage = Stage::ready(settings());
    stage.events = vec![event("E1", EventKind::Freeze, None), event("E2", EventKind::Other, None)];
    stage.pass(100);
    assert_eq!(stage.told(), [(2, "event"), (2, "event")]);
    assert!(stage.life.ready());
}

#[test]
fn a_restart_that_had_begun_before_we_came_is_what_brought_us_here() {
    let mut stage = Stage::ready(settings());
    stage.events = vec![event("E1", EventKind::Reboot, None)];
    stage.events[0].started = true;
    stage.restart();
    stage.pass(60);
    assert!(stage.life.ready());
    assert_eq!(stage.count("Acknowledge"), 0);
    // A machine that is being deleted does not return to service.
    stage.events[0].kind = EventKind::Terminate;
    stage.restart();
    stage.pass(60);
    assert_eq!(
        (left_for(&stage, "this machine is about to be deleted"), stage.count("200")),
        (1, 0)
    );
    assert_eq!(stage.count("Acknowledge"), 0, "it began already");
}

#[test]
fn a_start_into_a_machine_that_is_being_deleted_joins_nothing() {
    let mut stage = Stage::new(settings());
    stage.events = vec![event("E1", EventKind::Terminate, None)];
    stage.start();
    stage.pass(60);
    assert_eq!((stage.writes(), stage.count("200")), (0, 0));
    assert_eq!(stage.acknowledged, ["E1"]);
    // The first answer may take two minutes, which is too long to wait for.
    let mut stage = Stage::new(settings());
    stage.hangs.push(Call::AskEvents);
    stage.start();
    stage.pass(30);
    assert_eq!((stage.first("Join"), stage.first("200")), (4, 4));
}

#[test]
fn several_events_are_each_acknowledged() {
    let mut stage = Stage::ready(settings());
    let (one, other) =
        (event("E1", EventKind::Reboot, None), event("E2", EventKind::Terminate, None));
    stage.events = vec![one, other];
    stage.pass(30);
    assert_eq!(stage.acknowledged, ["E1", "E2"]);
    // Also one that comes after the machine has left the pools.
    stage.events.push(event("E3", EventKind::Redeploy, None));
    stage.pass(30);
    assert_eq!(stage.acknowledged, ["E1", "E2", "E3"]);
    // A permanent error is reported, and the event starts by itself.
    stage.fails.insert(Call::Acknowledge, Failure::Invalid);
    stage.events.push(event("E4", EventKind::Redeploy, None));
    stage.forget();
    stage.pass(900);
    assert_eq!((stage.count("Acknowledge"), stage.count("call-refused")), (1, 1));
}

#[test]
fn where_events_are_not_wanted_nobody_asks() {
    let mut stage = Stage::ready(AzureLife { events: false, ..settings() });
    stage.events = vec![event("E1", EventKind::Terminate, None)];
    stage.pass(60);
    assert_eq!((stage.count("AskEvents"), stage.count("503")), (0, 0));
    assert!(stage.life.ready());
}
