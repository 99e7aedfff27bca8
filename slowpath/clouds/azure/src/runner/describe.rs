//! Conversion of the lifecycle's state for the report.

use clouds::report::{Carried, Ends};

use crate::life::{Admin, Followed, Life, Source};
use crate::place::Place;
use crate::told::{Family, Tunnels};

/// Returns the state of this machine's entries; empty before the first query.
pub(super) fn state(life: &Life) -> &'static str {
    let Some(pools) = life.pools() else { return "" };
    let of = |admin: Admin| {
        let members = pools.iter().filter_map(|pool| pool.member);
        members.into_iter().any(|member| member.admin == admin)
    };
    match () {
        () if pools.iter().any(|pool| pool.member.is_none()) => "none",
        () if of(Admin::Down) => "down",
        () if of(Admin::Up) => "up",
        () => "member",
    }
}

pub(super) fn carried(followed: Followed, place: &Place) -> Option<Carried> {
    let pool = place.pools.iter().find(|pool| pool.family == followed.family)?;
    let family = match followed.family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    let by = match followed.by {
        Source::Imds => "imds",
        Source::Arm => "arm",
        Source::Kept => "kept",
        Source::File => "file",
    };
    Some(Carried {
        gateway: pool.gateway.clone(),
        family: family.to_owned(),
        carried: ends(followed.carried),
        told: ends(followed.told),
        by: by.to_owned(),
    })
}

fn ends(Tunnels { external, internal }: Tunnels) -> Ends {
    Ends {
        external_port: external.port,
        external_vni: external.vni,
        internal_port: internal.port,
        internal_vni: internal.vni,
    }
}
