//! New backends are met before they are served: their next hops are asked for first, so that the
//! first packet to one of them finds a MAC address.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use config::services::Services;

use super::Reconcile;

/// How long a change waits for a new backend that does not answer. Then it is served nevertheless:
/// its state is the operator's word, and others of the same change must not wait for it.
const PATIENCE: Duration = Duration::from_secs(2);

impl Reconcile<'_> {
    /// True when the next hops of all new backends are known, or were waited for long enough. At a
    /// start there is nothing to lose: until the first commit we are not able.
    pub(super) fn met(&mut self, services: &Services, now: Instant) -> bool {
        let known: HashSet<(u8, IpAddr)> =
            self.tables.next_hops().map(|(arm, addr, _)| (arm, addr)).collect();
        let backends = services.services.iter().flat_map(|service| &service.backends);
        let places = backends.map(|backend| (backend.arm as u8, backend.addr));
        let strangers: Vec<_> = places.filter(|place| !known.contains(place)).collect();
        let polled = self.region.live_lcores().next().is_some();
        if strangers.is_empty() || !self.synced || !polled {
            self.meeting = None;
            return true;
        }
        let until = *self.meeting.get_or_insert(now + PATIENCE);
        self.hops.want(known.into_iter().chain(strangers.iter().copied()), now);
        let resolved = |(arm, to): &(u8, IpAddr)| self.hops.resolved(*arm, *to).is_some();
        let met = strangers.iter().all(resolved) || now >= until;
        if met {
            self.meeting = None;
        }
        met
    }

    /// Writes what is known into the next hops of what is about to be committed.
    pub(super) fn introduce(&mut self) {
        // A record that is there already keeps up by itself.
        let told: HashSet<(u8, IpAddr)> = self
            .tables
            .next_hops()
            .filter_map(|(arm, addr, mac)| mac.map(|_| (arm, addr)))
            .collect();
        for (arm, to) in self.tables.prepared_next_hops() {
            let resolved = self.hops.resolved(arm, to).filter(|_| !told.contains(&(arm, to)));
            if let Some(resolved) = resolved {
                self.tables.set_next_hop(&resolved);
            }
        }
    }
}
