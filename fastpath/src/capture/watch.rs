//! The control thread's search for captures.

use super::Taps;
use crate::exchange::Exchange;
use tables::capture_file::CaptureWatch;
use tables::region::{Region, RegionError};

/// The control thread's search for captures.
pub struct Watch {
    watch: Option<CaptureWatch>,
    lcores: u32,
}

impl Watch {
    /// Creates the search for captures of a region with this many lcores that poll.
    pub fn new(region: &Region, lcores: u32) -> Watch {
        Watch { watch: CaptureWatch::new(region), lcores }
    }

    /// Looks for captures that began or ended, and hands them to the lcores.
    pub fn step(&mut self, region: &Region, exchange: &Exchange) {
        let Some(watch) = &mut self.watch else { return };
        exchange.drop_old_taps();
        if watch.poll(region.now_ms(), log_error) {
            let files = || watch.files().iter().flatten();
            files().for_each(|file| file.set_writers(self.lcores as usize));
            exchange.offer_taps((0..self.lcores).map(|lcore| Taps::new(files(), lcore)));
        }
    }
}

fn log_error(error: &RegionError) {
    tracing::warn!(event = "capture_start_failed", %error, "capture not started");
}
