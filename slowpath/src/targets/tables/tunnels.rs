//! Tunnels find their old ids again: flows remember the tunnel that they came by.

use tables::layout::MAX_TUNNELS;
use tables::record::{NONE, Tunnel};

use super::{Refusal, Tables};
use crate::state::State;
use crate::targets::compile::{self, NamedTunnel};

impl Tables<'_> {
    /// Puts the gateways' tunnels and those that backends send by, and removes all others.
    pub(super) fn put_tunnels(&mut self, wanted: &State) -> Result<(), Refusal> {
        let mut all = compile::gateway_tunnels(&self.config);
        all.extend(compile::backend_tunnels(&self.config, wanted.services()));
        let room = self.region.sizes().tunnels.min(MAX_TUNNELS) as usize;
        if all.len() > room {
            return Err(Refusal::Tunnels { wanted: all.len(), room });
        }
        let there: Vec<(u32, Tunnel)> =
            self.writer.prepared().tunnels().map(|(id, tunnel)| (id, *tunnel)).collect();
        let ids = place(&all, &there);
        for (id, _) in there.iter().filter(|(id, _)| !ids.contains(id)) {
            self.writer.remove_tunnel(*id)?;
        }
        self.tunnel_names.clear();
        for (tunnel, id) in all.iter().zip(&ids) {
            let peer = ids.get(tunnel.record.peer as usize).copied().unwrap_or(NONE);
            self.writer.put_tunnel(*id, &Tunnel { peer, ..tunnel.record })?;
            self.tunnel_names.push((*id, tunnel.name.clone()));
        }
        Ok(())
    }
}

/// An id for each wanted tunnel: that of the one that is there with the same wire, else a free one.
fn place(wanted: &[NamedTunnel], there: &[(u32, Tunnel)]) -> Vec<u32> {
    let wire =
        |t: &Tunnel| (t.kind, t.local, t.port, t.vni, t.flags & tables::record::TUNNEL_BACKEND);
    let old = |tunnel: &NamedTunnel| {
        there.iter().find(|(_, t)| wire(t) == wire(&tunnel.record)).map(|(id, _)| *id)
    };
    let kept: Vec<Option<u32>> = wanted.iter().map(old).collect();
    // A tunnel that leaves keeps its id for this generation: nobody else gets it at once.
    let mut free = (0..).filter(|id| !there.iter().any(|(used, _)| used == id));
    kept.into_iter().map(|id| id.or_else(|| free.next()).unwrap_or(NONE)).collect()
}
