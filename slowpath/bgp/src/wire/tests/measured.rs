//! Why the codec is our own: how `netgauze-bgp-pkt` 0.13.0 treats messages that require exact error
//! handling. Each test pins the current behavior; if one fails after an upgrade, reconsider the
//! decision.

use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::notification::BgpNotificationMessage;
use netgauze_bgp_pkt::wire::deserializer::{BgpMessageParsingError, BgpParsingContext};
use netgauze_reading::reader::SliceReader;
use netgauze_reading::traits::ParseFromWithOneInput;

use super::golden::{FOUR, message, read};
use super::*;

/// Returns the most lenient context, which is how that crate approximates RFC 7606.
fn lenient() -> BgpParsingContext {
    BgpParsingContext::new(true, <_>::default(), <_>::default(), false, false, false, false)
}

pub(crate) fn theirs(octets: &[u8]) -> Result<BgpMessage, BgpMessageParsingError> {
    BgpMessage::parse(&mut SliceReader::new(octets), &mut lenient())
}

#[test]
fn it_takes_no_parameters_of_the_long_form() {
    let long = message(1, "04 fde9 005a 0a000001 ff ff 0005 02 0002 0200");
    assert!(theirs(&long).is_err());
    assert!(read(&long, &FOUR).is_ok());
}

#[test]
fn it_leaves_the_data_of_an_update_error_empty() {
    use netgauze_bgp_pkt::notification::UpdateMessageError;
    let unknown = message(2, "0000 0005 40 63 02 abcd");
    let answer = theirs(&unknown).map(|_| ()).map_err(BgpNotificationMessage::from);
    let exact = |answer: &BgpNotificationMessage| match answer {
        BgpNotificationMessage::UpdateMessageError(
            UpdateMessageError::UnrecognizedWellKnownAttribute { value },
        ) => value.to_vec() == super::golden::octets("40 63 02 abcd"),
        _ => false,
    };
    assert!(!answer.as_ref().is_err_and(exact), "{answer:?}");
    assert_eq!(
        read(&unknown, &FOUR),
        Err(Notification::new(3, 2, super::golden::octets("40 63 02 abcd")).into())
    );
}

#[test]
fn it_announces_a_route_whose_path_it_could_not_read() {
    // An AS_PATH segment exceeds the attribute: RFC 7606 section 7.2.
    let body = "0000 0014 40 01 01 00  40 02 06 02 02 0000fde9  40 03 04 c0000209 20 cb00710a";
    let update = message(2, body);
    let Ok(Message::Update(ours)) = read(&update, &FOUR) else { panic!("an UPDATE") };
    assert_eq!((ours.announced.len(), ours.withdrawn.len()), (0, 1));
    let Ok(BgpMessage::Update(theirs)) = theirs(&update) else { panic!("an UPDATE") };
    assert_eq!((theirs.nlri().len(), theirs.withdraw_routes().len()), (1, 0));
}

#[test]
fn it_loses_its_place_after_an_attribute_of_a_wrong_length() {
    let body = "0000 0021 40 01 01 00  40 02 06 02 01 0000fde9  40 03 04 c0000209
                80 04 03 000001  c0 08 04 fde90064  20 cb00710a";
    let update = message(2, body);
    let Ok(Message::Update(ours)) = read(&update, &FOUR) else { panic!("an UPDATE") };
    assert_eq!(ours.withdrawn.len(), 1);
    let theirs = theirs(&update);
    let Err(BgpMessageParsingError::BgpUpdateMessageParsingError(error)) = theirs else {
        panic!("{theirs:?}")
    };
    // One octet of the next attribute was consumed, so that the end of the field is missed.
    assert!(error.to_string().contains("end"), "{error}");
}
