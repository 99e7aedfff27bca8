//! Route advertisement to one peer: computes the difference between the desired and the sent routes
//! and writes the UPDATEs for it.
//!
//! The desired state is always a whole table. The messages are, in this order: withdrawals,
//! announcements grouped by equal attributes, and, once the table is declared complete, End-of-RIB.
//! The session takes at most [`BURST`] messages and then waits until they are written. A peer that
//! reads slowly therefore neither uses much memory nor delays keepalives.
//!
//! MinRouteAdvertisementIntervalTimer (RFC 4271 section 9.2.1.1) is not implemented: a route whose
//! frontend must not receive traffic any more is withdrawn at once, and bursts of changes are
//! merged before they reach this module.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::wire::write::{self, EncodeContext};
use crate::wire::{Attributes, Family, Refresh, RefreshKind};

/// Maximum number of messages that a session takes before all of them are written.
pub const BURST: usize = 32;
/// The GRACEFUL_SHUTDOWN community (RFC 8326): asks the peer to prefer another route, because this
/// one is about to be withdrawn.
pub const GRACEFUL_SHUTDOWN: u32 = 0xffff_0000;

/// The routes that a peer should have. Routes with equal attributes should share one `Arc`, to save
/// memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Attributes by prefix; host bits are clear.
    pub routes: BTreeMap<IpNet, Arc<Attributes>>,
}

/// What is still to be sent for one family, apart from changed routes.
#[derive(Clone, Copy, Debug)]
struct Progress {
    family: Family,
    /// End-of-RIB has not been sent yet.
    end_of_rib: bool,
    /// A route refresh is pending (`Some(false)`) or its beginning was sent (`Some(true)`).
    refresh: Option<bool>,
}

/// Routes sent on one session and the changes still to be sent.
#[derive(Debug)]
pub struct Advertiser {
    encode_context: EncodeContext,
    /// Enhanced route refresh (RFC 7313) was negotiated.
    enhanced: bool,
    progress: Vec<Progress>,
    desired: Arc<Table>,
    complete: bool,
    shutting_down: bool,
    /// Prefixes that the peer has, with the attributes that were sent; `None` if the route must be
    /// sent again.
    sent: BTreeMap<IpNet, Option<Arc<Attributes>>>,
    /// Withdrawals that are still to be sent.
    withdraw: BTreeMap<Family, Vec<IpNet>>,
    /// Announcements that are still to be sent.
    announce: BTreeMap<(Family, Arc<Attributes>), Vec<IpNet>>,
    /// Number of desired routes that cannot be sent on this session.
    unsendable: usize,
}

impl Advertiser {
    /// Creates an advertiser with nothing sent and nothing desired.
    pub fn new(encode_context: EncodeContext, families: &[Family], enhanced: bool) -> Advertiser {
        let fresh = |family: &Family| Progress { family: *family, end_of_rib: true, refresh: None };
        Advertiser {
            encode_context,
            enhanced,
            progress: families.iter().map(fresh).collect(),
            desired: Arc::default(),
            complete: false,
            shutting_down: false,
            sent: BTreeMap::new(),
            withdraw: BTreeMap::new(),
            announce: BTreeMap::new(),
            unsendable: 0,
        }
    }

    /// Sets the desired routes. With `shutting_down`, all of them carry the GRACEFUL_SHUTDOWN
    /// community and, on internal sessions, LOCAL_PREF 0. End-of-RIB is sent once the table is
    /// `complete`.
    pub fn set_desired(&mut self, table: &Arc<Table>, complete: bool, shutting_down: bool) {
        let same = Arc::ptr_eq(table, &self.desired) && shutting_down == self.shutting_down;
        (self.complete, self.shutting_down) = (complete, shutting_down);
        if !same {
            self.desired = Arc::clone(table);
            self.compare();
        }
    }

    /// Schedules all routes of `family` to be sent again. A refresh in progress starts over.
    pub fn refresh(&mut self, family: Family) {
        let Some(progress) = self.progress.iter_mut().find(|p| p.family == family) else { return };
        // RFC 7313 allows no second beginning before the end.
        progress.refresh = Some(progress.refresh.unwrap_or(false));
        let of_family = self.sent.iter_mut().filter(|(p, _)| Family::of_prefix(p) == family);
        of_family.for_each(|(_, sent)| *sent = None);
        self.compare();
    }

    /// Recomputes withdrawals and announcements from the sent and the desired routes.
    fn compare(&mut self) {
        self.withdraw.clear();
        self.announce.clear();
        self.unsendable = 0;
        let mut outgoing: BTreeMap<Arc<Attributes>, Arc<Attributes>> = BTreeMap::new();
        let desired = Arc::clone(&self.desired);
        for (prefix, attributes) in &desired.routes {
            let family = Family::of_prefix(prefix);
            if !self.can_send(family, attributes.next_hop) {
                continue;
            }
            let attributes = outgoing
                .entry(Arc::clone(attributes))
                .or_insert_with(|| self.outgoing_attributes(attributes))
                .clone();
            if self.sent.get(prefix).and_then(Option::as_ref) != Some(&attributes) {
                self.announce.entry((family, attributes)).or_default().push(*prefix);
            }
        }
        for prefix in self.sent.keys() {
            let family = Family::of_prefix(prefix);
            let route = desired.routes.get(prefix);
            if !route.is_some_and(|route| self.encode_context.can_encode(family, route.next_hop)) {
                self.withdraw.entry(family).or_default().push(*prefix);
            }
        }
        self.count_unsendable();
    }

    fn can_send(&self, family: Family, next_hop: IpAddr) -> bool {
        self.has_family(family) && self.encode_context.can_encode(family, next_hop)
    }

    fn has_family(&self, family: Family) -> bool {
        self.progress.iter().any(|progress| progress.family == family)
    }

    fn count_unsendable(&mut self) {
        let unsendable = self.desired.routes.iter().filter(|(prefix, attributes)| {
            let family = Family::of_prefix(prefix);
            self.has_family(family) && !self.encode_context.can_encode(family, attributes.next_hop)
        });
        self.unsendable = unsendable.count();
    }

    fn outgoing_attributes(&self, attributes: &Arc<Attributes>) -> Arc<Attributes> {
        if !self.shutting_down {
            return Arc::clone(attributes);
        }
        let mut changed = Attributes::clone(attributes);
        changed.local_pref = Some(0);
        changed.communities.push(GRACEFUL_SHUTDOWN);
        changed.communities.sort_unstable();
        changed.communities.dedup();
        Arc::new(changed)
    }

    /// Returns the next message, or `None` if there is nothing to send.
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
        // Without RFC 7313 the routes alone are the response.
        if self.enhanced { Some(begin.write()) } else { self.begin_refresh() }
    }

    fn next_withdrawal(&mut self) -> Option<Vec<u8>> {
        let mut entry = self.withdraw.first_entry()?;
        let (message, prefixes) = self.encode_context.withdraw(*entry.key(), entry.get_mut());
        if entry.get().is_empty() {
            entry.remove();
        }
        for prefix in &prefixes {
            self.sent.remove(prefix);
        }
        Some(message)
    }

    fn next_announcement(&mut self) -> Option<Vec<u8>> {
        let mut entry = self.announce.first_entry()?;
        let (family, attributes) = entry.key().clone();
        let encoded = self.encode_context.announce(family, &attributes, entry.get_mut());
        let Some((message, prefixes)) = encoded else {
            // The attributes do not fit in a message, because of too many communities. If the peer
            // has previous routes of these prefixes, they are outdated and must be withdrawn.
            let too_long = entry.remove();
            self.unsendable += too_long.len();
            let had = too_long.into_iter().filter(|prefix| self.sent.contains_key(prefix));
            let had: Vec<IpNet> = had.collect();
            if !had.is_empty() {
                self.withdraw.entry(family).or_default().extend(had);
            }
            return self.next_withdrawal().or_else(|| self.next_announcement());
        };
        if entry.get().is_empty() {
            entry.remove();
        }
        for prefix in prefixes {
            self.sent.insert(prefix, Some(Arc::clone(&attributes)));
        }
        Some(message)
    }

    fn next_end(&mut self) -> Option<Vec<u8>> {
        // Only reached once no withdrawals and announcements are left.
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

    /// Returns the number of routes of `family` advertised to the peer.
    pub fn advertised(&self, family: Family) -> usize {
        self.sent.keys().filter(|prefix| Family::of_prefix(prefix) == family).count()
    }

    /// Returns the advertised routes with the attributes that were sent. Routes scheduled to be
    /// sent again by a refresh are left out.
    pub fn routes(&self) -> impl Iterator<Item = (&IpNet, &Arc<Attributes>)> {
        self.sent.iter().filter_map(|(prefix, sent)| Some((prefix, sent.as_ref()?)))
    }

    /// Returns whether no message is left to produce, including those of a route refresh and, if
    /// the table is complete, End-of-RIB.
    pub fn is_done(&self) -> bool {
        let settled = |p: &Progress| p.refresh.is_none() && !(p.end_of_rib && self.complete);
        self.withdraw.is_empty() && self.announce.is_empty() && self.progress.iter().all(settled)
    }

    /// Returns the number of desired routes that cannot be sent on this session, because of an IPv6
    /// next hop without RFC 8950, an IPv4 next hop of an IPv6 prefix, the peer itself as next hop,
    /// or more communities than fit in a message.
    pub fn unsendable(&self) -> usize {
        self.unsendable
    }
}

#[cfg(test)]
mod tests;
