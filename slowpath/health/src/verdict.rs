//! State machine of one backend's health.
//!
//! `fall` consecutive failed checks make a backend unhealthy, and `rise` consecutive successful
//! ones make it healthy. A backend that becomes unhealthy within [`CALM`] checks after a recovery
//! flaps: each time, the number of successful checks required for the next recovery doubles, up to
//! `rise * 2^damping`. Every [`CALM`] checks for which it stays healthy undo one doubling. A
//! recovery therefore takes at most `rise * 2^damping` consecutive successful checks.

use config::services::Timing;

/// Number of checks after a recovery, or after the last undone doubling, within which a change to
/// unhealthy counts as flapping.
pub const CALM: u32 = 32;

/// Health state of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HealthState {
    /// No verdict yet: the state given by the source applies.
    #[default]
    Unknown,
    /// Healthy.
    Healthy,
    /// Unhealthy: no new flows.
    Unhealthy,
}

impl HealthState {
    /// Returns the name used in tables and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            HealthState::Unknown => "unknown",
            HealthState::Healthy => "healthy",
            HealthState::Unhealthy => "unhealthy",
        }
    }

    /// Returns whether the backend is healthy, or `None` without a verdict.
    pub fn verdict(self) -> Option<bool> {
        match self {
            HealthState::Unknown => None,
            HealthState::Healthy => Some(true),
            HealthState::Unhealthy => Some(false),
        }
    }
}

/// Converts a verdict: whether the backend is healthy, or `None` without one.
impl From<Option<bool>> for HealthState {
    fn from(verdict: Option<bool>) -> HealthState {
        match verdict {
            None => HealthState::Unknown,
            Some(true) => HealthState::Healthy,
            Some(false) => HealthState::Unhealthy,
        }
    }
}

/// Health state machine of one backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealthStateMachine {
    state: HealthState,
    /// Number of consecutive successful checks, up to the last check.
    good: u32,
    /// Number of consecutive failed checks, up to the last check.
    bad: u32,
    /// Checks in state healthy since the last recovery or undone doubling, up to [`CALM`].
    calm: u32,
    /// Number of doublings of `rise` for the next recovery.
    doublings: u8,
}

impl HealthStateMachine {
    /// Creates the state machine in this state, without a history of flapping.
    pub fn new(state: HealthState) -> HealthStateMachine {
        HealthStateMachine { state, good: 0, bad: 0, calm: CALM, doublings: 0 }
    }

    /// Returns the health state.
    pub fn state(&self) -> HealthState {
        self.state
    }

    /// Resets the counts of consecutive results, because the parameters of the check have changed.
    pub fn with_counts_reset(self) -> HealthStateMachine {
        HealthStateMachine { good: 0, bad: 0, ..self }
    }

    /// Adopts a state that was read from the tables.
    pub fn adopt(&mut self, state: HealthState) {
        self.state = state;
    }

    /// Returns the number of further consecutive results that would change the state: successes if
    /// the state is unhealthy, otherwise failures.
    pub fn needs(&self, timing: &Timing) -> u32 {
        match self.state {
            HealthState::Unhealthy => self.rise(timing).saturating_sub(self.good),
            _ => timing.fall.saturating_sub(self.bad),
        }
    }

    /// Returns the number of consecutive successful checks that make the backend healthy.
    fn rise(&self, timing: &Timing) -> u32 {
        timing.rise.max(1) << self.doublings.min(timing.damping).min(6)
    }

    /// Processes a result. If the state has changed, returns whether the backend is healthy.
    pub fn record(&mut self, good: bool, timing: &Timing) -> Option<bool> {
        (self.good, self.bad) = match good {
            true => (self.good.saturating_add(1), 0),
            false => (0, self.bad.saturating_add(1)),
        };
        if self.state == HealthState::Healthy {
            self.calm_down();
        }
        let verdict = match self.state {
            HealthState::Unknown | HealthState::Unhealthy if self.good >= self.rise(timing) => true,
            HealthState::Unknown | HealthState::Healthy if self.bad >= timing.fall.max(1) => false,
            _ => return None,
        };
        match (self.state, verdict) {
            (HealthState::Unhealthy, true) => self.calm = 0,
            (HealthState::Healthy, false) if self.calm < CALM => {
                self.doublings = self.doublings.saturating_add(1).min(timing.damping);
            }
            _ => {}
        }
        self.state = Some(verdict).into();
        (self.good, self.bad) = (0, 0);
        Some(verdict)
    }

    /// Counts a check in state healthy, whatever its result; every [`CALM`] of them undo one
    /// doubling.
    fn calm_down(&mut self) {
        self.calm = (self.calm + 1).min(CALM);
        if self.calm == CALM && self.doublings > 0 {
            self.doublings -= 1;
            self.calm = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn timing(rise: u32, fall: u32, damping: u8) -> Timing {
        let second = Duration::from_secs(1);
        Timing { interval: second, timeout: second, jitter: Duration::ZERO, rise, fall, damping }
    }

    /// Returns the number of results `good` until the state changes to it.
    fn until(health: &mut HealthStateMachine, good: bool, timing: &Timing) -> u32 {
        (1..10_000).find(|_| health.record(good, timing) == Some(good)).unwrap_or(0)
    }

    #[test]
    fn state_changes_after_rise_or_fall_consecutive_results() {
        let timing = timing(2, 3, 0);
        let mut health = HealthStateMachine::new(HealthState::Unknown);
        assert_eq!(health.record(true, &timing), None);
        assert_eq!(health.record(true, &timing), Some(true));
        for result in [false, false, true, false, false] {
            assert_eq!(health.record(result, &timing), None);
        }
        assert_eq!(health.needs(&timing), 1);
        assert_eq!(health.record(false, &timing), Some(false));
        for result in [true, false, true] {
            assert_eq!(health.record(result, &timing), None);
        }
        assert_eq!(health.record(true, &timing), Some(true));
    }

    #[test]
    fn flapping_doubles_rise_up_to_a_limit_and_decays() {
        let timing = timing(2, 1, 3);
        let mut health = HealthStateMachine::new(HealthState::Healthy);
        let mut took = Vec::new();
        for _ in 0..6 {
            assert_eq!(until(&mut health, false, &timing), 1);
            took.push(until(&mut health, true, &timing));
        }
        assert_eq!(
            took,
            [2, 4, 8, 16, 16, 16],
            "one failure after a long healthy period changes nothing"
        );
        // Every `CALM` checks in state healthy undo one doubling.
        for left in [8, 4, 2] {
            (0..CALM).for_each(|_| assert_eq!(health.record(true, &timing), None));
            let mut copy = health;
            copy.calm = CALM;
            copy.record(false, &timing);
            assert_eq!(until(&mut copy, true, &timing), left);
        }
        (0..CALM).for_each(|_| assert_eq!(health.record(true, &timing), None));
        health.record(false, &timing);
        assert_eq!(until(&mut health, true, &timing), 2);
    }

    #[test]
    fn without_damping_rise_is_constant() {
        let timing = timing(2, 1, 0);
        let mut health = HealthStateMachine::new(HealthState::Unknown);
        for _ in 0..5 {
            assert_eq!(until(&mut health, false, &timing), 1);
            assert_eq!(until(&mut health, true, &timing), 2);
        }
    }

    #[test]
    fn stored_verdict_is_the_initial_state() {
        let timing = timing(2, 3, 4);
        let mut health = HealthStateMachine::new(Some(false).into());
        assert_eq!((health.state(), health.needs(&timing)), (HealthState::Unhealthy, 2));
        assert_eq!(until(&mut health, true, &timing), 2);
    }
}
