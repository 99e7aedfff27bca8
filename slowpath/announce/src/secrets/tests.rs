//! Tests of reading keys and of detecting their changes.

use std::os::unix::fs::symlink;

use parking_lot::Mutex;

use super::*;
use crate::announcer::keys::watch;
use crate::announcer::{Announcer, Settings};
use crate::apply::PolicyApplier;
use crate::controller::Signal;
use crate::fixture::{Recorder, policy, router, state, tables};

/// Creates a folder for secrets, with an empty secret `peers`.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("weir-secrets-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("peers")).unwrap();
    folder
}

#[test]
fn keys_are_read_only_from_valid_files_below_the_secrets_directory() {
    let folder = folder("read");
    std::fs::create_dir_all(folder.join("none")).unwrap();
    std::fs::write(folder.join("peers/password"), "hidden\n").unwrap();
    std::fs::write(folder.join("empty"), "\n").unwrap();
    std::fs::write(folder.join("long"), "x".repeat(81)).unwrap();
    std::fs::write(folder.join("octets"), [0xff, 0xfe]).unwrap();
    let files = Files { secrets: Some(folder.clone()) };
    let secret = |name: &str| files.password(&Password::Secret(name.into()));
    let file = |name: &str| files.password(&Password::File(name.into()));
    assert_eq!(secret("peers"), Ok("hidden".to_owned()));
    assert!(secret("later").unwrap_err().contains("later/password"));
    assert!(secret("none").unwrap_err().contains("none/password"));
    assert_eq!(file("peers/password"), Ok("hidden".to_owned()));
    assert_eq!(file(folder.join("peers/password").to_str().unwrap()), Ok("hidden".to_owned()));
    let invalid = [
        ("gone", "No such file"),
        ("empty", "is empty"),
        ("long", "longer than the maximum of 80 bytes"),
        ("octets", "not UTF-8"),
        ("/dev/zero", "is not in"),
        ("/proc/kmsg", "is not in"),
        ("../../etc/hostname", "is not in"),
    ];
    for (name, cause) in invalid {
        let wrong = file(name).unwrap_err();
        assert!(wrong.contains(cause), "{name}: {wrong}");
    }
    let without = Files::default().password(&Password::Secret("peers".into()));
    assert!(without.unwrap_err().contains("set bgp.secrets"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The keys change as in a mounted secret of Kubernetes, which points the symbolic link `..data` at
/// a new folder.
#[test]
fn rotated_key_signals_and_the_next_round_uses_it() {
    let folder = folder("watch");
    let secret = folder.join("peers");
    let files = Arc::new(Files { secrets: Some(folder.clone()) });
    let announcer = Announcer::new(Recorder::default(), files, Settings::default());
    let announcer = Arc::new(Mutex::new(announcer));
    let mut router = router(65001, "192.0.2.254");
    router["neighbors"][0]["password"] = serde_json::json!({"secret": "peers"});
    let policy = policy("edge", serde_json::json!([router]));
    let round = || {
        let mut announcer = announcer.lock();
        let result = announcer.configure_peers(Some(&policy), &state(tables(&[])));
        let peer = announcer.speaker().peers.values().next();
        (result.is_ok(), peer.and_then(|peer| peer.0.settings.transport.md5.clone()))
    };
    let rotate = |version: &str, key: &str| {
        std::fs::create_dir_all(secret.join(version)).unwrap();
        std::fs::write(secret.join(version).join("password"), key).unwrap();
        symlink(version, secret.join("new")).unwrap();
        std::fs::rename(secret.join("new"), secret.join("..data")).unwrap();
    };
    symlink("..data/password", secret.join("password")).unwrap();
    // Without the key there is no session, rather than an unauthenticated one.
    assert_eq!(round(), (false, None));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let signal = Signal::default();
        let watching = tokio::spawn(watch(Arc::clone(&announcer), signal.clone()));
        rotate("..1", "first");
        signal.wait().await;
        assert_eq!(round(), (true, Some("first".to_owned())));
        rotate("..2", "second");
        signal.wait().await;
        assert_eq!(round(), (true, Some("second".to_owned())));
        watching.abort();
    });
    let changed = announcer.lock().secret_watch().changed_keys();
    assert!(changed.is_none(), "unchanged keys are reported as changed");
    std::fs::remove_dir_all(&folder).unwrap();
}
