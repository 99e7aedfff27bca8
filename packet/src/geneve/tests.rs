//! Tests of GENEVE headers and of all kinds of option areas.

use super::*;
use crate::tests::{bytes, samples};
use std::vec::Vec;

const ENDPOINT_ID: u64 = 0x1122_3344_5566_7788;
const ATTACHMENT_ID: u64 = 0x99aa_bbcc_ddee_ff00;
const ALL_THREE: GatewayOptions = GatewayOptions {
    endpoint: ENDPOINT_ID,
    attachment: ATTACHMENT_ID,
    cookie: 0x0bad_cafe,
    present: ALL_OPTIONS,
    unknown_critical: false,
};

fn find(options: &[u8]) -> Result<GatewayOptions, Malformed> {
    let mut bytes = options.to_vec();
    super::options(&Window::new(&mut bytes), 0, options.len() as u8, CLASS_AWS)
}

fn option(class: u16, kind: u8, words: u8, fill: u8) -> Vec<u8> {
    let mut bytes = Vec::from(class.to_be_bytes());
    bytes.extend([kind, words]);
    bytes.resize(4 + usize::from(words) * 4, fill);
    bytes
}

fn endpoint() -> Vec<u8> {
    [&[1, 8, 1, 2][..], &ENDPOINT_ID.to_be_bytes()].concat()
}

fn attachment() -> Vec<u8> {
    [&[1, 8, 2, 2][..], &ATTACHMENT_ID.to_be_bytes()].concat()
}

fn cookie() -> Vec<u8> {
    std::vec![1, 8, 3, 1, 0x0b, 0xad, 0xca, 0xfe]
}

#[test]
fn options_of_a_gateway_packet_are_parsed() {
    let mut frame = bytes(samples::AWS);
    let w = Window::new(&mut frame);
    let geneve = parse(&w, 42).unwrap();
    let expected = Geneve {
        vni: 0,
        protocol: 0x0800,
        payload: 82,
        opt_len: 32,
        control: false,
        critical: false,
    };
    assert_eq!(geneve, expected);
    assert_eq!(options(&w, 50, geneve.opt_len, CLASS_AWS), Ok(ALL_THREE));
}

#[test]
fn options_are_found_in_any_order_among_unknown_ones() {
    assert_eq!(find(&bytes(samples::OPTIONS_UNKNOWN)), Ok(ALL_THREE));
    let reversed = [cookie(), option(0x108, 9, 0, 0), attachment(), endpoint()].concat();
    assert_eq!(find(&reversed), Ok(ALL_THREE));
}

#[test]
fn option_class_is_an_argument() {
    let mut other = bytes(samples::AWS)[50..82].to_vec();
    assert_eq!(find(&other).map(|o| o.present), Ok(ALL_OPTIONS));
    for at in [0, 12, 24] {
        (other[at], other[at + 1]) = (0xff, 0xf0);
    }
    assert_eq!(find(&other), Ok(GatewayOptions::default()));
    let w = Window::new(&mut other);
    assert_eq!(options(&w, 0, 32, 0xfff0), Ok(ALL_THREE));
}

#[test]
fn missing_option_is_absent_from_the_result() {
    let two = find(&[endpoint(), cookie()].concat()).unwrap();
    assert_eq!((two.present, two.attachment), (ENDPOINT | COOKIE, 0));
    assert_eq!(find(&[]), Ok(GatewayOptions::default()));
}

#[test]
fn a_known_option_of_another_length_counts_as_missing() {
    let short = [option(CLASS_AWS, 1, 1, 7), attachment(), cookie(), option(1, 1, 0, 0)].concat();
    assert_eq!(short.len(), 32);
    assert_eq!(find(&short).map(|o| o.present), Ok(ATTACHMENT | COOKIE));
    let long = [endpoint(), attachment(), option(CLASS_AWS, 3, 2, 7)].concat();
    assert_eq!(find(&long).map(|o| o.present), Ok(ENDPOINT | ATTACHMENT));
}

#[test]
fn last_of_repeated_options_counts() {
    let twice = [option(CLASS_AWS, 1, 2, 0xff), endpoint(), attachment(), cookie()].concat();
    assert_eq!(find(&twice), Ok(ALL_THREE));
}

#[test]
fn reserved_bits_of_an_option_are_ignored() {
    let mut area = bytes(samples::AWS)[50..82].to_vec();
    area[3] |= 0xe0;
    assert_eq!(find(&area), Ok(ALL_THREE));
}

#[test]
fn unknown_critical_is_set_only_by_a_critical_option() {
    let with = |kind| [endpoint(), attachment(), cookie(), option(0x9999, kind, 0, 0)].concat();
    assert!(find(&with(0x80)).unwrap().unknown_critical);
    assert!(!find(&with(0x7f)).unwrap().unknown_critical);
    // The C bit is part of the type: 0x81 of the gateway's class is not the endpoint.
    assert!(find(&option(CLASS_AWS, 0x81, 2, 0)).unwrap().unknown_critical);
}

#[test]
fn options_past_their_area_are_rejected() {
    for area in [option(CLASS_AWS, 1, 2, 0), option(9, 9, 31, 0)] {
        for cut in 1..area.len() / 4 {
            let short = &area[..area.len() - cut * 4];
            assert_eq!(find(short), Err(Malformed::GeneveOptions));
        }
    }
}

#[test]
fn the_longest_area_is_walked_to_its_end() {
    let mut area = option(9, 9, 0, 0).repeat(60);
    area.extend(endpoint());
    assert_eq!(area.len(), MAX_OPTIONS);
    assert_eq!(find(&area).map(|o| (o.present, o.endpoint)), Ok((ENDPOINT, ENDPOINT_ID)));
    let empty = option(9, 0x80, 0, 0).repeat(63);
    assert!(find(&empty).unwrap().unknown_critical);
}

#[test]
fn version_and_length_are_checked_and_flags_are_parsed() {
    let mut header = [0x40, 0, 8, 0, 0, 0, 0, 0];
    assert_eq!(parse(&Window::new(&mut header), 0), Err(Malformed::GeneveVersion));
    header = [0, 0xc0, 0x86, 0xdd, 0xab, 0xcd, 0xef, 0xff];
    let geneve = parse(&Window::new(&mut header), 0).unwrap();
    assert!(geneve.control && geneve.critical);
    assert_eq!((geneve.vni, geneve.protocol, geneve.payload), (0x00ab_cdef, 0x86dd, 8));
    assert_eq!(parse(&Window::new(&mut header[..7]), 0), Err(Malformed::Short));
    header[0] = 1;
    assert_eq!(parse(&Window::new(&mut header), 0), Err(Malformed::Short));
}

#[test]
fn own_options_equal_those_of_a_gateway() {
    let mut buffer = [0; OWN_OPTIONS];
    own_options(&mut buffer, ENDPOINT_ID, ATTACHMENT_ID, 0x0bad_cafe);
    assert_eq!(buffer[..], bytes(samples::AWS)[50..82]);
    let words = gateway_words(0xfff0, ENDPOINT_ID, ATTACHMENT_ID, 0x0bad_cafe);
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let read = usual_options(&Window::new(&mut bytes), 0, 32, 0xfff0);
    assert_eq!(read, Some(ALL_THREE));
}
