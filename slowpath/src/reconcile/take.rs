//! Takes content of the files: writes it to disk, then to the tables, then to the region. If the
//! commit fails, the rows and the configuration are rolled back.
//!
//! A write takes as long as the disk does; the loop continues with other work meanwhile.

use std::sync::Arc;
use std::time::SystemTime;

use config::checked::Config;
use state::object::{self, Object, Why};
use state::plane::{Plane, Refusal};
use state::reconcile::Now;
use state::sources::removals::Permit;

use super::intake::Waiting;
use super::keeping::{Keeping, Next, Trial};
use super::{Reconcile, TIMES};
use crate::sources;
use crate::sources::desired::appliance;

impl Reconcile<'_> {
    /// Writes the next content to the store and, once that is acknowledged, to the tables. Does
    /// nothing while earlier content is still in progress.
    pub(super) fn take(&mut self, time: Now) {
        if self.trial.is_some() {
            return;
        }
        if self.keeping.is_none() {
            let Some(waiting) = self.intake.next() else { return };
            let config = waiting.config.as_ref().unwrap_or(self.intake.config());
            let permit = sources::permit(&waiting.services, config);
            self.desired.keep(&waiting.services.objects, permit, time.wall);
            self.keeping = Some(Keeping { next: Next::Take(waiting), since: time.steady });
        }
        let Some(answer) = self.desired.kept() else { return };
        match self.keeping.take().map(|keeping| keeping.next) {
            Some(Next::Take(waiting)) => match answer {
                Ok(()) => self.kept(waiting, time),
                Err(refusal) => self.refuse_said(waiting.config.is_some(), &refusal, time),
            },
            Some(Next::Back(services, with_config, why)) => {
                match answer {
                    Ok(()) => drop(self.desired.take(&[], time.wall)),
                    Err(worse) => {
                        tracing::error!("what was asked before can't be asked again: {worse}");
                    }
                }
                self.services = services;
                self.publish_wanted();
                self.intake.refuse_waiting(with_config, why);
            }
            None => {}
        }
    }

    /// Handles content that is on disk: writes it to the tables.
    fn kept(&mut self, Waiting { config, services }: Waiting, time: Now) {
        let before = self.desired.writer.tables().revision();
        let synced = self.intake.is_synced();
        let held = if synced { Vec::new() } else { self.plane.quarantined() };
        let revision = self.desired.take(&held, time.wall);
        let config = config.map(|new| {
            let before = self.plane.configure(Arc::clone(&new));
            self.appoint(&new, time.wall);
            (new, before)
        });
        let services = std::mem::replace(&mut self.services, services.objects);
        let news = !synced || revision != before || config.is_some();
        self.trial = Some(Trial { services, config });
        self.publish_wanted();
        if !news {
            return self.taken(Ok(()), time);
        }
        // A file is one batch, and a first file or other settings affect all frontends.
        self.reconciler.set_at_once(usize::MAX);
        if !synced || self.trial.as_ref().is_some_and(|trial| trial.config.is_some()) {
            self.reconciler.say_again();
        }
    }

    fn refuse_said(&mut self, with_config: bool, refusal: &object::Refusal, time: Now) {
        if refusal.why == Why::Disk {
            self.intake.ask_again(time.steady);
        }
        self.intake.refuse_waiting(with_config, refusal.to_string());
    }

    /// Applies the appliance's attributes, the precedence of sources and their leases from a
    /// configuration.
    fn appoint(&mut self, config: &Config, now: SystemTime) {
        self.shared.publish_sources(sources::settings(config));
        self.desired.configure(config, now);
        self.appliance = Arc::new(appliance(config));
        self.plane.set_appliance(&self.appliance);
    }

    /// Handles the result of a commit.
    pub(super) fn taken(&mut self, outcome: Result<(), Refusal>, time: Now) {
        let Some(Trial { services, config }) = self.trial.take() else {
            if let Err(refusal) = outcome {
                tracing::error!("the tables stay as they are: {refusal}");
            }
            return;
        };
        self.reconciler.set_at_once(TIMES.at_once);
        if let Err(refusal) = outcome {
            return self.take_back(services, config, &refusal, time);
        }
        tracing::info!(
            generation = self.region.generation(),
            objects = self.services.len(),
            "services taken"
        );
        let config = config.map(|(config, _)| config);
        if let Some(config) = &config {
            self.shared.reserved.set(config.probe_networks());
        }
        self.intake.taken(config, time.steady);
        self.publish();
    }

    fn take_back(
        &mut self,
        services: Vec<Object>,
        config: Option<(Arc<Config>, Arc<Config>)>,
        refusal: &Refusal,
        time: Now,
    ) {
        if let Some((_, before)) = &config {
            self.plane.configure(Arc::clone(before));
            let before = Arc::clone(before);
            self.appoint(&before, time.wall);
            self.reconciler.say_again();
        }
        // The content was never in force, so the list is not one that a source has shortened.
        self.desired.keep(&services, Permit::Any, time.wall);
        let next = Next::Back(services, config.is_some(), refusal.to_string());
        self.keeping = Some(Keeping { next, since: time.steady });
    }
}
