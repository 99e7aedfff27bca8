//! Tests of the window's contents and bounds.

use super::*;
use std::vec;
use std::vec::Vec;

#[test]
fn window_gives_access_to_its_bytes_only() {
    let mut bytes: Vec<u8> = (0..16).collect();
    let w = Window::new(&mut bytes);
    assert_eq!((w.len(), w.frame_len()), (16, 16));
    assert_eq!(w.be16(1), Ok(0x0102));
    assert_eq!(w.be32(12), Ok(0x0c0d_0e0f));
    assert_eq!(w.load::<u64>(8).map(u64::from_be), Ok(0x0809_0a0b_0c0d_0e0f));
    assert_eq!(w.load::<[u8; 6]>(10), Ok([10, 11, 12, 13, 14, 15]));
    assert_eq!(w.byte(16), Err(Short));
    assert_eq!(w.load::<u64>(9), Err(Short));
    assert_eq!(w.load::<u16>(usize::MAX), Err(Short));
    assert_eq!(w.holds(16, 0), Ok(()));
    assert_eq!(w.holds(17, 0), Err(Short));
    assert_eq!(w.holds(1, usize::MAX), Err(Short));
}

#[test]
fn empty_window_gives_access_to_nothing() {
    let w = Window::new(&mut []);
    assert_eq!((w.byte(0), w.sum(0, 0)), (Err(Short), Ok(0)));
}

#[test]
fn stores_change_only_their_bytes() {
    let mut bytes = vec![0xaa; 40];
    let mut w = Window::new(&mut bytes);
    w.set_be16(1, 0x0102).unwrap();
    w.set_be32(5, 0x0304_0506).unwrap();
    w.store(11, Addr::v4(u32::from_ne_bytes([1, 2, 3, 4]))).unwrap();
    w.set_byte(39, 9).unwrap();
    assert_eq!(w.set_byte(40, 9), Err(Short));
    assert_eq!(w.store(33, 0u64), Err(Short));
    let mut expected = vec![0xaa; 40];
    expected[1..3].copy_from_slice(&[1, 2]);
    expected[5..9].copy_from_slice(&[3, 4, 5, 6]);
    expected[11..27].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4]);
    expected[39] = 9;
    assert_eq!(bytes, expected);
}

#[test]
fn a_window_reads_and_writes_at_every_alignment() {
    let mut bytes: Vec<u8> = (0..64).collect();
    let mut w = Window::new(&mut bytes);
    for at in 0..32 {
        let v: u64 = w.load(at).unwrap();
        assert_eq!(v.to_ne_bytes()[0], at as u8);
        w.store(at, v).unwrap();
        w.store(at, w.load::<[u32; 5]>(at).unwrap()).unwrap();
    }
    assert!(bytes.iter().enumerate().all(|(i, b)| i == usize::from(*b)));
}

#[test]
fn overlapping_ranges_are_copied() {
    let mut bytes: Vec<u8> = (0..10).collect();
    let mut w = Window::new(&mut bytes);
    w.copy_within(0, 2, 8).unwrap();
    assert_eq!(w.copy_within(0, 3, 8), Err(Short));
    assert_eq!(w.copy_within(usize::MAX, 0, 2), Err(Short));
    assert_eq!(bytes, [0, 1, 0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn byte_slices_of_up_to_64_bytes_are_written() {
    for len in 0..=64 {
        let mut bytes = vec![0; 70];
        let options: Vec<u8> = (1..=len).collect();
        Window::new(&mut bytes).put(3, &options).unwrap();
        assert_eq!(&bytes[3..3 + usize::from(len)], &options[..]);
        assert!(bytes[3 + usize::from(len)..].iter().all(|b| *b == 0));
    }
    assert_eq!(Window::new(&mut [0; 31]).put(0, &[1; 32]), Err(Short));
}

#[test]
fn sums_add_words_and_pad_the_last_byte() {
    let mut bytes = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    let w = Window::new(&mut bytes);
    for (at, len) in [(0, 11), (1, 10), (0, 9), (0, 8), (3, 3), (2, 2), (4, 1), (5, 0)] {
        let expected: u32 = (at..at + len)
            .step_by(2)
            .map(|i| {
                let low = if i + 1 < at + len { i as u8 + 2 } else { 0 };
                u32::from(u16::from_be_bytes([i as u8 + 1, low]))
            })
            .sum();
        let sum = crate::checksum::fold(w.sum(at, len).unwrap()).to_be();
        assert_eq!(u32::from(sum), expected, "{len} bytes at {at}");
    }
    assert_eq!(w.sum(1, 11), Err(Short));
}

#[test]
fn frame_length_is_at_least_the_windows_and_at_most_max_frame() {
    let mut bytes = vec![0; 100];
    let w = Window::of_segment(&mut bytes, 9000);
    assert_eq!((w.len(), w.frame_len()), (100, 9000));
    let w = Window::of_segment(&mut bytes, 7);
    assert_eq!((w.len(), w.frame_len()), (100, 100));
    let mut giant = vec![0; 70_000];
    let w = Window::new(&mut giant);
    assert_eq!((w.len(), w.frame_len()), (MAX_FRAME, MAX_FRAME));
    assert_eq!(w.byte(MAX_FRAME), Err(Short));
}

#[test]
fn mask_options_and_sign_bit_select_their_bits() {
    for x in [0usize, 3, 4, 252, 255, 256, 1000] {
        assert_eq!(mask_options(x), x & 252);
    }
    assert_eq!((sign_bit(0x7fff_ffff), sign_bit(0x8000_0000)), (0, 1));
}
