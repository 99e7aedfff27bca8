//! Recorded writes with their bodies, stored in a folder for validation by `make oracle`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use crate::azure::emulator::Call;

/// Environment variable that names the folder. Without it nothing is stored.
const FOLDER: &str = "BODIES";

/// Stores a successful `PUT` as JSON ([`Call`]); equal bodies of one operation share a file.
///
/// # Panics
/// Panics if the folder is not writable, because `make oracle` would check too few writes.
pub fn store(call: &Call) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    if call.method != "PUT" || !(200..300).contains(&call.status) {
        return;
    }
    let text = serde_json::to_string_pretty(call).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    call.body.to_string().hash(&mut hasher);
    let operation = call.operation.replace([' ', '/'], "-");
    let path = folder.join(format!("{operation}-{:016x}.json", hasher.finish()));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, text));
    assert!(written.is_ok(), "{}: {written:?}", path.display());
}
