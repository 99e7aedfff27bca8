//! Our place at AWS: the group, and as what we are registered in it; kept for bad days.

use std::net::IpAddr;
use std::path::Path;

use config::checked::{Aws as Settings, AwsMode, GroupBy};
use serde::{Deserialize, Serialize};

use super::Appliance;
use super::ask::{Cloud, Connected};
use crate::aws::call::Aws;
use crate::aws::group::{self, GroupError};
use crate::aws::told::{CallError, Failure, Group, Identity};

/// The ingress port as the cloud has to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ingress {
    /// Its link address.
    pub mac: [u8; 6],
    /// Our addresses on it, the preferred first.
    pub addresses: Vec<IpAddr>,
}

/// Where we belong.
#[derive(Clone)]
pub struct Place {
    /// This instance.
    pub identity: Identity,
    /// Its group.
    pub group: Group,
    /// As what it is registered there.
    pub target: String,
    /// How AWS is asked.
    pub(super) connected: Connected,
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

impl PlaceError {
    /// Whether it says nothing about our place: AWS can't or won't tell.
    pub fn is_silence(&self) -> bool {
        matches!(self, PlaceError::Call(error) if error.kind != Failure::Absent)
    }
}

/// As it lies on the disk.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// What was looked for; a place that was found by something else says nothing.
    by: String,
    identity: Identity,
    group: Group,
    target: String,
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
    /// Asks AWS for it.
    pub(super) async fn find(
        settings: &Settings,
        cloud: &Cloud,
        appliance: &dyn Appliance,
    ) -> Result<Place, PlaceError> {
        let identity = cloud.identity().await?;
        let connected = cloud.connect(&identity.region).await?;
        let aws: &dyn Aws = connected.patient();
        let group = the_group(aws, settings, &identity.region).await?;
        let ingress = appliance.ingress().ok_or(PlaceError::NoIngress)?;
        let target = group::registered_as(&group, &identity, ingress.mac, &ingress.addresses)?;
        Ok(Place { identity, group, target, connected })
    }

    /// Remembers it; not to be able to is no reason to do without.
    pub(super) fn keep(&self, mode: &AwsMode, file: Option<&Path>) {
        let Some(file) = file else { return };
        let kept = Kept {
            by: format!("{mode:?}"),
            identity: self.identity.clone(),
            group: self.group.clone(),
            target: self.target.clone(),
        };
        let beside = file.with_extension("new");
        let written = serde_json::to_vec_pretty(&kept)
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(&beside, text))
            .and_then(|()| std::fs::rename(&beside, file));
        if let Err(error) = written {
            tracing::warn!("{}: our place at AWS is not kept: {error}", file.display());
        }
    }

    /// The one that was kept for the same mode, if it is still this instance's as far as is known.
    pub(super) async fn kept(mode: &AwsMode, file: Option<&Path>, cloud: &Cloud) -> Option<Place> {
        let text = std::fs::read(file?).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        // An image that was made of a running appliance has its place, and not its identity.
        let other = match cloud.identity().await {
            Ok(identity) => identity.instance_id != kept.identity.instance_id,
            Err(_) => false,
        };
        if other || kept.by != format!("{mode:?}") {
            return None;
        }
        let connected = cloud.connect(&kept.identity.region).await.ok()?;
        let Kept { identity, group, target, .. } = kept;
        Some(Place { identity, group, target, connected })
    }
}
