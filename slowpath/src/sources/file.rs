//! The two files, watched: a content whole, or a refusal; never half of it.
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

/// The watch on one file, which need not exist yet.
struct Watch {
    path: PathBuf,
    next_look: Option<Instant>,
    seen: Option<(Option<Stamp>, Instant)>,
    read: Option<Option<Stamp>>,
}

impl Watch {
    fn new(path: &Path) -> Watch {
        Watch { path: path.to_owned(), next_look: None, seen: None, read: None }
    }

    /// Whether to read the file: it is new and at rest. The very first content is taken without
    /// waiting.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.next_look.is_some_and(|at| now < at) {
            return false;
        }
        self.next_look = Some(now + LOOK);
        let stamp = stamp(&self.path);
        if self.read == Some(stamp) {
            self.seen = None;
            return false;
        }
        let since = match self.seen {
            Some((same, since)) if same == stamp => since,
            _ => now,
        };
        self.seen = Some((stamp, since));
        if self.read.is_some() && now < since + SETTLE {
            return false;
        }
        self.read = Some(stamp);
        true
    }

    /// The next look reads it, changed or not, without waiting.
    fn again(&mut self) {
        (self.next_look, self.seen, self.read) = (None, None, None);
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.dev(), about.ino(), about.size(), about.ctime(), about.ctime_nsec()))
}

/// The services file.
pub struct ServicesFile(Watch);

impl ServicesFile {
    /// Watches `path`, which need not exist yet.
    pub fn new(path: &Path) -> ServicesFile {
        ServicesFile(Watch::new(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The file's content if it is new and at rest, or why that can't be taken; none when there is
    /// nothing new.
    pub fn poll(&mut self, config: &Config, now: Instant) -> Option<Result<Services, String>> {
        self.0.is_due(now).then(|| self.read(config))
    }

    /// The file's content as it is now, or why that can't be taken.
    pub fn read(&mut self, config: &Config) -> Result<Services, String> {
        self.0.read = Some(stamp(&self.0.path));
        config::load_services(&self.0.path, config).map_err(|refused| refused.to_string())
    }

    /// The next look reads it, changed or not.
    pub fn again(&mut self) {
        self.0.again();
    }
}

/// The configuration file, with the layers that lie over it.
pub struct ConfigFile {
    watch: Watch,
    sets: Vec<String>,
}

impl ConfigFile {
    /// Watches `path`; `sets` are the `--set`s that the process was started with.
    pub fn new(path: &Path, sets: &[String]) -> ConfigFile {
        ConfigFile { watch: Watch::new(path), sets: sets.to_vec() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.watch.path
    }

    /// What the layers make of the file if it is new and at rest, or why that is refused; none when
    /// there is nothing new.
    pub fn poll(&mut self, now: Instant) -> Option<Result<Config, String>> {
        let due = self.watch.is_due(now);
        let load = || config::load(Some(&self.watch.path), &self.sets);
        due.then(|| load().map_err(|refused| refused.to_string()))
    }

    /// The next look reads it, changed or not.
    pub fn again(&mut self) {
        self.watch.again();
    }
}
