//! Tunnels as IMDS and Resource Manager report them, and which report takes precedence.

use std::time::{Duration, Instant};

use config::checked::TunnelPolicy;

use super::event::{PersistedState, PoolState, TunnelSource, TunnelStatus};
use crate::types::{Family, Tunnels};

/// Time that the data plane may take to apply new tunnels.
pub(super) const APPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reported tunnels by source, and those in force.
#[derive(Debug, Default)]
pub(super) struct TunnelReports {
    /// Tunnels in force in the data plane, sorted by family.
    pub(super) in_force: Vec<(Family, Tunnels)>,
    /// The last report of IMDS.
    pub(super) imds: Vec<(Family, Tunnels)>,
    /// When IMDS last reported.
    pub(super) imds_at: Option<Instant>,
    /// The last query of IMDS failed.
    pub(super) imds_failed: bool,
    /// The last report of Resource Manager (ARM): tunnels, or why they cannot be used.
    pub(super) arm: Vec<(Family, Result<Tunnels, String>)>,
    /// When Resource Manager last reported.
    pub(super) arm_at: Option<Instant>,
    /// The tunnels last passed to the data plane, and when.
    pub(super) sent: Option<(Vec<(Family, Tunnels)>, Instant)>,
    /// Since when the reports of IMDS and Resource Manager contradict each other; `None` if they
    /// do not.
    pub(super) contradicted: Option<Instant>,
}

impl TunnelReports {
    pub(super) fn set_in_force(&mut self, mut tunnels: Vec<(Family, Tunnels)>) {
        tunnels.sort_by_key(|(family, _)| *family);
        self.in_force = tunnels;
    }

    /// Records a report of IMDS; `None` if the query failed.
    pub(super) fn record_imds(&mut self, now: Instant, tunnels: Option<Vec<(Family, Tunnels)>>) {
        self.imds_failed = tunnels.is_none();
        if let Some(tunnels) = tunnels {
            (self.imds, self.imds_at) = (tunnels, Some(now));
        }
    }

    pub(super) fn record_arm(&mut self, now: Instant, pools: &[PoolState]) {
        self.arm = pools.iter().map(|pool| (pool.family, pool.tunnels.clone())).collect();
        self.arm_at = Some(now);
    }

    /// Returns true if IMDS answered the last query and reports the tunnels of all pools.
    pub(super) fn imds_reports_all(&self) -> bool {
        !self.imds_failed
            && self.in_force.iter().all(|(family, _)| find(&self.imds, *family).is_some())
    }

    pub(super) fn arm_tunnels(&self, family: Family) -> Option<&Result<Tunnels, String>> {
        self.arm.iter().find(|(of, _)| *of == family).map(|(_, tunnels)| tunnels)
    }

    /// Returns the report that takes precedence, with its source: that of IMDS, unless its last
    /// query failed and Resource Manager has reported since.
    pub(super) fn reported(&self, family: Family) -> Option<(Tunnels, TunnelSource)> {
        let imds = find(&self.imds, family).map(|tunnels| (tunnels, TunnelSource::Imds));
        let arm = self.arm_tunnels(family).and_then(|tunnels| tunnels.clone().ok());
        let arm = arm.map(|tunnels| (tunnels, TunnelSource::Arm));
        let outdated = self.imds_failed && self.arm_at > self.imds_at;
        if outdated { arm.or(imds) } else { imds.or(arm) }
    }

    pub(super) fn statuses(
        &self,
        policy: TunnelPolicy,
        persisted: &PersistedState,
    ) -> Vec<TunnelStatus> {
        let status = |(family, in_force): &(Family, Tunnels)| {
            let persisted =
                find(&persisted.tunnels, *family).filter(|_| policy == TunnelPolicy::Follow);
            let reported = self
                .reported(*family)
                .or(persisted.map(|tunnels| (tunnels, TunnelSource::Persisted)));
            let (reported, source) = reported.unwrap_or((*in_force, TunnelSource::File));
            TunnelStatus { family: *family, in_force: *in_force, reported, source }
        };
        self.in_force.iter().map(status).collect()
    }

    /// Returns a family for which IMDS and Resource Manager report different tunnels.
    pub(super) fn contradiction(&self) -> Option<(Family, Tunnels, Tunnels)> {
        let differs = |(family, _): &(Family, Tunnels)| {
            let (imds, arm) =
                (find(&self.imds, *family)?, self.arm_tunnels(*family)?.as_ref().ok()?);
            (imds != *arm).then_some((*family, imds, *arm))
        };
        self.in_force.iter().filter(|_| !self.imds_failed).find_map(differs)
    }

    /// Returns a family whose tunnels cannot be used, with the reason.
    pub(super) fn unusable(&self) -> Option<(Family, &str)> {
        let wrong = |(family, _): &(Family, Tunnels)| {
            Some((*family, self.arm_tunnels(*family)?.as_ref().err()?.as_str()))
        };
        self.in_force.iter().find_map(wrong)
    }

    /// Returns true if the reports contradict each other, or one of them cannot be used.
    pub(super) fn is_unsettled(&self) -> bool {
        self.contradicted.is_some() || self.unusable().is_some()
    }
}

pub(super) fn find(tunnels: &[(Family, Tunnels)], family: Family) -> Option<Tunnels> {
    tunnels.iter().find(|(of, _)| *of == family).map(|(_, tunnels)| *tunnels)
}
