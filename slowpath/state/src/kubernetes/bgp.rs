//! Conversion of Cilium's BGP objects of both generations, and of Weir's own, to peering policies.
//!
//! The first generation is `CiliumBGPPeeringPolicy`: each object is a policy by itself. The second
//! generation has four kinds; each `CiliumBGPClusterConfig` becomes a policy and refers to objects
//! of the others. They are collected while files are read, and joined to policies afterwards.

mod join;
mod shared;
mod wire;

use super::{Meta, Settings};
use crate::object::bgp::{
    AdvertisementSpec, BgpPeeringPolicySpec, Neighbor, PathAttributes, RouterSpec,
};
use crate::object::{ChangeError, Object};
pub use shared::{FIRST_GENERATION, GENERATION, SECOND_GENERATION};

pub(super) use join::{Located, PolicyParts};
use shared::{
    OF_PODS, asn_of, attributes, families, kinds, neighbor_of, peer_address, policy_object,
};
use wire::{PathAttributesFields, VirtualRouter};
pub(super) use wire::{PeeringPolicy, WeirPolicy};

/// Selector type of path attributes that apply to load balancer addresses.
const LOAD_BALANCERS: &str = "CiliumLoadBalancerIPPool";

/// Names of Weir's fields in the first generation, for error messages. A part of a path whose name
/// in this table is empty is omitted.
const FIRST_GENERATION_NAMES: [(&str, &str); 19] = [
    ("node_selector", "nodeSelector"),
    ("match_expressions", "matchExpressions"),
    ("routers", "virtualRouters"),
    ("local_asn", "localASN"),
    ("advertisements[0]", ""),
    ("advertisements[1]", ""),
    ("services", "serviceSelector"),
    ("kinds", "serviceAdvertisements"),
    ("address", "peerAddress"),
    ("interface", "peerAddress"),
    ("port", "peerPort"),
    ("asn", "peerASN"),
    ("connect_retry_s", "connectRetryTimeSeconds"),
    ("hold_s", "holdTimeSeconds"),
    ("keepalive_s", "keepAliveTimeSeconds"),
    ("hops", "eBGPMultihopTTL"),
    ("graceful_restart", "gracefulRestart"),
    ("restart_s", "restartTimeSeconds"),
    ("password", "authSecretRef"),
];

/// Converts a `weir.dev/v1` `BgpPeeringPolicy`: a policy in Weir's own format with the metadata of
/// Kubernetes.
pub(super) fn weir_policy(
    meta: &Meta,
    spec: BgpPeeringPolicySpec,
    settings: &Settings,
) -> Result<Object, ChangeError> {
    policy_object(meta, spec, settings, &[], None)
}

/// Converts a `CiliumBGPPeeringPolicy`.
pub(super) fn first_generation(
    from: &PeeringPolicy,
    settings: &Settings,
    notes: &mut Vec<String>,
) -> Result<Object, ChangeError> {
    let mut routers = Vec::with_capacity(from.spec.virtual_routers.len());
    for (i, one) in from.spec.virtual_routers.iter().enumerate() {
        let at = format!("spec.virtualRouters[{i}]");
        routers.push(router(one, &at, &from.metadata.name, notes)?);
    }
    let node_selector = from.spec.node_selector.clone();
    let spec = BgpPeeringPolicySpec { node_selector, routers };
    policy_object(&from.metadata, spec, settings, &FIRST_GENERATION_NAMES, Some(FIRST_GENERATION))
}

/// Converts a virtual router. `policy` is the policy's name, for notes.
fn router(
    from: &VirtualRouter,
    at: &str,
    policy: &str,
    notes: &mut Vec<String>,
) -> Result<RouterSpec, ChangeError> {
    if from.export_pod_cidr || from.pod_ip_pool_selector.is_some() {
        notes.push(format!(
            "{policy}: {at}: exportPodCIDR and podIPPoolSelector are ignored: there are no pods"
        ));
    }
    let advertisement = AdvertisementSpec {
        services: from.service_selector.clone(),
        kinds: kinds(&from.service_advertisements),
        ..AdvertisementSpec::default()
    };
    let mut neighbors: Vec<Neighbor> = Vec::with_capacity(from.neighbors.len());
    for (i, fields) in from.neighbors.iter().enumerate() {
        let at = format!("{at}.neighbors[{i}]");
        let mut neighbor = neighbor_of(&fields.session());
        (neighbor.address, neighbor.interface) =
            peer_address(&fields.peer_address, &format!("{at}.peerAddress"))?;
        neighbor.asn = asn_of(fields.peer_asn);
        let families = families(&fields.families, &format!("{at}.families"))?;
        if !families.is_empty() {
            neighbor.families = families;
        }
        for (j, fields) in fields.advertised_path_attributes.iter().enumerate() {
            let at = format!("{at}.advertisedPathAttributes[{j}]");
            let Some(added) = load_balancer_attributes(fields, &at, policy, notes)? else {
                continue;
            };
            for family in &mut neighbor.families {
                join::add_attributes(&mut family.attributes, &added);
            }
        }
        let is_external = neighbor.asn != 0 && neighbor.asn != from.local_asn;
        for family in &mut neighbor.families {
            if is_external && family.attributes.local_preference.take().is_some() {
                notes.push(format!(
                    "{policy}: {at}: localPreference is ignored: the neighbor is in another AS"
                ));
            }
        }
        neighbors.push(neighbor);
    }
    Ok(RouterSpec {
        local_asn: from.local_asn,
        router_id: None,
        listen_port: None,
        advertisements: vec![advertisement],
        neighbors,
        unresolved: Vec::new(),
    })
}

/// Returns the path attributes if they apply to load balancer addresses; `None`, with a note, if
/// they apply to pods.
fn load_balancer_attributes(
    from: &PathAttributesFields,
    at: &str,
    policy: &str,
    notes: &mut Vec<String>,
) -> Result<Option<PathAttributes>, ChangeError> {
    if from.selector_type != LOAD_BALANCERS && !OF_PODS.contains(&&*from.selector_type) {
        let wrong = format!("unknown selector type `{}`", from.selector_type);
        let allowed = format!("allowed: {LOAD_BALANCERS}, {}", OF_PODS.join(", "));
        return Err(ChangeError::new(format!("{at}.selectorType"), wrong, allowed));
    }
    if from.selector_type != LOAD_BALANCERS {
        let ignored = &from.selector_type;
        notes.push(format!("{policy}: {at}: {ignored} is ignored: there are no pods"));
        return Ok(None);
    }
    if from.selector.as_ref().is_some_and(|selector| *selector != Default::default()) {
        let wrong = "address pools are not supported";
        let allowed = "leave the selector out, or use v2 objects, which select services by label";
        return Err(ChangeError::new(format!("{at}.selector"), wrong, allowed));
    }
    let kinds = vec![crate::object::bgp::AddressKind::LoadBalancerIp];
    Ok(Some(PathAttributes { kinds, ..attributes(&from.communities, from.local_preference, at)? }))
}

#[cfg(test)]
mod tests;
