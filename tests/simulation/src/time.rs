//! Clocks driven by an emulator.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clouds::retry::Pause;

/// A cloud's emulator, whose clock tests advance.
pub trait Emulator: Clone + Send + Sync + 'static {
    /// Returns the time since its start.
    fn now(&self) -> Duration;
    /// Advances the clock.
    fn advance(&self, by: Duration);
}

impl Emulator for standins::Standin {
    fn now(&self) -> Duration {
        self.with(|world| world.now)
    }

    fn advance(&self, by: Duration) {
        standins::Standin::advance(self, by);
    }
}

impl Emulator for standins::azure::Standin {
    fn now(&self) -> Duration {
        self.with(|world| world.now)
    }

    fn advance(&self, by: Duration) {
        standins::azure::Standin::advance(self, by);
    }
}

/// A clock for retries: pauses end at once and advance the emulator's clock.
pub struct Moved<E>(pub E);

impl<E: Emulator> Pause for Moved<E> {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.advance(pause);
        Box::pin(std::future::ready(()))
    }
}

/// The emulator's clock for a runner. It stops while a call is in progress, unless configured
/// otherwise.
#[derive(Clone)]
pub struct Time<E> {
    emulator: E,
    passes: Arc<AtomicBool>,
    endless: Arc<AtomicBool>,
}

impl<E: Emulator> Time<E> {
    /// Returns a clock that stops while a call is in progress.
    pub fn new(emulator: E) -> Time<E> {
        let (passes, endless) = Default::default();
        Time { emulator, passes, endless }
    }

    /// Returns a clock of the same emulator for another process, with default settings.
    pub fn again(&self) -> Time<E> {
        Time { passes: Arc::default(), endless: Arc::default(), ..self.clone() }
    }

    /// Sets whether time passes while a call is in progress.
    pub fn passes(&self, passes: bool) {
        self.passes.store(passes, Ordering::Relaxed);
    }

    /// Sets whether pauses between attempts never end.
    pub fn patience_is_endless(&self, endless: bool) {
        self.endless.store(endless, Ordering::Relaxed);
    }
}

impl<E: Emulator> Pause for Time<E> {
    fn now(&self) -> Duration {
        self.emulator.now()
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        if self.endless.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        let emulator = self.emulator.clone();
        Box::pin(async move {
            emulator.advance(pause);
            tokio::task::yield_now().await;
        })
    }
    fn idle(&self, pause: Duration, calls: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let time = self.clone();
        let then = self.emulator.now() + pause;
        Box::pin(async move {
            while calls > 0 && !time.passes.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // A waiting test sees the change before more time passes.
            tokio::time::sleep(Duration::from_millis(1)).await;
            time.emulator.advance(then.saturating_sub(time.emulator.now()));
        })
    }
}
