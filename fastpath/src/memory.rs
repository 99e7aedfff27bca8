//! The journey in memory: one lcore without a NIC, for cases, fuzzing and benchmarks.

use crate::burst::{Arrival, Burst};
use crate::dispatch::Exits;
use crate::lcore::{Lcore, Place};
use crate::port::memory::Frame;
use tables::region::Region;

/// A frame that left, and by which way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// Out of the port of this arm.
    Port(u8, Vec<u8>),
    /// To the kernel, by the exception port of this arm.
    Kernel(u8, Vec<u8>),
}

/// One lcore over a region, without a NIC.
pub struct Plane<'r> {
    /// The lcore, for counters and clock.
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
    /// Joins `region` as its lcore `place.index`. The region's flow table must have been recovered.
    pub fn join(region: &'r Region, place: Place) -> Option<Plane<'r>> {
        Some(Plane { lcore: Lcore::join(region, place)?, burst: Burst::default() })
    }

    /// Takes one frame through, as if it came in by `arm`.
    pub fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<Left> {
        self.send_frames(Arrival::Plain, [(arm, Frame::new(frame))])
    }

    /// Takes frames through as one burst, up to [`crate::burst::BURST`] of them.
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
