//! Conversions that both generations of Cilium's BGP objects have in common.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::wire::{CommunityFields, FamilyFields, SessionFields};
use crate::kubernetes::{Meta, Settings};
use crate::name::Name;
use crate::object::bgp::{
    AddressKind, BgpPeeringPolicySpec, Community, Family, FamilySpec, LargeCommunity, Neighbor,
    Password, PathAttributes,
};
use crate::object::{ChangeError, Object, Spec};

/// Selector types for addresses of pods, which the appliance does not have.
pub(super) const OF_PODS: [&str; 2] = ["PodCIDR", "CiliumPodIPPool"];

/// Annotation of a policy that was converted from Cilium's objects, with their generation as value.
pub const GENERATION: &str = "weir.dev/cilium-bgp-generation";

/// Value of [`GENERATION`] for a CiliumBGPPeeringPolicy.
pub const FIRST_GENERATION: &str = "1";

/// Value of [`GENERATION`] for a CiliumBGPClusterConfig.
pub const SECOND_GENERATION: &str = "2";

/// Creates a neighbor with these session parameters; missing ones have Weir's defaults. The caller
/// sets its address and AS number.
pub(super) fn neighbor_of(from: &SessionFields) -> Neighbor {
    let mut neighbor = Neighbor::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let set = |field: &mut u32, value: Option<u32>| *field = value.unwrap_or(*field);
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

/// Returns the AS number; 0 (any) if it is missing.
pub(super) fn asn_of(value: Option<u32>) -> u32 {
    value.unwrap_or_default()
}

/// Parses one address, with or without its full prefix length, and the interface of a link-local
/// one: `fe80::1%eth0`.
pub(super) fn peer_address(
    text: &str,
    field: &str,
) -> Result<(IpAddr, Option<Box<str>>), ChangeError> {
    let (host, length) = text.split_once('/').unwrap_or((text, ""));
    let (address, interface) = match host.split_once('%') {
        Some((address, interface)) => (address, Some(interface)),
        None => (host, None),
    };
    let parsed = address.parse::<IpAddr>().ok();
    let is_full_length = |address: &IpAddr| match length {
        "" => true,
        length => length == if address.is_ipv4() { "32" } else { "128" },
    };
    let parsed = parsed.filter(is_full_length).ok_or_else(|| {
        let wrong = match text {
            "" => "missing, and neighbors are not discovered".to_owned(),
            text => format!("`{text}` is not a neighbor's address"),
        };
        ChangeError::new(field, wrong, "allowed: one address, `192.0.2.1` or `192.0.2.1/32`")
    })?;
    if interface.is_none() && matches!(parsed, IpAddr::V6(six) if six.is_unicast_link_local()) {
        let wrong = format!("{parsed} is a link-local address, and no interface is set");
        return Err(ChangeError::new(field, wrong, format!("append the interface: {parsed}%eth0")));
    }
    Ok((parsed, interface.map(Into::into)))
}

/// Returns the address families, each with all advertisements.
pub(super) fn families(from: &[FamilyFields], field: &str) -> Result<Vec<FamilySpec>, ChangeError> {
    let one = |(i, from): (usize, &FamilyFields)| {
        let family = match (&*from.afi, &*from.safi) {
            ("ipv4", "unicast") => Family::Ipv4Unicast,
            ("ipv6", "unicast") => Family::Ipv6Unicast,
            (afi, safi) => {
                let wrong = format!("{afi} {safi} is not supported");
                let allowed = "allowed: afi ipv4 or ipv6, safi unicast";
                return Err(ChangeError::new(format!("{field}[{i}]"), wrong, allowed));
            }
        };
        Ok(FamilySpec::new(family))
    };
    from.iter().enumerate().map(one).collect()
}

/// Returns the kinds of addresses; if the list is empty, addresses of load balancers.
pub(super) fn kinds(from: &[AddressKind]) -> Vec<AddressKind> {
    match from {
        [] => vec![AddressKind::LoadBalancerIp],
        named => named.to_vec(),
    }
}

/// Returns path attributes with these communities and this local preference. An error names the
/// field of the invalid community.
pub(super) fn attributes(
    from: &CommunityFields,
    local_preference: Option<u32>,
    at: &str,
) -> Result<PathAttributes, ChangeError> {
    let mut communities = Vec::with_capacity(from.standard.len() + from.well_known.len());
    for (name, list) in [("standard", &from.standard), ("wellKnown", &from.well_known)] {
        communities.extend(read::<Community>(list, &format!("{at}.communities.{name}"))?);
    }
    let large_communities =
        read::<LargeCommunity>(&from.large, &format!("{at}.communities.large"))?;
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
) -> Result<Vec<T>, ChangeError> {
    let one = |(i, text): (usize, &String)| {
        T::try_from(text.clone()).map_err(|text| {
            let (wrong, allowed) = text.split_once(", expected ").unwrap_or((&text, ""));
            ChangeError::new(format!("{field}[{i}]"), wrong, format!("allowed: {allowed}"))
        })
    };
    texts.iter().enumerate().map(one).collect()
}

/// Validates a policy and creates its object. Errors name the fields as in the Kubernetes object:
/// `names` has Weir's names and those of the Kubernetes object where they differ. `generation` is
/// the value of [`GENERATION`]; `None` for a policy in Weir's own format.
pub(super) fn policy_object(
    meta: &Meta,
    spec: BgpPeeringPolicySpec,
    settings: &Settings,
    names: &[(&str, &str)],
    generation: Option<&str>,
) -> Result<Object, ChangeError> {
    crate::object::ObjectSpec::check(&spec)
        .map_err(|wrong| ChangeError { field: rename_path(&wrong.field, names), ..wrong })?;
    let text = match &*settings.cluster {
        "" => meta.name.clone(),
        cluster => format!("{cluster}/{}", meta.name),
    };
    let name =
        Name::new(&text).map_err(|e| ChangeError::new("metadata.name", e.to_string(), ""))?;
    let spec = Spec::BgpPeeringPolicy(Arc::new(spec));
    let mut object = Object::new(name, settings.source.clone(), spec);
    (object.labels, object.annotations) = (meta.labels.clone(), meta.annotations.clone());
    if let Some(generation) = generation {
        let annotations = object.annotations.get_or_insert_default();
        Arc::make_mut(annotations).insert(GENERATION.into(), generation.into());
    }
    Ok(object)
}

/// Renames the parts of a path according to pairs of old and new names; a part whose new name is
/// empty is omitted.
pub(super) fn rename_path(path: &str, names: &[(&str, &str)]) -> String {
    let part = |part: &str| {
        let (name, index) = part.find('[').map_or((part, ""), |at| part.split_at(at));
        let other = |of: &str| names.iter().find(|(own, _)| *own == of).map(|(_, other)| *other);
        match (other(part), other(name)) {
            (Some(full), _) => full.to_owned(),
            (None, Some(other)) => format!("{other}{index}"),
            (None, None) => part.to_owned(),
        }
    };
    let parts: Vec<String> = path.split('.').map(part).filter(|part| !part.is_empty()).collect();
    parts.join(".")
}
