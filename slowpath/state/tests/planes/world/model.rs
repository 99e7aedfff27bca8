//! Expected contents of the maps, computed in the simplest way: from scratch, all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use config::checked::Prefix;
use config::services::{Algorithm, TrafficPolicy};
use state::address::{Address, Endpoint, Reach};
use state::backend::{Instance, State};
use state::dump::Flags;
use state::frontend::Kind;
use state::object::FrontendSpec;
use state::service::Service;
use tables::maglev::{self, MaglevBackend, Seed};

use super::MAGLEV_SIZE;

/// Services and instances as written by their sources: 0, which is preferred, and 1.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub services: BTreeMap<u8, (Service, Vec<FrontendSpec>)>,
    pub instances: BTreeMap<(u8, Endpoint, u8), Instance>,
    /// Health check verdicts, by service and endpoint.
    pub healthy: BTreeMap<(u8, Endpoint), bool>,
    pub addresses: Vec<IpAddr>,
}

/// Instance in the model.
struct Chosen<'a> {
    instance: &'a Instance,
    state: State,
    bad: bool,
}

impl Model {
    /// Returns the service whose frontend is at an address.
    pub fn owner(&self, address: &Address) -> Option<u8> {
        let has = |saids: &Vec<FrontendSpec>| saids.iter().any(|said| said.address == *address);
        self.services.iter().find(|(_, (_, saids))| has(saids)).map(|(number, _)| *number)
    }

    /// Returns the lines of a dump without identifiers.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut backends: BTreeMap<Endpoint, State> = BTreeMap::new();
        for (number, (service, saids)) in &self.services {
            for said in saids {
                for address in self.addresses_of(said) {
                    let said = FrontendSpec { address, ..said.clone() };
                    let chosen = self.choose(*number, service, &said);
                    for chosen in &chosen {
                        let state = chosen.instance.state;
                        let at = backends.entry(chosen.instance.endpoint).or_insert(state);
                        *at = state.min(*at);
                    }
                    frontend(&mut lines, service, &said, &chosen);
                }
            }
        }
        for (endpoint, state) in backends {
            lines.push(format!("BE: ADDR={endpoint} STATE={}", state.as_str()));
        }
        lines.sort();
        lines
    }

    /// Returns a frontend's own address, and those that it is copied to.
    fn addresses_of(&self, said: &FrontendSpec) -> BTreeSet<Address> {
        let mut addresses = BTreeSet::from([said.address]);
        let everywhere = said.address.prefix.addr.is_unspecified();
        if everywhere && matches!(said.kind, Kind::NodePort | Kind::HostPort) {
            for addr in &self.addresses {
                let prefix = Prefix { addr: *addr, ..said.address.prefix };
                let copy = Address { prefix, ..said.address };
                if addr.is_ipv4() == said.address.is_ipv4() && self.owner(&copy).is_none() {
                    addresses.insert(copy);
                }
            }
        }
        addresses
    }

    fn choose(&self, number: u8, service: &Service, said: &FrontendSpec) -> Vec<Chosen<'_>> {
        let policy = match (said.kind, said.address.reach) {
            (Kind::ClusterIp, _) | (_, Reach::Internal) => service.spec.internal_policy,
            (Kind::HostPort, _) => TrafficPolicy::Cluster,
            _ => service.spec.external_policy,
        };
        let mut chosen: Vec<Chosen<'_>> = Vec::new();
        for ((of, endpoint, source), instance) in &self.instances {
            let shadow = *source == 1 && self.instances.contains_key(&(number, *endpoint, 0));
            let elsewhere = instance.place.as_ref().is_some_and(|place| !place.node.is_empty());
            let bad = self.healthy.get(&(number, *endpoint)) == Some(&false);
            let state = match instance.state {
                State::Active if instance.weight == 0 => State::Maintenance,
                State::Active | State::Terminating if bad => State::Quarantined,
                State::Terminating if instance.weight == 0 => State::TerminatingNotServing,
                state => state,
            };
            if *of == number
                && !shadow
                && endpoint.protocol == said.address.protocol
                && endpoint.addr.is_ipv4() == said.address.is_ipv4()
                && !(elsewhere && policy == TrafficPolicy::Local)
                && state != State::Maintenance
            {
                chosen.push(Chosen { instance, state, bad });
            }
        }
        chosen.sort_by_key(|chosen| (chosen.bad, chosen.state, chosen.instance.endpoint));
        chosen
    }
}

/// Returns how many of the backends, from the first, get new flows.
fn count(chosen: &[Chosen<'_>]) -> usize {
    let of = |state| chosen.iter().filter(|chosen| chosen.state == state).count();
    if of(State::Active) > 0 { of(State::Active) } else { of(State::Terminating) }
}

fn frontend(
    lines: &mut Vec<String>,
    service: &Service,
    said: &FrontendSpec,
    chosen: &[Chosen<'_>],
) {
    let address = said.address;
    let flags = Flags::of(said, &service.spec, false);
    let serving = count(chosen);
    let algorithm = match service.spec.algorithm {
        Algorithm::Maglev => "maglev",
        Algorithm::Random => "random",
    };
    lines.push(format!(
        "SVC: ADDR={address} SLOT=0 LBALG={algorithm} AFFTimeout={} COUNT={serving} QCOUNT={} \
         FLAGS={flags}",
        service.spec.affinity_s,
        chosen.len() - serving
    ));
    for (number, backend) in (1..).zip(chosen) {
        let flags = flags.of_slot(backend.state == State::Quarantined);
        let endpoint = backend.instance.endpoint;
        lines.push(format!(
            "SVC: ADDR={address} SLOT={number} BEID={endpoint} COUNT=0 QCOUNT=0 FLAGS={flags}"
        ));
        if service.spec.affinity_s > 0 && backend.state == State::Active {
            lines.push(format!("AFF: ID={address} BEID={endpoint}"));
        }
    }
    let text = address.to_string();
    lines.push(format!(
        "REV: ADDR={}",
        text.split_at(text.rfind(':').unwrap()).0.to_owned() + &format!(":{}", address.port)
    ));
    for prefix in service.spec.source_ranges.iter().flat_map(|ranges| &ranges.prefixes) {
        lines.push(format!("SRCRANGE: ID={address} CIDR={}/{}", prefix.addr, prefix.len));
    }
    if service.spec.algorithm == Algorithm::Maglev && flags.has(Flags::ROUTABLE) && serving > 0 {
        lines.push(format!("MAGLEV: ID={address} INNER=[{}]", inner(&chosen[..serving])));
    }
}

fn inner(serving: &[Chosen<'_>]) -> String {
    let backend = |chosen: &Chosen<'_>| {
        let Endpoint { addr, port, protocol } = chosen.instance.endpoint;
        let protocol = if protocol == 6 { "TCP" } else { "UDP" };
        let text = maglev::text(&addr.into(), port, protocol);
        MaglevBackend { text, weight: u32::from(chosen.instance.weight) }
    };
    let backends: Vec<MaglevBackend> = serving.iter().map(backend).collect();
    let table = maglev::build(&backends, MAGLEV_SIZE, Seed::default());
    let mut counts: Vec<(usize, Endpoint)> = (0..serving.len() as u32)
        .map(|index| {
            let slots = table.iter().filter(|slot| **slot == index).count();
            (slots, serving[index as usize].instance.endpoint)
        })
        .filter(|(slots, _)| *slots > 0)
        .collect();
    counts.sort_by_key(|(slots, endpoint)| (std::cmp::Reverse(*slots), *endpoint));
    let parts: Vec<String> =
        counts.into_iter().map(|(slots, endpoint)| format!("{endpoint}({slots})")).collect();
    parts.join(", ")
}
