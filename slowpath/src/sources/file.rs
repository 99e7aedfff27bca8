//! The files, watched: a content whole, or a refusal; never half of it.
//!
//! ```text
//!   control loop -- Order --> Reader, on a thread of its own --> stat, read, check
//!        ^                                                            |
//!        '-------------------------- Read, and the loop is woken <----'
//! ```
//! A disk that hangs holds up the reader, and not the control loop. Files are looked at several
//! times a second by name, so that a replacement by rename, a symlink that is turned (as Kubernetes
//! does with mounted files) and an edit in place are all seen. An edit in place may be caught
//! half-written: a file is read only after it stayed the same for a while.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use config::checked::Config;
use parking_lot::Mutex;

use super::{List, read, regular};

/// How often the file's name is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long a changed file has to stay the same before it is read.
const SETTLE: Duration = Duration::from_millis(300);

/// What tells one content from another without reading it: of each file its name, device, inode,
/// size and change time.
type Stamp = Vec<(PathBuf, [u64; 3], [i64; 2])>;

/// Wakes the control loop.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

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

    /// What the layers make of the file, or why that is refused.
    fn read(&self) -> Result<Config, String> {
        let path = &self.watch.path;
        regular::check(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        config::load(Some(path), &self.sets).map_err(|refused| refused.to_string())
    }
}

/// What the control loop asks of the reader.
enum Order {
    /// Both files are read again, changed or not.
    Again,
    /// The configuration file is.
    ConfigAgain,
    /// Services are checked against this configuration from now on; and read at once, or when they
    /// change.
    Check(Arc<Config>, bool),
}

/// What was read.
pub enum Read {
    /// The configuration, or why it is refused.
    Config(Box<Result<Config, String>>),
    /// The services.
    Services {
        /// The configuration that they were checked against.
        against: Arc<Config>,
        /// The file has changed, or an order had it read; false where only the configuration is
        /// another.
        fresh: bool,
        /// What is wanted, or why that can't be taken.
        wanted: Result<List, String>,
    },
}

/// What was read last and not taken yet: of each file the newest, so that a loop that waits for a
/// disk lets nothing pile up.
#[derive(Default)]
struct Newest {
    config: Option<Read>,
    services: Option<Read>,
}

/// The control loop's side of the watch.
pub struct Files {
    services: PathBuf,
    config: PathBuf,
    orders: Sender<Order>,
    newest: Arc<Mutex<Newest>>,
}

impl Files {
    /// The services' path; empty where there is none.
    pub fn services(&self) -> &Path {
        &self.services
    }

    /// The configuration's path; empty where it came from no file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Both files are read again, changed or not.
    pub fn again(&self) {
        self.order(Order::Again);
    }

    /// The configuration file is read again, changed or not.
    pub fn config_again(&self) {
        self.order(Order::ConfigAgain);
    }

    /// Services are checked against `config` from now on; with `now`, read at once.
    pub fn check(&self, config: Arc<Config>, now: bool) {
        self.order(Order::Check(config, now));
    }

    /// What was read since, the configuration first.
    pub fn take(&self) -> Option<Read> {
        let mut newest = self.newest.lock();
        newest.config.take().or_else(|| newest.services.take())
    }

    fn order(&self, order: Order) {
        // The reader ends after the control loop, unless by a fault of ours; then files stay as
        // they were read last.
        if self.orders.send(order).is_err() {
            tracing::error!("the thread that reads files has ended; restart slowpath");
        }
    }
}

/// Reads the files and checks them.
pub struct Reader {
    services: Watch,
    config: Option<ConfigFile>,
    against: Arc<Config>,
    /// Services are read at the next look although they may be the same.
    now: bool,
    orders: Receiver<Order>,
    newest: Arc<Mutex<Newest>>,
    wake: Wake,
}

/// The watch on the services of `config` and on the file that it came from: the control loop's
/// side, and the reader.
pub fn watch(config: &Arc<Config>, file: Option<ConfigFile>, wake: Wake) -> (Files, Reader) {
    let (order, orders) = channel();
    let newest = Arc::<Mutex<Newest>>::default();
    let services = config.services.clone().unwrap_or_default();
    let reader = Reader {
        services: Watch::new(&services),
        against: Arc::clone(config),
        now: false,
        orders,
        newest: Arc::clone(&newest),
        wake,
        config: file,
    };
    let config = reader.config.as_ref().map(|file| file.watch.path.clone()).unwrap_or_default();
    (Files { services, config, orders: order, newest }, reader)
}

impl Reader {
    /// Reads until the control loop is gone: for a thread of its own, which a disk may hold up for
    /// any time.
    pub fn run(mut self) {
        loop {
            match self.orders.recv_timeout(LOOK) {
                Ok(order) => self.obey(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.turn(Instant::now());
        }
    }

    /// Takes the orders that have come, and reads what is due.
    pub fn turn(&mut self, now: Instant) {
        while let Ok(order) = self.orders.try_recv() {
            self.obey(order);
        }
        if let Some(file) = &mut self.config
            && file.watch.is_due(now)
        {
            let read = Box::new(file.read());
            self.tell(Read::Config(read));
        }
        let fresh = self.services.is_due(now);
        if std::mem::take(&mut self.now) || fresh {
            let path = &self.services.path;
            self.services.read = Some(stamp(path));
            let against = Arc::clone(&self.against);
            let wanted = read::read(path, &against);
            self.tell(Read::Services { against, fresh, wanted });
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Again => {
                self.services.again();
                self.config.iter_mut().for_each(|file| file.watch.again());
            }
            Order::ConfigAgain => self.config.iter_mut().for_each(|file| file.watch.again()),
            Order::Check(config, now) => {
                self.against = config;
                self.now |= now;
            }
        }
    }

    fn tell(&self, read: Read) {
        let mut newest = self.newest.lock();
        match read {
            Read::Config(_) => newest.config = Some(read),
            Read::Services { against, fresh, wanted } => {
                // One that was not taken was news as well.
                let before = matches!(newest.services, Some(Read::Services { fresh: true, .. }));
                newest.services = Some(Read::Services { against, fresh: fresh | before, wanted });
            }
        }
        drop(newest);
        (self.wake)();
    }
}
