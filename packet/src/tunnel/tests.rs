//! Tests of outer headers against those that scapy writes.

use super::*;
use crate::tests::{bytes, frame, samples};
use std::net::IpAddr;
use std::vec;
use std::vec::Vec;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];
const C: [u8; 6] = [2, 0, 0, 0, 0, 0x1c];
const D: [u8; 6] = [2, 0, 0, 0, 0, 0x1d];

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().unwrap())
}

/// Returns outer headers to 10.0.2.99 or fd00::99, as in the samples.
fn outer(kind: TunnelKind, v6: bool, inner: &[u8]) -> Outer<'static> {
    let (src, dst) = if v6 { ("fd00::1", "fd00::99") } else { ("10.0.2.1", "10.0.2.99") };
    Outer {
        kind,
        macs: Macs::new(B, A),
        vlan: 0,
        src: addr(src),
        dst: addr(dst),
        sport: 0xc123,
        dport: 6081,
        vni: 0x00ab_cdef,
        options: &[],
        inner_v6: inner[0] >> 4 == 6,
        inner_eth: None,
        tos: 0xb8,
        ttl: 64,
        df: true,
        checksum: false,
    }
}

/// Returns `inner` with `outer` written in front, over bytes that are not zero.
fn written(outer: &Outer<'_>, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xee; outer_len(outer)];
    bytes.extend(inner);
    write_outer(&mut Window::new(&mut bytes), outer, inner.len()).unwrap();
    bytes
}

#[track_caller]
fn writes(outer: &Outer<'_>, inner: &str, expected: &str) {
    let (now, expected) = (written(outer, &bytes(inner)), bytes(expected));
    assert_eq!(now, expected, "\n left {now:02x?}\nright {expected:02x?}");
}

#[test]
fn geneve_is_written_as_scapy_writes_it() {
    let syn = bytes(samples::SYN);
    let options = &bytes(samples::AWS)[50..82];
    let over = Outer { options, ..outer(TunnelKind::Geneve, false, &syn) };
    writes(&over, samples::SYN, samples::OUT_GENEVE4);
    writes(&Outer { checksum: true, ..over }, samples::SYN, samples::OUT_GENEVE4_SUM);
    let over = Outer { checksum: true, ..outer(TunnelKind::Geneve, true, &bytes(samples::UDP6)) };
    writes(&over, samples::UDP6, samples::OUT_GENEVE6);
}

#[test]
fn vxlan_is_written_with_its_inner_ethernet_header() {
    let over = Outer {
        dport: 4789,
        inner_eth: Some(Macs::new(D, C)),
        checksum: true,
        ..outer(TunnelKind::Vxlan, false, &bytes(samples::SYN))
    };
    writes(&over, samples::SYN, samples::OUT_VXLAN4);
}

#[test]
fn an_outer_checksum_is_summed_where_the_inner_packet_has_none() {
    let inner = bytes(samples::UDP4_ZERO);
    let over = Outer {
        dport: 4789,
        inner_eth: Some(Macs::new(D, C)),
        checksum: true,
        tos: 0,
        ..outer(TunnelKind::Vxlan, true, &inner)
    };
    writes(&over, samples::UDP4_ZERO, samples::OUT_VXLAN6_ZERO);
    // The checksum is omitted if the rest of the packet is in another segment.
    let mut frame = written(&over, &inner);
    let (first_len, len) = (frame.len() - 3, frame.len());
    let mut w = Window::of_segment(&mut frame[..first_len], len);
    write_outer(&mut w, &over, inner.len()).unwrap();
    assert_eq!(w.be16(54 + 6), Ok(0));
}

#[test]
fn gue_and_ip_in_ip_are_written_as_scapy_writes_them() {
    let (four, six) = (bytes(samples::SYN), bytes(samples::UDP6));
    let gue = Outer { dport: 6080, ..outer(TunnelKind::Gue, false, &four) };
    writes(&gue, samples::SYN, samples::OUT_GUE4);
    writes(&outer(TunnelKind::Ipip, false, &four), samples::SYN, samples::OUT_IPIP_44);
    writes(&outer(TunnelKind::Ipip, true, &four), samples::SYN, samples::OUT_IPIP_46);
    writes(&outer(TunnelKind::Ipip, false, &six), samples::UDP6, samples::OUT_IPIP_64);
    writes(&outer(TunnelKind::Ipip, true, &six), samples::UDP6, samples::OUT_IPIP_66);
}

#[test]
fn a_tag_and_inner_ethernet_in_geneve_move_what_follows() {
    let syn = bytes(samples::SYN);
    let plain = written(&outer(TunnelKind::Geneve, false, &syn), &syn);
    let tagged = Outer { vlan: 0x6007, ..outer(TunnelKind::Geneve, false, &syn) };
    let tagged = written(&tagged, &syn);
    assert_eq!(tagged[12..18], [0x81, 0, 0x60, 7, 8, 0]);
    assert_eq!(tagged[18..], plain[14..]);
    let framed =
        Outer { inner_eth: Some(Macs::new(C, D)), ..outer(TunnelKind::Geneve, false, &syn) };
    let framed = written(&framed, &syn);
    assert_eq!(framed[44..46], [0x65, 0x58]);
    assert_eq!(framed[50..64], [&C[..], &D[..], &[8, 0]].concat()[..]);
    assert_eq!(framed[64..], syn[..]);
}

#[test]
fn datagrams_that_may_be_fragmented_differ_in_their_identification() {
    let syn = bytes(samples::SYN);
    let over = Outer { df: false, ..outer(TunnelKind::Geneve, false, &syn) };
    let mut ids = std::collections::BTreeSet::new();
    for n in 0..1000u16 {
        let mut inner = syn.clone();
        inner[4..6].copy_from_slice(&n.to_be_bytes());
        let frame = written(&over, &inner);
        assert_eq!(frame[20], 0);
        ids.insert([frame[18], frame[19]]);
    }
    assert!(ids.len() > 980, "{}", ids.len());
}

#[test]
fn headers_that_do_not_fit_are_an_error() {
    let syn = bytes(samples::SYN);
    let over = outer(TunnelKind::Geneve, false, &syn);
    let mut bytes = vec![0; outer_len(&over) - 1];
    assert_eq!(write_outer(&mut Window::new(&mut bytes), &over, 52), Err(Short));
    let mut bytes = vec![0; 200];
    assert_eq!(write_outer(&mut Window::new(&mut bytes), &over, 65_515), Err(Short));
}

#[test]
fn a_returned_frame_differs_in_its_addresses_alone() {
    for (received, returned) in
        [(samples::AWS, samples::AWS_RETURNED), (samples::AWS6, samples::AWS6_RETURNED)]
    {
        let (mut frame, ip) = frame(received);
        return_in_place(&mut Window::new(&mut frame), &ip).unwrap();
        assert_eq!(frame, bytes(returned));
    }
}

#[test]
fn a_frame_crosses_to_the_other_tunnel_with_its_checksum() {
    for (received, returned) in [
        (samples::AZURE, samples::AZURE_CROSSED),
        (samples::AZURE_ZERO, samples::AZURE_ZERO_CROSSED),
    ] {
        let (mut frame, ip) = frame(received);
        cross_in_place(&mut Window::new(&mut frame), &ip, 10800, 800).unwrap();
        assert_eq!(frame, bytes(returned));
    }
}

#[test]
fn a_crossing_frame_keeps_the_reserved_byte_behind_its_vni() {
    let (mut frame, ip) = frame(samples::AZURE_ZERO);
    frame[49] = 0x5a;
    cross_in_place(&mut Window::new(&mut frame), &ip, 10800, 0x0001_0203).unwrap();
    assert_eq!(frame[46..50], [1, 2, 3, 0x5a]);
}

#[test]
fn congestion_marks_follow_the_rfcs_table() {
    // Rows: inner not-ECT, ECT(0), ECT(1), CE. Columns: outer not-ECT, ECT(0), ECT(1), CE.
    let table = [
        (0, [Some(0), Some(0), Some(0), None]),
        (2, [Some(2), Some(2), Some(1), Some(3)]),
        (1, [Some(1), Some(1), Some(1), Some(3)]),
        (3, [Some(3), Some(3), Some(3), Some(3)]),
    ];
    for (inner, row) in table {
        for (outer, expected) in [0u8, 2, 1, 3].into_iter().zip(row) {
            let with_dscp = expected.map(|ecn: u8| 0xb8 | ecn);
            assert_eq!(ecn_decap(0x1c | outer, 0xb8 | inner), with_dscp, "{outer} {inner}");
        }
    }
}
