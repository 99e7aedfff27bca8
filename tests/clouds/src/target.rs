//! A target on its way through its states, as probes and time move it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A state by Amazon's own words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum State {
    /// Registered, health not yet known.
    #[serde(rename = "initial")]
    Initial,
    /// Gets flows.
    #[serde(rename = "healthy")]
    Healthy,
    /// Fails its probes.
    #[serde(rename = "unhealthy")]
    Unhealthy,
    /// Failed its probes, and its flows end.
    #[serde(rename = "unhealthy.draining")]
    UnhealthyDraining,
    /// Nobody sends it anything.
    #[serde(rename = "unused")]
    Unused,
    /// Deregistered, and its flows end.
    #[serde(rename = "draining")]
    Draining,
    /// Health checks are off.
    #[serde(rename = "unavailable")]
    Unavailable,
}

impl State {
    /// As AWS writes it.
    pub fn word(self) -> &'static str {
        match self {
            State::Initial => "initial",
            State::Healthy => "healthy",
            State::Unhealthy => "unhealthy",
            State::UnhealthyDraining => "unhealthy.draining",
            State::Unused => "unused",
            State::Draining => "draining",
            State::Unavailable => "unavailable",
        }
    }

    /// Code and sentence that come with it.
    pub fn why(self) -> Option<(&'static str, &'static str)> {
        match self {
            State::Healthy => None,
            State::Initial => {
                Some(("Elb.InitialHealthChecking", "Initial health checks in progress"))
            }
            State::Unhealthy | State::UnhealthyDraining => {
                Some(("Target.FailedHealthChecks", "Health checks failed"))
            }
            State::Unused => Some(("Target.NotInUse", "Target group is not used by a balancer")),
            State::Draining => {
                Some(("Target.DeregistrationInProgress", "Target deregistration is in progress"))
            }
            State::Unavailable => {
                Some(("Target.HealthCheckDisabled", "Health checks are not enabled"))
            }
        }
    }
}

/// How a group probes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rhythm {
    /// From probe to probe.
    pub interval: Duration,
    /// Good ones in a row until healthy.
    pub healthy: u32,
    /// Bad ones in a row until unhealthy.
    pub unhealthy: u32,
    /// How long a deregistered target drains.
    pub delay: Duration,
}

/// A registered target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Instance id or address.
    pub id: String,
    /// What its probes bring.
    pub good: bool,
    /// A state that it has whatever happens.
    #[serde(default)]
    pub forced: Option<State>,
    /// Its state by probes and time.
    pub state: State,
    /// Probes in a row with the same outcome, good ones positive.
    pub streak: i64,
    /// When it is probed next.
    pub next: Duration,
    /// When its draining ends.
    pub until: Option<Duration>,
}

impl Target {
    /// Just registered.
    pub fn new(id: &str, good: bool, now: Duration, rhythm: Rhythm) -> Target {
        let (state, next) = (State::Initial, now + rhythm.interval);
        Target { id: id.into(), good, forced: None, state, streak: 0, next, until: None }
    }

    /// Somebody takes it out.
    pub fn leave(&mut self, now: Duration, rhythm: Rhythm) {
        if self.state != State::Draining {
            self.state = State::Draining;
            self.until = Some(now + rhythm.delay);
        }
    }

    /// Carries out all probes until `now`. False when it is gone.
    pub fn advance(&mut self, now: Duration, rhythm: Rhythm) -> bool {
        if self.state == State::Draining {
            return self.until.is_none_or(|until| now < until);
        }
        while self.next <= now {
            self.probed(rhythm);
            self.next += rhythm.interval.max(Duration::from_millis(1));
        }
        true
    }

    fn probed(&mut self, rhythm: Rhythm) {
        let same = (self.streak > 0) == self.good && self.streak != 0;
        let step = if self.good { 1 } else { -1 };
        self.streak = if same { self.streak + step } else { step };
        // The first probes count for little: one good is enough to leave `initial`'s doubt only
        // when the threshold says so, and so with the bad.
        if self.streak >= i64::from(rhythm.healthy) {
            self.state = State::Healthy;
        } else if -self.streak >= i64::from(rhythm.unhealthy) {
            self.state = State::Unhealthy;
        }
    }

    /// Its state as it is told, in a group with a load balancer or without.
    pub fn told(&self, used: bool) -> State {
        self.forced.unwrap_or(if used { self.state } else { State::Unused })
    }
}
