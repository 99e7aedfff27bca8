//! New backends are met before they are served: their next hops are asked for first, so that the
//! first packet to one of them finds a MAC address.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use state::address::Endpoint;
use state::watch::News;

use super::Reconcile;

/// How long a change waits for a new backend that does not answer. Then it is served nevertheless:
/// its state is its source's word, and others of the same change must not wait for it.
const PATIENCE: Duration = Duration::from_secs(2);

impl Reconcile<'_> {
    /// True when the next hops of all new backends are known, or were waited for long enough; the
    /// region then knows them before it is told of the backends. At a start there is nothing to
    /// lose: until the first commit we are not able.
    pub(super) fn met(&mut self, news: &News, now: Instant) -> bool {
        let strangers = self.strangers(news);
        if strangers.is_empty() {
            self.meeting = None;
            return true;
        }
        let polled = self.region.live_lcores().next().is_some();
        if self.synced && polled {
            let until = *self.meeting.get_or_insert(now + PATIENCE);
            let known = self.plane.next_hops().map(|(arm, addr, _)| (arm, addr));
            self.strangers_asked = true;
            self.hops.want(known.chain(strangers.iter().copied()), now);
            let resolved = |(arm, to): &(u8, IpAddr)| self.hops.resolved(*arm, *to).is_some();
            if now < until && !strangers.iter().all(resolved) {
                return false;
            }
        }
        self.meeting = None;
        let resolved = strangers.iter().filter_map(|(arm, to)| self.hops.resolved(*arm, *to));
        self.plane.acquaint(resolved);
        true
    }

    /// Next hops came or went. A record that was freed and made again knows nothing of what was
    /// written into the one before, though we never lost sight of the neighbour.
    pub(super) fn want_next_hops(&mut self, now: Instant) {
        let all = self.plane.next_hops();
        self.hops.want(all.map(|(arm, addr, _)| (arm, addr)), now);
        for (arm, addr, _) in self.plane.next_hops().filter(|(.., mac)| mac.is_none()) {
            self.hops.tell_again(arm, addr);
        }
    }

    /// Where backends are that are news, and that the region has no next hop to.
    fn strangers(&self, news: &News) -> BTreeSet<(u8, IpAddr)> {
        let place = |endpoint: &Endpoint| {
            let instances = news.tables.instances_at(endpoint);
            instances
                .map(|instance| (instance.arm as u8, instance.endpoint.addr))
                .collect::<Vec<_>>()
        };
        let places: Vec<(u8, IpAddr)> = match &news.touched {
            Some(touched) => {
                touched.iter().flat_map(|one| &one.endpoints).flat_map(place).collect()
            }
            None => news.tables.endpoints().flat_map(|(endpoint, _)| place(endpoint)).collect(),
        };
        places.into_iter().filter(|(arm, addr)| !self.plane.has_next_hop(*arm, *addr)).collect()
    }
}
