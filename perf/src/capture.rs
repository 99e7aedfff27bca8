//! Captures for measurements: a file, its reader, and filters that match all packets or none.

use fastpath::capture::Taps;
use packet::addr::Addr;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use tables::capture::{AddrRange, CaptureFilter};
use tables::capture_file::{CaptureFile, CaptureReader, CaptureWatch};
use tables::region::{RegionError, RegionLocation, monotonic_ns};

/// Whether packets are captured, and which.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, clap::ValueEnum)]
pub enum Capture {
    /// No capture is on.
    #[default]
    Off,
    /// A capture is on that no packet matches.
    Other,
    /// A capture of all packets is on.
    All,
}

impl Capture {
    /// Returns the filter; `None` without a capture.
    pub fn filter(self) -> Option<CaptureFilter> {
        let client = match self {
            Capture::Off => return None,
            // No packet of a benchmark has this address.
            Capture::Other => AddrRange::new(Addr::v4(u32::MAX), 128),
            Capture::All => AddrRange::default(),
        };
        Some(CaptureFilter { client, ..CaptureFilter::default() })
    }
}

/// A capture whose records a thread reads and discards until the process ends.
pub struct RunningCapture(Option<Arc<CaptureFile>>);

impl RunningCapture {
    /// Begins a capture with a ring for each of `lcores` lcores.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn begin(capture: Capture, lcores: u32) -> Result<RunningCapture, RegionError> {
        let Some(filter) = capture.filter() else { return Ok(RunningCapture(None)) };
        let name = format!("/weir-perf-{}", std::process::id());
        let location = RegionLocation::from(Path::new(&name));
        let mut reader = CaptureReader::begin_at(&location, 0, &filter, lcores as usize)?;
        let mut failed = None;
        let mut watch = CaptureWatch::at(&location);
        watch.poll(monotonic_ns() / 1_000_000, |error| failed = Some(error.to_string()));
        let file = watch.files()[0].clone();
        // The mapping lasts; the file would outlive the process.
        let _ = std::fs::remove_file(tables::capture_file::path(&location, 0));
        std::thread::spawn(move || {
            loop {
                reader.renew();
                reader.read(usize::MAX, |_, _| {});
                sleep(Duration::from_millis(1));
            }
        });
        if let Some(text) = failed {
            return Err(RegionError::Open {
                path: location.path().to_path_buf(),
                source: std::io::Error::other(text),
            });
        }
        Ok(RunningCapture(file))
    }

    /// Returns the captures of an lcore.
    pub fn taps(&self, lcore: u32) -> Taps {
        Taps::new(self.0.iter(), lcore)
    }
}
