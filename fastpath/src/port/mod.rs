//! Where bursts come from and go to: the one seam between the journey and the buffers it runs on.
//!
//! The pipeline is written against [`Buffer`]; [`dpdk`] is the NIC's, [`memory`] the tests' and the
//! benchmarks'. There is no dynamic dispatch: each is compiled into a pipeline of its own.

use packet::window::Window;

pub mod dpdk;
pub mod memory;

/// One packet's buffer. The frame may continue in further segments; headers lie in the first.
pub trait Buffer {
    /// The first segment's bytes, from the Ethernet header on.
    fn window(&mut self) -> Window<'_>;

    /// Bytes of the whole frame, all segments.
    fn len(&self) -> usize;

    /// True for a frame of no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when the frame continues after the first segment.
    fn is_chained(&self) -> bool;

    /// Takes `n` bytes off the front. False, and nothing changes, when the first segment is
    /// shorter.
    #[must_use]
    fn strip(&mut self, n: usize) -> bool;

    /// Puts `n` bytes of room in front: headroom, or a header segment where that is too short.
    /// False, and nothing changes, when neither is to be had.
    #[must_use]
    fn grow(&mut self, n: usize) -> bool;

    /// Cuts the frame down to `len` bytes, all in the first segment. False when that is longer than
    /// the first segment.
    #[must_use]
    fn truncate(&mut self, len: usize) -> bool;

    /// Copies up to `out.len()` bytes of the frame, across segments, and says how many.
    fn copy_to(&self, out: &mut [u8]) -> usize;
}
