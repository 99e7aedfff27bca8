//! Single-producer, single-consumer ring of messages of one cache line.
//!
//! ```text
//!   0    tail: number of messages published by the producer (in two cache lines of its own)
//!   128  head: number of messages consumed by the consumer (in two cache lines of its own)
//!   256  capacity × 64-byte slots; message n is in slot n mod capacity
//! ```
//! Both indices count up and wrap. Each side keeps its own index in private memory and uses only
//! that copy; it validates the other side's index. An impossible value is treated as "full" or
//! "empty" and counted, so that a faulty process cannot cause out-of-bounds access in the other.

#[cfg(test)]
mod tests;

use crate::layout::{RING_HEADER_BYTES, RING_SLOT_BYTES, Section};
use crate::region::Region;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ordering of stores that publish an index.
const PUBLISH: Ordering = Ordering::Release;
/// Ordering of loads of the other side's index.
const SEE: Ordering = Ordering::Acquire;

/// A message of eight words, whose contents the ring does not interpret.
#[repr(C, align(64))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Message(pub [u64; 8]);

/// Storage of a ring's indices and slots.
pub trait Slots {
    /// Number of slots, a power of two.
    fn capacity(&self) -> u64;
    /// Number of messages published so far.
    fn tail(&self) -> u64;
    /// Publishes all messages before `tail`.
    fn set_tail(&self, tail: u64);
    /// Number of messages consumed so far.
    fn head(&self) -> u64;
    /// Returns the slots before `head` to the producer.
    fn set_head(&self, head: u64);
    /// Writes message number `n`, which is taken modulo the capacity.
    fn write(&self, n: u64, message: &Message);
    /// Reads message number `n`, which is taken modulo the capacity.
    fn read(&self, n: u64) -> Message;
}

/// An index in two cache lines of its own, because processors prefetch lines in pairs.
#[repr(C, align(128))]
struct Index(AtomicU64);

/// Both indices of a ring in shared memory.
#[repr(C)]
struct Header {
    tail: Index,
    head: Index,
}

const _: () = assert!(size_of::<Header>() == RING_HEADER_BYTES);
const _: () = assert!(size_of::<Message>() == RING_SLOT_BYTES);

/// A ring in shared or private mapped memory.
#[derive(Clone, Copy)]
pub struct SharedSlots<'r> {
    header: &'r Header,
    slots: &'r [[AtomicU64; 8]],
}

impl<'r> SharedSlots<'r> {
    /// Size in bytes of a ring with `slots` slots.
    pub const fn bytes(slots: usize) -> usize {
        RING_HEADER_BYTES + slots * size_of::<Message>()
    }

    /// Creates a view of the ring at `start`. Its number of slots is `slots`, rounded down to a
    /// power of two.
    ///
    /// # Safety
    /// `start` points to [`SharedSlots::bytes`]`(slots)` bytes, aligned to 128, initialized (zeros
    /// are an empty ring), valid for all of `'r`, and used as this ring only. `slots` is not 0.
    #[expect(unsafe_code, reason = "a view over mapped memory")]
    pub unsafe fn from_raw(start: *mut u8, slots: usize) -> SharedSlots<'r> {
        let count = if slots.is_power_of_two() { slots } else { slots.next_power_of_two() / 2 };
        // SAFETY: the caller's promise; the slots follow the header.
        unsafe {
            let first = start.add(RING_HEADER_BYTES).cast::<[AtomicU64; 8]>();
            SharedSlots {
                header: &*start.cast::<Header>(),
                slots: std::slice::from_raw_parts(first, count),
            }
        }
    }

    /// Returns the ring from slowpath to an lcore, or `None` beyond the configured number of
    /// lcores.
    pub fn commands(region: &'r Region, lcore: u32) -> Option<SharedSlots<'r>> {
        SharedSlots::of(region, Section::Commands, lcore)
    }

    /// Returns the ring from an lcore to slowpath, or `None` beyond the configured number of
    /// lcores.
    pub fn events(region: &'r Region, lcore: u32) -> Option<SharedSlots<'r>> {
        SharedSlots::of(region, Section::Events, lcore)
    }

    fn of(region: &'r Region, section: Section, lcore: u32) -> Option<SharedSlots<'r>> {
        let slots = region.sizes().ring_slots as usize;
        let (start, bytes) = region.section_ptr(section);
        let at = lcore as usize * SharedSlots::bytes(slots);
        (slots.is_power_of_two() && slots > 1 && at + SharedSlots::bytes(slots) <= bytes).then(
            || {
                // SAFETY: within the section (above), which is page-aligned and holds nothing but
                // rings of this size, which is a multiple of 128 bytes (slots are even).
                #[expect(unsafe_code, reason = "converts sections to rings")]
                unsafe {
                    SharedSlots::from_raw(start.add(at), slots)
                }
            },
        )
    }

    #[inline]
    fn slot(&self, n: u64) -> &[AtomicU64; 8] {
        &self.slots[n as usize & (self.slots.len() - 1)]
    }
}

impl Slots for SharedSlots<'_> {
    #[inline]
    fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }
    #[inline]
    fn tail(&self) -> u64 {
        self.header.tail.0.load(SEE)
    }
    #[inline]
    fn set_tail(&self, tail: u64) {
        self.header.tail.0.store(tail, PUBLISH);
    }
    #[inline]
    fn head(&self) -> u64 {
        self.header.head.0.load(SEE)
    }
    #[inline]
    fn set_head(&self, head: u64) {
        self.header.head.0.store(head, PUBLISH);
    }
    #[inline]
    fn write(&self, n: u64, message: &Message) {
        for (word, value) in self.slot(n).iter().zip(message.0) {
            word.store(value, Ordering::Relaxed);
        }
    }
    #[inline]
    fn read(&self, n: u64) -> Message {
        let slot = self.slot(n);
        Message(std::array::from_fn(|i| slot[i].load(Ordering::Relaxed)))
    }
}

/// Producer side of a ring. A ring has one producer: the process that holds the role in the region.
pub struct Producer<S> {
    slots: S,
    tail: u64,
    /// Last known index of the consumer; it only ever advances.
    head: u64,
    /// Number of reads of an impossible index of the consumer.
    invalid_indices: u64,
}

impl<S: Slots> Producer<S> {
    /// Continues where the last producer stopped. Contradicting indices empty the ring.
    pub fn attach(slots: S) -> Producer<S> {
        let (tail, head) = (slots.tail(), slots.head());
        let sane = tail.wrapping_sub(head) <= slots.capacity();
        if !sane {
            slots.set_tail(head);
        }
        Producer { tail: if sane { tail } else { head }, head, invalid_indices: 0, slots }
    }

    /// Number of free slots. It reads the consumer's index only if fewer than `needed` are known to
    /// be free.
    #[inline]
    fn free_slots(&mut self, needed: u64) -> u64 {
        let capacity = self.slots.capacity();
        let known = capacity - self.tail.wrapping_sub(self.head);
        if known >= needed {
            return known;
        }
        let head = self.slots.head();
        let used = self.tail.wrapping_sub(head);
        if used > capacity {
            self.invalid_indices += 1;
            return 0;
        }
        self.head = head;
        capacity - used
    }

    /// Sends one message; returns false if the ring is full.
    #[inline]
    pub fn push(&mut self, message: &Message) -> bool {
        self.push_all(std::slice::from_ref(message)) == 1
    }

    /// Sends as many messages as fit, published together; returns their number.
    #[inline]
    pub fn push_all(&mut self, messages: &[Message]) -> usize {
        let free_slots = self.free_slots(messages.len() as u64).min(messages.len() as u64);
        for (n, message) in (0..free_slots).zip(messages) {
            self.slots.write(self.tail.wrapping_add(n), message);
        }
        if free_slots > 0 {
            self.tail = self.tail.wrapping_add(free_slots);
            self.slots.set_tail(self.tail);
        }
        free_slots as usize
    }

    /// Sends all messages, published together, or none if they do not fit; returns whether they
    /// were sent.
    #[inline]
    pub fn push_group(&mut self, messages: &[Message]) -> bool {
        self.free_slots(messages.len() as u64) >= messages.len() as u64
            && self.push_all(messages) == messages.len()
    }

    /// Number of times that this side read an impossible index of the consumer.
    pub fn invalid_indices(&self) -> u64 {
        self.invalid_indices
    }
}

/// Consumer side of a ring. A ring has one consumer.
pub struct Consumer<S> {
    slots: S,
    head: u64,
    /// Last known index of the producer; it only ever advances.
    tail: u64,
    /// Number of reads of an impossible index of the producer.
    invalid_indices: u64,
}

impl<S: Slots> Consumer<S> {
    /// Continues where the last consumer stopped. Contradicting indices empty the ring.
    pub fn attach(slots: S) -> Consumer<S> {
        let (tail, head) = (slots.tail(), slots.head());
        let sane = tail.wrapping_sub(head) <= slots.capacity();
        if !sane {
            slots.set_head(tail);
        }
        Consumer { head: if sane { head } else { tail }, tail, invalid_indices: 0, slots }
    }

    /// Number of messages that can be taken. It reads the producer's index only if none is known to
    /// be waiting.
    #[inline]
    fn waiting(&mut self) -> u64 {
        let known = self.tail.wrapping_sub(self.head);
        if known > 0 {
            return known;
        }
        let tail = self.slots.tail();
        let waiting = tail.wrapping_sub(self.head);
        if waiting > self.slots.capacity() {
            self.invalid_indices += 1;
            return 0;
        }
        self.tail = tail;
        waiting
    }

    /// Takes the oldest message, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<Message> {
        let mut one = [Message::default()];
        (self.pop_into(&mut one) == 1).then_some(one[0])
    }

    /// Takes the oldest messages, and returns their slots to the producer together; returns their
    /// number.
    #[inline]
    pub fn pop_into(&mut self, out: &mut [Message]) -> usize {
        let count = self.waiting().min(out.len() as u64);
        for (n, message) in (0..count).zip(out.iter_mut()) {
            *message = self.slots.read(self.head.wrapping_add(n));
        }
        if count > 0 {
            self.head = self.head.wrapping_add(count);
            self.slots.set_head(self.head);
        }
        count as usize
    }

    /// Number of times that this side read an impossible index of the producer.
    pub fn invalid_indices(&self) -> u64 {
        self.invalid_indices
    }
}
