//! Joins the four kinds of the second generation (`cilium.io/v2`, `v2alpha1`) to policies: a
//! cluster configuration refers to peer configurations, which select advertisements; a node may
//! have an override.

use std::collections::BTreeMap;

use super::shared::{
    OF_PODS, SECOND_GENERATION, asn_of, attributes, families, kinds, neighbor_of, peer_address,
    policy_object, rename_path,
};
use super::wire::{
    Advertisement, ClusterConfig, Instance, NodeConfigOverride, OneAdvertisement, Peer, PeerConfig,
    SessionFields,
};
use crate::kubernetes::Settings;
use crate::object::bgp::{
    AdvertisementSpec, Aggregation, BgpPeeringPolicySpec, Neighbor, PathAttributes, RouterSpec,
    Selector,
};
use crate::object::{ChangeError, Object};

/// Names of Weir's fields in the second generation, for error messages.
const SECOND_GENERATION_NAMES: [(&str, &str); 18] = [
    ("node_selector", "nodeSelector"),
    ("match_expressions", "matchExpressions"),
    ("routers", "bgpInstances"),
    ("local_asn", "localASN"),
    ("listen_port", "localPort"),
    ("neighbors", "peers"),
    ("address", "peerAddress"),
    ("interface", "peerAddress"),
    ("local_address", "localAddress"),
    ("asn", "peerASN"),
    ("port", "transport.peerPort"),
    ("connect_retry_s", "timers.connectRetryTimeSeconds"),
    ("hold_s", "timers.holdTimeSeconds"),
    ("keepalive_s", "timers.keepAliveTimeSeconds"),
    ("hops", "ebgpMultihop"),
    ("graceful_restart", "gracefulRestart"),
    ("restart_s", "restartTimeSeconds"),
    ("password", "authSecretRef"),
];

/// Names of an advertisement's fields in the second generation, for error messages.
const ADVERTISEMENT_NAMES: [(&str, &str); 5] = [
    ("services", "selector"),
    ("match_expressions", "matchExpressions"),
    ("aggregation", "service"),
    ("ipv4", "aggregationLengthIPv4"),
    ("ipv6", "aggregationLengthIPv6"),
];

/// Object with its location: file, document, and path in the document.
#[derive(Debug)]
pub(in crate::kubernetes) struct Located<T> {
    pub object: T,
    pub location: (String, usize, String),
}

/// Objects of the four kinds, as far as they have been read.
#[derive(Debug, Default)]
pub(in crate::kubernetes) struct PolicyParts {
    /// Cluster configurations; each becomes one policy.
    pub clusters: Vec<Located<ClusterConfig>>,
    /// Peer configurations by name, each with its session parameters and, for each address family,
    /// the selector of advertisements.
    peers: BTreeMap<String, (Neighbor, Vec<Option<Selector>>)>,
    /// Advertisements by name, each with its converted parts.
    advertisements: BTreeMap<String, (Advertisement, Vec<AdvertisementSpec>)>,
    /// Overrides by the name of their node.
    overrides: BTreeMap<String, NodeConfigOverride>,
}

impl PolicyParts {
    /// Adds a peer configuration, after validating it.
    pub(in crate::kubernetes) fn add_peer_config(
        &mut self,
        from: &PeerConfig,
    ) -> Result<(), ChangeError> {
        let spec = &from.spec;
        let mut neighbor = neighbor_of(&spec.session());
        let named = families(&spec.families, "spec.families")?;
        let mut selectors: Vec<Option<Selector>> =
            spec.families.iter().map(|family| family.advertisements.clone()).collect();
        match named.is_empty() {
            true => selectors = vec![None; neighbor.families.len()],
            false => neighbor.families = named,
        }
        neighbor.check_session("spec").map_err(|wrong| ChangeError {
            field: rename_path(&wrong.field, &SECOND_GENERATION_NAMES),
            ..wrong
        })?;
        let name = from.metadata.name.clone();
        reject_duplicate(self.peers.insert(name, (neighbor, selectors)), &from.metadata.name)
    }

    /// Adds an advertisement; parts for pods are noted and omitted.
    pub(in crate::kubernetes) fn add_advertisement(
        &mut self,
        from: Advertisement,
        notes: &mut Vec<String>,
    ) -> Result<(), ChangeError> {
        let name = from.metadata.name.clone();
        let mut parts = Vec::new();
        for (i, one) in from.spec.advertisements.iter().enumerate() {
            let at = format!("spec.advertisements[{i}]");
            match &*one.advertisement_type {
                "Service" => {
                    let part = part(one, &format!("{name}.{i}"), &at)?;
                    part.check(&at).map_err(|wrong| ChangeError {
                        field: rename_path(&wrong.field, &ADVERTISEMENT_NAMES),
                        ..wrong
                    })?;
                    parts.push(part);
                }
                other if OF_PODS.contains(&other) => {
                    notes.push(format!("{name}: {at}: {other} is ignored: there are no pods"));
                }
                other => {
                    let wrong = format!("unknown advertisement type `{other}`");
                    let allowed = format!("allowed: Service, {}", OF_PODS.join(", "));
                    let field = format!("{at}.advertisementType");
                    return Err(ChangeError::new(field, wrong, allowed));
                }
            }
        }
        reject_duplicate(self.advertisements.insert(name.clone(), (from, parts)), &name)
    }

    /// Adds the override of a node.
    pub(in crate::kubernetes) fn add_override(
        &mut self,
        from: NodeConfigOverride,
    ) -> Result<(), ChangeError> {
        let name = from.metadata.name.clone();
        reject_duplicate(self.overrides.insert(name.clone(), from), &name)
    }

    /// Converts a cluster configuration to a policy.
    pub(in crate::kubernetes) fn policy(
        &self,
        from: &ClusterConfig,
        settings: &Settings,
    ) -> Result<Object, ChangeError> {
        let mut routers = Vec::with_capacity(from.spec.bgp_instances.len());
        for (i, instance) in from.spec.bgp_instances.iter().enumerate() {
            let at = format!("spec.bgpInstances[{i}]");
            routers.push(self.router(instance, &at, settings)?);
        }
        let node_selector = from.spec.node_selector.clone();
        let spec = BgpPeeringPolicySpec { node_selector, routers };
        policy_object(
            &from.metadata,
            spec,
            settings,
            &SECOND_GENERATION_NAMES,
            Some(SECOND_GENERATION),
        )
    }

    fn router(
        &self,
        from: &Instance,
        at: &str,
        settings: &Settings,
    ) -> Result<RouterSpec, ChangeError> {
        let of_node = self.overrides.get(&*settings.node).and_then(|node| {
            node.spec.bgp_instances.iter().find(|instance| instance.name == from.name)
        });
        let mut router = RouterSpec {
            local_asn: of_node.and_then(|o| o.local_asn).unwrap_or(from.local_asn),
            router_id: of_node.and_then(|o| o.router_id),
            listen_port: of_node.and_then(|o| o.local_port).or(from.local_port),
            advertisements: Vec::new(),
            neighbors: Vec::with_capacity(from.peers.len()),
            unresolved: Vec::new(),
        };
        for (i, peer) in from.peers.iter().enumerate() {
            // Kubernetes objects are created and deleted one by one: only the peer that refers to a
            // missing object waits for it.
            if let Some(missing) = self.missing(peer) {
                router.unresolved.push(missing.into());
                continue;
            }
            let mut neighbor = self.neighbor(peer, &format!("{at}.peers[{i}]"), &mut router)?;
            let of_peer = of_node.and_then(|o| o.peers.iter().find(|p| p.name == peer.name));
            neighbor.local_address = of_peer.and_then(|peer| peer.local_address);
            router.neighbors.push(neighbor);
        }
        Ok(router)
    }

    /// Returns a description of a peer's missing configuration; `None` if the configuration exists
    /// or the peer names none.
    fn missing(&self, peer: &Peer) -> Option<String> {
        let named = &peer.peer_config_ref.as_ref()?.name;
        if self.peers.contains_key(named) {
            return None;
        }
        let all: Vec<&str> = self.peers.keys().map(String::as_str).collect();
        let defined = match all.is_empty() {
            true => "none is defined".to_owned(),
            false => format!("defined: {}", all.join(", ")),
        };
        Some(format!("peer `{}`: there is no CiliumBGPPeerConfig `{named}`; {defined}", peer.name))
    }

    /// Converts a peer, and adds the advertisements that it selects to the router.
    fn neighbor(
        &self,
        from: &Peer,
        at: &str,
        router: &mut RouterSpec,
    ) -> Result<Neighbor, ChangeError> {
        let default_neighbor = || {
            let neighbor = neighbor_of(&SessionFields::default());
            let selectors = vec![None; neighbor.families.len()];
            (neighbor, selectors)
        };
        let (mut neighbor, selectors) = match &from.peer_config_ref {
            None => default_neighbor(),
            // The configuration exists: the caller has left out peers without theirs.
            Some(named) => self.peers.get(&named.name).cloned().unwrap_or_else(default_neighbor),
        };
        (neighbor.address, neighbor.interface) =
            peer_address(&from.peer_address, &format!("{at}.peerAddress"))?;
        neighbor.asn = asn_of(from.peer_asn);
        for (family, selector) in neighbor.families.iter_mut().zip(selectors) {
            let mut names = Vec::new();
            for part in self.selected(selector.as_ref()) {
                names.push(part.name.clone());
                if !router.advertisements.iter().any(|other| other.name == part.name) {
                    router.advertisements.push(part.clone());
                }
            }
            family.advertisements = Some(names);
        }
        Ok(neighbor)
    }

    /// Returns the parts of the selected advertisements; none without a selector.
    fn selected<'p>(
        &'p self,
        selector: Option<&'p Selector>,
    ) -> impl Iterator<Item = &'p AdvertisementSpec> {
        let all = self.advertisements.values().filter(move |(object, _)| {
            selector.is_some_and(|selector| selector.matches(|key| object.metadata.label(key)))
        });
        all.flat_map(|(_, parts)| parts)
    }
}

/// Converts one entry of an advertisement.
fn part(from: &OneAdvertisement, name: &str, at: &str) -> Result<AdvertisementSpec, ChangeError> {
    Ok(AdvertisementSpec {
        name: name.into(),
        services: from.selector.clone(),
        kinds: kinds(&from.service.addresses),
        prefixes: Vec::new(),
        aggregation: Aggregation {
            ipv4: from.service.aggregation_ipv4,
            ipv6: from.service.aggregation_ipv6,
        },
        attributes: attributes(
            &from.attributes.communities,
            from.attributes.local_preference,
            &format!("{at}.attributes"),
        )?,
    })
}

/// Rejects a name for which an object was inserted before.
fn reject_duplicate<T>(before: Option<T>, name: &str) -> Result<(), ChangeError> {
    match before {
        None => Ok(()),
        Some(_) => {
            let wrong = format!("`{name}` is already defined");
            Err(ChangeError::new("metadata.name", wrong, "remove one of them"))
        }
    }
}

/// Merges `more` into `to`, which gets the communities of both, the higher local preference, and
/// the kinds of `more`.
pub(super) fn add_attributes(to: &mut PathAttributes, more: &PathAttributes) {
    to.kinds.clone_from(&more.kinds);
    to.communities.extend(more.communities.iter().cloned());
    to.large_communities.extend(&more.large_communities);
    to.local_preference = to.local_preference.max(more.local_preference);
}
