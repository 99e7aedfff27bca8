//! Lookup of flows through their paths, without the index.

use super::between::after_at_every_step;
use super::*;
use std::cell::Cell;

fn look_up<'r>(flows: &Flows<'r>, path: u32, key: &FlowKey) -> Option<PathHit<'r>> {
    flows.find_by_path(&flows.candidate(path), key)
}

#[test]
fn flow_is_found_by_its_own_path_only() {
    let region = small();
    let flows = table(&region);
    let hits = [0, 1, 2].map(|n| insert_nat(&flows, n, &[]).unwrap());
    for (n, hit) in (0..).zip(&hits) {
        let flow = nat_flow(n, 0);
        for (other, at) in (0..).zip(&hits) {
            assert_eq!(look_up(&flows, at.path, &flow.front).is_some(), other == n);
        }
        let by_path = look_up(&flows, hit.path, &flow.front).unwrap();
        assert_eq!(by_path.forward, flows.forward(hit).unwrap());
        assert_eq!((by_path.digest, by_path.initiator), (hit.digest, hit.initiator()));
        let scoped = FlowKey { scope: flow.front.scope + 1, ..flow.front };
        assert!(look_up(&flows, hit.path, &scoped).is_none());
    }
    for none in [NONE, flows.capacity(), 5] {
        assert!(look_up(&flows, none, &nat_flow(0, 0).front).is_none());
    }
    assert!(!flows.candidate(NONE).is_valid() && flows.candidate(0).is_valid());
    flows.remove(&hits[1]).unwrap();
    assert!(look_up(&flows, hits[1].path, &nat_flow(1, 0).front).is_none());
}

#[test]
fn touch_through_the_path_updates_the_time_of_last_use() {
    let region = small();
    let flows = table(&region);
    let key = nat_flow(0, 0).front;
    let hit = insert_nat(&flows, 0, &[]).unwrap();
    let begun_s = hit.last_seen_s;
    for second in [begun_s, begun_s + 1, begun_s + 7] {
        flows.touch_path_hit(&look_up(&flows, hit.path, &key).unwrap(), second);
        assert_eq!(find(&flows, &key).unwrap().last_seen_s, second);
    }
}

#[test]
fn keeps_state_is_true_only_for_segments_without_effect() {
    const ACK: u8 = 16;
    let region = small();
    let flows = table(&region);
    let hit = insert_nat(&flows, 0, &[]).unwrap();
    let key = nat_flow(0, 0).front;
    let keeps_state = |flags, from_initiator| {
        look_up(&flows, hit.path, &key).unwrap().keeps_state(flags, from_initiator)
    };
    assert!(keeps_state(ACK, true) && !keeps_state(ACK, false));
    flows.note(&hit, ACK, false);
    assert!(keeps_state(ACK, false) && !keeps_state(ACK, true));
    flows.note(&hit, ACK, true);
    assert!(keeps_state(ACK, true) && keeps_state(ACK, false));
    for flag in [1, 2, 4] {
        assert!(!keeps_state(ACK | flag, true));
    }
}

#[test]
fn record_reused_during_lookup_is_a_miss() {
    let key = nat_flow(4, 0).front;
    let outcome = Cell::new(None);
    let counts = Cell::new([0; 2]);
    after_at_every_step(
        |_| outcome.set(None),
        |flows| {
            let path = find(flows, &key).unwrap().path;
            outcome.set(look_up(flows, path, &key).map(|by_path| by_path.forward.backend));
        },
        |flows| {
            find(flows, &key).and_then(|hit| flows.remove(&hit)).unwrap();
            insert_nat(flows, 60, &[1; 60]).unwrap();
        },
        |flows| {
            let found = outcome.get();
            assert!(found.is_none_or(|backend| backend == 4), "a torn copy: {found:?}");
            let [mut hits, mut misses] = counts.get();
            (hits, misses) = if found.is_some() { (hits + 1, misses) } else { (hits, misses + 1) };
            counts.set([hits, misses]);
            assert!(find(flows, &nat_flow(60, 0).front).is_some() || flows.live() == 10);
        },
    );
    assert!(counts.get().iter().all(|n| *n > 0), "{:?}", counts.get());
}

#[test]
fn recovery_rewrites_front_records() {
    let region = small();
    let flows = table(&region);
    let hit = insert_nat(&flows, 3, &[]).unwrap();
    let key = nat_flow(3, 0).front;
    flows.fronts[hit.path as usize].set(&nat_flow(9, 0).front, Side::High, 0, 0);
    assert!(look_up(&flows, hit.path, &key).is_none());
    flows.recover();
    assert_eq!(look_up(&flows, hit.path, &key).unwrap().digest, hit.digest);
}
