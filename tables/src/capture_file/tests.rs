//! Tests of the capture file: both sides, full rings, ends of captures, foreign content.

use super::*;
use crate::capture::{BEFORE, EXIT_PORT, NO_REASON, REQUEST};
use crate::record::NONE;

/// A location of its own for each test. Only its lock files exist.
fn location(name: &str) -> RegionLocation {
    RegionLocation::from(Path::new(&format!("/weir-test-{}-{name}", std::process::id())))
}

fn head(packet: u32) -> RecordHead {
    RecordHead {
        len: 0,
        frame_len: 1500,
        time_ns: 7,
        service: 3,
        backend: NONE,
        packet,
        lcore: 1,
        capture: 0,
        verdict: 0,
        reason: NO_REASON,
        arm: 1,
        exit_arm: 0,
        exit: EXIT_PORT,
        stage: BEFORE,
        direction: REQUEST,
    }
}

/// Returns the files that a data plane maps.
fn attach(location: &RegionLocation) -> CaptureWatch {
    let mut watch = CaptureWatch::at(location);
    assert!(watch.poll(monotonic_ms(), |error| panic!("{error}")));
    watch
}

#[test]
fn records_of_all_lengths_reach_the_reader_in_order() {
    let location = location("order");
    let filter = CaptureFilter { arm: 1, ..CaptureFilter::default() };
    let mut reader = CaptureReader::begin_at(&location, 1, &filter, 2).unwrap();
    let watch = attach(&location);
    let file = watch.files()[1].clone().unwrap();
    assert_eq!((file.filter(), file.number()), (&filter, 1));
    assert!(watch.files()[0].is_none() && CaptureWriter::new(&file, 2).is_none());
    file.set_writers(2);
    let mut writers: Vec<_> = (0..2).map(|ring| CaptureWriter::new(&file, ring).unwrap()).collect();
    writers[0].begin();
    assert!(!reader.is_attached(), "one of two writers");
    writers[1].begin();
    assert!(reader.is_attached());
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(400).collect();
    for len in 0..400 {
        assert!(writers[len % 2].write(&head(len as u32), &bytes[..len]));
    }
    let mut seen = Vec::new();
    let count = reader.read(1000, |head, content| {
        let len = head.packet as usize;
        assert_eq!(content, &bytes[..len.min(usize::from(MAX_SNAP))]);
        assert_eq!((head.len as usize, head.frame_len), (content.len(), 1500));
        seen.push(head.packet);
    });
    assert_eq!((count, seen.len()), (400, 400));
    assert!(seen[..200].is_sorted() && seen[200..].is_sorted());
    assert_eq!((reader.lost(), reader.invalid()), ([0; 2], 0));
}

#[test]
fn a_full_ring_loses_whole_records_and_counts_them_by_arm() {
    let location = location("full");
    let filter = CaptureFilter::default();
    let mut reader = CaptureReader::begin_at(&location, 0, &filter, 1).unwrap();
    let watch = attach(&location);
    let file = watch.files()[0].as_ref().unwrap();
    let mut writer = CaptureWriter::new(file, 0).unwrap();
    let fits = (MAX_SLOTS / 4) as u64;
    let bytes = [1; 192];
    let written = (0..fits + 5).filter(|n| writer.write(&head(*n as u32), &bytes)).count() as u64;
    writer.count_lost(0, 3);
    assert_eq!((written, reader.lost()), (fits, [3, 5]));
    assert_eq!(reader.read(usize::MAX, |_, content| assert_eq!(content, bytes)) as u64, fits);
    // A writer that restarts continues at the same position.
    let mut writer = CaptureWriter::new(file, 0).unwrap();
    assert!(writer.write(&head(1), &bytes));
    assert_eq!((reader.read(10, |_, _| {}), reader.invalid()), (1, 0));
}

#[test]
fn a_capture_ends_with_its_reader_or_its_lease() {
    let location = location("end");
    let filter = CaptureFilter::default();
    let reader = CaptureReader::begin_at(&location, 0, &filter, 1).unwrap();
    let mut watch = attach(&location);
    let file = watch.files()[0].clone().unwrap();
    let now = monotonic_ms();
    assert!(file.is_active(now) && !file.is_active(now + 2 * LEASE_MS));
    let mut poll = || {
        let is_changed = watch.poll(now, |error| panic!("{error}"));
        (is_changed, watch.files()[0].is_some())
    };
    // The reader's process was killed: its lease passes, and the file remains.
    reader.lease_until(now - 1);
    assert_eq!(poll(), (true, false), "the lease has passed");
    assert_eq!(poll(), (false, false), "a file without a lease is not mapped");
    reader.lease_until(u64::MAX);
    assert_eq!(poll(), (true, true));
    assert_eq!(poll(), (false, true));
    reader.end();
    assert!(!file.is_active(now));
    assert_eq!(poll(), (true, false), "the reader ended the capture");
    assert!(path(&location, 0).exists());
    drop(reader);
    assert!(!path(&location, 0).exists());
    // A killed reader's file is replaced.
    std::mem::forget(CaptureReader::begin_at(&location, 0, &filter, 1).unwrap());
    drop(CaptureReader::begin_at(&location, 0, &filter, 1).unwrap());
    std::mem::forget(CaptureReader::begin_at(&location, 1, &filter, 1).unwrap());
    remove_all(&location);
    assert!(!path(&location, 1).exists());
}

#[test]
fn files_of_another_format_are_reported_once() {
    let location = location("format");
    let reader = CaptureReader::begin_at(&location, 0, &CaptureFilter::default(), 1).unwrap();
    for (at, value) in [(AT_VERSION, VERSION + 1), (AT_RINGS, 0), (AT_SLOTS, 1 << 40)] {
        let before = reader.file.word(at).swap(value, Ordering::Relaxed);
        let mut watch = CaptureWatch::at(&location);
        let mut errors = Vec::new();
        for _ in 0..3 {
            assert!(!watch.poll(monotonic_ms(), |error| errors.push(error.to_string())));
        }
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("same version"), "{errors:?}");
        reader.file.word(at).store(before, Ordering::Relaxed);
    }
    reader.file.word(AT_MAGIC).store(0, Ordering::Relaxed);
    assert!(CaptureFile::open(&location, 0).unwrap().is_none());
}

#[test]
fn wild_rings_never_lead_outside_of_the_file() {
    let location = location("wild");
    let mut reader = CaptureReader::begin_at(&location, 0, &CaptureFilter::default(), 1).unwrap();
    let watch = attach(&location);
    let file = watch.files()[0].as_ref().unwrap();
    let mut writer = CaptureWriter::new(file, 0).unwrap();
    for tail in [1, 3, u64::MAX, 1 << 63] {
        file.ring(0).set_tail(tail);
        reader.read(100, |head, content| assert_eq!(usize::from(head.len), content.len()));
        file.ring(0).set_head(tail.wrapping_mul(3));
        writer.write(&head(1), &[0; 64]);
    }
    assert!(reader.invalid() > 0);
}

#[test]
fn all_rings_of_a_file_fit_in_its_limit() {
    for rings in 1..=MAX_LCORES as usize {
        let slots = slots_for(rings);
        assert!(slots.is_power_of_two() && (1024..=MAX_SLOTS).contains(&slots));
        assert!(file_bytes(rings, slots) <= MAX_BYTES + (MAX_LCORES as usize + 8) * 4096);
    }
}
