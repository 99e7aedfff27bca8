//! One backend's verdict out of the answers to its probes.
//!
//! It takes `fall` bad answers in a row to make a backend unhealthy, and `rise` good ones to make
//! it healthy. One that fails again soon after it recovered flaps: each time the good answers that
//! the next recovery takes are doubled, up to `rise * 2^damping`, and each [`CALM`] answers in
//! health take one doubling back. So nobody is kept out longer than that many good probes.

use config::services::Timing;

/// Answers since a recovery within which a failure counts as flapping.
pub const CALM: u32 = 32;

/// What is held of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Standing {
    /// Nobody has judged: what its source says counts.
    #[default]
    Unknown,
    /// Healthy.
    Healthy,
    /// Unhealthy: no new flows.
    Unhealthy,
}

impl Standing {
    /// Its name in tables and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Unknown => "unknown",
            Standing::Healthy => "healthy",
            Standing::Unhealthy => "unhealthy",
        }
    }

    /// The verdict, if there is one: whether it is healthy.
    pub fn verdict(self) -> Option<bool> {
        match self {
            Standing::Unknown => None,
            Standing::Healthy => Some(true),
            Standing::Unhealthy => Some(false),
        }
    }
}

/// Out of a verdict that is known from elsewhere.
impl From<Option<bool>> for Standing {
    fn from(verdict: Option<bool>) -> Standing {
        match verdict {
            None => Standing::Unknown,
            Some(true) => Standing::Healthy,
            Some(false) => Standing::Unhealthy,
        }
    }
}

/// Judges one backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judge {
    standing: Standing,
    /// Answers of one kind in a row, up to the last.
    good: u32,
    bad: u32,
    /// Answers since the last recovery, as far as they are counted.
    calm: u32,
    doublings: u8,
}

impl Judge {
    /// Begins with what is known, without a grudge.
    pub fn new(standing: Standing) -> Judge {
        Judge { standing, good: 0, bad: 0, calm: CALM, doublings: 0 }
    }

    /// What is held of it.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The same backend is asked otherwise from now on: what was begun begins again.
    pub fn again(self) -> Judge {
        Judge { good: 0, bad: 0, ..self }
    }

    /// Takes over what is known from elsewhere.
    pub fn adopt(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// How many answers of the other kind in a row would make another verdict.
    pub fn needs(&self, timing: &Timing) -> u32 {
        match self.standing {
            Standing::Unhealthy => self.rise(timing).saturating_sub(self.good),
            _ => timing.fall.saturating_sub(self.bad),
        }
    }

    /// How many good answers in a row make it healthy.
    fn rise(&self, timing: &Timing) -> u32 {
        timing.rise.max(1) << self.doublings.min(timing.damping).min(6)
    }

    /// Hears an answer. Tells the verdict where it is another: whether the backend is healthy.
    pub fn hear(&mut self, good: bool, timing: &Timing) -> Option<bool> {
        (self.good, self.bad) = match good {
            true => (self.good.saturating_add(1), 0),
            false => (0, self.bad.saturating_add(1)),
        };
        if self.standing == Standing::Healthy {
            self.calm_down();
        }
        let verdict = match self.standing {
            Standing::Unknown | Standing::Unhealthy if self.good >= self.rise(timing) => true,
            Standing::Unknown | Standing::Healthy if self.bad >= timing.fall.max(1) => false,
            _ => return None,
        };
        match (self.standing, verdict) {
            (Standing::Unhealthy, true) => self.calm = 0,
            (Standing::Healthy, false) if self.calm < CALM => {
                self.doublings = self.doublings.saturating_add(1).min(timing.damping);
            }
            _ => {}
        }
        self.standing = Some(verdict).into();
        (self.good, self.bad) = (0, 0);
        Some(verdict)
    }

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

    /// How many answers of a kind it takes until the verdict changes.
    fn until(judge: &mut Judge, good: bool, timing: &Timing) -> u32 {
        (1..10_000).find(|_| judge.hear(good, timing) == Some(good)).unwrap_or(0)
    }

    #[test]
    fn it_takes_fall_bad_and_rise_good_ones_in_a_row() {
        let timing = timing(2, 3, 0);
        let mut judge = Judge::new(Standing::Unknown);
        assert_eq!(judge.hear(true, &timing), None);
        assert_eq!(judge.hear(true, &timing), Some(true));
        for answer in [false, false, true, false, false] {
            assert_eq!(judge.hear(answer, &timing), None);
        }
        assert_eq!(judge.needs(&timing), 1);
        assert_eq!(judge.hear(false, &timing), Some(false));
        for answer in [true, false, true] {
            assert_eq!(judge.hear(answer, &timing), None);
        }
        assert_eq!(judge.hear(true, &timing), Some(true));
    }

    #[test]
    fn who_flaps_waits_longer_each_time_up_to_a_bound_and_is_forgiven() {
        let timing = timing(2, 1, 3);
        let mut judge = Judge::new(Standing::Healthy);
        let mut took = Vec::new();
        for _ in 0..6 {
            assert_eq!(until(&mut judge, false, &timing), 1);
            took.push(until(&mut judge, true, &timing));
        }
        assert_eq!(took, [2, 4, 8, 16, 16, 16], "the first failure after long health is none");
        // Each so many answers in health take one doubling back.
        for left in [8, 4, 2] {
            (0..CALM).for_each(|_| assert_eq!(judge.hear(true, &timing), None));
            let mut now = judge;
            now.calm = CALM;
            now.hear(false, &timing);
            assert_eq!(until(&mut now, true, &timing), left);
        }
        (0..CALM).for_each(|_| assert_eq!(judge.hear(true, &timing), None));
        judge.hear(false, &timing);
        assert_eq!(until(&mut judge, true, &timing), 2);
    }

    #[test]
    fn without_damping_nobody_waits_longer() {
        let timing = timing(2, 1, 0);
        let mut judge = Judge::new(Standing::Unknown);
        for _ in 0..5 {
            assert_eq!(until(&mut judge, false, &timing), 1);
            assert_eq!(until(&mut judge, true, &timing), 2);
        }
    }

    #[test]
    fn a_verdict_from_before_a_restart_is_taken_over() {
        let timing = timing(2, 3, 4);
        let mut judge = Judge::new(Some(false).into());
        assert_eq!((judge.standing(), judge.needs(&timing)), (Standing::Unhealthy, 2));
        assert_eq!(until(&mut judge, true, &timing), 2);
    }
}
