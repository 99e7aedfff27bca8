//! The pipeline in memory: one lcore without a NIC, for tests, fuzzing and benchmarks.

use crate::burst::{Arrival, Burst};
use crate::dispatch::Exits;
use crate::lcore::{Lcore, LcoreConfig};
use crate::port::memory::Frame;
use tables::region::Region;

/// A frame that left the pipeline, with its exit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SentFrame {
    /// Sent through the port of this arm.
    Port(u8, Vec<u8>),
    /// Passed to the kernel through the exception port of this arm.
    Kernel(u8, Vec<u8>),
}

/// One lcore on a region, without a NIC.
pub struct MemoryPlane<'r> {
    /// The lcore, for access to counters and clock.
    pub lcore: Lcore<'r>,
    burst: Burst<Frame>,
}

struct Collector(Vec<SentFrame>);

impl Exits<Frame> for Collector {
    fn port(&mut self, arm: u8, buffer: Frame) {
        self.0.push(SentFrame::Port(arm, buffer.to_vec()));
    }

    fn kernel(&mut self, arm: u8, buffer: Frame) -> bool {
        self.0.push(SentFrame::Kernel(arm, buffer.to_vec()));
        true
    }
}

impl<'r> MemoryPlane<'r> {
    /// Joins `region` as lcore `config.index`. The region's flow table must have been recovered.
    pub fn join(region: &'r Region, config: LcoreConfig) -> Option<MemoryPlane<'r>> {
        Some(MemoryPlane { lcore: Lcore::join(region, config)?, burst: Burst::default() })
    }

    /// Processes one frame that arrives through `arm`, and returns the frames that leave.
    pub fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<SentFrame> {
        self.send_frames(Arrival::Plain, [(arm, Frame::new(frame))])
    }

    /// Processes a pending command and then the frames, as one burst; frames beyond
    /// [`crate::burst::BURST`] are ignored. Returns the frames that leave.
    pub fn send_frames(
        &mut self,
        arrival: Arrival,
        frames: impl IntoIterator<Item = (u8, Frame)>,
    ) -> Vec<SentFrame> {
        self.lcore.poll_control();
        for (arm, frame) in frames.into_iter().take(crate::burst::BURST) {
            self.burst.push(frame, arm, arrival);
        }
        let mut sent = Collector(Vec::new());
        self.lcore.forward(&mut self.burst, &mut sent);
        sent.0
    }
}
