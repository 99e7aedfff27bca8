//! Harness that checks invariants of the decoder on arbitrary octets, for the unit tests and
//! `tests/fuzz/fuzz_targets/bgp.rs`.

use bytes::Bytes;

use super::context::DecodeContext;
use super::{ErrorHandling, Fault, Framer, HEADER_SIZE, Kind, MAX_MESSAGE, Message, Notification};

/// Splits `octets` into messages, decodes each in every context and checks the invariants:
///
/// - The result does not depend on how the stream is cut into reads.
/// - Announced and withdrawn prefixes have no host bits.
/// - An OPEN that was decoded and encodes to at most [`MAX_MESSAGE`] octets decodes to the same
///   OPEN.
/// - A decoded ROUTE-REFRESH encodes and decodes to the same message.
/// - An UPDATE with error handling treat-as-withdraw announces nothing.
/// - An error has a NOTIFICATION that fits in a message.
pub fn harness(octets: &[u8]) {
    let (messages, end) = split(octets, octets.len());
    for length in [1, HEADER_SIZE - 1] {
        assert_eq!(split(octets, length), (messages.clone(), end.clone()));
    }
    for (kind, body) in &messages {
        contexts().for_each(|context| read(*kind, body, &context));
    }
    end.iter().for_each(check_notification);
}

fn contexts() -> impl Iterator<Item = DecodeContext> {
    (0..8).map(|bits| DecodeContext {
        four_octet: bits & 1 != 0,
        internal: bits & 2 != 0,
        extended_next_hop: bits & 4 != 0,
    })
}

/// Returns the messages of a stream that arrives in pieces of `length` octets, and the error that
/// ended it.
fn split(octets: &[u8], length: usize) -> (Vec<(Kind, Bytes)>, Option<Notification>) {
    let (mut framer, mut messages) = (Framer::default(), Vec::new());
    framer.accept_extended_messages();
    for piece in octets.chunks(length.max(1)) {
        framer.push(piece);
        loop {
            match framer.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(end) => return (messages, Some(end)),
            }
        }
    }
    (messages, None)
}

fn read(kind: Kind, body: &[u8], context: &DecodeContext) {
    match Message::read(kind, body, context) {
        Ok(Message::Update(update)) => {
            for prefix in update.announced.iter().chain(&update.withdrawn) {
                assert_eq!(*prefix, prefix.trunc());
            }
            let counted_as_withdrawn =
                matches!(update.error_handling, ErrorHandling::TreatAsWithdraw(_));
            assert!(!counted_as_withdrawn || update.announced.is_empty());
        }
        Ok(Message::Open(open)) => {
            let again = open.write();
            let fits = again.len() <= MAX_MESSAGE;
            let read = Message::read(Kind::Open, &again[HEADER_SIZE..], context);
            assert!(!fits || read == Ok(Message::Open(open)));
        }
        Ok(Message::Refresh(refresh)) => {
            let again = refresh.write();
            let read = Message::read(Kind::Refresh, &again[HEADER_SIZE..], context);
            assert_eq!(read, Ok(Message::Refresh(refresh)));
        }
        Ok(_) | Err(Fault::Silent(_)) => {}
        Err(Fault::Notify(notification)) => check_notification(&notification),
    }
}

fn check_notification(notification: &Notification) {
    assert!(notification.write().len() <= MAX_MESSAGE);
    assert!(!notification.to_string().is_empty());
}
