//! Tunnels of the pools: reported by IMDS, checked against Resource Manager, and followed or only
//! compared.
//!
//! IMDS can be queried often at no cost, so its report takes precedence. If IMDS reports no
//! tunnels, or its last query failed and Resource Manager answered later than IMDS, Resource
//! Manager's report is used. Without any report, the tunnels that an earlier process followed are
//! used, else those of the configuration file, which are in force from the start. Address families
//! without a pool are ignored.

use std::time::Instant;

use config::checked::TunnelPolicy;

use super::event::{Call, Effect, TunnelSource, TunnelStatus};
use super::tunnel_reports::APPLY_TIMEOUT;
use super::{
    MISMATCH_GRACE, Membership, POOLS_INTERVAL_UNSETTLED, TUNNELS_INTERVAL_UNKNOWN, findings,
};
use crate::types::{Family, Tunnels};

impl Membership {
    /// Returns true if tunnels are reported and in force; with `tunnels = "report"`, if any tunnels
    /// are in force.
    pub(super) fn tunnels_match(&self) -> bool {
        let statuses = self.tunnels();
        let known =
            |status: &TunnelStatus| matches!(status.source, TunnelSource::Imds | TunnelSource::Arm);
        let right = |status: &TunnelStatus| known(status) && status.reported == status.in_force;
        let only_report = self.settings.tunnels == TunnelPolicy::Report;
        !statuses.is_empty() && (only_report || statuses.iter().all(right))
    }

    pub(super) fn apply_tunnels(&mut self, now: Instant) {
        self.check_tunnels(now);
        // IMDS takes precedence over Resource Manager and the persisted state, so no tunnels are
        // passed to the data plane before IMDS has answered or timed out.
        if !self.imds_checked {
            return;
        }
        let statuses = self.tunnels();
        let mismatch = statuses.iter().find(|status| status.reported != status.in_force).copied();
        if self.settings.tunnels == TunnelPolicy::Report {
            let finding = || mismatch.map(findings::other_tunnels);
            return self.set_finding(findings::OTHER_TUNNELS, finding);
        }
        let known: Vec<(Family, Tunnels)> = statuses
            .iter()
            .filter(|status| status.source != TunnelSource::File)
            .map(|status| (status.family, status.reported))
            .collect();
        if !known.is_empty() {
            self.persist(|state| state.tunnels.clone_from(&known));
        }
        self.send_tunnels(now, mismatch, known);
    }

    /// Passes the known tunnels to the data plane if other ones are in force. Does so again, with a
    /// finding, whenever [`APPLY_TIMEOUT`] has passed without effect.
    fn send_tunnels(
        &mut self,
        now: Instant,
        mismatch: Option<TunnelStatus>,
        known: Vec<(Family, Tunnels)>,
    ) {
        let sent = self.tunnel_reports.sent.take().filter(|(tunnels, _)| *tunnels == known);
        let not_yet = sent.as_ref().is_some_and(|(_, at)| now < *at + APPLY_TIMEOUT);
        if mismatch.is_some() && not_yet {
            self.tunnel_reports.sent = sent;
            return;
        }
        let again = mismatch.filter(|_| sent.is_some());
        self.set_finding(findings::TUNNELS_NOT_APPLIED, || again.map(findings::not_applied));
        if mismatch.is_some() {
            self.effects.push(Effect::Tunnels(known.clone()));
            self.tunnel_reports.sent = Some((known, now));
        }
    }

    /// Compares the reports of Resource Manager and IMDS.
    fn check_tunnels(&mut self, now: Instant) {
        let contradiction = self.tunnel_reports.contradiction();
        match (contradiction, self.tunnel_reports.contradicted) {
            (None, _) => self.tunnel_reports.contradicted = None,
            (Some(_), None) => {
                // One of the reports may be outdated, so both are read again soon.
                self.tunnel_reports.contradicted = Some(now);
                self.expedite(Call::ReadTunnels, TUNNELS_INTERVAL_UNKNOWN);
                self.expedite(Call::ReadPools, POOLS_INTERVAL_UNSETTLED);
            }
            _ => {}
        }
        let long =
            self.tunnel_reports.contradicted.is_some_and(|since| now >= since + MISMATCH_GRACE);
        let contradiction = contradiction.filter(|_| long);
        self.set_finding(findings::TUNNELS_DIFFER, || contradiction.map(findings::tunnels_differ));
        let unusable = self.tunnel_reports.unusable().map(findings::unusable);
        self.set_finding(findings::TUNNELS_UNUSABLE, || unusable);
    }
}
