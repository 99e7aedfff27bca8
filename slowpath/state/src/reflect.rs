//! Reflector: derives the services, frontends and backends of the tables from objects.
//!
//! All operations are idempotent; the writer drops what changes nothing. Of several sources with a
//! service of one name, the preferred source's service is written and the others wait. A service
//! whose address belongs to another service waits until that one gives it up, whatever their order
//! of arrival. Backends of a quarantined source get no new flows, and other sources' instances of
//! the same endpoint take precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::RangeInclusive;
use std::sync::Arc;

use config::checked::{ArmName, Reserved};
use smallvec::SmallVec;

use crate::address::Endpoint;
use crate::appliance::NODE_PORTS;
use crate::backend::Instance;
use crate::frontend::Kind as FrontendKind;
use crate::name::{Name, Precedence, Source};
use crate::object::{
    BackendSpec, BackendsSpec, Checked, Event, FrontendSpec, Key, Kind, Object, Objects,
    ServiceSpec, Spec,
};
use crate::sources;
use crate::writer::{Error, Transaction};

mod ignored;
mod lists;
mod rows;
#[cfg(test)]
mod tests;
mod told;

pub use ignored::{COMPLETE, completeness};
use lists::{Lists, backends_of};
use rows::{frontends, instance, merge_names, reserved_of, row};
use told::was_refused;
pub use told::{ACCEPTED, Told, Verdict};

/// Sources whose objects of one name changed.
type Sources = SmallVec<[Source; 1]>;

/// Writes objects into the tables.
#[derive(Debug)]
pub struct Reflector {
    precedence: Precedence,
    /// Whether the writer has the current precedence.
    ranked: bool,
    /// Sources that are quarantined ([`crate::sources`]).
    silent: BTreeSet<Source>,
    /// Arm of backends that set none.
    arm: ArmName,
    /// Range of ports that are node ports.
    node_ports: RangeInclusive<u16>,
    /// Ports in use by the appliance itself.
    reserved: Reserved,
    /// Lists of backends by service.
    lists: Lists,
    /// Services that wait for something another service has, by the other's name.
    waiting: BTreeMap<Name, BTreeSet<Name>>,
    /// Published verdicts on objects that are not accepted.
    told: BTreeMap<Key, Verdict>,
}

impl Reflector {
    /// Creates a reflector that has seen no objects; start it with [`Objects::as_events`].
    pub fn new(precedence: Precedence, arm: ArmName) -> Reflector {
        let (lists, waiting, told) = (Lists::default(), BTreeMap::new(), BTreeMap::new());
        let (ranked, silent) = (false, BTreeSet::new());
        let (node_ports, reserved) = (NODE_PORTS, Reserved::default());
        Reflector { precedence, ranked, silent, arm, node_ports, reserved, lists, waiting, told }
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

    /// Sets the ports that the appliance itself uses. Services that use one of them, or one that is
    /// now free, are judged again. Returns changed verdicts, as [`Reflector::apply`] does.
    pub fn set_reserved(
        &mut self,
        reserved: Reserved,
        objects: &Objects,
        to: &mut Transaction<'_>,
    ) -> Vec<Told> {
        if reserved == self.reserved {
            return Vec::new();
        }
        let before = mem::replace(&mut self.reserved, reserved);
        let concerned = objects.of_kind(Kind::Service).filter(|object| {
            let Spec::Service(spec) = &object.spec else { return false };
            reserved_of(&before, spec).is_some() || reserved_of(&self.reserved, spec).is_some()
        });
        let services = concerned.map(|object| (object.name.clone(), Sources::new())).collect();
        self.settle(objects, services, to)
    }

    /// Returns the verdict on an object.
    pub fn verdict(&self, key: &Key) -> Verdict {
        self.told.get(key).cloned().unwrap_or(Verdict::Accepted)
    }

    /// Sets the precedence of sources. The preferred source of each service is selected again;
    /// services without a change are not written. Returns changed verdicts, as [`Reflector::apply`]
    /// does.
    pub fn set_precedence(
        &mut self,
        precedence: Precedence,
        objects: &Objects,
        to: &mut Transaction<'_>,
    ) -> Vec<Told> {
        if precedence == self.precedence {
            return Vec::new();
        }
        self.precedence = precedence;
        self.rank(to);
        let mut names: Vec<&Name> = objects.of_kind(Kind::Service).map(|o| &o.name).collect();
        // Names that several sources use.
        names = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        let services = names.into_iter().map(|name| (name.clone(), Sources::new())).collect();
        self.settle(objects, services, to)
    }

    /// Passes the precedence to the writer.
    fn rank(&mut self, to: &mut Transaction<'_>) {
        to.set_precedence(self.precedence.behind(&self.silent));
        self.ranked = true;
    }

    /// Writes changes into the tables; `objects` is the state after all events. Returns changed
    /// verdicts on services.
    pub fn apply(
        &mut self,
        objects: &Objects,
        events: &[Event],
        to: &mut Transaction<'_>,
    ) -> Vec<Told> {
        let mut services = BTreeMap::<Name, Sources>::new();
        let mut backends = BTreeMap::<(Name, Source), Vec<Endpoint>>::new();
        let turned = self.hear(events);
        if !turned.is_empty() || !self.ranked {
            self.rank(to);
        }
        for event in events.iter().filter(|event| is_news(event)) {
            for (service, endpoints) in moved(event) {
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
            self.list(event);
        }
        let news = self.settle(objects, services, to);
        for ((service, source), mut endpoints) in backends {
            endpoints.sort_unstable();
            endpoints.dedup();
            let said = self.instances(&service, &source, Some(&endpoints));
            to.set_backends_at(&service, &source, &endpoints, said);
        }
        if !turned.is_empty() {
            let lists = self.lists.iter().filter(|(list, _)| turned.contains(&list.source));
            let of: BTreeSet<_> = lists.map(|(list, spec)| (&spec.service, &list.source)).collect();
            for (service, source) in of {
                to.set_backends(service, source, self.instances(service, source, None));
            }
        }
        news
    }

    /// Writes these services from their preferred source, and the services that wait for them.
    fn settle(
        &mut self,
        objects: &Objects,
        mut services: BTreeMap<Name, Sources>,
        to: &mut Transaction<'_>,
    ) -> Vec<Told> {
        let is_over =
            |owner: &Name| services.contains_key(owner) || to.tables().service(owner).is_none();
        let over: Vec<Name> = self.waiting.keys().filter(|owner| is_over(owner)).cloned().collect();
        for name in over.iter().filter_map(|owner| self.waiting.remove(owner)).flatten() {
            services.entry(name).or_default();
        }
        // All services release their addresses before any takes one: addresses may be exchanged.
        let chosen: Vec<_> = services
            .into_iter()
            .map(|(name, sources)| (self.chosen(objects, &name), name, sources))
            .collect();
        for (object, name, sources) in &chosen {
            release(to, name, object.as_deref(), sources, objects);
        }
        let mut news = Vec::new();
        for (object, name, _) in chosen {
            self.write(objects, &name, object, to, &mut news);
        }
        news
    }

    /// Records which sources are quarantined; returns those for which that changed.
    fn hear(&mut self, events: &[Event]) -> BTreeSet<Source> {
        let mut turned = BTreeSet::new();
        for event in events {
            let Some(object) = event.object().filter(|o| o.kind() == Kind::Source) else {
                continue;
            };
            let silent = event.after.as_ref().is_some_and(|o| sources::is_quarantined(o));
            let changed = match silent {
                true => self.silent.insert(object.source.clone()),
                false => self.silent.remove(&object.source),
            };
            if changed && !turned.remove(&object.source) {
                turned.insert(object.source.clone());
            }
        }
        turned
    }

    /// Updates the lists of backends.
    fn list(&mut self, event: &Event) {
        if let Some((before, _)) = event.before.as_ref().and_then(backends_of) {
            self.lists.remove(before);
        }
        if let Some((after, _)) = event.after.as_ref().and_then(backends_of)
            && after.life().deletion.is_none()
        {
            self.lists.insert(Arc::clone(after));
        }
    }

    /// Returns the object of the preferred source of a service name.
    fn chosen(&self, objects: &Objects, name: &Name) -> Option<Arc<Object>> {
        let heard = objects.named(Kind::Service, name).filter(|o| o.life().deletion.is_none());
        heard.min_by_key(|object| self.precedence.of(&object.source)).cloned()
    }

    fn write(
        &mut self,
        objects: &Objects,
        name: &Name,
        chosen: Option<Arc<Object>>,
        to: &mut Transaction<'_>,
        news: &mut Vec<Told>,
    ) {
        let written = chosen.as_ref().and_then(|object| {
            let Spec::Service(spec) = &object.spec else { return None };
            let checked = Checked::new(Arc::clone(spec))
                .map_err(|why| Error::NoSpec { service: name.clone(), why: Box::new(why) });
            Some(checked.and_then(|checked| {
                self.ports_of(name, &checked)?;
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
                Verdict::Refused(error)
            }
            _ => Verdict::Accepted,
        };
        let named: SmallVec<[_; 2]> = objects.named(Kind::Service, name).collect();
        let told = named.iter().any(|object| was_refused(object));
        if verdict == Verdict::Accepted && self.told.is_empty() && !told && named.len() < 2 {
            return;
        }
        let mut now: BTreeMap<Key, (u64, Verdict, bool)> = BTreeMap::new();
        for object in named {
            let verdict = match &chosen {
                Some(heard) if heard.source == object.source => verdict.clone(),
                Some(heard) => Verdict::Shadowed(heard.source.clone()),
                None => Verdict::Accepted,
            };
            now.insert(object.key(), (object.generation, verdict, was_refused(object)));
        }
        self.told.retain(|key, _| key.name != *name || now.contains_key(key));
        for (key, (generation, verdict, refused)) in now {
            let before = match &verdict {
                Verdict::Accepted => self.told.remove(&key),
                verdict => self.told.insert(key.clone(), verdict.clone()),
            };
            // A verdict stored by an earlier process may no longer hold.
            let stale = before.is_none() && verdict == Verdict::Accepted && refused;
            if stale || before.unwrap_or(Verdict::Accepted) != verdict {
                news.push(Told { key, generation, verdict });
            }
        }
    }

    /// Rejects a service that uses a port of the appliance itself, or a node port out of range.
    fn ports_of(&self, service: &Name, spec: &ServiceSpec) -> Result<(), Error> {
        if let Some((said, holder)) = reserved_of(&self.reserved, spec) {
            let (service, address) = (service.clone(), said.address);
            return Err(Error::ReservedPort { service, address, holder: holder.into() });
        }
        let wrong = |said: &&FrontendSpec| {
            said.kind == FrontendKind::NodePort && !self.node_ports.contains(&said.address.port)
        };
        let Some(said) = spec.frontends.iter().find(wrong) else { return Ok(()) };
        let (first, last) = (*self.node_ports.start(), *self.node_ports.end());
        Err(Error::NoNodePort { service: service.clone(), port: said.address.port, first, last })
    }

    /// Returns the instances of a service from all lists of a source, or only those at the given
    /// endpoints, which must be sorted.
    fn instances(
        &self,
        service: &Name,
        source: &Source,
        among: Option<&[Endpoint]>,
    ) -> Vec<Instance> {
        let is_asked = |member: &&BackendSpec| {
            among.is_none_or(|endpoints| endpoints.binary_search(&member.endpoint()).is_ok())
        };
        let lists = self.lists.of(service).into_iter();
        let lists = lists.filter(|object| object.source == *source).filter_map(backends_of);
        let mut all: Vec<Instance> = Vec::new();
        let mut several = false;
        for (_, spec) in lists {
            several |= !all.is_empty();
            let silent = self.silent.contains(source);
            let instance = |member| instance(member, service, source, self.arm, silent);
            all.extend(spec.endpoints.iter().filter(is_asked).map(instance));
        }
        if several {
            // A backend may be in two lists for a while: all its port names count, and the better
            // state.
            all.sort_by_key(|instance| (instance.endpoint, instance.state));
            all.dedup_by(|later, first| {
                let same = later.endpoint == first.endpoint;
                if same {
                    merge_names(first, mem::take(&mut later.port_names));
                }
                same
            });
        }
        all
    }
}

/// Returns the endpoints whose entry in a list of backends was added, changed or removed by an
/// event, with their service. A list in deletion counts as empty.
fn moved(event: &Event) -> Vec<(&Name, Vec<Endpoint>)> {
    fn of(object: &Option<Arc<Object>>) -> Option<&BackendsSpec> {
        let object = object.as_ref().filter(|object| object.life().deletion.is_none())?;
        backends_of(object).map(|(_, spec)| spec)
    }
    fn all(spec: &BackendsSpec) -> Vec<Endpoint> {
        spec.endpoints.iter().map(BackendSpec::endpoint).collect()
    }
    match (of(&event.before), of(&event.after)) {
        (Some(before), Some(after)) if before.service == after.service => {
            let mut was: foldhash::HashMap<Endpoint, &BackendSpec> =
                before.endpoints.iter().map(|member| (member.endpoint(), member)).collect();
            let is_news = |member: &&BackendSpec| was.remove(&member.endpoint()) != Some(*member);
            let news = after.endpoints.iter().filter(is_news).map(BackendSpec::endpoint);
            let mut moved: Vec<Endpoint> = news.collect();
            moved.extend(was.into_keys());
            vec![(&after.service, moved)]
        }
        (before, after) => {
            before.into_iter().chain(after).map(|spec| (&spec.service, all(spec))).collect()
        }
    }
}

/// Returns whether an event changes the tables; changes of status do not.
fn is_news(event: &Event) -> bool {
    match (&event.before, &event.after) {
        (Some(before), Some(after)) => {
            !before.wants_as(after)
                || before.life().deletion.is_some() != after.life().deletion.is_some()
        }
        _ => true,
    }
}

/// Removes from the tables what a service gives up: everything if no source, or another source,
/// defines it now; otherwise the addresses that it no longer has.
fn release(
    to: &mut Transaction<'_>,
    name: &Name,
    chosen: Option<&Object>,
    sources: &[Source],
    objects: &Objects,
) {
    let Some(entry) = to.tables().entry(name).cloned() else { return };
    let Some(service) = &entry.service else { return };
    // Services written by other components, for example a local redirect, are not deleted.
    let is_ours = || {
        sources.contains(&service.source)
            || objects.named(Kind::Service, name).any(|object| object.source == service.source)
    };
    match chosen.map(|object| (&object.source, &object.spec)) {
        Some((source, Spec::Service(spec))) if *source == service.source => {
            let wanted = frontends(spec);
            for row in &entry.frontends {
                if !wanted.iter().any(|said| said.address == *row.address()) {
                    // It exists: its entry was read in this transaction.
                    let _ = to.delete_frontend(row.address());
                }
            }
        }
        _ if is_ours() => {
            let _ = to.delete_service_and_frontends(name, &service.source);
        }
        _ => {}
    }
}
