//! Routes received from a peer: counted, never installed. Their prefixes are remembered, so that a
//! repeated announcement is not counted twice.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::Serialize;

use crate::wire::{ErrorHandling, Family, Message, ReceivedUpdate};

/// Maximum number of prefixes remembered per family, so that the full Internet table of a peer does
/// not exhaust memory. Beyond it, counts are lower bounds.
const MAX_PREFIXES: usize = 100_000;

/// Received routes of one family.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct FamilyRoutes {
    prefixes: BTreeSet<IpNet>,
    /// A prefix was not remembered because of [`MAX_PREFIXES`].
    truncated: bool,
    end_of_rib: bool,
    /// The family is ignored after an error (AFI/SAFI disable of RFC 7606).
    disabled: bool,
}

/// Counters of received messages by type, and of malformed UPDATEs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Messages {
    /// UPDATEs.
    pub updates: u64,
    /// KEEPALIVEs.
    pub keepalives: u64,
    /// ROUTE-REFRESHes.
    pub refreshes: u64,
    /// UPDATEs with a malformed attribute that was discarded (RFC 7606).
    pub discarded: u64,
    /// UPDATEs with an error whose routes were treated as withdrawn (RFC 7606).
    pub withdrawn: u64,
}

/// Number of prefixes of one family received from a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Count {
    /// Number of prefixes that the peer has announced and not withdrawn, as far as they are
    /// remembered.
    pub prefixes: usize,
    /// The peer announced more prefixes than are remembered.
    pub or_more: bool,
    /// The peer sent End-of-RIB.
    pub end_of_rib: bool,
    /// The prefixes of an UPDATE could not be parsed: all further routes of this family are ignored
    /// (RFC 7606).
    pub disabled: bool,
}

/// Messages and routes received on one session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Received {
    families: BTreeMap<Family, FamilyRoutes>,
    messages: Messages,
    /// What was wrong with the last malformed UPDATE.
    last_malformed: Option<&'static str>,
}

impl Received {
    /// Starts counting the negotiated families; routes of others are ignored.
    pub fn begin(&mut self, families: &[Family]) {
        self.families = families.iter().map(|family| (*family, FamilyRoutes::default())).collect();
    }

    /// Counts a message and its routes.
    pub fn message(&mut self, message: &Message) {
        match message {
            Message::Update(update) => self.update(update),
            Message::Keepalive => self.messages.keepalives += 1,
            Message::Refresh(_) => self.messages.refreshes += 1,
            Message::Open(_) | Message::Notification(_) => {}
        }
    }

    fn update(&mut self, update: &ReceivedUpdate) {
        self.messages.updates += 1;
        match update.error_handling {
            ErrorHandling::NoError => {}
            ErrorHandling::AttributeDiscard(why) => {
                (self.messages.discarded, self.last_malformed) =
                    (self.messages.discarded + 1, Some(why))
            }
            ErrorHandling::TreatAsWithdraw(why) => {
                (self.messages.withdrawn, self.last_malformed) =
                    (self.messages.withdrawn + 1, Some(why))
            }
        }
        for prefix in &update.withdrawn {
            if let Some(family) = self.families.get_mut(&Family::of_prefix(prefix)) {
                family.prefixes.remove(prefix);
            }
        }
        for prefix in &update.announced {
            match self.families.get_mut(&Family::of_prefix(prefix)) {
                Some(family) if family.disabled => {}
                Some(family) if family.prefixes.len() < MAX_PREFIXES => {
                    family.prefixes.insert(*prefix);
                }
                Some(family) => family.truncated |= !family.prefixes.contains(prefix),
                None => {}
            }
        }
        if let Some(family) = update.end_of_rib.and_then(|family| self.families.get_mut(&family)) {
            family.end_of_rib = true;
        }
        if let Some(family) = update.disabled.and_then(|family| self.families.get_mut(&family)) {
            *family = FamilyRoutes { disabled: true, ..FamilyRoutes::default() };
        }
    }

    /// Returns the number of prefixes of `family`.
    pub fn count(&self, family: Family) -> Count {
        self.families.get(&family).map_or_else(Count::default, |routes| Count {
            prefixes: routes.prefixes.len(),
            or_more: routes.truncated,
            end_of_rib: routes.end_of_rib,
            disabled: routes.disabled,
        })
    }

    /// Returns the message counters.
    pub fn messages(&self) -> Messages {
        self.messages
    }

    /// Returns what was wrong with the last malformed UPDATE.
    pub fn last_malformed(&self) -> Option<&'static str> {
        self.last_malformed
    }

    /// Returns the remembered prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        self.families.values().flat_map(|family| &family.prefixes)
    }
}
