//! Validation of the `[private_link]` section, with defaults from `[azure]`.

use std::time::Duration;

use super::azure;
use super::validator::Validator;
use crate::checked::{Azure, AzureEndpoints, PrivateLink, PrivateLinkOwner};
use crate::file;
use crate::private_link::SpecDefaults;
use crate::private_link::id::ResourceId;
use crate::validation_error::ValidationError;

/// Names of the Azure clouds whose API addresses Weir knows.
const ENVIRONMENTS: [&str; 3] = ["AzurePublicCloud", "AzureUSGovernmentCloud", "AzureChinaCloud"];

pub(super) fn check(
    validator: &mut Validator,
    file: Option<file::PrivateLink>,
    name: &str,
    azure: Option<&Azure>,
) -> Option<PrivateLink> {
    let file = file?;
    validator.name("private_link.fleet", &file.fleet);
    let non_empty = |text: String| (!text.is_empty()).then_some(text);
    let environment = non_empty(file.environment);
    if environment.as_ref().is_some_and(|name| !ENVIRONMENTS.contains(&name.as_str())) {
        let remedy = format!("allowed: {}", ENVIRONMENTS.join(", "));
        validator.reject("private_link.environment", "not the name of an Azure cloud", &remedy);
    }
    let defaults = SpecDefaults {
        subscription: file.subscription,
        resource_group: file.resource_group,
        location: file.location,
    };
    for ValidationError { field, fault, remedy } in defaults.check() {
        validator.reject(&field, &fault, &remedy);
    }
    let azure_endpoints = azure.map(|azure| &azure.endpoints);
    let metadata = match (non_empty(file.metadata), azure_endpoints) {
        (Some(text), _) => azure::check_url(validator, "private_link.metadata", &text, "http://"),
        (None, Some(inherited)) => inherited.metadata.clone(),
        (None, None) => file::Azure::default().metadata,
    };
    let resource_manager = non_empty(file.resource_manager)
        // Tokens are only sent to servers whose certificate is verified.
        .map(|text| azure::check_url(validator, "private_link.resource_manager", &text, "https://"))
        .or_else(|| azure_endpoints.and_then(|inherited| inherited.resource_manager.clone()));
    let version = azure_endpoints.map(|inherited| inherited.imds_version.clone());
    Some(PrivateLink {
        owner: check_owner(validator, file.owner, file.lease_zone, name),
        lease: Duration::from_secs(file.lease_s.into()),
        defaults,
        fleet: file.fleet,
        credential: file.credential.or(azure.map(|a| a.credential)).unwrap_or_default(),
        client_id: non_empty(file.client_id).or_else(|| azure.and_then(|a| a.client_id.clone())),
        endpoint_client_id: non_empty(file.endpoint_client_id),
        environment,
        endpoints: AzureEndpoints {
            resource_manager,
            metadata,
            imds_version: version.unwrap_or_else(|| file::Azure::default().imds_version),
        },
    })
}

/// Returns how the owner is determined: by `owner`, by the lease in `zone`, or without both, this
/// appliance (`name`) is the owner.
fn check_owner(
    validator: &mut Validator,
    owner: String,
    zone: String,
    name: &str,
) -> PrivateLinkOwner {
    let key = "private_link.lease_zone";
    match (owner.is_empty(), zone.is_empty()) {
        (true, true) => PrivateLinkOwner::Named(name.to_owned()),
        (false, true) => {
            validator.name("private_link.owner", &owner);
            PrivateLinkOwner::Named(owner)
        }
        (false, false) => {
            validator.reject(key, "private_link.owner is set as well", "leave one of them out");
            PrivateLinkOwner::Named(owner)
        }
        (true, false) => {
            let id = ResourceId::parse(&zone).ok();
            match id.filter(|id| id.named("privateDnsZones") == Some(id.name())) {
                Some(id) => PrivateLinkOwner::Lease(id),
                None => {
                    let remedy = "write /subscriptions/SUBSCRIPTION/resourceGroups/GROUP/\
                                   providers/Microsoft.Network/privateDnsZones/NAME";
                    validator.reject(key, "not the ID of a private DNS zone", remedy);
                    PrivateLinkOwner::Named(name.to_owned())
                }
            }
        }
    }
}
