//! Events between two steps of the code under test: a kill, other work, a pause.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;

type Other<'a> = Box<dyn FnOnce() + 'a>;

thread_local! {
    /// Number of steps before the event; `u32::MAX` for no event.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    /// Work to run at the event; `None` for a kill.
    static OTHER: RefCell<Option<Other<'static>>> = const { RefCell::new(None) };
    /// Source of random pauses, if any.
    static PAUSES: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

/// Panic payload of a kill.
struct Killed;

/// Passes a step of the code under test.
pub(crate) fn pass() {
    pause();
    let left = LEFT.get();
    if left == u32::MAX {
        return;
    }
    LEFT.set(left.wrapping_sub(1));
    if left == 0 {
        match OTHER.take() {
            Some(other) => other(),
            // Unlike `panic!`, `resume_unwind` prints no message; the code under test has no
            // destructors with side effects.
            None => resume_unwind(Box::new(Killed)),
        }
    }
}

/// Makes this thread yield at about every fourth step from now on.
pub(crate) fn with_pauses(seed: u32) {
    PAUSES.replace(Some(Rng::with_seed(seed.into())));
}

fn pause() {
    if PAUSES.with_borrow_mut(|rng| rng.as_mut().is_some_and(|rng| rng.u32(..4) == 0)) {
        std::thread::yield_now();
    }
}

/// Runs `work` and kills it at step number `steps`, counted from 0. Returns false if `work` ended
/// before that step.
pub(crate) fn after(steps: u32, work: impl FnOnce()) -> bool {
    LEFT.set(steps);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    LEFT.set(u32::MAX);
    match outcome {
        Ok(()) => false,
        Err(reason) if reason.is::<Killed>() => true,
        Err(reason) => resume_unwind(reason),
    }
}

/// Runs `work`, and `other` at step number `steps` of it, counted from 0. Returns false if `work`
/// ended before that step.
pub(crate) fn meanwhile(steps: u32, work: impl FnOnce(), other: impl FnOnce()) -> bool {
    let boxed: Other<'_> = Box::new(other);
    // SAFETY: the closure is removed below, before its borrows end; after a panic of the test, the
    // thread, which alone could run the closure, ends.
    #[expect(unsafe_code, reason = "a thread-local cannot borrow")]
    let boxed = unsafe { std::mem::transmute::<Other<'_>, Other<'static>>(boxed) };
    OTHER.set(Some(boxed));
    LEFT.set(steps);
    work();
    LEFT.set(u32::MAX);
    OTHER.take().is_none()
}
