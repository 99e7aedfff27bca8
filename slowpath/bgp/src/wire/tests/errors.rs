//! Tests of error handling: RFC 4271 section 6, RFC 7606, RFC 8654.

use super::DecodeContext;
use super::golden::{FOUR_OCTET_AS, message, octets, read};
use super::*;

fn notification(code: u8, subcode: u8, data: &str) -> Fault {
    Fault::Notify(Notification::new(code, subcode, octets(data)))
}

#[track_caller]
fn assert_rejected(kind: u8, body: &str, code: u8, subcode: u8, data: &str) {
    assert_eq!(read(&message(kind, body), &FOUR_OCTET_AS), Err(notification(code, subcode, data)));
}

/// Returns the type of the first message in `octets`; `None` if it is incomplete.
fn framed(octets: &[u8]) -> Result<Option<Kind>, Notification> {
    first_kind(Framer::default(), octets)
}

/// Does the same as [`framed`], but accepts extended messages.
fn framed_extended(octets: &[u8]) -> Result<Option<Kind>, Notification> {
    let mut framer = Framer::default();
    framer.accept_extended_messages();
    first_kind(framer, octets)
}

fn first_kind(mut framer: Framer, octets: &[u8]) -> Result<Option<Kind>, Notification> {
    framer.push(octets);
    Ok(framer.next_message()?.map(|(kind, _)| kind))
}

fn header(length: u16, kind: u8) -> Vec<u8> {
    let mut octets = vec![0xff; 16];
    octets.extend_from_slice(&length.to_be_bytes());
    octets.push(kind);
    octets
}

#[test]
fn marker_other_than_all_ones_is_rejected() {
    for at in 0..16 {
        let mut octets = message(4, "");
        octets[at] = 0xfe;
        assert_eq!(framed(&octets), Err(Notification::new(1, 1, vec![])));
    }
}

#[test]
fn invalid_message_length_is_reported() {
    let wrong =
        [(18, 4), (0, 2), (20, 4), (28, 1), (22, 2), (20, 3), (22, 5), (4097, 2), (4097, 1)];
    for (length, kind) in wrong {
        let error = Notification::new(1, 2, u16::to_be_bytes(length).to_vec());
        assert_eq!(framed(&header(length, kind)), Err(error), "{length} of {kind}");
    }
    // Extended messages may be of any type but OPEN and KEEPALIVE (RFC 8654).
    for (kind, accepted) in [(1, false), (2, true), (3, true), (4, false), (5, true)] {
        assert_eq!(framed_extended(&header(65_535, kind)).is_ok(), accepted, "{kind}");
    }
}

#[test]
fn unknown_message_type_is_reported() {
    for kind in [0, 6, 255] {
        assert_eq!(framed(&header(19, kind)), Err(Notification::new(1, 3, vec![kind])));
    }
}

#[test]
fn message_split_across_reads_is_reassembled() {
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
fn unsupported_version_reports_the_supported_one() {
    assert_rejected(1, "03 fde9 005a 0a000001 00", 2, 1, "0004");
}

#[test]
fn unknown_or_malformed_optional_parameters_are_rejected() {
    assert_rejected(1, "04 fde9 005a 0a000001 02 01 00", 2, 4, "");
    // The parameters exceed the message; a parameter exceeds the parameters; a capability exceeds
    // its parameter. In the extended format: a parameter exceeds the parameters; the length of the
    // parameters is missing.
    assert_rejected(1, "04 fde9 005a 0a000001 05 02 02 0200", 2, 0, "");
    assert_rejected(1, "04 fde9 005a 0a000001 04 02 05 0200", 2, 0, "");
    assert_rejected(1, "04 fde9 005a 0a000001 04 02 02 0201", 2, 0, "");
    assert_rejected(1, "04 fde9 005a 0a000001 ff ff 0005 02 0003 0200", 2, 0, "");
    assert_rejected(1, "04 fde9 005a 0a000001 01 ff", 2, 0, "");
}

#[test]
fn malformed_capability_is_treated_as_unknown() {
    let body = "04 fde9 005a 0a000001 0c 02 0a 4103 000001 0201 00 46 00";
    let Ok(Message::Open(open)) = read(&message(1, body), &FOUR_OCTET_AS) else {
        panic!("an OPEN")
    };
    let expected = [
        Capability::Unknown(65, vec![0, 0, 1]),
        Capability::Unknown(2, vec![0]),
        Capability::EnhancedRefresh,
    ];
    assert_eq!(open.capabilities, expected);
}

#[test]
fn invalid_notification_is_not_answered() {
    // The shortest has code and subcode; shorter ones are rejected by the header check.
    let fault = Message::read(Kind::Notification, &[6], &FOUR_OCTET_AS);
    assert!(matches!(fault, Err(Fault::Silent(_))), "{fault:?}");
}

#[test]
fn route_refresh_marker_of_wrong_length_is_reported() {
    let refresh = message(5, "0001 01 01 00");
    let fault = Notification::new(7, 1, refresh.clone());
    assert_eq!(read(&refresh, &FOUR_OCTET_AS), Err(fault.into()));
    // A request may carry filters (RFC 5291), which are ignored.
    assert!(read(&message(5, "0001 00 01 00"), &FOUR_OCTET_AS).is_ok());
}

const ORIGIN: &str = "40 01 01 00";
const AS_PATH: &str = "40 02 06 02 01 0000fde9";
const NEXT_HOP: &str = "40 03 04 c0000209";
const ROUTE: &str = "20 cb00710a";

/// Decodes an UPDATE with these attributes and the IPv4 prefixes `route`.
fn decode(
    attributes: &[&str],
    route: &str,
    context: &DecodeContext,
) -> Result<ReceivedUpdate, Fault> {
    let attributes: String = attributes.concat();
    let length = octets(&attributes).len();
    match read(&message(2, &format!("0000 {length:04x} {attributes} {route}")), context)? {
        Message::Update(update) => Ok(update),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_withdrawn(attributes: &[&str], context: &DecodeContext) {
    let update = decode(attributes, ROUTE, context).unwrap();
    assert!(
        matches!(update.error_handling, ErrorHandling::TreatAsWithdraw(_)),
        "{:?}",
        update.error_handling
    );
    assert_eq!((update.announced.len(), update.withdrawn.len()), (0, 1));
}

#[track_caller]
fn assert_discarded(attribute: &str, context: &DecodeContext) {
    let all = [ORIGIN, AS_PATH, NEXT_HOP, attribute];
    let local_pref = "40 05 04 00000064";
    let all: Vec<&str> = all.into_iter().chain(context.internal.then_some(local_pref)).collect();
    let update = decode(&all, ROUTE, context).unwrap();
    assert!(
        matches!(update.error_handling, ErrorHandling::AttributeDiscard(_)),
        "{:?}",
        update.error_handling
    );
    assert_eq!((update.announced.len(), update.withdrawn.len()), (1, 0));
}

#[test]
fn lengths_beyond_the_message_end_the_session() {
    assert_rejected(2, "0005 0000", 3, 1, "");
    assert_rejected(2, "0000 0001", 3, 1, "");
    assert_rejected(2, "0000 ffff 40010100", 3, 1, "");
}

#[test]
fn invalid_prefixes_end_the_session() {
    assert_rejected(2, "0002 21 00 0000", 3, 10, "");
    assert_rejected(2, "0002 18 00 0000", 3, 10, "");
    assert_rejected(2, "0000 0000 21 cb00710a00", 3, 10, "");
    assert_rejected(2, "0000 0000 ff", 3, 10, "");
}

#[test]
fn multicast_prefixes_are_ignored_and_host_bits_cleared() {
    let route = "18 e00001  17 c63365  20 cb00710a";
    let update = decode(&[ORIGIN, AS_PATH, NEXT_HOP], route, &FOUR_OCTET_AS).unwrap();
    let expected: Vec<IpNet> =
        ["198.51.100.0/23", "203.0.113.10/32"].map(|text| text.parse().unwrap()).into();
    assert_eq!(update.announced, expected);
}

#[test]
fn unrecognized_well_known_attribute_ends_the_session() {
    let unknown = "40 63 02 abcd";
    let fault = decode(&[ORIGIN, AS_PATH, NEXT_HOP, unknown], ROUTE, &FOUR_OCTET_AS);
    assert_eq!(fault, Err(notification(3, 2, unknown)));
    // An unknown optional attribute is ignored.
    let update =
        decode(&[ORIGIN, AS_PATH, NEXT_HOP, "c0 63 02 abcd"], ROUTE, &FOUR_OCTET_AS).unwrap();
    assert_eq!((update.error_handling, update.announced.len()), (ErrorHandling::NoError, 1));
}

#[test]
fn attributes_are_accepted_in_any_order_and_without_routes() {
    let unknown = "80 63 02 abcd";
    for all in [[NEXT_HOP, AS_PATH, unknown, ORIGIN], [unknown, AS_PATH, ORIGIN, NEXT_HOP]] {
        let update = decode(&all, ROUTE, &FOUR_OCTET_AS).unwrap();
        assert_eq!((update.error_handling, update.announced.len()), (ErrorHandling::NoError, 1));
        let update = decode(&all, "", &FOUR_OCTET_AS).unwrap();
        assert_eq!((update.error_handling, update.announced.len()), (ErrorHandling::NoError, 0));
    }
}

#[test]
fn missing_mandatory_attribute_is_treated_as_withdraw() {
    assert_withdrawn(&[AS_PATH, NEXT_HOP], &FOUR_OCTET_AS);
    assert_withdrawn(&[ORIGIN, NEXT_HOP], &FOUR_OCTET_AS);
    assert_withdrawn(&[ORIGIN, AS_PATH], &FOUR_OCTET_AS);
    assert_withdrawn(
        &[ORIGIN, AS_PATH, NEXT_HOP],
        &DecodeContext { internal: true, ..FOUR_OCTET_AS },
    );
}

#[test]
fn wrong_attribute_flags_are_treated_as_withdraw() {
    assert_withdrawn(&["c0 01 01 00", AS_PATH, NEXT_HOP], &FOUR_OCTET_AS);
    assert_withdrawn(&["00 01 01 00", AS_PATH, NEXT_HOP], &FOUR_OCTET_AS);
    assert_withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "40 04 04 00000001"], &FOUR_OCTET_AS);
    assert_withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "40 08 04 00000001"], &FOUR_OCTET_AS);
    // A multiprotocol attribute with wrong flags is decoded nevertheless, to find the prefixes that
    // count as withdrawn.
    let reach = "50 0e 001a 0002 01 10 20010db8000000000000000000000009 00 20 20010db8";
    let update = decode(&[reach, ORIGIN, AS_PATH], "", &FOUR_OCTET_AS).unwrap();
    assert_eq!(update.withdrawn, ["2001:db8::/32".parse().unwrap()]);
}

#[test]
fn unused_attribute_flag_bits_are_ignored() {
    let all = ["4f 01 01 00", AS_PATH, "50 03 0004 c0000209"];
    let update = decode(&all, ROUTE, &FOUR_OCTET_AS).unwrap();
    assert_eq!((update.error_handling, update.announced.len()), (ErrorHandling::NoError, 1));
}

#[test]
fn malformed_attributes_are_treated_as_withdraw() {
    assert_withdrawn(&["40 01 01 03", AS_PATH, NEXT_HOP], &FOUR_OCTET_AS);
    assert_withdrawn(&["40 01 02 0000", AS_PATH, NEXT_HOP], &FOUR_OCTET_AS);
    for path in [
        "40 02 06 05 01 0000fde9",
        "40 02 05 02 01 0000fd",
        "40 02 02 02 00",
        "40 02 07 02 01 0000fde9 02",
    ] {
        assert_withdrawn(&[ORIGIN, path, NEXT_HOP], &FOUR_OCTET_AS);
    }
    assert_withdrawn(&[ORIGIN, AS_PATH, "40 03 05 c000020900"], &FOUR_OCTET_AS);
    assert_withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "80 04 03 000001"], &FOUR_OCTET_AS);
    let values = [
        "c0 08 00",
        "c0 08 03 000001",
        "c0 10 07 00000000000000",
        "c0 19 00",
        "c0 20 0b 0000000000000000000000",
        "c0 20 00",
    ];
    for value in values {
        assert_withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, value], &FOUR_OCTET_AS);
    }
    let internal = DecodeContext { internal: true, ..FOUR_OCTET_AS };
    let local_pref = "40 05 04 00000064";
    assert_withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "40 05 03 000001"], &internal);
    assert_withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, local_pref, "80 09 03 000001"], &internal);
    assert_withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, local_pref, "80 0a 03 000001"], &internal);
}

#[test]
fn faulty_attributes_that_affect_no_route_are_discarded() {
    assert_discarded("40 06 01 00", &FOUR_OCTET_AS);
    assert_discarded("c0 07 06 fde9 c0000209", &FOUR_OCTET_AS);
    assert_discarded(
        "c0 07 07 0000fde9 c00002",
        &DecodeContext { internal: true, ..FOUR_OCTET_AS },
    );
    assert_discarded("40 05 04 00000064", &FOUR_OCTET_AS);
    assert_discarded("80 09 01 00", &FOUR_OCTET_AS);
    assert_discarded("80 0a 01 00", &FOUR_OCTET_AS);
    // Attributes for 2-octet speakers, from a 4-octet speaker (RFC 6793 section 6).
    assert_discarded("c0 11 06 02 01 00011170", &FOUR_OCTET_AS);
    assert_discarded("c0 12 08 00011170 c0000209", &FOUR_OCTET_AS);
}

#[test]
fn malformed_as4_or_aggregator_of_a_two_octet_speaker_is_discarded() {
    let short = DecodeContext::default();
    let path = "40 02 04 02 01 5ba0";
    for wrong in ["c0 11 05 02 01 000111", "c0 12 07 00011170 c00002", "c0 07 08 0000fde9 c0000209"]
    {
        let update = decode(&[ORIGIN, path, NEXT_HOP, wrong], ROUTE, &short).unwrap();
        assert!(matches!(update.error_handling, ErrorHandling::AttributeDiscard(_)), "{wrong}");
        assert_eq!(update.path.as_path, Some(vec![(2, vec![23_456])]));
    }
}

#[test]
fn attribute_beyond_the_attribute_field_is_treated_as_withdraw() {
    assert_withdrawn(&[ORIGIN, AS_PATH, "40 03 05 c0000209"], &FOUR_OCTET_AS);
    assert_withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "40"], &FOUR_OCTET_AS);
    assert_withdrawn(&[ORIGIN, AS_PATH, NEXT_HOP, "50 08 ff"], &FOUR_OCTET_AS);
}

#[test]
fn first_of_duplicate_attributes_is_used_except_multiprotocol() {
    let all = [ORIGIN, AS_PATH, NEXT_HOP, "80 04 04 00000001", "80 04 04 00000002", "40 01 01 07"];
    let update = decode(&all, ROUTE, &FOUR_OCTET_AS).unwrap();
    assert_eq!((update.error_handling, update.path.med), (ErrorHandling::NoError, Some(1)));
    let reach = "80 0e 1a 0002 01 10 20010db8000000000000000000000009 00 20 20010db8";
    let twice = decode(&[reach, reach, ORIGIN, AS_PATH], "", &FOUR_OCTET_AS);
    assert_eq!(twice, Err(notification(3, 1, "")));
    let unreach = "80 0f 03 0002 01";
    assert_eq!(decode(&[unreach, unreach], "", &FOUR_OCTET_AS), Err(notification(3, 1, "")));
}

#[test]
fn most_severe_error_handling_applies_and_reports_its_first_error() {
    let all = [ORIGIN, AS_PATH, NEXT_HOP, "40 06 01 00", "80 04 03 000001", "c0 08 00"];
    let update = decode(&all, ROUTE, &FOUR_OCTET_AS).unwrap();
    assert_eq!(update.error_handling, ErrorHandling::TreatAsWithdraw("MED is not 4 octets long"));
}

#[test]
fn malformed_attributes_without_routes_end_the_session() {
    // RFC 7606 section 5.2.
    assert_eq!(decode(&["40 01 01 07"], "", &FOUR_OCTET_AS), Err(notification(3, 1, "")));
    let unreach = "80 0f 08 0002 01 20 20010db8";
    assert_eq!(decode(&[unreach, "c0 08 00"], "", &FOUR_OCTET_AS), Err(notification(3, 1, "")));
    // A discarded attribute does not end the session.
    assert!(decode(&[unreach, "40 06 01 00"], "", &FOUR_OCTET_AS).is_ok());
}

#[test]
fn unparsable_prefixes_disable_their_address_family() {
    let wrong = [
        // A next hop of 5 octets, a next hop beyond the end, a prefix beyond the end, a prefix
        // length of 129 bits.
        "80 0e 0b 0002 01 05 0000000000 00 00",
        "80 0e 05 0002 01 10 00",
        "80 0e 1a 0002 01 10 20010db8000000000000000000000009 00 40 20010db8",
        "80 0e 16 0002 01 10 20010db8000000000000000000000009 00 81",
    ];
    for reach in wrong {
        let update = decode(&[reach, ORIGIN, AS_PATH], "", &FOUR_OCTET_AS).unwrap();
        assert_eq!(update.disabled, Some(Family::Ipv6Unicast), "{reach}");
        assert!(update.announced.is_empty());
    }
    let update = decode(&["80 0f 05 0002 01 40 20"], "", &FOUR_OCTET_AS).unwrap();
    assert_eq!(update.disabled, Some(Family::Ipv6Unicast));
    // Without AFI and SAFI there is no family to disable.
    for short in ["80 0e 03 0002 01", "80 0f 02 0002"] {
        assert_eq!(decode(&[short], "", &FOUR_OCTET_AS), Err(notification(3, 9, short)));
    }
}

#[test]
fn unsupported_address_family_is_ignored() {
    let reach = "80 0e 09 0019 41 04 c0000209 00";
    let update = decode(&[reach, ORIGIN, AS_PATH], "", &FOUR_OCTET_AS).unwrap();
    assert_eq!((update.announced.len(), update.disabled), (0, None));
    let update = decode(&["80 0f 03 0019 41"], "", &FOUR_OCTET_AS).unwrap();
    assert_eq!(update.end_of_rib, None);
}

#[test]
fn link_local_next_hop_after_the_global_one_is_accepted() {
    let reach = "80 0e 2a 0002 01 20 20010db8000000000000000000000009
                 fe800000000000000000000000000009 00 20 20010db8";
    let update = decode(&[reach, ORIGIN, AS_PATH], "", &FOUR_OCTET_AS).unwrap();
    assert_eq!(update.path.next_hop, Some("2001:db8::9".parse().unwrap()));
    assert_eq!(update.announced.len(), 1);
}
