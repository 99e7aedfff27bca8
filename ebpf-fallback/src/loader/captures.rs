//! Captures and traces: passes filters to the programs, and their records to slowpath.

use std::time::{Duration, Instant};

use tables::capture::{MAX_CAPTURES, RecordHead, TraceReport};
use tables::capture_file::{CaptureWatch, CaptureWriter, LEASE_MS};
use tables::region::{Region, RegionError, monotonic_ns};

use crate::program::{LoadError, Program};

/// Interval of looking for captures and of renewing them.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The captures that are on.
pub struct Captures {
    watch: Option<CaptureWatch>,
    checked_at: Option<Instant>,
    /// Writers by number. The loader takes the records of all CPUs, so it uses one ring.
    writers: [Option<CaptureWriter>; MAX_CAPTURES],
    /// Lost records, as counted by the programs, that were passed on.
    lost: [[u64; 2]; MAX_CAPTURES],
}

impl Captures {
    /// Creates the search for captures of a region.
    pub fn new(region: &Region) -> Captures {
        let (writers, lost) = Default::default();
        Captures { watch: CaptureWatch::new(region), checked_at: None, writers, lost }
    }

    /// Passes on what the programs captured and traced, and every 100 ms looks for captures that
    /// began or ended, and renews those that are on.
    ///
    /// # Errors
    /// Returns the error of a map operation.
    pub fn step(
        &mut self,
        program: &mut Program,
        now: Instant,
        traced: impl FnMut(&TraceReport),
    ) -> Result<(), LoadError> {
        self.pass_on(program, traced)?;
        if self.checked_at.is_some_and(|at| now < at + CHECK_INTERVAL) {
            return Ok(());
        }
        self.checked_at = Some(now);
        self.check(program)
    }

    fn check(&mut self, program: &mut Program) -> Result<(), LoadError> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let now_ns = monotonic_ns();
        let is_changed = watch.poll(now_ns / 1_000_000, log_error);
        let files = watch.files();
        if !is_changed && files.iter().all(Option::is_none) {
            return Ok(());
        }
        let filters = std::array::from_fn(|number| Some(files[number].as_ref()?.filter()));
        program.set_captures(filters, now_ns + LEASE_MS * 1_000_000)?;
        if is_changed {
            self.lost = program.lost_captured()?;
            self.writers = std::array::from_fn(|number| {
                let file = files[number].as_ref()?;
                file.set_writers(1);
                CaptureWriter::new(file, 0)
            });
            self.writers.iter_mut().flatten().for_each(CaptureWriter::begin);
        }
        Ok(())
    }

    fn pass_on(
        &mut self,
        program: &mut Program,
        traced: impl FnMut(&TraceReport),
    ) -> Result<(), LoadError> {
        let writers = &mut self.writers;
        let captured = |head: &RecordHead, bytes: &[u8]| {
            if let Some(Some(writer)) = writers.get_mut(usize::from(head.capture)) {
                writer.write(head, bytes);
            }
        };
        let records = program.take_captured(captured, traced);
        if records == 0 {
            return Ok(());
        }
        let lost = program.lost_captured()?;
        for (number, writer) in self.writers.iter().enumerate() {
            let Some(writer) = writer else { continue };
            for arm in 0..2 {
                let more = lost[number][arm].wrapping_sub(self.lost[number][arm]);
                if more != 0 {
                    writer.count_lost(arm as u8, more);
                }
            }
        }
        self.lost = lost;
        Ok(())
    }
}

fn log_error(error: &RegionError) {
    let warning = format!("a capture cannot begin: {error}");
    tracing::warn!(event = "data_plane_warning", warning, "data plane warning");
}
