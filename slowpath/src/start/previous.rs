//! What the history has of the previous slowpath.

use events::history::history;

/// Records an end of the previous slowpath without a shutdown, and a change of the version.
pub fn report() {
    let Some(history) = history() else { return };
    let (mut last_seen, mut lifecycle, mut version) = (String::new(), String::new(), None);
    let Some(mut reader) = history.reader() else { return };
    // What cannot be read is reported by the thread that writes.
    let _ = reader.read(&mut |record| {
        if record.event == "slowpath_started" {
            version = record.fields.get("version").cloned();
        }
        if ["slowpath_started", "slowpath_stopped", "slowpath_failed"].contains(&&*record.event) {
            lifecycle = record.event;
        }
        last_seen = record.time;
        true
    });
    if lifecycle == "slowpath_started" {
        tracing::warn!(
            event = "slowpath_ended_uncleanly",
            last_seen,
            "previous slowpath ended without a shutdown"
        );
    }
    let to = env!("CARGO_PKG_VERSION");
    let from = version.as_ref().and_then(|version| version.as_str()).unwrap_or(to);
    if from != to {
        tracing::info!(
            event = "version_changed",
            program = "slowpath",
            from,
            to,
            "version changed"
        );
    }
}
