//! Bodies of requests, left in a folder for another reader (`make oracle`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use crate::azure::standin::Call;

/// The variable that names the folder. Without it nothing is left anywhere.
const FOLDER: &str = "BODIES";

/// Leaves the body of a write that was taken; equal ones of one operation are one file.
///
/// # Panics
/// The folder takes no files: whoever named it waits for them.
pub fn keep(call: &Call) {
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
