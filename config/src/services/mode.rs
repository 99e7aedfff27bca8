//! How packets reach a service's backends (mode and tunnel), and its representation as keys of a
//! service.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::is_default;
use crate::validation_error::ValidationError;
use tables::record::TunnelKind;

/// How packets reach the backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "ModeKeys", into = "ModeKeys")]
#[schemars(with = "ModeKeys")]
pub enum Mode {
    /// Destination and source NAT; the new source is an address of `nat.addresses`. Frontends and
    /// backends are of one family unless [`NatPolicy`](super::NatPolicy) translates.
    #[default]
    Nat,
    /// Encapsulation; replies return through Weir, in the tunnel or without it.
    Tunnel(BackendTunnel),
    /// Encapsulation of packets that arrive without a gateway's tunnel; the backend replies
    /// directly to the client.
    Dsr(BackendTunnel),
}

/// The tunnel to a service's backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendTunnel {
    /// The encapsulation protocol.
    pub kind: TunnelKind,
    /// UDP destination port; 0 for IPIP.
    pub port: u16,
    /// Virtual network identifier, 24 bits; 0 for IPIP and GUE.
    pub vni: u32,
    /// Compute the outer UDP checksum where it may be zero.
    pub outer_checksum: bool,
    /// Set DF in the outer IPv4 header.
    pub dont_fragment: bool,
}

impl BackendTunnel {
    /// Creates a tunnel of this kind with its default port and options.
    pub fn new(kind: TunnelKind) -> BackendTunnel {
        let port = match kind {
            TunnelKind::Geneve => 6081,
            TunnelKind::Vxlan => 4789,
            TunnelKind::Gue => 6080,
            TunnelKind::Ipip => 0,
        };
        BackendTunnel { kind, port, vni: 0, outer_checksum: false, dont_fragment: true }
    }
}

/// The keys of a service that set the mode and its tunnel. A change of the mode replaces all of
/// them.
pub const MODE_KEYS: [&str; 6] =
    ["mode", "tunnel", "tunnel_port", "vni", "outer_checksum", "dont_fragment"];

/// The mode without its tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ModeName {
    #[default]
    Nat,
    Tunnel,
    Dsr,
}

/// The mode and its tunnel as keys of a service.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(super) struct ModeKeys {
    /// `nat` rewrites addresses; `tunnel` encapsulates packets, and replies return through Weir, in
    /// the tunnel or without it; `dsr` encapsulates packets that arrive without a gateway's tunnel,
    /// and the backend replies directly to the client.
    mode: ModeName,
    /// modes tunnel and dsr: `geneve`, `vxlan`, `ipip` or `gue`.
    #[serde(skip_serializing_if = "is_default")]
    tunnel: Option<TunnelKind>,
    /// UDP destination port of the tunnel. Default 6081 (geneve), 4789 (vxlan), 6080 (gue); ipip
    /// has none.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(range(min = 1))]
    tunnel_port: Option<u16>,
    /// Virtual network identifier of geneve and vxlan. Default 0.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(range(min = 0, max = 16777215))]
    vni: Option<u32>,
    /// Compute outer UDP checksums where they may be zero (IPv4).
    #[serde(skip_serializing_if = "is_default")]
    outer_checksum: bool,
    /// Forbid fragmentation of the outer packet (DF).
    #[serde(skip_serializing_if = "is_true")]
    #[schemars(extend("default" = true))]
    dont_fragment: bool,
}

fn is_true(value: &bool) -> bool {
    *value
}

impl Default for ModeKeys {
    fn default() -> ModeKeys {
        ModeKeys::from(Mode::Nat)
    }
}

impl ModeKeys {
    /// Returns a validation error for each key that does not fit the mode or the tunnel.
    pub(super) fn faults(&self) -> Vec<ValidationError> {
        let error = |field, fault: &str, remedy: &str| ValidationError::new(field, fault, remedy);
        let (port, vni) = (self.tunnel_port.is_some(), self.vni.is_some());
        if self.mode == ModeName::Nat {
            let present = [("tunnel", self.tunnel.is_some()), ("tunnel_port", port), ("vni", vni)];
            let present = present.into_iter().filter(|(_, is_present)| *is_present);
            let remedy = "remove it, or write mode = \"tunnel\" or \"dsr\"";
            return present.map(|(key, _)| error(key, "mode nat has no tunnel", remedy)).collect();
        }
        let mut all = Vec::new();
        if self.tunnel.is_none() {
            let remedy = "write tunnel = \"geneve\", \"vxlan\", \"ipip\" or \"gue\"";
            all.push(error("tunnel", "modes tunnel and dsr require a tunnel", remedy));
        }
        if self.tunnel == Some(TunnelKind::Ipip) && port {
            all.push(error("tunnel_port", "ipip has no ports", "remove it"));
        }
        if matches!(self.tunnel, Some(TunnelKind::Ipip | TunnelKind::Gue)) && vni {
            all.push(error("vni", "only geneve and vxlan have a VNI", "remove it"));
        }
        all
    }
}

impl TryFrom<ModeKeys> for Mode {
    type Error = String;

    fn try_from(keys: ModeKeys) -> Result<Mode, String> {
        if let Some(fault) = keys.faults().first() {
            return Err(fault.to_string());
        }
        let Some(kind) = keys.tunnel else { return Ok(Mode::Nat) };
        let defaults = BackendTunnel::new(kind);
        let tunnel = BackendTunnel {
            kind,
            port: keys.tunnel_port.unwrap_or(defaults.port),
            vni: keys.vni.unwrap_or(defaults.vni),
            outer_checksum: keys.outer_checksum,
            dont_fragment: keys.dont_fragment,
        };
        Ok(if keys.mode == ModeName::Dsr { Mode::Dsr(tunnel) } else { Mode::Tunnel(tunnel) })
    }
}

impl From<Mode> for ModeKeys {
    fn from(mode: Mode) -> ModeKeys {
        let (mode, tunnel) = match mode {
            Mode::Nat => (ModeName::Nat, None),
            Mode::Tunnel(tunnel) => (ModeName::Tunnel, Some(tunnel)),
            Mode::Dsr(tunnel) => (ModeName::Dsr, Some(tunnel)),
        };
        ModeKeys {
            mode,
            tunnel: tunnel.map(|tunnel| tunnel.kind),
            tunnel_port: tunnel.map(|tunnel| tunnel.port).filter(|port| *port != 0),
            vni: tunnel.map(|tunnel| tunnel.vni).filter(|vni| *vni != 0),
            outer_checksum: tunnel.is_some_and(|tunnel| tunnel.outer_checksum),
            dont_fragment: tunnel.is_none_or(|tunnel| tunnel.dont_fragment),
        }
    }
}
