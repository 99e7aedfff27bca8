//! What both generations say in the same words.

use std::net::{IpAddr, Ipv4Addr};

use super::wire::{CommunityFields, FamilyFields, SessionFields};
use crate::object::Refusal;
use crate::object::bgp::{
    AddressKind, Community, Family, FamilySpec, LargeCommunity, Neighbor, Password, PathAttributes,
};

/// A neighbor with this session, of no address yet; what is not said is as usual.
pub(super) fn neighbor_of(from: &SessionFields) -> Neighbor {
    let mut neighbor = Neighbor::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let set = |field: &mut u32, said: Option<u32>| *field = said.unwrap_or(*field);
    set(&mut neighbor.connect_retry_s, from.timers.connect_retry_time_seconds);
    set(&mut neighbor.hold_s, from.timers.hold_time_seconds);
    set(&mut neighbor.keepalive_s, from.timers.keep_alive_time_seconds);
    neighbor.port = from.peer_port.unwrap_or(neighbor.port);
    neighbor.hops = from.hops.unwrap_or(neighbor.hops);
    neighbor.password = from.auth_secret_ref.clone().map(Password::Secret);
    if let Some(restart) = from.graceful_restart {
        let own = &mut neighbor.graceful_restart;
        own.enabled = restart.enabled;
        set(&mut own.restart_s, restart.restart_time_seconds);
    }
    neighbor
}

/// None said is any.
pub(super) fn asn_of(said: Option<u32>) -> u32 {
    said.unwrap_or_default()
}

/// One address, written as such or as the network of it alone, with the interface behind a
/// link-local one: `fe80::1%eth0`.
pub(super) fn peer_address(text: &str, field: &str) -> Result<(IpAddr, Option<Box<str>>), Refusal> {
    let (place, length) = text.split_once('/').unwrap_or((text, ""));
    let (address, interface) = match place.split_once('%') {
        Some((address, interface)) => (address, Some(interface)),
        None => (place, None),
    };
    let parsed = address.parse::<IpAddr>().ok();
    let whole = |address: &IpAddr| match length {
        "" => true,
        length => length == if address.is_ipv4() { "32" } else { "128" },
    };
    let parsed = parsed.filter(whole).ok_or_else(|| {
        let wrong = match text {
            "" => "it is missing, and no neighbor is discovered".to_owned(),
            text => format!("`{text}` is no neighbor's address"),
        };
        Refusal::new(field, wrong, "allowed: one address, `192.0.2.1` or `192.0.2.1/32`")
    })?;
    if interface.is_none() && matches!(parsed, IpAddr::V6(six) if six.is_unicast_link_local()) {
        let wrong = format!("{parsed} is there on every network, and no interface is said");
        return Err(Refusal::new(
            field,
            wrong,
            format!("write it behind the address: {parsed}%eth0"),
        ));
    }
    Ok((parsed, interface.map(Into::into)))
}

/// Families with all advertisements.
pub(super) fn families(from: &[FamilyFields], field: &str) -> Result<Vec<FamilySpec>, Refusal> {
    let one = |(i, from): (usize, &FamilyFields)| {
        let family = match (&*from.afi, &*from.safi) {
            ("ipv4", "unicast") => Family::Ipv4Unicast,
            ("ipv6", "unicast") => Family::Ipv6Unicast,
            (afi, safi) => {
                let wrong = format!("{afi} {safi} is not spoken");
                let allowed = "allowed: afi ipv4 or ipv6, safi unicast";
                return Err(Refusal::new(format!("{field}[{i}]"), wrong, allowed));
            }
        };
        Ok(FamilySpec::new(family))
    };
    from.iter().enumerate().map(one).collect()
}

/// Load balancers' addresses, unless others are named.
pub(super) fn kinds(from: &[AddressKind]) -> Vec<AddressKind> {
    match from {
        [] => vec![AddressKind::LoadBalancerIp],
        named => named.to_vec(),
    }
}

/// Communities and preference, each community by its own field.
pub(super) fn attributes(
    said: &CommunityFields,
    local_preference: Option<u32>,
    at: &str,
) -> Result<PathAttributes, Refusal> {
    let mut communities = Vec::with_capacity(said.standard.len() + said.well_known.len());
    for (name, list) in [("standard", &said.standard), ("wellKnown", &said.well_known)] {
        communities.extend(read::<Community>(list, &format!("{at}.communities.{name}"))?);
    }
    let large_communities =
        read::<LargeCommunity>(&said.large, &format!("{at}.communities.large"))?;
    Ok(PathAttributes {
        communities,
        large_communities,
        local_preference,
        ..PathAttributes::default()
    })
}

fn read<T: TryFrom<String, Error = String>>(
    texts: &[String],
    field: &str,
) -> Result<Vec<T>, Refusal> {
    let one = |(i, text): (usize, &String)| {
        T::try_from(text.clone()).map_err(|text| {
            let (wrong, allowed) = text.split_once(", expected ").unwrap_or((&text, ""));
            Refusal::new(format!("{field}[{i}]"), wrong, format!("allowed: {allowed}"))
        })
    };
    texts.iter().enumerate().map(one).collect()
}
