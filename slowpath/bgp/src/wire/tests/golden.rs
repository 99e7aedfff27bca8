//! Golden messages, encoded by hand from the RFCs.

use super::DecodeContext;
use super::attribute::SEQUENCE;
use super::write::{self, EncodeContext};
use super::*;

/// Converts hexadecimal digits, with any white space, to octets.
pub(crate) fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| (byte as char).to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns a message with this type and body.
pub(crate) fn message(kind: u8, body: &str) -> Vec<u8> {
    let body = octets(body);
    let mut all = vec![0xff; 16];
    all.extend_from_slice(&(19 + body.len() as u16).to_be_bytes());
    all.push(kind);
    all.extend(body);
    all
}

/// Decodes one complete message.
pub(crate) fn read(octets: &[u8], context: &DecodeContext) -> Result<Message, Fault> {
    let mut framer = Framer::default();
    framer.accept_extended_messages();
    framer.push(octets);
    let (kind, body) = framer.next_message()?.expect("a complete message");
    Message::read(kind, &body, context)
}

/// Context of an external session with 4-octet AS numbers.
pub(crate) const FOUR_OCTET_AS: DecodeContext =
    DecodeContext { four_octet: true, internal: false, extended_next_hop: false };

pub(crate) fn encode_context() -> EncodeContext {
    EncodeContext {
        local_asn: 65_001,
        internal: false,
        four_octet: true,
        extended_next_hop: false,
        limit: MAX_MESSAGE,
        peer: [192, 0, 2, 2].into(),
    }
}

fn prefixes(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn keepalive_is_a_header_only() {
    assert_eq!(frame::keepalive(), message(4, ""));
    assert_eq!(read(&message(4, ""), &FOUR_OCTET_AS), Ok(Message::Keepalive));
}

#[test]
fn open_with_all_capabilities_round_trips() {
    let open = Open {
        asn: AS_TRANS,
        hold_time: 90,
        identifier: [192, 0, 2, 1].into(),
        capabilities: vec![
            Capability::family(Family::Ipv4Unicast),
            Capability::family(Family::Ipv6Unicast),
            Capability::RouteRefresh,
            Capability::ExtendedMessage,
            Capability::FourOctetAs(4_200_000_000),
            Capability::EnhancedRefresh,
            Capability::ExtendedNextHop(vec![(1, 1, 2)]),
            Capability::GracefulRestart(GracefulRestart {
                restarted: true,
                notification: true,
                time: 120,
                families: vec![(1, 1, true), (2, 1, false)],
            }),
            Capability::LongLived(vec![(2, 1, true, 86_400)]),
        ],
    };
    let expected = message(
        1,
        "04 5ba0 005a c0000201 37 02 35
         0104 00010001  0104 00020001  0200  0600  4104 fa56ea00  4600
         0506 000100010002  400a c078 00010180 00020100  4707 00020180 015180",
    );
    assert_eq!(open.write(), expected);
    assert_eq!(read(&expected, &FOUR_OCTET_AS), Ok(Message::Open(open)));
}

#[test]
fn long_optional_parameters_use_the_extended_format() {
    let capability = |code| Capability::Unknown(code, vec![code; 100]);
    let open = Open {
        asn: 65_001,
        hold_time: 0,
        identifier: [10, 0, 0, 1].into(),
        capabilities: vec![capability(200), capability(201), capability(202)],
    };
    let written = open.write();
    // RFC 9072 section 2: 255, 255, then 2-octet lengths.
    assert_eq!(written[28..35], octets("ff ff 0135 02 0132"));
    assert_eq!(read(&written, &FOUR_OCTET_AS), Ok(Message::Open(open)));
    // The extended format is also valid for short parameters.
    let short = message(1, "04 fde9 005a 0a000001 ff ff 0005 02 0002 0200");
    let Ok(Message::Open(open)) = read(&short, &FOUR_OCTET_AS) else { panic!("an OPEN") };
    assert_eq!(open.capabilities, [Capability::RouteRefresh]);
}

#[test]
fn ipv4_announcement_matches_the_golden_message() {
    let mut attributes = Attributes::new("192.0.2.9".parse().unwrap());
    attributes.prepend = 1;
    attributes.med = Some(50);
    attributes.local_pref = Some(200);
    attributes.communities = vec![0xfde9_0064, 0xffff_ff01];
    attributes.large = vec![[65_001, 1, 2]];
    let mut left = prefixes(&["198.51.100.0/24", "203.0.113.10/32", "10.0.0.0/9", "0.0.0.0/0"]);
    let (written, announced) =
        encode_context().announce(Family::Ipv4Unicast, &attributes, &mut left).unwrap();
    let expected = message(
        2,
        "0000 0039
         40 01 01 00   40 02 0a 02 02 0000fde9 0000fde9   40 03 04 c0000209   80 04 04 00000032
         c0 08 08 fde90064 ffffff01   c0 20 0c 0000fde9 00000001 00000002
         00  09 0a00  20 cb00710a  18 c63364",
    );
    assert_eq!(written, expected);
    assert!(left.is_empty());
    let Ok(Message::Update(update)) = read(&expected, &FOUR_OCTET_AS) else { panic!("an UPDATE") };
    assert_eq!(update.announced, announced);
    assert_eq!(update.path.as_path, Some(vec![(SEQUENCE, vec![65_001, 65_001])]));
    assert_eq!(update.path.communities, attributes.communities);
    assert_eq!(update.path.large, attributes.large);
    assert_eq!(update.error_handling, ErrorHandling::NoError);
}

#[test]
fn internal_peer_gets_empty_as_path_and_local_pref() {
    let attributes = Attributes::new("192.0.2.9".parse().unwrap());
    let internal = EncodeContext { internal: true, ..encode_context() };
    let mut left = prefixes(&["203.0.113.10/32"]);
    let (written, _) = internal.announce(Family::Ipv4Unicast, &attributes, &mut left).unwrap();
    let body = "0000 0015 40 01 01 00  40 02 00  40 03 04 c0000209  40 05 04 00000064 20cb00710a";
    assert_eq!(written, message(2, body));
}

#[test]
fn two_octet_peer_gets_as4_path_in_addition() {
    let attributes = Attributes::new("192.0.2.9".parse().unwrap());
    let old = EncodeContext { local_asn: 4_200_000_000, four_octet: false, ..encode_context() };
    let mut left = prefixes(&["203.0.113.10/32"]);
    let (written, _) = old.announce(Family::Ipv4Unicast, &attributes, &mut left).unwrap();
    let body = "0000 001b 40 01 01 00  40 02 04 02 01 5ba0  40 03 04 c0000209
                c0 11 06 02 01 fa56ea00  20 cb00710a";
    assert_eq!(written, message(2, body));
    let Ok(Message::Update(update)) = read(&written, &DecodeContext::default()) else { panic!() };
    assert_eq!(update.path.as_path, Some(vec![(SEQUENCE, vec![4_200_000_000])]));
}

#[test]
fn as4_path_is_merged_behind_leading_two_octet_segments() {
    // AS_PATH 100 200 23456 23456 and AS4_PATH 70000 80000 (RFC 6793 section 4.2.3).
    let body = "0000 0025 40 01 01 00  40 02 0a 02 04 0064 00c8 5ba0 5ba0  40 03 04 c0000209
                c0 11 0a 02 02 00011170 00013880  20 cb00710a";
    let Ok(Message::Update(update)) = read(&message(2, body), &DecodeContext::default()) else {
        panic!("an UPDATE")
    };
    let path = vec![(SEQUENCE, vec![100, 200]), (SEQUENCE, vec![70_000, 80_000])];
    assert_eq!(update.path.as_path, Some(path));
    // AS_PATH 100 {1 2} 23456: a set counts as one.
    let body = "0000 0025 40 01 01 00  40 02 0e 02 01 0064 01 02 0001 0002 02 01 5ba0
                40 03 04 c0000209  c0 11 06 02 01 00011170  20 cb00710a";
    let Ok(Message::Update(update)) = read(&message(2, body), &DecodeContext::default()) else {
        panic!("an UPDATE")
    };
    let path = vec![(SEQUENCE, vec![100]), (1, vec![1, 2]), (SEQUENCE, vec![70_000])];
    assert_eq!(update.path.as_path, Some(path));
    // An AS4_PATH longer than the AS_PATH is ignored.
    let body = "0000 001f 40 01 01 00  40 02 04 02 01 5ba0  40 03 04 c0000209
                c0 11 0a 02 02 00011170 00013880  20 cb00710a";
    let Ok(Message::Update(update)) = read(&message(2, body), &DecodeContext::default()) else {
        panic!("an UPDATE")
    };
    assert_eq!(update.path.as_path, Some(vec![(SEQUENCE, vec![23_456])]));
}

#[test]
fn ipv6_prefixes_use_multiprotocol_attributes_placed_first() {
    let attributes = Attributes::new("2001:db8::9".parse().unwrap());
    let mut left = prefixes(&["2001:db8:1::/48"]);
    let (written, _) =
        encode_context().announce(Family::Ipv6Unicast, &attributes, &mut left).unwrap();
    let expected = message(
        2,
        "0000 002d
         90 0e 001c 0002 01 10 20010db8000000000000000000000009 00 30 20010db80001
         40 01 01 00   40 02 06 02 01 0000fde9",
    );
    assert_eq!(written, expected);
    let mut left = prefixes(&["2001:db8:1::/48", "::/0"]);
    let (written, _) = encode_context().withdraw(Family::Ipv6Unicast, &mut left);
    assert_eq!(written, message(2, "0000 000f 90 0f 000b 0002 01 00 30 20010db80001"));
    let Ok(Message::Update(update)) = read(&written, &FOUR_OCTET_AS) else { panic!("an UPDATE") };
    assert_eq!(update.withdrawn, prefixes(&["::/0", "2001:db8:1::/48"]));
}

#[test]
fn ipv4_prefix_with_ipv6_next_hop_uses_mp_reach() {
    let attributes = Attributes::new("2001:db8::9".parse().unwrap());
    let extended = EncodeContext { extended_next_hop: true, ..encode_context() };
    assert!(extended.can_encode(Family::Ipv4Unicast, attributes.next_hop));
    assert!(!encode_context().can_encode(Family::Ipv4Unicast, attributes.next_hop));
    let mut left = prefixes(&["203.0.113.10/32"]);
    let (written, announced) =
        extended.announce(Family::Ipv4Unicast, &attributes, &mut left).unwrap();
    let expected = message(
        2,
        "0000 002b
         90 0e 001a 0001 01 10 20010db8000000000000000000000009 00 20 cb00710a
         40 01 01 00   40 02 06 02 01 0000fde9",
    );
    assert_eq!(written, expected);
    let context = DecodeContext { extended_next_hop: true, ..FOUR_OCTET_AS };
    let Ok(Message::Update(update)) = read(&expected, &context) else { panic!("an UPDATE") };
    assert_eq!((update.announced, update.path.next_hop), (announced, Some(attributes.next_hop)));
    // If RFC 8950 was not negotiated, the prefixes cannot be parsed.
    let Ok(Message::Update(update)) = read(&expected, &FOUR_OCTET_AS) else { panic!("an UPDATE") };
    assert_eq!(update.disabled, Some(Family::Ipv4Unicast));
}

#[test]
fn end_of_rib_marker_of_each_family_round_trips() {
    assert_eq!(write::end_of_rib(Family::Ipv4Unicast), message(2, "0000 0000"));
    assert_eq!(write::end_of_rib(Family::Ipv6Unicast), message(2, "0000 0006 80 0f 03 0002 01"));
    for family in Family::ALL {
        let Ok(Message::Update(update)) = read(&write::end_of_rib(family), &FOUR_OCTET_AS) else {
            panic!("an UPDATE")
        };
        let expected = ReceivedUpdate { end_of_rib: Some(family), ..ReceivedUpdate::default() };
        assert_eq!(update, expected);
    }
    // An UPDATE that withdraws a prefix is no End-of-RIB.
    let body = "0001 00 0006 80 0f 03 0002 01";
    let Ok(Message::Update(update)) = read(&message(2, body), &FOUR_OCTET_AS) else {
        panic!("an UPDATE")
    };
    assert_eq!((update.end_of_rib, update.withdrawn.len()), (None, 1));
}

#[test]
fn route_refresh_of_each_subtype_round_trips() {
    for (subtype, octet) in [
        (RefreshKind::Request, "00"),
        (RefreshKind::Begin, "01"),
        (RefreshKind::End, "02"),
        (RefreshKind::Other(9), "09"),
    ] {
        let refresh = Refresh::new(Family::Ipv6Unicast, subtype);
        let expected = message(5, &format!("0002 {octet} 01"));
        assert_eq!(refresh.write(), expected);
        assert_eq!(read(&expected, &FOUR_OCTET_AS), Ok(Message::Refresh(refresh)));
    }
}

#[test]
fn shutdown_carries_a_message_and_hard_reset_the_actual_reason() {
    use super::notification::cease;
    let shutdown = Notification::cease_with_message(cease::SHUTDOWN, "upgrade");
    assert_eq!(shutdown.write(), message(3, "06 02 07 75706772616465"));
    assert_eq!(shutdown.to_string(), "cease: administrative shutdown, \"upgrade\"");
    let hard = shutdown.hard();
    assert_eq!(hard.write(), message(3, "06 09 06 02 07 75706772616465"));
    assert_eq!(hard.to_string(), "cease: hard reset (cease: administrative shutdown, \"upgrade\")");
    assert_eq!(read(&hard.write(), &FOUR_OCTET_AS), Ok(Message::Notification(hard)));
    // At most 255 octets, cut at a character boundary (RFC 9003).
    let long = Notification::cease_with_message(cease::RESET, &"ü".repeat(200));
    assert_eq!(long.message(), Some("ü".repeat(127).as_str()));
    // A message with a wrong length or invalid UTF-8 is ignored.
    for data in [vec![9, b'a'], vec![1, 0xff], vec![]] {
        assert_eq!(Notification::new(6, 2, data).message(), None);
    }
    // Deeply nested hard resets are still displayed.
    let nested = (0..50).fold(Notification::cease(2), |inner, _| inner.hard());
    assert_eq!(nested.to_string(), "cease: hard reset");
}
