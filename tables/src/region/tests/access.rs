//! Permitted owners and modes of a region's file, and the end of a process whose file is truncated.
//! Requires root, because files are given to other users.

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;

/// Debian's user and group without privileges.
const NOBODY: u32 = 65_534;

/// A folder in /dev/shm that belongs to root.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = PathBuf::from(format!("/dev/shm/weir-access-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        make_folder(&path, Owners::default()).unwrap();
        Folder(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("region")
    }

    fn made(&self) -> PathBuf {
        drop(Region::create_or_open(&self.file(), &Sizes::SMALL, SEED).unwrap());
        self.file()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Asserts that both ways of opening fail with `Unsafe`, and that the message contains these parts.
fn assert_rejected(path: &Path, group: Option<u32>, parts: &[&str]) {
    let owners = Owners { user: None, group };
    let location = || RegionLocation::File { path: path.to_path_buf(), owners };
    for error in [
        Region::create_or_open(location(), &Sizes::SMALL, SEED).unwrap_err(),
        Region::open(location()).unwrap_err(),
    ] {
        assert!(matches!(error, RegionError::Unsafe { .. }), "{error}");
        let text = error.to_string();
        assert!(parts.iter().all(|word| text.contains(word)), "{parts:?}: {text}");
    }
    assert_eq!(location().holder(), None);
}

#[test]
fn symbolic_link_is_rejected_and_target_unchanged() {
    let folder = Folder::new("link");
    let victim = folder.0.join("victim");
    std::fs::write(&victim, "").unwrap();
    mode(&victim, 0o600);
    symlink(&victim, folder.file()).unwrap();
    lchown(folder.file(), Some(NOBODY), Some(NOBODY)).unwrap();
    assert_rejected(&folder.file(), None, &["symbolic link", "nobody (uid 65534)", "rm "]);
    assert_eq!(std::fs::metadata(&victim).unwrap().len(), 0, "the target is unchanged");
    // A dangling link must not be followed to create a file either.
    std::fs::remove_file(&victim).unwrap();
    assert_rejected(&folder.file(), None, &["symbolic link"]);
    assert!(!victim.exists());
}

#[test]
fn file_of_another_user_is_rejected_with_its_owner() {
    let path = scratch("made-first");
    let file = Removed(path);
    File::create(&file.0).unwrap();
    mode(&file.0, 0o600);
    chown(&file.0, Some(NOBODY), Some(NOBODY)).unwrap();
    assert_rejected(&file.0, None, &["/dev/shm/", "belongs to nobody (uid 65534)", "rm "]);
    assert_eq!(std::fs::metadata(&file.0).unwrap().len(), 0);
}

#[test]
fn region_accessible_to_others_is_rejected() {
    let folder = Folder::new("mode");
    let file = folder.made();
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    for wrong in [0o602, 0o604, 0o666, 0o700, 0o4600] {
        mode(&file, wrong);
        assert_rejected(&file, None, &["mode", &format!("{wrong:04o}"), "0660", "chmod 0600"]);
    }
    mode(&file, 0o660);
    Region::open(&file).expect("root's group is root");
    chown(&file, None, Some(NOBODY)).unwrap();
    mode(&file, 0o640);
    assert_rejected(&file, None, &["nogroup (gid 65534)", "region.group"]);
    mode(&file, 0o600);
    Region::open(&file).expect("its group has no access");
}

#[test]
fn configured_group_gets_access() {
    let folder = Folder::new("group");
    let (inner, group) = (folder.0.join("inner"), Some(NOBODY));
    let owners = Owners { user: None, group };
    make_folder(&inner, owners).unwrap();
    let file = inner.join("region");
    let location = || RegionLocation::File { path: file.clone(), owners };
    Region::create_or_open(location(), &Sizes::SMALL, SEED).unwrap();
    let (of_file, of_folder) = (std::fs::metadata(&file).unwrap(), inner.metadata().unwrap());
    assert_eq!((of_file.mode() & 0o7777, of_file.gid()), (0o660, NOBODY));
    assert_eq!((of_folder.mode() & 0o7777, of_folder.gid()), (0o770, NOBODY));
    Region::open(location()).unwrap();
    assert_rejected(&file, Some(NOBODY - 1), &["nogroup (gid 65534)"]);
    // A region created before the group was configured is given to it.
    chown(&file, None, Some(0)).unwrap();
    mode(&file, 0o600);
    Region::create_or_open(location(), &Sizes::SMALL, SEED).unwrap();
    let about = std::fs::metadata(&file).unwrap();
    assert_eq!((about.mode() & 0o7777, about.gid()), (0o660, NOBODY));
}

#[test]
fn file_and_folder_of_the_services_user_are_trusted() {
    let folder = Folder::new("user");
    let file = folder.made();
    chown(&file, Some(NOBODY), None).unwrap();
    assert_rejected(&file, None, &["belongs to nobody (uid 65534)", "region.user"]);
    chown(&folder.0, Some(NOBODY), None).unwrap();
    let of = |user| {
        let owners = Owners { user: Some(user), group: None };
        Region::open(RegionLocation::File { path: file.clone(), owners })
    };
    of(NOBODY).unwrap();
    assert!(of(NOBODY - 1).unwrap_err().to_string().contains("belongs to nobody (uid 65534)"));
}

#[test]
fn prepared_region_can_be_created_by_a_process_of_the_services_user() {
    let folder = Folder::new("prepared");
    let owners = Owners { user: Some(NOBODY), group: Some(NOBODY) };
    let path = folder.0.join("inner/region");
    let location = RegionLocation::File { path: path.clone(), owners };
    location.prepare().unwrap();
    let about = std::fs::metadata(&path).unwrap();
    assert_eq!((about.uid(), about.gid(), about.mode() & 0o7777), (0, NOBODY, 0o660));
    assert_eq!(about.len(), 0, "only its creation is prepared");
    assert_eq!(path.parent().unwrap().metadata().unwrap().mode() & 0o7777, 0o770);
    let unfinished = Region::open(&location).unwrap_err();
    assert!(matches!(unfinished, RegionError::Unfinished { .. }), "{unfinished}");
    drop(Region::create_or_open(&location, &Sizes::SMALL, SEED).unwrap());
    location.prepare().unwrap();
    Region::open(&location).expect("an existing region is kept");
}

#[test]
fn folder_writable_by_others_is_rejected() {
    let folder = Folder::new("folder");
    let file = folder.made();
    mode(&folder.0, 0o777);
    assert_rejected(&file, None, &["is writable by all users", "chmod go-w"]);
    mode(&folder.0, 0o1777);
    Region::open(&file).expect("sticky: others cannot replace the file");
    chown(&folder.0, None, Some(NOBODY)).unwrap();
    mode(&folder.0, 0o770);
    assert_rejected(&file, None, &["is writable by the group nogroup"]);
    mode(&folder.0, 0o750);
    Region::open(&file).unwrap();
    chown(&folder.0, Some(NOBODY), None).unwrap();
    assert_rejected(&file, None, &["belongs to nobody (uid 65534)", "chown root:"]);
}

#[test]
fn link_of_another_user_in_path_is_rejected() {
    let folder = Folder::new("link");
    let file = folder.made();
    let link = folder.0.join("link");
    symlink(&folder.0, &link).unwrap();
    let by_link = link.join("region");
    Region::open(&by_link).expect("links of root are trusted");
    lchown(&link, Some(NOBODY), None).unwrap();
    assert_rejected(&by_link, None, &["parent folder", "/link belongs to nobody"]);
    Region::open(&file).unwrap();
}

#[test]
fn special_and_hard_linked_files_are_rejected() {
    let folder = Folder::new("kind");
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(folder.file()).status().unwrap();
    assert!(made.success());
    assert_rejected(&folder.file(), None, &["not a regular file"]);
    std::fs::remove_file(folder.file()).unwrap();
    let file = folder.made();
    std::fs::hard_link(&file, folder.0.join("other")).unwrap();
    assert_rejected(&file, None, &["2 names"]);
}

#[test]
fn overwritten_header_does_not_change_seed_in_use() {
    let folder = Folder::new("seed");
    let file = folder.made();
    let region = Region::open(&file).unwrap();
    let other = File::options().write(true).open(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&other, &[0xff; 256], 0).unwrap();
    assert_eq!(region.hash_seed(), SEED);
}

/// Run by the test below in a process of its own, which it ends.
#[test]
fn child_with_truncated_region() {
    let Some(path) = std::env::var_os("WEIR_TEST_CUT") else { return };
    let region = Region::open(Path::new(&path)).unwrap();
    region.explain_truncation();
    File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let sum: u32 = region.path_mtus().iter().map(|mtu| mtu.load(Ordering::Relaxed)).sum();
    unreachable!("read {sum} beyond the end of the file");
}

#[test]
fn process_with_truncated_region_exits_with_a_message() {
    let folder = Folder::new("cut");
    let file = folder.made();
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "region::tests::access::child_with_truncated_region"])
        .env("WEIR_TEST_CUT", &file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(74), "exit code, not a signal: {:?} {stderr}", out.status);
    let expected = format!("weir: {}: the region's file was truncated", file.display());
    assert!(stderr.contains(&expected), "{stderr}");
    assert!(stderr.contains("start fastpath and slowpath"), "{stderr}");
}
