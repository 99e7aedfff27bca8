//! Tests of tunnels that are added, changed and removed: their ids, gateway numbers, retired
//! sources and successors.

use super::*;
use tables::record::{SIDE_EXTERNAL, SIDE_INTERNAL, TunnelKind};

fn tunnel(gateway: u16, port: u16, sources: &[u8]) -> Tunnel {
    let mut tunnel = Tunnel {
        local: packet::addr::Addr::v4(u32::from_ne_bytes([10, 0, 1, 10])),
        sources: [Prefix::default(); TUNNEL_SOURCES],
        scope_key: 0,
        vni: 0,
        peer: NONE,
        gateway,
        port,
        option_class: 0x0108,
        inner_mtu: 8500,
        flags: 0,
        kind: TunnelKind::Geneve as u8,
        no_service: 0,
        source_count: sources.len() as u8,
        arm: 0,
        side: 0,
        successor: 0,
    };
    for (slot, last) in tunnel.sources.iter_mut().zip(sources) {
        slot.addr = packet::addr::Addr::v4(u32::from_ne_bytes([10, 0, 1, *last]));
        slot.len = 128;
    }
    tunnel
}

fn named(record: Tunnel) -> NamedTunnel {
    NamedTunnel { name: format!("port {}", record.port), record }
}

/// Returns the result of committing `desired` over the existing tunnels, like
/// [`RegionPlane::put_tunnels`].
fn commit(desired: &[Tunnel], existing: &[(u32, Tunnel)]) -> Vec<(u32, Tunnel)> {
    let mut all: Vec<NamedTunnel> = desired.iter().copied().map(named).collect();
    assign_gateway_numbers(&mut all, existing);
    let ids = assign_ids(&all, existing);
    let put: Vec<_> = ids.into_iter().zip(all.iter().map(|t| t.record)).collect();
    let retired = retired(&put, existing, 8);
    put.into_iter().chain(retired).collect()
}

#[test]
fn a_removed_gateway_retires_its_tunnel_and_the_others_keep_their_numbers() {
    let before = commit(&[tunnel(0, 6081, &[1]), tunnel(1, 6082, &[2])], &[]);
    let ids = |all: &[(u32, Tunnel)]| -> Vec<_> {
        all.iter().map(|(id, t)| (*id, t.port, t.gateway, is_retired(t))).collect()
    };
    assert_eq!(ids(&before), [(0, 6081, 0, false), (1, 6082, 1, false)]);
    // The second one is now the first in the file.
    let after = commit(&[tunnel(0, 6082, &[2])], &before);
    assert_eq!(ids(&after), [(1, 6082, 1, false), (0, 6081, 0, true)]);
    // A new one gets neither number nor id of a retired one.
    let more = commit(&[tunnel(0, 6082, &[2]), tunnel(1, 6083, &[3])], &after);
    assert_eq!(ids(&more), [(1, 6082, 1, false), (2, 6083, 2, false), (0, 6081, 0, true)]);
    // Configured again, it is as before.
    let back = commit(&[tunnel(0, 6081, &[1]), tunnel(1, 6082, &[2])], &more);
    assert_eq!(ids(&back), [(0, 6081, 0, false), (1, 6082, 1, false), (2, 6083, 2, true)]);
}

#[test]
fn removed_sources_are_matched_last_while_they_drain() {
    let before = commit(&[tunnel(0, 6081, &[1, 2])], &[]);
    let after = commit(&[tunnel(0, 6081, &[2, 3])], &before);
    assert_eq!(after.len(), 2);
    assert_eq!(after[0], (0, tunnel(0, 6081, &[2, 3])));
    let retired_sources = Tunnel { flags: TUNNEL_RETIRED, ..tunnel(0, 6081, &[1]) };
    assert_eq!(after[1], (7, retired_sources));
    // Writing it again changes nothing.
    assert_eq!(commit(&[tunnel(0, 6081, &[2, 3])], &after), after);
    // More sources than before: none is retired.
    let more = commit(&[tunnel(0, 6081, &[1, 2, 3])], &before);
    assert_eq!(more, [(0, tunnel(0, 6081, &[1, 2, 3]))]);
}

#[test]
fn a_tunnel_with_another_vni_or_port_names_the_one_that_took_its_place() {
    let end = |port, vni, side| Tunnel {
        kind: TunnelKind::Vxlan as u8,
        scope_key: 900,
        option_class: 0,
        vni,
        side,
        ..tunnel(0, port, &[1])
    };
    let pair = |external: (u16, u32), internal: (u16, u32)| {
        [end(external.0, external.1, SIDE_EXTERNAL), end(internal.0, internal.1, SIDE_INTERNAL)]
    };
    let successors = |all: &[(u32, Tunnel)]| -> Vec<_> {
        let retired = all.iter().filter(|(_, t)| is_retired(t));
        let mut all: Vec<_> = retired.map(|(id, t)| (*id, t.successor())).collect();
        all.sort();
        all
    };
    let first = commit(&pair((2001, 901), (2000, 900)), &[]);
    assert_eq!(successors(&first), []);
    let second = commit(&pair((2001, 911), (2000, 910)), &first);
    assert_eq!(successors(&second), [(0, Some(2)), (1, Some(3))]);
    // The external tunnel changes again, and the internal one gets its first VNI back.
    let third = commit(&pair((3001, 911), (2000, 900)), &second);
    assert_eq!(successors(&third), [(0, Some(4)), (2, Some(4)), (3, Some(1))]);
    // A gateway that is removed has no successor; its packets drain on the tunnels that it had.
    assert_eq!(successors(&commit(&[], &third)).iter().filter(|(_, to)| to.is_some()).count(), 0);
    // A tunnel that an earlier version wrote has no side, and keeps its wire format.
    let unknown: Vec<_> = first.iter().map(|(id, t)| (*id, Tunnel { side: 0, ..*t })).collect();
    let moved = commit(&pair((2001, 911), (2000, 910)), &unknown);
    assert_eq!(successors(&moved), [(0, None), (1, None)]);
}
