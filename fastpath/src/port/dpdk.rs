//! `Buffer` for DPDK's packet buffers.

use super::Buffer;
use dpdk_bindings::Mbuf;
use packet::window::Window;

impl Buffer for Mbuf {
    #[inline(always)]
    fn window(&mut self) -> Window<'_> {
        let frame = Mbuf::len(self);
        Window::of_segment(self.bytes_mut(), frame)
    }

    #[inline(always)]
    fn len(&self) -> usize {
        Mbuf::len(self)
    }

    #[inline(always)]
    fn is_chained(&self) -> bool {
        self.segment_count() > 1
    }

    #[inline(always)]
    fn strip(&mut self, n: usize) -> bool {
        self.move_head(n as isize)
    }

    #[inline(always)]
    fn grow(&mut self, n: usize) -> bool {
        if self.move_head(-(n as isize)) {
            return true;
        }
        self.grow_by_segment(n)
    }

    fn truncate(&mut self, len: usize) -> bool {
        Mbuf::truncate(self, len)
    }

    fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        for segment in self.segments() {
            let n = segment.len().min(out.len() - at);
            out[at..at + n].copy_from_slice(&segment[..n]);
            at += n;
        }
        at
    }
}
