//! Tests of Ethernet headers with and without a VLAN tag.

use super::*;

const TO: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[test]
fn an_untagged_header_is_fourteen_bytes() {
    let mut bytes = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x06];
    let w = Window::new(&mut bytes);
    assert_eq!(Ethernet::parse(&w), Ok(Ethernet { ethertype: 0x0806, vlan: 0, l3: 14 }));
    assert_eq!(Ethernet::parse_at(&w, 1), Err(Short));
}

#[test]
fn one_vlan_tag_is_parsed_and_a_second_is_not() {
    let mut bytes = [0; 22];
    bytes[12..].copy_from_slice(&[0x81, 0, 0x60, 7, 0x81, 0, 0, 8, 0x08, 0x00]);
    let w = Window::new(&mut bytes);
    assert_eq!(Ethernet::parse(&w), Ok(Ethernet { ethertype: VLAN, vlan: 0x6007, l3: 18 }));
    let w = Window::new(&mut bytes[..17]);
    assert_eq!(Ethernet::parse(&w), Err(Short));
}

#[test]
fn headers_are_written_in_wire_order_and_swapped() {
    let mut bytes = [0; 18];
    write(&mut Window::new(&mut bytes), &Macs::new(TO, FROM), 0x6007, IPV6).unwrap();
    assert_eq!(bytes, [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x60, 7, 0x86, 0xdd]);
    write(&mut Window::new(&mut bytes), &Macs::new(TO, FROM), 0, IPV4).unwrap();
    assert_eq!(bytes[12..14], [8, 0]);
    swap(&mut Window::new(&mut bytes)).unwrap();
    assert_eq!(bytes[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
}
