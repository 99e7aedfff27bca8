//! What services require of the backends that they share.

use config::services::Mode;
use packet::addr::Addr;
use tables::record::BackendState;

/// Identity of a backend in the region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) addr: Addr,
    pub(super) port: u16,
}

/// A tunnel that backends of tunnel services need, because they send packets back through it. Many
/// backends have the same need.
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
    /// Returns the need of a backend; `None` for NAT, and for direct server return, with which
    /// backends send to the client.
    pub(super) fn of(mode: &Mode, arm: u8, ipv6: bool) -> Option<Need> {
        let Mode::Tunnel(tunnel) = mode else { return None };
        let (kind, port, vni) = (tunnel.kind as u8, tunnel.port, tunnel.vni);
        Some(Need { kind, port, vni, arm, ipv6 })
    }
}

/// What one service requires of a backend's record.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Requirement {
    pub(super) state: BackendState,
    pub(super) arm: u8,
    /// Whether the backend needs NAT ports.
    pub(super) nat: bool,
    /// Source address of health probes; [`Addr::UNSPECIFIED`] for none.
    pub(super) probe: Addr,
    pub(super) need: Option<Need>,
}

/// A backend of a service as it is in the region.
pub(super) struct RecordedBackend {
    pub(super) key: Key,
    pub(super) requirement: Requirement,
    /// Id of the backend.
    pub(super) backend: u32,
}
