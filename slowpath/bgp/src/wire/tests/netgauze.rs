//! Why the codec is Weir's own: how `netgauze-bgp-pkt` 0.13.0 treats messages that require exact
//! error handling. Each test pins the behavior of that version; if one fails after an upgrade,
//! reconsider the decision.

use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::notification::BgpNotificationMessage;
use netgauze_bgp_pkt::wire::deserializer::{BgpMessageParsingError, BgpParsingContext};
use netgauze_reading::reader::SliceReader;
use netgauze_reading::traits::ParseFromWithOneInput;

use super::golden::{FOUR_OCTET_AS, message, read};
use super::*;

/// Returns the most lenient context of `netgauze-bgp-pkt`, with which it approximates RFC 7606.
fn lenient() -> BgpParsingContext {
    BgpParsingContext::new(true, <_>::default(), <_>::default(), false, false, false, false)
}

pub(crate) fn parse(octets: &[u8]) -> Result<BgpMessage, BgpMessageParsingError> {
    BgpMessage::parse(&mut SliceReader::new(octets), &mut lenient())
}

#[test]
fn netgauze_rejects_extended_optional_parameters() {
    let long = message(1, "04 fde9 005a 0a000001 ff ff 0005 02 0002 0200");
    assert!(parse(&long).is_err());
    assert!(read(&long, &FOUR_OCTET_AS).is_ok());
}

#[test]
fn netgauze_leaves_update_error_data_empty() {
    use netgauze_bgp_pkt::notification::UpdateMessageError;
    let unknown = message(2, "0000 0005 40 63 02 abcd");
    let answer = parse(&unknown).map(|_| ()).map_err(BgpNotificationMessage::from);
    let exact = |answer: &BgpNotificationMessage| match answer {
        BgpNotificationMessage::UpdateMessageError(
            UpdateMessageError::UnrecognizedWellKnownAttribute { value },
        ) => value.to_vec() == super::golden::octets("40 63 02 abcd"),
        _ => false,
    };
    assert!(!answer.as_ref().is_err_and(exact), "{answer:?}");
    assert_eq!(
        read(&unknown, &FOUR_OCTET_AS),
        Err(Notification::new(3, 2, super::golden::octets("40 63 02 abcd")).into())
    );
}

#[test]
fn netgauze_accepts_a_route_with_unparsable_as_path() {
    // An AS_PATH segment exceeds the attribute: RFC 7606 section 7.2.
    let body = "0000 0014 40 01 01 00  40 02 06 02 02 0000fde9  40 03 04 c0000209 20 cb00710a";
    let update = message(2, body);
    let Ok(Message::Update(decoded)) = read(&update, &FOUR_OCTET_AS) else { panic!("an UPDATE") };
    assert_eq!((decoded.announced.len(), decoded.withdrawn.len()), (0, 1));
    let Ok(BgpMessage::Update(other)) = parse(&update) else { panic!("an UPDATE") };
    assert_eq!((other.nlri().len(), other.withdraw_routes().len()), (1, 0));
}

#[test]
fn netgauze_loses_its_position_after_a_malformed_attribute() {
    let body = "0000 0021 40 01 01 00  40 02 06 02 01 0000fde9  40 03 04 c0000209
                80 04 03 000001  c0 08 04 fde90064  20 cb00710a";
    let update = message(2, body);
    let Ok(Message::Update(decoded)) = read(&update, &FOUR_OCTET_AS) else { panic!("an UPDATE") };
    assert_eq!(decoded.withdrawn.len(), 1);
    let result = parse(&update);
    let Err(BgpMessageParsingError::BgpUpdateMessageParsingError(error)) = result else {
        panic!("{result:?}")
    };
    // The decoder took one octet of the next attribute, and then read past the end of the field.
    assert!(error.to_string().contains("end"), "{error}");
}
