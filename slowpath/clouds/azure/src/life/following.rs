//! Tunnels as IMDS and Resource Manager report them, and which report takes precedence.

use std::time::{Duration, Instant};

use config::checked::Told;

use super::words::{Followed, Kept, Seen, Source};
use crate::told::{Family, Tunnels};

/// Time that the data plane may take to apply new tunnels.
pub(super) const TAKES: Duration = Duration::from_secs(10);

/// Reported tunnels by source, and those in force.
#[derive(Debug, Default)]
pub(super) struct Following {
    pub(super) carried: Vec<(Family, Tunnels)>,
    pub(super) imds: Vec<(Family, Tunnels)>,
    pub(super) imds_at: Option<Instant>,
    /// The last query of IMDS failed.
    pub(super) imds_silent: bool,
    pub(super) arm: Vec<(Family, Result<Tunnels, String>)>,
    pub(super) arm_at: Option<Instant>,
    /// The tunnels last passed to the data plane, and when.
    pub(super) sent: Option<(Vec<(Family, Tunnels)>, Instant)>,
    /// Since when the reports of IMDS and Resource Manager contradict each other.
    pub(super) contradicted: Option<Instant>,
}

impl Following {
    pub(super) fn carried(&mut self, mut tunnels: Vec<(Family, Tunnels)>) {
        tunnels.sort_by_key(|(family, _)| *family);
        self.carried = tunnels;
    }

    /// Takes over a report of IMDS; `None` if the query failed.
    pub(super) fn imds(&mut self, now: Instant, told: Option<Vec<(Family, Tunnels)>>) {
        self.imds_silent = told.is_none();
        if let Some(tunnels) = told {
            (self.imds, self.imds_at) = (tunnels, Some(now));
        }
    }

    pub(super) fn arm(&mut self, now: Instant, pools: &[Seen]) {
        self.arm = pools.iter().map(|pool| (pool.family, pool.tunnels.clone())).collect();
        self.arm_at = Some(now);
    }

    /// Returns true if IMDS answers and reports the tunnels of all pools.
    pub(super) fn imds_tells(&self) -> bool {
        !self.imds_silent
            && self.carried.iter().all(|(family, _)| of(&self.imds, *family).is_some())
    }

    pub(super) fn by_arm(&self, family: Family) -> Option<&Result<Tunnels, String>> {
        self.arm.iter().find(|(of, _)| *of == family).map(|(_, tunnels)| tunnels)
    }

    pub(super) fn told(&self, family: Family) -> Option<(Tunnels, Source)> {
        let imds = of(&self.imds, family).map(|tunnels| (tunnels, Source::Imds));
        let arm = self.by_arm(family).and_then(|told| told.clone().ok());
        let arm = arm.map(|tunnels| (tunnels, Source::Arm));
        let outdated = self.imds_silent && self.arm_at > self.imds_at;
        if outdated { arm.or(imds) } else { imds.or(arm) }
    }

    pub(super) fn followed(&self, mode: Told, kept: &Kept) -> Vec<Followed> {
        let followed = |(family, carried): &(Family, Tunnels)| {
            let kept = of(&kept.tunnels, *family).filter(|_| mode == Told::Follow);
            let told = self.told(*family).or(kept.map(|tunnels| (tunnels, Source::Kept)));
            let (told, by) = told.unwrap_or((*carried, Source::File));
            Followed { family: *family, carried: *carried, told, by }
        };
        self.carried.iter().map(followed).collect()
    }

    /// Returns a family for which IMDS and Resource Manager report different tunnels.
    pub(super) fn contradiction(&self) -> Option<(Family, Tunnels, Tunnels)> {
        let differs = |(family, _): &(Family, Tunnels)| {
            let (imds, arm) = (of(&self.imds, *family)?, self.by_arm(*family)?.as_ref().ok()?);
            (imds != *arm).then_some((*family, imds, *arm))
        };
        self.carried.iter().filter(|_| !self.imds_silent).find_map(differs)
    }

    /// Returns a family whose tunnels cannot be used, with the reason.
    pub(super) fn unusable(&self) -> Option<(Family, &str)> {
        let wrong = |(family, _): &(Family, Tunnels)| {
            Some((*family, self.by_arm(*family)?.as_ref().err()?.as_str()))
        };
        self.carried.iter().find_map(wrong)
    }

    /// Returns true if the reports contradict each other, or one of them cannot be used.
    pub(super) fn is_open(&self) -> bool {
        self.contradicted.is_some() || self.unusable().is_some()
    }
}

pub(super) fn of(tunnels: &[(Family, Tunnels)], family: Family) -> Option<Tunnels> {
    tunnels.iter().find(|(of, _)| *of == family).map(|(_, tunnels)| *tunnels)
}
