//! Tunnels keep their ids and gateway numbers: flows store the tunnel that they came through, and
//! scopes are derived from the gateway's number.
//!
//! A tunnel that is no longer configured, and sources that a gateway no longer has, remain for the
//! drain period as a record of their own, marked [`TUNNEL_RETIRED`]: established flows can end, and
//! packets in transit are recognized. If the tunnel is configured again, the mark is removed.
//! A tunnel whose gateway has another port or VNI now names the tunnel that took its place
//! ([`TUNNEL_REPLACED`]): packets of the backends to the gateway leave by that one.

use std::collections::HashMap;
use std::time::Instant;

use tables::layout::MAX_TUNNELS;
use tables::record::{
    NONE, Prefix, TUNNEL_BACKEND, TUNNEL_REPLACED, TUNNEL_RETIRED, TUNNEL_SOURCES, Tunnel,
};

use state::plane::PlaneError;

use super::RegionPlane;
use super::removal::DRAIN;
use crate::plane::compile::{self, NamedTunnel};

impl RegionPlane<'_> {
    /// Writes the tunnels of the gateways and those that backends send through. All others are
    /// marked as retired, and removed after [`DRAIN`].
    pub(super) fn put_tunnels(&mut self) -> Result<(), PlaneError> {
        let mut all = compile::gateway_tunnels(&self.config);
        all.extend(compile::needed_tunnels(&self.config, self.needs.keys()));
        let capacity = self.region.sizes().tunnels.min(MAX_TUNNELS);
        let existing: Vec<(u32, Tunnel)> =
            self.writer.prepared().tunnels().map(|(id, tunnel)| (id, *tunnel)).collect();
        assign_gateway_numbers(&mut all, &existing);
        let ids = assign_ids(&all, &existing);
        let mut put: Vec<(u32, Tunnel)> = Vec::new();
        for (tunnel, id) in all.iter().zip(&ids) {
            let peer = ids.get(tunnel.record.peer as usize).copied().unwrap_or(NONE);
            put.push((*id, Tunnel { peer, ..tunnel.record }));
        }
        let retired = retired(&put, &existing, capacity);
        let ids_needed =
            put.iter().chain(&retired).map(|(id, _)| id.saturating_add(1)).max().unwrap_or(0);
        if ids_needed > capacity {
            let removed = existing.iter().filter(|(id, _)| !ids.contains(id)).count();
            return Err(PlaneError::new(format!(
                "{} tunnels (of gateways and backends) and {removed} removed ones that still drain \
                 exceed the capacity of {capacity}; use fewer gateways or fewer kinds of backend \
                 tunnels, or wait until the removed ones have drained (5 minutes)",
                all.len()
            )));
        }
        for (id, tunnel) in put.iter().chain(&retired) {
            self.writer.put_tunnel(*id, tunnel).map_err(PlaneError::new)?;
        }
        self.name_tunnels(&all, &ids, &retired);
        self.retired_tunnels.retain(|id, _| retired.iter().any(|(other, _)| other == id));
        for (id, _) in &retired {
            self.retired_tunnels.entry(*id).or_insert(None);
        }
        Ok(())
    }

    fn name_tunnels(&mut self, all: &[NamedTunnel], ids: &[u32], retired: &[(u32, Tunnel)]) {
        let before = std::mem::take(&mut self.tunnel_names);
        let named = |(id, _): &(u32, Tunnel)| {
            let name = before.iter().find(|(other, _)| other == id);
            (
                *id,
                name.map_or_else(
                    || format!("tunnel {id}, retired"),
                    |(_, name)| retired_name(name),
                ),
            )
        };
        self.tunnel_names = ids.iter().copied().zip(all.iter().map(|t| t.name.clone())).collect();
        self.tunnel_names.extend(retired.iter().map(named));
        log_changes(&before, &self.tunnel_names);
    }

    /// Synchronizes the set of retired tunnels with the marks in the committed tables, at startup
    /// and after a rollback.
    pub(super) fn find_retired(&mut self) {
        let marked: Vec<u32> = marked(self.writer.committed().tunnels()).collect();
        self.retired_tunnels.retain(|id, _| marked.contains(id));
        for id in marked {
            self.retired_tunnels.entry(id).or_insert(None);
        }
    }

    /// Removes the retired tunnels whose drain period is over.
    pub(super) fn remove_drained_tunnels(
        &mut self,
        now: Instant,
    ) -> Result<(), tables::writer::UpdateError> {
        let mut drained = Vec::new();
        for (id, until) in &mut self.retired_tunnels {
            if now >= *until.get_or_insert(now + DRAIN) {
                drained.push(*id);
            }
        }
        for id in drained {
            self.writer.remove_tunnel(id)?;
            self.retired_tunnels.remove(&id);
            tracing::info!(event = "retired_tunnel_removed", tunnel = id, "retired tunnel removed");
        }
        Ok(())
    }
}

/// Mark at the end of the name of a retired tunnel.
const RETIRED: &str = ", retired";

/// Logs which tunnels of gateways and backends were added and retired, unless `before` is the empty
/// list of a start.
fn log_changes(before: &[(u32, String)], after: &[(u32, String)]) {
    let without = |all: &[(u32, String)], others: &[(u32, String)]| {
        let current = all.iter().filter(|(_, name)| !name.ends_with(RETIRED));
        let new = current.filter(|one| !others.contains(one));
        new.map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (added, removed) = (without(after, before), without(before, after));
    let is_changed = !added.is_empty() || !removed.is_empty();
    if is_changed && !before.is_empty() {
        tracing::info!(event = "tunnels_changed", added, removed, "gateway tunnels changed");
    }
}

fn retired_name(name: &str) -> String {
    if name.ends_with(RETIRED) { name.to_owned() } else { format!("{name}{RETIRED}") }
}

fn marked<'t>(tunnels: impl Iterator<Item = (u32, &'t Tunnel)>) -> impl Iterator<Item = u32> {
    tunnels.filter(|(_, tunnel)| is_retired(tunnel)).map(|(id, _)| id)
}

fn is_retired(tunnel: &Tunnel) -> bool {
    tunnel.flags & TUNNEL_RETIRED != 0
}

/// Returns whether packets of two tunnels look the same on the wire, so that the tunnels are the
/// same.
fn same_wire(a: &Tunnel, b: &Tunnel) -> bool {
    let wire = |t: &Tunnel| (t.kind, t.local, t.port, t.vni, t.flags & TUNNEL_BACKEND);
    wire(a) == wire(b)
}

/// Returns whether two tunnels belong to the same Azure gateway: they have its scope key, which
/// stays the same if the pool gets other ports and VNIs.
fn same_gateway(a: &Tunnel, b: &Tunnel) -> bool {
    let scope = |t: &Tunnel| (t.kind, t.local, t.flags & TUNNEL_BACKEND, t.scope_key);
    a.scope_key != 0 && scope(a) == scope(b)
}

/// Returns the existing tunnel with the same wire format, preferably one that is not retired.
fn find_existing<'t>(desired: &Tunnel, existing: &'t [(u32, Tunnel)]) -> Option<&'t (u32, Tunnel)> {
    let mut same = existing.iter().filter(|(_, tunnel)| same_wire(tunnel, desired));
    let first = same.clone().find(|(_, tunnel)| !is_retired(tunnel));
    first.or_else(|| same.next())
}

/// Gives each gateway the number that its tunnels have in the tables, or an unused one. The
/// position in the file changes when an earlier gateway is removed; the number must not.
fn assign_gateway_numbers(all: &mut [NamedTunnel], existing: &[(u32, Tunnel)]) {
    let of_gateway = |tunnel: &Tunnel| tunnel.flags & TUNNEL_BACKEND == 0;
    let mut assigned: HashMap<u16, u16> = HashMap::new();
    for tunnel in all.iter().map(|t| &t.record).filter(|t| of_gateway(t)) {
        let same = existing.iter().find(|(_, existing)| same_gateway(existing, tunnel));
        if let Some((_, existing)) = find_existing(tunnel, existing).or(same)
            && !assigned.contains_key(&tunnel.gateway)
            && !assigned.values().any(|number| *number == existing.gateway)
        {
            assigned.insert(tunnel.gateway, existing.gateway);
        }
    }
    for tunnel in all.iter_mut().map(|t| &mut t.record).filter(|t| of_gateway(t)) {
        let used = |number: &u16| {
            let is_existing = existing.iter().any(|(_, t)| of_gateway(t) && t.gateway == *number);
            is_existing || assigned.values().any(|assigned| assigned == number)
        };
        let number = assigned.get(&tunnel.gateway).copied();
        let number = number.or_else(|| (0..u16::MAX).find(|number| !used(number)));
        let number = number.unwrap_or(tunnel.gateway);
        assigned.insert(tunnel.gateway, number);
        tunnel.gateway = number;
    }
}

/// Returns an id for each desired tunnel: that of the existing tunnel with the same wire format, or
/// an unused one. A retired tunnel keeps its id in the meantime.
fn assign_ids(desired: &[NamedTunnel], existing: &[(u32, Tunnel)]) -> Vec<u32> {
    let mut free = (0..).filter(|id| !existing.iter().any(|(used, _)| used == id));
    let id = |tunnel: &NamedTunnel| find_existing(&tunnel.record, existing).map(|(id, _)| *id);
    desired.iter().map(|tunnel| id(tunnel).or_else(|| free.next()).unwrap_or(NONE)).collect()
}

/// Returns, marked as retired, the existing tunnels that are not in `put`, and the sources that a
/// tunnel in `put` no longer has. The latter get the highest free ids, so that a source admitted by
/// both matches the current tunnel.
fn retired(put: &[(u32, Tunnel)], existing: &[(u32, Tunnel)], capacity: u32) -> Vec<(u32, Tunnel)> {
    let mark = |tunnel: &Tunnel| {
        let next = put.iter().find(|(_, t)| {
            same_gateway(t, tunnel) && t.side == tunnel.side && !same_wire(t, tunnel)
        });
        let (replaced, successor) = next.map_or((0, 0), |(id, _)| (TUNNEL_REPLACED, *id as u8));
        let flags = tunnel.flags & !TUNNEL_REPLACED | TUNNEL_RETIRED | replaced;
        Tunnel { flags, successor, ..*tunnel }
    };
    let is_current = |id: &u32| put.iter().any(|(used, _)| used == id);
    let obsolete = existing.iter().filter(|(id, _)| !is_current(id));
    let mut retired: Vec<(u32, Tunnel)> = obsolete.map(|(id, t)| (*id, mark(t))).collect();
    let taken = |id: u32, retired: &[(u32, Tunnel)]| {
        put.iter().chain(retired).chain(existing).any(|(used, _)| *used == id)
    };
    for (id, now) in put {
        let before = existing.iter().find(|(old, t)| old == id && !is_retired(t));
        let Some(removed) = before.and_then(|(_, before)| removed_sources(before, now)) else {
            continue;
        };
        match (0..capacity).rev().find(|id| !taken(*id, &retired)) {
            Some(free) => retired.push((free, mark(&removed))),
            None => tracing::warn!(
                event = "retired_tunnel_dropped",
                tunnel = id,
                "no capacity to keep the tunnel's former sources"
            ),
        }
    }
    retired
}

/// Returns `before` reduced to the sources that `now` does not have; `None` if `now` has them all.
fn removed_sources(before: &Tunnel, now: &Tunnel) -> Option<Tunnel> {
    let sources =
        |t: &Tunnel| t.sources[..usize::from(t.source_count).min(TUNNEL_SOURCES)].to_vec();
    let current = sources(now);
    let removed: Vec<Prefix> =
        sources(before).into_iter().filter(|s| !current.contains(s)).collect();
    let mut tunnel = Tunnel { sources: [Prefix::default(); TUNNEL_SOURCES], ..*before };
    tunnel.source_count = removed.len() as u8;
    for (slot, source) in tunnel.sources.iter_mut().zip(&removed) {
        *slot = *source;
    }
    (!removed.is_empty()).then_some(tunnel)
}

#[cfg(test)]
mod tests;
