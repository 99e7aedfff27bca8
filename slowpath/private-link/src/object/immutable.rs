//! Immutable parts of the desired state, which determine where resources are found again.

use azure::id::ResourceId;
use serde::{Deserialize, Serialize};

use super::{Spec, ValidationError};
use crate::names;

/// Parts of the desired state that locate the resources. They are stored before anything is
/// created, and are immutable from then on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImmutableSpec {
    /// Id of the private link service.
    pub service: ResourceId,
    /// Azure region from the spec.
    pub location: String,
    /// NAT subnet from the spec.
    pub nat_subnet: Option<ResourceId>,
    /// The consumer side, if an endpoint is desired.
    pub endpoint: Option<ImmutableEndpoint>,
}

/// Immutable parts of the consumer side.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImmutableEndpoint {
    /// Id of the private endpoint.
    pub id: ResourceId,
    /// Subnet from the spec.
    pub subnet: ResourceId,
    /// Virtual network from the spec.
    pub network: ResourceId,
}

impl ImmutableSpec {
    /// Returns the immutable parts of a validated spec.
    ///
    /// # Errors
    /// Fails if a derived name is not valid at Azure.
    pub fn of(name: &str, spec: &Spec) -> Result<ImmutableSpec, ValidationError> {
        let service = ResourceId::network(
            &spec.subscription,
            &spec.resource_group,
            "privateLinkServices",
            &names::service(name, spec)?,
        );
        let endpoint = spec.endpoint.as_ref().map(|endpoint| {
            let group = endpoint.resource_group.as_deref().unwrap_or(endpoint.subnet.0.group());
            let subscription = endpoint.subnet.0.subscription();
            let id = names::endpoint(name)?;
            Ok(ImmutableEndpoint {
                id: ResourceId::network(subscription, group, "privateEndpoints", &id),
                subnet: endpoint.subnet.0.clone(),
                network: endpoint.network.0.clone(),
            })
        });
        Ok(ImmutableSpec {
            service,
            location: spec.location.clone(),
            nat_subnet: spec.nat_subnet.as_ref().map(|subnet| subnet.0.clone()),
            endpoint: endpoint.transpose()?,
        })
    }

    /// Returns an error for the first field that has changed in `now`; `None` if none has. The only
    /// permitted change is the addition of an endpoint.
    pub fn forbidden_change(&self, now: &ImmutableSpec) -> Option<ValidationError> {
        let (was, is) = (&self.service, &now.service);
        let error_if_changed = |field, was: &str, is: &str| {
            let remedy = "restore the old value, or delete the object and create it anew";
            (!was.eq_ignore_ascii_case(is)).then(|| {
                ValidationError::new(field, format!("cannot change from `{was}` to `{is}`"), remedy)
            })
        };
        let or_none = |id: Option<&ResourceId>| id.map_or("", ResourceId::as_str).to_owned();
        error_if_changed("spec.subscription", was.subscription(), is.subscription())
            .or_else(|| error_if_changed("spec.resource_group", was.group(), is.group()))
            .or_else(|| error_if_changed("spec.service_name", was.name(), is.name()))
            .or_else(|| error_if_changed("spec.location", &self.location, &now.location))
            .or_else(|| {
                let (was, is) = (self.nat_subnet.as_ref(), now.nat_subnet.as_ref());
                error_if_changed("spec.nat_subnet", &or_none(was), &or_none(is))
            })
            .or_else(|| {
                let was = self.endpoint.as_ref()?;
                let part = |of: fn(&ImmutableEndpoint) -> &ResourceId| {
                    (of(was).to_string(), or_none(now.endpoint.as_ref().map(of)))
                };
                let (was, is) = part(|endpoint| &endpoint.subnet);
                let subnet = error_if_changed("spec.endpoint.subnet", &was, &is);
                let (was, is) = part(|endpoint| &endpoint.network);
                let network = error_if_changed("spec.endpoint.network", &was, &is);
                let (was, is) = part(|endpoint| &endpoint.id);
                let group = error_if_changed("spec.endpoint.resource_group", &was, &is);
                subnet.or(network).or(group)
            })
    }
}
