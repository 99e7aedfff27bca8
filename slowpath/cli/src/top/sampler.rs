//! A thread that requests samples, and the data that the shown page needs, from slowpath.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::sample::{Extra, Query, Sample, Source};

/// State shared by the view and the thread: the data that the view needs, and the responses that it
/// has not taken yet. A newer response replaces an older one, so that responses do not accumulate
/// while the terminal is slow.
#[derive(Debug, Default)]
struct Exchange {
    /// Whether samples are needed.
    samples: bool,
    query: Query,
    /// Whether the thread must end.
    end: bool,
    sample: Option<Result<Sample, String>>,
    extra: Option<(Query, Result<Extra, String>)>,
    /// Time between two samples.
    interval: Duration,
}

/// The sampling thread.
#[derive(Clone)]
pub struct Sampler(Arc<(Mutex<Exchange>, Condvar)>);

/// Responses that have arrived.
pub struct Responses {
    /// A sample, or the reason why there is none.
    pub sample: Option<Result<Sample, String>>,
    /// The response to a query.
    pub extra: Option<(Query, Result<Extra, String>)>,
    /// Time between two samples.
    pub interval: Duration,
}

impl Sampler {
    /// Starts the thread. It calls `notify` when a response can be taken.
    pub fn start(
        source: Source,
        interval: Duration,
        mut notify: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Sampler> {
        let exchange = Exchange { samples: true, interval, ..Exchange::default() };
        let sampler = Sampler(Arc::new((Mutex::new(exchange), Condvar::new())));
        let own = sampler.clone();
        let thread = std::thread::Builder::new().name("sampler".into());
        thread.spawn(move || own.serve(&source, &mut notify))?;
        Ok(sampler)
    }

    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether samples are needed, and the query. A new query is sent at once.
    pub fn request(&self, (samples, query): (bool, Query)) {
        let mut exchange = self.lock();
        if (exchange.samples, &exchange.query) != (samples, &query) {
            (exchange.samples, exchange.query) = (samples, query);
            self.0.1.notify_one();
        }
    }

    /// Takes the responses that have arrived.
    pub fn take(&self) -> Responses {
        let mut exchange = self.lock();
        let (sample, extra) = (exchange.sample.take(), exchange.extra.take());
        Responses { sample, extra, interval: exchange.interval }
    }

    /// Ends the thread after its current request.
    pub fn end(&self) {
        self.lock().end = true;
        self.0.1.notify_one();
    }

    fn serve(&self, source: &Source, notify: &mut impl FnMut()) {
        // The caller has the first sample.
        let mut next_sample = Instant::now() + self.lock().interval;
        // The last query, and when it is repeated.
        let mut last_query: Option<(Query, Instant)> = None;
        loop {
            let mut exchange = self.lock();
            let (wants_sample, query) = loop {
                if exchange.end {
                    return;
                }
                let now = Instant::now();
                let wants_sample = exchange.samples && next_sample <= now;
                let next_query = match &last_query {
                    _ if exchange.query == Query::None => None,
                    Some((query, next)) if *query == exchange.query => Some(*next),
                    _ => Some(now),
                };
                let wants_query = next_query.is_some_and(|next| next <= now);
                if wants_sample || wants_query {
                    break (wants_sample, wants_query.then(|| exchange.query.clone()));
                }
                let sample = exchange.samples.then_some(next_sample);
                let next = sample.into_iter().chain(next_query).min();
                let wait = next.map_or(Duration::from_secs(3600), |next| next - now);
                let waited = self.0.1.wait_timeout(exchange, wait);
                exchange = waited.unwrap_or_else(PoisonError::into_inner).0;
            };
            drop(exchange);
            if let Some(query) = query {
                let began = Instant::now();
                let extra = query.fetch(&source.socket);
                let pause = source.interval(began.elapsed()).max(query.min_interval());
                // Requests with slow responses take at most 5 % of the time: they may need a scan
                // of all flows.
                let pause = pause.max(began.elapsed() * 20);
                last_query = Some((query.clone(), began + pause));
                self.lock().extra = Some((query, extra));
                notify();
            }
            if wants_sample {
                let began = Instant::now();
                let sample = Sample::fetch(&source.socket, source.caption.as_deref());
                let interval = match &sample {
                    Ok(sample) => source.interval(sample.took),
                    Err(_) => source.every,
                };
                // The interval is counted from the time for which the last sample was due, so that
                // delays do not add up, but at least half of it passes between two samples.
                next_sample = (next_sample + interval).max(began + interval / 2);
                let mut exchange = self.lock();
                (exchange.sample, exchange.interval) = (Some(sample), interval);
                drop(exchange);
                notify();
            }
        }
    }
}
