//! What can't change of what is wanted: by it things are found again.

use azure::id::ResourceId;
use serde::{Deserialize, Serialize};

use super::{Spec, Wrong};
use crate::names;

/// What can't change once something is made by it: it is where things are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fixed {
    /// Of the service.
    pub service: ResourceId,
    /// As it was told.
    pub location: String,
    /// As it was told.
    pub nat_subnet: Option<ResourceId>,
    /// Of the endpoint, where one is wanted.
    pub endpoint: Option<FixedEndpoint>,
}

/// The same of the consumers' side.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FixedEndpoint {
    /// Of the endpoint.
    pub id: ResourceId,
    /// As it was told.
    pub subnet: ResourceId,
    /// As it was told.
    pub network: ResourceId,
}

impl Fixed {
    /// What is fixed by a spec that was checked.
    ///
    /// # Errors
    /// The name that comes of it is none that Azure takes.
    pub fn of(name: &str, spec: &Spec) -> Result<Fixed, Wrong> {
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
            Ok(FixedEndpoint {
                id: ResourceId::network(subscription, group, "privateEndpoints", &id),
                subnet: endpoint.subnet.0.clone(),
                network: endpoint.network.0.clone(),
            })
        });
        Ok(Fixed {
            service,
            location: spec.location.clone(),
            nat_subnet: spec.nat_subnet.as_ref().map(|subnet| subnet.0.clone()),
            endpoint: endpoint.transpose()?,
        })
    }

    /// The first field that is not as it was. Only an endpoint may come later.
    pub fn differs(&self, now: &Fixed) -> Option<Wrong> {
        let (was, is) = (&self.service, &now.service);
        let same = |field, was: &str, is: &str| {
            let allowed = "delete the object and make it anew, or write what it was";
            (!was.eq_ignore_ascii_case(is)).then(|| {
                Wrong::new(field, format!("it was `{was}` and can't become `{is}`"), allowed)
            })
        };
        let or_none = |id: Option<&ResourceId>| id.map_or("", ResourceId::as_str).to_owned();
        same("spec.subscription", was.subscription(), is.subscription())
            .or_else(|| same("spec.resource_group", was.group(), is.group()))
            .or_else(|| same("spec.service_name", was.name(), is.name()))
            .or_else(|| same("spec.location", &self.location, &now.location))
            .or_else(|| {
                let (was, is) = (self.nat_subnet.as_ref(), now.nat_subnet.as_ref());
                same("spec.nat_subnet", &or_none(was), &or_none(is))
            })
            .or_else(|| {
                let was = self.endpoint.as_ref()?;
                let part = |of: fn(&FixedEndpoint) -> &ResourceId| {
                    (of(was).to_string(), or_none(now.endpoint.as_ref().map(of)))
                };
                let (was, is) = part(|endpoint| &endpoint.subnet);
                let subnet = same("spec.endpoint.subnet", &was, &is);
                let (was, is) = part(|endpoint| &endpoint.network);
                let network = same("spec.endpoint.network", &was, &is);
                let (was, is) = part(|endpoint| &endpoint.id);
                let group = same("spec.endpoint.resource_group", &was, &is);
                subnet.or(network).or(group)
            })
    }
}
