//! Frames in plain memory, for tests, fuzzing and in-memory benchmarks.

use super::Buffer;
use packet::window::Window;

/// Bytes of headroom, as in DPDK's buffers (`RTE_PKTMBUF_HEADROOM`).
pub const HEADROOM: usize = 128;

/// A frame with headroom, in one or two segments.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    bytes: Vec<u8>,
    start: usize,
    /// The second segment.
    rest: Vec<u8>,
}

impl Frame {
    /// Creates a frame of one segment.
    pub fn new(frame: &[u8]) -> Frame {
        Frame::split(frame, frame.len(), HEADROOM)
    }

    /// Creates a frame whose first segment holds `first` bytes, with `headroom` bytes in front.
    pub fn split(frame: &[u8], first: usize, headroom: usize) -> Frame {
        let (head, rest) = frame.split_at(first.min(frame.len()));
        let mut bytes = vec![0; headroom];
        bytes.extend_from_slice(head);
        Frame { bytes, start: headroom, rest: rest.to_vec() }
    }

    /// Replaces the contents by `frame` in one segment, reusing the memory.
    pub fn renew(&mut self, frame: &[u8]) {
        self.bytes.clear();
        self.bytes.resize(HEADROOM, 0);
        self.bytes.extend_from_slice(frame);
        self.start = HEADROOM;
        self.rest.clear();
    }

    /// Returns the first segment.
    pub fn first(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Returns the whole frame.
    pub fn to_vec(&self) -> Vec<u8> {
        [&self.bytes[self.start..], &self.rest].concat()
    }
}

impl Buffer for Frame {
    fn window(&mut self) -> Window<'_> {
        let frame = self.len();
        Window::of_segment(&mut self.bytes[self.start..], frame)
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.start + self.rest.len()
    }

    fn is_chained(&self) -> bool {
        !self.rest.is_empty()
    }

    fn strip(&mut self, n: usize) -> bool {
        let enough = n <= self.bytes.len() - self.start;
        if enough {
            self.start += n;
        }
        enough
    }

    fn grow(&mut self, n: usize) -> bool {
        if n > self.start {
            // Like DPDK's buffers: a separate header segment in front.
            let payload = self.bytes.split_off(self.start);
            self.rest.splice(0..0, payload);
            self.bytes = vec![0; HEADROOM + n];
            self.start = HEADROOM + n;
        }
        self.start -= n;
        true
    }

    fn truncate(&mut self, len: usize) -> bool {
        let fits = len <= self.bytes.len() - self.start;
        if fits {
            self.bytes.truncate(self.start + len);
            self.rest.clear();
        }
        fits
    }

    fn copy_to(&self, out: &mut [u8]) -> usize {
        let first = &self.bytes[self.start..];
        let n = first.len().min(out.len());
        out[..n].copy_from_slice(&first[..n]);
        let m = self.rest.len().min(out.len() - n);
        out[n..n + m].copy_from_slice(&self.rest[..m]);
        n + m
    }
}
