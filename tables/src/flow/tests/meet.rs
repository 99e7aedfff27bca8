//! Lookup of flows through their paths, without the index.

use super::between::after_at_every_step;
use super::*;
use std::cell::Cell;

fn met<'r>(flows: &Flows<'r>, path: u32, key: &FlowKey) -> Option<Met<'r>> {
    flows.meet(&flows.likely(path), key)
}

#[test]
fn a_flow_is_met_on_its_path_and_nobody_on_another() {
    let region = small();
    let flows = table(&region);
    let hits = [0, 1, 2].map(|n| insert_nat(&flows, n, &[]).unwrap());
    for (n, hit) in (0..).zip(&hits) {
        let flow = nat_flow(n, 0);
        for (other, at) in (0..).zip(&hits) {
            assert_eq!(met(&flows, at.path, &flow.front).is_some(), other == n);
        }
        let met = met(&flows, hit.path, &flow.front).unwrap();
        assert_eq!(met.forward, flows.forward(hit).unwrap());
        assert_eq!((met.digest, met.initiator), (hit.digest, hit.initiator()));
        let scoped = FlowKey { scope: flow.front.scope + 1, ..flow.front };
        assert!(super::meet::met(&flows, hit.path, &scoped).is_none());
    }
    for none in [NONE, flows.capacity(), 5] {
        assert!(met(&flows, none, &nat_flow(0, 0).front).is_none());
    }
    assert!(!flows.likely(NONE).is_there() && flows.likely(0).is_there());
    flows.remove(&hits[1]).unwrap();
    assert!(met(&flows, hits[1].path, &nat_flow(1, 0).front).is_none());
}

#[test]
fn a_flow_that_is_met_stays_awake() {
    let region = small();
    let flows = table(&region);
    let key = nat_flow(0, 0).front;
    let hit = insert_nat(&flows, 0, &[]).unwrap();
    let begun_s = hit.last_seen_s;
    for second in [begun_s, begun_s + 1, begun_s + 7] {
        flows.touch_met(&met(&flows, hit.path, &key).unwrap(), second);
        assert_eq!(find(&flows, &key).unwrap().last_seen_s, second);
    }
}

#[test]
fn segments_that_change_nothing_stay_and_others_do_not() {
    const ACK: u8 = 16;
    let region = small();
    let flows = table(&region);
    let hit = insert_nat(&flows, 0, &[]).unwrap();
    let key = nat_flow(0, 0).front;
    let stays =
        |flags, from_initiator| met(&flows, hit.path, &key).unwrap().stays(flags, from_initiator);
    assert!(stays(ACK, true) && !stays(ACK, false));
    flows.note(&hit, ACK, false);
    assert!(stays(ACK, false) && !stays(ACK, true));
    flows.note(&hit, ACK, true);
    assert!(stays(ACK, true) && stays(ACK, false));
    for flag in [1, 2, 4] {
        assert!(!stays(ACK | flag, true));
    }
}

#[test]
fn a_record_that_becomes_anothers_in_the_midst_is_nobodys() {
    let key = nat_flow(4, 0).front;
    let outcome = Cell::new(None);
    let seen = Cell::new([0; 2]);
    after_at_every_step(
        |_| outcome.set(None),
        |flows| {
            let path = find(flows, &key).unwrap().path;
            outcome.set(met(flows, path, &key).map(|met| met.forward.backend));
        },
        |flows| {
            find(flows, &key).and_then(|hit| flows.remove(&hit)).unwrap();
            insert_nat(flows, 60, &[1; 60]).unwrap();
        },
        |flows| {
            let whole = outcome.get();
            assert!(whole.is_none_or(|backend| backend == 4), "of one piece: {whole:?}");
            let [mut met, mut missed] = seen.get();
            (met, missed) = if whole.is_some() { (met + 1, missed) } else { (met, missed + 1) };
            seen.set([met, missed]);
            assert!(find(flows, &nat_flow(60, 0).front).is_some() || flows.live() == 10);
        },
    );
    assert!(seen.get().iter().all(|n| *n > 0), "{:?}", seen.get());
}

#[test]
fn recovery_writes_fronts_anew() {
    let region = small();
    let flows = table(&region);
    let hit = insert_nat(&flows, 3, &[]).unwrap();
    let key = nat_flow(3, 0).front;
    flows.fronts[hit.path as usize].set(&nat_flow(9, 0).front, Side::High, 0, 0);
    assert!(met(&flows, hit.path, &key).is_none());
    flows.recover();
    assert_eq!(met(&flows, hit.path, &key).unwrap().digest, hit.digest);
}
