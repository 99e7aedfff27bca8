//! Search for the appliance's location at AWS: its target group, and its target there.

use config::checked::{Aws as Settings, AwsMode, GroupBy};
use serde::{Deserialize, Serialize};

use super::cloud::Cloud;
use crate::call::Aws;
use crate::group::{self, GroupError};
use crate::types::{CallError, Failure, Group, Identity};
use clouds::appliance::Appliance;
use clouds::retry::Policy;
use clouds::runner::SearchError;

/// The appliance's location at AWS.
#[derive(Clone, Serialize, Deserialize)]
pub struct Location {
    /// Identity of this instance.
    pub identity: Identity,
    /// The target group.
    pub group: Group,
    /// Id of this appliance's target: an instance id or an address.
    pub target: String,
}

/// Why no location was found.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// The ingress port does not exist yet.
    #[error("the ingress port has no kernel interface yet; is the fastpath running?")]
    NoIngress,
    /// The configured mode is routes, which uses no target group.
    #[error("aws.mode = \"routes\" has no target group")]
    NoGroup,
    /// The target group or the interface cannot be used.
    #[error("{0}")]
    Group(#[from] GroupError),
    /// A call to AWS failed.
    #[error("{0}")]
    Call(#[from] CallError),
}

impl SearchError for LocationError {
    fn no_answer(&self) -> Option<&CallError> {
        match self {
            LocationError::Call(error) if error.kind != Failure::Absent => Some(error),
            _ => None,
        }
    }

    fn is_temporary(&self) -> bool {
        match self {
            LocationError::Call(error) => {
                matches!(error.kind, Failure::Throttled | Failure::Transient)
            }
            LocationError::NoIngress => true,
            LocationError::NoGroup | LocationError::Group(_) => false,
        }
    }
}

/// Returns the configured target group, found by its ARN or its tag.
///
/// # Errors
/// Fails if there is no such group or more than one, if the group does not belong to a gateway load
/// balancer, or if a call fails.
pub async fn find_group(
    aws: &dyn Aws,
    settings: &Settings,
    region: &str,
) -> Result<Group, LocationError> {
    let arn = match &settings.mode {
        AwsMode::Gateway(GroupBy::Arn(arn)) => arn.clone(),
        AwsMode::Gateway(GroupBy::Cluster(cluster)) => {
            let (key, value) = group::tag(&settings.tag_prefix, cluster);
            let arns = aws.groups_by_tag(&key, &value).await?;
            group::by_tag(&arns, (&key, &value), region)?.to_owned()
        }
        AwsMode::Routes { .. } => return Err(LocationError::NoGroup),
    };
    let groups = match aws.groups(std::slice::from_ref(&arn)).await {
        Err(error) if error.kind == Failure::Absent => Vec::new(),
        result => result?,
    };
    Ok(group::by_arn(&groups, &arn)?.clone())
}

impl Location {
    /// Searches the location once.
    pub(super) async fn find(
        settings: &Settings,
        cloud: &Cloud,
        appliance: &dyn Appliance,
    ) -> Result<Location, LocationError> {
        let ingress = appliance.ingress().ok_or(LocationError::NoIngress)?;
        let identity = cloud.identity().await?;
        let account = cloud.account(&identity.region).await?.with_policy(Policy::ONCE);
        let group = find_group(&account, settings, &identity.region).await?;
        let target = group::target_id(&group, &identity, ingress.mac, &ingress.addresses)?;
        Ok(Location { identity, group, target })
    }
}
