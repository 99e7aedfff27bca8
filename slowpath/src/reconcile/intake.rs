//! Takes the content read from the configuration and services files, until it is applied or
//! rejected. The configuration may change at run time: gateways and settings are table data and
//! change together with the services, all or nothing. A change of keys that take a restart is
//! rejected, with an error that names the keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::Config;
use state::object::Object;

use crate::cloud::followed::Followed;
use crate::control::report::FileStatus;
use crate::live::Shared;
use crate::measurements::Stage;
use crate::sources::List;
use crate::sources::file::{Files, Read};

/// Delay after which the files are read again if the store's disk did not accept their content.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Content that was read and checked, to be applied as a whole.
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
    /// The most recent content that has not been taken by [`Intake::next`].
    waiting: Option<PendingFiles>,
    /// Whether content of the files has been in force since this process started.
    synced: bool,
    /// When to read content again that the store's disk did not accept.
    retry_at: Option<Instant>,
    of_config: FileOutcome,
    of_services: FileOutcome,
    reload: Option<Reload>,
}

/// A requested reload.
struct Reload {
    /// Number of the reread of the files that it requested.
    reread: u64,
    /// Whether the content of that reread was taken.
    is_read: bool,
}

/// Result of the last reads of a file.
#[derive(Default)]
struct FileOutcome {
    /// Why the content read last is not in force.
    error: Option<String>,
    /// When content was last applied.
    applied: Option<Instant>,
}

impl FileOutcome {
    fn status(&self, path: &std::path::Path, now: Instant) -> FileStatus {
        FileStatus {
            path: path.display().to_string(),
            applied_s_ago: self.applied.map(|at| now.duration_since(at).as_secs()),
            error: self.error.clone(),
        }
    }
}

impl Intake {
    /// Creates the state. Of the files' content, only `config` is in force.
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
            reload: None,
        }
    }

    /// Returns the configuration in force.
    pub(super) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Returns whether content of the files has been in force since this process started.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Returns whether a reload has ended since the last call: both files were read, and their
    /// content was rejected or has been taken and applied.
    pub(super) fn take_reloaded(&mut self) -> bool {
        let is_read = self.reload.as_ref().is_some_and(|reload| reload.is_read);
        let is_done = is_read && self.pending_config.is_none() && self.waiting.is_none();
        if is_done {
            self.reload = None;
        }
        is_done
    }

    /// Takes the next content.
    pub(super) fn next(&mut self) -> Option<PendingFiles> {
        self.waiting.take()
    }

    /// Requests that the files are read again.
    pub(super) fn reread(&self) {
        let _ = self.files.reread();
    }

    /// Schedules another read of the files, because the store's disk did not accept the content.
    pub(super) fn retry_later(&mut self, now: Instant) {
        self.retry_at = Some(now + RETRY_INTERVAL);
    }

    /// Returns why the services that were read last are not in force.
    pub(super) fn services_error(&self) -> Option<&str> {
        self.of_services.error.as_deref()
    }

    /// Returns the status of the configuration file and of the services file.
    pub(super) fn status(&self, now: Instant) -> (FileStatus, FileStatus) {
        let config = self.of_config.status(self.files.config(), now);
        (config, self.of_services.status(self.files.services(), now))
    }

    /// Processes the content that was read from both files, requests to read them again (by SIGHUP,
    /// or after a disk error), and settings reported by the cloud. `services` are the services in
    /// force.
    pub(super) fn poll(&mut self, now: Instant, shared: &Shared, services: &[Object]) {
        if self.retry_at.is_some_and(|at| now >= at) {
            self.retry_at = None;
            self.files.reread();
        }
        if shared.take_reload() {
            tracing::info!(event = "reload_requested", "reading configuration and services again");
            self.reload = Some(Reload { reread: self.files.reread(), is_read: false });
        }
        // Read before the content is taken below, which then includes that of these rereads.
        let done = self.files.rereads_done();
        while let Some(read) = self.files.take() {
            match read {
                Read::Config(read) => {
                    if let Err(error) = (*read).and_then(|new| self.handle_config(new, now)) {
                        self.reject_config(error);
                    }
                }
                Read::Services { against, fresh, objects, measured } => {
                    shared.measurements.record_stage(Stage::Validate, measured, None);
                    self.handle_services(&against, fresh, objects);
                }
            }
        }
        if let Some(reload) = self.reload.as_mut().filter(|reload| reload.reread <= done) {
            reload.is_read = true;
        }
        self.follow_gateway(now, shared, services);
    }

    /// Handles changed settings reported by the cloud (TCP idle timeout, tunnels), as if the
    /// configuration file contained them.
    fn follow_gateway(&mut self, now: Instant, shared: &Shared, services: &[Object]) {
        let followed = shared.followed();
        if followed == self.followed {
            return;
        }
        self.followed = followed;
        let pending_config = self.pending_config.as_deref();
        let current = pending_config.unwrap_or(&self.config).clone();
        let followed = match self.synced && pending_config.is_none() {
            true => self.follow_config(current, now, services),
            false => self.handle_config(current, now),
        };
        if let Err(error) = followed {
            tracing::error!(
                event = "gateway_settings_rejected",
                %error,
                "settings reported by the gateway rejected"
            );
        }
    }

    /// Prepares the configuration in force with the reported settings, and the services that were
    /// read last, to be applied. The services are not read and checked again, because no check of
    /// services depends on tunnels or timeouts; so a hanging disk does not delay these settings.
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
        self.files.check_against(Arc::clone(&new));
        self.pending_config = Some(Arc::clone(&new));
        self.waiting = Some(PendingFiles { config: Some(new), services });
        Ok(())
    }

    /// Handles a configuration that was read: if it is new, the services are read again to be
    /// checked against it.
    ///
    /// # Errors
    /// Fails if keys changed that take a restart.
    fn handle_config(&mut self, mut new: Config, now: Instant) -> Result<(), String> {
        if !self.is_changed(&mut new, now)? {
            self.of_config.error = None;
            return Ok(());
        }
        let new = Arc::new(new);
        self.waiting = None;
        self.files.read_against(Arc::clone(&new));
        self.pending_config = Some(new);
        Ok(())
    }

    /// Overwrites settings in `new` with those reported by the cloud, and returns whether it
    /// differs from the configuration in force. If not, a pending configuration is dropped.
    ///
    /// # Errors
    /// Fails if keys differ whose change takes a restart, with a text for each.
    fn is_changed(&mut self, new: &mut Config, now: Instant) -> Result<bool, String> {
        self.followed.put_into(new);
        let changes = self.config.changes_requiring_restart(new);
        if !changes.is_empty() {
            let all: Vec<String> = changes.iter().map(ToString::to_string).collect();
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

    /// Handles services that were read, and checked against a configuration. `fresh` is whether the
    /// files have changed or were read again by command, rather than because of a new
    /// configuration.
    fn handle_services(
        &mut self,
        against: &Arc<Config>,
        fresh: bool,
        objects: Result<List, String>,
    ) {
        let pending_config = self.pending_config.clone();
        let expected = pending_config.as_ref().unwrap_or(&self.config);
        if !Arc::ptr_eq(expected, against) {
            // They were checked before the reader got the expected configuration. The reader has
            // recorded changed files as read, so another read has to be requested.
            if fresh {
                self.files.read_against(Arc::clone(expected));
            }
            return;
        }
        match objects {
            Ok(services) if pending_config.is_some() => {
                self.of_config.error = None;
                self.waiting = Some(PendingFiles { config: pending_config, services });
            }
            Ok(services) => {
                self.waiting = Some(PendingFiles { config: None, services });
                // A configuration that the former services made invalid may be valid with these.
                if fresh && self.of_config.error.is_some() {
                    self.files.reread_config();
                }
            }
            Err(error) => {
                self.waiting = None;
                match pending_config {
                    Some(_) => {
                        let error = format!("the services file is invalid with it: {error}");
                        self.reject_config(error);
                    }
                    None => self.reject_services(error),
                }
            }
        }
    }

    /// Rejects a configuration; the one in force stays.
    fn reject_config(&mut self, error: String) {
        tracing::error!(
            event = "configuration_rejected",
            %error,
            "configuration rejected; previous one stays in force"
        );
        self.of_config.error = Some(error);
        if self.pending_config.is_some() {
            self.drop_pending_config();
        }
    }

    /// Drops the pending configuration, and has the services checked against the one in force.
    fn drop_pending_config(&mut self) {
        (self.pending_config, self.waiting) = (None, None);
        self.files.read_against(Arc::clone(&self.config));
    }

    /// Records that the store or the region rejected the content that was taken last.
    pub(super) fn reject_taken(&mut self, with_config: bool, error: String) {
        match with_config {
            false => self.reject_services(error),
            true => self.reject_config(error),
        }
    }

    fn reject_services(&mut self, error: String) {
        let path = self.files.services().display();
        tracing::error!(
            event = "services_rejected",
            %path,
            %error,
            "services file rejected; the previous services stay in force"
        );
        self.of_services.error = Some(error);
    }

    /// Records that the content taken last is in force, with its configuration if that is new.
    pub(super) fn mark_applied(&mut self, config: Option<Arc<Config>>, now: Instant) {
        if let Some(config) = config {
            for warning in &config.warnings {
                tracing::warn!(event = "configuration_warning", %warning, "configuration warning");
            }
            tracing::info!(
                event = "configuration_applied",
                gateways = config.gateways.len(),
                "configuration applied"
            );
            if let Some(log) = events::log::log() {
                log.configure(&config.log);
            }
            self.config = config;
            self.pending_config = None;
            self.of_config = FileOutcome { error: None, applied: Some(now) };
        }
        self.synced = true;
        self.of_services = FileOutcome { error: None, applied: Some(now) };
    }
}
