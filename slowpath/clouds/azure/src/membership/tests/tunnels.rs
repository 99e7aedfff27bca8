//! Tests of the pools' tunnels: reported, followed, compared.

use super::*;

const V4: Family = Family::V4;

#[test]
fn imds_tunnels_are_applied_and_persisted_on_change() {
    let mut harness = Harness::ready(settings());
    assert_eq!(harness.persisted.tunnels, [(V4, tunnels(0))]);
    harness.imds = vec![(V4, tunnels(3))];
    harness.pools[0].tunnels = Ok(tunnels(3));
    harness.pass(300);
    assert_eq!(harness.visible_effects(), [(30, "tunnels 10803")]);
    assert_eq!(harness.persisted.tunnels, [(V4, tunnels(3))]);
    let statuses = harness.membership.tunnels();
    assert_eq!((statuses[0].reported, statuses[0].source), (tunnels(3), TunnelSource::Imds));
    assert!(harness.membership.ready());
}

#[test]
fn correct_configuration_causes_no_change() {
    let mut harness = Harness::ready(settings());
    harness.pass(300);
    assert_eq!(harness.visible_effects(), []);
    // A wrong file causes one change, before the first 200.
    let mut harness = Harness::foreign_member(settings());
    assert_eq!(harness.count("tunnels 10800"), 0);
    harness.in_force = vec![(V4, tunnels(9))];
    harness.restart();
    harness.assert_order(&["tunnels 10800", "200"]);
}

#[test]
fn unknown_tunnel_packets_shorten_query_interval_to_2_s() {
    let mut harness = Harness::ready(settings());
    harness.pass(2);
    harness.unknown_tunnel = 1;
    harness.pass(1);
    assert_eq!(harness.first("ReadTunnels"), 3);
    harness.forget();
    for _ in 0..20 {
        harness.unknown_tunnel += 100;
        harness.pass(1);
    }
    assert_eq!(harness.count("ReadTunnels"), 10);
    assert_eq!(harness.count("ReadPools"), 0);
    harness.forget();
    harness.pass(60);
    assert_eq!(harness.count("ReadTunnels"), 2);
    // Tunnels that IMDS does not report are queried from Resource Manager.
    let mut harness = Harness::ready(settings());
    harness.fails.insert(Call::ReadTunnels, Failure::Absent);
    harness.pass(35);
    harness.forget();
    for _ in 0..60 {
        harness.unknown_tunnel += 100;
        harness.pass(1);
    }
    assert!((4..=5).contains(&harness.count("ReadPools")), "{:?}", harness.effects);
    // A failed query is not repeated sooner.
    let mut harness = Harness::ready(settings());
    harness.fails.insert(Call::ReadTunnels, Failure::Invalid);
    for _ in 0..300 {
        harness.unknown_tunnel += 100;
        harness.pass(1);
    }
    assert_eq!(harness.count("ReadTunnels"), 1);
}

#[test]
fn query_in_progress_during_unknown_packets_is_repeated() {
    let mut harness = Harness::ready(settings());
    harness.hangs.push(Call::ReadTunnels);
    harness.pass(31);
    harness.unknown_tunnel = 1;
    harness.pass(1);
    harness.hangs.clear();
    harness.handle(Event::Answered(Answer::Tunnels(Ok(harness.imds.clone()))));
    harness.forget();
    harness.pass(3);
    assert_eq!(harness.first("ReadTunnels"), 2);
}

#[test]
fn arm_tunnels_are_used_where_imds_has_none_or_fails() {
    let mut harness = Harness::foreign_member(settings());
    harness.imds.clear();
    harness.pools[0].tunnels = Ok(tunnels(4));
    harness.pass(60);
    assert_eq!(harness.count("tunnels 10804"), 1);
    assert_eq!(harness.membership.tunnels()[0].source, TunnelSource::Arm);
    assert!(harness.membership.ready());
    // Without answers, IMDS's last report is used until Resource Manager was queried after it.
    let mut harness = Harness::ready(settings());
    harness.pass(31);
    harness.fails.insert(Call::ReadTunnels, Failure::Transient);
    harness.pools[0].tunnels = Ok(tunnels(4));
    harness.fails.insert(Call::ReadPools, Failure::Transient);
    harness.pass(200);
    assert_eq!(
        (harness.count("tunnels 10804"), harness.membership.tunnels()[0].source),
        (0, TunnelSource::Imds)
    );
    harness.fails.remove(&Call::ReadPools);
    harness.pass(60);
    assert_eq!(
        (harness.count("tunnels 10804"), harness.membership.tunnels()[0].source),
        (1, TunnelSource::Arm)
    );
    // IMDS answers again, and takes precedence.
    harness.fails.clear();
    harness.imds = vec![(V4, tunnels(5))];
    harness.pass(60);
    assert_eq!(harness.count("tunnels 10805"), 1);
}

#[test]
fn lasting_contradiction_is_reported() {
    let mut harness = Harness::ready(settings());
    harness.imds = vec![(V4, tunnels(1))];
    harness.pass(58);
    // In time, Resource Manager reports the same as IMDS.
    harness.pools[0].tunnels = Ok(tunnels(1));
    harness.pass(120);
    assert_eq!((harness.count("tunnels-differ"), harness.count("tunnels 10801")), (0, 1));
    harness.pools[0].tunnels = Ok(tunnels(2));
    harness.pass(300);
    assert_eq!((harness.count("tunnels-differ"), harness.count("tunnels 10802")), (1, 0));
    assert!(harness.membership.ready(), "IMDS takes precedence");
    harness.forget();
    harness.pass(60);
    assert_eq!(harness.count("ReadPools"), 4, "unsettled queries are more frequent");
}

#[test]
fn persisted_tunnels_are_used_without_any_report() {
    let persisted = PersistedState {
        tunnels: vec![(V4, tunnels(7)), (Family::V6, tunnels(8))],
        ..PersistedState::default()
    };
    let mut harness = Harness::with(settings(), false, persisted.clone());
    harness
        .fails
        .extend([(Call::ReadPools, Failure::Transient), (Call::ReadTunnels, Failure::Transient)]);
    harness.start();
    harness.pass(30);
    assert_eq!((harness.first("tunnels 10807"), harness.count("tunnels 10807")), (0, 1));
    assert_eq!(harness.membership.tunnels()[0].source, TunnelSource::Persisted);
    // In mode report the file's tunnels stay.
    let mut harness = Harness::with(
        AzureLifecycleSettings { tunnels: TunnelPolicy::Report, ..settings() },
        false,
        persisted,
    );
    harness
        .fails
        .extend([(Call::ReadPools, Failure::Transient), (Call::ReadTunnels, Failure::Transient)]);
    harness.start();
    harness.pass(30);
    assert_eq!(
        harness.effects.iter().filter(|(_, effect)| effect.starts_with("tunnels")).count(),
        0
    );
    assert_eq!(harness.membership.tunnels()[0].source, TunnelSource::File);
    // Without persisted tunnels, the file's tunnels stay in force.
    let mut harness = Harness::new(settings());
    harness
        .fails
        .extend([(Call::ReadPools, Failure::Transient), (Call::ReadTunnels, Failure::Transient)]);
    harness.start();
    harness.pass(30);
    assert_eq!(
        harness.effects.iter().filter(|(_, effect)| effect.starts_with("tunnels")).count(),
        0
    );
    assert_eq!(harness.membership.tunnels()[0].source, TunnelSource::File);
    assert_eq!(harness.persisted, PersistedState::default());
}

#[test]
fn report_mode_reports_and_changes_nothing() {
    let mut harness =
        Harness::ready(AzureLifecycleSettings { tunnels: TunnelPolicy::Report, ..settings() });
    harness.imds = vec![(V4, tunnels(3))];
    harness.pools[0].tunnels = Ok(tunnels(3));
    harness.pass(300);
    assert_eq!(harness.visible_effects(), [(30, "tunnels-other")]);
    assert!(harness.membership.ready(), "it was reported");
    harness.imds = vec![(V4, tunnels(4))];
    harness.pools[0].tunnels = Ok(tunnels(4));
    harness.pass(60);
    assert_eq!(harness.count("tunnels-other"), 2, "the tunnels changed again");
    assert_eq!(harness.persisted.tunnels, []);
}

#[test]
fn both_families_are_sent_together_and_those_without_pool_are_ignored() {
    let mut harness = Harness::new(settings());
    harness.two_pools();
    harness.start();
    harness.settle();
    harness.imds[1].1 = tunnels(60);
    harness.pools[1].tunnels = Ok(tunnels(60));
    harness.pass(30);
    assert_eq!(harness.visible_effects(), [(30, "tunnels 10800 10860")]);
    let mut harness = Harness::ready(settings());
    harness.imds.push((Family::V6, tunnels(99)));
    harness.pass(60);
    assert_eq!(harness.visible_effects(), []);
    assert_eq!(harness.persisted.tunnels.len(), 1);
}

#[test]
fn unusable_tunnels_are_reported_with_the_reason() {
    let mut harness = Harness::foreign_member(settings());
    harness.imds.clear();
    harness.pools[0].tunnels = Err("both are of type Internal".to_owned());
    harness.restart();
    harness.pass(60);
    assert_eq!(harness.count("tunnels-unusable"), 1);
    assert!(!harness.membership.ready(), "the source is unknown");
    assert_eq!(harness.count("503"), 0);
}

#[test]
fn unapplied_tunnels_are_resent_and_reported() {
    let mut harness = Harness::ready(settings());
    harness.applies = false;
    harness.imds = vec![(V4, tunnels(3))];
    harness.pools[0].tunnels = Ok(tunnels(3));
    harness.pass(61);
    assert_eq!(harness.count("tunnels 10803"), 4, "every 10 s");
    assert_eq!(
        (harness.first("tunnels-not-applied"), harness.count("tunnels-not-applied")),
        (40, 1)
    );
    assert!(!harness.membership.ready());
    // A restarted data plane gets them at once.
    harness.applies = true;
    harness.pass(10);
    assert!(harness.membership.ready());
    harness.forget();
    harness.in_force = vec![(V4, tunnels(0))];
    harness.pass(1);
    assert_eq!((harness.first("tunnels 10803"), harness.count("tunnels 10803")), (1, 1));
}

#[test]
fn imds_is_awaited_before_other_sources_count() {
    let persisted = PersistedState { tunnels: vec![(V4, tunnels(7))], ..PersistedState::default() };
    let mut harness = Harness::with(settings(), false, persisted);
    harness.hangs.extend([Call::ReadTunnels, Call::ReadPools]);
    harness.start();
    harness.pass(3);
    assert_eq!(harness.count("tunnels 10807"), 0);
    harness.pools[0].tunnels = Ok(tunnels(4));
    let answer = harness.answer(Call::ReadPools);
    harness.handle(Event::Answered(answer));
    assert_eq!(harness.count("tunnels 10804"), 0);
    harness.pass(1);
    assert_eq!((harness.first("tunnels 10804"), harness.count("tunnels 10807")), (4, 0));
}
