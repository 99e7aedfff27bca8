//! Tests of VXLAN headers as sent by Azure.

use super::*;
use crate::tests::{bytes, samples};

#[test]
fn vni_is_parsed() {
    let mut frame = bytes(samples::AZURE_ZERO);
    let w = Window::new(&mut frame);
    assert_eq!(parse(&w, 42), Ok(Vxlan { vni: 801, payload: 50 }));
}

#[test]
fn header_without_the_flag_is_rejected_and_reserved_bits_are_ignored() {
    let mut header = [0xf7, 0xff, 0xff, 0xff, 0, 0, 1, 0xff];
    assert_eq!(parse(&Window::new(&mut header), 0), Err(Malformed::VxlanFlags));
    header[0] = 0xff;
    assert_eq!(parse(&Window::new(&mut header), 0), Ok(Vxlan { vni: 1, payload: 8 }));
    assert_eq!(parse(&Window::new(&mut header[..7]), 0), Err(Malformed::Short));
}
