//! Tests of OPEN validation and of negotiation.

use super::*;
use crate::peer::tests::{graceful_restart, open_of, settings};

/// Modifies settings.
type Change = fn(&mut Settings);

/// Returns the settings of two peers for each other.
fn pair() -> (Settings, Settings) {
    (settings(1, 2, 64_500, 64_501), settings(2, 1, 64_501, 64_500))
}

/// Returns the parameters that `local` negotiates with `remote`, or the NOTIFICATION with which
/// `local` rejects the OPEN of `remote`.
fn agree(local: &Settings, remote: &Settings) -> Result<Negotiated, Notification> {
    negotiate(local, &open_of(local), &open_of(remote))
}

#[test]
fn two_equal_speakers_negotiate_all_capabilities() {
    let (mut local, mut remote) = pair();
    for one in [&mut local, &mut remote] {
        one.extended_next_hop = true;
        let mut restart = graceful_restart();
        restart.long_lived = Some(Duration::from_secs(3_600));
        one.graceful_restart = Some(restart);
    }
    remote.hold = Duration::from_secs(30);
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
    assert_eq!(agree(&local, &remote), Ok(expected));
}

#[test]
fn speaker_without_capabilities_gets_plain_rfc_4271() {
    let (local, remote) = pair();
    let mut open = open_of(&remote);
    open.capabilities.clear();
    let agreed = negotiate(&local, &open_of(&local), &open).unwrap();
    assert_eq!(agreed.families, [Family::Ipv4Unicast]);
    let encode_context = agreed.encode_context(&local);
    assert!(!encode_context.four_octet && !encode_context.extended_next_hop);
    assert_eq!(encode_context.limit, MAX_MESSAGE);
    assert!(!agreed.route_refresh && agreed.graceful_restart.is_none() && !agreed.long_lived);
}

#[test]
fn peer_as_must_match_unless_configured_as_0() {
    let (mut local, mut remote) = pair();
    let bad = Notification::new(2, 2, vec![]);
    for asn in [4_200_000_000, 64_502] {
        remote.local_asn = asn;
        (local.peer_asn, remote.peer_asn) = (64_501, 0);
        assert_eq!(agree(&local, &remote), Err(bad.clone()));
        local.peer_asn = 0;
        assert_eq!(agree(&local, &remote).unwrap().peer_asn, asn);
        local.peer_asn = asn;
        assert_eq!(agree(&local, &remote).unwrap().peer_asn, asn);
    }
    // AS 0 and AS_TRANS are no AS numbers of a peer (RFC 7607, RFC 6793).
    local.peer_asn = 0;
    for asn in [0, u32::from(AS_TRANS)] {
        remote.local_asn = asn;
        assert_eq!(agree(&local, &remote), Err(bad.clone()));
    }
}

#[test]
fn identifier_must_be_nonzero_and_unique_within_an_as() {
    let (local, mut remote) = pair();
    let bad = Notification::new(2, 3, vec![]);
    remote.identifier = Ipv4Addr::UNSPECIFIED;
    assert_eq!(agree(&local, &remote), Err(bad.clone()));
    // Equal identifiers are valid in different autonomous systems (RFC 6286).
    remote.identifier = local.identifier;
    assert!(agree(&local, &remote).is_ok());
    let (mut local, mut remote) = (local, remote);
    (local.peer_asn, remote.local_asn) = (64_500, 64_500);
    assert_eq!(agree(&local, &remote), Err(bad));
    remote.identifier = Ipv4Addr::new(224, 0, 0, 1);
    assert!(agree(&local, &remote).unwrap().internal);
}

#[test]
fn shorter_hold_time_applies_and_1_or_2_s_are_rejected() {
    let (mut local, mut remote) = pair();
    for seconds in [1, 2] {
        remote.hold = Duration::from_secs(seconds);
        assert_eq!(agree(&local, &remote), Err(Notification::new(2, 6, vec![])));
    }
    for (our, their, hold, keepalive) in
        [(90, 3, 3, 1), (9, 180, 9, 3), (0, 90, 0, 0), (90, 0, 0, 0), (65_535, 65_535, 65_535, 30)]
    {
        local.hold = Duration::from_secs(our);
        remote.hold = Duration::from_secs(their);
        let agreed = agree(&local, &remote).unwrap();
        let times = (agreed.hold.as_secs(), agreed.keepalive.as_secs());
        assert_eq!(times, (hold, keepalive));
    }
}

#[test]
fn open_without_a_common_family_is_rejected() {
    let (mut local, mut remote) = pair();
    local.families = vec![Family::Ipv6Unicast];
    remote.families = vec![Family::Ipv4Unicast];
    let expected = vec![1, 4, 0, 2, 0, 1];
    assert_eq!(agree(&local, &remote), Err(Notification::new(2, 7, expected)));
    remote.families = Family::ALL.to_vec();
    assert_eq!(agree(&local, &remote).unwrap().families, [Family::Ipv6Unicast]);
}

#[test]
fn extended_next_hop_requires_both_sides() {
    let (mut local, mut remote) = pair();
    for (our, their) in [(true, false), (false, true)] {
        (local.extended_next_hop, remote.extended_next_hop) = (our, their);
        assert!(!agree(&local, &remote).unwrap().extended_next_hop);
    }
}

#[test]
fn last_graceful_restart_capability_applies() {
    let (mut local, remote) = pair();
    local.graceful_restart = Some(graceful_restart());
    let mut open = open_of(&remote);
    for (time, restarted) in [(7, false), (9, true)] {
        let restart = GracefulRestart { time, restarted, ..GracefulRestart::default() };
        open.capabilities.push(Capability::GracefulRestart(restart));
    }
    let agreed = negotiate(&local, &open_of(&local), &open).unwrap();
    assert_eq!(agreed.graceful_restart, Some(Duration::from_secs(9)));
    assert!(agreed.peer_restarted && !agreed.notification);
}

#[test]
fn invalid_peer_settings_are_rejected() {
    let change: [(Change, &str); 8] = [
        (|s| s.local_asn = 0, "local ASN 0"),
        (|s| s.identifier = Ipv4Addr::UNSPECIFIED, "router id 0.0.0.0"),
        (|s| s.hold = Duration::from_secs(2), "hold time 2s"),
        (|s| s.hold = Duration::from_millis(500), "hold time 500ms"),
        (|s| s.keepalive = Duration::from_secs(91), "keepalive time 91s"),
        (|s| s.connect_retry = Duration::ZERO, "connect retry time is too short"),
        (|s| s.families.clear(), "no address family"),
        (
            |s| {
                let mut restart = graceful_restart();
                restart.time = Duration::from_secs(4_096);
                s.graceful_restart = Some(restart);
            },
            "restart time 4096s",
        ),
    ];
    assert_eq!(pair().0.check(), Ok(()));
    for (change, expected) in change {
        let mut settings = pair().0;
        change(&mut settings);
        let error = settings.check().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn debug_output_omits_the_md5_key() {
    let mut settings = pair().0;
    settings.transport.md5 = Some("very secret".to_owned());
    assert!(!format!("{settings:?}").contains("secret"));
}
