//! The pipeline in memory: one lcore without a NIC, for tests, fuzzing and benchmarks.

use crate::burst::{Arrival, Burst};
use crate::dispatch::Exits;
use crate::lcore::{Lcore, Place};
use crate::port::memory::Frame;
use tables::region::Region;

/// A frame that left the pipeline, with its exit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// Sent through the port of this arm.
    Port(u8, Vec<u8>),
    /// Passed to the kernel through the exception port of this arm.
    Kernel(u8, Vec<u8>),
}

/// One lcore on a region, without a NIC.
pub struct Plane<'r> {
    /// The lcore, for access to counters and clock.
    pub lcore: Lcore<'r>,
    burst: Burst<Frame>,
}

struct Kept(Vec<Left>);

impl Exits<Frame> for Kept {
    fn port(&mut self, arm: u8, buffer: Frame) {
        self.0.push(Left::Port(arm, buffer.to_vec()));
    }

    fn kernel(&mut self, arm: u8, buffer: Frame) -> bool {
        self.0.push(Left::Kernel(arm, buffer.to_vec()));
        true
    }
}

impl<'r> Plane<'r> {
    /// Joins `region` as lcore `place.index`. The region's flow table must have been recovered.
    pub fn join(region: &'r Region, place: Place) -> Option<Plane<'r>> {
        Some(Plane { lcore: Lcore::join(region, place)?, burst: Burst::default() })
    }

    /// Processes one frame that arrives through `arm`, and returns the frames that leave.
    pub fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<Left> {
        self.send_frames(Arrival::Plain, [(arm, Frame::new(frame))])
    }

    /// Processes frames as one burst, up to [`crate::burst::BURST`] of them.
    pub fn send_frames(
        &mut self,
        arrival: Arrival,
        frames: impl IntoIterator<Item = (u8, Frame)>,
    ) -> Vec<Left> {
        self.lcore.poll_control();
        for (arm, frame) in frames.into_iter().take(crate::burst::BURST) {
            self.burst.push(frame, arm, arrival);
        }
        let mut kept = Kept(Vec::new());
        self.lcore.forward(&mut self.burst, &mut kept);
        kept.0
    }
}
