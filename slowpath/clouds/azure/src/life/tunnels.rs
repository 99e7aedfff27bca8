//! The pools' tunnels: told by IMDS, checked against Resource Manager, followed or only compared.
//!
//! IMDS is asked often and costs nothing, so its word counts. Where it has none, or has gone silent
//! since, Resource Manager's does; where neither ever told, what an earlier process followed, and
//! else the file's, which the data plane has from the beginning. Families that have no pool here
//! are no concern of ours.

use std::time::Instant;

use config::checked::Told;

use super::following::TAKES;
use super::words::{Call, Effect, Followed, Source};
use super::{DIFFERS, LOOK_OPEN, Life, TUNNELS_STRANGE, findings};
use crate::told::{Family, Tunnels};

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
