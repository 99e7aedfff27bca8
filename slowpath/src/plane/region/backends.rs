//! Backends shared by services: their records, merged from the requirements of all services, and
//! the removal of backends that no service requires.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use packet::addr::Addr;
use state::shrink::shrink_if_sparse;
use tables::flow::Flows;
use tables::note::Member;
use tables::record::{self, BackendState, NONE};
use tables::writer::{Referred, UpdateError};

use super::RegionPlane;
use super::desired::{Key, Need, RecordedBackend, Requirement};
use super::removal::DRAIN;
use super::selection::{QUARANTINED, record_state, state_of_note};
use crate::plane::path_mtus;

/// Minimum interval between scans of the flow table for references to what waits to be removed.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

impl RegionPlane<'_> {
    /// Returns the backends of a service in the prepared tables, with what it requires of each.
    pub(super) fn requirements_of(&self, id: u32) -> Vec<RecordedBackend> {
        let set = self.writer.prepared();
        let Some(service) = set.service(id) else { return Vec::new() };
        let tunnel = service.mode == record::Mode::Tunnel as u8;
        let recorded = |member: Member| {
            let backend = set.backend(member.backend)?;
            let failed = member.state & QUARANTINED != 0;
            let state = record_state(state_of_note(member.state));
            let own = backend.probe_service == id;
            let (kind, port, vni) = (service.tunnel, service.tunnel_port, service.vni);
            let (arm, ipv6) = (backend.arm, !backend.addr.is_v4());
            let requirement = Requirement {
                state: if failed { BackendState::Quarantined } else { state },
                arm,
                nat: service.mode == record::Mode::Nat as u8,
                probe: if own { backend.probe } else { Addr::UNSPECIFIED },
                need: tunnel.then_some(Need { kind, port, vni, arm, ipv6 }),
            };
            let key = Key { addr: backend.addr, port: backend.port };
            Some(RecordedBackend { key, requirement, backend: member.backend })
        };
        set.members(id).filter_map(recorded).collect()
    }

    pub(super) fn add_requirements<'r>(
        &mut self,
        id: u32,
        requirements: impl IntoIterator<Item = (&'r Key, &'r Requirement)>,
    ) {
        for (key, requirement) in requirements {
            if let Some(need) = requirement.need {
                let count = self.needs.entry(need).or_insert(0);
                *count += 1;
                self.tunnels_changed |= *count == 1;
            }
            self.requirements.entry(*key).or_default().push((id, requirement.clone()));
        }
    }

    pub(super) fn remove_requirements<'r>(
        &mut self,
        id: u32,
        keys: impl IntoIterator<Item = &'r Key>,
    ) {
        for key in keys {
            let Some(of_backend) = self.requirements.get_mut(key) else { continue };
            for (_, requirement) in of_backend.iter().filter(|(service, _)| *service == id) {
                let Some(need) = requirement.need else { continue };
                let left = self.needs.get(&need).copied().unwrap_or(0);
                match left > 1 {
                    true => drop(self.needs.insert(need, left - 1)),
                    false => {
                        self.needs.remove(&need);
                        self.tunnels_changed = true;
                    }
                }
            }
            of_backend.retain(|(service, _)| *service != id);
            if of_backend.is_empty() {
                self.requirements.remove(key);
                shrink_if_sparse(&mut self.requirements);
            }
        }
    }

    /// Writes the backend's record as the merged requirements of all services, and returns its id.
    /// A backend that no service requires begins to drain if it exists.
    pub(super) fn settle_backend(&mut self, key: Key) -> Result<u32, UpdateError> {
        let Some(record) =
            self.requirements.get(&key).and_then(|requirements| merged(key, requirements))
        else {
            return self.drain(key);
        };
        self.draining.remove(&key);
        let existing = self.writer.next_hop_id(&key.addr, record.arm);
        let next_hop = self.writer.put_next_hop(&key.addr, record.arm)?;
        if existing.is_none() {
            self.hops_changed = true;
            path_mtus::forget(self.region, next_hop);
            self.fill_resolved_hop(next_hop, record.arm, &key.addr);
        }
        self.writer.put_backend(&record::Backend { next_hop, ..record })
    }

    /// Marks a backend that no service requires for [`RegionPlane::reclaim`], or removes it at once
    /// if it was never committed. Returns its id, or [`NONE`] if it does not exist.
    fn drain(&mut self, key: Key) -> Result<u32, UpdateError> {
        let Some(id) = self.writer.backend_id(&key.addr, key.port) else { return Ok(NONE) };
        let Some(record) = self.writer.prepared().backend(id).copied() else { return Ok(NONE) };
        if self.writer.committed().backend(id).is_none() {
            // The backend was never committed, so no flow can refer to it.
            self.hops_idle = true;
            return self.writer.remove_backend(id).map(|()| NONE);
        }
        self.draining.entry(key).or_insert(None);
        // A backend that no service requires is not necessarily removed: it may be in maintenance,
        // or not preferred because of its location. `reclaim` decides.
        let removed = BackendState::Removed as u8;
        let state = if record.state == removed { removed } else { BackendState::Terminating as u8 };
        let (probe, probe_service) = (Addr::UNSPECIFIED, NONE);
        self.writer.put_backend(&record::Backend { state, probe, probe_service, ..record })
    }

    /// Frees what is no longer referenced: drained backends, ids, next hops and retired tunnels.
    /// Marks draining backends as terminating if `is_named` reports that a source still names their
    /// address and port, and as removed otherwise. Commits if that changes the tables.
    ///
    /// To be called repeatedly, between batches. Scans the flow table at most once a second, and
    /// only while something waits to be freed.
    pub fn reclaim(&mut self, now: Instant, is_named: &dyn Fn(IpAddr, u16) -> bool) {
        let idle = self.draining.is_empty()
            && self.retired_tunnels.is_empty()
            && !self.hops_idle
            && self.writer.retired().next().is_none();
        let is_due = self.last_scan.is_none_or(|at| now >= at + SCAN_INTERVAL);
        // Before the first commit there is nothing to reclaim.
        if idle || !is_due || self.region.generation() == 0 || !self.ready() {
            return;
        }
        self.last_scan = Some(now);
        let referred = self.referred();
        self.writer.reclaim(|what| referred.contains(&what));
        let marked = self.mark_removed(is_named);
        if let Err(error) = marked.and_then(|()| self.remove_drained_backends(&referred, now)) {
            tracing::warn!(
                event = "reclaim_failed",
                %error,
                "drained backends and tunnels not removed yet"
            );
            self.discard();
        }
        self.remove_idle_hops();
    }

    /// Returns the backends and services that live flows refer to.
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

    /// Marks draining backends that no source names as removed, the others as terminating: they are
    /// in maintenance, or not preferred because of their location. Flows of removed backends are
    /// handled like those of failed ones; flows of terminating backends stay.
    fn mark_removed(&mut self, is_named: &dyn Fn(IpAddr, u16) -> bool) -> Result<(), UpdateError> {
        for key in self.draining.keys() {
            let Some(id) = self.writer.backend_id(&key.addr, key.port) else { continue };
            let Some(record) = self.writer.prepared().backend(id).copied() else { continue };
            let state = match is_named(key.addr.into(), key.port) {
                true => BackendState::Terminating as u8,
                false => BackendState::Removed as u8,
            };
            if record.state != state {
                self.writer.put_backend(&record::Backend { state, ..record })?;
            }
        }
        Ok(())
    }

    /// Removes draining backends that no flow refers to, those that no source has named for
    /// [`DRAIN`], and drained tunnels, and commits.
    fn remove_drained_backends(
        &mut self,
        referred: &HashSet<Referred>,
        now: Instant,
    ) -> Result<(), UpdateError> {
        let mut drained = Vec::new();
        for (key, until) in &mut self.draining {
            let Some(id) = self.writer.backend_id(&key.addr, key.port) else {
                drained.push((*key, None));
                continue;
            };
            let record = self.writer.prepared().backend(id);
            let is_named = record.is_some_and(|r| r.state != BackendState::Removed as u8);
            if is_named {
                // Its flows stay, however long they last.
                *until = None;
            }
            let has_expired = !is_named && now >= *until.get_or_insert(now + DRAIN);
            if !referred.contains(&Referred::Backend(id)) || has_expired {
                drained.push((*key, Some(id)));
            }
        }
        for (key, id) in drained {
            if let Some(id) = id.filter(|id| self.writer.prepared().backend(*id).is_some()) {
                self.writer.remove_backend(id)?;
                tracing::info!(
                    event = "drained_backend_removed",
                    address = %key.addr,
                    port = key.port,
                    "drained backend removed"
                );
            }
            self.draining.remove(&key);
            self.hops_idle = true;
        }
        self.remove_drained_tunnels(now)?;
        self.writer.commit().map(drop)
    }

    /// Removes next hops that no backend refers to. The writer frees them once no lcore can see
    /// them.
    fn remove_idle_hops(&mut self) {
        if !self.ready() || !std::mem::take(&mut self.hops_idle) {
            return;
        }
        let set = self.writer.committed();
        let used: HashSet<u32> = set.backends().map(|(_, b)| b.next_hop).collect();
        let idle = set.next_hops().map(|(id, ..)| id).filter(|id| !used.contains(id));
        for id in idle.collect::<Vec<_>>() {
            self.hops_changed = true;
            if let Err(error) = self.writer.remove_next_hop(id) {
                tracing::debug!(
                    event = "next_hop_unremoved",
                    next_hop = id,
                    %error,
                    "next hop not removed yet"
                );
                self.hops_idle = true;
            }
        }
    }
}

/// Merges the requirements of several services into one record; `None` if there are none. The
/// record has the most active state (the lowest number) of all services. Which backends get the new
/// flows of a service is decided by the service's slots. The writer assigns the incarnation, and
/// the NAT ports unless they are [`NONE`].
fn merged(key: Key, requirements: &[(u32, Requirement)]) -> Option<record::Backend> {
    let (_, first) = requirements.iter().min_by_key(|(service, _)| *service)?;
    let state = requirements.iter().map(|(_, requirement)| requirement.state as u8).min()?;
    let probed =
        requirements.iter().filter(|(_, requirement)| requirement.probe != Addr::UNSPECIFIED);
    let probe = probed.min_by_key(|(service, _)| *service);
    Some(record::Backend {
        addr: key.addr,
        probe: probe.map_or(Addr::UNSPECIFIED, |(_, requirement)| requirement.probe),
        incarnation: 0,
        next_hop: NONE,
        nat_ports: if requirements.iter().any(|(_, requirement)| requirement.nat) {
            0
        } else {
            NONE
        },
        probe_service: probe.map_or(NONE, |(service, _)| *service),
        port: key.port,
        state,
        arm: first.arm,
        pad: 0,
    })
}
