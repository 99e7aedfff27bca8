//! Health state of a target, driven by probes and time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// State of a target, as AWS spells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum State {
    /// Registered; its health is not known yet.
    #[serde(rename = "initial")]
    Initial,
    /// Receives new flows.
    #[serde(rename = "healthy")]
    Healthy,
    /// Fails its probes.
    #[serde(rename = "unhealthy")]
    Unhealthy,
    /// Fails its probes; its flows are kept for a limited time.
    #[serde(rename = "unhealthy.draining")]
    UnhealthyDraining,
    /// No load balancer uses the group.
    #[serde(rename = "unused")]
    Unused,
    /// Deregistered; its flows are kept for the deregistration delay.
    #[serde(rename = "draining")]
    Draining,
    /// Health checks are disabled.
    #[serde(rename = "unavailable")]
    Unavailable,
}

impl State {
    /// Returns the state as AWS spells it.
    pub fn as_str(self) -> &'static str {
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

    /// Returns AWS's reason code and description for the state.
    pub fn reason(self) -> Option<(&'static str, &'static str)> {
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

/// Health check and drain settings of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealthCheckSettings {
    /// Time between two probes.
    pub interval: Duration,
    /// Consecutive successful probes until healthy.
    pub healthy: u32,
    /// Consecutive failed probes until unhealthy.
    pub unhealthy: u32,
    /// Deregistration delay.
    pub delay: Duration,
}

/// A registered target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Instance id or address.
    pub id: String,
    /// True if the target's probes succeed from now on.
    pub good: bool,
    /// Fixed state, independent of probes.
    #[serde(default)]
    pub forced: Option<State>,
    /// State according to probes and time.
    pub state: State,
    /// Number of consecutive probes with the same result; positive for success.
    pub streak: i64,
    /// Time of the next probe, since the emulator's start.
    pub next: Duration,
    /// Time at which draining ends, since the emulator's start; `None` unless the target drains.
    pub until: Option<Duration>,
}

impl Target {
    /// Returns a newly registered target.
    pub fn new(id: &str, good: bool, now: Duration, settings: HealthCheckSettings) -> Target {
        let (state, next) = (State::Initial, now + settings.interval);
        Target { id: id.into(), good, forced: None, state, streak: 0, next, until: None }
    }

    /// Starts draining.
    pub fn drain(&mut self, now: Duration, settings: HealthCheckSettings) {
        if self.state != State::Draining {
            self.state = State::Draining;
            self.until = Some(now + settings.delay);
        }
    }

    /// Performs all probes until `now`. Returns false once the target's draining has ended, which
    /// removes it.
    pub fn advance(&mut self, now: Duration, settings: HealthCheckSettings) -> bool {
        if self.state == State::Draining {
            return self.until.is_none_or(|until| now < until);
        }
        while self.next <= now {
            self.apply_probe(settings);
            self.next += settings.interval.max(Duration::from_millis(1));
        }
        true
    }

    fn apply_probe(&mut self, settings: HealthCheckSettings) {
        let same = (self.streak > 0) == self.good && self.streak != 0;
        let step = if self.good { 1 } else { -1 };
        self.streak = if same { self.streak + step } else { step };
        // The thresholds also apply to the first probes: a target leaves `initial` only when one of
        // them is reached.
        if self.streak >= i64::from(settings.healthy) {
            self.state = State::Healthy;
        } else if -self.streak >= i64::from(settings.unhealthy) {
            self.state = State::Unhealthy;
        }
    }

    /// Returns the reported state, which depends on whether a load balancer uses the group.
    pub fn reported(&self, used: bool) -> State {
        self.forced.unwrap_or(if used { self.state } else { State::Unused })
    }
}
