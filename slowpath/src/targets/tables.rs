//! The fastpath's tables as a target: says each service to the region's one writer.
//!
//! Only what changed is compiled and written. A backend that no service wants any more is drained
//! first: it keeps its flows, gets no new ones, and leaves when its last flow ends. Ids are found
//! again from the region after a restart, by name, and by address and port.

mod backends;
mod tunnels;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use config::checked::Config;
use config::services::{BackendState, Service};
use packet::addr::Addr;
use tables::maglev::Seed;
use tables::next_hop::NextHop;
use tables::record::FrontendKey;
use tables::region::{Region, RegionError};
use tables::writer::Writer;

use super::{Target, compile};
use crate::live::KnownService;
use crate::neighbours::Resolved;
use crate::state::State;
use backends::{Key, Wish};
use tunnels::Leaving;

/// Why tables could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The writer says no.
    #[error("{0}")]
    Writer(#[from] tables::writer::Refusal),
    /// The writer says no to a part of a service.
    #[error("service {service}: {refusal}")]
    Service {
        /// The service.
        service: String,
        /// What the writer said.
        refusal: tables::writer::Refusal,
    },
    /// The region is no good.
    #[error("{0}")]
    Region(#[from] RegionError),
    /// More tunnels than a table set holds.
    #[error(
        "{wanted} tunnels (gateways' and backends' together), and {leaving} that were taken away \
         in the last minutes and still drain, are more than the {room} that there is room for: \
         use fewer gateways or fewer kinds of backend tunnels, or wait for those that drain"
    )]
    Tunnels {
        /// So many are asked for.
        wanted: usize,
        /// So many leave.
        leaving: usize,
        /// So many there may be.
        room: usize,
    },
}

/// What was said of a service.
#[derive(Clone)]
struct Known {
    id: u32,
    frontends: Vec<FrontendKey>,
    /// None for one found in the region that was not said again yet.
    service: Option<Service>,
}

/// The writer, and what has to be remembered beside the tables.
pub struct Tables<'r> {
    region: &'r Region,
    writer: Writer<'r>,
    config: Arc<Config>,
    known: HashMap<String, Known>,
    /// Who answers on each frontend, so that one that moved is not taken from its new owner.
    owners: HashMap<FrontendKey, u32>,
    /// What each service asks of each backend.
    wishes: HashMap<Key, BTreeMap<String, Wish>>,
    /// Backends that leave when their last flow ends, or at this time.
    draining: HashMap<Key, Option<Instant>>,
    /// Next hops by id.
    hops: HashMap<u32, (u8, Addr)>,
    tunnel_names: Vec<(u32, String)>,
    /// Tunnels that leave, and when.
    leaving: Leaving,
    /// What to restore when the changes said since the last commit are refused.
    undo: Vec<(String, Option<Known>)>,
    swept: Option<Instant>,
}

impl<'r> Tables<'r> {
    /// Becomes the region's writer; finds what the last one left.
    pub fn attach(region: &'r Region, config: &Arc<Config>) -> Result<Tables<'r>, Refusal> {
        let mut writer = Writer::attach(region)?;
        writer.set_seed(Seed::from_bytes(config.tables.seed));
        region.set_label(tables::region::Label::Appliance, &config.name);
        let mut tables = Tables {
            region,
            writer,
            config: Arc::clone(config),
            known: HashMap::new(),
            owners: HashMap::new(),
            wishes: HashMap::new(),
            draining: HashMap::new(),
            hops: HashMap::new(),
            tunnel_names: Vec::new(),
            leaving: Leaving::new(),
            undo: Vec::new(),
            swept: None,
        };
        tables.find_owners();
        tables.find_hops();
        tables.find_leaving();
        let set = tables.writer.committed();
        let mut frontends: HashMap<u32, Vec<FrontendKey>> = HashMap::new();
        for (key, id) in &tables.owners {
            frontends.entry(*id).or_default().push(*key);
        }
        for (id, _) in set.services() {
            let Some(name) = set.service_name(id) else { continue };
            let frontends = frontends.remove(&id).unwrap_or_default();
            tables.known.insert(name, Known { id, frontends, service: None });
        }
        Ok(tables)
    }

    fn find_owners(&mut self) {
        let set = self.writer.committed();
        self.owners = set.frontends().map(|(key, id)| (*key, id)).collect();
    }

    fn find_hops(&mut self) {
        let set = self.writer.committed();
        self.hops = set.next_hops().map(|(id, addr, hop)| (id, (hop.arm, addr))).collect();
    }

    /// Whether a change may be said now: all lcores serve the committed generation. Until then its
    /// predecessor's room can't be used again.
    pub fn ready(&self) -> bool {
        self.writer.acknowledged(self.region.generation())
    }

    /// Takes gateways and settings from another configuration, at the next commit; returns the one
    /// before, to be given back if that commit is refused.
    pub fn configure(&mut self, config: Arc<Config>) -> Arc<Config> {
        std::mem::replace(&mut self.config, config)
    }

    /// Publishes what was said. The generation, or none when nothing changed.
    pub fn commit(&mut self, wanted: &State) -> Result<Option<u32>, Refusal> {
        self.writer.put_settings(&compile::settings(&self.config))?;
        self.put_tunnels(wanted)?;
        let before = self.region.generation();
        let generation = self.writer.commit()?;
        self.undo.clear();
        Ok((generation != before).then_some(generation))
    }

    /// Forgets what was said since the last commit.
    pub fn discard(&mut self) {
        if let Err(e) = self.writer.abort() {
            tracing::error!("the tables could not be put back as they were: {e}");
        }
        for (name, before) in std::mem::take(&mut self.undo).into_iter().rev() {
            if let Some(now) = self.known.remove(&name) {
                self.forget_wishes(&name, now.service.as_ref());
            }
            if let Some(before) = before {
                if let Some(service) = &before.service {
                    self.remember_wishes(service, before.id);
                }
                self.known.insert(name, before);
            }
        }
        let wishes = &self.wishes;
        self.draining.retain(|key, _| wishes.get(key).is_none_or(BTreeMap::is_empty));
        self.find_owners();
        self.find_hops();
        self.find_leaving();
    }

    /// All services with the ids of their backends, by name.
    pub fn services(&self, state: &State) -> Vec<KnownService> {
        let known = state.services().filter_map(|service| {
            let ids = service
                .backends
                .iter()
                .map(|b| self.writer.backend_id(&Addr::from(b.addr), b.port).unwrap_or(u32::MAX));
            Some(KnownService {
                id: self.known.get(&service.name)?.id,
                service: service.clone(),
                backend_ids: ids.collect(),
            })
        });
        known.collect()
    }

    /// Names of tunnels by id.
    pub fn tunnel_names(&self) -> Vec<(u32, String)> {
        self.tunnel_names.clone()
    }

    /// All next hops: arm, address, and the MAC that is known.
    pub fn next_hops(&self) -> impl Iterator<Item = (u8, IpAddr, Option<[u8; 6]>)> + use<> {
        let set = self.writer.committed();
        let hops = set.next_hops();
        let hops = hops.map(|(_, addr, h)| (h.arm, IpAddr::from(addr), h.known.then_some(h.mac)));
        hops.collect::<Vec<_>>().into_iter()
    }

    /// Arm and address of all next hops, those that are said and not yet committed included.
    pub fn prepared_next_hops(&self) -> Vec<(u8, IpAddr)> {
        self.hops.values().map(|(arm, addr)| (*arm, (*addr).into())).collect()
    }

    /// Arm and address of a next hop.
    pub fn next_hop(&self, id: u32) -> Option<(u8, IpAddr)> {
        self.hops.get(&id).map(|(arm, addr)| (*arm, (*addr).into()))
    }

    /// Writes what was learned of a next hop; lcores see it at once.
    pub fn set_next_hop(&mut self, resolved: &Resolved) {
        let place = (resolved.arm, Addr::from(resolved.to));
        let Some(id) = self.hops.iter().find(|(_, at)| **at == place).map(|(id, _)| *id) else {
            return;
        };
        let hop = NextHop {
            mac: resolved.mac.unwrap_or_default(),
            src_mac: resolved.src_mac,
            mtu: resolved.mtu,
            arm: resolved.arm,
            known: resolved.mac.is_some(),
        };
        if let Err(refusal) = self.writer.set_next_hop(id, &hop) {
            tracing::warn!("next hop {}: {refusal}", resolved.to);
        }
    }

    fn say_frontends(&mut self, id: u32, wanted: &[FrontendKey], before: &[FrontendKey]) -> Said {
        for key in before.iter().filter(|key| !wanted.contains(key)) {
            if self.owners.get(key) == Some(&id) {
                self.writer.remove_frontend(key)?;
                self.owners.remove(key);
            }
        }
        for key in wanted {
            self.writer.put_frontend(key, id)?;
            self.owners.insert(*key, id);
        }
        Ok(())
    }

    fn say_service(&mut self, service: &Service) -> Said {
        let before = self.known.get(&service.name).cloned();
        self.undo.push((service.name.clone(), before.clone()));
        let id = self.writer.put_service(&service.name, &compile::service(service))?;
        let old = before.as_ref().and_then(|known| known.service.clone());
        self.forget_wishes(&service.name, old.as_ref());
        self.remember_wishes(service, id);
        let frontends: Vec<FrontendKey> = service.frontends.iter().map(compile::frontend).collect();
        let known = Known { id, frontends: frontends.clone(), service: Some(service.clone()) };
        self.known.insert(service.name.clone(), known);

        let mut serving = Vec::new();
        for backend in &service.backends {
            let key = Key::of(backend);
            let id = self.settle_backend(key)?;
            serving.push((id, backend));
        }
        let slots = slots(&serving);
        let protocol = protocol(service);
        self.writer.set_slots(id, &slots, service.table_size, protocol, 0)?;
        for backend in old.iter().flat_map(|old| &old.backends) {
            self.settle_backend(Key::of(backend))?;
        }
        let before = before.map(|known| known.frontends).unwrap_or_default();
        self.say_frontends(id, &frontends, &before)
    }

    fn unsay_service(&mut self, name: &str) -> Said {
        let Some(known) = self.known.remove(name) else { return Ok(()) };
        self.undo.push((name.to_owned(), Some(known.clone())));
        self.say_frontends(known.id, &[], &known.frontends)?;
        self.writer.remove_service(known.id)?;
        self.forget_wishes(name, known.service.as_ref());
        for backend in known.service.iter().flat_map(|service| &service.backends) {
            self.settle_backend(Key::of(backend))?;
        }
        Ok(())
    }
}

/// What the writer says to one step.
type Said = Result<(), tables::writer::Refusal>;

/// Who gets new flows: the active ones; where there are none, those that terminate.
fn slots(serving: &[(u32, &config::services::Backend)]) -> Vec<(u32, u32)> {
    let of = |state: BackendState| -> Vec<(u32, u32)> {
        let wanted = serving.iter().filter(|(_, b)| b.state == state && b.weight > 0);
        wanted.map(|(id, b)| (*id, u32::from(b.weight))).collect()
    };
    let active = of(BackendState::Active);
    if active.is_empty() { of(BackendState::Terminating) } else { active }
}

/// What Maglev hashes beside address and port; Cilium has one protocol per service.
fn protocol(service: &Service) -> &'static str {
    const UDP: u8 = 17;
    match service.frontends.iter().all(|f| f.protocol == UDP) {
        true if !service.frontends.is_empty() => "UDP",
        _ => "TCP",
    }
}

impl Target for Tables<'_> {
    type Refusal = Refusal;

    fn update(&mut self, service: &Service) -> Result<(), Refusal> {
        let name = &service.name;
        let said = self.say_service(service);
        said.map_err(|refusal| Refusal::Service { service: name.clone(), refusal })
    }

    fn delete(&mut self, name: &str) -> Result<(), Refusal> {
        let said = self.unsay_service(name);
        said.map_err(|refusal| Refusal::Service { service: name.to_owned(), refusal })
    }

    fn prune(&mut self, state: &State) -> Result<(), Refusal> {
        let unwanted = self.known.keys().filter(|name| state.service(name).is_none());
        for name in unwanted.cloned().collect::<Vec<_>>() {
            self.delete(&name)?;
        }
        let set = self.writer.prepared();
        let keys: Vec<Key> =
            set.backends().map(|(_, b)| Key { addr: b.addr, port: b.port }).collect();
        for key in keys {
            self.settle_backend(key)?;
        }
        Ok(())
    }
}
