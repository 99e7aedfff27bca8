//! Captures: copies of frames with the decisions about them, for `weir capture`.
//!
//! The control thread finds captures ([`watch`]) and hands each lcore its [`Taps`] through the
//! mailbox. While one is on, the head of each packet of a burst is copied before the stages change
//! it. After the last stage, packets that match a capture's filter are written to the lcore's ring
//! of that capture, as they were and as they are ([`record`]). While no capture is on, the cost is
//! one comparison per burst.

pub mod record;
pub mod watch;

use crate::burst::{BURST, Burst};
use crate::port::Buffer;
use std::sync::Arc;
use tables::capture::{MAX_CAPTURES, MAX_SNAP};
use tables::capture_file::{CaptureFile, CaptureWriter};

/// Heads of the packets of a burst as they arrived.
struct Heads {
    bytes: [[u8; MAX_SNAP as usize]; BURST],
    /// Number of bytes copied, and length of the frame, by packet.
    lens: [(u16, u32); BURST],
}

impl Heads {
    fn new() -> Box<Heads> {
        Box::new(Heads { bytes: [[0; MAX_SNAP as usize]; BURST], lens: [(0, 0); BURST] })
    }

    fn copy<B: Buffer>(&mut self, burst: &Burst<B>, snap: usize) {
        let slots = self.bytes.iter_mut().zip(&mut self.lens);
        for (buffer, (bytes, lens)) in burst.buffers[..burst.len].iter().zip(slots) {
            if let Some(buffer) = buffer {
                *lens = (buffer.copy_to(&mut bytes[..snap]) as u16, buffer.len() as u32);
            }
        }
    }

    fn of(&self, at: usize, snap: usize) -> (&[u8], u32) {
        let (len, frame_len) = self.lens[at];
        (&self.bytes[at][..usize::from(len).min(snap)], frame_len)
    }
}

/// The captures of one lcore. The default is none.
#[derive(Default)]
pub struct Taps {
    /// `Some` while there is a writer. Lcores allocate nothing, so it comes with the writers.
    heads: Option<Box<Heads>>,
    writers: [Option<CaptureWriter>; MAX_CAPTURES],
    /// Number of packets that the lcore captured.
    packets: u32,
}

impl Taps {
    /// Creates the captures of lcore `lcore` in these files.
    pub fn new<'a>(files: impl Iterator<Item = &'a Arc<CaptureFile>>, lcore: u32) -> Taps {
        let mut taps = Taps::default();
        for file in files {
            let writer = CaptureWriter::new(file, lcore as usize);
            if let Some(slot) = taps.writers.get_mut(usize::from(file.number())) {
                *slot = writer;
            }
        }
        if taps.writers.iter().any(Option::is_some) {
            taps.heads = Some(Heads::new());
        }
        taps
    }

    /// Returns true while a capture is on.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.heads.is_some()
    }

    /// Begins the captures on an lcore, in place of its previous ones.
    pub fn begin(&mut self, previous: &Taps) {
        self.packets = previous.packets;
        self.writers.iter_mut().flatten().for_each(CaptureWriter::begin);
    }

    /// Returns the largest number of bytes that a capture with a valid lease copies of a frame; 0
    /// if there is none.
    fn snap(&self, now_ms: u64) -> usize {
        let writers = self.writers.iter().flatten();
        let active = writers.filter(|writer| writer.file().is_active(now_ms));
        active.map(|writer| usize::from(writer.filter().snap)).max().unwrap_or(0)
    }
}
