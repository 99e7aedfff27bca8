//! Identifiers: numbers that stand for addresses in what planes hold.
//!
//! A freed number isn't handed out again until all others were, so that what still knows it (a
//! flow, a packet under way) doesn't take the new for the old.

use foldhash::HashSet;

/// Identifiers from 1 to a highest one, handed out one after the other.
#[derive(Clone, Debug)]
pub struct Identifiers {
    last: u32,
    highest: u32,
    used: HashSet<u32>,
}

/// All are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all {0} identifiers are in use; remove services or backends")]
pub struct Exhausted(pub u32);

impl Default for Identifiers {
    fn default() -> Identifiers {
        Identifiers::up_to(u32::MAX)
    }
}

impl Identifiers {
    /// From 1 to `highest`.
    pub fn up_to(highest: u32) -> Identifiers {
        Identifiers { last: 0, highest, used: HashSet::default() }
    }

    /// The next that is free after the one that was handed out last.
    pub fn take(&mut self) -> Result<u32, Exhausted> {
        if self.used.len() >= self.highest as usize {
            return Err(Exhausted(self.highest));
        }
        loop {
            self.last = if self.last >= self.highest { 1 } else { self.last + 1 };
            if self.used.insert(self.last) {
                return Ok(self.last);
            }
        }
    }

    /// This one was handed out before a restart. The next ones come behind the highest of these.
    pub fn restore(&mut self, id: u32) {
        self.used.insert(id);
        self.last = self.last.max(id.min(self.highest));
    }

    /// What it stood for is gone.
    pub fn release(&mut self, id: u32) {
        self.used.remove(&id);
    }

    /// Releases those that nobody claims.
    pub fn retain(&mut self, claimed: impl Fn(u32) -> bool) {
        self.used.retain(|id| claimed(*id));
    }

    /// How many are in use.
    pub fn in_use(&self) -> usize {
        self.used.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_one_is_not_used_again_before_the_counter_wraps() {
        let mut ids = Identifiers::up_to(3);
        assert_eq!((ids.take(), ids.take()), (Ok(1), Ok(2)));
        ids.release(1);
        assert_eq!(ids.take(), Ok(3));
        assert_eq!(ids.take(), Ok(1), "wrapped");
        assert_eq!(ids.take(), Err(Exhausted(3)));
        ids.release(2);
        assert_eq!(ids.take(), Ok(2));
        assert_eq!(ids.in_use(), 3);
    }

    #[test]
    fn after_a_restart_it_goes_on_behind_what_was_restored() {
        let mut ids = Identifiers::up_to(10);
        ids.restore(7);
        ids.restore(3);
        assert_eq!(ids.take(), Ok(8));
        ids.retain(|id| id == 7);
        assert_eq!(ids.in_use(), 1);
        assert_eq!((ids.take(), ids.take(), ids.take()), (Ok(9), Ok(10), Ok(1)));
    }
}
