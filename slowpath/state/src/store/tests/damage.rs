//! Tests of damaged files: no acknowledged change is lost silently.

use std::time::SystemTime;

use fastrand::Rng;

use super::*;

/// Returns a disk with a log of six records, including deletions; the objects before the first
/// record and after each; and the offsets at which the records begin and the last one ends.
fn sample_log() -> (Memory, Vec<Objects>, Vec<usize>) {
    let put = |name, cluster| Change::put(object("api", name, cluster));
    let finalizer = |present| Change::Finalizer { key: key("api", 2), name: "x".into(), present };
    let groups: [&[Batch]; 6] = [
        &[vec![put(0, 1), put(1, 1)]],
        &[vec![put(2, 1)], vec![finalizer(true)]],
        &[vec![Change::delete(key("api", 1))]],
        &[vec![put(0, 7)], vec![Change::delete(key("api", 2))]],
        &[vec![Change::put(object("file", 3, 1))]],
        &[vec![finalizer(false)], vec![put(4, 1)]],
    ];
    let mut store = Store::open(Memory::new(1));
    let (mut states, mut ends) = (vec![Objects::default()], vec![0]);
    for group in groups {
        assert!(store.commit(group, UNIX_EPOCH).iter().all(Result::is_ok));
        states.push(store.objects().clone());
        ends.push(store.log_len as usize);
    }
    (store.disk, states, ends)
}

fn bytes(disk: &mut Memory, file: &str) -> Option<Vec<u8>> {
    disk.read(file).unwrap()
}

/// Checks that a store with a damaged file is empty and rejects changes with the file and the
/// offset of the damage, and that the file is unchanged and copied.
fn assert_damaged(mut store: Store<Memory>, file: &str, at: usize, found: &[u8]) {
    let damage = store.damage().unwrap_or_else(|| panic!("{file}, damaged at {at}, is used"));
    assert_eq!((damage.path.as_str(), damage.offset), (file, at as u64), "{damage}");
    assert_eq!(store.objects().revision(), 0);
    let answers = store.commit(&[vec![Change::put(object("api", 9, 1))]], UNIX_EPOCH);
    let error = answers[0].clone().unwrap_err();
    assert_eq!(error.class, ErrorClass::Damaged);
    let text = error.to_string();
    let location = format!("{file} is damaged at byte {at}: ");
    for part in [&location, "away to ", "then restart slowpath", "`weir restore --only objects`"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_eq!(bytes(&mut store.disk, file).unwrap(), found);
    assert_eq!(bytes(&mut store.disk, &format!("{file}.damaged")).unwrap(), found);
}

#[test]
fn a_flipped_bit_in_the_log_is_damage_or_cuts_the_last_record_after_a_copy() {
    let (disk, states, ends) = sample_log();
    let [.., last, end] = ends[..] else { panic!("no records") };
    let (mut damaged, mut cut) = (0, 0);
    for bit in 0..end * 8 {
        let mut disk = disk.clone();
        disk.corrupt(LOG, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let found = bytes(&mut disk, LOG).unwrap();
        let mut store = Store::open(disk);
        let at = ends[ends.partition_point(|end| *end <= bit / 8) - 1];
        if store.damage().is_some() {
            assert_damaged(store, LOG, at, &found);
            damaged += 1;
            continue;
        }
        let result = store.cut().unwrap_or_else(|| panic!("bit {bit} is not detected"));
        assert_eq!((at, result.offset, result.bytes), (last, last as u64, (end - last) as u64));
        assert!(same(store.objects(), &states[states.len() - 2]), "bit {bit}");
        assert_eq!(bytes(&mut store.disk, "log.cut").unwrap(), found);
        assert_eq!(bytes(&mut store.disk, LOG).unwrap(), found[..last]);
        cut += 1;
    }
    // If a bit is flipped in the last record's header after the magic number, the record looks like
    // an interrupted write.
    assert_eq!((damaged, cut), ((end - 20) * 8, 20 * 8));
}

#[test]
fn a_log_that_ends_at_any_byte_is_cut_after_its_last_whole_record_with_a_copy() {
    let (disk, states, ends) = sample_log();
    let end = ends[ends.len() - 1];
    for len in 0..end {
        let mut disk = disk.clone();
        disk.corrupt(LOG, |bytes| bytes.truncate(len));
        let found = bytes(&mut disk, LOG).unwrap();
        let mut store = Store::open(disk);
        assert_eq!(store.damage(), None, "{len} bytes");
        let last = ends.partition_point(|end| *end <= len) - 1;
        assert!(same(store.objects(), &states[last]), "{len} bytes");
        // A log that ends after a record is complete.
        assert_eq!(store.cut().is_some(), ends[last] != len, "{len} bytes");
        if let Some(cut) = store.cut() {
            assert_eq!((cut.offset, cut.bytes), (ends[last] as u64, (len - ends[last]) as u64));
            assert_eq!(bytes(&mut store.disk, "log.cut").unwrap(), found);
        }
        assert!(store.commit(&[vec![Change::put(object("api", 9, 1))]], UNIX_EPOCH)[0].is_ok());
        let again = Store::open(store.disk.clone());
        assert!(again.cut().is_none() && same(again.objects(), store.objects()));
    }
}

#[test]
fn missing_or_repeated_bytes_in_the_log_are_damage() {
    let (disk, _, ends) = sample_log();
    for from in 0..ends.len() - 2 {
        for to in from + 1..ends.len() - 1 {
            let mut without = disk.clone();
            without.corrupt(LOG, |bytes| drop(bytes.drain(ends[from]..ends[to])));
            let found = bytes(&mut without, LOG).unwrap();
            assert_damaged(Store::open(without), LOG, ends[from], &found);
            let mut twice = disk.clone();
            twice.corrupt(LOG, |bytes| bytes.extend_from_within(ends[from]..ends[to]));
            let found = bytes(&mut twice, LOG).unwrap();
            assert_damaged(Store::open(twice), LOG, ends[ends.len() - 1], &found);
        }
    }
    let mut short = disk.clone();
    short.corrupt(LOG, |bytes| drop(bytes.drain(ends[2] + 30..ends[3] + 5)));
    let found = bytes(&mut short, LOG).unwrap();
    assert_damaged(Store::open(short), LOG, ends[2], &found);
    // Bytes that no version of Weir writes cannot be those of an interrupted write.
    let mut foreign = disk;
    foreign.corrupt(LOG, |bytes| bytes.extend([9; 11]));
    let found = bytes(&mut foreign, LOG).unwrap();
    assert_damaged(Store::open(foreign), LOG, ends[ends.len() - 1], &found);
}

#[test]
fn unknown_record_is_damage() {
    let (mut disk, _, ends) = sample_log();
    let end = ends[ends.len() - 1];
    disk.corrupt(LOG, |bytes| {
        record::put(bytes, Store::open(sample_log().0).objects().revision(), "later").unwrap();
    });
    let found = bytes(&mut disk, LOG).unwrap();
    let store = Store::open(disk);
    assert!(store.damage().unwrap().fault.contains("another version"), "{:?}", store.damage());
    assert_damaged(store, LOG, end, &found);
}

/// Returns a disk whose snapshot has three objects and whose log has one more, and all objects.
fn snapshot_and_log() -> (Memory, Objects) {
    let mut store = Store::open(Memory::new(1));
    for name in 0..4 {
        store.commit(&[vec![Change::put(object("api", name, 1))]], UNIX_EPOCH);
        if name == 2 {
            store.write_snapshot().unwrap();
        }
    }
    (store.disk, store.objects)
}

#[test]
fn a_damaged_or_missing_snapshot_is_damage() {
    let (disk, objects) = snapshot_and_log();
    assert!(same(Store::open(disk.clone()).objects(), &objects));
    let len = bytes(&mut disk.clone(), SNAPSHOT).unwrap().len();
    for bit in 0..len * 8 {
        let mut disk = disk.clone();
        disk.corrupt(SNAPSHOT, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let found = bytes(&mut disk, SNAPSHOT).unwrap();
        let store = Store::open(disk);
        let at = store.damage().unwrap_or_else(|| panic!("bit {bit} is not detected")).offset;
        assert!(at as usize <= bit / 8, "bit {bit}");
        assert_damaged(store, SNAPSHOT, at as usize, &found);
    }
    for short in 0..len {
        let mut disk = disk.clone();
        disk.corrupt(SNAPSHOT, |bytes| bytes.truncate(short));
        let found = bytes(&mut disk, SNAPSHOT).unwrap();
        let store = Store::open(disk);
        let damage = store.damage();
        let at = damage.unwrap_or_else(|| panic!("a snapshot of {short} bytes is used")).offset;
        assert_damaged(store, SNAPSHOT, at as usize, &found);
    }
    // Without the snapshot, the log's first record follows a revision that is missing.
    let mut disk = disk;
    disk.names.remove(SNAPSHOT);
    let found = bytes(&mut disk, LOG).unwrap();
    assert_damaged(Store::open(disk), LOG, 0, &found);
}

#[test]
fn log_older_than_the_snapshot_is_emptied() {
    let (mut disk, states, ends) = sample_log();
    let (log, end) = (bytes(&mut disk, LOG).unwrap(), ends[ends.len() - 1]);
    let mut store = Store::open(disk);
    store.write_snapshot().unwrap();
    for len in [end, ends[2], ends[3] - 1] {
        let mut disk = store.disk.clone();
        disk.corrupt(LOG, |bytes| bytes.extend(&log[..len]));
        let mut store = Store::open(disk);
        assert!(same(store.objects(), &states[states.len() - 1]), "{len} bytes");
        store.commit(&[vec![Change::put(object("api", 9, 1))]], UNIX_EPOCH);
        let again = Store::open(store.disk.clone());
        assert_eq!(again.damage(), None, "{len} bytes");
        assert!(same(again.objects(), store.objects()));
    }
}

#[test]
fn interrupted_write_without_a_copy_is_cut_with_the_next_change() {
    let (mut disk, states, ends) = sample_log();
    disk.corrupt(LOG, |bytes| bytes.truncate(bytes.len() - 3));
    let found = bytes(&mut disk, LOG).unwrap();
    let mut store = Store::open(Memory { faults: 100, ..disk });
    assert!(store.damage().is_none() && store.cut().is_none());
    assert!(same(store.objects(), &states[states.len() - 2]));
    let change = [vec![Change::put(object("api", 9, 1))]];
    assert_eq!(store.commit(&change, UNIX_EPOCH)[0].as_ref().unwrap_err().class, ErrorClass::Disk);
    assert_eq!(bytes(&mut store.disk, LOG).unwrap(), found);
    store.disk.faults = 0;
    assert!(store.commit(&change, UNIX_EPOCH)[0].is_ok());
    assert_eq!(store.cut().unwrap().offset, ends[ends.len() - 2] as u64);
    assert_eq!(bytes(&mut store.disk, "log.cut").unwrap(), found);
    assert!(same(Store::open(store.disk.clone()).objects(), store.objects()));
}

/// Converts a file to the first format of records.
fn first_format(file: &[u8]) -> Vec<u8> {
    let mut old = Vec::new();
    for record in record::read_all(file).unwrap().all {
        let len = (record.content.len() as u32).to_le_bytes();
        old.extend(len);
        old.extend(crc32fast::hash(&[&len, record.content].concat()).to_le_bytes());
        old.extend(record.content);
    }
    old
}

#[test]
fn first_format_files_are_rewritten_with_the_next_change() {
    let (mut disk, objects) = snapshot_and_log();
    for file in [SNAPSHOT, LOG] {
        disk.corrupt(file, |bytes| *bytes = first_format(bytes));
    }
    let mut store = Store::open(disk.clone());
    assert!(same(store.objects(), &objects));
    assert!(store.commit(&[vec![Change::put(object("api", 9, 1))]], UNIX_EPOCH)[0].is_ok());
    for file in [SNAPSHOT, LOG] {
        assert!(!record::read_all(&bytes(&mut store.disk, file).unwrap()).unwrap().old);
    }
    assert!(same(Store::open(store.disk.clone()).objects(), store.objects()));
    // In the first format, an incomplete record is damage.
    disk.corrupt(LOG, |bytes| bytes.extend([1, 0]));
    let found = bytes(&mut disk, LOG).unwrap();
    let offset = found.len() - 2;
    assert_damaged(Store::open(disk), LOG, offset, &found);
}

#[test]
fn harness_properties_hold_for_corrupted_logs() {
    let (mut disk, ..) = sample_log();
    let log = bytes(&mut disk, LOG).unwrap();
    let mut rng = Rng::with_seed(3);
    harness::harness(&[]);
    harness::harness(&first_format(&log));
    for _ in 0..3_000 {
        let mut bytes = log.clone();
        bytes.truncate(rng.usize(..bytes.len() + 1));
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..bytes.len().max(1));
            match rng.usize(..4) {
                0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 4),
                1 => bytes.iter_mut().skip(at).take(512).for_each(|byte| *byte = 0),
                2 => drop(bytes.drain(at..bytes.len().min(at + 9))),
                _ => bytes.extend_from_within(at..),
            }
        }
        harness::harness(&bytes);
    }
}

#[test]
fn five_copies_of_a_file_are_kept_and_none_is_written_twice() {
    let path = std::env::temp_dir().join(format!("weir-copies-{}", std::process::id()));
    let mut folder = Folder::open(&path).unwrap();
    let copies = |prefix: &str| {
        let names = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort();
        names
    };
    folder.append(LOG, b"something").unwrap();
    let file = std::fs::File::open(path.join(LOG)).unwrap();
    file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000)).unwrap();
    let name = folder.copy(LOG, "cut").unwrap();
    assert_eq!(name, "log.cut-20270115T080000Z");
    assert_eq!(folder.copy(LOG, "cut").unwrap(), name);
    assert_eq!(folder.copy(LOG, "damaged").unwrap(), "log.damaged-20270115T080000Z");
    for second in 0..7 {
        folder.append(LOG, b"more").unwrap();
        let at: SystemTime = UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000 + second);
        file.set_modified(at).unwrap();
        folder.copy(LOG, "cut").unwrap();
    }
    let kept = copies("log.cut-");
    assert_eq!(kept.len(), 5);
    assert_eq!(kept[4], "log.cut-20270115T080006Z");
    assert_eq!(std::fs::read(path.join(&kept[4])).unwrap(), std::fs::read(path.join(LOG)).unwrap());
    assert_eq!(copies("log.damaged-").len(), 1);
    // A file restored from a backup is older than all copies, and its own copy stays.
    file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000)).unwrap();
    let name = folder.copy(LOG, "cut").unwrap();
    assert!(copies("log.cut-").contains(&name) && copies("log.cut-").len() == 5);
    std::fs::remove_dir_all(&path).unwrap();
}
