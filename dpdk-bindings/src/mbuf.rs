//! Packets in DPDK's memory: an owned `rte_mbuf` and the segments chained to it.
//!
//! ```text
//!   buf_addr      data_off           data_off+data_len            buf_len
//!      |  headroom   |   the segment's bytes   |      tailroom       |
//!      +-------------+-------------------------+---------------------+
//! ```
#![expect(unsafe_code, reason = "reads and writes the fields of rte_mbuf")]

use crate::dpdk_sys::weir_mbuf_layout as layout;
use crate::dpdk_sys::{self as sys, rte_mbuf};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// An owned packet. Dropping it frees it with all its segments. It has the size of a pointer.
#[repr(transparent)]
pub struct Mbuf(NonNull<rte_mbuf>);

// SAFETY: an mbuf is memory with one owner; freeing it returns it to a pool that is thread-safe.
unsafe impl Send for Mbuf {}
// SAFETY: shared references only read.
unsafe impl Sync for Mbuf {}

/// Reads a field of the mbuf that `$pointer` points to.
macro_rules! get {
    ($pointer:expr, $offset:ident: $type:ty) => {
        // SAFETY: the mbuf lives while it is owned, wrapper.h gives offset and width (checked by
        // the C compiler), and DPDK aligns its fields.
        unsafe { $pointer.cast::<u8>().add(layout::$offset as usize).cast::<$type>().read() }
    };
}

/// Writes a field of the mbuf that `$pointer` points to.
macro_rules! set {
    ($pointer:expr, $offset:ident: $type:ty = $value:expr) => {
        // SAFETY: as for reading, and the caller owns the mbuf mutably.
        unsafe { $pointer.cast::<u8>().add(layout::$offset as usize).cast::<$type>().write($value) }
    };
}

impl Mbuf {
    /// Takes ownership of an mbuf.
    ///
    /// # Safety
    /// `mbuf` is a live, direct mbuf with reference count 1 (so are its segments), the first of its
    /// chain, and is neither used nor freed by any other owner.
    #[inline(always)]
    pub unsafe fn from_raw(mbuf: NonNull<rte_mbuf>) -> Mbuf {
        Mbuf(mbuf)
    }

    /// Releases ownership; the caller is responsible for freeing the mbuf.
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<rte_mbuf> {
        ManuallyDrop::new(self).0
    }

    /// Returns the address of the frame's first byte, valid for [`Mbuf::first_len`] bytes.
    #[inline(always)]
    pub fn start(&self) -> *mut u8 {
        segment_start(self.0)
    }

    /// Returns the length of the first segment in bytes.
    #[inline(always)]
    pub fn first_len(&self) -> usize {
        get!(self.0, WEIR_MBUF_DATA_LEN: u16).into()
    }

    /// Returns the length of the whole frame in bytes.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a packet is not a collection")]
    pub fn len(&self) -> usize {
        get!(self.0, WEIR_MBUF_PKT_LEN: u32) as usize
    }

    /// Returns the number of segments, 1 or more.
    #[inline(always)]
    pub fn segment_count(&self) -> usize {
        get!(self.0, WEIR_MBUF_NB_SEGS: u16).into()
    }

    /// Returns an iterator over the segments' bytes, first to last.
    #[inline(always)]
    pub fn segments(&self) -> Segments<'_> {
        Segments { next: Some(self.0), _packet: std::marker::PhantomData }
    }

    /// Returns the bytes of the first segment.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: DPDK keeps data_len bytes from the start within the buffer, and we own it.
        unsafe { std::slice::from_raw_parts(self.start(), self.first_len()) }
    }

    /// Returns the bytes of the first segment, mutably.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and we own it mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.first_len()) }
    }

    /// Returns the number of free bytes in front of the frame.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        get!(self.0, WEIR_MBUF_DATA_OFF: u16).into()
    }

    /// Returns the number of free bytes after the first segment.
    #[inline(always)]
    pub fn tailroom(&self) -> usize {
        usize::from(get!(self.0, WEIR_MBUF_BUF_LEN: u16))
            .saturating_sub(self.headroom() + self.first_len())
    }

    /// Moves the start of the frame: a negative `delta` adds bytes at the front (with unspecified
    /// contents), a positive one removes bytes. Returns false without a change if the headroom or
    /// the first segment is too short.
    #[inline(always)]
    #[must_use]
    pub fn move_head(&mut self, delta: isize) -> bool {
        if delta > self.first_len() as isize || delta < -(self.headroom() as isize) {
            return false;
        }
        let moved = |was: usize| was.wrapping_add_signed(delta);
        let shrunk = |was: usize| was.wrapping_add_signed(-delta);
        set!(self.0, WEIR_MBUF_DATA_OFF: u16 = moved(self.headroom()) as u16);
        set!(self.0, WEIR_MBUF_PKT_LEN: u32 = shrunk(self.len()) as u32);
        set!(self.0, WEIR_MBUF_DATA_LEN: u16 = shrunk(self.first_len()) as u16);
        true
    }

    /// Removes `n` bytes from the end. Returns false without a change if the last segment is
    /// shorter.
    #[inline(always)]
    #[must_use]
    pub fn trim_tail(&mut self, n: usize) -> bool {
        let last = self.last_segment();
        let have = usize::from(get!(last, WEIR_MBUF_DATA_LEN: u16));
        if n > have {
            return false;
        }
        set!(last, WEIR_MBUF_DATA_LEN: u16 = (have - n) as u16);
        set!(self.0, WEIR_MBUF_PKT_LEN: u32 = (self.len() - n) as u32);
        true
    }

    /// Truncates the frame to `len` bytes and frees all further segments. Returns false without a
    /// change if the first segment is shorter than `len`.
    #[must_use]
    pub fn truncate(&mut self, len: usize) -> bool {
        if len > self.first_len() {
            return false;
        }
        let rest = get!(self.0, WEIR_MBUF_NEXT: *mut rte_mbuf);
        if !rest.is_null() {
            set!(self.0, WEIR_MBUF_NEXT: *mut rte_mbuf = std::ptr::null_mut());
            free_segments(rest);
        }
        set!(self.0, WEIR_MBUF_NB_SEGS: u16 = 1);
        set!(self.0, WEIR_MBUF_DATA_LEN: u16 = len as u16);
        set!(self.0, WEIR_MBUF_PKT_LEN: u32 = len as u32);
        true
    }

    /// Adds `n` bytes at the end and returns them (with unspecified contents). Returns `None`
    /// without a change if the frame has several segments or too little tailroom.
    #[inline(always)]
    pub fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        if self.segment_count() != 1 || n > self.tailroom() {
            return None;
        }
        let was = self.first_len();
        set!(self.0, WEIR_MBUF_DATA_LEN: u16 = (was + n) as u16);
        set!(self.0, WEIR_MBUF_PKT_LEN: u32 = (was + n) as u32);
        self.bytes_mut().get_mut(was..)
    }

    /// Prepends a header by chaining: it becomes the first segment. For frames whose headroom is
    /// too short.
    ///
    /// # Errors
    /// Returns the header if it has several segments or the chain would have too many.
    pub fn chain_front(&mut self, header: Mbuf) -> Result<(), Mbuf> {
        let segments = self.segment_count() + 1;
        if header.segment_count() != 1 || segments > MAX_SEGMENTS {
            return Err(header);
        }
        let len = header.first_len() + self.len();
        set!(header.0, WEIR_MBUF_NEXT: *mut rte_mbuf = self.0.as_ptr());
        set!(header.0, WEIR_MBUF_NB_SEGS: u16 = segments as u16);
        set!(header.0, WEIR_MBUF_PKT_LEN: u32 = len as u32);
        // Of the frame's metadata, only the port is copied: flags, VLAN tag and RSS hash are not.
        set!(header.0, WEIR_MBUF_PORT: u16 = self.port());
        // DPDK requires a count of 1 in all but the first segment.
        set!(self.0, WEIR_MBUF_NB_SEGS: u16 = 1);
        self.0 = header.into_raw();
        Ok(())
    }

    /// Adds `n` bytes at the front (with unspecified contents) in a new segment from the frame's
    /// own pool. Returns false without a change if the pool is empty, its buffers are too short, or
    /// the chain has the maximum number of segments.
    #[cold]
    #[must_use]
    pub fn grow_by_segment(&mut self, n: usize) -> bool {
        let Some(mut header) = self.sibling() else {
            return false;
        };
        header.append(n).is_some() && self.chain_front(header).is_ok()
    }

    /// Copies all segments into the first one. Returns false without a change if its tailroom is
    /// too short. For ports that cannot send chains ([`crate::Port::sends_chains`]).
    #[must_use]
    pub fn linearize(&mut self) -> bool {
        // SAFETY: a live chain that we own.
        self.segment_count() == 1 || unsafe { sys::weir_linearize(self.0.as_ptr()) == 0 }
    }

    /// Allocates an empty mbuf from this mbuf's pool, or returns `None` if the pool is empty.
    pub fn sibling(&self) -> Option<Mbuf> {
        let pool = get!(self.0, WEIR_MBUF_POOL: *mut sys::rte_mempool);
        let mut one = std::ptr::null_mut();
        // SAFETY: a live mbuf's pool lives; there is space for one pointer.
        let status = unsafe { sys::weir_alloc_bulk(pool, &raw mut one, 1) };
        if status != 0 {
            return None;
        }
        NonNull::new(one).map(Mbuf)
    }

    /// Returns the number of the port that received the frame, or 65,535 for an mbuf that was
    /// allocated and not received.
    #[inline(always)]
    pub fn port(&self) -> u16 {
        get!(self.0, WEIR_MBUF_PORT: u16)
    }

    /// Returns the RSS hash if the NIC computed one.
    #[inline(always)]
    pub fn rss_hash(&self) -> Option<u32> {
        (self.flags() & sys::WEIR_MBUF_RX_RSS_HASH != 0).then(|| get!(self.0, WEIR_MBUF_HASH: u32))
    }

    /// Restores a VLAN tag that the driver removed on its own (as the kernel does under af_packet).
    /// Returns true if it was restored or none was removed; false without a change if the headroom
    /// is shorter than the tag's four bytes, or the first segment shorter than two MAC addresses.
    #[inline(always)]
    #[must_use]
    pub fn restore_vlan(&mut self) -> bool {
        if self.flags() & sys::WEIR_MBUF_RX_VLAN_STRIPPED == 0 {
            return true;
        }
        let tci: u16 = get!(self.0, WEIR_MBUF_VLAN_TCI: u16);
        if self.first_len() < 12 || !self.move_head(-4) {
            return false;
        }
        let bytes = self.bytes_mut();
        bytes.copy_within(4..16, 0);
        bytes[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
        bytes[14..16].copy_from_slice(&tci.to_be_bytes());
        let flags = self.flags() & !sys::WEIR_MBUF_RX_VLAN_STRIPPED;
        set!(self.0, WEIR_MBUF_OL_FLAGS: u64 = flags);
        true
    }

    /// Clears all flags except those about the buffer's memory, the VLAN tags and the lengths for
    /// transmit offloads. Must be called before a received packet is sent: the transmit driver
    /// reads offload requests from the same fields that the receive driver filled.
    #[inline(always)]
    pub fn reset_offloads(&mut self) {
        let flags = self.flags() & sys::WEIR_MBUF_KEEP_FLAGS;
        set!(self.0, WEIR_MBUF_OL_FLAGS: u64 = flags);
        set!(self.0, WEIR_MBUF_VLAN_TCI: u16 = 0);
        set!(self.0, WEIR_MBUF_VLAN_TCI_OUTER: u16 = 0);
        set!(self.0, WEIR_MBUF_TX_OFFLOAD: u64 = 0);
    }

    /// Prefetches the first cache line of the mbuf itself.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(self.0.as_ptr().cast());
    }

    /// Prefetches the first three cache lines of the frame, which hold the headers of a packet in
    /// GENEVE over IPv6 with 32 bytes of options. Reads the first cache line of the mbuf.
    #[inline(always)]
    pub fn prefetch_frame(&self) {
        for line in 0..3 {
            prefetch(self.start().wrapping_add(64 * line));
        }
    }

    #[inline(always)]
    fn flags(&self) -> u64 {
        get!(self.0, WEIR_MBUF_OL_FLAGS: u64)
    }

    #[inline(always)]
    fn last_segment(&self) -> NonNull<rte_mbuf> {
        let mut last = self.0;
        while let Some(next) = NonNull::new(get!(last, WEIR_MBUF_NEXT: *mut rte_mbuf)) {
            last = next;
        }
        last
    }
}

/// The maximum number of segments (`RTE_MBUF_MAX_NB_SEGS`).
const MAX_SEGMENTS: usize = u16::MAX as usize;

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        free_segments(self.0.as_ptr());
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mbuf({} bytes, {} segments)", self.len(), self.segment_count())
    }
}

/// An iterator over the segments of a packet as slices, first to last.
#[derive(Debug)]
pub struct Segments<'a> {
    next: Option<NonNull<rte_mbuf>>,
    _packet: std::marker::PhantomData<&'a Mbuf>,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        let segment = self.next?;
        self.next = NonNull::new(get!(segment, WEIR_MBUF_NEXT: *mut rte_mbuf));
        let len = get!(segment, WEIR_MBUF_DATA_LEN: u16);
        // SAFETY: the chain is owned by the packet, which is borrowed for 'a.
        Some(unsafe { std::slice::from_raw_parts(segment_start(segment), len.into()) })
    }
}

#[inline(always)]
fn segment_start(segment: NonNull<rte_mbuf>) -> *mut u8 {
    let buffer = get!(segment, WEIR_MBUF_BUF_ADDR: *mut u8);
    let offset = get!(segment, WEIR_MBUF_DATA_OFF: u16);
    // SAFETY: DPDK and `move_head` keep data_off within the buffer.
    unsafe { buffer.add(offset.into()) }
}

#[inline(always)]
fn prefetch(line: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch of any address does nothing but fill the cache.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
}

#[cold]
fn free_segments(first: *mut rte_mbuf) {
    let mut first = first;
    // SAFETY: a live chain whose owner releases it.
    unsafe { sys::rte_pktmbuf_free_bulk(&raw mut first, 1) };
}
