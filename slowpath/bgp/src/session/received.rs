//! Routes received from a peer: counted, remembered as far as exact counting needs, never
//! installed.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::Serialize;

use crate::wire::{Arrived, Family, Message, Treated};

/// Maximum number of prefixes remembered per family, which bounds the memory for a full table.
/// Beyond it, counts are lower bounds.
const REMEMBERED: usize = 100_000;

/// Received routes of one family.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct OfFamily {
    prefixes: BTreeSet<IpNet>,
    more: bool,
    end_of_rib: bool,
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

/// Number of prefixes received from a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Count {
    /// Number of prefixes remembered.
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
    families: BTreeMap<Family, OfFamily>,
    messages: Messages,
    /// Why the last malformed UPDATE was not treated as sent.
    why: Option<&'static str>,
}

impl Received {
    /// Starts counting the negotiated families; routes of others are ignored.
    pub fn begin(&mut self, families: &[Family]) {
        self.families = families.iter().map(|family| (*family, OfFamily::default())).collect();
    }

    /// Counts a message and its routes.
    pub fn message(&mut self, message: &Message) {
        match message {
            Message::Update(arrived) => self.update(arrived),
            Message::Keepalive => self.messages.keepalives += 1,
            Message::Refresh(_) => self.messages.refreshes += 1,
            Message::Open(_) | Message::Notification(_) => {}
        }
    }

    fn update(&mut self, arrived: &Arrived) {
        self.messages.updates += 1;
        match arrived.treated {
            Treated::AsSent => {}
            Treated::Discarded(why) => {
                (self.messages.discarded, self.why) = (self.messages.discarded + 1, Some(why))
            }
            Treated::Withdrawn(why) => {
                (self.messages.withdrawn, self.why) = (self.messages.withdrawn + 1, Some(why))
            }
        }
        for prefix in &arrived.withdrawn {
            if let Some(family) = self.families.get_mut(&Family::of_prefix(prefix)) {
                family.prefixes.remove(prefix);
            }
        }
        for prefix in &arrived.announced {
            match self.families.get_mut(&Family::of_prefix(prefix)) {
                Some(family) if family.disabled => {}
                Some(family) if family.prefixes.len() < REMEMBERED => {
                    family.prefixes.insert(*prefix);
                }
                Some(family) => family.more |= !family.prefixes.contains(prefix),
                None => {}
            }
        }
        if let Some(family) = arrived.end_of_rib.and_then(|family| self.families.get_mut(&family)) {
            family.end_of_rib = true;
        }
        if let Some(family) = arrived.disabled.and_then(|family| self.families.get_mut(&family)) {
            *family = OfFamily { disabled: true, ..OfFamily::default() };
        }
    }

    /// Returns the number of prefixes of `family`.
    pub fn count(&self, family: Family) -> Count {
        self.families.get(&family).map_or_else(Count::default, |of| Count {
            prefixes: of.prefixes.len(),
            or_more: of.more,
            end_of_rib: of.end_of_rib,
            disabled: of.disabled,
        })
    }

    /// Returns the message counters.
    pub fn messages(&self) -> Messages {
        self.messages
    }

    /// Returns what was wrong with the last malformed UPDATE.
    pub fn why(&self) -> Option<&'static str> {
        self.why
    }

    /// Returns the remembered prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        self.families.values().flat_map(|family| &family.prefixes)
    }
}
