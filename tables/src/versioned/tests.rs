//! Tests that exactly the intended generations see a version: with one thread, with the orders of
//! two threads that loom explores (at most three preemptions), and with several threads.

use super::*;
use crate::layout::{Section, Sizes};
use crate::lcore::LcoreStatus;
use crate::record::{Backend, FrontendKey, NONE, Service};
use crate::region::{Region, Role};
use crate::writer::{UpdateError, Writer};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32 as LoomWord;
use packet::addr::Addr;
use std::sync::atomic::AtomicBool;

impl Word for LoomWord {
    fn get(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    fn set(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
    fn fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

#[test]
fn version_is_visible_within_its_lifetime() {
    let writer = RegionWriter::default();
    let lifetime: Lifetime = Lifetime::default();
    assert!((0..9).all(|at| !lifetime.sees(at)));
    lifetime.renew(&writer, 3, || ());
    lifetime.end(&writer, 6);
    let visible: Vec<u32> = (0..9).filter(|at| lifetime.sees(*at)).collect();
    assert_eq!(visible, [3, 4, 5]);
    lifetime.recover(&writer, 5);
    assert!(lifetime.sees(8), "a removal that was only prepared is rolled back");
    lifetime.recover(&writer, 2);
    assert!(!lifetime.sees(8), "and so is an addition");
}

#[test]
fn version_prepared_and_removed_is_never_visible() {
    let writer = RegionWriter::default();
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let record: &Versioned<crate::lookup::FrontendKinds> = &region.slice(Section::FrontendKinds)[0];
    let kinds = |hosts| crate::lookup::FrontendKinds { hosts, ..Default::default() };
    record.put(&writer, 1, kinds(1));
    record.put(&writer, 2, kinds(2));
    record.put(&writer, 2, kinds(22));
    assert_eq!((record.get(1), record.get(2)), (Some(&kinds(1)), Some(&kinds(22))));
    record.remove(&writer, 2);
    assert_eq!((record.get(1), record.get(2)), (Some(&kinds(1)), None));
    record.put(&writer, 2, kinds(3));
    assert_eq!((record.get(1), record.get(2)), (Some(&kinds(1)), Some(&kinds(3))));
}

/// A versioned record of loom's types: loom fails if a record is read while it is written.
struct VersionedRecord {
    generation: LoomWord,
    acknowledged: LoomWord,
    state: LoomWord,
    versions: [(Lifetime<LoomWord>, loom::cell::UnsafeCell<u32>); 2],
}

impl VersionedRecord {
    fn committed_one() -> VersionedRecord {
        let version = |born, value| {
            let lifetime = Lifetime { born: LoomWord::new(born), dead: LoomWord::new(NEVER) };
            (lifetime, loom::cell::UnsafeCell::new(value))
        };
        VersionedRecord {
            generation: LoomWord::new(1),
            acknowledged: LoomWord::new(0),
            state: LoomWord::new(0),
            versions: [version(1, 1), version(0, 0)],
        }
    }

    /// Returns what a reader of generation `at` sees.
    #[expect(unsafe_code, reason = "loom's cells give pointers and check accesses")]
    fn read(&self, at: u32) -> Vec<u32> {
        let visible = self.versions.iter().filter(|(lifetime, _)| lifetime.sees(at));
        // SAFETY: loom fails the test on a concurrent write.
        visible.map(|(_, cell)| cell.with(|value| unsafe { *value })).collect()
    }

    /// Does what `Versioned::put` and `Writer::commit` do.
    #[expect(unsafe_code, reason = "loom's cells give pointers and check accesses")]
    fn put_and_commit(&self, writer: &RegionWriter, next: u32) {
        let version =
            self.versions.iter().position(|(lifetime, _)| !lifetime.sees(next - 1)).unwrap();
        let (lifetime, cell) = &self.versions[version];
        // SAFETY: loom fails the test on a concurrent read.
        lifetime.renew(writer, next, || cell.with_mut(|value| unsafe { *value = next }));
        self.versions[1 - version].0.end(writer, next);
        self.generation.set(next, Ordering::Release);
    }

    /// Returns what `Writer::begin` checks: whether the version before the committed one is unused.
    fn may_begin(&self, committed: u32) -> bool {
        LoomWord::fence();
        self.state.get(Ordering::Acquire) == 0
            || self.acknowledged.get(Ordering::Acquire) >= committed
    }
}

#[test]
fn under_all_orders_a_reader_sees_exactly_its_generation() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let record = Arc::new(VersionedRecord::committed_one());
        let writer = {
            let record = record.clone();
            loom::thread::spawn(move || {
                let writer = RegionWriter::default();
                for committed in 1..3 {
                    if !record.may_begin(committed) {
                        break;
                    }
                    record.put_and_commit(&writer, committed + 1);
                }
            })
        };
        let mut at = join(&record.generation, &record.acknowledged, &record.state, 1);
        for _ in 0..2 {
            assert_eq!(record.read(at), [at]);
            let now = record.generation.get(Ordering::Acquire);
            if now != at {
                at = now;
                record.acknowledged.set(at, Ordering::Release);
            }
        }
        assert_eq!(record.read(at), [at]);
        writer.join().unwrap();
    });
}

fn service(mss: u16) -> Service {
    Service { mss, ..Service::EMPTY }
}

fn backend(last: u8) -> Backend {
    Backend {
        addr: Addr::v4(u32::from_ne_bytes([10, 0, 2, last])),
        probe: Addr::UNSPECIFIED,
        incarnation: 0,
        next_hop: NONE,
        nat_ports: NONE,
        probe_service: NONE,
        port: 80,
        state: 0,
        arm: 1,
        pad: 0,
    }
}

fn frontend(port: u16) -> FrontendKey {
    let addr = Addr::v4(u32::from_ne_bytes([203, 0, 113, 1]));
    FrontendKey { scope_key: 0, addr, port, proto: 6, prefix_len: 128, pad: 0 }
}

/// Two lcores perform lookups while a writer changes everything as fast as they acknowledge.
#[test]
fn readers_never_see_a_partial_table_set() {
    const ROUNDS: u32 = if cfg!(miri) { 3 } else { 1_000 };
    const SIZE: u32 = if cfg!(miri) { 251 } else { 1021 };
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let claim = region.claim(Role::Fastpath).unwrap();
    let mut writer = Writer::attach(&region).unwrap();
    let web = writer.put_service("web", &service(0)).unwrap();
    writer.put_frontend(&frontend(1), web).unwrap();
    writer.commit().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = |lcore| {
            let (region, stop, epoch) = (&region, &stop, claim.epoch());
            scope.spawn(move || read_until(region, lcore, epoch, stop, web))
        };
        let readers: Vec<_> = region.lcores().iter().map(reader).collect();
        for round in 0..ROUNDS {
            while let Err(error) = change(&mut writer, web, round, SIZE) {
                assert!(matches!(
                    error,
                    UpdateError::Unacknowledged { .. } | UpdateError::Full { .. }
                ));
                if readers.iter().any(|reader| reader.is_finished()) {
                    // A reader failed; the scope reports its panic.
                    return stop.store(true, Ordering::Relaxed);
                }
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(writer.commit().unwrap() > ROUNDS);
}

fn read_until(region: &Region, lcore: &LcoreStatus, epoch: u32, stop: &AtomicBool, web: u32) {
    let mut set = region.tables(lcore.join(region, epoch, 0));
    while !stop.load(Ordering::Relaxed) {
        // There are more threads than cores, and a burst may coincide with any point of a commit.
        for _ in 0..3 {
            assert_invariants(&set, web);
            std::thread::yield_now();
        }
        lcore.count_iteration();
        if region.generation() != set.generation() {
            set = region.tables(region.generation());
            lcore.acknowledge(set.generation());
        }
    }
    lcore.leave();
}

/// Performs one change; every record of a generation contains its round.
fn change(writer: &mut Writer<'_>, web: u32, round: u32, size: u32) -> Result<(), UpdateError> {
    let mark = round as u16 % 20_000;
    let other = writer.put_service(&format!("round {}", round % 3), &service(mark))?;
    writer.put_service("web", &service(mark))?;
    let ids: Vec<(u32, u32)> = (0..2 + round % 3)
        .map(|i| {
            let backend = Backend { nat_ports: NONE, ..backend((round + i) as u8 % 20) };
            writer.put_backend(&Backend { arm: (mark % 250) as u8, ..backend }).map(|id| (id, 1))
        })
        .collect::<Result<_, _>>()?;
    writer.set_slots(web, &ids, size, "TCP")?;
    // The same key is moved back and forth, and other keys are added and removed.
    writer.put_frontend(&frontend(1), if round.is_multiple_of(2) { web } else { other })?;
    writer.put_frontend(&frontend(2 + (round % 40) as u16), other)?;
    writer.remove_frontend(&frontend(2 + ((round + 20) % 40) as u16))?;
    writer.commit().map(drop)
}

/// Asserts the invariants of every generation.
fn assert_invariants(set: &crate::set::TableSet<'_>, web: u32) {
    let addr = frontend(1).addr;
    let found = set.frontend(0, &addr, 1, 6).expect("its key exists in every generation");
    let (one, two) = (set.service(found).unwrap(), set.service(web).unwrap());
    assert_eq!(
        one.mss,
        two.mss,
        "two services of different rounds in generation {}",
        set.generation()
    );
    assert!(set.address_marked(0, &addr));
    for i in 0..8u64 {
        if let Some(id) = set.pick(two, i << 61 | i << 40) {
            let backend = set.backend(id).expect("a slot refers to a backend of its generation");
            assert_eq!(u16::from(backend.arm), two.mss % 250, "a backend of another round");
        }
    }
}
