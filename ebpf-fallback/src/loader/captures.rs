//! Captures and traces: passes filters to the programs, and their records to slowpath.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tables::capture::{MAX_CAPTURES, RecordHead, TraceReport};
use tables::capture_file::{CaptureFile, CaptureWatch, CaptureWriter, FLUSH_MS, LEASE_MS};
use tables::region::{Region, RegionError, monotonic_ns};

use super::background::INTERVAL;
use crate::program::{LoadError, Program};

/// Interval of looking for captures and of renewing them.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

// A reader waits that long for its last records, which an iteration passes on.
const _: () = assert!(FLUSH_MS as u128 >= 2 * INTERVAL.as_millis());

/// Writer of the records of one capture. The loader takes the records of all CPUs, so it uses one
/// ring.
struct Writer {
    writer: CaptureWriter,
    /// Time at which the programs had the capture's filter, in nanoseconds of the monotonic clock.
    began_ns: u64,
}

impl Writer {
    /// Begins to write to a file whose filter the programs have.
    fn begin(file: &Arc<CaptureFile>, began_ns: u64) -> Option<Writer> {
        file.set_writers(1);
        let mut writer = CaptureWriter::new(file, 0)?;
        writer.begin();
        Some(Writer { writer, began_ns })
    }

    /// Returns whether the writer writes to this file.
    fn writes_to(&self, file: &CaptureFile) -> bool {
        std::ptr::eq(self.writer.file(), file)
    }

    /// Returns whether the capture has ended at this time.
    fn is_over(&self, now_ms: u64) -> bool {
        !self.writer.file().is_active(now_ms)
    }

    /// Writes a record, unless it is one of the previous capture of this number, which was still in
    /// the ring buffer.
    fn write(&mut self, head: &RecordHead, bytes: &[u8]) {
        if head.time_ns >= self.began_ns {
            self.writer.write(head, bytes);
        }
    }

    /// Counts the records that were lost, by arm, between two states of the programs' counts.
    fn count_lost(&self, before: [u64; 2], now: [u64; 2]) {
        for arm in 0..2 {
            let more = now[arm].wrapping_sub(before[arm]);
            if more != 0 {
                self.writer.count_lost(arm as u8, more);
            }
        }
    }
}

/// The captures that are on.
pub struct Captures {
    watch: Option<CaptureWatch>,
    checked_at: Option<Instant>,
    /// Writers by number.
    writers: [Option<Writer>; MAX_CAPTURES],
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
        mut traced: impl FnMut(&TraceReport),
    ) -> Result<(), LoadError> {
        self.pass_on(program, &mut traced)?;
        // The programs end a capture at once: losses after its end would be counted as its own.
        let now_ms = monotonic_ns() / 1_000_000;
        let is_over = self.writers.iter().flatten().any(|writer| writer.is_over(now_ms));
        if !is_over && self.checked_at.is_some_and(|at| now < at + CHECK_INTERVAL) {
            return Ok(());
        }
        self.checked_at = Some(now);
        self.check(program, traced)
    }

    fn check(
        &mut self,
        program: &mut Program,
        traced: impl FnMut(&TraceReport),
    ) -> Result<(), LoadError> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let now_ns = monotonic_ns();
        let is_changed = watch.poll(now_ns / 1_000_000, log_error);
        let files = watch.files().clone();
        if !is_changed && files.iter().all(Option::is_none) {
            return Ok(());
        }
        let filters = files.each_ref().map(|file| file.as_ref().map(|file| file.filter()));
        program.set_captures(filters, now_ns + LEASE_MS * 1_000_000)?;
        if is_changed {
            // Records and losses until now belong to the previous captures.
            self.pass_on(program, traced)?;
            self.pass_on_lost(program)?;
            let began_ns = monotonic_ns();
            for (writer, file) in self.writers.iter_mut().zip(&files) {
                let Some(file) = file else {
                    *writer = None;
                    continue;
                };
                if !writer.as_ref().is_some_and(|writer| writer.writes_to(file)) {
                    *writer = Writer::begin(file, began_ns);
                }
            }
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
        program.take_captured(captured, traced);
        if self.writers.iter().all(Option::is_none) {
            return Ok(());
        }
        self.pass_on_lost(program)
    }

    /// Passes on the numbers of records that the programs have lost since the last call.
    fn pass_on_lost(&mut self, program: &mut Program) -> Result<(), LoadError> {
        let lost = program.lost_captured()?;
        for (number, writer) in self.writers.iter().enumerate() {
            if let Some(writer) = writer {
                writer.count_lost(self.lost[number], lost[number]);
            }
        }
        self.lost = lost;
        Ok(())
    }
}

fn log_error(error: &RegionError) {
    tracing::warn!(event = "capture_start_failed", %error, "capture not started");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tables::capture::{BEFORE, CaptureFilter, EXIT_NONE, NO_REASON, REQUEST};
    use tables::capture_file::CaptureReader;
    use tables::record::NONE;
    use tables::region::RegionLocation;

    fn head(packet: u32, time_ns: u64) -> RecordHead {
        RecordHead {
            len: 0,
            frame_len: 64,
            time_ns,
            service: NONE,
            backend: NONE,
            packet,
            lcore: 0,
            capture: 0,
            verdict: 0,
            reason: NO_REASON,
            arm: 0,
            exit_arm: 0,
            exit: EXIT_NONE,
            stage: BEFORE,
            direction: REQUEST,
        }
    }

    #[test]
    fn a_capture_has_no_records_of_the_previous_one_and_its_own_losses() {
        let name = format!("/weir-loader-captures-{}", std::process::id());
        let location = RegionLocation::from(Path::new(&name));
        let filter = CaptureFilter::default();
        let mut reader = CaptureReader::begin_at(&location, 0, &filter, 1).unwrap();
        reader.lease_until(u64::MAX);
        let mut watch = CaptureWatch::at(&location);
        assert!(watch.poll(monotonic_ns() / 1_000_000, |error| panic!("{error}")));
        let file = watch.files()[0].as_ref().unwrap();
        let mut writer = Writer::begin(file, 1000).unwrap();
        assert!(reader.is_attached() && writer.writes_to(file));
        assert!(!writer.is_over(monotonic_ns() / 1_000_000));
        for (packet, time_ns) in [(1, 998), (2, 999), (3, 1000), (4, 1001)] {
            writer.write(&head(packet, time_ns), &[0; 64]);
        }
        let mut packets = Vec::new();
        reader.read(10, |head, _| packets.push(head.packet));
        assert_eq!(packets, [3, 4]);
        writer.count_lost([5, 7], [5, 9]);
        writer.count_lost([5, 9], [6, 9]);
        assert_eq!(reader.lost(), [1, 2]);
        drop(reader);
        assert!(writer.is_over(monotonic_ns() / 1_000_000));
        let _next = CaptureReader::begin_at(&location, 0, &filter, 1).unwrap();
        watch.poll(monotonic_ns() / 1_000_000, |error| panic!("{error}"));
        assert!(!writer.writes_to(watch.files()[0].as_ref().unwrap()), "another capture's file");
    }
}
