//! Tests of the store on a disk that loses data, tears writes and fails, and of a killed process.

mod damage;
mod format;
mod memory;
mod stuck;

use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::UNIX_EPOCH;

use fastrand::Rng;
use memory::{Lost, Memory};

use super::*;
use crate::name::Name;
use crate::object::{ApplianceSpec, Kind, Object, Spec};

fn object(source: &str, name: usize, cluster: u32) -> Object {
    let spec = Spec::Appliance(Arc::new(ApplianceSpec { cluster, ..ApplianceSpec::default() }));
    Object::new(Name::new(&format!("a{name}")).unwrap(), Source::new(source), spec)
}

fn key(source: &str, name: usize) -> Key {
    object(source, name, 0).key()
}

/// Returns a random group of batches with puts, deletions and finalizers, some of which are
/// rejected.
fn random_group(rng: &mut Rng) -> Vec<Batch> {
    let change = |rng: &mut Rng| {
        let (source, name) = (["api", "file"][rng.usize(..2)], rng.usize(..4));
        match rng.usize(..6) {
            0..=2 => Change::put(object(source, name, rng.u32(..1000))),
            3 => Change::delete(key(source, name)),
            number => {
                let present = number == 4;
                Change::Finalizer { key: key(source, name), name: "x".into(), present }
            }
        }
    };
    let batch = |rng: &mut Rng| (0..=rng.usize(..2)).map(|_| change(rng)).collect();
    (0..=rng.usize(..3)).map(|_| batch(rng)).collect()
}

/// Returns the objects before a group and after each of its accepted batches.
fn states(from: &Objects, group: &[Batch]) -> Vec<Objects> {
    let mut states = vec![from.clone()];
    for batch in group {
        if let Ok((next, _)) = apply(&states[states.len() - 1], batch, UNIX_EPOCH) {
            states.push(next);
        }
    }
    states
}

fn same(a: &Objects, b: &Objects) -> bool {
    a.revision() == b.revision() && a.all().eq(b.all())
}

#[test]
fn a_closed_store_is_read_without_changing_its_files() {
    let path = std::env::temp_dir().join(format!("weir-closed-{}", std::process::id()));
    let missing = read_closed(&path).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let mut store = Store::open(Folder::open(&path).unwrap());
    for name in 0..3 {
        store.commit(&[vec![Change::put(object("api", name, 7))]], UNIX_EPOCH);
    }
    let objects = store.objects().clone();
    assert_eq!(read_closed(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(store);
    let log = path.join(LOG);
    let mut torn = std::fs::read(&log).unwrap();
    torn.extend_from_slice(&torn.clone()[..9]);
    std::fs::write(&log, &torn).unwrap();
    assert!(same(&read_closed(&path).unwrap(), &objects));
    assert_eq!(std::fs::read(&log).unwrap(), torn, "the interrupted write stays");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "no copy is written");
    torn[20] ^= 1;
    std::fs::write(&log, &torn).unwrap();
    let damaged = read_closed(&path).unwrap_err();
    assert_eq!(damaged.kind(), io::ErrorKind::InvalidData, "{damaged}");
    assert!(damaged.to_string().contains("log is damaged at byte"), "{damaged}");
    std::fs::remove_dir_all(path).unwrap();
}

fn opened(disk: Memory) -> Store<Memory> {
    let mut store = Store::open(disk);
    // Small, so that snapshots are written often.
    store.min_snapshot_log = 300;
    store
}

#[test]
fn power_failure_at_any_byte_keeps_acknowledged_batches_whole() {
    let (mut snapshots, mut crashes) = (0, 0);
    for seed in 0..3 {
        let (mut rng, mut disk) = (Rng::with_seed(seed), Memory::new(seed));
        for _ in 0..14 {
            let group = random_group(&mut rng);
            let states = states(opened(disk.clone()).objects(), &group);
            for power in 1.. {
                let mut store = opened(Memory { power, ..disk.clone() });
                let answers = store.commit(&group, UNIX_EPOCH);
                if !store.disk.is_off() {
                    snapshots += usize::from(store.log_len == 0);
                    disk = store.disk.crashed(Lost::All);
                    assert!(same(opened(disk.clone()).objects(), store.objects()));
                    break;
                }
                let acknowledged = answers.iter().any(Result::is_ok);
                for lost in [Lost::All, Lost::Nothing, Lost::Some(seed + power as u64)] {
                    crashes += 1;
                    let after = opened(store.disk.crashed(lost));
                    let found = states.iter().rposition(|state| same(state, after.objects()));
                    let found = found.unwrap_or_else(|| {
                        panic!("seed {seed}, power {power}: a batch is stored in part")
                    });
                    assert!(
                        !acknowledged || found == states.len() - 1,
                        "seed {seed}, power {power}: an acknowledged batch is lost"
                    );
                }
            }
        }
    }
    assert!(snapshots > 3 && crashes > 1_000, "{snapshots} {crashes}");
}

#[test]
fn disk_error_rejects_its_group_and_keeps_acknowledged_batches() {
    let mut failed_groups = 0;
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let mut store = opened(Memory { faults: 25, ..Memory::new(seed) });
        // States that may be found after a crash: the acknowledged one, and those of groups that
        // failed since, which may have been written nevertheless.
        let mut possible = vec![Objects::default()];
        for _ in 0..30 {
            let (before, group) = (store.objects().clone(), random_group(&mut rng));
            let answers = store.commit(&group, UNIX_EPOCH);
            let states = states(&before, &group);
            let failed = answers
                .iter()
                .any(|a| a.as_ref().is_err_and(|error| error.to_string().contains("a fault")));
            if failed {
                failed_groups += 1;
                assert!(same(store.objects(), &before));
                possible.extend(states);
            } else {
                assert!(same(store.objects(), &states[states.len() - 1]));
                if store.objects().revision() != before.revision() {
                    possible.clear();
                }
                possible.push(store.objects().clone());
            }
            for lost in [Lost::All, Lost::Nothing, Lost::Some(seed)] {
                let after = opened(store.disk.crashed(lost));
                assert!(possible.iter().any(|p| same(p, after.objects())), "seed {seed}");
            }
        }
    }
    assert!(failed_groups > 100, "{failed_groups}");
}

#[test]
fn waiting_batches_share_one_sync() {
    let shared = Shared::new(Store::open(Memory::new(1)));
    let mut changes = shared.watch();
    let guard = shared.store();
    let before = guard.disk.syncs;
    std::thread::scope(|scope| {
        let change = |name| shared.change(vec![Change::put(object("api", name, 1))], UNIX_EPOCH);
        let writers: Vec<_> = (0..8).map(|name| scope.spawn(move || change(name))).collect();
        let absent = scope.spawn(|| shared.change(vec![Change::delete(key("api", 9))], UNIX_EPOCH));
        while shared.queue.lock().waiting.len() < 9 {
            std::thread::yield_now();
        }
        drop(guard);
        let mut revisions: Vec<u64> =
            writers.into_iter().map(|writer| writer.join().unwrap().unwrap()).collect();
        revisions.sort_unstable();
        assert_eq!(revisions, (1..=8).collect::<Vec<u64>>());
        assert!(absent.join().unwrap().unwrap_err().to_string().contains("no such object"));
    });
    assert_eq!(shared.store().disk.syncs - before, 1);
    assert_eq!(shared.objects().all().count(), 8);
    assert!(changes.has_changed().unwrap() && *changes.borrow_and_update() == 8);
    let changes = shared.changes_since(6);
    assert_eq!((changes.objects.revision(), changes.events.unwrap().len()), (8, 2));
}

/// The observer runs after the callers have their answers, and gets the size of the files.
#[test]
fn observer_runs_after_the_answers_and_gets_the_size_of_the_files() {
    let shared = Shared::new(Store::open(Memory::new(1)));
    shared.store().min_snapshot_log = 300;
    let answered = Arc::new(AtomicUsize::new(0));
    let (sender, observed) = channel();
    let answers = Arc::clone(&answered);
    shared.set_observer(Box::new(move |written| {
        sender.send((answers.load(Relaxed), written.completed.len(), written.bytes)).unwrap();
    }));
    for name in 0..20 {
        let (answers, batch) = (Arc::clone(&answered), vec![Change::put(object("api", name, 1))]);
        let complete_sources = vec![Source::new("api")];
        let request = WriteRequest { complete_sources, ..WriteRequest::new(batch, UNIX_EPOCH) };
        shared.submit(request, move |answer| {
            assert!(answer.is_ok());
            answers.fetch_add(1, Relaxed);
        });
        shared.write_waiting();
        let mut store = shared.store();
        let mut size = |file| store.disk.read(file).unwrap().unwrap_or_default().len() as u64;
        let expected = (name + 1, 1, size(SNAPSHOT) + size(LOG));
        assert_eq!(observed.try_recv().unwrap(), expected);
    }
    assert!(shared.store().snapshot_len > 0, "a snapshot was written, so the log was emptied");
}

#[test]
fn stored_objects_of_sources_serve_until_confirmed() {
    let mut store = opened(Memory::new(1));
    let puts = |source: &str, names: &[usize]| -> Batch {
        names.iter().map(|name| Change::put(object(source, *name, 1))).collect()
    };
    store.commit(&[puts("api", &[1]), puts("etcd", &[1, 2, 3]), puts("file", &[1])], UNIX_EPOCH);
    assert!(store.unconfirmed_sources().is_empty());
    let mut store = opened(store.disk);
    assert_eq!(store.objects().all().count(), 5);
    let (etcd, file) = (Source::new("etcd"), Source::new("file"));
    assert_eq!(store.unconfirmed_sources(), [etcd.clone(), file.clone()].into());
    // One object is sent again unchanged, one changed, one not at all.
    let again = vec![Change::put(object("etcd", 1, 1)), Change::put(object("etcd", 2, 7))];
    store.commit(&[again], UNIX_EPOCH);
    assert_eq!(store.unconfirmed_deletions(&etcd), vec![Change::delete(key("etcd", 3))]);
    let unconfirmed_deletions = store.unconfirmed_deletions(&etcd);
    store.commit(&[unconfirmed_deletions], UNIX_EPOCH);
    assert_eq!(store.unconfirmed_sources(), [file.clone()].into());
    let desired = store.objects().changes_to(&file, vec![object("file", 1, 1)]);
    assert_eq!(desired, vec![]);
    store.confirm_source(&file);
    assert!(
        store.unconfirmed_sources().is_empty() && store.unconfirmed_deletions(&file).is_empty()
    );
    let stored: Vec<String> = store.objects().all().map(|o| o.key().to_string()).collect();
    let result = ["a1 of api", "a1 of etcd", "a1 of file", "a2 of etcd"];
    assert_eq!(stored, result.map(|text| format!("{} {text}", Kind::Appliance)));
}

/// Environment variable with the store's directory, set for the child process that is killed.
const CHILD: &str = "WEIR_TEST_STORE_CHILD";

/// Writes objects until the process is killed, and prints the number of each one that is stored.
fn write_until_killed(folder: &std::path::Path) {
    let mut store = Store::open(Folder::open(folder).unwrap());
    store.min_snapshot_log = 20_000;
    let mut out = std::io::stdout();
    let first = store.objects().all().count();
    for name in first.. {
        let answer = store.commit(&[vec![Change::put(object("api", name, 1))]], UNIX_EPOCH);
        assert!(answer[0].is_ok());
        writeln!(out, "\nstored {name}").unwrap();
    }
}

#[test]
fn killed_process_keeps_acknowledged_changes() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return write_until_killed(&PathBuf::from(folder));
    }
    let folder = std::env::temp_dir().join(format!("weir-store-{}", std::process::id()));
    let (mut rng, mut last) = (Rng::with_seed(7), None);
    for _ in 0..40 {
        let own = std::thread::current();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", own.name().unwrap(), "--nocapture"])
            .env(CHILD, &folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let parse =
            |line: String| line.strip_prefix("stored ").and_then(|n| n.parse::<usize>().ok());
        let mut result = lines.by_ref().filter_map(|line| parse(line.unwrap()));
        last = result.by_ref().nth(rng.usize(..40)).or(last);
        std::thread::sleep(std::time::Duration::from_micros(rng.u64(..2_000)));
        child.kill().unwrap();
        last = result.last().or(last);
        child.wait().unwrap();
        let store = Store::open(Folder::open(&folder).unwrap());
        let count = store.objects().all().count();
        let last = last.unwrap();
        assert!(
            count == last + 1 || count == last + 2,
            "{count} objects, the last acknowledged is {last}"
        );
    }
    let second = Folder::open(&folder).unwrap();
    let result = Folder::open(&folder).unwrap_err().to_string();
    assert!(result.contains("in use by another process"), "{result}");
    drop(second);
    assert!(last.unwrap() > 300);
    std::fs::remove_dir_all(&folder).unwrap();
}
