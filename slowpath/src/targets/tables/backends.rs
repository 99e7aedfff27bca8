//! Backends that services share: what each service wishes of one, and its leave when none does.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use config::services::{Backend, BackendState, Mode, Service};
use packet::addr::Addr;
use tables::flow::Flows;
use tables::record::{self, NONE};
use tables::writer::Referred;

use super::Tables;
use crate::path_mtus;

/// How long an unwanted backend keeps flows that don't end (AWS's own deregistration delay).
pub(super) const DRAIN: Duration = Duration::from_secs(300);
/// How often the flow table is walked for what flows still refer to, while anything waits for it.
const SWEEP: Duration = Duration::from_secs(1);

/// What makes a backend the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) addr: Addr,
    pub(super) port: u16,
}

impl Key {
    pub(super) fn of(backend: &Backend) -> Key {
        Key { addr: backend.addr.into(), port: backend.port }
    }
}

/// What one service asks of a backend.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Wish {
    state: BackendState,
    arm: u8,
    nat: bool,
    probe: Addr,
    /// The service whose tunnel carries probes.
    probe_service: u32,
}

impl Tables<'_> {
    pub(super) fn remember_wishes(&mut self, service: &Service, id: u32) {
        for backend in &service.backends {
            let wish = Wish {
                state: backend.state,
                arm: backend.arm as u8,
                nat: service.mode == Mode::Nat,
                probe: backend.probe.map_or(Addr::UNSPECIFIED, Addr::from),
                probe_service: if backend.probe.is_some() { id } else { NONE },
            };
            let of_backend = self.wishes.entry(Key::of(backend)).or_default();
            of_backend.insert(service.name.clone(), wish);
        }
    }

    pub(super) fn forget_wishes(&mut self, name: &str, service: Option<&Service>) {
        for backend in service.iter().flat_map(|service| &service.backends) {
            let key = Key::of(backend);
            if let Some(of_backend) = self.wishes.get_mut(&key) {
                of_backend.remove(name);
                if of_backend.is_empty() {
                    self.wishes.remove(&key);
                }
            }
        }
    }

    /// Makes a backend's record what all services together wish of it, and returns its id.
    /// Nobody's backend begins to drain, where it exists.
    pub(super) fn settle_backend(&mut self, key: Key) -> Result<u32, tables::writer::Refusal> {
        let Some(wishes) = self.wishes.get(&key).filter(|wishes| !wishes.is_empty()) else {
            return self.drain(key);
        };
        let record = merged(key, wishes);
        let arm = record.arm;
        self.draining.remove(&key);
        let next_hop = self.writer.put_next_hop(&key.addr, arm)?;
        if self.hops.insert(next_hop, (arm, key.addr)).is_none() {
            path_mtus::forget(self.region, next_hop);
        }
        self.writer.put_backend(&record::Backend { next_hop, ..record })
    }

    fn drain(&mut self, key: Key) -> Result<u32, tables::writer::Refusal> {
        let Some(id) = self.writer.backend_id(&key.addr, key.port) else { return Ok(NONE) };
        let Some(record) = self.writer.prepared().backend(id).copied() else { return Ok(NONE) };
        self.draining.entry(key).or_insert(None);
        let state = BackendState::Terminating as u8;
        let (probe, probe_service) = (Addr::UNSPECIFIED, NONE);
        self.writer.put_backend(&record::Backend { state, probe, probe_service, ..record })
    }

    /// Lets go of what nobody refers to any more: drained backends, ids, next hops. Commits when
    /// that changes the tables. To be called again and again; walks the flow table at most once a
    /// second, and only while something waits for it.
    pub fn reclaim(&mut self, now: Instant) {
        let idle = self.draining.is_empty()
            && self.leaving.is_empty()
            && self.writer.retired().next().is_none();
        let rested = self.swept.is_none_or(|at| now >= at + SWEEP);
        if idle || !rested || !self.undo.is_empty() || !self.ready() {
            return;
        }
        self.swept = Some(now);
        let referred = self.referred();
        self.writer.reclaim(|what| referred.contains(&what));
        if let Err(refusal) = self.let_drained_go(&referred, now) {
            tracing::warn!("what has drained stays for now: {refusal}");
            self.discard();
        }
        self.let_hops_go();
    }

    /// What live flows refer to.
    fn referred(&self) -> HashSet<Referred> {
        let flows = Flows::new(self.region);
        let mut referred = HashSet::new();
        flows.each_backend(|id| {
            referred.insert(Referred::Backend(id));
        });
        for flow in (0..flows.capacity()).filter_map(|path| flows.snapshot(path)) {
            referred.insert(Referred::Service(flow.forward.service));
        }
        referred
    }

    fn let_drained_go(
        &mut self,
        referred: &HashSet<Referred>,
        now: Instant,
    ) -> Result<(), tables::writer::Refusal> {
        let mut gone = Vec::new();
        for (key, until) in &mut self.draining {
            let Some(id) = self.writer.backend_id(&key.addr, key.port) else {
                gone.push((*key, None));
                continue;
            };
            let until = *until.get_or_insert(now + DRAIN);
            if !referred.contains(&Referred::Backend(id)) || now >= until {
                gone.push((*key, Some(id)));
            }
        }
        for (key, id) in gone {
            if let Some(id) = id.filter(|id| self.writer.prepared().backend(*id).is_some()) {
                self.writer.remove_backend(id)?;
                tracing::info!("backend {} port {} has left", key.addr, key.port);
            }
            self.draining.remove(&key);
        }
        self.let_tunnels_go(now)?;
        self.writer.commit().map(drop)
    }

    /// Gives up next hops that no backend refers to; the writer frees them when no lcore sees them.
    fn let_hops_go(&mut self) {
        if !self.ready() {
            return;
        }
        let used: HashSet<u32> =
            self.writer.committed().backends().map(|(_, b)| b.next_hop).collect();
        let idle: Vec<u32> = self.hops.keys().copied().filter(|id| !used.contains(id)).collect();
        for id in idle {
            match self.writer.remove_next_hop(id) {
                Ok(()) => {
                    self.hops.remove(&id);
                }
                Err(refusal) => tracing::debug!("next hop {id} stays: {refusal}"),
            }
        }
    }
}

/// One record for the wishes of several services. A backend that one service has active is active;
/// who gets a service's new flows is decided by the service's own slots in any case.
fn merged(key: Key, wishes: &BTreeMap<String, Wish>) -> record::Backend {
    let state = wishes.values().map(|wish| wish.state as u8).min();
    let probe = wishes.values().find(|wish| wish.probe != Addr::UNSPECIFIED);
    record::Backend {
        addr: key.addr,
        probe: probe.map_or(Addr::UNSPECIFIED, |wish| wish.probe),
        incarnation: 0,
        next_hop: NONE,
        nat_ports: if wishes.values().any(|wish| wish.nat) { 0 } else { NONE },
        probe_service: probe.map_or(NONE, |wish| wish.probe_service),
        port: key.port,
        state: state.unwrap_or(BackendState::Active as u8),
        arm: wishes.values().next().map_or(0, |wish| wish.arm),
        pad: 0,
    }
}
