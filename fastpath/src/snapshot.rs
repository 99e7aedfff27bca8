//! What an lcore copies for itself at each switch: tunnels and settings.
//!
//! They are few and met by every packet, so a private copy spares the hot path all questions of
//! generation; services, frontends and backends are read in place.

use packet::addr::Addr;
use tables::record::{
    NoService, Settings, TUNNEL_BACKEND, TUNNEL_CROSS, TUNNEL_SOURCES, Tunnel, TunnelKind,
};
use tables::set::TableSet;

/// Most tunnels an appliance has (the region's own limit).
pub const TUNNELS: usize = 64;

/// A tunnel with its number in the tables.
#[derive(Clone, Copy, Debug)]
pub struct KnownTunnel {
    /// Its number.
    pub id: u32,
    /// What it is made of.
    pub kind: TunnelKind,
    /// The record.
    pub record: Tunnel,
    /// Its admitted sources as networks and masks, the first `source_count`.
    sources: [(Addr, Addr); TUNNEL_SOURCES],
    source_count: usize,
}

impl KnownTunnel {
    fn new(id: u32, kind: TunnelKind, record: &Tunnel) -> KnownTunnel {
        let source_count = usize::from(record.source_count).min(TUNNEL_SOURCES);
        let all_ones = Addr { words: [u32::MAX; 4] };
        let sources = record.sources.map(|p| (p.addr.masked(p.len), all_ones.masked(p.len)));
        KnownTunnel { id, kind, record: *record, sources, source_count }
    }

    /// True when backends send by it, not a gateway.
    #[inline(always)]
    pub fn is_backend(&self) -> bool {
        self.record.flags & TUNNEL_BACKEND != 0
    }

    /// True when the gateway's nodes may send from `source`.
    #[inline(always)]
    pub fn admits(&self, source: &Addr) -> bool {
        let mut admitted = false;
        for (net, mask) in &self.sources[..self.source_count] {
            let differs = |i: usize| (source.words[i] ^ net.words[i]) & mask.words[i];
            admitted |= differs(0) | differs(1) | differs(2) | differs(3) == 0;
        }
        admitted
    }

    /// The longest inner packet that is returned if it is for no service; 0 where none is, as of
    /// what backends send.
    pub fn returned(&self) -> u16 {
        match (self.record.inner_mtu, self.no_service()) {
            _ if self.is_backend() => 0,
            (0, NoService::Return) => u16::MAX,
            (mtu, NoService::Return) => mtu,
            _ => 0,
        }
    }

    /// Whether what is returned crosses to the tunnel's peer.
    pub fn crosses(&self) -> bool {
        self.record.flags & TUNNEL_CROSS != 0
    }

    /// What becomes of a packet that is for no service.
    pub fn no_service(&self) -> NoService {
        NoService::from_u8(self.record.no_service)
    }
}

/// One generation's tunnels and settings.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The generation that they are of.
    pub generation: u32,
    /// The live tunnels.
    pub tunnels: Vec<KnownTunnel>,
    /// What holds for the whole appliance.
    pub settings: Settings,
    /// Our address by arm and family (IPv4 first); unspecified where there is none.
    own: [[Addr; 2]; 2],
}

impl Snapshot {
    /// An empty one, with room for all that a table set may hold.
    pub fn empty() -> Snapshot {
        let (settings, own) = (Settings::EMPTY, [[Addr::UNSPECIFIED; 2]; 2]);
        Snapshot { generation: 0, tunnels: Vec::with_capacity(TUNNELS), settings, own }
    }

    /// Takes over the tunnels and settings of `set`, without allocating.
    pub fn refill(&mut self, set: &TableSet<'_>) {
        self.generation = set.generation();
        self.settings = *set.settings();
        let [v4, v6] = [Addr::v4(0), Addr::UNSPECIFIED];
        for (arm, own) in (0..).zip(&mut self.own) {
            let own_like = |like| *self.settings.local_on(arm, like).unwrap_or(&Addr::UNSPECIFIED);
            *own = [own_like(&v4), own_like(&v6)];
        }
        self.tunnels.clear();
        for (id, record) in set.tunnels().take(TUNNELS) {
            if let Some(kind) = TunnelKind::from_u8(record.kind) {
                self.tunnels.push(KnownTunnel::new(id, kind, record));
            }
        }
    }

    /// The tunnel numbered `id`, with its index.
    pub fn tunnel(&self, id: u32) -> Option<&KnownTunnel> {
        self.tunnels.iter().find(|t| t.id == id)
    }

    /// Our address of the family of `like` on `arm`.
    #[inline(always)]
    pub fn local_on(&self, arm: u8, like: &Addr) -> Option<&Addr> {
        let own = &self.own[usize::from(arm & 1)][usize::from(!like.is_v4())];
        (*own != Addr::UNSPECIFIED).then_some(own)
    }
}
