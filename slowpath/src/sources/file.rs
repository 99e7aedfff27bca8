//! The files, watched: a content whole, or a refusal; never half of it.
//!
//! Looked at several times a second by its name, so that a replacement by rename, a symlink that
//! is turned (as Kubernetes does with mounted files) and an edit in place are all seen. An edit in
//! place may be caught half-written: a file is read only after it stayed the same for a while.
//! No clock in here: time is an argument.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use config::checked::Config;
use state::object::Object;

use super::read;

/// How often the file's name is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long a changed file has to stay the same before it is read.
const SETTLE: Duration = Duration::from_millis(300);

/// What tells one content from another without reading it: of each file its name, device, inode,
/// size and change time.
type Stamp = Vec<(PathBuf, [u64; 3], [i64; 2])>;

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
        if self.read.as_ref() == Some(&stamp) {
            self.seen = None;
            return false;
        }
        let since = match &self.seen {
            Some((same, since)) if *same == stamp => *since,
            _ => now,
        };
        self.seen = Some((stamp.clone(), since));
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

/// None where nothing is there; of a folder, the files in it that are read.
fn stamp(path: &Path) -> Option<Stamp> {
    let files = read::files(path).ok()?;
    let stamps = files.into_iter().filter_map(|file| {
        let about = std::fs::metadata(&file).ok()?;
        let which = [about.dev(), about.ino(), about.size()];
        Some((file, which, [about.ctime(), about.ctime_nsec()]))
    });
    Some(stamps.collect())
}

/// The services: a file, or a folder of files, or nothing.
pub struct ServicesFile(Watch);

impl ServicesFile {
    /// Watches `path`, which need not exist yet. Without one, nothing is wanted by files.
    pub fn new(path: Option<&Path>) -> ServicesFile {
        ServicesFile(Watch::new(path.unwrap_or(Path::new(""))))
    }

    /// Where it is; empty where there is none.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What is wanted if that is new and at rest, or why it can't be taken; none when there is
    /// nothing new.
    pub fn poll(&mut self, config: &Config, now: Instant) -> Option<Result<Vec<Object>, String>> {
        self.0.is_due(now).then(|| self.read(config))
    }

    /// What is wanted as it is written now, or why that can't be taken.
    pub fn read(&mut self, config: &Config) -> Result<Vec<Object>, String> {
        self.0.read = Some(stamp(&self.0.path));
        read::read(&self.0.path, config)
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
