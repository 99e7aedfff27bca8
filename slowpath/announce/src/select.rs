//! Policy selection: which BGP peering policy applies to this appliance.

use std::sync::Arc;

use state::kubernetes::{FIRST_GENERATION, GENERATION, SECOND_GENERATION};
use state::labels::Pairs;
use state::name::{Name, Precedence};
use state::object::{BgpPeeringPolicySpec, Kind, Object, Objects, Spec};

/// A BGP peering policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Name of its object.
    pub name: Name,
    /// Specification.
    pub spec: Arc<BgpPeeringPolicySpec>,
    /// Form in which the policy was written.
    pub origin: Origin,
}

/// Form in which a policy was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// Weir's own BgpPeeringPolicy.
    #[default]
    Own,
    /// CiliumBGPPeeringPolicy, the first generation of Cilium's BGP objects.
    CiliumFirst,
    /// CiliumBGPClusterConfig with the objects that it references, the second generation.
    CiliumSecond,
}

impl Origin {
    fn of(object: &Object) -> Origin {
        match object.annotations.as_ref().and_then(|all| all.get(GENERATION)).map(|one| &**one) {
            Some(FIRST_GENERATION) => Origin::CiliumFirst,
            Some(SECOND_GENERATION) => Origin::CiliumSecond,
            _ => Origin::Own,
        }
    }
}

/// Several policies select this appliance, and none takes precedence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{} BGP peering policies select this appliance ({}): change their node_selector so that only \
     one does", .0.len(), .0.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
)]
pub struct MultiplePolicies(pub Vec<Name>);

/// Returns one policy per name: if several sources have the name, the one from the preferred
/// source. Objects that are being deleted are left out.
pub fn preferred_policies(objects: &Objects, precedence: &Precedence) -> Vec<Policy> {
    let mut all: Vec<(&Arc<Object>, Policy)> = Vec::new();
    let live = objects.of_kind(Kind::BgpPeeringPolicy).filter(|o| o.lifecycle().deletion.is_none());
    for object in live {
        let Spec::BgpPeeringPolicy(spec) = &object.spec else { continue };
        let policy = Policy {
            name: object.name.clone(),
            spec: Arc::clone(spec),
            origin: Origin::of(object),
        };
        match all.last_mut() {
            // Objects are ordered by name.
            Some((before, last)) if before.name == object.name => {
                if precedence.rank(&object.source) < precedence.rank(&before.source) {
                    (*before, *last) = (object, policy);
                }
            }
            _ => all.push((object, policy)),
        }
    }
    all.into_iter().map(|(_, policy)| policy).collect()
}

/// Returns whether a policy of Cilium's first generation selects an appliance with these labels. If
/// so, policies of the second generation are not used: both exist while a cluster migrates, and the
/// first generation was in force before.
pub fn first_generation(policies: &[Policy], labels: &Pairs) -> bool {
    let label = |key: &str| labels.as_ref()?.get(key).map(|value| &**value);
    policies.iter().any(|one| one.origin == Origin::CiliumFirst && one.spec.selects(label))
}

/// Returns the policy that selects an appliance with these labels, if any. Of Cilium's two
/// generations the first takes precedence ([`first_generation`]).
///
/// # Errors
/// Several policies select the appliance.
pub fn select<'p>(
    policies: &'p [Policy],
    labels: &Pairs,
) -> Result<Option<&'p Policy>, MultiplePolicies> {
    let label = |key: &str| labels.as_ref()?.get(key).map(|value| &**value);
    let first = first_generation(policies, labels);
    let applies = |policy: &&Policy| {
        policy.spec.selects(label) && !(first && policy.origin == Origin::CiliumSecond)
    };
    let found: Vec<&Policy> = policies.iter().filter(applies).collect();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => {
            Err(MultiplePolicies(several.iter().map(|policy| policy.name.clone()).collect()))
        }
    }
}

#[cfg(test)]
mod tests;
