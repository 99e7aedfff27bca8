//! The interface between the pipeline and packet buffers.
//!
//! The pipeline is generic over [`Buffer`], which [`dpdk`] implements for NICs and [`memory`] for
//! tests and benchmarks. There is no dynamic dispatch: each gets a compiled pipeline of its own.

use packet::window::Window;

pub mod dpdk;
pub mod memory;

/// The buffer of one packet. The frame may have several segments; its headers are in the first one.
pub trait Buffer {
    /// Returns the bytes of the first segment, beginning with the Ethernet header.
    fn window(&mut self) -> Window<'_>;

    /// Returns the length of the whole frame in bytes.
    fn len(&self) -> usize;

    /// Returns true if the frame has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the frame continues after the first segment.
    fn is_chained(&self) -> bool;

    /// Removes `n` bytes from the front. Returns false without a change if the first segment is
    /// shorter.
    #[must_use]
    fn strip(&mut self, n: usize) -> bool;

    /// Adds `n` bytes at the front, from the headroom or, if that is too short, in a new header
    /// segment. Returns false without a change if neither is available.
    #[must_use]
    fn grow(&mut self, n: usize) -> bool;

    /// Truncates the frame to `len` bytes, all in the first segment. Returns false if the first
    /// segment is shorter.
    #[must_use]
    fn truncate(&mut self, len: usize) -> bool;

    /// Copies up to `out.len()` bytes of the frame, across segments, and returns their number.
    fn copy_to(&self, out: &mut [u8]) -> usize;
}
