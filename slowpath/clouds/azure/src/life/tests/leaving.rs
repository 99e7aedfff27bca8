//! Tests of leaving.

use super::*;

#[test]
fn sigterm_says_503_sets_down_drains_leaves_and_ends_in_this_order() {
    let mut stage = Stage::ready(settings());
    stage.traffic = true;
    stage.pass(3);
    stage.hear(Event::Terminate);
    stage.order(&["503 leaving: SIGTERM came", "keep joined down", "Down"]);
    stage.forget();
    stage.pass(100);
    assert_eq!(stage.told(), [], "packets come");
    stage.traffic = false;
    stage.flows = 1;
    stage.pass(50);
    assert_eq!(stage.told(), [], "a flow is left");
    stage.flows = 0;
    stage.pass(10);
    stage.order(&["Leave", "keep down", "exit Drained"]);
    assert_eq!((stage.first("Leave"), stage.first("exit Drained")), (155, 155));
    assert_eq!(stage.life.step(stage.now, Event::Tick), []);
}

#[test]
fn which_memberships_are_removed_is_a_setting() {
    for (remove, own, removed) in [
        (Remove::Own, true, true),
        (Remove::Own, false, false),
        (Remove::Always, false, true),
        (Remove::Never, true, false),
    ] {
        let settings = AzureLife { remove, ..settings() };
        let mut stage = if own { Stage::ready(settings) } else { Stage::found(settings) };
        stage.pass(60);
        stage.hear(Event::Terminate);
        stage.pass(10);
        stage.order(&["503 leaving", "Down", "exit Drained"]);
        assert_eq!(stage.count("Leave"), usize::from(removed), "{remove:?}, own: {own}");
        // An entry that stays remains `Down`, and the next process lifts that.
        stage.restart();
        assert!(stage.life.ready());
        assert_eq!(stage.count("Up"), usize::from(!removed));
    }
}

#[test]
fn without_a_probe_down_changes_nothing_and_is_not_asked_for() {
    let mut stage = Stage::ready(settings());
    stage.pools[0].probed = false;
    stage.pass(60);
    stage.hear(Event::Terminate);
    stage.pass(60);
    assert_eq!((stage.count("Down"), stage.count("no-probe")), (0, 1));
    assert_eq!(stage.first("exit Drained"), 60 + 35, "flows come until others notice");
}

#[test]
fn where_down_is_not_possible_the_probe_gets_half_a_minute_to_fail() {
    let mut stage = Stage::with(settings(), true, Kept::default());
    stage.pools[0].member = entry(Admin::None);
    stage.start();
    stage.calm();
    stage.hear(Event::Terminate);
    stage.pass(60);
    assert_eq!((stage.first("exit Drained"), stage.writes()), (35, 0));
    let mut stage = Stage::ready(settings());
    stage.fails.insert(Call::Down, Failure::Denied);
    stage.hear(Event::Terminate);
    stage.pass(60);
    assert_eq!((stage.first("exit Drained"), stage.count("Down")), (35, 1));
    // A machine in no pool receives no flows.
    let mut stage = Stage::new(settings());
    stage.start();
    stage.hear(Event::Able { able: false, reasons: Vec::new() });
    stage.pools[0].member = None;
    stage.pass(60);
    stage.forget();
    stage.hear(Event::Terminate);
    stage.pass(10);
    assert_eq!(stage.first("exit Drained"), 5);
}

#[test]
fn what_never_gets_quiet_ends_at_the_cap() {
    let mut stage = Stage::ready(settings());
    stage.flows = 9;
    stage.hear(Event::Terminate);
    stage.pass(400);
    assert_eq!((stage.first("Leave"), stage.first("exit CapOver")), (300, 300));
}

/// Flows that arrive because only the removal keeps them away.
#[test]
fn flows_that_come_until_the_membership_is_gone_are_waited_for() {
    for ends in [true, false] {
        let mut stage = Stage::ready(settings());
        stage.pools[0].probed = false;
        stage.hangs.push(Call::Leave);
        stage.pass(60);
        stage.hear(Event::Terminate);
        stage.pass(36);
        assert_eq!(stage.first("Leave"), 60 + 35);
        stage.flows = 1;
        stage.pass(2);
        let answer = stage.answer(Call::Leave);
        stage.hear(Event::Told(answer));
        stage.pass(50);
        assert_eq!((stage.count("exit Drained"), stage.count("Leave")), (0, 1));
        stage.flows = u64::from(!ends);
        stage.pass(300);
        match ends {
            true => assert_eq!(stage.first("exit Drained"), 60 + 88 + 5),
            false => assert_eq!(stage.first("exit CapOver"), 60 + 300),
        }
        assert_eq!(stage.count("Leave"), 1);
    }
}

#[test]
fn leaving_the_pools_is_waited_for_twenty_seconds_at_most() {
    let mut stage = Stage::ready(settings());
    stage.hangs.push(Call::Leave);
    stage.flows = 9;
    stage.hear(Event::Terminate);
    stage.pass(400);
    assert_eq!((stage.first("leave-failed"), stage.first("exit CapOver")), (320, 320));
    assert!(stage.kept.joined, "who comes back removes it then");
    // A temporary error is retried in that time, a permanent one is not.
    let mut stage = Stage::ready(settings());
    stage.fails.insert(Call::Leave, Failure::Conflict);
    stage.hear(Event::Terminate);
    stage.pass(12);
    stage.fails.clear();
    stage.pass(60);
    assert_eq!((stage.count("Leave"), stage.first("exit Drained")), (3, 15));
    let mut stage = Stage::ready(settings());
    stage.fails.insert(Call::Leave, Failure::Denied);
    stage.hear(Event::Terminate);
    stage.pass(60);
    stage.order(&["Leave", "call-denied", "leave-failed", "exit Drained"]);
    assert_eq!((stage.count("Leave"), stage.first("exit Drained")), (1, 5));
    // Without a pool there is no membership.
    let mut stage = Stage::ready(settings());
    stage.fails.insert(Call::Leave, Failure::Absent);
    stage.hear(Event::Terminate);
    stage.pass(60);
    assert_eq!((stage.count("leave-failed"), stage.first("exit Drained")), (0, 5));
    assert!(!stage.kept.joined);
}

#[test]
fn an_outage_never_holds_it_past_the_cap_and_what_leaving_may_take() {
    for outage in [Failure::Transient, Failure::Throttled, Failure::Denied, Failure::Invalid] {
        let mut stage = Stage::ready(settings());
        for call in [Call::Down, Call::Look, Call::Leave, Call::AskTunnels, Call::AskEvents] {
            stage.fails.insert(call, outage);
        }
        stage.traffic = true;
        stage.hear(Event::Terminate);
        stage.pass(400);
        assert!(stage.first("exit CapOver") <= 320, "{outage:?}");
        assert_eq!(stage.count("leave-failed"), 1, "{outage:?}");
    }
}

#[test]
fn the_second_sigterm_ends_at_once() {
    let mut stage = Stage::ready(settings());
    stage.flows = 9;
    stage.hear(Event::Terminate);
    stage.pass(2);
    stage.hear(Event::Terminate);
    assert_eq!(stage.first("exit Forced"), 2);
}

#[test]
fn a_join_that_is_under_way_is_waited_for_and_undone() {
    let mut stage = Stage::new(settings());
    stage.hangs.push(Call::Join);
    stage.start();
    stage.hear(Event::Terminate);
    stage.pass(10);
    assert_eq!((stage.count("Down"), stage.count("Leave")), (0, 0));
    let answer = stage.answer(Call::Join);
    stage.hear(Event::Told(answer));
    stage.pass(20);
    stage.order(&["Join", "Down", "Leave", "exit Drained"]);
    assert_eq!(stage.count("200"), 0);
    assert_eq!(stage.pools[0].member, None);
    // A join that never ends is not waited for any longer.
    let mut stage = Stage::new(settings());
    stage.hangs.push(Call::Join);
    stage.start();
    stage.hear(Event::Terminate);
    stage.pass(400);
    assert_eq!(stage.first("exit CapOver"), 320);
}

#[test]
fn an_up_that_is_under_way_is_waited_for_and_down_set_again() {
    let mut stage = Stage::with(settings(), false, Kept { down: true, ..Kept::default() });
    stage.pools[0].member = entry(Admin::Down);
    stage.hangs.push(Call::Up);
    stage.start();
    stage.hear(Event::Terminate);
    stage.pass(5);
    assert_eq!(stage.writes(), 1);
    let answer = stage.answer(Call::Up);
    stage.hear(Event::Told(answer));
    stage.pass(10);
    stage.order(&["Up", "Down", "exit Drained"]);
    assert_eq!(stage.pools[0].member, entry(Admin::Down));
}

#[test]
fn killed_at_any_point_of_leaving_what_was_kept_brings_it_back() {
    for killed_after in 0..8 {
        for late in [false, true] {
            let mut stage = Stage::ready(settings());
            if late {
                stage.hangs.push(Call::Down);
            }
            stage.hear(Event::Terminate);
            stage.pass(killed_after);
            stage.hangs.clear();
            stage.restart();
            stage.pass(60);
            if late {
                stage.set_admin(Admin::Down);
            }
            stage.pass(300);
            assert!(stage.life.ready(), "{killed_after}, late: {late}");
            assert_eq!(stage.pools[0].member, entry(Admin::None));
            assert!(!stage.kept.down && stage.kept.joined);
        }
    }
}

#[test]
fn tunnels_are_followed_while_it_drains() {
    let mut stage = Stage::ready(settings());
    stage.flows = 1;
    stage.hear(Event::Terminate);
    stage.imds = vec![(Family::V4, tunnels(3))];
    stage.pass(40);
    assert_eq!(stage.count("tunnels 10803"), 1);
}

#[test]
fn where_somebody_holds_one_pool_down_nothing_of_that_is_overwritten() {
    let mut stage = Stage::new(settings());
    stage.two_pools();
    stage.start();
    stage.pools[0].member = entry(Admin::Down);
    stage.pass(60);
    stage.hear(Event::Terminate);
    stage.pass(60);
    assert_eq!((stage.count("admin-down"), stage.count("Down")), (1, 0));
    assert_eq!(stage.first("exit Drained"), 60 + 35);
}

#[test]
fn flows_that_were_told_of_are_active_until_told_otherwise() {
    let mut stage = Stage::ready(settings());
    stage.flows = 1;
    stage.pass(1);
    stage.hear(Event::Terminate);
    for _ in 0..60 {
        stage.now += S;
        stage.hear(Event::Tick);
    }
    assert_eq!(stage.count("Leave"), 0);
}
