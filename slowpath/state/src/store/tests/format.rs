//! Tests of a store whose lines are not in the newest format of the version that opens it.

use super::*;
use crate::object::ErrorClass;
use crate::store::format::{Formats, NEXT};

fn next(disk: Memory) -> Store<Memory> {
    let mut store = Store::open_with(disk, NEXT);
    store.min_snapshot_log = 300;
    store
}

/// Formats of the version before the one that has [`NEXT`], which is this program's own version.
const BEFORE: &Formats = FORMATS;

fn before(disk: Memory) -> Store<Memory> {
    Store::open_with(disk, BEFORE)
}

#[test]
fn a_store_stays_in_the_format_of_the_version_before_until_the_commit() {
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let mut store = before(Memory::new(seed));
        store.commit(&[vec![Change::put(object("api", 0, 1))]], UNIX_EPOCH);
        let mut store = next(store.disk);
        let mut snapshots = 0;
        for _ in 0..20 {
            store.commit(&random_group(&mut rng), UNIX_EPOCH);
            snapshots += usize::from(store.snapshot_len > 0 && store.log_len == 0);
            assert_eq!(store.format(), BEFORE.own());
            let back = before(store.disk.clone());
            assert!(back.damage().is_none(), "{:?}", back.damage());
            assert!(same(back.objects(), store.objects()));
            assert!(same(next(store.disk.clone()).objects(), store.objects()));
        }
        assert!(snapshots > 0, "seed {seed}");
        let objects = store.objects().clone();
        store.commit_format().unwrap();
        store.commit_format().unwrap();
        store.commit(&random_group(&mut rng), UNIX_EPOCH);
        let again = next(store.disk.clone());
        assert_eq!((store.format(), again.format()), (NEXT.own(), NEXT.own()));
        assert!(same(again.objects(), store.objects()));
        assert!(objects.all().count() > 0);
        // The earlier version rejects the later format, and leaves the files as they are.
        let back = before(store.disk.clone());
        let damage = back.damage().unwrap().to_string();
        let expected = "the store has format 3; this version of Weir reads formats 2 to 2";
        assert!(damage.contains(expected), "{damage}");
        assert!(same(next(back.disk).objects(), store.objects()));
    }
}

#[test]
fn a_new_store_begins_with_the_newest_format() {
    let mut store = next(Memory::new(1));
    let put = vec![Change::put(object("api", 1, 1))];
    assert!(store.commit(&[put], UNIX_EPOCH)[0].is_ok());
    assert_eq!(store.format(), NEXT.own());
    let again = next(store.disk.clone());
    assert!(again.format() == NEXT.own() && same(again.objects(), store.objects()));
    // The earlier version cannot read it, unless the store was created with `readable_in`.
    assert!(before(store.disk).damage().is_some());
    let mut store = next(Memory::new(1)).readable_in(BEFORE.own());
    store.commit(&[vec![Change::put(object("api", 1, 1))]], UNIX_EPOCH);
    let back = before(store.disk.clone());
    assert!(back.damage().is_none() && same(back.objects(), store.objects()));
    // A store with files keeps their format.
    store.commit_format().unwrap();
    assert_eq!(store.readable_in(BEFORE.own()).format(), NEXT.own());
}

#[test]
fn what_the_earlier_format_cannot_express_is_rejected_until_the_commit() {
    let mut store = before(Memory::new(1));
    store.commit(&[vec![Change::put(object("api", 0, 1))]], UNIX_EPOCH);
    let mut store = next(store.disk);
    let mut shadow = object("api", 1, 1);
    shadow.labels = Some(Arc::new([("shadow".into(), "b".into())].into()));
    let batches = [vec![Change::put(shadow)], vec![Change::put(object("api", 2, 1))]];
    let answers = store.commit(&batches, UNIX_EPOCH);
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!(error.class, ErrorClass::Invalid, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("label `shadow` cannot be stored: the store still has format 2"),
        "{text}"
    );
    assert!(text.contains("weir upgrade commit"), "{text}");
    assert_eq!(
        *answers[1].as_ref().unwrap(),
        2,
        "the other batch is applied, without a gap in revisions"
    );
    store.commit_format().unwrap();
    assert!(store.commit(&batches[..1], UNIX_EPOCH)[0].is_ok());
    assert!(same(next(store.disk.clone()).objects(), store.objects()));
}

/// The power fails at each byte of a commit of the format, and of the change after it.
#[test]
fn a_commit_of_the_format_loses_nothing_at_a_power_failure() {
    let mut crashes = 0;
    for seed in 0..4 {
        let mut rng = Rng::with_seed(seed);
        let mut store = before(Memory::new(seed));
        for _ in 0..6 {
            store.commit(&random_group(&mut rng), UNIX_EPOCH);
        }
        let disk = store.disk.clone();
        let states = [store.objects().clone(), {
            store.commit(&[vec![Change::put(object("api", 9, 9))]], UNIX_EPOCH);
            store.objects().clone()
        }];
        for power in 1.. {
            let mut store = next(Memory { power, ..disk.clone() });
            let committed = store.commit_format().is_ok();
            let put = vec![Change::put(object("api", 9, 9))];
            let stored = store.commit(&[put], UNIX_EPOCH)[0].is_ok();
            if !store.disk.is_off() {
                assert!(committed && stored);
                break;
            }
            for lost in [Lost::All, Lost::Nothing, Lost::Some(seed + power as u64)] {
                crashes += 1;
                let after = next(store.disk.crashed(lost));
                assert!(after.damage().is_none(), "{:?}", after.damage());
                let found = states.iter().position(|state| same(state, after.objects()));
                let found =
                    found.unwrap_or_else(|| panic!("seed {seed}, power {power}: part of a change"));
                assert!(!stored || found == 1, "seed {seed}, power {power}: the change is lost");
                assert!(!committed || after.format() == NEXT.own(), "seed {seed}, power {power}");
                if after.format() == BEFORE.own() {
                    let back = before(after.disk.clone());
                    assert!(same(back.objects(), after.objects()), "seed {seed}, power {power}");
                }
            }
        }
    }
    assert!(crashes > 1_000, "{crashes}");
}

/// Writes fail at random: acknowledged changes stay, and a later commit of the format succeeds.
#[test]
fn a_failed_commit_of_the_format_can_be_repeated() {
    let mut failures = 0;
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let mut store = before(Memory::new(seed));
        for _ in 0..4 {
            store.commit(&random_group(&mut rng), UNIX_EPOCH);
        }
        let mut store = next(Memory { faults: 30, ..store.disk });
        // A change that failed may have been written nevertheless.
        let mut possible = vec![store.objects().clone()];
        for name in 10..14 {
            failures += usize::from(store.commit_format().is_err());
            let put = vec![Change::put(object("api", name, 1))];
            let (changed, _) = apply(store.objects(), &put, UNIX_EPOCH).unwrap();
            if store.commit(&[put], UNIX_EPOCH)[0].is_ok() {
                possible.clear();
            }
            possible.push(changed);
            let after = next(store.disk.crashed(Lost::All));
            assert!(after.damage().is_none(), "seed {seed}: {:?}", after.damage());
            let found = possible.iter().any(|state| same(state, after.objects()));
            assert!(found, "seed {seed}, {name}");
        }
        store.disk.faults = 0;
        store.commit_format().unwrap();
        let after = next(store.disk.crashed(Lost::All));
        assert_eq!(after.format(), NEXT.own());
        assert!(possible.iter().any(|state| same(state, after.objects())), "seed {seed}");
    }
    assert!(failures > 20, "{failures}");
}

#[test]
fn the_format_is_read_from_the_files_of_an_open_store() {
    let path = std::env::temp_dir().join(format!("weir-format-{}", std::process::id()));
    assert_eq!(format_of(&path).unwrap(), UNNAMED);
    let mut store = Store::open_with(Folder::open(&path).unwrap(), NEXT);
    assert_eq!(format_of(&path).unwrap(), UNNAMED);
    store.commit(&[vec![Change::put(object("api", 1, 1))]], UNIX_EPOCH);
    assert_eq!(format_of(&path).unwrap(), NEXT.own());
    drop(store);
    let error = read_closed(&path).unwrap_err().to_string();
    assert!(error.contains("the store has format 3"), "{error}");
    std::fs::remove_dir_all(path).unwrap();
}
