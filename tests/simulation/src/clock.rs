//! Clocks driven by an emulator.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clouds::retry::Pause;

/// A cloud's emulator, whose clock tests advance.
pub trait AdvanceClock: Clone + Send + Sync + 'static {
    /// Returns the time since its start.
    fn now(&self) -> Duration;
    /// Advances the clock.
    fn advance(&self, by: Duration);
}

impl AdvanceClock for cloud_emulators::Emulator {
    fn now(&self) -> Duration {
        self.with(|cloud| cloud.now)
    }

    fn advance(&self, by: Duration) {
        cloud_emulators::Emulator::advance(self, by);
    }
}

impl AdvanceClock for cloud_emulators::azure::Emulator {
    fn now(&self) -> Duration {
        self.with(|cloud| cloud.now)
    }

    fn advance(&self, by: Duration) {
        cloud_emulators::azure::Emulator::advance(self, by);
    }
}

/// A clock for retries: pauses end at once and advance the emulator's clock.
pub struct SkippingClock<E>(pub E);

impl<E: AdvanceClock> Pause for SkippingClock<E> {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.advance(pause);
        Box::pin(std::future::ready(()))
    }
}

/// The emulator's clock for a lifecycle's runner. It advances while the runner idles. While a call
/// is in progress it stops, unless [`EmulatedClock::run_during_calls`] is set.
#[derive(Clone)]
pub struct EmulatedClock<E> {
    emulator: E,
    runs_during_calls: Arc<AtomicBool>,
    blocks_retries: Arc<AtomicBool>,
}

impl<E: AdvanceClock> EmulatedClock<E> {
    /// Creates a clock that stops while a call is in progress.
    pub fn new(emulator: E) -> EmulatedClock<E> {
        let (runs_during_calls, blocks_retries) = Default::default();
        EmulatedClock { emulator, runs_during_calls, blocks_retries }
    }

    /// Returns a clock of the same emulator for another process, with default settings.
    pub fn for_another_process(&self) -> EmulatedClock<E> {
        let (runs_during_calls, blocks_retries) = Default::default();
        EmulatedClock { runs_during_calls, blocks_retries, ..self.clone() }
    }

    /// Sets whether time passes while a call is in progress.
    pub fn run_during_calls(&self, runs: bool) {
        self.runs_during_calls.store(runs, Ordering::Relaxed);
    }

    /// Sets whether pauses between the attempts of a call never end.
    pub fn block_retries(&self, blocks: bool) {
        self.blocks_retries.store(blocks, Ordering::Relaxed);
    }
}

impl<E: AdvanceClock> Pause for EmulatedClock<E> {
    fn now(&self) -> Duration {
        self.emulator.now()
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        if self.blocks_retries.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        let emulator = self.emulator.clone();
        Box::pin(async move {
            emulator.advance(pause);
            tokio::task::yield_now().await;
        })
    }
    fn idle(&self, pause: Duration, calls: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let clock = self.clone();
        let then = self.emulator.now() + pause;
        Box::pin(async move {
            while calls > 0 && !clock.runs_during_calls.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // A test that waits for a report gets it before more time passes.
            tokio::time::sleep(Duration::from_millis(1)).await;
            clock.emulator.advance(then.saturating_sub(clock.emulator.now()));
        })
    }
}
