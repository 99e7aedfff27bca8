//! Flows with one gateway leg per direction, where the gateway sends both directions.

use super::between::after_at_every_step;
use super::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// Returns a tunnel flow of client number `n`, which sends through a gateway. Leg, options and
/// digest are derived from `mark`, a number that identifies the packet they came with.
fn tunneled(n: u32, mark: u32) -> NewFlow {
    let nat = nat_flow(n, 0);
    let (nat_or_digest, mode) = (NatOrDigest::NONE, Mode::Tunnel as u8);
    let forward = Forward { nat_or_digest, mode, ..nat.forward };
    NewFlow {
        back: Some((FlowKey { scope: SCOPE_PLAIN, ..nat.front }, nat.front_initiator)),
        forward,
        gateway: leg(mark),
        digest: mark,
        nat_map: NONE,
        ..nat
    }
}

fn leg(mark: u32) -> GatewayLeg {
    GatewayLeg { vni: mark, node: addr(mark), ..GatewayLeg::default() }
}

/// Returns options that consist of the mark; those of every third mark are long.
fn options(mark: u32) -> Vec<u8> {
    vec![mark as u8; if mark.is_multiple_of(3) { 100 } else { 32 }]
}

fn begin(flows: &Flows<'_>, n: u32, mark: u32) -> Hit {
    flows.insert(&tunneled(n, mark), &options(mark), 1).unwrap()
}

fn front(flows: &Flows<'_>, n: u32) -> Hit {
    find(flows, &tunneled(n, 0).front).unwrap()
}

const INITIATOR: bool = true;
const RESPONDER: bool = false;

/// Handles a packet of this direction that arrives from the gateway.
fn packet_arrives(flows: &Flows<'_>, n: u32, from_initiator: bool, mark: u32) -> LegUpdate {
    flows.update_gateway(&front(flows, n), from_initiator, &leg(mark), &options(mark), mark)
}

/// Returns the mark of the leg by which a packet of this direction returns.
fn mark_of(flows: &Flows<'_>, n: u32, from_initiator: bool) -> u32 {
    let (back, _) = tunneled(n, 0).back.unwrap();
    let marks = [front(flows, n), find(flows, &back).unwrap()].map(|hit| {
        let mut answer = Answer::empty();
        flows.answer(&hit, from_initiator, &mut answer).unwrap();
        assert_of_one_packet(&answer);
        assert_eq!(answer.forward.backend, n);
        answer.gateway.vni
    });
    assert_eq!(marks[0], marks[1], "found by either side");
    marks[0]
}

fn assert_of_one_packet(answer: &Answer) {
    let mark = answer.gateway.vni;
    assert_eq!((answer.gateway.node, answer.options()), (addr(mark), &options(mark)[..]));
}

#[test]
fn replies_use_the_leg_of_their_direction() {
    let region = small();
    let flows = table(&region);
    begin(&flows, 50, 1);
    // Replies of a backend, which the gateway does not send, use the initiator's leg.
    assert_eq!(mark_of(&flows, 50, RESPONDER), 1);
    assert_eq!(packet_arrives(&flows, 50, RESPONDER, 2), LegUpdate::Changed);
    // Alternately short and long options; a change in one direction does not affect the other.
    for mark in 3..20 {
        let side = mark % 5 < 2;
        let other = mark_of(&flows, 50, !side);
        assert_eq!(packet_arrives(&flows, 50, side, mark), LegUpdate::Changed);
        assert_eq!((mark_of(&flows, 50, side), mark_of(&flows, 50, !side)), (mark, other));
        assert_consistent(&flows);
    }
    let hit = front(&flows, 50);
    let forward = flows.forward(&hit).unwrap();
    assert_eq!(forward.responder_digest(), mark_of(&flows, 50, RESPONDER));
    assert_eq!(hit.digest, mark_of(&flows, 50, INITIATOR));
    assert_eq!(flows.snapshot(hit.path).unwrap().forward.nat_or_digest, NatOrDigest::NONE);
    assert!(flows.remove(&hit).is_some());
    assert_consistent(&flows);
    begin(&flows, 51, 4);
    assert_eq!(mark_of(&flows, 51, RESPONDER), 4);
}

#[test]
fn equal_legs_share_storage_until_one_changes() {
    for long in [1, 3] {
        let region = small();
        let flows = table(&region);
        begin(&flows, 50, long);
        assert_eq!(packet_arrives(&flows, 50, RESPONDER, long), LegUpdate::Same);
        let path = &flows.paths[front(&flows, 50).path as usize];
        assert_eq!(path.owns.load(Relaxed), NONE);
        assert_eq!(flows.forward(&front(&flows, 50)).unwrap().responder_digest(), long);
        // The responder's packets still return by the old leg.
        assert_eq!(packet_arrives(&flows, 50, INITIATOR, 7), LegUpdate::Changed);
        assert_eq!((mark_of(&flows, 50, INITIATOR), mark_of(&flows, 50, RESPONDER)), (7, long));
        // When the other direction follows, both legs are equal.
        assert_eq!(packet_arrives(&flows, 50, RESPONDER, 7), LegUpdate::Changed);
        assert_eq!((mark_of(&flows, 50, INITIATOR), mark_of(&flows, 50, RESPONDER)), (7, 7));
        assert_consistent(&flows);
    }
}

#[test]
fn nat_flow_has_one_leg() {
    let region = small();
    let flows = table(&region);
    let hit = insert_nat(&flows, 1, &[]).unwrap();
    let done = flows.update_gateway(&hit, RESPONDER, &leg(9), &options(9), 9);
    let forward = flows.forward(&hit).unwrap();
    assert_eq!((done, *forward.nat_addr()), (LegUpdate::Changed, addr(NAT_ADDR)));
    assert_eq!(forward.flags & PATH_RESPONDER_LEG, 0);
    assert_consistent(&flows);
}

#[test]
fn without_a_slab_both_directions_use_the_latest_leg() {
    let region = small();
    let flows = table(&region);
    let taken: Vec<u32> = flows.free_slabs().unwrap().all().collect();
    begin(&flows, 50, 1);
    for (side, mark) in [(RESPONDER, 2), (INITIATOR, 1), (RESPONDER, 4)] {
        let done = packet_arrives(&flows, 50, side, mark);
        // The initiator's change needs no slab: the responder's next one tries to allocate it
        // again.
        assert_eq!(done == LegUpdate::Shared, side == RESPONDER);
        assert_eq!((mark_of(&flows, 50, INITIATOR), mark_of(&flows, 50, RESPONDER)), (mark, mark));
    }
    // Without a free slab, long options have no space at all.
    assert_eq!(packet_arrives(&flows, 50, RESPONDER, 3), LegUpdate::Skipped);
    assert_eq!(packet_arrives(&flows, 50, INITIATOR, 3), LegUpdate::Skipped);
    assert_eq!(mark_of(&flows, 50, RESPONDER), 4);
    // Both had equal legs, and one changes.
    assert_eq!(packet_arrives(&flows, 50, RESPONDER, 4), LegUpdate::Same);
    assert_eq!(packet_arrives(&flows, 50, INITIATOR, 5), LegUpdate::Shared);
    assert_eq!((mark_of(&flows, 50, INITIATOR), mark_of(&flows, 50, RESPONDER)), (5, 5));
    taken.into_iter().for_each(|slab| flows.free_slabs().unwrap().push(slab));
    assert_eq!(packet_arrives(&flows, 50, RESPONDER, 4), LegUpdate::Changed);
    assert_eq!((mark_of(&flows, 50, INITIATOR), mark_of(&flows, 50, RESPONDER)), (5, 4));
    assert_consistent(&flows);
}

#[test]
fn idle_flow_releases_responder_leg() {
    let region = small();
    let flows = table(&region);
    for n in 50..50 + flows.slabs.len() as u32 {
        begin(&flows, n, 1);
        assert_eq!(packet_arrives(&flows, n, RESPONDER, 2), LegUpdate::Changed);
    }
    assert_eq!(flows.free_slabs().unwrap().pop(), NONE);
    let all = flows.capacity();
    let ended = flows.sweep(&mut 0, all, 0, 1, 10_000, &Timeouts::DEFAULT, |_| {});
    assert_eq!((ended, flows.live()), (flows.slabs.len() as u32, 0));
    assert_consistent(&flows);
}

#[test]
fn restart_keeps_both_legs() {
    let region = small();
    let flows = table(&region);
    begin(&flows, 50, 3);
    begin(&flows, 51, 4);
    packet_arrives(&flows, 50, RESPONDER, 6);
    packet_arrives(&flows, 51, RESPONDER, 5);
    let path = |n| &flows.paths[front(&flows, n).path as usize];
    let both = |n| (mark_of(&flows, n, INITIATOR), mark_of(&flows, n, RESPONDER));
    assert_eq!(flows.recover().recovered, 2);
    assert_eq!((both(50), both(51)), ((3, 6), (4, 5)));
    // Two paths that claim one slab, and one that claims a slab that does not exist.
    path(51).owns.store(path(50).owns.load(Relaxed), Relaxed);
    assert_eq!(flows.recover().recovered, 2);
    assert_consistent(&flows);
    let alone = [50, 51].map(|n| path(n).owns.load(Relaxed) == NONE);
    assert!(alone[0] != alone[1]);
    path(50).owns.store(70_000, Relaxed);
    flows.recover();
    assert_eq!(both(50), (3, 3));
    assert_consistent(&flows);
}

/// Asserts for both directions that a stored digest belongs to the stored leg, and that the next
/// packet, with the direction's mark in `marks`, updates the leg.
fn assert_settled(flows: &Flows<'_>, marks: [u32; 2]) {
    let hit = front(flows, 50);
    let forward = flows.forward(&hit).unwrap();
    if hit.digest < 1_000 {
        assert_eq!(mark_of(flows, 50, INITIATOR), hit.digest);
    }
    if forward.flags & PATH_RESPONDER_LEG != 0 {
        assert_eq!(mark_of(flows, 50, RESPONDER), forward.responder_digest());
    }
    for (side, mark) in [INITIATOR, RESPONDER].into_iter().zip(marks) {
        assert!(matches!(
            packet_arrives(flows, 50, side, mark),
            LegUpdate::Changed | LegUpdate::Same
        ));
    }
    assert_eq!([mark_of(flows, 50, INITIATOR), mark_of(flows, 50, RESPONDER)], marks);
    assert_consistent(flows);
}

/// Direction (true from the initiator) and mark.
type Packet = (bool, u32);

/// Initial mark, packets before the change, and the packet that changes a leg: the responder's
/// first packet; the responder's and the initiator's next one in a flow with two legs; and the
/// initiator's next one after both directions had equal legs.
const LEG_CHANGES: [(u32, &[Packet], Packet); 4] = [
    (1, &[], (RESPONDER, 2)),
    (1, &[(RESPONDER, 2)], (RESPONDER, 6)),
    (1, &[(RESPONDER, 2)], (INITIATOR, 6)),
    (1, &[(RESPONDER, 1)], (INITIATOR, 4)),
];

/// As `packet_arrives` for flow 50, with any outcome.
fn deliver(flows: &Flows<'_>, from_initiator: bool, mark: u32) {
    packet_arrives(flows, 50, from_initiator, mark);
}

fn apply_packets(flows: &Flows<'_>, mark: u32, before: &[Packet]) {
    begin(flows, 50, mark);
    before.iter().for_each(|(side, mark)| deliver(flows, *side, *mark));
}

#[test]
fn leg_update_killed_at_any_step_is_repeated() {
    for (first, before, (side, mark)) in LEG_CHANGES {
        killed_everywhere_after(
            |flows| apply_packets(flows, first, before),
            |flows| deliver(flows, side, mark),
            |flows, recovery| {
                assert_eq!((recovery.recovered, recovery.cleared_paths), (11, 0));
                assert_settled(flows, [8, 7]);
            },
        );
    }
}

#[test]
fn removal_of_two_leg_flow_killed_at_any_step_leaks_no_slab() {
    killed_everywhere_after(
        |flows| apply_packets(flows, 1, &[(RESPONDER, 2)]),
        |flows| assert!(flows.remove(&front(flows, 50)).is_some()),
        |flows, recovery| {
            let found = find(flows, &tunneled(50, 0).front);
            assert_eq!(recovery.recovered, 10 + u32::from(found.is_some()));
        },
    );
}

#[test]
fn concurrent_updates_of_both_directions_keep_both_legs() {
    for (first, before, (side, mark)) in LEG_CHANGES {
        after_at_every_step(
            |flows| apply_packets(flows, first, before),
            |flows| deliver(flows, side, mark),
            // An update is skipped while the other has locked the legs; its next packet repeats it.
            |flows| deliver(flows, !side, 8),
            |flows| {
                let expected = if side == INITIATOR { [mark, 8] } else { [8, mark] };
                packet_arrives(flows, 50, !side, 8);
                let marks = [mark_of(flows, 50, INITIATOR), mark_of(flows, 50, RESPONDER)];
                assert_eq!(marks, expected);
            },
        );
    }
}

/// Returns the marks of both directions before and after `packet`. During the update, packets
/// return by one or the other.
fn before_and_after(first: u32, before: &[Packet], packet: Packet) -> [[u32; 2]; 2] {
    let region = small();
    let flows = table(&region);
    let both = || [mark_of(&flows, 50, INITIATOR), mark_of(&flows, 50, RESPONDER)];
    apply_packets(&flows, first, before);
    let old = both();
    deliver(&flows, packet.0, packet.1);
    [old, both()]
}

#[test]
fn reply_during_leg_update_uses_old_or_new_leg() {
    for (first, before, (side, mark)) in LEG_CHANGES {
        let either = before_and_after(first, before, (side, mark));
        let outcomes = Cell::new([0; 2]);
        after_at_every_step(
            |flows| apply_packets(flows, first, before),
            |flows| deliver(flows, side, mark),
            |flows| {
                let both = [mark_of(flows, 50, INITIATOR), mark_of(flows, 50, RESPONDER)];
                let which = either.iter().position(|marks| *marks == both);
                let which = which.unwrap_or_else(|| panic!("{both:?} is none of {either:?}"));
                let mut counts = outcomes.get();
                counts[which] += 1;
                outcomes.set(counts);
            },
            |_| {},
        );
        assert!(outcomes.get()[0] > 5 && outcomes.get()[1] > 0, "at steps: {:?}", outcomes.get());
    }
}

#[test]
fn reply_uses_old_leg_while_update_is_stuck() {
    for (first, before, (side, mark)) in LEG_CHANGES {
        let [old, new] = before_and_after(first, before, (side, mark));
        for steps in 0.. {
            let region = small();
            let flows = table(&region);
            apply_packets(&flows, first, before);
            if !kill::after(steps, || deliver(&flows, side, mark)) {
                break;
            }
            let both = [mark_of(&flows, 50, INITIATOR), mark_of(&flows, 50, RESPONDER)];
            assert!(both == old || both == new, "step {steps}: {both:?}");
            // While the path is locked, the leg of a later packet is not recorded, and packets are
            // forwarded.
            let hit = front(&flows, 50);
            let locked = flows.paths[hit.path as usize].is_locked();
            if locked {
                assert_eq!(packet_arrives(&flows, 50, side, 9), LegUpdate::Skipped);
                assert_eq!(flows.forward_to(&hit, &mut Forward::default()), Ok(()));
            }
        }
    }
}

#[test]
fn flows_sharing_a_leg_copy_update_one_after_another() {
    let count = crate::layout::LEG_COPIES;
    let sizes = Sizes { flows: 2 * count, nat_maps: 1, slots: 1024, ..Sizes::SMALL };
    let region = Region::anonymous_with(&sizes, 7).unwrap();
    let flows = table(&region);
    for n in 0..=count {
        begin(&flows, n, 1);
    }
    let path = |n| front(&flows, n).path;
    let shares = |n: &u32| *n > 0 && path(*n) % count == path(0) % count;
    let other = (0..=count).find(shares).expect("more flows than copies");
    let copy = flows.lock_legs(path(0), &flows.paths[path(0) as usize]).unwrap();
    assert_eq!(packet_arrives(&flows, other, INITIATOR, 2), LegUpdate::Skipped);
    assert_eq!((mark_of(&flows, 0, INITIATOR), mark_of(&flows, other, INITIATOR)), (1, 1));
    flows.paths[path(0) as usize].publish();
    copy.release();
    assert_eq!(packet_arrives(&flows, other, INITIATOR, 2), LegUpdate::Changed);
    assert_eq!((mark_of(&flows, 0, INITIATOR), mark_of(&flows, other, INITIATOR)), (1, 2));
    // A copy that a killed process owned is free again.
    assert!(flows.lock_legs(path(0), &flows.paths[path(0) as usize]).is_some());
    flows.recover();
    assert_eq!(packet_arrives(&flows, other, INITIATOR, 4), LegUpdate::Changed);
    assert_consistent(&flows);
}

#[test]
fn readers_never_see_a_torn_leg() {
    let region = small();
    let flows = table(&region);
    begin(&flows, 50, 1);
    let (stop, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let write = |side: bool| {
        kill::with_pauses(if side { 3 } else { 5 });
        // The responder's marks are even, the initiator's odd; both sometimes have long options.
        for round in 1..rounds {
            packet_arrives(&flows, 50, side, (round % 60) * 2 + u32::from(side));
        }
    };
    let read = || {
        let mut answer = Answer::empty();
        while !stop.load(Relaxed) {
            let hit = front(&flows, 50);
            for side in [INITIATOR, RESPONDER] {
                if flows.answer(&hit, side, &mut answer).is_ok() {
                    assert_of_one_packet(&answer);
                    let own = answer.gateway.vni % 2 == u32::from(side);
                    assert!(own || !answer.forward.has_responder_leg());
                    reads.fetch_add(1, Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let (write, read) = (&write, &read);
        let writers = [INITIATOR, RESPONDER].map(|side| scope.spawn(move || write(side)));
        drop(scope.spawn(read));
        let ended = writers.map(|writer| writer.join());
        stop.store(true, Relaxed);
        ended.into_iter().for_each(|end| end.unwrap());
    });
    assert!(reads.load(Relaxed) > 0, "the reader read");
    assert_consistent(&flows);
}
