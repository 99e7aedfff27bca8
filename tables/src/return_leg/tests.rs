//! Tests of return legs: recording, lookup by endpoint, gateway and node, and ambiguity.

use super::*;
use crate::layout::Sizes;
use crate::record::{Prefix, TUNNEL_SOURCES};
use crate::writer::Writer;
use packet::geneve::CLASS_AWS;

const LOCAL: Addr = Addr::v4(u32::from_ne_bytes([10, 0, 1, 10]));

fn node(n: u16) -> Addr {
    let [high, low] = n.to_be_bytes();
    Addr::v4(u32::from_ne_bytes([10, 1, high, low]))
}

fn leg(n: u16) -> GatewayLeg {
    GatewayLeg {
        node: node(n),
        local: LOCAL,
        local_port: 6081,
        gateway_mac: [2, 0, 0, 0, 0, 9],
        ..GatewayLeg::default()
    }
}

fn tunnel() -> Tunnel {
    let nodes = Prefix { addr: node(0), len: 112, pad: [0; 3] };
    let mut sources = [Prefix::default(); TUNNEL_SOURCES];
    sources[0] = nodes;
    Tunnel {
        local: LOCAL,
        sources,
        scope_key: 0,
        vni: 0,
        peer: crate::record::NONE,
        gateway: 7,
        port: 6081,
        option_class: CLASS_AWS,
        inner_mtu: 8500,
        flags: 0,
        kind: TunnelKind::Geneve as u8,
        no_service: 0,
        source_count: 1,
        arm: 0,
        side: 0,
        successor: 0,
    }
}

/// A region with that tunnel as number 0.
fn region(tunnel: Tunnel) -> Region {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    set_tunnel(&region, tunnel);
    region
}

fn set_tunnel(region: &Region, tunnel: Tunnel) {
    let mut writer = Writer::attach(region).unwrap();
    writer.put_tunnel(0, &tunnel).unwrap();
    writer.commit().unwrap();
}

fn origin(n: u16) -> Origin {
    Origin::new(7, &node(n), 60_001, 0xc00c_1e00).unwrap()
}

fn answer(region: &Region, endpoint: u64, origin: &Origin) -> Option<Answer> {
    let set = region.tables(region.generation());
    let mut out = Answer::empty();
    ReturnLegs::new(region).answer(&set, endpoint, origin, &mut out).then_some(out)
}

#[test]
fn reply_uses_leg_of_endpoint_and_node_with_own_port_and_cookie() {
    let region = region(tunnel());
    let legs = ReturnLegs::new(&region);
    legs.record(5, 0xa77a, 7, &leg(1));
    legs.record(6, 0xb88b, 7, &leg(1));
    legs.record(5, 0xa77a, 7, &leg(2));
    for (endpoint, attachment, n) in [(5, 0xa77a, 1), (6, 0xb88b, 1), (5, 0xa77a, 2)] {
        let found = answer(&region, endpoint, &origin(n)).unwrap();
        let expected = GatewayLeg { node_port: 60_001, option_len: 32, ..leg(n) };
        assert_eq!(found.gateway, expected);
        let words = geneve::own_words(endpoint, attachment, 0xc00c_1e00);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(found.options(), bytes);
    }
    assert_eq!(answer(&region, 6, &origin(2)), None, "no leg of that endpoint and node");
    assert_eq!(answer(&region, 4, &origin(1)), None);
    assert_eq!(answer(&region, 5, &Origin { gateway: 8, ..origin(1) }), None);
}

#[test]
fn delivery_can_change_but_another_attachment_or_vni_is_ambiguous() {
    let region = region(tunnel());
    let legs = ReturnLegs::new(&region);
    legs.record(5, 1, 7, &leg(1));
    let moved = GatewayLeg { gateway_mac: [2, 0, 0, 0, 0, 8], vlan: 9, arm: 1, ..leg(1) };
    legs.record(5, 1, 7, &moved);
    let found = answer(&region, 5, &origin(1)).unwrap().gateway;
    assert_eq!((found.gateway_mac, found.vlan, found.arm), ([2, 0, 0, 0, 0, 8], 9, 1));
    let vni = GatewayLeg { vni: 3, ..leg(2) };
    for (n, other) in [(1, (2, moved)), (2, (1, vni))] {
        legs.record(5, 1, 7, &leg(n));
        assert!(answer(&region, 5, &origin(n)).is_some(), "{n}");
        let (attachment, other) = other;
        legs.record(5, attachment, 7, &other);
        assert_eq!(answer(&region, 5, &origin(n)), None, "{n}");
        legs.record(5, 1, 7, &leg(n));
        assert_eq!(answer(&region, 5, &origin(n)), None, "{n}: stays ambiguous");
    }
}

/// Two nodes with equal digests, which have 16 bits.
#[test]
fn nodes_with_equal_digests_are_ambiguous() {
    let mut tunnel = tunnel();
    tunnel.sources[0] = Prefix { addr: node(0), len: 96, pad: [0; 3] };
    let region = region(tunnel);
    let other = Addr::v4(u32::from_ne_bytes([10 ^ 1, 1 ^ 1, 1, 1]));
    assert_eq!(node_digest(&other), node_digest(&node(0)));
    let legs = ReturnLegs::new(&region);
    legs.record(5, 1, 7, &leg(0));
    assert!(answer(&region, 5, &origin(0)).is_some());
    legs.record(5, 1, 7, &GatewayLeg { node: other, ..leg(0) });
    assert_eq!(answer(&region, 5, &origin(0)), None);
}

#[test]
fn removed_gateway_gets_no_replies() {
    let changed: [fn(&mut Tunnel); 6] = [
        |t| t.sources[0].len = 128,
        |t| t.source_count = 0,
        |t| t.gateway = 8,
        |t| t.local = node(9),
        |t| t.kind = TunnelKind::Vxlan as u8,
        |t| t.flags = TUNNEL_BACKEND,
    ];
    for (i, change) in changed.iter().enumerate() {
        let region = region(tunnel());
        ReturnLegs::new(&region).record(5, 1, 7, &leg(1));
        assert!(answer(&region, 5, &origin(1)).is_some());
        let mut other = tunnel();
        change(&mut other);
        set_tunnel(&region, other);
        assert_eq!(answer(&region, 5, &origin(1)), None, "{i}");
    }
}

#[test]
fn full_set_replaces_older_records() {
    let region = region(tunnel());
    let legs = ReturnLegs::new(&region);
    let endpoints = 1000;
    for endpoint in 0..endpoints {
        legs.record(endpoint, endpoint, 7, &leg(1));
        assert!(answer(&region, endpoint, &origin(1)).is_some(), "{endpoint}");
    }
    let found = (0..endpoints).filter(|e| answer(&region, *e, &origin(1)).is_some()).count();
    assert_eq!(found, crate::layout::return_legs(Sizes::SMALL.scopes));
}

#[test]
fn killed_writer_leaves_no_record_and_no_lock() {
    let region = region(tunnel());
    let legs = ReturnLegs::new(&region);
    legs.record(5, 1, 7, &leg(1));
    let (first, _) = legs.set(5, key(7, node_digest(&node(1))));
    let seq = &legs.records[first as usize].seq;
    seq.fetch_add(1, Relaxed);
    assert_eq!(answer(&region, 5, &origin(1)), None);
    legs.record(5, 2, 7, &leg(1));
    assert_eq!((legs.recover(), legs.recover()), (1, 0));
    assert_eq!(answer(&region, 5, &origin(1)), None);
    legs.record(5, 2, 7, &leg(1));
    assert!(answer(&region, 5, &origin(1)).is_some());
}

/// Two threads write records while a third one reads them.
#[test]
fn readers_never_see_half_of_a_record() {
    let region = region(tunnel());
    let legs = ReturnLegs::new(&region);
    let rounds: u64 = if cfg!(miri) { 30 } else { 20_000 };
    // Few sets, so that records replace each other.
    let record = |n: u64| legs.record(n % 97, n % 97 * 3, 7, &leg((n % 97) as u16));
    std::thread::scope(|scope| {
        let writers =
            [0, 1].map(|w| scope.spawn(move || (0..rounds).for_each(|n| record(n * 2 + w))));
        let mut n = 0;
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            n += 1;
            let endpoint = n % 97;
            if let Some(found) = answer(&region, endpoint, &origin(endpoint as u16)) {
                assert_eq!(found.gateway.node, node(endpoint as u16));
                let words = geneve::own_words(endpoint, endpoint * 3, 0xc00c_1e00);
                assert_eq!(found.options[..4], words);
            }
        }
    });
    let found = (0..97).filter(|e| answer(&region, *e, &origin(*e as u16)).is_some()).count();
    assert!(found > 0);
}
