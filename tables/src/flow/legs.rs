//! Gateway legs of a flow: one for both directions, or one for each.
//!
//! If a gateway sends only the initiator's packets, replies return by the leg of those packets. A
//! gateway that sends both directions for inspection may use different ports and options for each
//! direction, and expects each direction back with its own:
//!
//! ```text
//!  no PATH_RESPONDER_LEG      the path's leg is that of the latest packet, in either direction
//!  with it, and no slab       both directions arrived with equal legs: the path's leg serves both
//!  with it, and a slab        the path's leg is the initiator's, the slab's the responder's
//! ```
//! During an update, packets return by the previous leg ([`leg_updates`](super::leg_updates)). The
//! first packet whose leg differs allocates the slab. If no slab is free, the flow has one leg, and
//! the next change of the leg tries to allocate a slab again.

use super::path::{GatewayLeg, PathRecord, Slab, needs_slab};
use super::step::step;
use super::words::{Options, Words as _};
use super::{Entry, Flows, Hit, MAX_OPTIONS};
use crate::atomic::Ordering::Relaxed;
use crate::record::NONE;
use crate::rows::Numbered;

/// Outcome of a leg update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LegUpdate {
    /// Packets that return in this direction use the new leg from now on.
    Changed,
    /// The leg equals that of the other direction; only this was recorded.
    Same,
    /// No slab was free for separate legs: both directions use the new leg from now on.
    Shared,
    /// The flow has ended or is being updated, its leg copy is in use, or no slab is free for long
    /// options. The leg is unchanged, and the next packet tries again.
    Skipped,
}

/// Leg, options and digest of the latest packet.
#[derive(Clone, Copy)]
struct Latest<'a> {
    leg: &'a GatewayLeg,
    options: Options<'a>,
    digest: u32,
}

impl<'r> Flows<'r> {
    /// Updates the leg of one direction after a packet of the gateway arrived with a different leg
    /// or options. `hit` is the front entry. A NAT flow has one leg for both directions.
    pub fn update_gateway(
        &self,
        hit: &Hit,
        from_initiator: bool,
        leg: &GatewayLeg,
        options: Options<'_>,
        digest: u32,
    ) -> LegUpdate {
        let Some(path) = self.paths.row(hit.path) else { return LegUpdate::Skipped };
        let Some(entry) = self.index.entry(hit.entry) else { return LegUpdate::Skipped };
        if !hit.is_front() || options.byte_len() > MAX_OPTIONS {
            return LegUpdate::Skipped;
        }
        let Some(copy) = self.lock_legs(hit.path, path) else { return LegUpdate::Skipped };
        step!();
        let latest = Latest { leg, options, digest };
        // A flow cannot end while its path is locked, so the entry stays valid.
        let done = match entry.is_unchanged(hit.stamp) {
            true if from_initiator || path.is_nat() => self.update_initiator(path, entry, latest),
            true => self.update_responder(path, entry, latest),
            false => LegUpdate::Skipped,
        };
        path.publish();
        step!();
        copy.release();
        done
    }

    fn update_initiator(&self, path: &PathRecord, entry: &Entry, latest: Latest<'_>) -> LegUpdate {
        let serves_both = path.has_responder_leg() && path.owns.load(Relaxed) == NONE;
        if !serves_both || self.separate_responder(path) {
            return self.overwrite(path, entry, latest, LegUpdate::Changed);
        }
        path.unset_responder();
        step!();
        self.overwrite(path, entry, latest, LegUpdate::Shared)
    }

    fn update_responder(&self, path: &PathRecord, entry: &Entry, latest: Latest<'_>) -> LegUpdate {
        let is_shared = path.owns.load(Relaxed) == NONE;
        let done = if is_shared && entry.digest.load(Relaxed) == latest.digest {
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

    /// Writes the leg in the path record, and its digest in the front entry; returns `done`, or
    /// `Skipped` if no slab is free for long options.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn overwrite(
        &self,
        path: &PathRecord,
        entry: &Entry,
        latest: Latest<'_>,
        done: LegUpdate,
    ) -> LegUpdate {
        if !self.ensure_slab(path, &latest.options) {
            return LegUpdate::Skipped;
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

    /// Copies the shared leg to the responder's slab, so that the initiator's can change; returns
    /// false if no slab is free.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn separate_responder(&self, path: &PathRecord) -> bool {
        let Some(slab) = self.responders_slab(path) else { return false };
        path.copy_leg(self.slabs, slab);
        step!();
        true
    }

    /// Returns the slab of the responder's leg, and allocates it if needed. It is freed at the end
    /// of the flow.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn responders_slab(&self, path: &PathRecord) -> Option<&'r Slab> {
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

    /// Ensures that a path locked by the caller has space for these options; returns false if it
    /// needs a slab and none is free.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn ensure_slab(&self, path: &PathRecord, options: &Options<'_>) -> bool {
        if needs_slab(options.byte_len()) && path.slab.load(Relaxed) == NONE {
            let slab = self.free_slabs().map_or(NONE, |free| free.pop());
            if slab == NONE {
                return false;
            }
            path.slab.store(slab, Relaxed);
        }
        true
    }
}
