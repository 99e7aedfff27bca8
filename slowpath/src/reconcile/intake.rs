//! Content of the files from reading it until it is applied. The configuration may change at run
//! time: gateways and settings are table data and change together with the services, all or
//! nothing. A change of a key that takes a restart is rejected, and the error names the keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::Config;
use state::object::Object;

use crate::cloud::followed::Followed;
use crate::control::report::FileStatus;
use crate::live::Shared;
use crate::sources::List;
use crate::sources::file::{Files, Read};

/// Interval of retries when the store's disk does not accept changes.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Content that was read and has not been taken.
pub(super) struct PendingFiles {
    /// The configuration that the services were checked against, if it is new.
    pub(super) config: Option<Arc<Config>>,
    pub(super) services: List,
}

/// The files, the content read from them, and its status.
pub(super) struct Intake {
    files: Files,
    /// The configuration in force.
    config: Arc<Config>,
    /// A configuration that is neither in force nor rejected yet. Services are checked against it.
    pending_config: Option<Arc<Config>>,
    /// Settings reported by the cloud that were applied last.
    followed: Followed,
    /// Content that has not been taken yet.
    waiting: Option<PendingFiles>,
    /// Whether this process has taken a services file.
    synced: bool,
    /// When to read content again that the store's disk did not accept.
    retry_at: Option<Instant>,
    of_config: FileOutcome,
    of_services: FileOutcome,
}

/// Status of a file's content.
#[derive(Default)]
struct FileOutcome {
    refused: Option<String>,
    applied: Option<Instant>,
}

impl FileOutcome {
    fn status(&self, path: &std::path::Path, now: Instant) -> FileStatus {
        FileStatus {
            path: path.display().to_string(),
            applied_s_ago: self.applied.map(|at| now.duration_since(at).as_secs()),
            error: self.refused.clone(),
        }
    }
}

impl Intake {
    /// Creates the state: only `config` has been read from the files.
    pub(super) fn new(files: Files, config: Arc<Config>) -> Intake {
        Intake {
            files,
            config,
            pending_config: None,
            followed: Followed::default(),
            waiting: None,
            synced: false,
            retry_at: None,
            of_config: FileOutcome::default(),
            of_services: FileOutcome::default(),
        }
    }

    /// Returns the configuration in force.
    pub(super) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Returns whether this process has taken a services file.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Takes the next content.
    pub(super) fn next(&mut self) -> Option<PendingFiles> {
        self.waiting.take()
    }

    /// Requests that the files are read again.
    pub(super) fn reread(&self) {
        self.files.reread();
    }

    /// Schedules another read of the files, because the store's disk did not accept the content.
    pub(super) fn retry_later(&mut self, now: Instant) {
        self.retry_at = Some(now + RETRY_INTERVAL);
    }

    /// Returns why the services that were read last are not in force.
    pub(super) fn refused(&self) -> Option<&str> {
        self.of_services.refused.as_deref()
    }

    /// Returns the status of the configuration file and of the services file.
    pub(super) fn status(&self, now: Instant) -> (FileStatus, FileStatus) {
        let config = self.of_config.status(self.files.config(), now);
        (config, self.of_services.status(self.files.services(), now))
    }

    /// Processes what was read from both files. SIGHUP causes both to be read. `services` are those
    /// in force.
    pub(super) fn poll(&mut self, now: Instant, shared: &Shared, services: &[Object]) {
        if self.retry_at.is_some_and(|at| now >= at) {
            self.retry_at = None;
            self.files.reread();
        }
        if shared.take_reload() {
            tracing::info!("reading configuration and services again");
            self.files.reread();
        }
        while let Some(read) = self.files.take() {
            match read {
                Read::Config(read) => {
                    if let Err(refusal) = (*read).and_then(|new| self.read_config(new, now)) {
                        self.refuse_config(refusal);
                    }
                }
                Read::Services { against, fresh, objects } => {
                    self.read_services(&against, fresh, objects);
                }
            }
        }
        self.follow_gateway(now, shared, services);
    }

    /// Applies the cloud's reported settings (TCP idle timeout, tunnels) as if the configuration
    /// file had them. Runs once for each change; the result is reported like that of a file.
    fn follow_gateway(&mut self, now: Instant, shared: &Shared, services: &[Object]) {
        let followed = shared.followed();
        if followed == self.followed {
            return;
        }
        self.followed = followed;
        let pending_config = self.pending_config.as_deref();
        let same = pending_config.unwrap_or(&self.config).clone();
        let followed = match self.synced && pending_config.is_none() {
            true => self.follow_config(same, now, services),
            false => self.read_config(same, now),
        };
        if let Err(refusal) = followed {
            tracing::error!(error = %refusal, "settings reported by the gateway rejected");
        }
    }

    /// Applies reported settings to the configuration in force, with the services that were read
    /// last. No check of services depends on tunnels or timeouts, so the disk is not waited for.
    fn follow_config(
        &mut self,
        mut new: Config,
        now: Instant,
        services: &[Object],
    ) -> Result<(), String> {
        if !self.is_changed(&mut new, now)? {
            return Ok(());
        }
        let new = Arc::new(new);
        let waiting = self.waiting.take().map(|waiting| waiting.services);
        let in_force = || List { objects: services.to_vec(), allow_removal: false };
        let services = waiting.unwrap_or_else(in_force);
        self.files.check(Arc::clone(&new), false);
        self.pending_config = Some(Arc::clone(&new));
        self.waiting = Some(PendingFiles { config: Some(new), services });
        Ok(())
    }

    /// Handles a new configuration: it is rejected, or the services are read again to be checked
    /// against it.
    fn read_config(&mut self, mut new: Config, now: Instant) -> Result<(), String> {
        if !self.is_changed(&mut new, now)? {
            self.of_config.refused = None;
            return Ok(());
        }
        let new = Arc::new(new);
        self.waiting = None;
        self.files.check(Arc::clone(&new), true);
        self.pending_config = Some(new);
        Ok(())
    }

    /// Returns whether a configuration differs from that in force.
    ///
    /// # Errors
    /// Fails if they differ in keys that take a restart.
    fn is_changed(&mut self, new: &mut Config, now: Instant) -> Result<bool, String> {
        self.followed.put_into(new);
        let fixed = self.config.changes_requiring_restart(new);
        if !fixed.is_empty() {
            let all: Vec<String> = fixed.iter().map(ToString::to_string).collect();
            return Err(all.join("\n"));
        }
        let changed = !self.config.same_as(new);
        if !changed {
            self.of_config.applied.get_or_insert(now);
            if self.pending_config.is_some() {
                // The configuration file was reverted before the change was taken.
                self.drop_pending_config();
            }
        }
        Ok(changed)
    }

    /// Handles services that were read and checked.
    fn read_services(&mut self, against: &Arc<Config>, fresh: bool, objects: Result<List, String>) {
        let pending_config = self.pending_config.clone();
        let expected = pending_config.as_ref().unwrap_or(&self.config);
        if !Arc::ptr_eq(expected, against) {
            // The reader has not processed the change of configuration yet.
            if fresh {
                self.files.check(Arc::clone(expected), true);
            }
            return;
        }
        match objects {
            Ok(services) if pending_config.is_some() => {
                self.of_config.refused = None;
                self.waiting = Some(PendingFiles { config: pending_config, services });
            }
            Ok(services) => {
                self.waiting = Some(PendingFiles { config: None, services });
                // What made configuration and services incompatible may have been fixed in the
                // services.
                if fresh && self.of_config.refused.is_some() {
                    self.files.reread_config();
                }
            }
            Err(refusal) => {
                self.waiting = None;
                match pending_config {
                    Some(_) => {
                        let refusal = format!("the services file is invalid with it: {refusal}");
                        self.refuse_config(refusal);
                    }
                    None => self.refuse(refusal),
                }
            }
        }
    }

    /// Rejects a configuration; the one in force stays.
    fn refuse_config(&mut self, refusal: String) {
        tracing::error!(error = %refusal, "configuration rejected; previous one stays in force");
        self.of_config.refused = Some(refusal);
        if self.pending_config.is_some() {
            self.drop_pending_config();
        }
    }

    /// Drops the pending configuration, and has the services checked against the one in force.
    fn drop_pending_config(&mut self) {
        (self.pending_config, self.waiting) = (None, None);
        self.files.check(Arc::clone(&self.config), true);
    }

    /// Records that the store or the region rejected the content that was taken last.
    pub(super) fn refuse_waiting(&mut self, with_config: bool, refusal: String) {
        match with_config {
            false => self.refuse(refusal),
            true => self.refuse_config(refusal),
        }
    }

    fn refuse(&mut self, refusal: String) {
        let path = self.files.services().display();
        tracing::error!(
            %path,
            error = %refusal,
            "services file rejected; the previous services stay in force"
        );
        self.of_services.refused = Some(refusal);
    }

    /// Records that the content is in force, with a new configuration if there is one.
    pub(super) fn mark_applied(&mut self, config: Option<Arc<Config>>, now: Instant) {
        if let Some(config) = config {
            for warning in &config.warnings {
                tracing::warn!(%warning, "configuration warning");
            }
            tracing::info!(gateways = config.gateways.len(), "configuration applied");
            self.config = config;
            self.pending_config = None;
            self.of_config = FileOutcome { refused: None, applied: Some(now) };
        }
        self.synced = true;
        self.of_services = FileOutcome { refused: None, applied: Some(now) };
    }
}
