//! What one peer is told: the routes that it should have against those that it was sent.
//!
//! A table is desired as a whole; the difference is found here and said in few messages:
//! withdrawals first, then routes of equal attributes together, then, once the table is said to be
//! complete, End-of-RIB. At most [`BURST`] messages are handed out before whoever writes them says
//! that they were taken, so that a peer that reads slowly costs neither memory nor keepalives.
//!
//! A minimum interval between two UPDATEs of one route (RFC 4271 section 9.2.1.1) is not kept: what
//! must not be sent to any more is withdrawn at once, and bursts collapse before they come here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::wire::write::{self, Speaking};
use crate::wire::{Attributes, Family, Refresh, RefreshKind};

/// How many messages are handed out until they are known to be written.
pub const BURST: usize = 32;
/// "Don't prefer this, it is about to go" (RFC 8326).
pub const GRACEFUL_SHUTDOWN: u32 = 0xffff_0000;

/// The routes that a peer should have. Equal attributes are best shared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Prefix by prefix, host bits clear.
    pub routes: BTreeMap<IpNet, Arc<Attributes>>,
}

/// How far a family has come.
#[derive(Clone, Copy, Debug)]
struct Progress {
    family: Family,
    /// End-of-RIB was not said yet.
    end_of_rib: bool,
    /// An answer to a ROUTE-REFRESH is due or under way, and whether its begin was said.
    refresh: Option<bool>,
}

/// What was sent on one session, and what is still to be.
#[derive(Debug)]
pub struct Advertiser {
    speaking: Speaking,
    /// RFC 7313 was agreed on.
    enhanced: bool,
    progress: Vec<Progress>,
    desired: Arc<Table>,
    complete: bool,
    shutting: bool,
    /// What the peer has; `None` where it is to be said again.
    sent: BTreeMap<IpNet, Option<Arc<Attributes>>>,
    withdraw: BTreeMap<Family, Vec<IpNet>>,
    announce: BTreeMap<(Family, Arc<Attributes>), Vec<IpNet>>,
    unsendable: usize,
}

impl Advertiser {
    /// Nothing sent, nothing desired.
    pub fn new(speaking: Speaking, families: &[Family], enhanced: bool) -> Advertiser {
        let fresh = |family: &Family| Progress { family: *family, end_of_rib: true, refresh: None };
        Advertiser {
            speaking,
            enhanced,
            progress: families.iter().map(fresh).collect(),
            desired: Arc::default(),
            complete: false,
            shutting: false,
            sent: BTreeMap::new(),
            withdraw: BTreeMap::new(),
            announce: BTreeMap::new(),
            unsendable: 0,
        }
    }

    /// This is what the peer should have; `shutting` says of all of it that it is about to go.
    pub fn desire(&mut self, table: &Arc<Table>, complete: bool, shutting: bool) {
        let same = Arc::ptr_eq(table, &self.desired) && shutting == self.shutting;
        (self.complete, self.shutting) = (complete, shutting);
        if !same {
            self.desired = Arc::clone(table);
            self.compare();
        }
    }

    /// All of `family` is to be said again. Said twice while it is under way, it is said once more.
    pub fn refresh(&mut self, family: Family) {
        let Some(progress) = self.progress.iter_mut().find(|p| p.family == family) else { return };
        // RFC 7313: no begin between begin and end.
        progress.refresh = Some(progress.refresh.unwrap_or(false));
        let of_family = self.sent.iter_mut().filter(|(p, _)| Family::of_prefix(p) == family);
        of_family.for_each(|(_, sent)| *sent = None);
        self.compare();
    }

    /// Finds what is to be said, from what was sent and what is desired.
    fn compare(&mut self) {
        self.withdraw.clear();
        self.announce.clear();
        self.unsendable = 0;
        let mut said: BTreeMap<Arc<Attributes>, Arc<Attributes>> = BTreeMap::new();
        let desired = Arc::clone(&self.desired);
        for (prefix, attributes) in &desired.routes {
            let family = Family::of_prefix(prefix);
            if !self.sends(family, attributes.next_hop) {
                continue;
            }
            let attributes = said
                .entry(Arc::clone(attributes))
                .or_insert_with(|| self.as_said(attributes))
                .clone();
            if self.sent.get(prefix).and_then(Option::as_ref) != Some(&attributes) {
                self.announce.entry((family, attributes)).or_default().push(*prefix);
            }
        }
        for prefix in self.sent.keys() {
            let family = Family::of_prefix(prefix);
            let kept = desired.routes.get(prefix);
            if !kept.is_some_and(|kept| self.speaking.can_say(family, kept.next_hop)) {
                self.withdraw.entry(family).or_default().push(*prefix);
            }
        }
        self.count_unsendable();
    }

    fn sends(&self, family: Family, next_hop: IpAddr) -> bool {
        self.speaks(family) && self.speaking.can_say(family, next_hop)
    }

    fn speaks(&self, family: Family) -> bool {
        self.progress.iter().any(|progress| progress.family == family)
    }

    fn count_unsendable(&mut self) {
        let unsendable = self.desired.routes.iter().filter(|(prefix, attributes)| {
            let family = Family::of_prefix(prefix);
            self.speaks(family) && !self.speaking.can_say(family, attributes.next_hop)
        });
        self.unsendable = unsendable.count();
    }

    fn as_said(&self, attributes: &Arc<Attributes>) -> Arc<Attributes> {
        if !self.shutting {
            return Arc::clone(attributes);
        }
        let mut changed = Attributes::clone(attributes);
        changed.local_pref = Some(0);
        changed.communities.push(GRACEFUL_SHUTDOWN);
        changed.communities.sort_unstable();
        changed.communities.dedup();
        Arc::new(changed)
    }

    /// The next message, or `None` if there is nothing to say.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        self.begin_refresh()
            .or_else(|| self.next_withdrawal())
            .or_else(|| self.next_announcement())
            .or_else(|| self.next_end())
    }

    fn begin_refresh(&mut self) -> Option<Vec<u8>> {
        let due = self.progress.iter_mut().find(|p| p.refresh == Some(false))?;
        due.refresh = Some(true);
        let begin = Refresh::new(due.family, RefreshKind::Begin);
        // Without RFC 7313 the routes alone are the answer.
        if self.enhanced { Some(begin.write()) } else { self.begin_refresh() }
    }

    fn next_withdrawal(&mut self) -> Option<Vec<u8>> {
        let mut entry = self.withdraw.first_entry()?;
        let (message, said) = self.speaking.withdraw(*entry.key(), entry.get_mut());
        if entry.get().is_empty() {
            entry.remove();
        }
        for prefix in &said {
            self.sent.remove(prefix);
        }
        Some(message)
    }

    fn next_announcement(&mut self) -> Option<Vec<u8>> {
        let mut entry = self.announce.first_entry()?;
        let (family, attributes) = entry.key().clone();
        let said = self.speaking.announce(family, &attributes, entry.get_mut());
        let Some((message, said)) = said else {
            // Its communities alone are longer than a message: what the peer has of it is old.
            let silent = entry.remove();
            self.unsendable += silent.len();
            let had = silent.into_iter().filter(|prefix| self.sent.contains_key(prefix));
            let had: Vec<IpNet> = had.collect();
            if !had.is_empty() {
                self.withdraw.entry(family).or_default().extend(had);
            }
            return self.next_withdrawal().or_else(|| self.next_announcement());
        };
        if entry.get().is_empty() {
            entry.remove();
        }
        for prefix in said {
            self.sent.insert(prefix, Some(Arc::clone(&attributes)));
        }
        Some(message)
    }

    fn next_end(&mut self) -> Option<Vec<u8>> {
        // Withdrawals and announcements are all said once this is asked.
        if let Some(done) = self.progress.iter_mut().find(|p| p.refresh.is_some()) {
            done.refresh = None;
            let end = Refresh::new(done.family, RefreshKind::End);
            return if self.enhanced { Some(end.write()) } else { self.next_end() };
        }
        if !self.complete {
            return None;
        }
        let due = self.progress.iter_mut().find(|progress| progress.end_of_rib)?;
        due.end_of_rib = false;
        Some(write::end_of_rib(due.family))
    }

    /// How many routes of `family` the peer has from us.
    pub fn advertised(&self, family: Family) -> usize {
        self.sent.keys().filter(|prefix| Family::of_prefix(prefix) == family).count()
    }

    /// The routes that the peer has from us, as they were said.
    pub fn routes(&self) -> impl Iterator<Item = (&IpNet, &Arc<Attributes>)> {
        self.sent.iter().filter_map(|(prefix, sent)| Some((prefix, sent.as_ref()?)))
    }

    /// Whether all was said, End-of-RIB included.
    pub fn is_done(&self) -> bool {
        let rested = |p: &Progress| p.refresh.is_none() && !(p.end_of_rib && self.complete);
        self.withdraw.is_empty() && self.announce.is_empty() && self.progress.iter().all(rested)
    }

    /// Routes that can't be said on this session: an IPv6 next hop without RFC 8950, an IPv4 one of
    /// an IPv6 prefix, the peer itself as next hop, more communities than a message holds.
    pub fn unsendable(&self) -> usize {
        self.unsendable
    }
}

#[cfg(test)]
mod tests;
