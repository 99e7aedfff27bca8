//! The desired state: the stored objects of all sources, and the tables of services, frontends and
//! backends derived from them.
//!
//! No method but [`Desired::apply_now`] waits for the store's disk: batches are submitted, and
//! their results are taken when they are available.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;

use config::checked::{Config, Reserved};
use hugepages::upgrade::Upgrade;
use state::address::{Address, Endpoint};
use state::appliance::Appliance;
use state::name::{Name, Precedence, Source};
use state::object::{
    Change, ChangeError, Condition, ConditionStatus, ErrorClass, Event, Key, Kind, Object, Objects,
    Spec,
};
use state::reflect::{Reflector, Verdict, VerdictChange, completeness};
use state::sources::removals::{self, Held, Permit};
use state::store::{AnyDisk, CommitResult, Folder, NullDisk, Shared, Ticket, WriteRequest};
use state::writer::{Initializer, Transaction, Writer};

use crate::sources;
use crate::sources::file::Wake;

/// The store of objects, on any type of disk.
pub type Store = Shared<AnyDisk>;

/// Opens the store in a folder; without a folder, nothing is persisted.
///
/// # Errors
/// Fails on I/O errors, or if another process uses the folder. Damaged files are not an error: see
/// [`Shared::damage`].
pub fn open_store(folder: Option<&Path>) -> std::io::Result<Store> {
    let disk: AnyDisk = match folder {
        Some(folder) => Box::new(Folder::open(folder)?),
        None => Box::new(NullDisk),
    };
    let store = state::store::Store::open(disk);
    // While an upgrade may be undone, the store keeps a format that the previous version reads.
    Ok(Store::new(match Upgrade::default().previous() {
        Some(previous) => store.readable_in(previous.store),
        None => store,
    }))
}

/// The objects, and the reflector that derives the tables from them.
pub struct Desired {
    store: Arc<Store>,
    /// The objects that are in the tables.
    objects: Objects,
    reflector: Reflector,
    /// Writer of the tables.
    pub writer: Arc<Writer>,
    /// The sources that read files, each with its initializer. Until all initializers complete, the
    /// tables count as incomplete and nothing is pruned from the plane.
    files: Vec<(Source, Initializer)>,
    /// Whether this process has stored a complete list of the files, so that the store knows the
    /// lists of their sources as complete.
    settled: bool,
    /// The write of the files' objects that is in progress, if any.
    pending: Option<Ticket>,
    /// Results of writes of the files' objects, from the store's thread.
    answers: (Sender<CommitResult>, Receiver<CommitResult>),
    /// The files' sources with a removal that is confirmed and not yet made, and the revision of
    /// the objects at which they were determined.
    confirmed: (Vec<Source>, u64),
    wake: Wake,
}

impl Desired {
    /// Creates the state from the stored objects, which apply until their sources send others.
    /// `unhealthy` are the backends that the plane has as unhealthy, by frontend.
    pub fn new(
        config: &Config,
        store: Arc<Store>,
        unhealthy: &[(Address, Endpoint)],
        now: SystemTime,
    ) -> Desired {
        let writer = Writer::new();
        let files = sources::file_sources().into_iter();
        let files = files.map(|source| {
            let initializer = writer.register_initializer(source.as_str());
            (source, initializer)
        });
        let (first, last) = config.node_ports;
        let mut desired = Desired {
            objects: Objects::default(),
            reflector: Reflector::new(precedence(config), config.backend_arm())
                .with_node_ports(first..=last)
                .with_reserved(Reserved::of(config)),
            files: files.collect(),
            writer: Arc::new(writer),
            settled: false,
            pending: None,
            answers: channel(),
            confirmed: (Vec::new(), 0),
            wake: Arc::new(|| {}),
            store,
        };
        let objects = desired.store.objects();
        if objects.revision() > 0 {
            let files_complete = false;
            let events = objects.as_events();
            let verdicts =
                desired.reflect(objects.clone(), &events, files_complete, unhealthy, now).1;
            desired.record_verdicts(verdicts, now);
        }
        desired
    }

    /// Sets the callback for when the result of [`Desired::write`] is available.
    pub fn set_wake(&mut self, wake: Wake) {
        self.wake = wake;
    }

    /// Returns the objects that are in the tables.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the objects of the files.
    pub fn file_objects(&self) -> Vec<Object> {
        let is_file = |source: &Source| self.files.iter().any(|(file, _)| file == source);
        let objects_of_files = self.objects.all().filter(|object| is_file(&object.source));
        let objects_of_files = objects_of_files.filter(|object| object.kind().is_desired_state());
        objects_of_files.map(|object| Object::clone(object)).collect()
    }

    /// Submits the complete list of the files to the store, all or nothing. A list that removes
    /// more than `permit` allows is held: not stored until an operator confirms it, which the store
    /// records. [`Desired::written`] returns the result; only one call may be in progress.
    pub fn write(&mut self, desired: &[Object], permit: Permit, now: SystemTime) {
        let objects = self.store.objects();
        let batch = match self.changes(&objects, desired, permit, now) {
            Ok(batch) => batch,
            Err(held) => return self.hold(held, &objects, now),
        };
        let settles = match self.settled {
            true => Vec::new(),
            false => self.files.iter().map(|(source, _)| source.clone()).collect(),
        };
        let answer = self.answers.0.clone();
        if batch.is_empty() {
            // No write is needed, but the store has to record that the sources' lists are complete.
            let _ = answer.send(Ok(objects.revision()));
            if !settles.is_empty() {
                self.store.submit(WriteRequest { batch, now, complete_sources: settles }, drop);
            }
            return;
        }
        let wake = Arc::clone(&self.wake);
        let answered = move |answered: CommitResult| {
            // The receiver is gone if the control loop is.
            let _ = answer.send(answered);
            wake();
        };
        self.pending = Some(
            self.store.submit(WriteRequest { batch, now, complete_sources: settles }, answered),
        );
    }

    /// Returns the changes from the stored objects to those of the files, or the sources whose list
    /// is held.
    fn changes(
        &self,
        objects: &Objects,
        desired: &[Object],
        permit: Permit,
        now: SystemTime,
    ) -> Result<Vec<Change>, Vec<Held>> {
        let (mut batch, mut held) = (Vec::new(), Vec::new());
        for (source, _) in &self.files {
            let of_source =
                desired.iter().filter(|object| object.source == *source).cloned().collect();
            let changes = objects.changes_to(source, of_source);
            match removals::admit(source, objects, &changes, permit, now) {
                Ok(more) => batch.extend(changes.into_iter().chain(more)),
                Err(one) => held.push(one),
            }
        }
        if held.is_empty() { Ok(batch) } else { Err(held) }
    }

    /// Records in the store why the list is held. The result is sent only after that, so that the
    /// next list is compared with the record.
    fn hold(&self, held: Vec<Held>, objects: &Objects, now: SystemTime) {
        let record: Vec<Change> = held.iter().flat_map(|held| held.record(objects, now)).collect();
        let why: Vec<String> = held.iter().map(ToString::to_string).collect();
        let error = ChangeError::new("", why.join("; "), "").with_class(ErrorClass::Held);
        let answer = self.answers.0.clone();
        if record.is_empty() {
            // The receiver is a field of `self`.
            let _ = answer.send(Err(error));
            return;
        }
        let wake = Arc::clone(&self.wake);
        self.store.submit(WriteRequest::new(record, now), move |recorded| {
            if let Err(error) = recorded {
                tracing::error!(
                    event = "held_removal_unrecorded",
                    %error,
                    "held removal not recorded"
                );
            }
            // The receiver is gone if the control loop is.
            let _ = answer.send(Err(error));
            wake();
        });
    }

    /// Returns whether a removal of the files has been confirmed since the last call, so that they
    /// have to be read again.
    pub fn take_confirmed(&mut self) -> bool {
        if self.confirmed.1 == self.objects.revision() {
            return false;
        }
        let is_confirmed = |source: &&Source| removals::is_confirmed(source, &self.objects);
        let sources = self.files.iter().map(|(source, _)| source);
        let confirmed: Vec<Source> = sources.filter(is_confirmed).cloned().collect();
        let newly_confirmed = confirmed.iter().any(|source| !self.confirmed.0.contains(source));
        self.confirmed = (confirmed, self.objects.revision());
        newly_confirmed
    }

    /// Returns the result of [`Desired::write`] once it is available: stored, rejected, or a disk
    /// error.
    pub fn written(&mut self) -> Option<Result<(), ChangeError>> {
        let answer = self.answers.1.try_recv().ok()?;
        self.pending = None;
        self.settled |= answer.is_ok();
        Some(answer.map(drop))
    }

    /// Derives rows from the files' objects, which are stored by now. Returns the revision of the
    /// tables, which is unchanged if nothing changed. `unhealthy` are the backends that were
    /// unhealthy in the plane before a restart.
    pub fn apply(&mut self, unhealthy: &[(Address, Endpoint)], now: SystemTime) -> u64 {
        let (objects, events) = self.updates();
        log_services(&events);
        let files_complete = true;
        let (revision, verdicts) = self.reflect(objects, &events, files_complete, unhealthy, now);
        self.record_verdicts(verdicts, now);
        revision
    }

    /// Performs [`Desired::write`] and [`Desired::apply`], for callers that may block on the disk
    /// and whose store has no thread.
    ///
    /// # Errors
    /// Fails if the objects are rejected or the store's disk does not accept them.
    pub fn apply_now(
        &mut self,
        desired: &[Object],
        unhealthy: &[(Address, Endpoint)],
        now: SystemTime,
    ) -> Result<u64, ChangeError> {
        self.write(desired, Permit::Any, now);
        self.store.write_waiting();
        self.written().unwrap_or(Ok(()))?;
        let revision = self.apply(unhealthy, now);
        self.store.write_waiting();
        Ok(revision)
    }

    /// Derives rows from changes of the store that other sources made. Returns whether rows were
    /// derived.
    pub fn follow(&mut self, now: SystemTime) -> bool {
        if *self.store.watch().borrow() == self.objects.revision() {
            return false;
        }
        let (objects, events) = self.updates();
        if self.pending.is_some_and(|ticket| self.store.is_completed(ticket)) {
            // The files' objects may be among the changes, and only `apply` derives rows from them.
            return false;
        }
        log_services(&events);
        let files_complete = false;
        let verdicts = self.reflect(objects, &events, files_complete, &[], now).1;
        self.record_verdicts(verdicts, now);
        true
    }

    /// Returns the reflector's verdict on an object.
    pub fn verdict(&self, key: &Key) -> Verdict {
        self.reflector.verdict(key)
    }

    /// Returns the stored objects, and the changes since those in the tables.
    fn updates(&self) -> (Objects, Vec<Event>) {
        let all = self.store.changes_since(self.objects.revision());
        let events = all.events.unwrap_or_else(|_| all.objects.events_since(&self.objects));
        (all.objects, events)
    }

    /// Derives rows from `events`, the changes to `objects`. `files_complete` is whether `objects`
    /// have the complete lists of the files. Returns the revision of the tables, and the objects
    /// that the reflector accepts or rejects now.
    fn reflect(
        &mut self,
        objects: Objects,
        events: &[Event],
        files_complete: bool,
        unhealthy: &[(Address, Endpoint)],
        now: SystemTime,
    ) -> (u64, Vec<VerdictChange>) {
        let mut transaction = self.writer.begin(now);
        let verdicts = self.reflector.apply(&objects, events, &mut transaction);
        if files_complete {
            self.files.iter().for_each(|(_, initializer)| transaction.complete(initializer));
        }
        mark_unhealthy(&mut transaction, unhealthy);
        let revision = transaction.commit();
        self.objects = objects;
        write_statuses(&self.store, completeness(events, now), now);
        (revision, verdicts)
    }

    /// Applies the configured precedence of sources and the ports that the appliance itself uses.
    pub fn configure(&mut self, config: &Config, now: SystemTime) {
        let mut transaction = self.writer.begin(now);
        let order = precedence(config);
        let mut verdicts = self.reflector.set_precedence(order, &self.objects, &mut transaction);
        let reserved = Reserved::of(config);
        verdicts.extend(self.reflector.set_reserved(reserved, &self.objects, &mut transaction));
        transaction.commit();
        self.record_verdicts(verdicts, now);
    }

    /// Stores the configured appliance as the only object of its kind. Called only at startup,
    /// because changes of its keys take a restart of slowpath.
    pub fn publish_appliance(&self, config: &Config, now: SystemTime) {
        let Some(object) = appliance_object(config) else { return };
        let (key, objects) = (object.key(), self.store.objects());
        let others = objects.of_kind(Kind::Appliance).map(|other| other.key());
        let others = others.filter(|other| *other != key);
        let mut batch: Vec<Change> = others.map(Change::delete).collect();
        if objects.get(&key).is_none_or(|before| !before.same_desired_state(&object)) {
            batch.push(Change::put(object));
        }
        if batch.is_empty() {
            return;
        }
        self.store.submit(
            WriteRequest { batch, now, complete_sources: vec![key.source] },
            |answer| {
                if let Err(error) = answer {
                    tracing::warn!(
                        event = "appliance_object_unwritten",
                        %error,
                        "appliance object not updated"
                    );
                }
            },
        );
    }

    /// Logs verdicts and stores them as conditions of the objects.
    fn record_verdicts(&self, verdicts: Vec<VerdictChange>, now: SystemTime) {
        let mut batch = Vec::with_capacity(verdicts.len());
        for change in verdicts {
            match &change.verdict {
                Verdict::Accepted => {
                    tracing::info!(
                        event = "object_accepted",
                        object = %change.key,
                        "object accepted"
                    )
                }
                Verdict::Shadowed(by) => {
                    tracing::warn!(
                        event = "object_shadowed",
                        object = %change.key,
                        preferred = %by,
                        "object shadowed by a preferred source"
                    );
                }
                Verdict::Rejected(error) => {
                    tracing::error!(
                        event = "object_rejected",
                        object = %change.key,
                        %error,
                        "object rejected"
                    );
                }
            }
            batch.push(change.into_change(now));
        }
        write_statuses(&self.store, batch, now);
    }

    /// Sets the condition `aspect` on the object of a service that is in force: true without
    /// `trouble`, otherwise false with `trouble` as the message. Does nothing if the object has
    /// that condition already.
    pub fn set_condition(
        &self,
        service: &Name,
        aspect: &'static str,
        trouble: Option<String>,
        now: SystemTime,
    ) {
        let tables = self.writer.tables();
        let Some(row) = tables.service(service) else { return };
        let (name, source) = (service.clone(), row.source.clone());
        let key = Key { kind: Kind::Service, name, source };
        let Some(object) = self.objects.get(&key) else { return };
        let (status, reason) = match trouble {
            None => (ConditionStatus::True, aspect),
            Some(_) => (ConditionStatus::False, "Failed"),
        };
        let condition = Condition {
            aspect: aspect.into(),
            status,
            reason: reason.into(),
            message: trouble.unwrap_or_default().into(),
            since: now,
        };
        let observed = object.generation;
        let is_recorded = object.lifecycle().status.as_ref().is_some_and(|status| {
            let same = |recorded: &Condition| {
                let since = recorded.since;
                *recorded == Condition { since, ..condition.clone() }
            };
            status.observed == observed && status.conditions.iter().any(same)
        });
        if is_recorded {
            return;
        }
        if !condition.message.is_empty() {
            let detail = &condition.message;
            tracing::warn!(
                event = "service_condition_false",
                %service,
                condition = aspect,
                %detail,
                "service condition is false"
            );
        }
        let change = Change::Status { key, observed, conditions: vec![condition] };
        write_statuses(&self.store, vec![change], now);
    }
}

/// Logs which services the sources added, changed and removed.
fn log_services(events: &[Event]) {
    for Event { before, after, .. } in events {
        let Some(object) = after.as_ref().or(before.as_ref()) else { continue };
        if object.kind() != Kind::Service {
            continue;
        }
        let (service, source) = (&object.name, &object.source);
        match (before, after) {
            (None, Some(_)) => {
                tracing::info!(event = "service_added", %service, %source, "service added");
            }
            (Some(_), None) => {
                tracing::info!(event = "service_removed", %service, %source, "service removed");
            }
            (Some(before), Some(after)) if !before.same_desired_state(after) => {
                tracing::info!(event = "service_changed", %service, %source, "service changed");
            }
            _ => {}
        }
    }
}

/// Submits status changes. If the store rejects them because an object no longer exists, the other
/// changes are submitted again.
fn write_statuses(store: &Arc<Store>, batch: Vec<Change>, now: SystemTime) {
    if batch.is_empty() {
        return;
    }
    let (again, rest) = (Arc::clone(store), batch.clone());
    let answered = move |answer: CommitResult| {
        let Err(error) = answer else { return };
        let (before, mut rest) = (rest.len(), rest);
        let is_of_missing_object = |change: &Change| match change {
            Change::Status { key, .. } => error.object.as_ref() == Some(key),
            _ => false,
        };
        rest.retain(|change| error.class != ErrorClass::NotFound || !is_of_missing_object(change));
        if rest.len() < before {
            return write_statuses(&again, rest, now);
        }
        tracing::debug!(event = "status_unstored", %error, "status of objects not stored");
    };
    store.submit(WriteRequest::new(batch, now), answered);
}

/// Marks backends that were unhealthy before a restart as unhealthy again, if they are health
/// checked and have no verdict yet: failed backends get no traffic until they pass.
fn mark_unhealthy(transaction: &mut Transaction<'_>, unhealthy: &[(Address, Endpoint)]) {
    let tables = transaction.tables().clone();
    for (address, endpoint) in unhealthy {
        let Some(row) = tables.frontend(address) else { continue };
        let name = row.redirect_to.as_ref().unwrap_or(&row.service.name);
        let Some(entry) = tables.entry(name) else { continue };
        let checked = entry.service.as_ref().is_some_and(|service| service.spec.health.is_some());
        let judged = entry.at(endpoint).iter().any(|instance| instance.health.since.is_some());
        if checked
            && !judged
            && transaction.update_backend_health(name, endpoint, false) == Ok(true)
        {
            tracing::info!(
                event = "backend_kept_unhealthy",
                service = %name,
                backend = %endpoint,
                "backend kept unhealthy after the restart"
            );
        }
    }
}

/// Returns the configured precedence of sources.
pub fn precedence(config: &Config) -> Precedence {
    Precedence::new(config.sources.iter().map(|source| Source::new(&source.name)))
}

/// Returns the appliance's attributes for selection and the region.
pub fn appliance(config: &Config) -> Appliance {
    let labels =
        config.labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
    let addresses = config.arms().flat_map(|(_, arm)| &arm.addresses);
    let (first, last) = config.node_ports;
    Appliance {
        name: config.name.as_str().into(),
        labels: (!config.labels.is_empty()).then(|| Arc::new(labels.collect())),
        zone: config.zone.as_str().into(),
        local: config.local.iter().map(|name| name.as_str().into()).collect(),
        addresses: addresses.map(|interface| interface.addr).collect(),
        cluster: config.cluster,
        external_cluster_ip: config.external_cluster_ip,
        node_ports: first..=last,
        ..Appliance::default()
    }
}

/// Source of the appliance's object.
const CONFIGURATION: &str = "configuration";

/// Returns the appliance's object; `None` if its name is invalid, which a checked configuration
/// excludes.
fn appliance_object(config: &Config) -> Option<Object> {
    let name = Name::new(&config.name).ok()?;
    let appliance = appliance(config);
    let spec = Spec::Appliance(Arc::new(appliance.spec()));
    let notes = config.annotations.iter();
    let notes = notes.map(|(key, value)| (key.as_str().into(), value.as_str().into()));
    let mut object = Object::new(name, Source::new(CONFIGURATION), spec);
    object.labels = appliance.labels;
    object.annotations = (!config.annotations.is_empty()).then(|| Arc::new(notes.collect()));
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use state::backend::Placement;

    #[test]
    fn the_appliances_attributes_come_from_the_configuration() {
        let text = "name = \"t\"\nzone = \"a\"\nlocal = [\"node-1\", \"b\"]\ncluster = 3\n\
                    node_ports = \"31000-31999\"\nexternal_cluster_ip = true\n\
                    [ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.10/24\"]\n\
                    [fastpath]\nlcores = [1]\n";
        let appliance = appliance(&config::from_toml(text).unwrap());
        let local = |node: &str, zone: &str| {
            let place = Placement { node: node.into(), zone: zone.into(), ..Placement::default() };
            appliance.is_local(Some(&place))
        };
        assert!(local("node-1", "c") && local("node-2", "b"));
        assert!(!local("node-2", "a"));
        assert_eq!((appliance.cluster, &appliance.node_ports), (3, &(31_000..=31_999)));
        assert!(appliance.external_cluster_ip);
    }

    fn appliances(store: &Store) -> Vec<Object> {
        let objects = store.objects();
        objects.of_kind(Kind::Appliance).map(|object| Object::clone(object)).collect()
    }

    #[test]
    fn the_configured_appliance_is_the_only_object_of_its_kind() {
        let config = |name: &str, zone: &str| {
            let text = format!(
                "name = \"{name}\"\nzone = \"{zone}\"\nlocal = [\"n\"]\ncluster = 3\n\
                 [labels]\ntier = \"edge\"\n[annotations]\nowner = \"net\"\n\
                 [ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.10/24\"]\n\
                 [fastpath]\nlcores = [1]\n"
            );
            config::from_toml(&text).unwrap()
        };
        let (now, store) = (SystemTime::UNIX_EPOCH, Arc::new(open_store(None).unwrap()));
        // An object that an earlier version accepted over the API.
        let (old, spec) = (Name::new("old").unwrap(), Arc::default());
        let old = Object::new(old, Source::new("api"), Spec::Appliance(spec));
        store.submit(WriteRequest::new(vec![Change::put(old)], now), drop);
        store.write_waiting();
        let first = config("weir-1", "a");
        let mut desired = Desired::new(&first, Arc::clone(&store), &[], now);
        desired.publish_appliance(&first, now);
        store.write_waiting();
        let published = appliances(&store);
        let [one] = published.as_slice() else { panic!("{published:?}") };
        assert_eq!((one.name.as_str(), one.source.as_str()), ("weir-1", "configuration"));
        assert_eq!(one.spec, Spec::Appliance(Arc::new(appliance(&first).spec())));
        assert_eq!(one.labels.as_ref().unwrap()["tier"], Box::from("edge"));
        assert_eq!(one.annotations.as_ref().unwrap()["owner"], Box::from("net"));
        // Publishing the same again is no change, and files without objects leave it in place.
        let revision = store.objects().revision();
        desired.publish_appliance(&first, now);
        store.write_waiting();
        desired.apply_now(&[], &[], now).unwrap();
        assert_eq!((store.objects().revision(), appliances(&store)), (revision, published));
        // The configuration of a later start replaces the object.
        desired.publish_appliance(&config("weir-2", "b"), now);
        store.write_waiting();
        let published = appliances(&store);
        let [one] = published.as_slice() else { panic!("{published:?}") };
        let Spec::Appliance(spec) = &one.spec else { panic!("{one:?}") };
        assert_eq!((one.name.as_str(), &*spec.zone), ("weir-2", "b"));
    }
}
