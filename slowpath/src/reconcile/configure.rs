//! The configuration while it runs: gateways and settings are table data and change like services,
//! with them, all or nothing. What only a restart can change is refused with its keys.

use std::sync::Arc;
use std::time::Instant;

use config::checked::Config;
use state::object::Object;

use super::Reconcile;
use crate::followed::Followed;
use crate::report::FileStatus;
use crate::sources::file::ConfigFile;

/// What was read and is not said yet.
pub(super) struct Waiting {
    /// The configuration that the services were checked against, if it is a new one.
    pub(super) config: Option<Arc<Config>>,
    pub(super) services: Vec<Object>,
}

/// The watched configuration file and what became of it.
#[derive(Default)]
pub(super) struct Configured {
    file: Option<ConfigFile>,
    refused: Option<String>,
    applied: Option<Instant>,
    /// What was followed last of what the cloud says.
    followed: Followed,
}

impl Configured {
    pub(super) fn status(&self, now: Instant) -> FileStatus {
        FileStatus {
            path: self.file.as_ref().map(|f| f.path().display().to_string()).unwrap_or_default(),
            applied_s_ago: self.applied.map(|at| now.duration_since(at).as_secs()),
            refused: self.refused.clone(),
        }
    }
}

impl Reconcile<'_> {
    /// Watches the file that the configuration came from; without, the configuration stays.
    pub fn watch_config(&mut self, file: ConfigFile) {
        self.configured.file = Some(file);
    }

    /// Looks at both files. An order (SIGHUP) has them read in any case.
    pub(super) fn look_at_files(&mut self, now: Instant) {
        // What is on its way decides what the next content is checked against.
        if self.trial.is_some() {
            return;
        }
        if self.again.is_some_and(|at| now >= at) {
            self.again = None;
            self.file.again();
            self.read_config_again();
        }
        if self.shared.take_reload() {
            tracing::info!("reading configuration and services again");
            self.file.again();
            self.read_config_again();
        }
        if let Some(read) = self.configured.file.as_mut().and_then(|file| file.poll(now)) {
            let taken = read.and_then(|new| self.read_config(new, now));
            self.configured.refused = taken.err().map(|refusal| {
                tracing::error!(
                    "the configuration was refused, all of it stays as it is: {refusal}"
                );
                refusal
            });
        }
        self.follow_gateway(now);
        let coming = self.waiting.as_ref().and_then(|waiting| waiting.config.clone());
        let config = coming.clone().unwrap_or_else(|| Arc::clone(&self.config));
        match self.file.poll(&config, now) {
            Some(Ok(services)) => {
                self.waiting = Some(Waiting { config: coming, services });
                // What made them not fit together may be what has changed.
                if self.configured.refused.is_some() {
                    self.read_config_again();
                }
            }
            Some(Err(refusal)) => {
                self.waiting = None;
                if coming.is_some() {
                    self.configured.refused = Some(unfit(&refusal));
                }
                self.refuse(refusal);
            }
            None => {}
        }
    }

    /// A gateway that forgets TCP flows after another time, or sends by other tunnels, is as if the
    /// file said so. Once each time that it changes: what comes of it is told as of a file.
    fn follow_gateway(&mut self, now: Instant) {
        let told = self.shared.followed();
        if told == self.configured.followed {
            return;
        }
        self.configured.followed = told;
        let coming = self.waiting.as_ref().and_then(|waiting| waiting.config.as_deref());
        let same = coming.unwrap_or(&self.config).clone();
        if let Err(refusal) = self.read_config(same, now) {
            tracing::error!("what the gateway has changed was refused: {refusal}");
        }
    }

    fn read_config_again(&mut self) {
        if let Some(file) = &mut self.configured.file {
            file.again();
        }
    }

    /// A configuration that was read: refused, or to be said with the services as they are under
    /// it.
    fn read_config(&mut self, mut new: Config, now: Instant) -> Result<(), String> {
        self.configured.followed.put_into(&mut new);
        let fixed = self.config.fixed_changes(&new);
        if !fixed.is_empty() {
            let all: Vec<String> = fixed.iter().map(ToString::to_string).collect();
            return Err(all.join("\n"));
        }
        if self.config.same_as(&new) {
            self.configured.applied.get_or_insert(now);
            if self.waiting.as_ref().is_some_and(|waiting| waiting.config.is_some()) {
                // A change that was taken back before its turn came.
                self.waiting = None;
                self.file.again();
            }
            return Ok(());
        }
        let services = self.file.read(&new).map_err(|refusal| unfit(&refusal))?;
        self.waiting = Some(Waiting { config: Some(Arc::new(new)), services });
        Ok(())
    }

    /// The tables refused what waited: as it was before.
    pub(super) fn refuse_waiting(&mut self, with_config: bool, refusal: String) {
        if !with_config {
            return self.refuse(refusal);
        }
        tracing::error!("the configuration was refused, all of it stays as it is: {refusal}");
        self.configured.refused = Some(refusal);
        // Checked against what was refused, they are to be checked against what stays.
        self.file.again();
    }

    /// What waited is in force.
    pub(super) fn configured(&mut self, config: Arc<Config>, now: Instant) {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!(gateways = config.gateways.len(), "configuration taken");
        self.config = config;
        self.configured.refused = None;
        self.configured.applied = Some(now);
    }
}

fn unfit(refusal: &str) -> String {
    format!("the services file does not fit it: {refusal}")
}
