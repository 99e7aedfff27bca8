//! The services file, watched: its content whole, or a refusal; never half of it.
//!
//! Looked at several times a second by its name, so that a replacement by rename, a symlink that
//! is turned (as Kubernetes does with mounted files) and an edit in place are all seen. An edit in
//! place may be caught half-written: a file is read only after it stayed the same for a while.
//! No clock in here: time is an argument.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use config::checked::Config;
use config::services::Services;

/// How often the file's name is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long a changed file has to stay the same before it is read.
const SETTLE: Duration = Duration::from_millis(300);

/// What tells one content from another without reading it: device, inode, size, change time.
type Stamp = (u64, u64, u64, i64, i64);

/// The watch on one services file.
pub struct ServicesFile {
    path: PathBuf,
    next_look: Option<Instant>,
    seen: Option<(Option<Stamp>, Instant)>,
    read: Option<Option<Stamp>>,
}

impl ServicesFile {
    /// Watches `path`, which need not exist yet.
    pub fn new(path: &Path) -> ServicesFile {
        ServicesFile { path: path.to_owned(), next_look: None, seen: None, read: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's content if it is new and at rest, or why that can't be taken; none when there is
    /// nothing new. The very first content is taken without waiting.
    pub fn poll(&mut self, config: &Config, now: Instant) -> Option<Result<Services, String>> {
        if self.next_look.is_some_and(|at| now < at) {
            return None;
        }
        self.next_look = Some(now + LOOK);
        let stamp = stamp(&self.path);
        if self.read == Some(stamp) {
            self.seen = None;
            return None;
        }
        let since = match self.seen {
            Some((same, since)) if same == stamp => since,
            _ => now,
        };
        self.seen = Some((stamp, since));
        if self.read.is_some() && now < since + SETTLE {
            return None;
        }
        self.read = Some(stamp);
        let read = config::load_services(&self.path, config);
        Some(read.map_err(|refused| refused.to_string()))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.dev(), about.ino(), about.size(), about.ctime(), about.ctime_nsec()))
}
