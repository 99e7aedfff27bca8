//! The backends that services share, as the services want them.

use config::services::Mode;
use packet::addr::Addr;
use tables::record::BackendState;

/// What makes a backend the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) addr: Addr,
    pub(super) port: u16,
}

/// By what a backend of a tunnel service sends back; the same for many.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Need {
    /// A `TunnelKind`.
    pub(crate) kind: u8,
    pub(crate) port: u16,
    pub(crate) vni: u32,
    /// 0 ingress, 1 egress.
    pub(crate) arm: u8,
    pub(crate) ipv6: bool,
}

impl Need {
    /// Direct return and NAT need none.
    pub(super) fn of(mode: &Mode, arm: u8, ipv6: bool) -> Option<Need> {
        let Mode::Tunnel(tunnel) = mode else { return None };
        let (kind, port, vni) = (tunnel.kind as u8, tunnel.port, tunnel.vni);
        Some(Need { kind, port, vni, arm, ipv6 })
    }
}

/// What one service asks of a backend.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Wish {
    pub(super) state: BackendState,
    pub(super) arm: u8,
    pub(super) nat: bool,
    pub(super) probe: Addr,
    pub(super) need: Option<Need>,
}

/// A backend of a service, as the region has it.
pub(super) struct Known {
    pub(super) key: Key,
    pub(super) wish: Wish,
    /// Its id.
    pub(super) backend: u32,
}
