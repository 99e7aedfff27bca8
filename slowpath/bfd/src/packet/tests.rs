//! Tests of the packet encoding and of the parser's reasons to discard a packet.

use super::*;
use proptest::prelude::*;

/// A packet encoded by hand from RFC 5880 section 4.1: Up, P, C, multiplier 3, 300 ms for both
/// intervals.
const BYTES: [u8; LENGTH] =
    [0x20, 0xe8, 3, 24, 0, 0, 0, 1, 0, 0, 0, 2, 0, 4, 0x93, 0xe0, 0, 4, 0x93, 0xe0, 0, 0, 0, 0];

fn packet() -> Packet {
    Packet {
        state: State::Up,
        poll: true,
        independent: true,
        multiplier: 3,
        my_discriminator: 1,
        your_discriminator: 2,
        desired_transmit_us: 300_000,
        required_receive_us: 300_000,
        ..Packet::default()
    }
}

#[test]
fn packet_encoding_matches_the_golden_bytes() {
    assert_eq!(Packet::parse(&BYTES), Ok(packet()));
    assert_eq!(packet().emit(), BYTES);
}

#[test]
fn invalid_packets_are_discarded_and_every_reason_has_a_distinct_name() {
    let with = |changes: &[(usize, u8)]| {
        let mut bytes = [BYTES.as_slice(), &[0; 8]].concat();
        changes.iter().for_each(|(at, value)| bytes[*at] = *value);
        Packet::parse(&bytes).unwrap_err()
    };
    assert_eq!(Packet::parse(&BYTES[..23]), Err(Discard::Short));
    assert_eq!(Packet::parse(&[]), Err(Discard::Short));
    for version in [0x00, 0x40] {
        assert_eq!(with(&[(0, version)]), Discard::Version);
    }
    assert_eq!(with(&[(3, 23)]), Discard::LengthTooSmall);
    // An authenticated packet needs at least 26 bytes.
    assert_eq!(with(&[(1, 0xc4)]), Discard::LengthTooSmall);
    assert_eq!(with(&[(1, 0xc4), (3, 26)]), Discard::Authenticated);
    assert_eq!(with(&[(3, 33)]), Discard::LengthBeyondDatagram);
    assert_eq!(with(&[(2, 0)]), Discard::Multiplier);
    assert_eq!(with(&[(1, 0xc1)]), Discard::Multipoint);
    assert_eq!(with(&[(7, 0)]), Discard::MyDiscriminator);
    // Init and Up require our discriminator; Down and AdminDown do not.
    for flags in [0xc0, 0x80] {
        assert_eq!(with(&[(1, flags), (11, 0)]), Discard::NoDiscriminator);
    }
    for flags in [0x40, 0x00] {
        let mut bytes = BYTES;
        (bytes[1], bytes[11]) = (flags, 0);
        assert!(Packet::parse(&bytes).is_ok());
    }
    let names: std::collections::BTreeSet<_> = Discard::ALL.iter().map(|why| why.name()).collect();
    assert_eq!(names.len(), Discard::ALL.len());
    let mut discards = Discards::default();
    Discard::ALL.iter().for_each(|why| discards.count(*why));
    assert!(Discard::ALL.iter().all(|why| discards.get(*why) == 1));
}

proptest! {
    #[test]
    fn mutated_packets_round_trip_or_are_discarded(
        changes in proptest::collection::vec((any::<usize>(), any::<u8>(), 0..4), 0..5),
    ) {
        let mut bytes = BYTES.to_vec();
        for (at, byte, how) in changes {
            let at = at % bytes.len().max(1);
            match how {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
                2 => bytes.insert(at, byte),
                _ => bytes.truncate(at),
            }
        }
        crate::harness::packet(&bytes);
    }

    #[test]
    fn arbitrary_bytes_round_trip_or_are_discarded(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..64),
        likely in any::<bool>(),
    ) {
        if likely && bytes.len() >= LENGTH {
            (bytes[0], bytes[3]) = (0x20 | bytes[0] & 0x1f, LENGTH as u8);
            bytes[1] &= !(AUTHENTICATED | MULTIPOINT);
        }
        crate::harness::packet(&bytes);
    }
}
