//! Compares the builders with bytes from scapy 2.5, and the parser with the builders.

use super::*;

const A: Mac = [2, 0, 0, 0, 0, 1];
const B: Mac = [2, 0, 0, 0, 0, 2];
const CLIENT: &str = "10.1.0.5:4000";
const FRONTEND: &str = "203.0.113.10:80";

/// Returns a TCP segment with one byte of payload.
fn x() -> Ip {
    tcp(CLIENT, FRONTEND, flags::ACK).payload(b"x")
}

fn dns6() -> Ip {
    udp("[2001:db8::1]:53", "[2001:db8::2]:5353").payload(b"abc")
}

fn datagram(src: &str, dst: &str) -> Ip {
    udp(src, dst).id(9).payload(&(0..48).collect::<Vec<u8>>())
}

/// Asserts that the built frame has the bytes that scapy builds, given in hexadecimal.
#[track_caller]
fn like_scapy(frame: Frame, hex: &str) {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let expected: Vec<u8> = digits
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect();
    if let Some(text) = difference(&expected, &frame.bytes()) {
        panic!("\n{text}");
    }
}

#[test]
fn tcp_syn_with_mss_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, tcp(CLIENT, FRONTEND, flags::SYN).mss(1460)),
        "02000000000202000000000108004500002c000040004006f4bb0a010005cb00710a0fa00050000003e80000 \
         07d06002ffff366e0000020405b4",
    );
}

#[test]
fn tcp_payload_odd_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, tcp(CLIENT, FRONTEND, flags::PSH | flags::ACK).payload(b"hello")),
        "02000000000202000000000108004500002d000040004006f4ba0a010005cb00710a0fa00050000003e80000 \
         07d05018ffff0a3d000068656c6c6f",
    );
}

#[test]
fn vlan_udp_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, udp("10.1.0.5:53", "10.1.0.6:5353").tos(0xb8).payload(b"abc")).vlan(7),
        "02000000000202000000000181000007080045b8001f000040004011260a0a0100050a010006003514e9000b \
         124b616263",
    );
}

#[test]
fn udp6_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, dns6()),
        "02000000000202000000000186dd60000000000b114020010db800000000000000000000000120010db80000 \
         00000000000000000002003514e9000bcae2616263",
    );
}

#[test]
fn tcp6_hopbyhop_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(
            A,
            B,
            tcp("[2001:db8::1]:4000", "[2001:db8::2]:80", flags::ACK)
                .extension(0, &[1, 4, 0, 0, 0, 0]),
        ),
        "02000000000202000000000186dd60000000001c004020010db800000000000000000000000120010db80000 \
         0000000000000000000206000104000000000fa00050000003e8000007d05010ffff38b80000",
    );
}

#[test]
fn ping4_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, echo_request("10.1.0.5:77", "10.1.0.6").payload(b"ping")),
        "02000000000202000000000108004500002000004000400126d10a0100050a010006080018e1004d00017069 \
         6e67",
    );
}

#[test]
fn pong6_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, echo_reply("[2001:db8::1]:77", "2001:db8::2").payload(b"ping")),
        "02000000000202000000000186dd60000000000c3a4020010db800000000000000000000000120010db80000 \
         0000000000000000000281004425004d000170696e67",
    );
}

#[test]
fn frag_needed_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(
            A,
            B,
            error(
                "192.0.2.1",
                "10.1.0.5",
                (3, 4),
                1400,
                tcp(CLIENT, FRONTEND, flags::ACK).payload(b"0123456789"),
            ),
        ),
        "0200000000020200000000010800450000380000400040016ebec00002010a0100050304e3ab000005784500 \
         0032000040004006f4b50a010005cb00710a0fa00050000003e8",
    );
}

#[test]
fn too_big6_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, error("2001:db8::f", "2001:db8::1", (2, 0), 1280, dns6())),
        "02000000000202000000000186dd60000000003b3a4020010db800000000000000000000000f20010db80000 \
         0000000000000000000102002bd90000050060000000000b114020010db80000000000000000000000012001 \
         0db8000000000000000000000002003514e9000bcae2616263",
    );
}

#[test]
fn ipv4_options_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, udp("10.1.0.5:1", "10.1.0.6:2").options(&[0x94, 4, 0, 0])),
        "02000000000202000000000108004600002000004000401191bc0a0100050a01000694040000000100020008 \
         ebce",
    );
}

#[test]
fn aws_geneve_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(
            A,
            B,
            x().in_geneve(
                "10.0.1.100:60000",
                "10.0.1.10:6081",
                aws_options(0x1122_3344_5566_7788, 0, 0xdead_beef),
            ),
        ),
        "02000000000202000000000108004500006d00004000401124130a0001640a00010aea6017c1005900000800 \
         08000000000001080102112233445566778801080202000000000000000001080301deadbeef450000290000 \
         40004006f4be0a010005cb00710a0fa00050000003e8000007d05010ffffd61a000078",
    );
}

#[test]
fn azure_vxlan_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, x().in_vxlan("10.0.1.100:50000", "10.0.1.10:10801", 801, A, B)),
        "02000000000202000000000108004500005b00004000401124250a0001640a00010ac3502a31004700000800 \
         000000032100020000000002020000000001080045000029000040004006f4be0a010005cb00710a0fa00050 \
         000003e8000007d05010ffffd61a000078",
    );
}

#[test]
fn ipip_4in6_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, x().in_ip("2001:db8::1", "2001:db8::2")),
        "02000000000202000000000186dd600000000029044020010db800000000000000000000000120010db80000 \
         0000000000000000000245000029000040004006f4be0a010005cb00710a0fa00050000003e8000007d05010 \
         ffffd61a000078",
    );
}

#[test]
fn six_in_4_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, dns6().in_ip("10.0.1.10", "10.0.2.11")),
        "020000000002020000000001080045000047000040004029237a0a00010a0a00020b60000000000b11402001 \
         0db800000000000000000000000120010db8000000000000000000000002003514e9000bcae2616263",
    );
}

#[test]
fn fragment_first_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, datagram("10.1.0.5:1", "10.1.0.6:2").part(0, 32, true)),
        "02000000000202000000000108004500003400092000401146a40a0100050a010006000100020038c12c0001 \
         02030405060708090a0b0c0d0e0f1011121314151617",
    );
}

#[test]
fn fragment_last_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, datagram("10.1.0.5:1", "10.1.0.6:2").part(32, 24, false)),
        "02000000000202000000000108004500002c00090004401166a80a0100050a01000618191a1b1c1d1e1f2021 \
         22232425262728292a2b2c2d2e2f",
    );
}

#[test]
fn fragment6_first_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, datagram("[2001:db8::1]:1", "[2001:db8::2]:2").part(0, 40, true)),
        "02000000000202000000000186dd6000000000302c4020010db800000000000000000000000120010db80000 \
         00000000000000000002110000010000000900010002003879c4000102030405060708090a0b0c0d0e0f1011 \
         12131415161718191a1b1c1d1e1f",
    );
}

#[test]
fn fragment6_last_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, datagram("[2001:db8::1]:1", "[2001:db8::2]:2").part(40, 16, false)),
        "02000000000202000000000186dd6000000000182c4020010db800000000000000000000000120010db80000 \
         000000000000000000021100002800000009202122232425262728292a2b2c2d2e2f",
    );
}

#[test]
fn udp_checksum_on_tunnel_is_as_scapy_makes_it() {
    like_scapy(
        Frame::new(A, B, x().in_gue("10.0.1.100:50000", "10.0.1.10:6080").summed()),
        "020000000002020000000001080045000045000040004011243b0a0001640a00010ac35017c00031543a4500 \
         0029000040004006f4be0a010005cb00710a0fa00050000003e8000007d05010ffffd61a000078",
    );
}

#[test]
fn sent_back_swaps_only_macs_and_addresses() {
    let ip = x().in_geneve("10.0.1.100:60000", "10.0.1.10:6081", aws_options(1, 2, 3));
    let forward = Frame::new(A, B, ip).bytes();
    let back = Frame::new(A, B, x().in_geneve("10.0.1.100:60000", "10.0.1.10:6081", vec![]));
    let back = back.with(|ip| ip.geneve(|g| g.options = aws_options(1, 2, 3))).sent_back().bytes();
    assert_eq!((&forward[0..6], &forward[6..12]), (&back[6..12], &back[0..6]));
    assert_eq!((&forward[26..30], &forward[30..34]), (&back[30..34], &back[26..30]));
    assert_eq!((&forward[12..26], &forward[34..]), (&back[12..26], &back[34..]));
}

#[test]
fn a_wrong_checksum_has_the_given_difference() {
    let right = x().bytes();
    let wrong = x().wrong_by(0x0101).bytes();
    let at = |bytes: &[u8]| u16::from_be_bytes([bytes[36], bytes[37]]);
    assert_eq!(sum::off_by(at(&right), 0x0101), at(&wrong));
    assert_eq!(right[..36], wrong[..36]);
}

#[test]
fn a_port_is_renamed_in_a_quoted_packet() {
    let quote = udp("10.0.2.10:65281", "10.0.2.11:53");
    let mut ip = error("10.9.9.9", "10.0.2.10", (3, 1), 0, quote);
    assert!(ip.mentions_port(65_281));
    ip.rename_ports(&|port| if port == 65_281 { 2_000 } else { port });
    assert!(!ip.mentions_port(65_281) && ip.mentions_port(2_000));
}

#[test]
fn a_new_port_that_is_renamed_itself_stays() {
    let mut ip = udp("10.0.2.10:65281", "10.0.2.11:65282");
    ip.rename_ports(&|port| match port {
        65_281 => 65_282,
        65_282 => 2_000,
        other => other,
    });
    assert_eq!((ip.src.port(), ip.dst.port()), (65_282, 2_000));
}

#[test]
fn sized_packets_have_that_size() {
    assert_eq!(x().sized(8_500).bytes().len(), 8_500);
    assert_eq!(dns6().sized(1_280).bytes().len(), 1_280);
}

#[test]
fn a_difference_is_named_by_layer_and_field() {
    let make = |cookie, ttl| {
        let ip =
            x().ttl(ttl).in_geneve("10.0.1.100:60000", "10.0.1.10:6081", aws_options(1, 2, cookie));
        Frame::new(A, B, ip).bytes()
    };
    assert_eq!(difference(&make(3, 64), &make(3, 64)), None);
    let cookie = difference(&make(3, 64), &make(4, 64)).unwrap();
    assert!(cookie.contains("option 3 value at 78") && !cookie.contains("ttl at"), "{cookie}");
    let ttl = difference(&make(3, 64), &make(3, 63)).unwrap();
    assert!(ttl.contains("ipv4 2 ttl at") && ttl.contains("ipv4 2 header checksum"), "{ttl}");
}

#[test]
fn parsing_any_bytes_stays_inside_the_frame() {
    let ip = x().in_geneve("10.0.1.100:60000", "10.0.1.10:6081", aws_options(1, 2, 3));
    let frame = Frame::new(A, B, ip).bytes();
    for len in 0..frame.len() {
        let cut = &frame[..len];
        let fields = fields::fields(cut);
        assert_eq!(fields.iter().map(|f| f.len).sum::<usize>(), len);
        let mut changed = frame.clone();
        changed[len] ^= 0xff;
        assert!(fields::fields(&changed).iter().all(|f| f.at + f.len <= frame.len()));
        assert!(describe(cut).len() >= len);
    }
}
