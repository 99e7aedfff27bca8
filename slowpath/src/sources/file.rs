//! Watches the configuration file and the services file or folder: each read yields complete
//! content or an error.
//!
//! ```text
//!   control loop -- Command -> Reader, on a thread of its own --> stat, read, check
//!        ^                                                            |
//!        '-------------------------- Read, then wake the loop <-------'
//! ```
//! A disk that hangs blocks the reader and not the control loop. Files are polled by name ten times
//! a second, which detects replacement by rename, a changed symlink (with which Kubernetes updates
//! mounted files) and an edit in place. An edit in place may be incomplete when it is detected, so
//! a change is read only after the file has been unchanged for 300 ms. The first read and reads by
//! command do not wait.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use config::checked::{Config, Plane};
use parking_lot::Mutex;

use super::{List, read, regular};

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a changed file must stay unchanged before it is read.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// Identifies content without reading it: path of each file; device, inode and size; and the change
/// time in seconds and nanoseconds.
type Stamp = Vec<(PathBuf, [u64; 3], [i64; 2])>;

/// Callback that wakes the control loop.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Watch on one path, which need not exist yet.
struct Watch {
    path: PathBuf,
    /// When to compare stamps next; `None` for the next call.
    next_poll: Option<Instant>,
    /// Stamp of a change that was not read yet, and since when it has been the same.
    changed_stamp: Option<(Option<Stamp>, Instant)>,
    /// Stamp of the content that was read last, of which `None` is that of a missing path; the
    /// outer `None` makes the next poll read.
    read_stamp: Option<Option<Stamp>>,
}

impl Watch {
    fn new(path: &Path) -> Watch {
        Watch { path: path.to_owned(), next_poll: None, changed_stamp: None, read_stamp: None }
    }

    /// Returns whether to read the file: it has changed, and stayed unchanged for [`SETTLE_TIME`].
    /// The first read is not delayed.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.next_poll.is_some_and(|at| now < at) {
            return false;
        }
        self.next_poll = Some(now + POLL_INTERVAL);
        let stamp = stamp(&self.path);
        if self.read_stamp.as_ref() == Some(&stamp) {
            self.changed_stamp = None;
            return false;
        }
        let since = match &self.changed_stamp {
            Some((same, since)) if *same == stamp => *since,
            _ => now,
        };
        self.changed_stamp = Some((stamp.clone(), since));
        if self.read_stamp.is_some() && now < since + SETTLE_TIME {
            return false;
        }
        self.read_stamp = Some(stamp);
        true
    }

    /// Makes the next poll read the file, changed or not, without a delay.
    fn reread(&mut self) {
        (self.next_poll, self.changed_stamp, self.read_stamp) = (None, None, None);
    }
}

/// Returns the stamp of a file, or of the files that are read in a folder; `None` if the path does
/// not exist or cannot be accessed.
fn stamp(path: &Path) -> Option<Stamp> {
    let files = read::files(path).ok()?;
    let stamps = files.into_iter().filter_map(|file| {
        let metadata = std::fs::metadata(&file).ok()?;
        let identity = [metadata.dev(), metadata.ino(), metadata.size()];
        Some((file, identity, [metadata.ctime(), metadata.ctime_nsec()]))
    });
    Some(stamps.collect())
}

/// The configuration file, with the `--set` options that override it.
pub struct ConfigFile {
    watch: Watch,
    overrides: Vec<String>,
    plane: Plane,
}

impl ConfigFile {
    /// Watches `path`; `overrides` are the `--set` options of this process. `plane` is the plane
    /// that runs: a file with `plane = "auto"` is read as if it named that one.
    pub fn new(path: &Path, overrides: &[String], plane: Plane) -> ConfigFile {
        ConfigFile { watch: Watch::new(path), overrides: overrides.to_vec(), plane }
    }

    /// Reads the file and applies the overrides.
    fn read(&self) -> Result<Config, String> {
        let path = &self.watch.path;
        regular::check(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        config::load_as(Some(path), &self.overrides, self.plane).map_err(|error| error.to_string())
    }
}

/// Commands from the control loop to the reader.
enum Command {
    /// Read both files again, changed or not.
    Reread,
    /// Read the configuration file again.
    RereadConfig,
    /// Check services against this configuration from now on. `read_now` is whether to read them
    /// immediately instead of when they change.
    Check { config: Arc<Config>, read_now: bool },
}

/// Result of reading the configuration or the services.
pub enum Read {
    /// The configuration, or why it is rejected.
    Config(Box<Result<Config, String>>),
    /// The services.
    Services {
        /// The configuration that they were checked against.
        against: Arc<Config>,
        /// Whether the file has changed or was read again by command; false if only the
        /// configuration changed.
        fresh: bool,
        /// The objects, or why they are rejected.
        objects: Result<List, String>,
        /// When reading and checking began, and how long it took.
        measured: (Instant, Duration),
    },
}

/// The most recent content of each file that has not been taken. Older content is replaced, so that
/// nothing accumulates while the loop waits for a disk.
#[derive(Default)]
struct Newest {
    config: Option<Read>,
    services: Option<Read>,
    /// Number of rereads that are done: their content is in the other fields, or was taken.
    rereads: u64,
}

/// The control loop's side of the watch.
pub struct Files {
    services: PathBuf,
    config: PathBuf,
    commands: Sender<Command>,
    newest: Arc<Mutex<Newest>>,
    /// Number of requested rereads.
    rereads: Cell<u64>,
}

impl Files {
    /// Returns the path of the services; empty if there is none.
    pub fn services(&self) -> &Path {
        &self.services
    }

    /// Returns the path of the configuration; empty if it did not come from a file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Requests that both files are read again, changed or not. Returns the number of the request,
    /// for [`Files::rereads_done`].
    pub fn reread(&self) -> u64 {
        self.rereads.set(self.rereads.get() + 1);
        self.send(Command::Reread);
        self.rereads.get()
    }

    /// Returns the number of the last reread that is done. Its content can be taken, or was taken.
    pub fn rereads_done(&self) -> u64 {
        self.newest.lock().rereads
    }

    /// Requests that the configuration file is read again, changed or not.
    pub fn reread_config(&self) {
        self.send(Command::RereadConfig);
    }

    /// Requests that services are checked against `config` when they are read next.
    pub fn check_against(&self, config: Arc<Config>) {
        self.send(Command::Check { config, read_now: false });
    }

    /// Requests that services are read immediately, and checked against `config` from now on.
    pub fn read_against(&self, config: Arc<Config>) {
        self.send(Command::Check { config, read_now: true });
    }

    /// Takes the next content, the configuration first.
    pub fn take(&self) -> Option<Read> {
        let mut newest = self.newest.lock();
        newest.config.take().or_else(|| newest.services.take())
    }

    fn send(&self, command: Command) {
        // The reader outlives the control loop unless it fails; the files' last content then stays
        // in force.
        if self.commands.send(command).is_err() {
            tracing::error!(event = "file_reader_ended", "file reader thread ended");
        }
    }
}

/// Reads and checks the files.
pub struct Reader {
    services: Watch,
    config: Option<ConfigFile>,
    /// The configuration to check services against.
    against: Arc<Config>,
    /// Whether to read the services in the next iteration even if they have not changed.
    read_services_now: bool,
    /// Number of rereads that were requested so far.
    rereads: u64,
    commands: Receiver<Command>,
    newest: Arc<Mutex<Newest>>,
    wake: Wake,
}

/// Creates the watch on the configuration file, if there is one, and on the services of `config`.
/// Returns the control loop's side and the reader.
pub fn watch(config: &Arc<Config>, file: Option<ConfigFile>, wake: Wake) -> (Files, Reader) {
    let (command, commands) = channel();
    let newest = Arc::<Mutex<Newest>>::default();
    let services = config.services.clone().unwrap_or_default();
    let reader = Reader {
        services: Watch::new(&services),
        against: Arc::clone(config),
        read_services_now: false,
        rereads: 0,
        commands,
        newest: Arc::clone(&newest),
        wake,
        config: file,
    };
    let config = reader.config.as_ref().map(|file| file.watch.path.clone()).unwrap_or_default();
    (Files { services, config, commands: command, newest, rereads: Cell::new(0) }, reader)
}

impl Reader {
    /// Reads until the control loop is gone. Needs a thread of its own, because a disk may block
    /// it.
    pub fn run(mut self) {
        loop {
            match self.commands.recv_timeout(POLL_INTERVAL) {
                Ok(command) => self.execute(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.poll(Instant::now());
        }
    }

    /// Processes pending commands, and reads what is due.
    pub fn poll(&mut self, now: Instant) {
        while let Ok(command) = self.commands.try_recv() {
            self.execute(command);
        }
        if let Some(file) = &mut self.config
            && file.watch.is_due(now)
        {
            let read = Box::new(file.read());
            self.publish(Read::Config(read));
        }
        let due = self.services.is_due(now);
        if std::mem::take(&mut self.read_services_now) || due {
            let path = &self.services.path;
            let stamp = Some(stamp(path));
            // Records the stamp also for a read by command, so that the same change is not read
            // again when it has settled.
            let fresh = due || self.services.read_stamp != stamp;
            self.services.read_stamp = stamp;
            let against = Arc::clone(&self.against);
            let began = Instant::now();
            let objects = read::read(path, &against);
            let measured = (began, began.elapsed());
            self.publish(Read::Services { against, fresh, objects, measured });
        }
        if std::mem::replace(&mut self.newest.lock().rereads, self.rereads) != self.rereads {
            (self.wake)();
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Reread => {
                self.rereads += 1;
                self.services.reread();
                self.config.iter_mut().for_each(|file| file.watch.reread());
            }
            Command::RereadConfig => self.config.iter_mut().for_each(|file| file.watch.reread()),
            Command::Check { config, read_now } => {
                self.against = config;
                self.read_services_now |= read_now;
            }
        }
    }

    fn publish(&self, read: Read) {
        let mut newest = self.newest.lock();
        match read {
            Read::Config(_) => newest.config = Some(read),
            Read::Services { against, fresh, objects, measured } => {
                // If this replaces content that was not taken, its `fresh` stays set.
                let before = matches!(newest.services, Some(Read::Services { fresh: true, .. }));
                newest.services =
                    Some(Read::Services { against, fresh: fresh | before, objects, measured });
            }
        }
        drop(newest);
        (self.wake)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\n\
                          address = [\"10.0.1.10/24\"]\n[nat]\naddresses = [\"10.0.1.10\"]\n\
                          [fastpath]\nlcores = [1]\n";

    #[test]
    fn an_unsettled_change_that_is_read_by_command_is_fresh() {
        let path = std::env::temp_dir().join(format!("weir-fresh-{}.toml", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let mut config = config::from_toml(CONFIG).unwrap();
        config.services = Some(path.clone());
        let config = Arc::new(config);
        let (files, mut reader) = watch(&config, None, Arc::new(|| {}));
        let start = Instant::now();
        let mut read_at = |ms| {
            reader.poll(start + Duration::from_millis(ms));
            files.take().map(|read| matches!(read, Read::Services { fresh: true, .. }))
        };

        assert_eq!(read_at(0), Some(true), "the first read");
        std::fs::write(&path, "# changed\n").unwrap();
        assert_eq!(read_at(100), None, "the change is settling");
        files.read_against(Arc::clone(&config));
        assert_eq!(read_at(120), Some(true), "the change is read by command");
        files.read_against(Arc::clone(&config));
        assert_eq!(read_at(140), Some(false), "nothing changed");
        assert_eq!(read_at(1000), None);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_reread_is_done_only_once_its_content_can_be_taken() {
        let path = std::env::temp_dir().join(format!("weir-reread-{}.toml", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let mut config = config::from_toml(CONFIG).unwrap();
        config.services = Some(path.clone());
        let (files, mut reader) = watch(&Arc::new(config), None, Arc::new(|| {}));
        reader.poll(Instant::now());
        assert_eq!(files.reread(), 1);
        assert!(files.rereads_done() == 0 && files.take().is_some(), "content read before");
        reader.poll(Instant::now());
        assert!(files.rereads_done() == 1 && files.take().is_some(), "content of the reread");
        assert!(files.take().is_none());
        std::fs::remove_file(&path).unwrap();
    }
}
