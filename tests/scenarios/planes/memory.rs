//! The plane `memory`: the fastpath's pipeline with frames in ordinary memory.

use super::loaded::Loaded;
use fastpath::burst::{Arrival, Burst};
use fastpath::dispatch::Exits;
use fastpath::port::memory::{Frame, HEADROOM};
use tables::counters::{ArmCounter, LcorePage};
use tables::region::Region;
use tests::cases::{Change, Counts, Exit, Plane, Setup};

/// The pipeline with one lcore.
pub struct Memory {
    loaded: Option<Loaded>,
    kernel_capacity: usize,
    /// The region that the next case is loaded into; by default a new one in anonymous memory.
    pub region: Option<&'static Region>,
}

/// The outgoing frames.
struct Captured {
    frames: Vec<(Exit, Vec<u8>)>,
    kernel_capacity: usize,
    page: LcorePage<'static>,
}

impl Exits<Frame> for Captured {
    fn port(&mut self, arm: u8, frame: Frame) {
        self.page.arm(arm, ArmCounter::TxPackets, 1);
        self.page.arm(arm, ArmCounter::TxBytes, frame.to_vec().len() as u64);
        self.frames.push((Exit::Port(arm), frame.to_vec()));
    }

    fn kernel(&mut self, arm: u8, frame: Frame) -> bool {
        let accepted = self.kernel_capacity > 0;
        if accepted {
            self.kernel_capacity -= 1;
            self.frames.push((Exit::Kernel(arm), frame.to_vec()));
        }
        accepted
    }
}

impl Memory {
    /// Creates a plane without tables.
    pub fn new() -> Memory {
        Memory { loaded: None, kernel_capacity: 0, region: None }
    }

    /// Returns the current case's tables.
    pub fn loaded(&mut self) -> &mut Loaded {
        self.loaded.as_mut().expect("a loaded case")
    }

    /// Forwards one frame through the pipeline.
    fn run(&mut self, frame: Frame, arm: u8, arrival: Arrival) -> Vec<(Exit, Vec<u8>)> {
        let mut burst = Burst::default();
        burst.push(frame, arm, arrival);
        self.forward(&mut burst)
    }

    /// Forwards a burst through the pipeline; returns the outgoing frames, in the order of the
    /// burst. The verdict of each packet remains in `burst.packets`.
    pub fn forward(&mut self, burst: &mut Burst<Frame>) -> Vec<(Exit, Vec<u8>)> {
        let kernel_capacity = self.kernel_capacity;
        let loaded = self.loaded();
        let page = loaded.region.counters().lcore(0).expect("the lcore's counter page");
        let mut output = Captured { frames: Vec::new(), kernel_capacity, page };
        loaded.lcore.forward(burst, &mut output);
        self.kernel_capacity = output.kernel_capacity;
        output.frames
    }
}

impl Plane for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn load(&mut self, setup: &Setup) {
        self.loaded = Some(match self.region {
            Some(region) => Loaded::over(setup, region),
            None => Loaded::new(setup),
        });
        self.kernel_capacity = setup.kernel_capacity;
    }

    fn change(&mut self, change: &Change) {
        self.loaded().apply(change);
    }

    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        self.run(Frame::new(frame), arm, Arrival::Plain)
    }

    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)> {
        self.run(Frame::split(frame, first, HEADROOM), arm, Arrival::Plain)
    }

    fn kernel_sends(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        self.run(Frame::new(frame), arm, Arrival::Kernel)
    }

    fn advance_s(&mut self, seconds: u32) {
        self.loaded().advance_s(seconds);
    }

    fn counts(&self) -> Counts {
        self.loaded.as_ref().map(Loaded::counts).unwrap_or_default()
    }
}
