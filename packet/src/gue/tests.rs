//! Tests of both GUE variants.

use super::*;
use crate::window::Short;

fn parse(bytes: &[u8]) -> Result<Gue, Malformed> {
    super::parse(&Window::new(&mut bytes.to_vec()), 0)
}

#[test]
fn variant_one_has_no_header() {
    assert_eq!(parse(&[0x45]), Ok(Gue { v6: false, payload: 0 }));
    assert_eq!(parse(&[0x60]), Ok(Gue { v6: true, payload: 0 }));
    assert_eq!(parse(&[]), Err(Short.into()));
}

#[test]
fn variant_zero_has_a_header_of_its_own() {
    assert_eq!(parse(&[0, 4, 0, 0]), Ok(Gue { v6: false, payload: 4 }));
    assert_eq!(parse(&[2, 41, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]), Ok(Gue { v6: true, payload: 12 }));
    assert_eq!(parse(&[2, 41, 0, 0, 1, 2, 3, 4, 5, 6, 7]), Err(Malformed::Short));
    // The maximum Hlen, 31 words.
    let mut long = [0; 128];
    (long[0], long[1]) = (0x1f, 4);
    assert_eq!(parse(&long), Ok(Gue { v6: false, payload: 128 }));
}

#[test]
fn control_messages_other_variants_and_other_protocols_are_rejected() {
    for bytes in [[0x20, 4, 0, 0], [0x80, 4, 0, 0], [0x50, 4, 0, 0], [0, 17, 0, 0]] {
        assert_eq!(parse(&bytes), Err(Malformed::Gue), "{bytes:x?}");
    }
}
