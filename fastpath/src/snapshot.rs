//! `Snapshot`: the tunnels and settings that an lcore copies at each table switch.
//!
//! They are small and used by every packet; a private copy avoids generation checks on the hot
//! path. Services, frontends and backends are read in place.

use packet::addr::Addr;
use tables::layout::MAX_TUNNELS;
use tables::record::{
    NoService, Settings, TUNNEL_BACKEND, TUNNEL_CROSS, TUNNEL_SOURCES, Tunnel, TunnelKind,
};
use tables::set::TableSet;

/// A tunnel with its number in the tables, prepared for lookups.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotTunnel {
    /// Number of the tunnel in the tables.
    pub id: u32,
    /// Encapsulation.
    pub kind: TunnelKind,
    /// The table record.
    pub record: Tunnel,
    /// Admitted sources as networks and masks; the first `source_count` are valid.
    sources: [(Addr, Addr); TUNNEL_SOURCES],
    source_count: usize,
}

impl SnapshotTunnel {
    fn new(id: u32, kind: TunnelKind, record: &Tunnel) -> SnapshotTunnel {
        let source_count = usize::from(record.source_count).min(TUNNEL_SOURCES);
        let all_ones = Addr { words: [u32::MAX; 4] };
        let sources = record.sources.map(|p| (p.addr.masked(p.len), all_ones.masked(p.len)));
        SnapshotTunnel { id, kind, record: *record, sources, source_count }
    }

    /// Returns true if backends, and not a gateway, send through this tunnel.
    #[inline(always)]
    pub fn is_backend(&self) -> bool {
        self.record.flags & TUNNEL_BACKEND != 0
    }

    /// Returns true if the tunnel accepts packets with the outer source `source`.
    #[inline(always)]
    pub fn admits(&self, source: &Addr) -> bool {
        let mut admitted = false;
        for (net, mask) in &self.sources[..self.source_count] {
            let differs = |i: usize| (source.words[i] ^ net.words[i]) & mask.words[i];
            admitted |= differs(0) | differs(1) | differs(2) | differs(3) == 0;
        }
        admitted
    }

    /// Returns the maximum length in bytes of unmatched inner packets that this tunnel sends back
    /// to its gateway; 0 if it sends none back, as for backends' tunnels.
    pub fn max_returned_len(&self) -> u16 {
        match (self.record.inner_mtu, self.no_service()) {
            _ if self.is_backend() => 0,
            (0, NoService::Return) => u16::MAX,
            (mtu, NoService::Return) => mtu,
            _ => 0,
        }
    }

    /// Returns true if packets sent back leave through the peer tunnel.
    pub fn returns_through_peer(&self) -> bool {
        self.record.flags & TUNNEL_CROSS != 0
    }

    /// Returns how packets that match no service are handled.
    pub fn no_service(&self) -> NoService {
        NoService::from_u8(self.record.no_service)
    }
}

/// The tunnels and settings of one generation.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The generation of the tables.
    pub generation: u32,
    /// The tunnels that are live in this generation.
    pub tunnels: Vec<SnapshotTunnel>,
    /// The settings of the whole appliance.
    pub settings: Settings,
    /// Local address by arm and family (IPv4 first); unspecified if there is none.
    locals: [[Addr; 2]; 2],
}

impl Snapshot {
    /// Creates an empty snapshot with the capacity for the tunnels of any table set.
    pub fn empty() -> Snapshot {
        let (settings, locals) = (Settings::EMPTY, [[Addr::UNSPECIFIED; 2]; 2]);
        let tunnels = Vec::with_capacity(MAX_TUNNELS as usize);
        Snapshot { generation: 0, tunnels, settings, locals }
    }

    /// Copies the tunnels and settings of `set`, without allocating.
    pub fn refill(&mut self, set: &TableSet<'_>) {
        self.generation = set.generation();
        self.settings = *set.settings();
        let [v4, v6] = [Addr::v4(0), Addr::UNSPECIFIED];
        for (arm, locals) in (0..).zip(&mut self.locals) {
            let local_on = |like| *self.settings.local_on(arm, like).unwrap_or(&Addr::UNSPECIFIED);
            *locals = [local_on(&v4), local_on(&v6)];
        }
        self.tunnels.clear();
        for (id, record) in set.tunnels().take(MAX_TUNNELS as usize) {
            if let Some(kind) = TunnelKind::from_u8(record.kind) {
                self.tunnels.push(SnapshotTunnel::new(id, kind, record));
            }
        }
    }

    /// Returns the tunnel numbered `id`.
    pub fn tunnel(&self, id: u32) -> Option<&SnapshotTunnel> {
        self.tunnels.iter().find(|t| t.id == id)
    }

    /// Returns the tunnel by which packets go to the gateway of a flow whose leg has the tunnel
    /// `id`: that tunnel or its successor, as for [`TableSet::tunnel_to_gateway`].
    pub fn tunnel_to_gateway(&self, id: u32) -> Option<&SnapshotTunnel> {
        let tunnel = self.tunnel(id)?;
        match tunnel.record.successor() {
            Some(successor) => self.tunnel(successor),
            None => Some(tunnel),
        }
    }

    /// Returns the local address on `arm` in the family of `like`.
    #[inline(always)]
    pub fn local_on(&self, arm: u8, like: &Addr) -> Option<&Addr> {
        let local = &self.locals[usize::from(arm & 1)][usize::from(!like.is_v4())];
        (*local != Addr::UNSPECIFIED).then_some(local)
    }
}
