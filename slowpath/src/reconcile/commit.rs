//! Takes content of the files: writes it to disk, then to the tables, then to the region. If the
//! commit fails, disk, tables and configuration are rolled back.
//!
//! While the disk is writing, the loop continues with other work.

use std::sync::Arc;
use std::time::SystemTime;

use config::checked::Config;
use state::object::{self, ErrorClass, Object};
use state::plane::{Plane, PlaneError};
use state::reconcile::Now;
use state::sources::removals::Permit;

use super::intake::PendingFiles;
use super::pending::{Next, PendingWrite, Uncommitted};
use super::{RECONCILER_SETTINGS, Reconcile};
use crate::sources;
use crate::sources::desired::appliance;

impl Reconcile<'_> {
    /// Writes the next content to the store and, once that is acknowledged, to the tables. Does
    /// nothing while earlier content is in the tables and not yet in the region.
    pub(super) fn apply_files(&mut self, time: Now) {
        if self.uncommitted.is_some() {
            return;
        }
        if self.pending_write.is_none() {
            let Some(waiting) = self.intake.next() else { return };
            let config = waiting.config.as_ref().unwrap_or(self.intake.config());
            let permit = sources::permit(&waiting.services, config);
            self.desired.write(&waiting.services.objects, permit, time.wall);
            self.pending_write =
                Some(PendingWrite { next: Next::Apply(waiting), since: time.steady });
        }
        let Some(answer) = self.desired.written() else { return };
        match self.pending_write.take().map(|pending_write| pending_write.next) {
            Some(Next::Apply(waiting)) => match answer {
                Ok(()) => self.write_done(waiting, time),
                Err(error) => self.reject_files(waiting.config.is_some(), &error, time),
            },
            Some(Next::Restore(services, with_config, why)) => {
                match answer {
                    Ok(()) => drop(self.desired.apply(&[], time.wall)),
                    Err(error) => {
                        tracing::error!(
                            event = "rollback_rejected",
                            %error,
                            "rollback of the services rejected"
                        );
                    }
                }
                self.services = services;
                self.publish_desired();
                self.intake.reject_taken(with_config, why);
            }
            None => {}
        }
    }

    /// Handles content that is on disk: writes it to the tables.
    fn write_done(&mut self, PendingFiles { config, services }: PendingFiles, time: Now) {
        let before = self.desired.writer.tables().revision();
        let synced = self.intake.is_synced();
        let quarantined = if synced { Vec::new() } else { self.plane.quarantined() };
        let revision = self.desired.apply(&quarantined, time.wall);
        let config = config.map(|new| {
            let before = self.plane.configure(Arc::clone(&new));
            self.apply_appliance(&new, time.wall);
            (new, before)
        });
        let services = std::mem::replace(&mut self.services, services.objects);
        let changed = !synced || revision != before || config.is_some();
        self.uncommitted = Some(Uncommitted { services, config });
        self.publish_desired();
        if !changed {
            return self.commit_done(Ok(()), time);
        }
        // The content of the files is one batch. The first content, and a new configuration, affect
        // all frontends.
        self.reconciler.set_frontends_per_step(usize::MAX);
        if !synced
            || self.uncommitted.as_ref().is_some_and(|uncommitted| uncommitted.config.is_some())
        {
            self.reconciler.start_full_pass();
        }
    }

    /// Records that the store rejected the content. If its disk failed, the files are read again
    /// later.
    fn reject_files(&mut self, with_config: bool, error: &object::ChangeError, time: Now) {
        if error.class == ErrorClass::Disk {
            self.intake.retry_later(time.steady);
        }
        self.intake.reject_taken(with_config, error.to_string());
    }

    /// Applies these parts of a configuration: settings and precedence of sources, reserved ports,
    /// and the appliance's attributes.
    fn apply_appliance(&mut self, config: &Config, now: SystemTime) {
        self.shared.publish_sources(sources::settings(config));
        self.desired.configure(config, now);
        self.appliance = Arc::new(appliance(config));
        self.plane.set_appliance(&self.appliance);
    }

    /// Handles the result of a commit.
    pub(super) fn commit_done(&mut self, outcome: Result<(), PlaneError>, time: Now) {
        let Some(Uncommitted { services, config }) = self.uncommitted.take() else {
            if let Err(error) = outcome {
                tracing::error!(
                    event = "commit_rejected",
                    %error,
                    "commit rejected, the tables are unchanged"
                );
            }
            return;
        };
        self.reconciler.set_frontends_per_step(RECONCILER_SETTINGS.frontends_per_step);
        if let Err(error) = outcome {
            return self.roll_back(services, config, &error, time);
        }
        tracing::info!(
            event = "services_applied",
            generation = self.region.generation(),
            objects = self.services.len(),
            "services applied"
        );
        let config = config.map(|(config, _)| config);
        if let Some(config) = &config {
            self.shared.reserved.set(config.probe_networks());
        }
        self.intake.mark_applied(config, time.steady);
        for source in sources::file_sources() {
            self.shared.measurements.set_listed(source.as_str(), time.wall);
        }
        self.publish();
    }

    /// Restores the configuration, and begins to write the former objects to the store. `config` is
    /// the new and the former configuration, if it changed.
    fn roll_back(
        &mut self,
        services: Vec<Object>,
        config: Option<(Arc<Config>, Arc<Config>)>,
        error: &PlaneError,
        time: Now,
    ) {
        if let Some((_, before)) = &config {
            self.plane.configure(Arc::clone(before));
            let before = Arc::clone(before);
            self.apply_appliance(&before, time.wall);
            self.reconciler.start_full_pass();
        }
        // Any removal is permitted: the objects to remove were never in force.
        self.desired.write(&services, Permit::Any, time.wall);
        let next = Next::Restore(services, config.is_some(), error.to_string());
        self.pending_write = Some(PendingWrite { next, since: time.steady });
    }
}
