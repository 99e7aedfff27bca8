//! Tests of OPEN validation and of negotiation.

use super::*;
use crate::peer::tests::{graceful, settings};

/// Modifies settings.
type Change = fn(&mut Settings);

fn pair() -> (Settings, Settings) {
    (settings(1, 2, 64_500, 64_501), settings(2, 1, 64_501, 64_500))
}

fn agree(ours: &Settings, theirs: &Settings) -> Result<Negotiated, Notification> {
    let open = |settings: &Settings| our_open(settings, &Without::default(), false);
    negotiate(ours, &open(ours), &open(theirs))
}

#[test]
fn two_like_us_agree_on_everything() {
    let (mut ours, mut theirs) = pair();
    for one in [&mut ours, &mut theirs] {
        one.extended_next_hop = true;
        let mut restart = graceful(false);
        restart.long_lived = Some(Duration::from_secs(3_600));
        one.graceful_restart = Some(restart);
    }
    theirs.hold = Duration::from_secs(30);
    let expected = Negotiated {
        peer_asn: 64_501,
        identifier: Ipv4Addr::new(192, 0, 2, 2),
        internal: false,
        hold: Duration::from_secs(30),
        keepalive: Duration::from_secs(10),
        families: Family::ALL.to_vec(),
        four_octet_as: true,
        route_refresh: true,
        enhanced_refresh: true,
        extended_message: true,
        extended_next_hop: true,
        graceful_restart: Some(Duration::from_secs(120)),
        notification: true,
        long_lived: true,
        peer_restarted: false,
    };
    assert_eq!(agree(&ours, &theirs), Ok(expected));
}

#[test]
fn a_speaker_of_rfc_4271_alone_gets_what_it_knows() {
    let (ours, theirs) = pair();
    let mut open = our_open(&theirs, &Without::default(), false);
    open.capabilities.clear();
    let agreed = negotiate(&ours, &our_open(&ours, &Without::default(), false), &open).unwrap();
    assert_eq!(agreed.families, [Family::Ipv4Unicast]);
    let speaking = agreed.speaking(&ours);
    assert!(!speaking.four_octet && !speaking.extended_next_hop);
    assert_eq!(speaking.limit, MESSAGE);
    assert!(!agreed.route_refresh && agreed.graceful_restart.is_none() && !agreed.long_lived);
}

#[test]
fn the_number_must_be_the_one_that_is_wanted_and_0_wants_any() {
    let (mut ours, mut theirs) = pair();
    let bad = Notification::new(2, 2, vec![]);
    for asn in [4_200_000_000, 64_502] {
        theirs.local_asn = asn;
        (ours.peer_asn, theirs.peer_asn) = (64_501, 0);
        assert_eq!(agree(&ours, &theirs), Err(bad.clone()));
        ours.peer_asn = 0;
        assert_eq!(agree(&ours, &theirs).unwrap().peer_asn, asn);
        ours.peer_asn = asn;
        assert_eq!(agree(&ours, &theirs).unwrap().peer_asn, asn);
    }
    // AS 0 and AS_TRANS are invalid, in either field (RFC 7607, RFC 6793).
    ours.peer_asn = 0;
    for asn in [0, u32::from(AS_TRANS)] {
        theirs.local_asn = asn;
        assert_eq!(agree(&ours, &theirs), Err(bad.clone()));
    }
}

#[test]
fn identifiers_are_not_zero_and_differ_within_a_system() {
    let (ours, mut theirs) = pair();
    let bad = Notification::new(2, 3, vec![]);
    theirs.identifier = Ipv4Addr::UNSPECIFIED;
    assert_eq!(agree(&ours, &theirs), Err(bad.clone()));
    // Equal identifiers are valid in different autonomous systems (RFC 6286).
    theirs.identifier = ours.identifier;
    assert!(agree(&ours, &theirs).is_ok());
    let (mut ours, mut theirs) = (ours, theirs);
    (ours.peer_asn, theirs.local_asn) = (64_500, 64_500);
    assert_eq!(agree(&ours, &theirs), Err(bad));
    theirs.identifier = Ipv4Addr::new(224, 0, 0, 1);
    assert!(agree(&ours, &theirs).unwrap().internal);
}

#[test]
fn of_two_hold_times_the_shorter_counts_and_one_or_two_seconds_are_refused() {
    let (mut ours, mut theirs) = pair();
    for seconds in [1, 2] {
        theirs.hold = Duration::from_secs(seconds);
        assert_eq!(agree(&ours, &theirs), Err(Notification::new(2, 6, vec![])));
    }
    for (our, their, hold, keepalive) in
        [(90, 3, 3, 1), (9, 180, 9, 3), (0, 90, 0, 0), (90, 0, 0, 0), (65_535, 65_535, 65_535, 30)]
    {
        ours.hold = Duration::from_secs(our);
        theirs.hold = Duration::from_secs(their);
        let agreed = agree(&ours, &theirs).unwrap();
        let times = (agreed.hold.as_secs(), agreed.keepalive.as_secs());
        assert_eq!(times, (hold, keepalive));
    }
}

#[test]
fn without_a_family_in_both_there_is_nothing_to_say() {
    let (mut ours, mut theirs) = pair();
    ours.families = vec![Family::Ipv6Unicast];
    theirs.families = vec![Family::Ipv4Unicast];
    let wanted = vec![1, 4, 0, 2, 0, 1];
    assert_eq!(agree(&ours, &theirs), Err(Notification::new(2, 7, wanted)));
    theirs.families = Family::ALL.to_vec();
    assert_eq!(agree(&ours, &theirs).unwrap().families, [Family::Ipv6Unicast]);
}

#[test]
fn ipv6_next_hops_of_ipv4_prefixes_have_to_be_wanted_by_both() {
    let (mut ours, mut theirs) = pair();
    for (our, their) in [(true, false), (false, true)] {
        (ours.extended_next_hop, theirs.extended_next_hop) = (our, their);
        assert!(!agree(&ours, &theirs).unwrap().extended_next_hop);
    }
}

#[test]
fn the_last_graceful_restart_capability_counts() {
    let (mut ours, theirs) = pair();
    ours.graceful_restart = Some(graceful(false));
    let mut open = our_open(&theirs, &Without::default(), false);
    for (time, restarted) in [(7, false), (9, true)] {
        let restart = GracefulRestart { time, restarted, ..GracefulRestart::default() };
        open.capabilities.push(Capability::GracefulRestart(restart));
    }
    let agreed = negotiate(&ours, &our_open(&ours, &Without::default(), false), &open).unwrap();
    assert_eq!(agreed.graceful_restart, Some(Duration::from_secs(9)));
    assert!(agreed.peer_restarted && !agreed.notification);
}

#[test]
fn settings_that_no_open_can_say_are_refused_with_what_to_do() {
    let change: [(Change, &str); 8] = [
        (|s| s.local_asn = 0, "local ASN 0"),
        (|s| s.identifier = Ipv4Addr::UNSPECIFIED, "router id 0.0.0.0"),
        (|s| s.hold = Duration::from_secs(2), "hold time 2s"),
        (|s| s.hold = Duration::from_millis(500), "hold time 500ms"),
        (|s| s.keepalive = Duration::from_secs(91), "keepalive time 91s"),
        (|s| s.connect_retry = Duration::ZERO, "connect retry time 0"),
        (|s| s.families.clear(), "no family"),
        (
            |s| {
                let mut restart = graceful(false);
                restart.time = Duration::from_secs(4_096);
                s.graceful_restart = Some(restart);
            },
            "restart time 4096s",
        ),
    ];
    assert_eq!(pair().0.check(), Ok(()));
    for (change, words) in change {
        let mut settings = pair().0;
        change(&mut settings);
        let error = settings.check().unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn a_key_is_never_shown() {
    let mut settings = pair().0;
    settings.transport.md5 = Some("very secret".to_owned());
    assert!(!format!("{settings:?}").contains("secret"));
}
