//! Tests of reading secret files: links, devices, FIFOs, and files that are too long.

use std::os::unix::fs::symlink;

use super::*;

/// A temporary directory, removed at the end of the test.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let folder =
            std::env::temp_dir().join(format!("weir-secret-file-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("in")).unwrap();
        TempDir(folder)
    }

    fn inside(&self) -> PathBuf {
        self.0.join("in")
    }

    fn key(&self, path: &str) -> Result<Vec<u8>, Cause> {
        let read = read_below(&self.inside(), Path::new(path), SecretKind::Md5Key);
        read.map_err(|error| error.cause)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn follows_links_inside_the_directory_only() {
    let folder = TempDir::new("links");
    let inside = folder.inside();
    std::fs::write(folder.0.join("other"), "other").unwrap();
    std::fs::write(inside.join("plain"), "key\n").unwrap();
    // The layout of a Kubernetes secret mount: password -> ..data/password, ..data -> ..2026.
    std::fs::create_dir_all(inside.join("peers/..2026")).unwrap();
    std::fs::write(inside.join("peers/..2026/password"), "mounted").unwrap();
    symlink("..2026", inside.join("peers/..data")).unwrap();
    symlink("..data/password", inside.join("peers/password")).unwrap();
    assert_eq!(folder.key("plain"), Ok(b"key\n".to_vec()));
    assert_eq!(folder.key("peers/password"), Ok(b"mounted".to_vec()));
    let absolute = inside.join("peers/password").display().to_string();
    assert_eq!(folder.key(&absolute), Ok(b"mounted".to_vec()));
    symlink("../other", inside.join("up")).unwrap();
    symlink(folder.0.join("other"), inside.join("absolute")).unwrap();
    let other = folder.0.join("other").display().to_string();
    let dotted = inside.join("../other").display().to_string();
    for path in ["../other", "up", "absolute", &other, &dotted, "/dev/zero", "/proc/kmsg"] {
        assert_eq!(folder.key(path), Err(Cause::Outside(inside.clone())), "{path}");
    }
}

#[test]
fn rejects_irregular_and_too_long_files_without_blocking() {
    let folder = TempDir::new("kinds");
    let inside = folder.inside();
    // Opening a FIFO without a writer would block.
    let made = rustix::fs::mknodat(
        CWD,
        inside.join("fifo"),
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    );
    made.unwrap();
    std::fs::create_dir(inside.join("folder")).unwrap();
    for path in ["fifo", "folder"] {
        assert_eq!(folder.key(path), Err(Cause::NotRegular), "{path}");
    }
    assert!(matches!(folder.key("gone"), Err(Cause::System(_))));
    std::fs::write(inside.join("longest"), format!("{}\r\n", "x".repeat(80))).unwrap();
    assert_eq!(folder.key("longest").map(|key| key.len()), Ok(82));
    for long in ["x".repeat(81), "x".repeat(1_000_000), " ".repeat(200)] {
        std::fs::write(inside.join("long"), long).unwrap();
        assert_eq!(folder.key("long"), Err(Cause::TooLong(80)));
    }
    // Files named in the configuration may be anywhere, but must not be devices either.
    let longest = inside.join("longest");
    assert_eq!(read(&longest, SecretKind::Token).map(|text| text.len()), Ok(82));
    for device in ["/dev/zero", "/dev"] {
        let error = read(Path::new(device), SecretKind::Pem).unwrap_err();
        assert_eq!(error.cause, Cause::NotRegular, "{device}");
    }
    let message = read(Path::new("/dev/zero"), SecretKind::Pem).unwrap_err().to_string();
    assert_eq!(message, "/dev/zero: is not a regular file; write the secret into one");
}
