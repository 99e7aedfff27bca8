//! Our place at AWS: the group, and as what we are registered in it.

use config::checked::{Aws as Settings, AwsMode, GroupBy};
use serde::{Deserialize, Serialize};

use super::cloud::Cloud;
use crate::call::Aws;
use crate::group::{self, GroupError};
use crate::told::{CallError, Failure, Group, Identity};
use clouds::appliance::Appliance;
use clouds::retry::Policy;
use clouds::runner::SearchError;

/// Where we belong.
#[derive(Clone, Serialize, Deserialize)]
pub struct Place {
    /// This instance.
    pub identity: Identity,
    /// Its group.
    pub group: Group,
    /// As what it is registered there.
    pub target: String,
}

/// Why there is no place.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The ingress port is not there yet.
    #[error("the ingress port has no kernel interface yet; is the fastpath running?")]
    NoIngress,
    /// The mode has no group.
    #[error("aws.mode = \"routes\" has no target group")]
    NoGroup,
    /// Not the group or the interface that it should be.
    #[error("{0}")]
    Group(#[from] GroupError),
    /// AWS didn't tell.
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

/// Our target group, by its ARN or its tag.
///
/// # Errors
/// There is none, more than one, or one that is no gateway's.
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
    /// Asks AWS for it, once.
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
