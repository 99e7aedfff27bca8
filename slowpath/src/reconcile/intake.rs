//! What is read of the files, until it is taken. The configuration may change while Weir runs:
//! gateways and settings are table data and change like services, with them, all or nothing. What
//! only a restart can change is refused with its keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::Config;
use state::object::Object;

use crate::cloud::followed::Followed;
use crate::control::report::FileStatus;
use crate::live::Shared;
use crate::sources::List;
use crate::sources::file::{Files, Read};

/// When a disk that doesn't take changes is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// What was read and is not said yet.
pub(super) struct Waiting {
    /// The configuration that the services were checked against, if it is a new one.
    pub(super) config: Option<Arc<Config>>,
    pub(super) services: List,
}

/// The files, what was read of them, and what became of what was read before.
pub(super) struct Intake {
    files: Files,
    /// The configuration in force.
    config: Arc<Config>,
    /// Read, and not yet in force or refused: services are checked against it.
    coming: Option<Arc<Config>>,
    /// What was followed last of what the cloud says.
    followed: Followed,
    /// Read, and not yet taken.
    waiting: Option<Waiting>,
    /// A services file was taken by this process.
    synced: bool,
    /// When what the store's disk did not take is read again.
    again: Option<Instant>,
    of_config: Fate,
    of_services: Fate,
}

/// What became of a file.
#[derive(Default)]
struct Fate {
    refused: Option<String>,
    applied: Option<Instant>,
}

impl Fate {
    fn status(&self, path: &std::path::Path, now: Instant) -> FileStatus {
        FileStatus {
            path: path.display().to_string(),
            applied_s_ago: self.applied.map(|at| now.duration_since(at).as_secs()),
            refused: self.refused.clone(),
        }
    }
}

impl Intake {
    /// Of these files, with nothing read of them but `config`.
    pub(super) fn new(files: Files, config: Arc<Config>) -> Intake {
        Intake {
            files,
            config,
            coming: None,
            followed: Followed::default(),
            waiting: None,
            synced: false,
            again: None,
            of_config: Fate::default(),
            of_services: Fate::default(),
        }
    }

    /// The configuration in force.
    pub(super) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Whether this process has taken a services file.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// What is to be taken next.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        self.waiting.take()
    }

    /// The files are read again.
    pub(super) fn again(&self) {
        self.files.again();
    }

    /// They are read again in a while: the store's disk did not take them.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.again = Some(now + ASK_AGAIN);
    }

    /// Why the services that were read last are not in force.
    pub(super) fn refused(&self) -> Option<&str> {
        self.of_services.refused.as_deref()
    }

    /// What became of the configuration's file and of the services'.
    pub(super) fn status(&self, now: Instant) -> (FileStatus, FileStatus) {
        let config = self.of_config.status(self.files.config(), now);
        (config, self.of_services.status(self.files.services(), now))
    }

    /// Takes what was read of both files. An order (SIGHUP) has them read in any case.
    /// `services` are those in force.
    pub(super) fn look(&mut self, now: Instant, shared: &Shared, services: &[Object]) {
        if self.again.is_some_and(|at| now >= at) {
            self.again = None;
            self.files.again();
        }
        if shared.take_reload() {
            tracing::info!("reading configuration and services again");
            self.files.again();
        }
        while let Some(read) = self.files.take() {
            match read {
                Read::Config(read) => {
                    if let Err(refusal) = (*read).and_then(|new| self.read_config(new, now)) {
                        self.refuse_config(refusal);
                    }
                }
                Read::Services { against, fresh, wanted } => {
                    self.read_services(&against, fresh, wanted);
                }
            }
        }
        self.follow_gateway(now, shared, services);
    }

    /// A gateway that forgets TCP flows after another time, or sends by other tunnels, is as if the
    /// file said so. Once each time that it changes: what comes of it is told as of a file.
    fn follow_gateway(&mut self, now: Instant, shared: &Shared, services: &[Object]) {
        let told = shared.followed();
        if told == self.followed {
            return;
        }
        self.followed = told;
        let coming = self.coming.as_deref();
        let same = coming.unwrap_or(&self.config).clone();
        let followed = match self.synced && coming.is_none() {
            true => self.follow_config(same, now, services),
            false => self.read_config(same, now),
        };
        if let Err(refusal) = followed {
            tracing::error!("what the gateway has changed was refused: {refusal}");
        }
    }

    /// The configuration in force as the gateway wants it, with the services as they were read
    /// last: no check of services is about tunnels or times, and no disk is waited for.
    fn follow_config(
        &mut self,
        mut new: Config,
        now: Instant,
        services: &[Object],
    ) -> Result<(), String> {
        if !self.is_news(&mut new, now)? {
            return Ok(());
        }
        let new = Arc::new(new);
        let waiting = self.waiting.take().map(|waiting| waiting.services);
        let in_force = || List { objects: services.to_vec(), allow_removal: false };
        let services = waiting.unwrap_or_else(in_force);
        self.files.check(Arc::clone(&new), false);
        self.coming = Some(Arc::clone(&new));
        self.waiting = Some(Waiting { config: Some(new), services });
        Ok(())
    }

    /// A configuration that was read: refused, or to be said with the services as they are under
    /// it, which are read again for that.
    fn read_config(&mut self, mut new: Config, now: Instant) -> Result<(), String> {
        if !self.is_news(&mut new, now)? {
            self.of_config.refused = None;
            return Ok(());
        }
        let new = Arc::new(new);
        self.waiting = None;
        self.files.check(Arc::clone(&new), true);
        self.coming = Some(new);
        Ok(())
    }

    /// Whether a configuration is another than that in force.
    ///
    /// # Errors
    /// It differs in what only a restart can change.
    fn is_news(&mut self, new: &mut Config, now: Instant) -> Result<bool, String> {
        self.followed.put_into(new);
        let fixed = self.config.fixed_changes(new);
        if !fixed.is_empty() {
            let all: Vec<String> = fixed.iter().map(ToString::to_string).collect();
            return Err(all.join("\n"));
        }
        let news = !self.config.same_as(new);
        if !news {
            self.of_config.applied.get_or_insert(now);
            if self.coming.is_some() {
                // A change that was taken back before its turn came.
                self.stay_configured();
            }
        }
        Ok(news)
    }

    /// Services were read and checked.
    fn read_services(&mut self, against: &Arc<Config>, fresh: bool, wanted: Result<List, String>) {
        let coming = self.coming.clone();
        let expected = coming.as_ref().unwrap_or(&self.config);
        if !Arc::ptr_eq(expected, against) {
            // The reader had not heard of the other configuration yet.
            if fresh {
                self.files.check(Arc::clone(expected), true);
            }
            return;
        }
        match wanted {
            Ok(services) if coming.is_some() => {
                self.of_config.refused = None;
                self.waiting = Some(Waiting { config: coming, services });
            }
            Ok(services) => {
                self.waiting = Some(Waiting { config: None, services });
                // What made them not fit together may be what has changed.
                if fresh && self.of_config.refused.is_some() {
                    self.files.config_again();
                }
            }
            Err(refusal) => {
                self.waiting = None;
                match coming {
                    Some(_) => {
                        self.refuse_config(format!("the services file does not fit it: {refusal}"));
                    }
                    None => self.refuse(refusal),
                }
            }
        }
    }

    /// A configuration can't be: that in force stays.
    fn refuse_config(&mut self, refusal: String) {
        tracing::error!("the configuration was refused, all of it stays as it is: {refusal}");
        self.of_config.refused = Some(refusal);
        if self.coming.is_some() {
            self.stay_configured();
        }
    }

    /// Services, which were checked against another configuration, are checked against that in
    /// force.
    fn stay_configured(&mut self) {
        (self.coming, self.waiting) = (None, None);
        self.files.check(Arc::clone(&self.config), true);
    }

    /// The tables refused what waited: as it was before.
    pub(super) fn refuse_waiting(&mut self, with_config: bool, refusal: String) {
        match with_config {
            false => self.refuse(refusal),
            true => self.refuse_config(refusal),
        }
    }

    fn refuse(&mut self, refusal: String) {
        let path = self.files.services().display();
        tracing::error!("{path} was refused, the set before it stays: {refusal}");
        self.of_services.refused = Some(refusal);
    }

    /// What waited is in force, with a configuration or under that of before.
    pub(super) fn taken(&mut self, config: Option<Arc<Config>>, now: Instant) {
        if let Some(config) = config {
            for warning in &config.warnings {
                tracing::warn!("{warning}");
            }
            tracing::info!(gateways = config.gateways.len(), "configuration taken");
            self.config = config;
            self.coming = None;
            self.of_config = Fate { refused: None, applied: Some(now) };
        }
        self.synced = true;
        self.of_services = Fate { refused: None, applied: Some(now) };
    }
}
