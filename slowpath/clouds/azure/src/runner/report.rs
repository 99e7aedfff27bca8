//! Conversion of the membership's state for the report.

use clouds::report::{GatewayTunnels, TunnelPair};

use crate::location::Location;
use crate::membership::{AdminState, Membership, TunnelSource, TunnelStatus};
use crate::types::{Family, Tunnels};

/// Returns the state of this machine's entries: `none` if one is missing, `down` or `up` if one has
/// that administrative state, else `member`; empty before the first query.
pub(super) fn state(membership: &Membership) -> &'static str {
    let Some(pools) = membership.pools() else { return "" };
    let of = |admin: AdminState| {
        let members = pools.iter().filter_map(|pool| pool.member);
        members.into_iter().any(|member| member.admin == admin)
    };
    match () {
        () if pools.iter().any(|pool| pool.member.is_none()) => "none",
        () if of(AdminState::Down) => "down",
        () if of(AdminState::Up) => "up",
        () => "member",
    }
}

pub(super) fn tunnels(status: TunnelStatus, location: &Location) -> Option<GatewayTunnels> {
    let pool = location.pools.iter().find(|pool| pool.family == status.family)?;
    let family = match status.family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    let source = match status.source {
        TunnelSource::Imds => "imds",
        TunnelSource::Arm => "arm",
        TunnelSource::Persisted => "persisted",
        TunnelSource::File => "file",
    };
    Some(GatewayTunnels {
        gateway: pool.gateway.clone(),
        family: family.to_owned(),
        in_force: tunnel_pair(status.in_force),
        reported: tunnel_pair(status.reported),
        source: source.to_owned(),
    })
}

fn tunnel_pair(Tunnels { external, internal }: Tunnels) -> TunnelPair {
    TunnelPair {
        external_port: external.port,
        external_vni: external.vni,
        internal_port: internal.port,
        internal_vni: internal.vni,
    }
}
