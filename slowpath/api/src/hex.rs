//! Hexadecimal text.

/// Returns octets as lower-case digits.
pub fn text(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Returns the octets of a text of digits; `None` if it is not one.
pub fn octets(text: &str) -> Option<Vec<u8>> {
    // `from_str_radix` accepts a sign.
    if !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let octet = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(octet).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_round_trip_and_other_texts_are_none() {
        assert_eq!(text(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(octets("001FFf"), Some(vec![0, 0x1f, 0xff]));
        assert_eq!(octets(""), Some(Vec::new()));
        for bad in ["0", "000", "+1", "0g", "ä0", " 0"] {
            assert_eq!(octets(bad), None, "{bad:?}");
        }
    }
}
