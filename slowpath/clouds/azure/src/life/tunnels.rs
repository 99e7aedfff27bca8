//! The pools' tunnels: told by IMDS, checked against Resource Manager, followed or only compared.
//!
//! IMDS is asked often and costs nothing, so its word counts. Where it has none, or has gone silent
//! since, Resource Manager's does; where neither ever told, what an earlier process followed, and
//! else the file's, which the data plane has from the beginning. Families that have no pool here
//! are no concern of ours.

use std::time::{Duration, Instant};

use config::checked::Told;

use super::words::{Call, Effect, Followed, Kept, Seen, Source};
use super::{DIFFERS, LOOK_OPEN, Life, TUNNELS_STRANGE, findings};
use crate::told::{Family, Tunnels};

/// How long the data plane may take to have in force what it was told.
const TAKES: Duration = Duration::from_secs(10);

/// Who told what.
#[derive(Debug, Default)]
pub(super) struct Following {
    carried: Vec<(Family, Tunnels)>,
    imds: Vec<(Family, Tunnels)>,
    imds_at: Option<Instant>,
    /// Its last answer was none but silence.
    imds_silent: bool,
    arm: Vec<(Family, Result<Tunnels, String>)>,
    arm_at: Option<Instant>,
    /// What the data plane was told last, and when.
    sent: Option<(Vec<(Family, Tunnels)>, Instant)>,
    /// Since when IMDS and Resource Manager contradict each other.
    contradicted: Option<Instant>,
}

impl Following {
    pub(super) fn carried(&mut self, mut tunnels: Vec<(Family, Tunnels)>) {
        tunnels.sort_by_key(|(family, _)| *family);
        self.carried = tunnels;
    }

    /// What IMDS told, or that it did not.
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

    /// IMDS answers, and tells the tunnels of all our pools.
    pub(super) fn imds_tells(&self) -> bool {
        !self.imds_silent
            && self.carried.iter().all(|(family, _)| of(&self.imds, *family).is_some())
    }

    fn by_arm(&self, family: Family) -> Option<&Result<Tunnels, String>> {
        self.arm.iter().find(|(of, _)| *of == family).map(|(_, tunnels)| tunnels)
    }

    fn told(&self, family: Family) -> Option<(Tunnels, Source)> {
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

    /// A family of ours whose tunnels IMDS and Resource Manager tell differently.
    fn contradiction(&self) -> Option<(Family, Tunnels, Tunnels)> {
        let differs = |(family, _): &(Family, Tunnels)| {
            let (imds, arm) = (of(&self.imds, *family)?, self.by_arm(*family)?.as_ref().ok()?);
            (imds != *arm).then_some((*family, imds, *arm))
        };
        self.carried.iter().filter(|_| !self.imds_silent).find_map(differs)
    }

    /// A family of ours whose tunnels are none that we could use, and why.
    fn unusable(&self) -> Option<(Family, &str)> {
        let wrong = |(family, _): &(Family, Tunnels)| {
            Some((*family, self.by_arm(*family)?.as_ref().err()?.as_str()))
        };
        self.carried.iter().find_map(wrong)
    }

    /// What Azure tells is not of one piece, or was not a moment ago.
    pub(super) fn is_open(&self) -> bool {
        self.contradicted.is_some() || self.unusable().is_some()
    }
}

fn of(tunnels: &[(Family, Tunnels)], family: Family) -> Option<Tunnels> {
    tunnels.iter().find(|(of, _)| *of == family).map(|(_, tunnels)| *tunnels)
}

impl Life {
    /// In force is what is told; or only that is wanted to be known.
    pub(super) fn carries_right(&self) -> bool {
        let followed = self.tunnels();
        let told = |one: &Followed| matches!(one.by, Source::Imds | Source::Arm);
        let right = |one: &Followed| told(one) && one.told == one.carried;
        let alarm = self.settings.tunnels == Told::Alarm;
        !followed.is_empty() && (alarm || followed.iter().all(right))
    }

    pub(super) fn follow(&mut self, now: Instant) {
        self.check_tunnels(now);
        // IMDS goes before the others, and before what was kept: it is waited for.
        if !self.informed {
            return;
        }
        let followed = self.tunnels();
        let wrong = followed.iter().find(|one| one.told != one.carried).copied();
        if self.settings.tunnels == Told::Alarm {
            let alarm = || wrong.map(findings::other_tunnels);
            return self.stand(findings::OTHER_TUNNELS, alarm);
        }
        let known: Vec<(Family, Tunnels)> = followed
            .iter()
            .filter(|one| one.by != Source::File)
            .map(|one| (one.family, one.told))
            .collect();
        if !known.is_empty() {
            self.keep(|kept| kept.tunnels.clone_from(&known));
        }
        self.tell_data_plane(now, wrong, known);
    }

    fn tell_data_plane(
        &mut self,
        now: Instant,
        wrong: Option<Followed>,
        known: Vec<(Family, Tunnels)>,
    ) {
        let sent = self.following.sent.take().filter(|(tunnels, _)| *tunnels == known);
        let not_yet = sent.as_ref().is_some_and(|(_, at)| now < *at + TAKES);
        if wrong.is_some() && not_yet {
            self.following.sent = sent;
            return;
        }
        let again = wrong.filter(|_| sent.is_some());
        self.stand(findings::TUNNELS_NOT_TAKEN, || again.map(findings::not_taken));
        if wrong.is_some() {
            self.effects.push(Effect::Tunnels(known.clone()));
            self.following.sent = Some((known, now));
        }
    }

    /// Resource Manager's word against that of IMDS.
    fn check_tunnels(&mut self, now: Instant) {
        let contradiction = self.following.contradiction();
        match (contradiction, self.following.contradicted) {
            (None, _) => self.following.contradicted = None,
            (Some(_), None) => {
                // One of them may only be older.
                self.following.contradicted = Some(now);
                self.sooner(Call::AskTunnels, TUNNELS_STRANGE);
                self.sooner(Call::Look, LOOK_OPEN);
            }
            _ => {}
        }
        let long = self.following.contradicted.is_some_and(|since| now >= since + DIFFERS);
        let contradiction = contradiction.filter(|_| long);
        self.stand(findings::TUNNELS_DIFFER, || contradiction.map(findings::tunnels_differ));
        let unusable = self.following.unusable().map(findings::unusable);
        self.stand(findings::TUNNELS_UNUSABLE, || unusable);
    }
}
