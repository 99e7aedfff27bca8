//! Tests of the pools' tunnels: reported, followed, compared.

use super::*;

const V4: Family = Family::V4;

#[test]
fn what_imds_tells_is_followed_and_kept_when_it_changes() {
    let mut stage = Stage::ready(settings());
    assert_eq!(stage.kept.tunnels, [(V4, tunnels(0))]);
    stage.imds = vec![(V4, tunnels(3))];
    stage.pools[0].tunnels = Ok(tunnels(3));
    stage.pass(300);
    assert_eq!(stage.told(), [(30, "tunnels 10803")]);
    assert_eq!(stage.kept.tunnels, [(V4, tunnels(3))]);
    let followed = stage.life.tunnels();
    assert_eq!((followed[0].told, followed[0].by), (tunnels(3), Source::Imds));
    assert!(stage.life.ready());
}

#[test]
fn a_file_that_is_right_costs_no_change() {
    let mut stage = Stage::ready(settings());
    stage.pass(300);
    assert_eq!(stage.told(), []);
    // A wrong file causes one change, before the first 200.
    let mut stage = Stage::found(settings());
    assert_eq!(stage.count("tunnels 10800"), 0);
    stage.carried = vec![(V4, tunnels(9))];
    stage.restart();
    stage.order(&["tunnels 10800", "200"]);
}

#[test]
fn packets_in_strange_tunnels_bring_the_question_forward_to_every_two_seconds() {
    let mut stage = Stage::ready(settings());
    stage.pass(2);
    stage.strange = 1;
    stage.pass(1);
    assert_eq!(stage.first("AskTunnels"), 3);
    stage.forget();
    for _ in 0..20 {
        stage.strange += 100;
        stage.pass(1);
    }
    assert_eq!(stage.count("AskTunnels"), 10);
    assert_eq!(stage.count("Look"), 0);
    stage.forget();
    stage.pass(60);
    assert_eq!(stage.count("AskTunnels"), 2);
    // Tunnels that IMDS does not report are queried from Resource Manager.
    let mut stage = Stage::ready(settings());
    stage.fails.insert(Call::AskTunnels, Failure::Absent);
    stage.pass(35);
    stage.forget();
    for _ in 0..60 {
        stage.strange += 100;
        stage.pass(1);
    }
    assert!((4..=5).contains(&stage.count("Look")), "{:?}", stage.heard);
    // A failed query is not repeated sooner.
    let mut stage = Stage::ready(settings());
    stage.fails.insert(Call::AskTunnels, Failure::Invalid);
    for _ in 0..300 {
        stage.strange += 100;
        stage.pass(1);
    }
    assert_eq!(stage.count("AskTunnels"), 1);
}

#[test]
fn a_question_that_is_under_way_when_strange_packets_come_is_asked_again_after_it() {
    let mut stage = Stage::ready(settings());
    stage.hangs.push(Call::AskTunnels);
    stage.pass(31);
    stage.strange = 1;
    stage.pass(1);
    stage.hangs.clear();
    stage.hear(Event::Told(Answer::Tunnels(Ok(stage.imds.clone()))));
    stage.forget();
    stage.pass(3);
    assert_eq!(stage.first("AskTunnels"), 2);
}

#[test]
fn what_arm_tells_is_taken_where_imds_has_none_or_went_silent_since() {
    let mut stage = Stage::found(settings());
    stage.imds.clear();
    stage.pools[0].tunnels = Ok(tunnels(4));
    stage.pass(60);
    assert_eq!(stage.count("tunnels 10804"), 1);
    assert_eq!(stage.life.tunnels()[0].by, Source::Arm);
    assert!(stage.life.ready());
    // Without answers, IMDS's last report is used until Resource Manager was queried after it.
    let mut stage = Stage::ready(settings());
    stage.pass(31);
    stage.fails.insert(Call::AskTunnels, Failure::Transient);
    stage.pools[0].tunnels = Ok(tunnels(4));
    stage.fails.insert(Call::Look, Failure::Transient);
    stage.pass(200);
    assert_eq!((stage.count("tunnels 10804"), stage.life.tunnels()[0].by), (0, Source::Imds));
    stage.fails.remove(&Call::Look);
    stage.pass(60);
    assert_eq!((stage.count("tunnels 10804"), stage.life.tunnels()[0].by), (1, Source::Arm));
    // IMDS answers again, and takes precedence.
    stage.fails.clear();
    stage.imds = vec![(V4, tunnels(5))];
    stage.pass(60);
    assert_eq!(stage.count("tunnels 10805"), 1);
}

#[test]
fn a_contradiction_of_the_two_is_a_finding_once_it_lasts() {
    let mut stage = Stage::ready(settings());
    stage.imds = vec![(V4, tunnels(1))];
    stage.pass(58);
    // Resource Manager's report is only older.
    stage.pools[0].tunnels = Ok(tunnels(1));
    stage.pass(120);
    assert_eq!((stage.count("tunnels-differ"), stage.count("tunnels 10801")), (0, 1));
    stage.pools[0].tunnels = Ok(tunnels(2));
    stage.pass(300);
    assert_eq!((stage.count("tunnels-differ"), stage.count("tunnels 10802")), (1, 0));
    assert!(stage.life.ready(), "IMDS goes before");
    stage.forget();
    stage.pass(60);
    assert_eq!(stage.count("Look"), 4, "it is open");
}

#[test]
fn what_an_earlier_process_followed_is_taken_where_nobody_tells() {
    let kept =
        Kept { tunnels: vec![(V4, tunnels(7)), (Family::V6, tunnels(8))], ..Kept::default() };
    let mut stage = Stage::with(settings(), false, kept.clone());
    stage.fails.extend([(Call::Look, Failure::Transient), (Call::AskTunnels, Failure::Transient)]);
    stage.start();
    stage.pass(30);
    assert_eq!((stage.first("tunnels 10807"), stage.count("tunnels 10807")), (0, 1));
    assert_eq!(stage.life.tunnels()[0].by, Source::Kept);
    // In mode alarm the file's tunnels stay.
    let mut stage = Stage::with(AzureLife { tunnels: Told::Alarm, ..settings() }, false, kept);
    stage.fails.extend([(Call::Look, Failure::Transient), (Call::AskTunnels, Failure::Transient)]);
    stage.start();
    stage.pass(30);
    assert_eq!(stage.heard.iter().filter(|(_, told)| told.starts_with("tunnels")).count(), 0);
    assert_eq!(stage.life.tunnels()[0].by, Source::File);
    // Otherwise the file's tunnels are used, without a finding.
    let mut stage = Stage::new(settings());
    stage.fails.extend([(Call::Look, Failure::Transient), (Call::AskTunnels, Failure::Transient)]);
    stage.start();
    stage.pass(30);
    assert_eq!(stage.heard.iter().filter(|(_, told)| told.starts_with("tunnels")).count(), 0);
    assert_eq!(stage.life.tunnels()[0].by, Source::File);
    assert_eq!(stage.kept, Kept::default());
}

#[test]
fn where_only_an_alarm_is_wanted_it_is_told_and_nothing_is_changed() {
    let mut stage = Stage::ready(AzureLife { tunnels: Told::Alarm, ..settings() });
    stage.imds = vec![(V4, tunnels(3))];
    stage.pools[0].tunnels = Ok(tunnels(3));
    stage.pass(300);
    assert_eq!(stage.told(), [(30, "tunnels-other")]);
    assert!(stage.life.ready(), "it was told");
    stage.imds = vec![(V4, tunnels(4))];
    stage.pools[0].tunnels = Ok(tunnels(4));
    stage.pass(60);
    assert_eq!(stage.count("tunnels-other"), 2, "others again");
    assert_eq!(stage.kept.tunnels, []);
}

#[test]
fn both_families_are_sent_together_and_those_without_pool_are_ignored() {
    let mut stage = Stage::new(settings());
    stage.two_pools();
    stage.start();
    stage.calm();
    stage.imds[1].1 = tunnels(60);
    stage.pools[1].tunnels = Ok(tunnels(60));
    stage.pass(30);
    assert_eq!(stage.told(), [(30, "tunnels 10800 10860")]);
    let mut stage = Stage::ready(settings());
    stage.imds.push((Family::V6, tunnels(99)));
    stage.pass(60);
    assert_eq!(stage.told(), []);
    assert_eq!(stage.kept.tunnels.len(), 1);
}

#[test]
fn tunnels_that_are_unusable_are_a_finding_with_the_reason() {
    let mut stage = Stage::found(settings());
    stage.imds.clear();
    stage.pools[0].tunnels = Err("both are of type Internal".to_owned());
    stage.restart();
    stage.pass(60);
    assert_eq!(stage.count("tunnels-unusable"), 1);
    assert!(!stage.life.ready(), "nobody told which");
    assert_eq!(stage.count("503"), 0);
}

#[test]
fn a_data_plane_that_does_not_take_them_is_told_again_and_so_are_people() {
    let mut stage = Stage::ready(settings());
    stage.obeys = false;
    stage.imds = vec![(V4, tunnels(3))];
    stage.pools[0].tunnels = Ok(tunnels(3));
    stage.pass(61);
    assert_eq!(stage.count("tunnels 10803"), 4, "every 10 s");
    assert_eq!((stage.first("tunnels-not-taken"), stage.count("tunnels-not-taken")), (40, 1));
    assert!(!stage.life.ready());
    // A restarted data plane gets them at once.
    stage.obeys = true;
    stage.pass(10);
    assert!(stage.life.ready());
    stage.forget();
    stage.carried = vec![(V4, tunnels(0))];
    stage.pass(1);
    assert_eq!((stage.first("tunnels 10803"), stage.count("tunnels 10803")), (1, 1));
}

#[test]
fn imds_is_waited_for_before_the_others_words_count() {
    let kept = Kept { tunnels: vec![(V4, tunnels(7))], ..Kept::default() };
    let mut stage = Stage::with(settings(), false, kept);
    stage.hangs.extend([Call::AskTunnels, Call::Look]);
    stage.start();
    stage.pass(3);
    assert_eq!(stage.count("tunnels 10807"), 0);
    stage.pools[0].tunnels = Ok(tunnels(4));
    let answer = stage.answer(Call::Look);
    stage.hear(Event::Told(answer));
    assert_eq!(stage.count("tunnels 10804"), 0);
    stage.pass(1);
    assert_eq!((stage.first("tunnels 10804"), stage.count("tunnels 10807")), (4, 0));
}
