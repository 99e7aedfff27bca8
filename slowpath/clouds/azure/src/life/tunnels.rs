//! Tunnels of the pools: reported by IMDS, checked against Resource Manager, and followed or only
//! compared.
//!
//! IMDS can be queried often at no cost, so its report takes precedence. If it has none, or has not
//! answered since Resource Manager last did, Resource Manager's report is used. Without any report,
//! the tunnels followed by an earlier process are used, else those of the configuration file, which
//! are in force from the start. Address families without a pool are ignored.

use std::time::Instant;

use config::checked::Told;

use super::following::TAKES;
use super::words::{Call, Effect, Followed, Source};
use super::{DIFFERS, LOOK_OPEN, Life, TUNNELS_STRANGE, findings};
use crate::told::{Family, Tunnels};

impl Life {
    /// Returns true if the reported tunnels are in force; with `tunnels = "alarm"`, always if there
    /// are any.
    pub(super) fn carries_right(&self) -> bool {
        let followed = self.tunnels();
        let told = |one: &Followed| matches!(one.by, Source::Imds | Source::Arm);
        let right = |one: &Followed| told(one) && one.told == one.carried;
        let alarm = self.settings.tunnels == Told::Alarm;
        !followed.is_empty() && (alarm || followed.iter().all(right))
    }

    pub(super) fn follow(&mut self, now: Instant) {
        self.check_tunnels(now);
        // IMDS takes precedence over the other sources and the kept state, so its answer is
        // awaited.
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

    /// Compares the reports of Resource Manager and IMDS.
    fn check_tunnels(&mut self, now: Instant) {
        let contradiction = self.following.contradiction();
        match (contradiction, self.following.contradicted) {
            (None, _) => self.following.contradicted = None,
            (Some(_), None) => {
                // One of the reports may only be older.
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
