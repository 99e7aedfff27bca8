//! The receive and transmit queues of a port.
//!
//! The driver's functions are called from Rust through `rte_eth_fp_ops`, which costs one indirect
//! call. This omits the callbacks of DPDK's inline functions, which only pdump and latency
//! statistics use. After a port stops, the table holds functions that return 0.
#![expect(unsafe_code, reason = "calls the driver")]

use crate::burst::Burst;
use crate::dpdk_sys as sys;
use crate::port::guard::PortGuard;
use std::ffi::c_void;
use std::sync::Arc;

/// A receive queue. The handle is unique, so only one thread polls the queue at a time.
#[derive(Debug)]
pub struct RxQueue {
    port: u16,
    queue: u16,
    _guard: Arc<PortGuard>,
}

/// A transmit queue. The handle is unique, so only one thread sends on the queue at a time.
#[derive(Debug)]
pub struct TxQueue {
    port: u16,
    queue: u16,
    _guard: Arc<PortGuard>,
}

impl RxQueue {
    /// # Safety
    /// The port was set up with the queue, and no other handle of it exists.
    pub(crate) unsafe fn new(port: Arc<PortGuard>, queue: u16) -> RxQueue {
        RxQueue { port: port.id(), queue, _guard: port }
    }

    /// Adds received packets to the burst, up to its capacity, and returns their number.
    #[inline(always)]
    pub fn receive<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        self.receive_at_most(burst, N)
    }

    /// Like [`RxQueue::receive`], but adds at most `max` packets. The vector receive functions of
    /// some drivers (ixgbe, i40e, ice, iavf) round `max` down to a multiple of 4 or 8.
    #[inline(always)]
    pub fn receive_at_most<const N: usize>(&mut self, burst: &mut Burst<N>, max: usize) -> usize {
        let ops = fast_path(self.port);
        let spare = burst.spare();
        let max = spare.len().min(max).min(usize::from(u16::MAX)) as u16;
        // SAFETY: the port is open (a reference is held), so its table entry has functions and its
        // queue's record; DPDK writes at most `max` mbufs, whose ownership it transfers.
        unsafe {
            let Some(receive) = (*ops).rx_pkt_burst else {
                return 0;
            };
            let record: *mut c_void = (*ops).rxq.data.add(self.queue.into()).read();
            let received = usize::from(receive(record, spare.as_mut_ptr().cast(), max));
            burst.grow(received);
            received
        }
    }
}

impl TxQueue {
    /// # Safety
    /// The port was set up with the queue, and no other handle of it exists.
    pub(crate) unsafe fn new(port: Arc<PortGuard>, queue: u16) -> TxQueue {
        TxQueue { port: port.id(), queue, _guard: port }
    }

    /// Passes packets to the driver, first to last, and returns the number accepted. The others
    /// (the ring is full) stay in the burst; the caller can retry or drop them.
    #[inline(always)]
    pub fn send<const N: usize>(&mut self, burst: &mut Burst<N>) -> usize {
        let ops = fast_path(self.port);
        let packets = burst.as_mut_slice();
        let max = packets.len().min(usize::from(u16::MAX)) as u16;
        // SAFETY: the port is open (a reference is held); the driver owns the packets that it
        // accepted, from the front, and the burst drops its claim to them.
        unsafe {
            let Some(send) = (*ops).tx_pkt_burst else {
                return 0;
            };
            let record: *mut c_void = (*ops).txq.data.add(self.queue.into()).read();
            let sent = usize::from(send(record, packets.as_mut_ptr().cast(), max));
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
