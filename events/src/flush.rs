//! Waits until a writer thread has processed its queue.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Maximum time that the end of the process waits for one writer thread.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of attempts to put the request into a full queue.
const PAUSE: Duration = Duration::from_millis(10);

/// Queues a request whose sender the thread drops once all earlier requests are done. Waits for
/// that, at most a second in total.
pub(crate) fn flush<Job>(jobs: &SyncSender<Job>, request: impl FnOnce(SyncSender<()>) -> Job) {
    let until = Instant::now() + TIMEOUT;
    let (done, flushed) = sync_channel(1);
    let mut job = request(done);
    while let Err(TrySendError::Full(same)) = jobs.try_send(job) {
        if Instant::now() >= until {
            return;
        }
        std::thread::sleep(PAUSE);
        job = same;
    }
    let _ = flushed.recv_timeout(until.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_flushed_as_well() {
        let (jobs, received) = sync_channel::<Option<SyncSender<()>>>(2);
        jobs.send(None).unwrap();
        jobs.send(None).unwrap();
        let thread = std::thread::spawn(move || {
            // The queue is full when the request comes.
            std::thread::sleep(PAUSE * 3);
            received.iter().position(|job| job.is_some())
        });
        flush(&jobs, Some);
        drop(jobs);
        assert_eq!(thread.join().unwrap(), Some(2), "the request came after the others");
    }
}
