//! Two concurrent operations: one runs completely between any two steps of the other.

use super::*;
use std::cell::Cell;

/// With flows 0 to 9 present, runs `work` once for each of its steps, with `other` run completely
/// at that step, and then calls `then`.
pub(super) fn at_every_step(
    work: impl Fn(&Flows<'_>),
    other: impl Fn(&Flows<'_>),
    then: impl Fn(&Flows<'_>),
) {
    after_at_every_step(|_| {}, work, other, then);
}

/// As `at_every_step`, and calls `begin` before each run, which may insert more flows.
pub(super) fn after_at_every_step(
    begin: impl Fn(&Flows<'_>),
    work: impl Fn(&Flows<'_>),
    other: impl Fn(&Flows<'_>),
    then: impl Fn(&Flows<'_>),
) {
    for steps in 0.. {
        let region = small();
        let flows = table(&region);
        for n in 0..10 {
            insert_nat(&flows, n, &[]).unwrap();
        }
        begin(&flows);
        let ran = kill::meanwhile(steps, || work(&flows), || other(&flows.as_owner(2, 7)));
        assert_consistent(&flows);
        then(&flows);
        if !ran {
            assert!(steps > 0, "the work has steps");
            return;
        }
    }
}

fn remove(flows: &Flows<'_>, n: u32) {
    find(flows, &nat_flow(n, 0).front).and_then(|hit| flows.remove(&hit));
}

/// Ends flow `old` and reuses its record, and usually its slots, for flow `new`.
fn replace(flows: &Flows<'_>, old: u32, new: u32) {
    remove(flows, old);
    let _ = insert_nat(flows, new, &[1; 60]);
}

#[test]
fn interleaved_operations_during_insert_stay_consistent() {
    let insert = |flows: &Flows<'_>| {
        let _ = insert_nat(flows, 50, &[2; 60]);
    };
    at_every_step(
        insert,
        |flows| replace(flows, 3, 51),
        |flows| {
            assert!(find(flows, &nat_flow(50, 0).front).is_some());
        },
    );
    // Two lcores insert the same flow at once: one of them succeeds.
    at_every_step(insert, insert, |flows| assert_eq!(flows.live(), 11));
}

#[test]
fn flow_replaced_between_steps_is_gone_and_successor_unchanged() {
    let key = nat_flow(4, 0).front;
    let successor = |flows: &Flows<'_>| {
        if let Some(hit) = find(flows, &nat_flow(60, 0).front) {
            let snapshot = flows.snapshot(hit.path).unwrap();
            assert_eq!(snapshot.tcp, Some(TcpState::Embryonic));
            let mut answer = Answer::empty();
            flows.answer(&hit, true, &mut answer).unwrap();
            assert_eq!((answer.gateway.vni, answer.options()), (60, &[1; 60][..]));
        }
    };
    let other = |flows: &Flows<'_>| replace(flows, 4, 60);
    let reset = |flows: &Flows<'_>| {
        let hit = find(flows, &key).unwrap();
        flows.note(&hit, 4, true);
    };
    at_every_step(reset, other, successor);
    let update = |flows: &Flows<'_>| {
        let hit = find(flows, &key).unwrap();
        update(flows, &hit, &GatewayLeg { vni: 4444, ..GatewayLeg::default() }, &[9; 60], 1);
    };
    at_every_step(update, other, successor);
    at_every_step(|flows| remove(flows, 4), other, successor);
    let sweep = |flows: &Flows<'_>| {
        let capacity = flows.capacity();
        flows.sweep(&mut 0, capacity, 0, 1, 130, &Timeouts::DEFAULT, |_| {});
    };
    // Every old flow is idle; the concurrently inserted one is not.
    let inserted = Cell::new(false);
    let young = |flows: &Flows<'_>| {
        replace(flows, 4, 60);
        flows.touch(&find(flows, &nat_flow(60, 0).front).unwrap(), 130);
        inserted.set(true);
    };
    at_every_step(sweep, young, |flows| {
        assert_eq!(flows.live(), u32::from(inserted.take()));
        successor(flows);
    });
    let read = |flows: &Flows<'_>| {
        let hit = find(flows, &key).unwrap();
        let mut answer = Answer::empty();
        if flows.answer(&hit, true, &mut answer).is_ok() {
            assert_eq!((answer.forward.backend, answer.gateway.vni), (4, 4));
        }
    };
    at_every_step(read, other, successor);
}

/// Flow 4 as a tunnel flow: its back key is its front key in the plain scope.
fn by_tunnel() -> NewFlow {
    let new = nat_flow(4, 0);
    let back = Some((FlowKey { scope: SCOPE_PLAIN, ..new.front }, new.front_initiator));
    let forward = Forward { mode: Mode::Tunnel as u8, ..new.forward };
    NewFlow { back, forward, nat_map: NONE, ..new }
}

/// Ends flow 4 by `end`, and handles a packet of flow 4 at each step of that. The interrupted
/// operation continues only after the packet, like a process on the same CPU: the packet cannot
/// wait for anything. `others` is the number of other flows that exist afterwards.
fn at_every_step_of_an_end(tunnel: bool, end: impl Fn(&Flows<'_>), others: u32) {
    let key = nat_flow(4, 0).front;
    let (began, anew) = (Cell::new(false), Cell::new(0));
    let insert = |flows: &Flows<'_>, options: &[u8]| match tunnel {
        true => flows.insert(&by_tunnel(), options, 100),
        false => insert_nat(flows, 4, options),
    };
    let begin = |flows: &Flows<'_>| {
        remove(flows, 4);
        insert(flows, &[3; 60]).unwrap();
    };
    let packet = |flows: &Flows<'_>| {
        let found = find(flows, &key).map(|hit| flows.forward(&hit));
        match found {
            Some(Ok(_)) => return,
            Some(Err(error)) => assert_eq!(error, PathError::Gone),
            None => {}
        }
        let hit = insert(flows, &[5; 60]).unwrap();
        flows.touch(&hit, 130);
        began.set(true);
    };
    after_at_every_step(begin, end, packet, |flows| {
        let began = began.take();
        assert_eq!(find(flows, &key).is_some(), began);
        assert_eq!(flows.live(), others + u32::from(began));
        anew.set(anew.get() + u32::from(began));
    });
    assert!(anew.get() > 5, "at {} steps only", anew.get());
}

#[test]
fn packet_during_flow_removal_uses_flow_or_reopens_it() {
    for tunnel in [false, true] {
        at_every_step_of_an_end(tunnel, |flows| remove(flows, 4), 9);
        let sweep = |flows: &Flows<'_>| {
            let capacity = flows.capacity();
            flows.sweep(&mut 0, capacity, 0, 1, 130, &Timeouts::DEFAULT, |_| {});
        };
        at_every_step_of_an_end(tunnel, sweep, 0);
    }
}

#[test]
fn torn_copy_is_retried() {
    let region = small();
    let flows = table(&region);
    let hit = insert_nat(&flows, 1, &[]).unwrap();
    let path = &flows.paths[hit.path as usize];
    let mut copies = 0;
    let copied = path.consistent(|path| {
        copies += 1;
        let before = path.gateway();
        if copies == 1 {
            assert!(update(&flows, &hit, &GatewayLeg::default(), &[5; 8], 9));
        }
        (before.option_len, path.gateway().option_len)
    });
    assert_eq!((copied, copies), (Ok((8, 8)), 2));
}

#[test]
fn keys_of_one_bucket_spill_and_are_found() {
    let region = Region::anonymous_with(&Sizes { flows: 64, ..Sizes::SMALL }, 7).unwrap();
    let flows = table(&region);
    let home = |n: &u32| flows.index.position(flows.hash(&nat_flow(*n, 0).front)).home;
    let first = home(&0);
    let many: Vec<u32> = (0..49_999).filter(|n| home(n) == first).take(40).collect();
    let alone = |n: u32| NewFlow { back: None, nat_map: NONE, ..nat_flow(n, 0) };
    for n in &many {
        flows.insert(&alone(*n), &[], 1).unwrap();
    }
    assert!(flows.index.word_values().iter().any(|word| (word >> 24) & 0xff > 0), "some spill");
    let found = |n: &&u32| find(&flows, &nat_flow(**n, 0).front).is_some();
    assert_eq!(many.iter().filter(found).count(), many.len());
    assert_consistent(&flows);
    many.iter().step_by(2).for_each(|n| remove(&flows, *n));
    assert_eq!(many.iter().filter(found).count(), many.len() / 2);
    assert_consistent(&flows);
    many.iter().for_each(|n| remove(&flows, *n));
    assert!(flows.index.word_values().iter().all(|word| *word == 0));
}

#[test]
fn entry_with_corrupt_key_is_removed_with_its_flow() {
    let region = small();
    let flows = table(&region);
    let hits: Vec<_> = (0..10).map(|n| insert_nat(&flows, n, &[]).unwrap()).collect();
    let (start, _) = region.section_ptr(Section::FlowIndex);
    // SAFETY: a word of the key of an entry, changed as any process could change it.
    #[expect(unsafe_code, reason = "tests corrupt memory")]
    let word = unsafe {
        &*start.add(hits[3].entry as usize * 64 + 40).cast::<std::sync::atomic::AtomicU64>()
    };
    // The changed key must not belong to its position by chance.
    let elsewhere = (1u64..).find(|flip| {
        word.fetch_xor(*flip, Relaxed);
        let (key, _) = flows.index.read(hits[3].entry).unwrap();
        let position = flows.index.position(flows.hash(&key));
        let elsewhere = !flows.index.belongs(hits[3].entry, &position);
        if !elsewhere {
            word.fetch_xor(*flip, Relaxed);
        }
        elsewhere
    });
    assert!(elsewhere.is_some());
    let found = flows.recover();
    let expected = Recovery { recovered: 9, cleared_paths: 1, cleared_entries: 2, stale_locks: 0 };
    assert_eq!(found, expected);
    assert_consistent(&flows);
}
