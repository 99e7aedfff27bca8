//! Hands the queues of a NIC to the lcores and takes them back while the lcores keep polling.
//!
//! A NIC can only be reset, reconfigured or removed when nothing uses its queues. The control
//! thread leaves a request in the mailbox of each lcore, which acts on it between two bursts:
//!
//! ```text
//!   control thread               lcore
//!   withdraw(arm)  ──request──>  drops the queues of that arm; packets for it are dropped and
//!   is_withdrawn(arm) <──done──  counted as `nic_unavailable`
//!   offer(arm, queues) ───────>  polls the new queues
//! ```
//!
//! An lcore reads one flag per iteration; the mutex is locked only while a request is pending.
//! Captures are handed over in the same way: the lcore takes those that are offered, and leaves the
//! old ones in the mailbox, so that it frees and unmaps nothing.

use crate::capture::Taps;
use dpdk_bindings::{RxQueue, TxQueue};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of arms.
const ARMS: usize = 2;

/// The queues of one arm on one lcore. Both are `None` while the NIC is being reset or is gone.
#[derive(Debug, Default)]
pub struct ArmQueues {
    /// The receive queue, if this lcore has one: there may be fewer receive queues than lcores.
    pub rx: Option<RxQueue>,
    /// The transmit queue.
    pub tx: Option<TxQueue>,
    /// Whether the driver sends packets of several segments.
    pub sends_chains: bool,
}

/// A request for one arm.
#[derive(Debug, Default)]
enum Request {
    /// The lcore keeps its queues.
    #[default]
    None,
    /// The lcore drops its queues.
    Withdraw,
    /// The lcore has dropped its queues.
    Withdrawn,
    /// The lcore takes these queues.
    Offer(ArmQueues),
}

/// The mailbox of one lcore.
#[derive(Default)]
pub struct Mailbox {
    pending: AtomicBool,
    requests: Mutex<[Request; ARMS]>,
    /// True and the captures offered to the lcore, until it takes them; then false and the captures
    /// that it gave up, which the control thread drops.
    taps: Mutex<(bool, Taps)>,
}

/// The mailboxes of all lcores, as the control thread uses them.
pub struct Exchange {
    mailboxes: Vec<Arc<Mailbox>>,
}

impl Mailbox {
    /// Returns true if the control thread left a request.
    #[inline(always)]
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// Carries out the pending requests on the lcore's queues by arm.
    #[cold]
    pub fn process(&self, arms: &mut [ArmQueues]) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        self.pending.store(false, Ordering::Relaxed);
        for (queues, request) in arms.iter_mut().zip(requests.iter_mut()) {
            match std::mem::take(request) {
                Request::None => {}
                Request::Withdraw | Request::Withdrawn => {
                    (queues.rx, queues.tx) = (None, None);
                    *request = Request::Withdrawn;
                }
                Request::Offer(offered) => *queues = offered,
            }
        }
    }

    /// Exchanges the lcore's captures for those that the control thread offers, if it does.
    #[cold]
    pub fn exchange_taps(&self, exchange: impl FnOnce(&mut Taps)) {
        let mut taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut taps.0) {
            exchange(&mut taps.1);
        }
    }

    /// Offers captures, which replace those of the lcore. Drops those that it gave up before.
    fn offer_taps(&self, offered: Taps) {
        let before = {
            let mut taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *taps, (true, offered))
        };
        self.pending.store(true, Ordering::Relaxed);
        drop(before);
    }

    fn set(&self, arm: usize, request: Request) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests[arm] = request;
        self.pending.store(true, Ordering::Relaxed);
    }

    fn is_withdrawn(&self, arm: usize) -> bool {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(requests[arm], Request::Withdrawn)
    }
}

impl Exchange {
    /// Creates the mailboxes of `lcores` lcores.
    pub fn new(lcores: usize) -> Exchange {
        Exchange { mailboxes: (0..lcores).map(|_| Arc::default()).collect() }
    }

    /// Returns the mailboxes in the order of the lcores.
    pub fn mailboxes(&self) -> impl Iterator<Item = Arc<Mailbox>> {
        self.mailboxes.iter().cloned()
    }

    /// Offers each lcore its captures, in the order of the lcores.
    pub fn offer_taps(&self, taps: impl Iterator<Item = Taps>) {
        for (mailbox, taps) in self.mailboxes.iter().zip(taps) {
            mailbox.offer_taps(taps);
        }
    }

    /// Drops the captures that lcores gave up.
    pub fn drop_old_taps(&self) {
        for mailbox in &self.mailboxes {
            let mut taps = mailbox.taps.lock().unwrap_or_else(PoisonError::into_inner);
            if !taps.0 {
                drop(std::mem::take(&mut taps.1));
            }
        }
    }

    /// Requests that all lcores drop the queues of an arm.
    pub fn withdraw(&self, arm: usize) {
        for mailbox in &self.mailboxes {
            mailbox.set(arm, Request::Withdraw);
        }
    }

    /// Returns true once all lcores have dropped the queues of an arm.
    pub fn is_withdrawn(&self, arm: usize) -> bool {
        self.mailboxes.iter().all(|mailbox| mailbox.is_withdrawn(arm))
    }

    /// Gives the lcores new queues of an arm, in the order of the lcores.
    pub fn offer(&self, arm: usize, queues: Vec<ArmQueues>) {
        for (mailbox, queues) in self.mailboxes.iter().zip(queues) {
            mailbox.set(arm, Request::Offer(queues));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lcores_drop_their_queues_on_request_and_take_the_offered_ones() {
        let exchange = Exchange::new(2);
        let mut mailboxes = exchange.mailboxes();
        let (first, second) = (mailboxes.next().unwrap(), mailboxes.next().unwrap());
        let mut arms = [ArmQueues::default(), ArmQueues::default()];
        assert!(!first.is_pending() && !exchange.is_withdrawn(0));
        exchange.withdraw(0);
        assert!(first.is_pending() && second.is_pending());
        first.process(&mut arms);
        assert!(!first.is_pending());
        assert!(!exchange.is_withdrawn(0), "the second lcore still polls");
        second.process(&mut [ArmQueues::default()]);
        assert!(exchange.is_withdrawn(0) && !exchange.is_withdrawn(1));
        // Requests for the other arm change nothing for this one.
        exchange.withdraw(1);
        first.process(&mut arms);
        assert!(exchange.is_withdrawn(0));
        let offered = || ArmQueues { sends_chains: true, ..ArmQueues::default() };
        exchange.offer(0, vec![offered(), offered()]);
        assert!(!exchange.is_withdrawn(0));
        first.process(&mut arms);
        assert!(arms[0].sends_chains);
    }

    #[test]
    fn a_withdrawal_replaces_an_offer_that_no_lcore_has_taken() {
        let exchange = Exchange::new(1);
        let mailbox = exchange.mailboxes().next().unwrap();
        exchange.offer(0, vec![ArmQueues { sends_chains: true, ..ArmQueues::default() }]);
        exchange.withdraw(0);
        let mut arms = [ArmQueues::default()];
        mailbox.process(&mut arms);
        assert!(exchange.is_withdrawn(0) && !arms[0].sends_chains);
    }
}
