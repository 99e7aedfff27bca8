//! Levels of the log, which may change at run time.
//!
//! The first of these that is set is in force: the level set by `weir log level`, until its time is
//! over; the variable `WEIR_LOG`; the setting `log.level`.

use std::time::{Duration, Instant};

use config::log_level::{self, complete};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

/// Puts directives in force.
pub type Replace = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The levels in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelStatus {
    /// Directives in force.
    pub level: String,
    /// Origin of the directives: `log.level`, `WEIR_LOG` or `weir log level`.
    pub origin: String,
    /// Directives without `weir log level`.
    pub configured: String,
    /// Seconds until the configured directives are in force again; `None` if there is no such time.
    pub left_s: Option<u64>,
}

struct State {
    setting: String,
    environment: Option<String>,
    temporary: Option<(String, Option<Instant>)>,
}

impl State {
    fn configured(&self) -> (&str, &'static str) {
        match &self.environment {
            Some(level) => (level, "WEIR_LOG"),
            None => (&self.setting, "log.level"),
        }
    }

    fn in_force(&self) -> (&str, &'static str) {
        match &self.temporary {
            Some((level, _)) => (level, "weir log level"),
            None => self.configured(),
        }
    }
}

/// The levels of the log.
pub struct Levels {
    state: Mutex<State>,
    replace: Replace,
}

impl Levels {
    /// Creates the levels of the setting `log.level` and the variable `WEIR_LOG`, and puts them in
    /// force. Also returns the error if the variable is not valid and therefore not used.
    pub fn new(
        setting: &str,
        environment: Option<String>,
        replace: Replace,
    ) -> (Levels, Option<String>) {
        let environment = environment.filter(|level| !level.is_empty());
        let mut rejected = None;
        // The variable may have any directive of tracing's EnvFilter.
        let environment = environment.map(|level| complete(&level)).filter(|level| {
            rejected = replace(level).err();
            rejected.is_none()
        });
        let state = State { setting: complete(setting), environment, temporary: None };
        let _ = replace(state.in_force().0);
        (Levels { state: Mutex::new(state), replace }, rejected)
    }

    /// Returns the levels in force.
    pub fn status(&self, now: Instant) -> LevelStatus {
        let state = self.state.lock();
        let (level, origin) = state.in_force();
        let until = state.temporary.as_ref().and_then(|(_, until)| *until);
        LevelStatus {
            level: level.to_owned(),
            origin: origin.to_owned(),
            configured: state.configured().0.to_owned(),
            left_s: until.map(|until| until.saturating_duration_since(now).as_secs()),
        }
    }

    /// Sets the level of the setting `log.level`.
    pub fn configure(&self, setting: &str) {
        let (mut state, setting) = (self.state.lock(), complete(setting));
        if state.setting != setting {
            state.setting = setting;
            // The configuration has been checked.
            let _ = (self.replace)(state.in_force().0);
        }
    }

    /// Sets directives for the time `lasts`, or with `None` until the process ends. Without
    /// directives, returns to the configured ones.
    ///
    /// # Errors
    /// Fails if the directives are not valid.
    pub fn set(
        &self,
        directives: Option<&str>,
        lasts: Option<Duration>,
        now: Instant,
    ) -> Result<(), String> {
        directives.map_or(Ok(()), log_level::check)?;
        let until = lasts.map(|lasts| now + lasts);
        let temporary = directives.map(|directives| (complete(directives), until));
        self.replace_temporary(self.state.lock(), temporary, lasts)
    }

    /// Returns to the configured level if the time of another one is over.
    pub fn expire(&self, now: Instant) {
        let state = self.state.lock();
        let until = state.temporary.as_ref().and_then(|(_, until)| *until);
        if until.is_some_and(|until| now >= until) {
            // The configured level has been in force before.
            let _ = self.replace_temporary(state, None, None);
        }
    }

    /// Puts other temporary directives in force. If they are not valid, the previous ones stay.
    fn replace_temporary(
        &self,
        mut state: MutexGuard<'_, State>,
        temporary: Option<(String, Option<Instant>)>,
        lasts: Option<Duration>,
    ) -> Result<(), String> {
        let before = std::mem::replace(&mut state.temporary, temporary);
        if let Err(error) = (self.replace)(state.in_force().0) {
            state.temporary = before;
            return Err(error);
        }
        let (level, origin) = state.in_force();
        let (level, origin) = (level.to_owned(), origin);
        // Unlocks first: logging the event takes the lock of the log filters.
        drop(state);
        let seconds = lasts.map_or(0, |lasts| lasts.as_secs());
        tracing::info!(event = "log_level_changed", level, origin, seconds, "log level changed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn levels(setting: &str, environment: Option<&str>) -> (Levels, Arc<Mutex<String>>) {
        let in_force = Arc::new(Mutex::new(String::new()));
        let shared = Arc::clone(&in_force);
        let replace = move |level: &str| {
            if level.contains("wrong") {
                return Err("wrong".to_owned());
            }
            level.clone_into(&mut shared.lock());
            Ok(())
        };
        let environment = environment.map(str::to_owned);
        let (levels, rejected) = Levels::new(setting, environment.clone(), Box::new(replace));
        assert_eq!(rejected.is_some(), environment.as_deref() == Some("wrong"));
        (levels, in_force)
    }

    #[test]
    fn a_level_is_in_force_for_its_time_and_then_the_configured_one() {
        let ((levels, in_force), now) = (levels("info", None), Instant::now());
        assert_eq!(*in_force.lock(), "info");
        levels.set(Some("bgp=debug"), Some(Duration::from_secs(60)), now).unwrap();
        levels.configure("warn");
        assert_eq!(*in_force.lock(), "info,bgp=debug", "other modules stay at info");
        let status = levels.status(now);
        assert_eq!((status.configured.as_str(), status.left_s), ("warn", Some(60)));
        levels.expire(now + Duration::from_secs(59));
        assert_eq!(*in_force.lock(), "info,bgp=debug");
        levels.expire(now + Duration::from_secs(60));
        assert_eq!(*in_force.lock(), "warn");
        levels.set(Some("trace"), None, now).unwrap();
        levels.expire(now + Duration::from_secs(1_000_000));
        assert_eq!(*in_force.lock(), "trace");
        levels.set(None, None, now).unwrap();
        assert_eq!(
            (in_force.lock().as_str(), levels.status(now).origin),
            ("warn", "log.level".into())
        );
        assert!(levels.set(Some("loud"), None, now).is_err());
        // A module of this name makes `replace` fail.
        assert!(levels.set(Some("wrong=debug"), None, now).is_err());
        assert_eq!((in_force.lock().as_str(), levels.status(now).level), ("warn", "warn".into()));
    }

    #[test]
    fn a_valid_variable_overrides_the_setting() {
        let (by_environment, in_force) = levels("info", Some("debug"));
        by_environment.configure("error");
        assert_eq!(*in_force.lock(), "debug");
        assert_eq!(by_environment.status(Instant::now()).origin, "WEIR_LOG");
        for unused in ["", "wrong"] {
            assert_eq!(*levels("info", Some(unused)).1.lock(), "info");
        }
    }
}
