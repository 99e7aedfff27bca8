//! From objects to the tables: which services, frontends and backends there shall be.
//!
//! Everything may be told again and again; the writer drops what is so already. Of several sources
//! that say something under one service's name, the preferred one is heard and the others wait.
//! An address that another service has is waited for: nothing depends on who came first but who
//! has it meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::ops::RangeInclusive;
use std::sync::Arc;

use config::checked::ArmName;
use smallvec::SmallVec;

use crate::address::Reach;
use crate::appliance::{Appliance, NODE_PORTS};
use crate::backend::Instance;
use crate::frontend::{Kind as FrontendKind, Said};
use crate::name::{Name, Precedence, Source};
use crate::object::{
    ApplianceSpec, BackendsSpec, Event, Key, Kind, Member, Object, Objects, ServiceSpec, Spec,
};
use crate::room::give_back;
use crate::service::Service;
use crate::writer::{Error, Transaction};

#[cfg(test)]
mod tests;
mod verdict;

pub use verdict::{ACCEPTED, Told, Verdict};

/// Sources whose objects of one name have changed.
type Sources = SmallVec<[Source; 1]>;

/// Writes objects into the tables.
#[derive(Debug)]
pub struct Reflector {
    precedence: Precedence,
    /// The arm of backends that don't say theirs.
    arm: ArmName,
    /// Ports that are node ports.
    node_ports: RangeInclusive<u16>,
    /// Lists of backends by service.
    lists: HashMap<Name, SmallVec<[Arc<Object>; 1]>>,
    /// Services that wait for what another has, by the other's name.
    waiting: BTreeMap<Name, BTreeSet<Name>>,
    /// What was told of objects that aren't accepted.
    told: BTreeMap<Key, Verdict>,
}

impl Reflector {
    /// Has seen nothing yet: it begins with [`Objects::as_events`].
    pub fn new(precedence: Precedence, arm: ArmName) -> Reflector {
        let (lists, waiting, told) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        Reflector { precedence, arm, node_ports: NODE_PORTS, lists, waiting, told }
    }

    /// The same where these are node ports.
    #[must_use]
    pub fn with_node_ports(self, node_ports: RangeInclusive<u16>) -> Reflector {
        Reflector { node_ports, ..self }
    }

    /// What became of an object that was told of.
    pub fn verdict(&self, key: &Key) -> Verdict {
        self.told.get(key).cloned().unwrap_or(Verdict::Accepted)
    }

    /// Writes what has changed; `objects` is how all of them are after that. Tells what is news of
    /// services that are not, or now are, in the tables.
    pub fn apply(
        &mut self,
        objects: &Objects,
        events: &[Event],
        to: &mut Transaction<'_>,
    ) -> Vec<Told> {
        let (mut services, mut backends) = (BTreeMap::<Name, Sources>::new(), BTreeSet::new());
        for event in events.iter().filter(|event| is_news(event)) {
            for object in [&event.before, &event.after].into_iter().flatten() {
                match &object.spec {
                    Spec::Service(_) => {
                        let sources = services.entry(object.name.clone()).or_default();
                        if !sources.contains(&object.source) {
                            sources.push(object.source.clone());
                        }
                    }
                    Spec::Backends(spec) => {
                        backends.insert((spec.service.clone(), object.source.clone()));
                    }
                    Spec::Appliance(_) => {}
                }
            }
            self.list(event);
        }
        let is_over =
            |owner: &Name| services.contains_key(owner) || to.tables().service(owner).is_none();
        let over: Vec<Name> = self.waiting.keys().filter(|owner| is_over(owner)).cloned().collect();
        for name in over.iter().filter_map(|owner| self.waiting.remove(owner)).flatten() {
            services.entry(name).or_default();
        }
        // What services give up is free before any takes it: addresses may move, even crosswise.
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
        for (service, source) in backends {
            to.set_backends(&service, &source, self.instances(&service, &source));
        }
        news
    }

    /// Keeps the lists of backends by service.
    fn list(&mut self, event: &Event) {
        if let Some((before, spec)) = event.before.as_ref().and_then(backends_of)
            && let Some(lists) = self.lists.get_mut(&spec.service)
        {
            lists.retain(|o| o.name != before.name || o.source != before.source);
            if lists.is_empty() {
                self.lists.remove(&spec.service);
                give_back(&mut self.lists);
            }
        }
        if let Some((after, spec)) = event.after.as_ref().and_then(backends_of)
            && after.life().deletion.is_none()
        {
            self.lists.entry(spec.service.clone()).or_default().push(after.clone());
        }
    }

    /// The object that is heard under a service's name.
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
        let written =
            chosen.as_ref().and_then(|object| {
                let Spec::Service(spec) = &object.spec else { return None };
                let written = self.node_ports_of(name, spec);
                Some(written.and_then(|()| {
                    to.upsert_service_and_frontends(row(object, spec), frontends(spec))
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
        let named = || objects.named(Kind::Service, name);
        if verdict == Verdict::Accepted && self.told.is_empty() && named().nth(1).is_none() {
            return;
        }
        let mut now: BTreeMap<Key, (u64, Verdict)> = BTreeMap::new();
        for object in named() {
            let verdict = match &chosen {
                Some(heard) if heard.source == object.source => verdict.clone(),
                Some(heard) => Verdict::Shadowed(heard.source.clone()),
                None => Verdict::Accepted,
            };
            now.insert(object.key(), (object.generation, verdict));
        }
        self.told.retain(|key, _| key.name != *name || now.contains_key(key));
        for (key, (generation, verdict)) in now {
            let before = match &verdict {
                Verdict::Accepted => self.told.remove(&key),
                verdict => self.told.insert(key.clone(), verdict.clone()),
            };
            if before.unwrap_or(Verdict::Accepted) != verdict {
                news.push(Told { key, generation, verdict });
            }
        }
    }

    /// Refuses a service one of whose node ports is none.
    fn node_ports_of(&self, service: &Name, spec: &ServiceSpec) -> Result<(), Error> {
        let wrong = |said: &&Said| {
            said.kind == FrontendKind::NodePort && !self.node_ports.contains(&said.address.port)
        };
        let Some(said) = spec.frontends.iter().find(wrong) else { return Ok(()) };
        let (first, last) = (*self.node_ports.start(), *self.node_ports.end());
        Err(Error::NoNodePort { service: service.clone(), port: said.address.port, first, last })
    }

    /// What a source says of a service's backends, over all its lists.
    fn instances(&self, service: &Name, source: &Source) -> Vec<Instance> {
        let lists = self.lists.get(service).into_iter().flatten();
        let lists = lists.filter(|object| object.source == *source).filter_map(backends_of);
        let mut all: Vec<Instance> = Vec::new();
        let mut several = false;
        for (_, spec) in lists {
            several |= !all.is_empty();
            let instance = |member| instance(member, service, source, self.arm);
            all.extend(spec.endpoints.iter().map(instance));
        }
        if several {
            // A backend may be in two lists for a while: all its names count, and the better state.
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

/// None named is all.
fn merge_names(first: &mut Instance, later: SmallVec<[Arc<str>; 1]>) {
    if first.port_names.is_empty() || later.is_empty() {
        first.port_names.clear();
        return;
    }
    for name in later {
        if !first.port_names.contains(&name) {
            first.port_names.push(name);
        }
    }
}

/// Whether anything that matters here has changed: a status doesn't.
fn is_news(event: &Event) -> bool {
    match (&event.before, &event.after) {
        (Some(before), Some(after)) => {
            !before.wants_as(after)
                || before.life().deletion.is_some() != after.life().deletion.is_some()
        }
        _ => true,
    }
}

fn backends_of(object: &Arc<Object>) -> Option<(&Arc<Object>, &BackendsSpec)> {
    match &object.spec {
        Spec::Backends(spec) => Some((object, spec)),
        _ => None,
    }
}

/// Takes out of the tables what a service gives up: all of it when nobody says what it is any more,
/// or somebody else does, and else the addresses that it had and doesn't want.
fn release(
    to: &mut Transaction<'_>,
    name: &Name,
    chosen: Option<&Object>,
    sources: &[Source],
    objects: &Objects,
) {
    let Some(entry) = to.tables().entry(name).cloned() else { return };
    let Some(service) = &entry.service else { return };
    // Services that others write, a local redirection say, are not ours to delete.
    let is_ours = || {
        sources.contains(&service.source)
            || objects.named(Kind::Service, name).any(|object| object.source == service.source)
    };
    match chosen.map(|object| (&object.source, &object.spec)) {
        Some((source, Spec::Service(spec))) if *source == service.source => {
            let wanted = frontends(spec);
            for row in &entry.frontends {
                if !wanted.iter().any(|said| said.address == *row.address()) {
                    // It is there: its entry was read in this transaction.
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

/// The frontends, with those for packets from within where the policies differ: cluster addresses
/// follow the internal policy alone, and host ports none.
fn frontends(spec: &ServiceSpec) -> Vec<Said> {
    let mut all = spec.frontends.clone();
    if spec.external_policy != spec.internal_policy {
        let single = [FrontendKind::ClusterIp, FrontendKind::HostPort];
        for said in &spec.frontends {
            let inner = Said { address: said.address.internal(), ..said.clone() };
            let is_there = spec.frontends.iter().any(|other| other.address == inner.address);
            if said.address.reach == Reach::External && !single.contains(&said.kind) && !is_there {
                all.push(inner);
            }
        }
    }
    all
}

fn row(object: &Object, spec: &ServiceSpec) -> Service {
    Service {
        name: object.name.clone(),
        source: object.source.clone(),
        labels: object.labels.clone(),
        annotations: object.annotations.clone(),
        properties: spec.properties.clone(),
        nat_policy: spec.nat_policy,
        external_policy: spec.external_policy,
        internal_policy: spec.internal_policy,
        distribution: spec.distribution,
        mode: spec.mode,
        algorithm: spec.algorithm,
        loopback_host_port: spec.loopback_host_port,
        delegate_if_local: spec.delegate_if_local,
        affinity_s: spec.affinity_s,
        health_check_port: spec.health_check_port,
        health: spec.health.clone(),
        mss: spec.mss,
        tcp_idle_s: spec.tcp_idle_s,
        table_size: spec.table_size,
        too_big: spec.too_big,
        redirect: spec.proxy_redirect.clone(),
        source_ranges: spec.source_ranges.clone(),
        port_names: spec.port_names.clone(),
    }
}

fn instance(member: &Member, service: &Name, source: &Source, arm: ArmName) -> Instance {
    Instance {
        weight: member.weight,
        state: member.state,
        arm: member.arm.unwrap_or(arm),
        port_names: member.port_names.clone(),
        place: member.place.clone(),
        probe: member.probe,
        ..Instance::new(member.endpoint(), service.clone(), source.clone())
    }
}

/// The appliance as selection and planes see it.
pub fn appliance(object: &Object, spec: &ApplianceSpec) -> Appliance {
    let [first, last] = spec.node_ports;
    Appliance {
        name: object.name.as_str().into(),
        labels: object.labels.clone(),
        zone: spec.zone.clone(),
        local: spec.local.clone(),
        addresses: spec.addresses.clone(),
        cluster: spec.cluster,
        external_cluster_ip: spec.external_cluster_ip,
        node_ports: first..=last,
        zone_aware: spec.zone_aware,
    }
}
