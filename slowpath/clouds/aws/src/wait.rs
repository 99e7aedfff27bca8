//! Waiting for a state, for scripts.

use std::future::Future;
use std::time::Duration;

use super::call::Aws;
use super::told::state_text;
use super::told::{CallError, Failure};
use clouds::retry::Pause;

/// From look to look.
const POLL: Duration = Duration::from_secs(2);
/// All states of an instance.
pub const INSTANCE_STATES: [&str; 6] =
    ["pending", "running", "shutting-down", "terminated", "stopping", "stopped"];
/// All states of a target.
pub const TARGET_STATES: [&str; 7] =
    ["initial", "healthy", "unhealthy", "unhealthy.draining", "unused", "draining", "unavailable"];

/// How the waiting ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waited {
    /// It is so.
    pub reached: bool,
    /// What it was last.
    pub last: String,
}

/// Looks until it is what is wanted, or `timeout` is over. What may pass is waited out.
///
/// # Errors
/// Nobody will ever tell: a permission is missing, or the question is wrong.
pub async fn until<F: Future<Output = Result<String, CallError>>>(
    pause: &dyn Pause,
    timeout: Duration,
    wanted: &str,
    mut look: impl FnMut() -> F,
) -> Result<Waited, CallError> {
    let begun = pause.now();
    loop {
        let last = match look().await {
            Ok(state) if state == wanted => return Ok(Waited { reached: true, last: state }),
            Ok(state) => state,
            Err(error) if matches!(error.kind, Failure::Denied | Failure::Invalid) => {
                return Err(error);
            }
            Err(error) => error.to_string(),
        };
        let left = timeout.saturating_sub(pause.now().saturating_sub(begun));
        if left.is_zero() {
            return Ok(Waited { reached: false, last });
        }
        pause.wait(POLL.min(left)).await;
    }
}

/// The state of an instance in EC2's words.
///
/// # Errors
/// Those of DescribeInstances.
pub async fn instance_state(aws: &dyn Aws, id: &str) -> Result<String, CallError> {
    let found = aws.instances(&[id.to_owned()]).await?;
    let state = found.into_iter().find(|instance| instance.id == id).map(|i| i.state);
    Ok(state.unwrap_or_else(|| "not there".to_owned()))
}

/// The state of a target in the load balancer's words.
///
/// # Errors
/// Those of DescribeTargetHealth.
pub async fn target_state(aws: &dyn Aws, group: &str, id: &str) -> Result<String, CallError> {
    let found = aws.targets(group, Some(id)).await?;
    let state = found.into_iter().find(|target| target.id == id).map(|t| t.state);
    Ok(state.map_or("no target", state_text).to_owned())
}
