//! The appliance's place at AWS: its target group and its target.

use config::checked::{Aws as Settings, AwsMode, GroupBy};
use serde::{Deserialize, Serialize};

use super::cloud::Cloud;
use crate::call::Aws;
use crate::group::{self, GroupError};
use crate::told::{CallError, Failure, Group, Identity};
use clouds::appliance::Appliance;
use clouds::retry::Policy;
use clouds::runner::SearchError;

/// The appliance's place at AWS.
#[derive(Clone, Serialize, Deserialize)]
pub struct Place {
    /// Identity of this instance.
    pub identity: Identity,
    /// The target group.
    pub group: Group,
    /// Id of the target: an instance id or an address.
    pub target: String,
}

/// Why no place was found.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The ingress port does not exist yet.
    #[error("the ingress port has no kernel interface yet; is the fastpath running?")]
    NoIngress,
    /// Mode routes has no target group.
    #[error("aws.mode = \"routes\" has no target group")]
    NoGroup,
    /// The target group or the interface cannot be used.
    #[error("{0}")]
    Group(#[from] GroupError),
    /// A call to AWS failed.
    #[error("{0}")]
    Call(#[from] CallError),
}

impl SearchError for PlaceError {
    fn silence(&self) -> Option<&CallError> {
        match self {
            PlaceError::Call(error) if error.kind != Failure::Absent => Some(error),
            _ => None,
        }
    }

    fn passes(&self) -> bool {
        match self {
            PlaceError::Call(error) => {
                matches!(error.kind, Failure::Throttled | Failure::Transient)
            }
            PlaceError::NoIngress => true,
            PlaceError::NoGroup | PlaceError::Group(_) => false,
        }
    }
}

/// Returns the target group, found by its ARN or its tag.
///
/// # Errors
/// Fails if there is none, more than one, or one that is not a gateway load balancer's.
pub async fn the_group(
    aws: &dyn Aws,
    settings: &Settings,
    region: &str,
) -> Result<Group, PlaceError> {
    let arn = match &settings.mode {
        AwsMode::Gateway(GroupBy::Arn(arn)) => arn.clone(),
        AwsMode::Gateway(GroupBy::Cluster(cluster)) => {
            let (key, value) = group::tag(&settings.tag_prefix, cluster);
            let arns = aws.groups_by_tag(&key, &value).await?;
            group::by_tag(&arns, (&key, &value), region)?.to_owned()
        }
        AwsMode::Routes { .. } => return Err(PlaceError::NoGroup),
    };
    let groups = match aws.groups(std::slice::from_ref(&arn)).await {
        Err(error) if error.kind == Failure::Absent => Vec::new(),
        told => told?,
    };
    Ok(group::by_arn(&groups, &arn)?.clone())
}

impl Place {
    /// Searches the place once.
    pub(super) async fn find(
        settings: &Settings,
        cloud: &Cloud,
        appliance: &dyn Appliance,
    ) -> Result<Place, PlaceError> {
        let ingress = appliance.ingress().ok_or(PlaceError::NoIngress)?;
        let identity = cloud.identity().await?;
        let account = cloud.account(&identity.region).await?.with_policy(Policy::ONCE);
        let group = the_group(&account, settings, &identity.region).await?;
        let target = group::registered_as(&group, &identity, ingress.mac, &ingress.addresses)?;
        Ok(Place { identity, group, target })
    }
}
