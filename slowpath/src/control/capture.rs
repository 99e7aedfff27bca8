//! Packet captures: requests, at most one per arm, and the thread that turns records of the data
//! plane into pcapng.
//!
//! ```text
//!   lcores --rings--> thread `weir-capture` --channel--> response body --> `weir capture`
//! ```
//! The thread renews the capture's lease. When it ends, for whatever reason, the data plane copies
//! no more packets.

pub mod pcapng;
mod query;
mod records;
mod slots;

pub use query::{CaptureQuery, CaptureRequest};
pub use slots::CaptureSlots;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tables::capture_file::{CaptureReader, FLUSH_MS};
use tables::region::monotonic_ns;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::live::Live;
use records::{Naming, Records};
use slots::SlotGuard;

/// Maximum time until the data plane has begun to capture. It looks for captures every 100 ms.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which the rings are read.
const INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of records that are taken from a ring at once.
const BATCH: usize = 1024;
/// Number of bytes waiting for the client from which on the rings are not read: they fill, and
/// records are lost and counted.
const MAX_WAITING: usize = 1 << 20;
/// Maximum time to wait for a client at the end of a capture.
const LAST_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of parts of the response that wait to be sent.
const PARTS: usize = 4;

/// Error of beginning a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Another capture runs on the arm.
    #[error(
        "another capture runs on {0}; wait for its end, stop it, or capture on the other arm with \
         --arm"
    )]
    Busy(&'static str),
    /// No lcore polls.
    #[error("no data plane is running, so there is nothing to capture; see `weir status`")]
    NoDataPlane,
    /// The data plane has not begun to capture.
    #[error(
        "the data plane has not begun to capture within {} s; see its log, and run slowpath and \
         the data plane of the same version", ATTACH_TIMEOUT.as_secs()
    )]
    NotAttached,
    /// The file for the data plane cannot be created.
    #[error("creating the file for captured packets: {0}")]
    File(String),
}

/// A capture that the data plane has begun.
pub struct Capture {
    reader: CaptureReader,
    request: CaptureRequest,
    slots: SlotGuard,
    live: Arc<Live>,
}

impl Capture {
    /// Begins a capture. Blocks until the data plane has begun.
    pub fn begin(live: Arc<Live>, request: CaptureRequest) -> Result<Capture, CaptureError> {
        let slots = live.captures.take(request.arms());
        let slots = slots.ok_or(CaptureError::Busy(request.arms_text()))?;
        if live.region.live_lcores().next().is_none() {
            return Err(CaptureError::NoDataPlane);
        }
        let reader = CaptureReader::begin(live.region, slots.number(), &request.filter)
            .map_err(|error| CaptureError::File(error.to_string()))?;
        let until = Instant::now() + ATTACH_TIMEOUT;
        while !reader.is_attached() {
            if Instant::now() >= until {
                return Err(CaptureError::NotAttached);
            }
            reader.renew();
            std::thread::sleep(INTERVAL);
        }
        Ok(Capture { reader, request, slots, live })
    }

    /// Starts the thread that reads the records. Returns the parts of the pcapng file.
    pub fn stream(self) -> std::io::Result<mpsc::Receiver<Vec<u8>>> {
        let (parts, received) = mpsc::channel(PARTS);
        let builder = std::thread::Builder::new().name("weir-capture".to_owned());
        builder.spawn(move || self.run(&Client { parts }))?;
        Ok(received)
    }

    fn run(mut self, client: &Client) {
        let request = &self.request;
        tracing::info!(
            event = "capture_started",
            arms = request.arms_text(),
            filter = %request.text,
            "capture started"
        );
        let began = Instant::now();
        let until = began + request.duration;
        let naming = Naming::new(Arc::clone(&self.live));
        let mut records = Records::new(request, naming, clock_offset_ns(), now_ns());
        let mut out = records.begin();
        while Instant::now() < until && !records.is_complete() && client.is_connected() {
            self.reader.renew();
            if out.len() < MAX_WAITING {
                self.reader.read(BATCH, |head, bytes| records.add(&mut out, head, bytes));
            }
            client.send(&mut out);
            std::thread::sleep(INTERVAL);
        }
        self.reader.end();
        // Both records of the last packet belong to the capture, and those that the loader of XDP
        // programs has not taken yet.
        let until = Instant::now() + Duration::from_millis(FLUSH_MS);
        loop {
            let is_last = Instant::now() >= until;
            self.reader.read(usize::MAX, |head, bytes| records.add(&mut out, head, bytes));
            if is_last {
                break;
            }
            std::thread::sleep(INTERVAL);
        }
        let lost = self.reader.lost();
        records.end(&mut out, lost, now_ns());
        let last = Instant::now() + LAST_TIMEOUT;
        while !out.is_empty() && client.is_connected() && Instant::now() < last {
            client.send(&mut out);
            std::thread::sleep(INTERVAL);
        }
        tracing::info!(
            event = "capture_ended",
            arms = self.request.arms_text(),
            packets = records.packets(),
            lost = lost[0] + lost[1],
            seconds = began.elapsed().as_secs(),
            "capture ended"
        );
        // The file is removed before another capture may use its number.
        drop(self.reader);
        drop(self.slots);
    }
}

/// The client's end of the response.
struct Client {
    parts: mpsc::Sender<Vec<u8>>,
}

impl Client {
    fn is_connected(&self) -> bool {
        !self.parts.is_closed()
    }

    /// Passes on what is in `out`, unless the client is behind.
    fn send(&self, out: &mut Vec<u8>) {
        if out.is_empty() {
            return;
        }
        match self.parts.try_send(std::mem::take(out)) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(unsent)) => *out = unsent,
        }
    }
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}

/// Returns what to add to the monotonic clock for the time since 1970, in nanoseconds.
fn clock_offset_ns() -> u64 {
    now_ns().wrapping_sub(monotonic_ns())
}

#[cfg(test)]
mod tests;
