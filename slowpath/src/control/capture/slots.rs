//! Slots of captures: at most one capture per arm runs at a time.

use std::sync::Arc;

use parking_lot::Mutex;
use tables::capture::MAX_CAPTURES;

/// The captures that run: a flag for each arm.
#[derive(Clone, Default)]
pub struct CaptureSlots(Arc<Mutex<[bool; MAX_CAPTURES]>>);

impl CaptureSlots {
    /// Takes the slots of the arms, by number; fails if one is taken. Both arms share one capture,
    /// which has the first number.
    pub(super) fn take(&self, arms: [bool; MAX_CAPTURES]) -> Option<SlotGuard> {
        let mut taken = self.0.lock();
        if taken.iter().zip(arms).any(|(taken, wanted)| *taken && wanted) {
            return None;
        }
        taken.iter_mut().zip(arms).for_each(|(taken, wanted)| *taken |= wanted);
        Some(SlotGuard { slots: self.clone(), arms })
    }
}

/// The slots of a capture, which are freed on drop.
pub(super) struct SlotGuard {
    slots: CaptureSlots,
    arms: [bool; MAX_CAPTURES],
}

impl SlotGuard {
    /// Number of the capture.
    pub(super) fn number(&self) -> usize {
        self.arms.iter().position(|taken| *taken).unwrap_or(0)
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let mut taken = self.slots.0.lock();
        taken.iter_mut().zip(self.arms).for_each(|(taken, own)| *taken &= !own);
    }
}
