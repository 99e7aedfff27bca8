//! Reflector: derives the services, frontends and backends of the tables from objects.
//!
//! All operations are idempotent; the writer ignores writes that change nothing. If several sources
//! have a service of the same name, the preferred source's service is written and the others wait.
//! A service that needs an address of another service in the tables waits until that service
//! releases it, even if its own source is preferred. Backends of a quarantined source get no new
//! flows, and other sources' instances at the same endpoints take precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::RangeInclusive;
use std::sync::Arc;

use config::checked::{ArmName, Reserved};
use smallvec::SmallVec;

use crate::address::Endpoint;
use crate::appliance::NODE_PORTS;
use crate::backend::{Instance, merge_port_names};
use crate::frontend::Kind as FrontendKind;
use crate::name::{Name, Precedence, Source};
use crate::object::{
    BackendSpec, BackendsSpec, Checked, Event, FrontendSpec, Key, Kind, Object, Objects,
    ServiceSpec, Spec,
};
use crate::sources;
use crate::writer::{Error, Transaction};

mod completeness_condition;
mod lists;
mod rows;
#[cfg(test)]
mod tests;
mod verdict;

pub use completeness_condition::{COMPLETE, completeness};
use lists::{Lists, backends_of};
use rows::{frontends, instance, reserved_of, row};
use verdict::was_rejected;
pub use verdict::{ACCEPTED, Verdict, VerdictChange};

/// Sources whose objects of one service name changed.
type ChangedSources = SmallVec<[Source; 1]>;

/// Writes the rows that objects define into the tables.
#[derive(Debug)]
pub struct Reflector {
    precedence: Precedence,
    /// Whether the writer has the current precedence.
    precedence_written: bool,
    /// Sources whose backends are quarantined because their lease expired
    /// ([`crate::sources`]).
    quarantined: BTreeSet<Source>,
    /// Arm of backends that set none.
    arm: ArmName,
    /// Range of ports that are node ports.
    node_ports: RangeInclusive<u16>,
    /// Ports in use by the appliance itself.
    reserved: Reserved,
    /// Lists of backends by service.
    lists: Lists,
    /// Names of rejected services, by the name of the service in the tables that owns an address
    /// they need or has their name. They are written again when that service changes or is deleted.
    waiting: BTreeMap<Name, BTreeSet<Name>>,
    /// Published verdicts on objects that are not accepted.
    verdicts: BTreeMap<Key, Verdict>,
}

impl Reflector {
    /// Creates a reflector that has applied no objects. Pass [`Objects::as_events`] to its first
    /// [`Reflector::apply`].
    pub fn new(precedence: Precedence, arm: ArmName) -> Reflector {
        let (lists, waiting, verdicts) = (Lists::default(), BTreeMap::new(), BTreeMap::new());
        let (precedence_written, quarantined) = (false, BTreeSet::new());
        let (node_ports, reserved) = (NODE_PORTS, Reserved::default());
        Reflector {
            precedence,
            precedence_written,
            quarantined,
            arm,
            node_ports,
            reserved,
            lists,
            waiting,
            verdicts,
        }
    }

    /// Returns the reflector with this range of node ports.
    #[must_use]
    pub fn with_node_ports(self, node_ports: RangeInclusive<u16>) -> Reflector {
        Reflector { node_ports, ..self }
    }

    /// Returns the reflector with these ports in use by the appliance.
    #[must_use]
    pub fn with_reserved(self, reserved: Reserved) -> Reflector {
        Reflector { reserved, ..self }
    }

    /// Sets the ports that the appliance itself uses. Services with a frontend on one of these
    /// ports, or on one that the appliance used before, are written again. Returns changed
    /// verdicts, as [`Reflector::apply`] does.
    pub fn set_reserved(
        &mut self,
        reserved: Reserved,
        objects: &Objects,
        to: &mut Transaction<'_>,
    ) -> Vec<VerdictChange> {
        if reserved == self.reserved {
            return Vec::new();
        }
        let before = mem::replace(&mut self.reserved, reserved);
        let concerned = objects.of_kind(Kind::Service).filter(|object| {
            let Spec::Service(spec) = &object.spec else { return false };
            reserved_of(&before, spec).is_some() || reserved_of(&self.reserved, spec).is_some()
        });
        let services =
            concerned.map(|object| (object.name.clone(), ChangedSources::new())).collect();
        self.write_services(objects, services, to)
    }

    /// Returns the verdict on a service's object.
    pub fn verdict(&self, key: &Key) -> Verdict {
        self.verdicts.get(key).cloned().unwrap_or(Verdict::Accepted)
    }

    /// Sets the precedence of sources. The preferred source of each service is selected again;
    /// services without a change are not written. Returns changed verdicts, as [`Reflector::apply`]
    /// does.
    pub fn set_precedence(
        &mut self,
        precedence: Precedence,
        objects: &Objects,
        to: &mut Transaction<'_>,
    ) -> Vec<VerdictChange> {
        if precedence == self.precedence {
            return Vec::new();
        }
        self.precedence = precedence;
        self.write_precedence(to);
        let mut names: Vec<&Name> = objects.of_kind(Kind::Service).map(|o| &o.name).collect();
        // Only names that several sources have can change their preferred source.
        names = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        let services =
            names.into_iter().map(|name| (name.clone(), ChangedSources::new())).collect();
        self.write_services(objects, services, to)
    }

    /// Passes the precedence to the writer.
    fn write_precedence(&mut self, to: &mut Transaction<'_>) {
        to.set_precedence(self.precedence.demote(&self.quarantined));
        self.precedence_written = true;
    }

    /// Writes the changes of events into the tables. `objects` is the state after all events.
    /// Returns changed verdicts on services.
    pub fn apply(
        &mut self,
        objects: &Objects,
        events: &[Event],
        to: &mut Transaction<'_>,
    ) -> Vec<VerdictChange> {
        let mut services = BTreeMap::<Name, ChangedSources>::new();
        let mut backends = BTreeMap::<(Name, Source), Vec<Endpoint>>::new();
        let toggled = self.update_quarantined(events);
        if !toggled.is_empty() || !self.precedence_written {
            self.write_precedence(to);
        }
        for event in events.iter().filter(|event| changes_tables(event)) {
            for (service, endpoints) in changed_endpoints(event) {
                let Some(object) = event.object() else { continue };
                let of = backends.entry((service.clone(), object.source.clone())).or_default();
                of.extend(endpoints);
            }
            for object in [&event.before, &event.after].into_iter().flatten() {
                match &object.spec {
                    Spec::Service(_) => {
                        let sources = services.entry(object.name.clone()).or_default();
                        if !sources.contains(&object.source) {
                            sources.push(object.source.clone());
                        }
                    }
                    Spec::Backends(_)
                    | Spec::Appliance(_)
                    | Spec::Source(_)
                    | Spec::BgpPeeringPolicy(_)
                    | Spec::PrivateLinkService(_) => {}
                }
            }
            self.update_lists(event);
        }
        let changes = self.write_services(objects, services, to);
        for ((service, source), mut endpoints) in backends {
            endpoints.sort_unstable();
            endpoints.dedup();
            let instances = self.instances(&service, &source, Some(&endpoints));
            to.set_backends_at(&service, &source, &endpoints, instances);
        }
        if !toggled.is_empty() {
            let lists = self.lists.iter().filter(|(list, _)| toggled.contains(&list.source));
            let of: BTreeSet<_> = lists.map(|(list, spec)| (&spec.service, &list.source)).collect();
            for (service, source) in of {
                to.set_backends(service, source, self.instances(service, source, None));
            }
        }
        changes
    }

    /// Writes these services from their preferred sources, and the services that waited for one of
    /// them or for a service that the tables no longer have.
    fn write_services(
        &mut self,
        objects: &Objects,
        mut services: BTreeMap<Name, ChangedSources>,
        to: &mut Transaction<'_>,
    ) -> Vec<VerdictChange> {
        let is_released =
            |owner: &Name| services.contains_key(owner) || to.tables().service(owner).is_none();
        let owners: Vec<Name> =
            self.waiting.keys().filter(|owner| is_released(owner)).cloned().collect();
        for name in owners.iter().filter_map(|owner| self.waiting.remove(owner)).flatten() {
            services.entry(name).or_default();
        }
        // Two services may exchange addresses, so all release theirs before any gets a new one.
        let preferred: Vec<_> = services
            .into_iter()
            .map(|(name, sources)| (self.preferred(objects, &name), name, sources))
            .collect();
        for (object, name, sources) in &preferred {
            release(to, name, object.as_deref(), sources, objects);
        }
        let mut changes = Vec::new();
        for (object, name, _) in preferred {
            self.write(objects, &name, object, to, &mut changes);
        }
        changes
    }

    /// Records which sources are quarantined; returns the sources whose quarantine began or ended.
    fn update_quarantined(&mut self, events: &[Event]) -> BTreeSet<Source> {
        let mut toggled = BTreeSet::new();
        for event in events {
            let Some(object) = event.object().filter(|o| o.kind() == Kind::Source) else {
                continue;
            };
            let quarantined = event.after.as_ref().is_some_and(|o| sources::is_quarantined(o));
            let changed = match quarantined {
                true => self.quarantined.insert(object.source.clone()),
                false => self.quarantined.remove(&object.source),
            };
            if changed && !toggled.remove(&object.source) {
                toggled.insert(object.source.clone());
            }
        }
        toggled
    }

    /// Updates the lists of backends.
    fn update_lists(&mut self, event: &Event) {
        if let Some((before, _)) = event.before.as_ref().and_then(backends_of) {
            self.lists.remove(before);
        }
        if let Some((after, _)) = event.after.as_ref().and_then(backends_of)
            && after.lifecycle().deletion.is_none()
        {
            self.lists.insert(Arc::clone(after));
        }
    }

    /// Returns the preferred source's object for a service name; objects in deletion do not count.
    fn preferred(&self, objects: &Objects, name: &Name) -> Option<Arc<Object>> {
        let candidates =
            objects.named(Kind::Service, name).filter(|o| o.lifecycle().deletion.is_none());
        candidates.min_by_key(|object| self.precedence.rank(&object.source)).cloned()
    }

    /// Writes the preferred object of a service name, and appends to `changes` the changed verdicts
    /// on all objects of that name.
    fn write(
        &mut self,
        objects: &Objects,
        name: &Name,
        preferred: Option<Arc<Object>>,
        to: &mut Transaction<'_>,
        changes: &mut Vec<VerdictChange>,
    ) {
        let written = preferred.as_ref().and_then(|object| {
            let Spec::Service(spec) = &object.spec else { return None };
            let checked = Checked::new(Arc::clone(spec)).map_err(|cause| Error::InvalidSpec {
                service: name.clone(),
                cause: Box::new(cause),
            });
            Some(checked.and_then(|checked| {
                self.check_ports(name, &checked)?;
                let frontends = frontends(&checked);
                to.upsert_service_and_frontends(row(object, checked), frontends)
            }))
        });
        let verdict = match written {
            Some(Err(error)) => {
                let owner = match &error {
                    Error::FrontendConflict { owner, .. } => Some(owner),
                    Error::ServiceConflict { name, .. } => Some(name),
                    _ => None,
                };
                if let Some(owner) = owner {
                    self.waiting.entry(owner.clone()).or_default().insert(name.clone());
                }
                Verdict::Rejected(error)
            }
            _ => Verdict::Accepted,
        };
        let named: SmallVec<[_; 2]> = objects.named(Kind::Service, name).collect();
        let was_published = named.iter().any(|object| was_rejected(object));
        if verdict == Verdict::Accepted
            && self.verdicts.is_empty()
            && !was_published
            && named.len() < 2
        {
            return;
        }
        let mut current: BTreeMap<Key, (u64, Verdict, bool)> = BTreeMap::new();
        for object in named {
            let verdict = match &preferred {
                Some(used) if used.source == object.source => verdict.clone(),
                Some(used) => Verdict::Shadowed(used.source.clone()),
                None => Verdict::Accepted,
            };
            current.insert(object.key(), (object.generation, verdict, was_rejected(object)));
        }
        self.verdicts.retain(|key, _| key.name != *name || current.contains_key(key));
        for (key, (generation, verdict, rejected)) in current {
            let before = match &verdict {
                Verdict::Accepted => self.verdicts.remove(&key),
                verdict => self.verdicts.insert(key.clone(), verdict.clone()),
            };
            // A verdict stored by an earlier process may no longer hold.
            let stale = before.is_none() && verdict == Verdict::Accepted && rejected;
            if stale || before.unwrap_or(Verdict::Accepted) != verdict {
                changes.push(VerdictChange { key, generation, verdict });
            }
        }
    }

    /// Rejects a service that uses a port of the appliance itself, or a node port out of range.
    fn check_ports(&self, service: &Name, spec: &ServiceSpec) -> Result<(), Error> {
        if let Some((frontend, holder)) = reserved_of(&self.reserved, spec) {
            let (service, address) = (service.clone(), frontend.address);
            return Err(Error::ReservedPort { service, address, holder: holder.into() });
        }
        let wrong = |frontend: &&FrontendSpec| {
            frontend.kind == FrontendKind::NodePort
                && !self.node_ports.contains(&frontend.address.port)
        };
        let Some(frontend) = spec.frontends.iter().find(wrong) else { return Ok(()) };
        let (first, last) = (*self.node_ports.start(), *self.node_ports.end());
        Err(Error::NodePortOutOfRange {
            service: service.clone(),
            port: frontend.address.port,
            first,
            last,
        })
    }

    /// Returns the instances of a service from all lists of a source, or only those at the given
    /// endpoints, which must be sorted.
    fn instances(
        &self,
        service: &Name,
        source: &Source,
        among: Option<&[Endpoint]>,
    ) -> Vec<Instance> {
        let is_selected = |member: &&BackendSpec| {
            among.is_none_or(|endpoints| endpoints.binary_search(&member.endpoint()).is_ok())
        };
        let lists = self.lists.of(service).into_iter();
        let lists = lists.filter(|object| object.source == *source).filter_map(backends_of);
        let mut all: Vec<Instance> = Vec::new();
        let mut several = false;
        for (_, spec) in lists {
            several |= !all.is_empty();
            let quarantined = self.quarantined.contains(source);
            let instance = |member| instance(member, service, source, self.arm, quarantined);
            all.extend(spec.endpoints.iter().filter(is_selected).map(instance));
        }
        if several {
            // Two lists may have the same backend, for example while Kubernetes moves it to another
            // EndpointSlice. It then has the port names of both, and the more active state.
            all.sort_by_key(|instance| (instance.endpoint, instance.state));
            all.dedup_by(|later, first| {
                let same = later.endpoint == first.endpoint;
                if same {
                    merge_port_names(&mut first.port_names, mem::take(&mut later.port_names));
                }
                same
            });
        }
        all
    }
}

/// Returns the endpoints that an event adds to a list of backends, changes or removes, with the
/// list's service. A list in deletion counts as empty.
fn changed_endpoints(event: &Event) -> Vec<(&Name, Vec<Endpoint>)> {
    fn of(object: &Option<Arc<Object>>) -> Option<&BackendsSpec> {
        let object = object.as_ref().filter(|object| object.lifecycle().deletion.is_none())?;
        backends_of(object).map(|(_, spec)| spec)
    }
    fn all(spec: &BackendsSpec) -> Vec<Endpoint> {
        spec.endpoints.iter().map(BackendSpec::endpoint).collect()
    }
    match (of(&event.before), of(&event.after)) {
        (Some(before), Some(after)) if before.service == after.service => {
            let mut previous: foldhash::HashMap<Endpoint, &BackendSpec> =
                before.endpoints.iter().map(|member| (member.endpoint(), member)).collect();
            let is_changed =
                |member: &&BackendSpec| previous.remove(&member.endpoint()) != Some(*member);
            let changed = after.endpoints.iter().filter(is_changed).map(BackendSpec::endpoint);
            let mut endpoints: Vec<Endpoint> = changed.collect();
            endpoints.extend(previous.into_keys());
            vec![(&after.service, endpoints)]
        }
        (before, after) => {
            before.into_iter().chain(after).map(|spec| (&spec.service, all(spec))).collect()
        }
    }
}

/// Returns whether an event may change the tables: a change of status does not, the start of a
/// deletion does.
fn changes_tables(event: &Event) -> bool {
    match (&event.before, &event.after) {
        (Some(before), Some(after)) => {
            !before.same_desired_state(after)
                || before.lifecycle().deletion.is_some() != after.lifecycle().deletion.is_some()
        }
        _ => true,
    }
}

/// Removes from the tables what a service no longer has: its frontends that `preferred` does not
/// define, or the service with all frontends if no source or another source defines it now.
/// `sources` are the sources whose objects of this name changed.
fn release(
    to: &mut Transaction<'_>,
    name: &Name,
    preferred: Option<&Object>,
    sources: &[Source],
    objects: &Objects,
) {
    let Some(entry) = to.tables().entry(name).cloned() else { return };
    let Some(service) = &entry.service else { return };
    // A service that another component wrote directly, without an object, is not deleted.
    let is_from_objects = || {
        sources.contains(&service.source)
            || objects.named(Kind::Service, name).any(|object| object.source == service.source)
    };
    match preferred.map(|object| (&object.source, &object.spec)) {
        Some((source, Spec::Service(spec))) if *source == service.source => {
            let desired = frontends(spec);
            for row in &entry.frontends {
                if !desired.iter().any(|frontend| frontend.address == *row.address()) {
                    // The deletion cannot fail: the row was read in this transaction.
                    let _ = to.delete_frontend(row.address());
                }
            }
        }
        _ if is_from_objects() => {
            let _ = to.delete_service_and_frontends(name, &service.source);
        }
        _ => {}
    }
}
