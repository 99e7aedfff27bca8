//! What a peer told: counted, remembered as far as needed to count right, never installed.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::Serialize;

use crate::wire::{Arrived, Family, Message, Treated};

/// How many prefixes of a family are remembered. A full table doesn't become ours to keep; beyond
/// it "this many at least" is all that is told.
const REMEMBERED: usize = 100_000;

/// Of one family.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct OfFamily {
    prefixes: BTreeSet<IpNet>,
    more: bool,
    end_of_rib: bool,
    disabled: bool,
}

/// Messages by type, and what was wrong with UPDATEs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Messages {
    /// UPDATEs.
    pub updates: u64,
    /// KEEPALIVEs.
    pub keepalives: u64,
    /// ROUTE-REFRESHes.
    pub refreshes: u64,
    /// UPDATEs with an attribute that counts as not said.
    pub discarded: u64,
    /// UPDATEs whose routes count as withdrawn.
    pub withdrawn: u64,
}

/// How many prefixes a peer has told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Count {
    /// So many.
    pub prefixes: usize,
    /// Or more: they are not all remembered.
    pub or_more: bool,
    /// The peer has said that it has said all.
    pub end_of_rib: bool,
    /// Its prefixes could not be found in an UPDATE: nothing of this family is heard any more.
    pub disabled: bool,
}

/// What a peer told on one session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Received {
    families: BTreeMap<Family, OfFamily>,
    messages: Messages,
    /// Why the last UPDATE was treated other than as sent.
    why: Option<&'static str>,
}

impl Received {
    /// Only what was agreed on is heard.
    pub fn begin(&mut self, families: &[Family]) {
        self.families = families.iter().map(|family| (*family, OfFamily::default())).collect();
    }

    /// Takes a message in.
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

    /// How many of `family`.
    pub fn count(&self, family: Family) -> Count {
        self.families.get(&family).map_or_else(Count::default, |of| Count {
            prefixes: of.prefixes.len(),
            or_more: of.more,
            end_of_rib: of.end_of_rib,
            disabled: of.disabled,
        })
    }

    /// How many messages.
    pub fn messages(&self) -> Messages {
        self.messages
    }

    /// What was wrong with an UPDATE last.
    pub fn why(&self) -> Option<&'static str> {
        self.why
    }

    /// The prefixes that are remembered.
    pub fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        self.families.values().flat_map(|family| &family.prefixes)
    }
}
