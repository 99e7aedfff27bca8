//! Tests of regions in files: creation, verification, rejection with a reason, and claims of roles.

use super::*;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

// Miri supports neither kernel maps nor file owners.
#[cfg(not(miri))]
mod access;
#[cfg(not(miri))]
mod convert;
#[cfg(not(miri))]
mod maps;

const SEED: u64 = 7;

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(format!("/dev/shm/weir-tables-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Creates an empty file, as the creation of a region does first.
fn private(path: &Path) -> File {
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true).create_new(true).open(path).unwrap()
}

/// A file that is removed on drop.
struct Removed(PathBuf);
impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn made(name: &str) -> (Region, Removed) {
    let path = scratch(name);
    let region = Region::create_or_open(&path, &Sizes::SMALL, SEED).unwrap();
    (region, Removed(path))
}

/// The figures of a process that was killed are not those of its successor.
#[test]
fn usage_is_that_of_the_running_data_plane() {
    let (first, file) = made("usage");
    let second = Region::open(&file.0).unwrap();
    let usage = ProcessUsage { cpu_ms: 7, resident_bytes: 9 };
    let claim = first.claim(Role::Fastpath).unwrap();
    assert_eq!(second.data_plane_usage(), None);
    first.set_data_plane_usage(usage);
    assert_eq!(second.data_plane_usage(), Some(usage));
    drop(claim);
    assert_eq!(second.data_plane_usage(), None);
    let _claim = first.claim(Role::Fastpath).unwrap();
    assert_eq!(second.data_plane_usage(), None);
}

#[test]
fn second_opener_finds_existing_region() {
    let (first, file) = made("second");
    let second = Region::create_or_open(&file.0, &Sizes::SMALL, SEED).unwrap();
    let third = Region::open(&file.0).unwrap();
    assert_eq!((first.hash_seed(), second.hash_seed()), (SEED, SEED));
    assert_eq!(third.sizes(), &Sizes::SMALL);
    first.set_label(Label::Appliance, "weir-1");
    assert_eq!(third.label(Label::Appliance), "weir-1");
    assert!(!third.draining());
    first.set_draining(true);
    assert!(third.draining() && Region::open(&file.0).unwrap().draining());
    first.path_mtu(3).unwrap().store(1400, Ordering::Relaxed);
    assert_eq!(second.path_mtu(3).unwrap().load(Ordering::Relaxed), 1400);
}

#[test]
fn role_is_exclusive_and_released_on_drop() {
    let (first, file) = made("role");
    let second = Region::open(&file.0).unwrap();
    assert_eq!(RegionLocation::from(&file.0).holder(), None);
    let claim = first.claim(Role::Fastpath).unwrap();
    assert_eq!(claim.epoch(), 1);
    assert_eq!(RegionLocation::from(&file.0).holder(), Some(Role::Fastpath));
    for region in [&first, &second] {
        let error = region.claim(Role::Fastpath).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(region.is_claimed(Role::Fastpath));
    }
    second.claim(Role::Slowpath).unwrap();
    drop(claim);
    assert!(!second.is_claimed(Role::Fastpath));
    assert_eq!(second.claim(Role::Fastpath).unwrap().epoch(), 2);
}

#[test]
fn foreign_file_is_rejected_and_unchanged() {
    let file = Removed(scratch("foreign"));
    private(&file.0).write_all(b"hello, this is somebody's file").unwrap();
    let error = Region::create_or_open(&file.0, &Sizes::SMALL, SEED).unwrap_err();
    assert!(matches!(error, RegionError::NotARegion { .. }), "{error}");
    assert_eq!(std::fs::read(&file.0).unwrap(), b"hello, this is somebody's file");
}

#[test]
fn version_checksum_and_size_errors_are_distinct() {
    let patch = |at: u64, bytes: &[u8], name: &str| {
        let (region, file) = made(name);
        drop(region);
        let open = OpenOptions::new().write(true).open(&file.0).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&open, bytes, at).unwrap();
        let error = Region::open(&file.0).unwrap_err();
        assert!(error.to_string().contains("rm /dev/shm"), "{error}");
        error
    };
    let version = patch(8, &99u32.to_le_bytes(), "version");
    assert!(matches!(version, RegionError::Version { found: 99, .. }));
    let sum = patch(40, &[1], "sum");
    assert!(matches!(sum, RegionError::Checksum { part: "header", .. }), "{sum}");

    let (region, file) = made("cut");
    drop(region);
    OpenOptions::new().write(true).open(&file.0).unwrap().set_len(8192).unwrap();
    assert!(matches!(Region::open(&file.0).unwrap_err(), RegionError::Size { found: 8192, .. }));
}

#[test]
fn size_mismatch_names_the_setting() {
    let (_region, file) = made("sizes");
    let requested = Sizes { backends: 64, ..Sizes::SMALL };
    let error = Region::create_or_open(&file.0, &requested, SEED).unwrap_err().to_string();
    assert!(error.contains("set region.max_backends = 32"), "{error}");
    let odd = Sizes { ring_slots: 3, ..Sizes::SMALL };
    let error = Region::anonymous(&odd).unwrap_err().to_string();
    assert!(error.contains("region.ring_slots is 3") && error.contains("power of two"));
}

#[test]
fn seed_mismatch_is_rejected_and_region_unchanged() {
    let (region, file) = made("seed");
    let error = Region::create_or_open(&file.0, &Sizes::SMALL, SEED + 1).unwrap_err().to_string();
    assert!(error.contains("tables.seed") && error.contains("`rm /dev/shm"), "{error}");
    assert_eq!(region.hash_seed(), SEED);
    assert_eq!(Region::open(&file.0).unwrap().hash_seed(), SEED);
}

#[test]
fn killed_creation_is_restarted() {
    let file = Removed(scratch("killed"));
    let mut half = private(&file.0);
    let error = Region::open(&file.0).unwrap_err();
    assert!(error.to_string().contains("does not exist yet"), "{error}");
    half.write_all(&[0; 4096]).unwrap();
    assert!(matches!(Region::open(&file.0).unwrap_err(), RegionError::Unfinished { .. }));
    let region = Region::create_or_open(&file.0, &Sizes::SMALL, SEED).unwrap();
    assert_eq!(region.generation(), 0);
    Region::open(&file.0).unwrap();
}

/// Run by the test below in a process of its own, which is killed.
#[test]
fn child_claims_role_and_waits() {
    let Some(path) = std::env::var_os("WEIR_TEST_CLAIM") else { return };
    let region = Region::open(Path::new(&path)).unwrap();
    let claim = region.claim(Role::Fastpath).unwrap();
    region.lcores()[0].join(&region, claim.epoch(), 0);
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn role_is_released_when_its_process_dies() {
    let (region, file) = made("death");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "region::tests::child_claims_role_and_waits"])
        .env("WEIR_TEST_CLAIM", &file.0)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..2000 {
        if region.live_lcores().count() == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(region.live_lcores().count(), 1);
    match region.claim(Role::Fastpath).map(drop).unwrap_err() {
        RegionError::Taken { pid, role: Role::Fastpath, .. } => assert_eq!(pid, child.id()),
        other => panic!("{other}"),
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(region.live_lcores().count(), 0, "its lcores are dead as well");
    assert_eq!(region.claim(Role::Fastpath).unwrap().epoch(), 2);
}
