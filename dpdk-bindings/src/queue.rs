//! A port's queues: where bursts come from and go to.
//!
//! The driver's functions are called through `rte_eth_fp_ops` from Rust, so that they cost one
//! indirect call. That leaves out the callbacks of DPDK's inline functions, which only pdump and
//! latency statistics use. After a port stops, the table holds functions that do nothing.
#![expect(unsafe_code, reason = "calls the driver")]

use crate::burst::Burst;
use crate::dpdk_sys as sys;
use crate::port::open::Open;
use std::ffi::c_void;
use std::sync::Arc;

/// One receive queue. There is one of it, so only one thread polls the queue at a time.
#[derive(Debug)]
pub struct RxQueue {
    port: u16,
    queue: u16,
    _open: Arc<Open>,
}

/// One transmit queue. There is one of it, so only one thread sends on the queue at a time.
#[derive(Debug)]
pub struct TxQueue {
    port: u16,
    queue: u16,
    _open: Arc<Open>,
}

impl RxQueue {
    /// # Safety
    /// The port was set up with the queue, and no other handle of it exists.
    pub(crate) unsafe fn new(open: Arc<Open>, queue: u16) -> RxQueue {
        RxQueue { port: open.id(), queue, _open: open }
    }

    /// Adds what has arrived to the burst, as far as it has room, and says how many packets.
    #[inline(always)]
    pub fn receive<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        self.receive_at_most(burst, N)
    }

    /// As [`RxQueue::receive`], `most` packets at most. Vector receive functions of some drivers
    /// (ixgbe, i40e, ice, iavf) round `most` down to a multiple of 4 or 8.
    #[inline(always)]
    pub fn receive_at_most<const N: usize>(&mut self, burst: &mut Burst<N>, most: usize) -> usize {
        let ops = fast_path(self.port);
        let room = burst.spare();
        let most = room.len().min(most).min(usize::from(u16::MAX)) as u16;
        // SAFETY: the port is open (we hold it), so its table entry has functions and its queue's
        // record; DPDK writes at most `most` mbufs, which then are ours.
        unsafe {
            let Some(receive) = (*ops).rx_pkt_burst else {
                return 0;
            };
            let record: *mut c_void = (*ops).rxq.data.add(self.queue.into()).read();
            let got = usize::from(receive(record, room.as_mut_ptr().cast(), most));
            burst.grow(got);
            got
        }
    }
}

impl TxQueue {
    /// # Safety
    /// The port was set up with the queue, and no other handle of it exists.
    pub(crate) unsafe fn new(open: Arc<Open>, queue: u16) -> TxQueue {
        TxQueue { port: open.id(), queue, _open: open }
    }

    /// Hands packets to the driver, first to last, and says how many it took. Those that it did not
    /// take (its ring is full) stay in the burst, for the caller to try again or to drop.
    #[inline(always)]
    pub fn send<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        let ops = fast_path(self.port);
        let packets = burst.as_mut_slice();
        let most = packets.len().min(usize::from(u16::MAX)) as u16;
        // SAFETY: the port is open (we hold it); what the driver took, from the front, is the
        // driver's, and the burst forgets it.
        unsafe {
            let Some(send) = (*ops).tx_pkt_burst else {
                return 0;
            };
            let record: *mut c_void = (*ops).txq.data.add(self.queue.into()).read();
            let sent = usize::from(send(record, packets.as_mut_ptr().cast(), most));
            burst.forget_front(sent);
            sent
        }
    }
}

#[inline(always)]
fn fast_path(port: u16) -> *const sys::rte_eth_fp_ops {
    // SAFETY: port numbers come from DPDK, which keeps them below the table's length.
    unsafe { (&raw const sys::rte_eth_fp_ops).cast::<sys::rte_eth_fp_ops>().add(port.into()) }
}
