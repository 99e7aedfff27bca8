//! The configuration while it runs: gateways and settings are table data and change like services,
//! with them, all or nothing. What only a restart can change is refused with its keys.

use std::sync::Arc;
use std::time::Instant;

use config::checked::Config;

use super::Reconcile;
use super::configured::Waiting;
use crate::sources::List;
use crate::sources::file::Read;

impl Reconcile<'_> {
    /// Takes what was read of both files. An order (SIGHUP) has them read in any case.
    pub(super) fn look_at_files(&mut self, now: Instant) {
        // What is on its way decides what the next content is checked against.
        if self.trial.is_some() || self.keeping.is_some() {
            return;
        }
        if self.again.is_some_and(|at| now >= at) {
            self.again = None;
            self.files.again();
        }
        if self.shared.take_reload() {
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
        self.follow_gateway(now);
    }

    /// A gateway that forgets TCP flows after another time, or sends by other tunnels, is as if the
    /// file said so. Once each time that it changes: what comes of it is told as of a file.
    fn follow_gateway(&mut self, now: Instant) {
        let told = self.shared.followed();
        if told == self.configured.followed {
            return;
        }
        self.configured.followed = told;
        let coming = self.configured.coming.as_deref();
        let same = coming.unwrap_or(&self.config).clone();
        let followed = match self.synced && coming.is_none() {
            true => self.follow_config(same, now),
            false => self.read_config(same, now),
        };
        if let Err(refusal) = followed {
            tracing::error!("what the gateway has changed was refused: {refusal}");
        }
    }

    /// The configuration in force as the gateway wants it, with the services as they were read
    /// last: no check of services is about tunnels or times, and no disk is waited for.
    fn follow_config(&mut self, mut new: Config, now: Instant) -> Result<(), String> {
        if !self.is_news(&mut new, now)? {
            return Ok(());
        }
        let new = Arc::new(new);
        let waiting = self.waiting.take().map(|waiting| waiting.services);
        let in_force = || List { objects: self.services.clone(), allow_removal: false };
        let services = waiting.unwrap_or_else(in_force);
        self.files.check(Arc::clone(&new), false);
        self.configured.coming = Some(Arc::clone(&new));
        self.waiting = Some(Waiting { config: Some(new), services });
        Ok(())
    }

    /// A configuration that was read: refused, or to be said with the services as they are under
    /// it, which are read again for that.
    fn read_config(&mut self, mut new: Config, now: Instant) -> Result<(), String> {
        if !self.is_news(&mut new, now)? {
            self.configured.refused = None;
            return Ok(());
        }
        let new = Arc::new(new);
        self.waiting = None;
        self.files.check(Arc::clone(&new), true);
        self.configured.coming = Some(new);
        Ok(())
    }

    /// Whether a configuration is another than that in force.
    ///
    /// # Errors
    /// It differs in what only a restart can change.
    fn is_news(&mut self, new: &mut Config, now: Instant) -> Result<bool, String> {
        self.configured.followed.put_into(new);
        let fixed = self.config.fixed_changes(new);
        if !fixed.is_empty() {
            let all: Vec<String> = fixed.iter().map(ToString::to_string).collect();
            return Err(all.join("\n"));
        }
        let news = !self.config.same_as(new);
        if !news {
            self.configured.applied.get_or_insert(now);
            if self.configured.coming.is_some() {
                // A change that was taken back before its turn came.
                self.stay_configured();
            }
        }
        Ok(news)
    }

    /// Services were read and checked.
    fn read_services(&mut self, against: &Arc<Config>, fresh: bool, wanted: Result<List, String>) {
        let coming = self.configured.coming.clone();
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
                self.configured.refused = None;
                self.waiting = Some(Waiting { config: coming, services });
            }
            Ok(services) => {
                self.waiting = Some(Waiting { config: None, services });
                // What made them not fit together may be what has changed.
                if fresh && self.configured.refused.is_some() {
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
        self.configured.refused = Some(refusal);
        if self.configured.coming.is_some() {
            self.stay_configured();
        }
    }

    /// Services, which were checked against another configuration, are checked against that in
    /// force.
    fn stay_configured(&mut self) {
        (self.configured.coming, self.waiting) = (None, None);
        self.files.check(Arc::clone(&self.config), true);
    }

    /// The tables refused what waited: as it was before.
    pub(super) fn refuse_waiting(&mut self, with_config: bool, refusal: String) {
        match with_config {
            false => self.refuse(refusal),
            true => self.refuse_config(refusal),
        }
    }

    /// What waited is in force.
    pub(super) fn configured(&mut self, config: Arc<Config>, now: Instant) {
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!(gateways = config.gateways.len(), "configuration taken");
        self.shared.reserved.set(config.probe_networks());
        self.config = config;
        self.configured.coming = None;
        self.configured.refused = None;
        self.configured.applied = Some(now);
    }
}
