//! Scrapes of the metrics: one computation at a time, whose text is shared by the requests that
//! waited for it.
//!
//! A request takes the text of a computation that began after the request arrived, or computes it.
//! However many clients scrape at once, at most two computations follow an arrival, and slow
//! clients hold nothing but the text.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use axum::body::Bytes;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tokio::sync::Mutex;

/// The text of one computation.
struct Scraped {
    begun: Instant,
    text: Bytes,
}

/// Computes the text of the metrics for scrapes.
pub struct Scraper {
    /// Held during a computation. The text is kept only while requests wait for it.
    last: Arc<Mutex<Option<Scraped>>>,
    waiting: Arc<AtomicUsize>,
    coalesced: AtomicU64,
    durations: Histogram,
}

impl Default for Scraper {
    fn default() -> Scraper {
        Scraper {
            last: Arc::default(),
            waiting: Arc::default(),
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

/// Counts a waiting request until it is dropped, also if the client closes the connection.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Scraper {
    /// Returns the text as of now or later: that of another request's computation, or of `compute`,
    /// which runs on a thread of its own. Returns `None` if the computation fails.
    pub async fn scrape(
        &self,
        compute: impl FnOnce() -> Option<Bytes> + Send + 'static,
    ) -> Option<Bytes> {
        let arrived = Instant::now();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(Arc::clone(&self.waiting));
        let mut last = Arc::clone(&self.last).lock_owned().await;
        drop(waiting);
        let is_wanted = {
            let waiting = Arc::clone(&self.waiting);
            move || waiting.load(Ordering::Relaxed) > 0
        };
        if let Some(scraped) = last.as_ref().filter(|scraped| scraped.begun >= arrived) {
            self.coalesced.fetch_add(1, Ordering::Relaxed);
            let text = scraped.text.clone();
            if !is_wanted() {
                *last = None;
            }
            return Some(text);
        }
        let durations = self.durations.clone();
        // The computation owns the lock, so that a client that closes its connection meanwhile does
        // not start another one beside it.
        let computed = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let text = compute()?;
            durations.observe(begun.elapsed().as_secs_f64());
            *last = is_wanted().then(|| Scraped { begun, text: text.clone() });
            Some(text)
        });
        computed.await.ok().flatten()
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
    use std::sync::mpsc::channel;

    use super::*;
    use crate::measured::observations;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn requests_during_a_computation_share_the_next_one() {
        let scraper = Arc::new(Scraper::default());
        let (begun, has_begun) = channel();
        let (release, released) = channel::<()>();
        let first = {
            let scraper = Arc::clone(&scraper);
            tokio::spawn(async move {
                let compute = move || {
                    begun.send(()).ok()?;
                    released.recv().ok()?;
                    Some("first".into())
                };
                scraper.scrape(compute).await
            })
        };
        tokio::task::spawn_blocking(move || has_begun.recv()).await.unwrap().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let others: Vec<_> = (0..50)
            .map(|_| {
                let (scraper, count) = (Arc::clone(&scraper), Arc::clone(&count));
                tokio::spawn(async move {
                    let compute = move || {
                        count.fetch_add(1, Ordering::Relaxed);
                        Some("second".into())
                    };
                    scraper.scrape(compute).await
                })
            })
            .collect();
        while scraper.waiting.load(Ordering::Relaxed) < 50 {
            tokio::task::yield_now().await;
        }
        // A client that goes away does not end the computation, and starts no other.
        first.abort();
        release.send(()).unwrap();
        for other in others {
            assert_eq!(other.await.unwrap().as_deref(), Some(&b"second"[..]));
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!((scraper.coalesced(), observations(scraper.durations())), (49, 2));
        assert!(scraper.last.lock().await.is_none(), "no text is kept");
        let failed = scraper.scrape(|| None).await;
        assert_eq!(failed, None);
    }
}
