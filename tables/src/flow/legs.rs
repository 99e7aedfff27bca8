//! The gateway's legs of a flow: one for both directions, or one for each.
//!
//! A gateway that brings the initiator's packets alone gets the answers by the leg of these. One
//! that brings both directions, to have them inspected, may send each with ports and options of its
//! own, and wants it back with the same:
//!
//! ```text
//!  no PATH_RESPONDER_LEG      the path's leg is that of the latest packet, whoever sent it
//!  with it, and no slab       both directions came with the same: the path's leg is of both
//!  with it, and a slab        the path's leg is the initiator's, the slab's the responder's
//! ```
//! While a leg is being changed, packets go back by the one of before ([`copies`](super::copies)).
//! The first packet whose leg differs takes the slab. Where none is free, the flow has one leg, and
//! each further change tries again.

use super::path::{GatewayLeg, Slab, Stored, needs_slab};
use super::step::step;
use super::words::{Options, Words as _};
use super::{Entry, Flows, Hit, MAX_OPTIONS};
use crate::atomic::Ordering::Relaxed;
use crate::record::NONE;
use crate::rows::Numbered;

/// What became of a leg that was noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LegUpdate {
    /// What goes back in this direction goes by it from now on.
    Changed,
    /// It is the other direction's too, and nothing but that was noted.
    Same,
    /// No slab was free for a leg of each direction: both go by it from now on.
    Shared,
    /// The flow is gone or being changed, its copy is in use, or no slab is free for long options:
    /// nothing changed, and the next packet tries again.
    Missed,
}

/// What a packet came with.
#[derive(Clone, Copy)]
struct Latest<'a> {
    leg: &'a GatewayLeg,
    options: Options<'a>,
    digest: u32,
}

impl<'r> Flows<'r> {
    /// A packet of the gateway came with another leg or other options than those known of its
    /// direction. `hit` is the front entry's. Of a translated flow there is but one direction.
    pub fn update_gateway(
        &self,
        hit: &Hit,
        from_initiator: bool,
        leg: &GatewayLeg,
        options: Options<'_>,
        digest: u32,
    ) -> LegUpdate {
        let Some(path) = self.paths.row(hit.path) else { return LegUpdate::Missed };
        let Some(entry) = self.index.entry(hit.entry) else { return LegUpdate::Missed };
        if !hit.is_front() || options.bytes() > MAX_OPTIONS {
            return LegUpdate::Missed;
        }
        let Some(copy) = self.hold_legs(hit.path, path) else { return LegUpdate::Missed };
        step!();
        let latest = Latest { leg, options, digest };
        // While the path is held, its flow can't end, so what is true of the entry stays true.
        let done = match entry.still(hit.stamp) {
            true if from_initiator || path.is_nat() => self.update_initiator(path, entry, latest),
            true => self.update_responder(path, entry, latest),
            false => LegUpdate::Missed,
        };
        path.publish();
        step!();
        copy.give_back();
        done
    }

    fn update_initiator(&self, path: &Stored, entry: &Entry, latest: Latest<'_>) -> LegUpdate {
        let of_both = path.has_responder_leg() && path.owns.load(Relaxed) == NONE;
        if !of_both || self.part(path) {
            return self.overwrite(path, entry, latest, LegUpdate::Changed);
        }
        path.unset_responder();
        step!();
        self.overwrite(path, entry, latest, LegUpdate::Shared)
    }

    fn update_responder(&self, path: &Stored, entry: &Entry, latest: Latest<'_>) -> LegUpdate {
        let alone = path.owns.load(Relaxed) == NONE;
        let done = if alone && entry.digest.load(Relaxed) == latest.digest {
            LegUpdate::Same
        } else if let Some(slab) = self.responders_slab(path) {
            slab.set(latest.leg, &latest.options);
            LegUpdate::Changed
        } else {
            path.unset_responder();
            step!();
            return self.overwrite(path, entry, latest, LegUpdate::Shared);
        };
        step!();
        path.set_responder(latest.digest);
        step!();
        done
    }

    /// Writes the path's own leg.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn overwrite(
        &self,
        path: &Stored,
        entry: &Entry,
        latest: Latest<'_>,
        done: LegUpdate,
    ) -> LegUpdate {
        if !self.give_slab(path, &latest.options) {
            return LegUpdate::Missed;
        }
        step!();
        path.set_gateway(latest.leg, &latest.options, self.slabs);
        step!();
        entry.digest.store(latest.digest, Relaxed);
        step!();
        if let Some(front) = self.fronts.row(entry.path.load(Relaxed)) {
            front.digest.store(latest.digest, Relaxed);
        }
        done
    }

    /// The leg of both directions becomes the responder's as well, so that the initiator's may
    /// change; false when no slab is free.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn part(&self, path: &Stored) -> bool {
        let Some(slab) = self.responders_slab(path) else { return false };
        path.copy_leg(self.slabs, slab);
        step!();
        true
    }

    /// The slab with the responder's leg, a new one if need be. Only the flow's end gives it back.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn responders_slab(&self, path: &Stored) -> Option<&'r Slab> {
        if path.owns.load(Relaxed) == NONE {
            let slab = self.free_slabs()?.pop();
            if slab == NONE {
                return None;
            }
            step!();
            path.owns.store(slab, Relaxed);
        }
        self.slabs.row(path.owns.load(Relaxed))
    }

    /// Makes sure that a path which the caller holds has room for these options.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn give_slab(&self, path: &Stored, options: &Options<'_>) -> bool {
        if needs_slab(options.bytes()) && path.slab.load(Relaxed) == NONE {
            let slab = self.free_slabs().map_or(NONE, |free| free.pop());
            if slab == NONE {
                return false;
            }
            path.slab.store(slab, Relaxed);
        }
        true
    }
}
