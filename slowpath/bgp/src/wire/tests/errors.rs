//! Tests of error handling: RFC 4271 section 6, RFC 7606, RFC 8654.

use super::Context;
use super::golden::{FOUR, message, octets, read};
use super::*;

fn notification(code: u8, subcode: u8, data: &str) -> Fault {
    Fault::Notify(Notification::new(code, subcode, octets(data)))
}

#[track_caller]
fn refused(kind: u8, body: &str, code: u8, subcode: u8, data: &str) {
    assert_eq!(read(&message(kind, body), &FOUR), Err(notification(code, subcode, data)));
}

fn framed(octets: &[u8], extended: bool) -> Result<Option<Kind>, Notification> {
    let mut framer = Framer::default();
    if extended {
        framer.extend();
    }
    framer.push(octets);
    Ok(framer.next_message()?.map(|(kind, _)| kind))
}

fn head(length: u16, kind: u8) -> Vec<u8> {
    let mut octets = vec![0xff; 16];
    octets.extend_from_slice(&length.to_be_bytes());
    octets.push(kind);
    octets
}

#[test]
fn a_marker_that_is_not_all_ones_is_not_synchronized() {
    for at in 0..16 {
        let mut octets = message(4, "");
        octets[at] = 0xfe;
        assert_eq!(framed(&octets, false), Err(Notification::new(1, 1, vec![])));
    }
}

#[test]
fn a_length_that_its_type_cannot_have_is_told() {
    let wrong =
        [(18, 4), (0, 2), (20, 4), (28, 1), (22, 2), (20, 3), (22, 5), (4097, 2), (4097, 1)];
    for (length, kind) in wrong {
        let error = Notification::new(1, 2, u16::to_be_bytes(length).to_vec());
        assert_eq!(framed(&head(length, kind), false), Err(error), "{length} of {kind}");
    }
    // Extended messages may be of any type but OPEN and KEEPALIVE (RFC 8654).
    for (kind, taken) in [(1, false), (2, true), (3, true), (4, false), (5, true)] {
        assert_eq!(framed(&head(65_535, kind), true).is_ok(), taken, "{kind}");
    }
}

#[test]
fn a_type_that_nobody_knows_is_told() {
    for kind in [0, 6, 255] {
        assert_eq!(framed(&head(19, kind), false), Err(Notification::new(1, 3, vec![kind])));
    }
}

#[test]
fn a_message_in_pieces_is_whole_once_it_is() {
    let octets = [message(4, ""), message(5, "0001 00 01"), message(4, "")].concat();
    let mut framer = Framer::default();
    let mut kinds = Vec::new();
    for octet in &octets {
        framer.push(&[*octet]);
        while let Some((kind, _)) = framer.next_message().unwrap() {
            kinds.push(kind);
        }
    }
    assert_eq!(kinds, [Kind::Keepalive, Kind::Refresh, Kind::Keepalive]);
}

#[test]
fn another_version_is_answered_with_ours() {
    refused(1, "03 fde9 005a 0a000001 00", 2, 1, "0004");
}

#[test]
fn optional_parameters_unknown_or_malformed() {
    refused(1, "04 fde9 005a 0a000001 02 01 00", 2, 4, "");
    // Beyond the end of all parameters, of one parameter, of one capability.
    refused(1, "04 fde9 005a 0a000001 05 02 02 0200", 2, 0, "");
    refused(1, "04 fde9 005a 0a000001 04 02 05 0200", 2, 0, "");
    refused(1, "04 fde9 005a 0a000001 04 02 02 0201", 2, 0, "");
    refused(1, "04 fde9 005a 0a000001 ff ff 0005 02 0003 0200", 2, 0, "");
    refused(1, "04 fde9 005a 0a000001 01 ff", 2, 0, "");
}

#[test]
fn a_capability_with_a_wrong_value_is_one_that_nobody_knows() {
    let body = "04 fde9 005a 0a000001 0c 02 0a 4103 000001 0201 00 46 00";
    let Ok(Message::Open(open)) = read(&message(1, body), &FOUR) else { panic!("an OPEN") };
    let expected = [
        Capability::Unknown(65, vec![0, 0, 1]),
        Capability::Unknown(2, vec![0]),
        Capability::EnhancedRefresh,
    ];
    assert_eq!(open.capabilities, expected);
}

#[test]
fn a_notification_is_never_answered() {
    // The shortest has code and subcode; shorter ones are rejected by the header check.
    let fault = Message::read(Kind::Notification, &[6], &FOUR);
    assert!(matches!(fault, Err(Fault::Silent(_))), "{fault:?}");
}

#[test]
fn a_mark_of_a_wrong_length_is_told_whole() {
    let whole = message(5, "0001 01 01 00");
    let fault = Notification::new(7, 1, whole.clone());
    assert_eq!(read(&whole, &FOUR), Err(fault.into()));
    // A request may carry filters (RFC 5291), which are ignored.
    assert!(read(&message(5, "0001 00 01 00"), &FOUR).is_ok());
}

const ORIGIN: &str = "40 01 01 00";
const AS_PATH: &str = "40 02 06 02 01 0000fde9";
const NEXT_HOP: &str = "40 03 04 c0000209";
const ROUTE: &str = "20 cb00710a";

/// Decodes an UPDATE with these attributes and the IPv4 prefixes `route`.
fn update(attributes: &[&str], route: &str, context: &Context) -> Result<Arrived, Fault> {
    let attributes: String = attributes.concat();
    let length = octets(&attributes).len();
    match read(&message(2, &format!("0000 {length:04x} {attributes} {route}")), context)? {
        Message::Update(arrived) => Ok(arrived),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn withdrawn(attributes: &[&str], context: &Context) {
    let arrived = update(attributes, ROUTE, context).unwrap();
    assert!(matches!(arrived.treated, Treated::Withdrawn(_)), "{:?}", arrived.treated);
    assert_eq!((arrived.announced.len(), arrived.withdrawn.len()), (0, 1));
}

#[track_caller]
fn discarded(attribute: &str, context: &Context) {
    let all = [ORIGIN, AS_PATH, NEXT_HOP, attribute];
    let local_pref = "40 05 04 00000064";
    let all: Vec<&str> = all.into_iter().chain(context.internal.then_some(local_pref)).collect();
    let arrived = update(&all, ROUTE, context).unwrap();
    assert!(matches!(arrived.treated, Treated::Discarded(_)), "{:?}", arrived.treated);
    assert_eq!((arrived.announced.len(), arrived.withdrawn.len()), (1, 0));
}

#[test]
fn lengths_that_reach_past_the_message_end_the_session() {
    refused(2, "0005 0000", 3, 1, "");
    refused(2, "0000 0001", 3, 1, "");
    refused(2, "0000 ffff 40010100", 3, 1, "");
}

#[test]
fn prefixes_that_cannot_be_end_the_session() {
    refused(2, "0002 21 00 0000", 3, 10, "");
    refused(2, "0002 18 00 0000", 3, 10, "");
    refused(2, "0000 0000 21 cb00710a00", 3, 10, "");
    refused(2, "0000 0000 ff", 3, 10, "");
}

#[test]
fn a_prefix_that_is_multicast_is_left_out_and_stray_bits_are_cleared() {
    let route = "18 e00001  17 c63365  20 cb00710a";
    let arrived = update(&[ORIGIN, AS_PATH, NEXT_HOP], route, &FOUR).unwrap();
    let expected: Vec<IpNet> =
        ["198.51.100.0/23", "203.0.113.10/32"].map(|text| text.parse().unwrap()).into();
    assert_eq!(arrived.announced, expected);
}

#[test]
fn a_well_known_attribute_that_nobody_knows_ends_the_session() {
    let unknown = "40 63 02 abcd";
    let fault = update(&[ORIGIN, AS_PATH, NEXT_HOP, unknown], ROUTE, &FOUR);
    assert_eq!(fault, Err(notification(3, 2, unknown)));
    // An unknown optional attribute is ignored.
    let arrived = update(&[ORIGIN, AS_PATH, NEXT_HOP, "c0 63 02 abcd"], ROUTE, &FOUR).unwrap();
    assert_eq!((arrived.treated, arrived.announced.len()), (Treated::AsSent, 1));
}

#[test]
fn attributes_come_in_any_order_or_without_a_route() {
    let unknown = "80 63 02 abcd";
    for all in [[NEXT_HOP, AS_PATH, unknown, ORIGIN], [unknown, AS_PATH, ORIGIN, NEXT_HOP]] {
        let arrived = update(&all, ROUTE, &FOUR).unwrap();
        assert_eq!((arrived.treated, arrived.announced.len()), (Treated::AsSent, 1));
        let arrived = update(&all, "", &FOUR).unwrap();
        assert_eq!((arrived.treated, arrived.announced.len()), (Treated::AsSent, 0));
    }
}

#[test]
fn a_missing_attribute_withdraws() {
    withdrawn(&[AS_PATH, NEXT_HOP], &FOUR);
    withdrawn(&[ORIGIN, NEXT_HOP], &FOUR);
    withdrawn(&[ORIGIN, AS_PATH], &FOUR);
    withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP], &Context { internal: true, ..FOUR });
}

#[test]
fn wrong_flags_withdraw() {
    withdrawn(&["c0 01 01 00", AS_PATH, NEXT_HOP], &FOUR);
    withdrawn(&["00 01 01 00", AS_PATH, NEXT_HOP], &FOUR);
    withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "40 04 04 00000001"], &FOUR);
    withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "40 08 04 00000001"], &FOUR);
    // Wrong flags of a multiprotocol attribute count too, but its prefixes are still found.
    let reach = "50 0e 001a 0002 01 10 20010db8000000000000000000000009 00 20 20010db8";
    let arrived = update(&[reach, ORIGIN, AS_PATH], "", &FOUR).unwrap();
    assert_eq!(arrived.withdrawn, ["2001:db8::/32".parse().unwrap()]);
}

#[test]
fn flag_bits_without_a_meaning_are_ignored() {
    let all = ["4f 01 01 00", AS_PATH, "50 03 0004 c0000209"];
    let arrived = update(&all, ROUTE, &FOUR).unwrap();
    assert_eq!((arrived.treated, arrived.announced.len()), (Treated::AsSent, 1));
}

#[test]
fn attributes_of_wrong_values_withdraw() {
    withdrawn(&["40 01 01 03", AS_PATH, NEXT_HOP], &FOUR);
    withdrawn(&["40 01 02 0000", AS_PATH, NEXT_HOP], &FOUR);
    for path in [
        "40 02 06 05 01 0000fde9",
        "40 02 05 02 01 0000fd",
        "40 02 02 02 00",
        "40 02 07 02 01 0000fde9 02",
    ] {
        withdrawn(&[ORIGIN, path, NEXT_HOP], &FOUR);
    }
    withdrawn(&[ORIGIN, AS_PATH, "40 03 05 c000020900"], &FOUR);
    withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "80 04 03 000001"], &FOUR);
    let values = [
        "c0 08 00",
        "c0 08 03 000001",
        "c0 10 07 00000000000000",
        "c0 19 00",
        "c0 20 0b 0000000000000000000000",
        "c0 20 00",
    ];
    for value in values {
        withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, value], &FOUR);
    }
    let internal = Context { internal: true, ..FOUR };
    let local_pref = "40 05 04 00000064";
    withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "40 05 03 000001"], &internal);
    withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, local_pref, "80 09 03 000001"], &internal);
    withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, local_pref, "80 0a 03 000001"], &internal);
}

#[test]
fn attributes_that_change_no_route_are_discarded() {
    discarded("40 06 01 00", &FOUR);
    discarded("c0 07 06 fde9 c0000209", &FOUR);
    discarded("c0 07 07 0000fde9 c00002", &Context { internal: true, ..FOUR });
    discarded("40 05 04 00000064", &FOUR);
    discarded("80 09 01 00", &FOUR);
    discarded("80 0a 01 00", &FOUR);
    // Attributes for 2-octet speakers, from a 4-octet speaker (RFC 6793 section 6).
    discarded("c0 11 06 02 01 00011170", &FOUR);
    discarded("c0 12 08 00011170 c0000209", &FOUR);
}

#[test]
fn from_a_speaker_of_two_octets_a_malformed_as4_path_is_discarded() {
    let short = Context::default();
    let path = "40 02 04 02 01 5ba0";
    for wrong in ["c0 11 05 02 01 000111", "c0 12 07 00011170 c00002", "c0 07 08 0000fde9 c0000209"]
    {
        let arrived = update(&[ORIGIN, path, NEXT_HOP, wrong], ROUTE, &short).unwrap();
        assert!(matches!(arrived.treated, Treated::Discarded(_)), "{wrong}");
        assert_eq!(arrived.path.as_path, Some(vec![(2, vec![23_456])]));
    }
}

#[test]
fn an_attribute_that_reaches_past_the_attributes_withdraws_and_the_routes_are_found() {
    withdrawn(&[ORIGIN, AS_PATH, "40 03 05 c0000209"], &FOUR);
    withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "40"], &FOUR);
    withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "50 08 ff"], &FOUR);
}

#[test]
fn of_an_attribute_that_comes_twice_the_first_counts_but_not_of_those_with_prefixes() {
    let all = [ORIGIN, AS_PATH, NEXT_HOP, "80 04 04 00000001", "80 04 04 00000002", "40 01 01 07"];
    let arrived = update(&all, ROUTE, &FOUR).unwrap();
    assert_eq!((arrived.treated, arrived.path.med), (Treated::AsSent, Some(1)));
    let reach = "80 0e 1a 0002 01 10 20010db8000000000000000000000009 00 20 20010db8";
    let twice = update(&[reach, reach, ORIGIN, AS_PATH], "", &FOUR);
    assert_eq!(twice, Err(notification(3, 1, "")));
    let unreach = "80 0f 03 0002 01";
    assert_eq!(update(&[unreach, unreach], "", &FOUR), Err(notification(3, 1, "")));
}

#[test]
fn the_strongest_treatment_wins_and_the_first_of_it_is_told() {
    let all = [ORIGIN, AS_PATH, NEXT_HOP, "40 06 01 00", "80 04 03 000001", "c0 08 00"];
    let arrived = update(&all, ROUTE, &FOUR).unwrap();
    assert_eq!(arrived.treated, Treated::Withdrawn("MED isn't 4 octets long"));
}

#[test]
fn wrong_attributes_without_a_route_end_the_session() {
    // RFC 7606 section 5.2.
    assert_eq!(update(&["40 01 01 07"], "", &FOUR), Err(notification(3, 1, "")));
    let unreach = "80 0f 08 0002 01 20 20010db8";
    assert_eq!(update(&[unreach, "c0 08 00"], "", &FOUR), Err(notification(3, 1, "")));
    // A discarded attribute does not end the session.
    assert!(update(&[unreach, "40 06 01 00"], "", &FOUR).is_ok());
}

#[test]
fn where_prefixes_of_a_family_cannot_be_found_it_is_not_heard_any_more() {
    let wrong = [
        // A next hop of 5 octets, a next hop beyond the end, a prefix beyond the end.
        "80 0e 0b 0002 01 05 0000000000 00 00",
        "80 0e 05 0002 01 10 00",
        "80 0e 1a 0002 01 10 20010db8000000000000000000000009 00 40 20010db8",
        "80 0e 16 0002 01 10 20010db8000000000000000000000009 00 81",
    ];
    for reach in wrong {
        let arrived = update(&[reach, ORIGIN, AS_PATH], "", &FOUR).unwrap();
        assert_eq!(arrived.disabled, Some(Family::Ipv6Unicast), "{reach}");
        assert!(arrived.announced.is_empty());
    }
    let arrived = update(&["80 0f 05 0002 01 40 20"], "", &FOUR).unwrap();
    assert_eq!(arrived.disabled, Some(Family::Ipv6Unicast));
    // Without AFI and SAFI there is no family to disable.
    for short in ["80 0e 03 0002 01", "80 0f 02 0002"] {
        assert_eq!(update(&[short], "", &FOUR), Err(notification(3, 9, short)));
    }
}

#[test]
fn a_family_that_we_do_not_speak_is_ignored() {
    let reach = "80 0e 09 0019 41 04 c0000209 00";
    let arrived = update(&[reach, ORIGIN, AS_PATH], "", &FOUR).unwrap();
    assert_eq!((arrived.announced.len(), arrived.disabled), (0, None));
    let arrived = update(&["80 0f 03 0019 41"], "", &FOUR).unwrap();
    assert_eq!(arrived.end_of_rib, None);
}

#[test]
fn a_link_local_next_hop_may_follow_the_global_one() {
    let reach = "80 0e 2a 0002 01 20 20010db8000000000000000000000009
                 fe800000000000000000000000000009 00 20 20010db8";
    let arrived = update(&[reach, ORIGIN, AS_PATH], "", &FOUR).unwrap();
    assert_eq!(arrived.path.next_hop, Some("2001:db8::9".parse().unwrap()));
    assert_eq!(arrived.announced.len(), 1);
}
