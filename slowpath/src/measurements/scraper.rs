//! Scrapes of the metrics: one computation at a time, whose text is shared by the requests that
//! waited for it.
//!
//! A request takes the text of a computation that began after the request arrived, or computes it.
//! However many clients scrape at once, a request waits for at most two computations, that in
//! progress and the next one, and slow clients hold nothing but the text.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::body::Bytes;
use parking_lot::Mutex;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tokio::task::{JoinError, spawn_blocking};

use super::plain::plain;

/// Reason why a scrape has no text.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// The encoder failed.
    #[error("the encoder of the metrics failed")]
    Encode(#[from] fmt::Error),
    /// The computation panicked, or the process ends.
    #[error(transparent)]
    Task(#[from] JoinError),
}

/// The text of one computation in both formats, shared by all of its requests.
#[derive(Debug)]
pub struct ScrapeText {
    begun: Instant,
    open: Bytes,
    plain: OnceLock<Bytes>,
}

impl ScrapeText {
    /// Returns the text in the OpenMetrics format.
    pub fn open(&self) -> Bytes {
        self.open.clone()
    }

    /// Returns the text in the older format. The first call converts it, on a thread of its own.
    pub async fn plain(self: Arc<Self>) -> Result<Bytes, ScrapeError> {
        let convert = move || {
            let plain = || plain(&String::from_utf8_lossy(&self.open)).into();
            self.plain.get_or_init(plain).clone()
        };
        Ok(spawn_blocking(convert).await?)
    }
}

/// Number of requests that wait for a computation, and the text of the last computation. The text
/// is kept only while requests wait.
#[derive(Default)]
struct Pending {
    waiting: usize,
    text: Option<Arc<ScrapeText>>,
}

/// Counts a waiting request until it is dropped, also if the client closes the connection.
struct Waiting(Arc<Mutex<Pending>>);

impl Waiting {
    fn new(pending: &Arc<Mutex<Pending>>) -> Waiting {
        pending.lock().waiting += 1;
        Waiting(Arc::clone(pending))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut pending = self.0.lock();
        pending.waiting -= 1;
        if pending.waiting == 0 {
            pending.text = None;
        }
    }
}

/// Computes the text of the metrics for scrapes.
pub struct Scraper {
    /// Locked during a computation.
    computing: Arc<tokio::sync::Mutex<()>>,
    pending: Arc<Mutex<Pending>>,
    coalesced: AtomicU64,
    durations: Histogram,
}

impl Default for Scraper {
    fn default() -> Scraper {
        Scraper {
            computing: Arc::default(),
            pending: Arc::default(),
            coalesced: AtomicU64::new(0),
            // 0.5 ms to 2 s.
            durations: Histogram::new(exponential_buckets(0.0005, 2.0, 13)),
        }
    }
}

impl fmt::Debug for Scraper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scraper")
    }
}

impl Scraper {
    /// Returns the text as of the call or later: that of another request's computation, or of
    /// `compute`, which runs on a thread of its own.
    pub async fn scrape(
        &self,
        compute: impl FnOnce() -> Result<String, fmt::Error> + Send + 'static,
    ) -> Result<Arc<ScrapeText>, ScrapeError> {
        let arrived = Instant::now();
        let waiting = Waiting::new(&self.pending);
        let guard = Arc::clone(&self.computing).lock_owned().await;
        let last = self.pending.lock().text.clone();
        drop(waiting);
        if let Some(text) = last.filter(|text| text.begun >= arrived) {
            self.coalesced.fetch_add(1, Ordering::Relaxed);
            return Ok(text);
        }
        let (pending, durations) = (Arc::clone(&self.pending), self.durations.clone());
        // The computation owns the guard, so that a client that closes its connection meanwhile
        // does not start another one beside it.
        let computed = spawn_blocking(move || {
            let begun = Instant::now();
            let open = compute()?.into();
            durations.observe(begun.elapsed().as_secs_f64());
            let text = Arc::new(ScrapeText { begun, open, plain: OnceLock::new() });
            let mut pending = pending.lock();
            pending.text = (pending.waiting > 0).then(|| Arc::clone(&text));
            drop(guard);
            Ok(text)
        });
        computed.await?
    }

    /// Returns the number of scrapes that were answered with the text of another one.
    pub fn coalesced(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    /// Returns the durations of computations.
    pub fn durations(&self) -> &Histogram {
        &self.durations
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Context, Waker};

    use super::*;
    use crate::measurements::observations;

    /// Starts a scrape, and returns once its computation has begun. The computation returns `text`
    /// when the sender is used.
    async fn begin(
        scraper: &Arc<Scraper>,
        text: &'static str,
    ) -> (tokio::task::JoinHandle<Result<Arc<ScrapeText>, ScrapeError>>, Sender<()>) {
        let (begun, has_begun) = channel();
        let (release, released) = channel::<()>();
        let scraper = Arc::clone(scraper);
        let scrape = tokio::spawn(async move {
            let compute = move || {
                begun.send(()).map_err(|_| fmt::Error)?;
                released.recv().map_err(|_| fmt::Error)?;
                Ok(text.to_owned())
            };
            scraper.scrape(compute).await
        });
        spawn_blocking(move || has_begun.recv()).await.unwrap().unwrap();
        (scrape, release)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn requests_during_a_computation_share_the_next_one() {
        let scraper = Arc::new(Scraper::default());
        let (first, release) = begin(&scraper, "first").await;
        let count = Arc::new(AtomicUsize::new(0));
        let others: Vec<_> = (0..50)
            .map(|_| {
                let (scraper, count) = (Arc::clone(&scraper), Arc::clone(&count));
                tokio::spawn(async move {
                    let compute = move || {
                        count.fetch_add(1, Ordering::Relaxed);
                        Ok("# TYPE second counter\n".to_owned())
                    };
                    scraper.scrape(compute).await.unwrap()
                })
            })
            .collect();
        while scraper.pending.lock().waiting < 50 {
            tokio::task::yield_now().await;
        }
        // A client that goes away does not end the computation, and starts no other.
        first.abort();
        release.send(()).unwrap();
        let mut converted = Vec::new();
        for other in others {
            let text = other.await.unwrap();
            assert_eq!(text.open(), "# TYPE second counter\n");
            converted.push(text.plain().await.unwrap());
        }
        assert_eq!(converted[0], "# TYPE second_total counter\n");
        let is_shared = |text: &Bytes| text.as_ptr() == converted[0].as_ptr();
        assert!(converted.iter().all(is_shared), "the conversion is shared as well");
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!((scraper.coalesced(), observations(scraper.durations())), (49, 2));
        assert!(scraper.pending.lock().text.is_none(), "no text is kept");
    }

    #[tokio::test]
    async fn no_text_is_kept_for_a_request_that_goes_away() {
        let scraper = Arc::new(Scraper::default());
        let (first, release) = begin(&scraper, "first").await;
        let mut second = Box::pin(scraper.scrape(|| Ok("second".to_owned())));
        let polled = second.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap().open(), "first");
        assert!(scraper.pending.lock().text.is_some(), "it is there for the second request");
        drop(second);
        assert!(scraper.pending.lock().text.is_none());
    }

    #[tokio::test]
    async fn a_failed_computation_is_an_error_and_the_next_one_succeeds() {
        let scraper = Scraper::default();
        let failed = scraper.scrape(|| Err(fmt::Error)).await;
        assert!(matches!(failed, Err(ScrapeError::Encode(_))), "{failed:?}");
        let text = scraper.scrape(|| Ok("text".to_owned())).await.unwrap();
        assert_eq!(text.open(), "text");
    }
}
