//! Tests of the shutdown: drain, removal of the membership, exit.

use super::*;

#[test]
fn sigterm_fails_probe_sets_down_drains_leaves_and_exits_in_order() {
    let mut harness = Harness::ready(settings());
    harness.traffic = true;
    harness.pass(3);
    harness.handle(Event::Terminate);
    harness.assert_order(&["503 leaving: SIGTERM received", "persist joined down", "Down"]);
    harness.forget();
    harness.pass(100);
    assert_eq!(harness.visible_effects(), [], "packets arrive");
    harness.traffic = false;
    harness.flows = 1;
    harness.pass(50);
    assert_eq!(harness.visible_effects(), [], "a flow is left");
    harness.flows = 0;
    harness.pass(10);
    harness.assert_order(&["Leave", "persist down", "exit Drained"]);
    assert_eq!((harness.first("Leave"), harness.first("exit Drained")), (155, 155));
    assert_eq!(harness.membership.step(harness.now, Event::Tick), []);
}

#[test]
fn remove_setting_selects_memberships_to_remove() {
    for (remove, own, removed) in [
        (Remove::Own, true, true),
        (Remove::Own, false, false),
        (Remove::Always, false, true),
        (Remove::Never, true, false),
    ] {
        let settings = AzureLifecycleSettings { remove, ..settings() };
        let mut harness =
            if own { Harness::ready(settings) } else { Harness::foreign_member(settings) };
        harness.pass(60);
        harness.handle(Event::Terminate);
        harness.pass(10);
        harness.assert_order(&["503 leaving", "Down", "exit Drained"]);
        assert_eq!(harness.count("Leave"), usize::from(removed), "{remove:?}, own: {own}");
        // An entry that stays remains `Down`, and the next process lifts that.
        harness.restart();
        assert!(harness.membership.ready());
        assert_eq!(harness.count("Up"), usize::from(!removed));
    }
}

#[test]
fn down_is_not_set_without_a_probe() {
    let mut harness = Harness::ready(settings());
    harness.pools[0].probed = false;
    harness.pass(60);
    harness.handle(Event::Terminate);
    harness.pass(60);
    assert_eq!((harness.count("Down"), harness.count("no-probe")), (0, 1));
    assert_eq!(
        harness.first("exit Drained"),
        60 + 35,
        "flows arrive until the removal takes effect"
    );
}

#[test]
fn drain_waits_30_s_for_the_probe_to_fail_where_down_is_impossible() {
    let mut harness = Harness::with(settings(), true, PersistedState::default());
    harness.pools[0].member = entry(AdminState::None);
    harness.start();
    harness.settle();
    harness.handle(Event::Terminate);
    harness.pass(60);
    assert_eq!((harness.first("exit Drained"), harness.writes()), (35, 0));
    let mut harness = Harness::ready(settings());
    harness.fails.insert(Call::Down, Failure::Denied);
    harness.handle(Event::Terminate);
    harness.pass(60);
    assert_eq!((harness.first("exit Drained"), harness.count("Down")), (35, 1));
    // A machine in no pool receives no flows.
    let mut harness = Harness::new(settings());
    harness.start();
    harness.handle(Event::Able { able: false, reasons: Vec::new() });
    harness.pools[0].member = None;
    harness.pass(60);
    harness.forget();
    harness.handle(Event::Terminate);
    harness.pass(10);
    assert_eq!(harness.first("exit Drained"), 5);
}

#[test]
fn drain_ends_at_the_cap_if_flows_stay_active() {
    let mut harness = Harness::ready(settings());
    harness.flows = 9;
    harness.handle(Event::Terminate);
    harness.pass(400);
    assert_eq!((harness.first("Leave"), harness.first("exit CapOver")), (300, 300));
}

/// Without a probe only the removal of the membership keeps new flows away.
#[test]
fn flows_arriving_until_removal_are_drained() {
    for ends in [true, false] {
        let mut harness = Harness::ready(settings());
        harness.pools[0].probed = false;
        harness.hangs.push(Call::Leave);
        harness.pass(60);
        harness.handle(Event::Terminate);
        harness.pass(36);
        assert_eq!(harness.first("Leave"), 60 + 35);
        harness.flows = 1;
        harness.pass(2);
        let answer = harness.answer(Call::Leave);
        harness.handle(Event::Answered(answer));
        harness.pass(50);
        assert_eq!((harness.count("exit Drained"), harness.count("Leave")), (0, 1));
        harness.flows = u64::from(!ends);
        harness.pass(300);
        match ends {
            true => assert_eq!(harness.first("exit Drained"), 60 + 88 + 5),
            false => assert_eq!(harness.first("exit CapOver"), 60 + 300),
        }
        assert_eq!(harness.count("Leave"), 1);
    }
}

#[test]
fn removal_is_limited_to_20_s_and_retried_after_temporary_errors() {
    let mut harness = Harness::ready(settings());
    harness.hangs.push(Call::Leave);
    harness.flows = 9;
    harness.handle(Event::Terminate);
    harness.pass(400);
    assert_eq!((harness.first("leave-failed"), harness.first("exit CapOver")), (320, 320));
    assert!(harness.persisted.joined, "a restarted process removes it");
    // A temporary error is retried in that time, a permanent one is not.
    let mut harness = Harness::ready(settings());
    harness.fails.insert(Call::Leave, Failure::Conflict);
    harness.handle(Event::Terminate);
    harness.pass(12);
    harness.fails.clear();
    harness.pass(60);
    assert_eq!((harness.count("Leave"), harness.first("exit Drained")), (3, 15));
    let mut harness = Harness::ready(settings());
    harness.fails.insert(Call::Leave, Failure::Denied);
    harness.handle(Event::Terminate);
    harness.pass(60);
    harness.assert_order(&["Leave", "call-denied", "leave-failed", "exit Drained"]);
    assert_eq!((harness.count("Leave"), harness.first("exit Drained")), (1, 5));
    // If the pool does not exist, there is no membership to remove.
    let mut harness = Harness::ready(settings());
    harness.fails.insert(Call::Leave, Failure::Absent);
    harness.handle(Event::Terminate);
    harness.pass(60);
    assert_eq!((harness.count("leave-failed"), harness.first("exit Drained")), (0, 5));
    assert!(!harness.persisted.joined);
}

#[test]
fn outage_does_not_delay_exit_past_cap_and_removal_timeout() {
    for outage in [Failure::Transient, Failure::Throttled, Failure::Denied, Failure::Invalid] {
        let mut harness = Harness::ready(settings());
        for call in [Call::Down, Call::ReadPools, Call::Leave, Call::ReadTunnels, Call::ReadEvents]
        {
            harness.fails.insert(call, outage);
        }
        harness.traffic = true;
        harness.handle(Event::Terminate);
        harness.pass(400);
        assert!(harness.first("exit CapOver") <= 320, "{outage:?}");
        assert_eq!(harness.count("leave-failed"), 1, "{outage:?}");
    }
}

#[test]
fn second_sigterm_exits_at_once() {
    let mut harness = Harness::ready(settings());
    harness.flows = 9;
    harness.handle(Event::Terminate);
    harness.pass(2);
    harness.handle(Event::Terminate);
    assert_eq!(harness.first("exit Forced"), 2);
}

#[test]
fn join_in_progress_is_awaited_and_undone() {
    let mut harness = Harness::new(settings());
    harness.hangs.push(Call::Join);
    harness.start();
    harness.handle(Event::Terminate);
    harness.pass(10);
    assert_eq!((harness.count("Down"), harness.count("Leave")), (0, 0));
    let answer = harness.answer(Call::Join);
    harness.handle(Event::Answered(answer));
    harness.pass(20);
    harness.assert_order(&["Join", "Down", "Leave", "exit Drained"]);
    assert_eq!(harness.count("200"), 0);
    assert_eq!(harness.pools[0].member, None);
    // A join that never ends does not delay the exit past the drain limit and the removal timeout.
    let mut harness = Harness::new(settings());
    harness.hangs.push(Call::Join);
    harness.start();
    harness.handle(Event::Terminate);
    harness.pass(400);
    assert_eq!(harness.first("exit CapOver"), 320);
}

#[test]
fn up_in_progress_is_awaited_and_down_set_again() {
    let mut harness = Harness::with(
        settings(),
        false,
        PersistedState { down: true, ..PersistedState::default() },
    );
    harness.pools[0].member = entry(AdminState::Down);
    harness.hangs.push(Call::Up);
    harness.start();
    harness.handle(Event::Terminate);
    harness.pass(5);
    assert_eq!(harness.writes(), 1);
    let answer = harness.answer(Call::Up);
    harness.handle(Event::Answered(answer));
    harness.pass(10);
    harness.assert_order(&["Up", "Down", "exit Drained"]);
    assert_eq!(harness.pools[0].member, entry(AdminState::Down));
}

#[test]
fn restart_after_kill_during_drain_recovers_from_persisted_state() {
    for killed_after in 0..8 {
        for late in [false, true] {
            let mut harness = Harness::ready(settings());
            if late {
                harness.hangs.push(Call::Down);
            }
            harness.handle(Event::Terminate);
            harness.pass(killed_after);
            harness.hangs.clear();
            harness.restart();
            harness.pass(60);
            if late {
                harness.set_admin(AdminState::Down);
            }
            harness.pass(300);
            assert!(harness.membership.ready(), "{killed_after}, late: {late}");
            assert_eq!(harness.pools[0].member, entry(AdminState::None));
            assert!(!harness.persisted.down && harness.persisted.joined);
        }
    }
}

#[test]
fn tunnels_are_followed_during_the_drain() {
    let mut harness = Harness::ready(settings());
    harness.flows = 1;
    harness.handle(Event::Terminate);
    harness.imds = vec![(Family::V4, tunnels(3))];
    harness.pass(40);
    assert_eq!(harness.count("tunnels 10803"), 1);
}

#[test]
fn foreign_down_in_one_pool_is_not_overwritten() {
    let mut harness = Harness::new(settings());
    harness.two_pools();
    harness.start();
    harness.pools[0].member = entry(AdminState::Down);
    harness.pass(60);
    harness.handle(Event::Terminate);
    harness.pass(60);
    assert_eq!((harness.count("admin-down"), harness.count("Down")), (1, 0));
    assert_eq!(harness.first("exit Drained"), 60 + 35);
}

#[test]
fn reported_flows_count_as_active_until_next_report() {
    let mut harness = Harness::ready(settings());
    harness.flows = 1;
    harness.pass(1);
    harness.handle(Event::Terminate);
    for _ in 0..60 {
        harness.now += S;
        harness.handle(Event::Tick);
    }
    assert_eq!(harness.count("Leave"), 0);
}
