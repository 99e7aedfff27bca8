//! Several lcores on one table.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

/// Number of consistent reads required under contention, and the time limit for them: on a loaded
/// machine the readers may hardly run.
const READS: u32 = if cfg!(miri) { 5 } else { 100_000 };
const TIME_LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 3 });

#[test]
fn concurrent_inserts_of_one_flow_create_one() {
    let region = small();
    let flows = table(&region);
    let count = if cfg!(miri) { 20 } else { 200 };
    let won: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
    let work = |lcore: u8| {
        kill::with_pauses(u32::from(lcore) * 7 + 1);
        let flows = Flows::of_lcore(&region, lcore, 7);
        for n in 0..count {
            let port = flows.nat.claim(0, 1024..=60_000, lcore.into(), 3).unwrap();
            let hit = loop {
                match flows.insert(&nat_flow(n, port), &[], 1) {
                    Ok(hit) => {
                        won[n as usize].fetch_add(1, Relaxed);
                        break hit;
                    }
                    // On a loaded machine a thread may be preempted while it holds a lock.
                    Err(InsertError::Contended) => std::thread::yield_now(),
                    Err(error) => {
                        assert!(matches!(error, InsertError::Exists(_)), "{error}");
                        assert!(flows.nat.release(0, port));
                        break find(&flows, &nat_flow(n, 0).front).unwrap();
                    }
                }
            };
            assert_eq!(flows.forward(&hit).unwrap().backend, n);
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        (0..3).for_each(|lcore| drop(scope.spawn(move || work(lcore))));
    });
    assert!(won.iter().all(|won| won.load(Relaxed) == 1));
    assert_eq!(flows.live(), count);
    assert_consistent(&flows);
}

/// Asserts that a copy is not torn: every part of the record identifies the flow or the round that
/// wrote it.
fn assert_of_one_piece(answer: &Answer, n: u32) {
    assert_eq!(answer.forward.backend, n);
    let round = answer.gateway.vni;
    assert_eq!(answer.gateway.node, addr(round));
    assert!(answer.options().iter().all(|byte| *byte == round as u8), "options of one round");
    assert_eq!(answer.options().len(), [8, 120][round as usize % 2]);
}

#[test]
fn readers_never_see_torn_or_foreign_records() {
    let region = small();
    let flows = table(&region);
    let (stop, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    let leg = |round: u32| GatewayLeg { vni: round, node: addr(round), ..GatewayLeg::default() };
    // Few slabs and few keys: records, slabs and slots are reused constantly.
    let keys = 24;
    let write = |lcore: u32| {
        kill::with_pauses(lcore + 9);
        let flows = Flows::of_lcore(&region, lcore as u8, 7);
        let until = Instant::now() + TIME_LIMIT;
        let mut round = lcore;
        while Instant::now() < until && reads.load(Relaxed) < READS {
            round += 1;
            let n = round.wrapping_mul(2_654_435_761) % keys;
            let port = flows.nat.claim(0, 1024..=60_000, lcore, 2).unwrap();
            let options = [round as u8; 120];
            let options = &options[..[8, 120][round as usize % 2]];
            let new = NewFlow { gateway: leg(round), ..nat_flow(n, port) };
            if flows.insert(&new, options, 1).is_err() {
                flows.nat.release(0, port);
                if let Some(hit) = find(&flows, &new.front) {
                    if round.is_multiple_of(3) {
                        flows.remove(&hit);
                    } else {
                        update(&flows, &hit, &leg(round), options, round);
                    }
                }
            }
        }
    };
    let read = || {
        let mut n = 0;
        while !stop.load(Relaxed) {
            n = (n + 1) % keys;
            let found = find(&flows, &nat_flow(n, 0).front);
            let Some(hit) = found else { continue };
            let mut answer = Answer::empty();
            if flows.answer(&hit, true, &mut answer).is_ok() {
                assert_of_one_piece(&answer, n);
                reads.fetch_add(1, Relaxed);
            }
            if let Ok(ends) = flows.ends(&hit) {
                assert_eq!(ends.initiator, (addr(0x6440_0000), n as u16));
            }
            flows.touch(&hit, 2);
            flows.note(&hit, 16, true);
        }
    };
    std::thread::scope(|scope| {
        let (write, read) = (&write, &read);
        let writers: Vec<_> = (0..2).map(|l| scope.spawn(move || write(l))).collect();
        (0..2).for_each(|_| drop(scope.spawn(read)));
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Relaxed);
        ended.into_iter().for_each(|end| end.unwrap());
    });
    assert!(reads.load(Relaxed) > 0, "the readers read");
    assert_consistent(&flows);
}

#[test]
fn recovery_after_killed_lcores_restores_consistent_table() {
    for steps in (1..if cfg!(miri) { 12 } else { 400 }).step_by(7) {
        let region = small();
        let flows = table(&region);
        let work = |lcore: u32| {
            kill::after(steps + lcore, || {
                for n in (0..2000).map(|n| n * 2 + lcore) {
                    let _ = insert_nat(&flows, n % 190, &[1; 60]);
                    let key = nat_flow(n % 7, 0).front;
                    find(&flows, &key).map(|hit| flows.remove(&hit));
                }
            });
        };
        std::thread::scope(|scope| {
            let work = &work;
            (0..2).for_each(|lcore| drop(scope.spawn(move || work(lcore))));
        });
        let successor = Flows::new(&region).as_owner(3, 8);
        successor.recover();
        assert_consistent(&successor);
    }
}
