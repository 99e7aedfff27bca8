//! A kill in the midst of work: the work stops at a chosen step, and memory stays as it is.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

struct Killed;

/// A step of the work under test.
pub(crate) fn pass() {
    let left = LEFT.get();
    if left != u32::MAX {
        LEFT.set(left.wrapping_sub(1));
        if left == 0 {
            // Unlike a panic, says nothing; nothing under test has a destructor that tidies up.
            resume_unwind(Box::new(Killed));
        }
    }
}

/// Runs `work` up to its step number `steps`; true when it came so far, false when it had ended.
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
