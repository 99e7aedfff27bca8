//! Bursts of owned packets, as received from and sent to queues.
#![expect(unsafe_code, reason = "an array whose first `len` elements are initialized")]

use crate::dpdk_sys as sys;
use crate::mbuf::Mbuf;
use std::fmt;
use std::mem::MaybeUninit;

/// Up to `N` owned packets, without allocation. Dropping the burst frees them in one call.
pub struct Burst<const N: usize = 32> {
    /// The first `len` slots are filled.
    slots: [MaybeUninit<Mbuf>; N],
    len: usize,
}

impl<const N: usize> Burst<N> {
    /// Creates an empty burst.
    pub const fn new() -> Self {
        Burst { slots: [const { MaybeUninit::uninit() }; N], len: 0 }
    }

    /// Returns the number of packets.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no packets.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the packets.
    #[inline(always)]
    pub fn as_slice(&self) -> &[Mbuf] {
        // SAFETY: the first `len` slots are filled.
        unsafe { self.slots.get_unchecked(..self.len).assume_init_ref() }
    }

    /// Returns the packets, mutably.
    #[inline(always)]
    pub fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        // SAFETY: the first `len` slots are filled.
        unsafe { self.slots.get_unchecked_mut(..self.len).assume_init_mut() }
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Returns the packet if the burst is full.
    #[inline(always)]
    pub fn push(&mut self, packet: Mbuf) -> Result<(), Mbuf> {
        match self.slots.get_mut(self.len) {
            Some(slot) => {
                slot.write(packet);
                self.len += 1;
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Removes and returns the last packet.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the slot was filled and is now outside of the first `len`.
        Some(unsafe { self.slots.get_unchecked(self.len).assume_init_read() })
    }

    /// Removes all packets and iterates over them, first to last. Those not consumed are freed.
    #[inline(always)]
    pub fn drain(&mut self) -> Drain<'_, N> {
        let end = self.len;
        // From here on the slots belong to the iterator, even if it is leaked.
        self.len = 0;
        Drain { burst: self, next: 0, end }
    }

    /// Frees all packets in one call.
    #[inline(always)]
    pub fn clear(&mut self) {
        if self.len > 0 {
            free(&mut self.slots[..self.len]);
            self.len = 0;
        }
    }

    /// Returns the unfilled slots.
    #[inline(always)]
    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<Mbuf>] {
        // SAFETY: len <= N.
        unsafe { self.slots.get_unchecked_mut(self.len..) }
    }

    /// Marks the next `n` slots as filled.
    ///
    /// # Safety
    /// The first `n` slots of `spare()` hold mbufs.
    #[inline(always)]
    pub(crate) unsafe fn grow(&mut self, n: usize) {
        self.len += n;
    }

    /// Removes the first `n` packets, which have another owner now, and moves the rest to the
    /// front.
    ///
    /// # Safety
    /// `n <= len()`, and ownership of the first `n` packets was transferred.
    #[inline(always)]
    pub(crate) unsafe fn forget_front(&mut self, n: usize) {
        let rest = self.len - n;
        if rest > 0 {
            // SAFETY: both ranges lie in the first `len` slots.
            unsafe {
                let start = self.slots.as_mut_ptr();
                start.copy_from(start.add(n), rest);
            }
        }
        self.len = rest;
    }
}

impl<const N: usize> Default for Burst<N> {
    fn default() -> Self {
        Burst::new()
    }
}

impl<const N: usize> Drop for Burst<N> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<const N: usize> fmt::Debug for Burst<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// An iterator that removes the packets of a burst.
#[derive(Debug)]
pub struct Drain<'a, const N: usize> {
    burst: &'a mut Burst<N>,
    next: usize,
    end: usize,
}

impl<const N: usize> Iterator for Drain<'_, N> {
    type Item = Mbuf;

    #[inline(always)]
    fn next(&mut self) -> Option<Mbuf> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: the slots from `next` to `end` are filled and belong to this iterator.
        let packet = unsafe { self.burst.slots.get_unchecked(self.next).assume_init_read() };
        self.next += 1;
        Some(packet)
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl<const N: usize> ExactSizeIterator for Drain<'_, N> {}

impl<const N: usize> Drop for Drain<'_, N> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.next < self.end {
            free(&mut self.burst.slots[self.next..self.end]);
        }
    }
}

/// Frees packets in bulk. All slots must be filled, and are unfilled afterwards.
fn free(packets: &mut [MaybeUninit<Mbuf>]) {
    // SAFETY: Mbuf is one non-null pointer; the callers own these packets and do not use them
    // again.
    unsafe { sys::rte_pktmbuf_free_bulk(packets.as_mut_ptr().cast(), packets.len() as u32) };
}
