//! Waits until an instance or target reaches a state: `weir cloud wait`, for scripts.

use std::future::Future;
use std::time::Duration;

use super::call::Aws;
use super::types::state_text;
use super::types::{CallError, Failure};
use clouds::retry::Pause;

/// Interval of the state queries.
const POLL: Duration = Duration::from_secs(2);
/// All states of an instance.
pub const INSTANCE_STATES: [&str; 6] =
    ["pending", "running", "shutting-down", "terminated", "stopping", "stopped"];
/// All states of a target.
pub const TARGET_STATES: [&str; 7] =
    ["initial", "healthy", "unhealthy", "unhealthy.draining", "unused", "draining", "unavailable"];

/// Result of a wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitResult {
    /// True if the desired state was reached.
    pub reached: bool,
    /// Last known state, or the last error.
    pub last: String,
}

/// Queries the state until it equals `desired` or `timeout` has passed. The wait continues after
/// temporary errors and while the resource is absent.
///
/// # Errors
/// Fails if a permission is missing or the request is invalid: a retry would fail in the same way.
pub async fn until<F: Future<Output = Result<String, CallError>>>(
    pause: &dyn Pause,
    timeout: Duration,
    desired: &str,
    mut query: impl FnMut() -> F,
) -> Result<WaitResult, CallError> {
    let started = pause.now();
    loop {
        let last = match query().await {
            Ok(state) if state == desired => return Ok(WaitResult { reached: true, last: state }),
            Ok(state) => state,
            Err(error) if matches!(error.kind, Failure::Denied | Failure::Invalid) => {
                return Err(error);
            }
            Err(error) => error.to_string(),
        };
        let remaining = timeout.saturating_sub(pause.now().saturating_sub(started));
        if remaining.is_zero() {
            return Ok(WaitResult { reached: false, last });
        }
        pause.wait(POLL.min(remaining)).await;
    }
}

/// Returns the state of an instance as EC2 spells it, or `absent`.
///
/// # Errors
/// Those of DescribeInstances.
pub async fn instance_state(aws: &dyn Aws, id: &str) -> Result<String, CallError> {
    let found = aws.instances(&[id.to_owned()]).await?;
    let state = found.into_iter().find(|instance| instance.id == id).map(|i| i.state);
    Ok(state.unwrap_or_else(|| "absent".to_owned()))
}

/// Returns the state of a target as Elastic Load Balancing spells it, or `no target`.
///
/// # Errors
/// Those of DescribeTargetHealth.
pub async fn target_state(aws: &dyn Aws, group: &str, id: &str) -> Result<String, CallError> {
    let found = aws.targets(group, Some(id)).await?;
    let state = found.into_iter().find(|target| target.id == id).map(|t| t.state);
    Ok(state.map_or("no target", state_text).to_owned())
}
