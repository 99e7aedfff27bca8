//! Runs a shell command on another instance through Systems Manager and waits for its end.

use std::time::Duration;

use super::call::Aws;
use super::types::Invocation;
use super::types::{CallError, Failure};
use clouds::retry::Pause;

/// Interval of status queries.
const POLL: Duration = Duration::from_secs(1);
/// How long the wait for a command's end continues beyond the command's own time limit. The agent
/// on the instance first has to fetch the command, for which AWS allows it at least 30 s.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Characters of standard output that AWS keeps.
pub const OUTPUT_MAX: usize = 24_000;
/// Characters of standard error that AWS keeps.
pub const ERRORS_MAX: usize = 8_000;

/// Why a remote command has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteError {
    /// The instance accepts no commands.
    #[error(
        "{instance} accepts no commands: check that it runs, has the SSM agent and a role with \
         AmazonSSMManagedInstanceCore, and reaches the SSM endpoints; AWS reports: {reason}"
    )]
    NoAgent {
        /// Id of the instance.
        instance: String,
        /// AWS's error message.
        reason: String,
    },
    /// The command did not end in time.
    #[error(
        "command {command} is {last} after {} s; query it with `aws ssm get-command-invocation \
         --command-id {command} --instance-id {instance}`, or raise --timeout",
        waited.as_secs()
    )]
    TimedOut {
        /// Id of the command.
        command: String,
        /// Id of the instance.
        instance: String,
        /// Last known status.
        last: String,
        /// How long the command was waited for.
        waited: Duration,
    },
    /// A call to AWS failed.
    #[error("{0}")]
    Call(#[from] CallError),
}

/// What to do after a status query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextStep {
    /// Query the status again.
    Poll,
    /// The command has ended.
    Done(Invocation),
    /// The command took too long; its last known status.
    TimedOut(String),
    /// The query failed permanently.
    Failed(CallError),
}

/// Decides what to do after a status query with this result. `since` is the time since the command
/// was sent, `timeout` the time for which the command may run; the wait ends 30 s after that.
pub fn next(result: Result<Invocation, CallError>, since: Duration, timeout: Duration) -> NextStep {
    let last = match result {
        Ok(invocation) if invocation.done => return NextStep::Done(invocation),
        Ok(invocation) => invocation.status,
        // For a moment after a command was sent, AWS does not find it.
        Err(error) if error.kind == Failure::Absent => "not visible yet".to_owned(),
        Err(error) if matches!(error.kind, Failure::Transient | Failure::Throttled) => {
            format!("unknown ({error})")
        }
        Err(error) => return NextStep::Failed(error),
    };
    if since >= timeout.saturating_add(FETCH_TIMEOUT) {
        NextStep::TimedOut(last)
    } else {
        NextStep::Poll
    }
}

/// Runs a shell script on an instance, and waits for its end.
///
/// # Errors
/// Fails if AWS does not accept the command, or if it does not end in time.
pub async fn run(
    aws: &dyn Aws,
    pause: &dyn Pause,
    instance: &str,
    script: &str,
    timeout: Duration,
) -> Result<Invocation, RemoteError> {
    let command = aws.send_command(instance, script, timeout).await.map_err(|e| match e.kind {
        Failure::Absent => {
            RemoteError::NoAgent { instance: instance.to_owned(), reason: e.message }
        }
        _ => RemoteError::Call(e),
    })?;
    let sent = pause.now();
    loop {
        pause.wait(POLL).await;
        let result = aws.invocation(&command, instance).await;
        let waited = pause.now().saturating_sub(sent);
        match next(result, waited, timeout) {
            NextStep::Poll => {}
            NextStep::Done(invocation) => return Ok(invocation),
            NextStep::Failed(error) => return Err(error.into()),
            NextStep::TimedOut(last) => {
                let instance = instance.to_owned();
                return Err(RemoteError::TimedOut { command, instance, last, waited });
            }
        }
    }
}

/// Joins arguments to a script. A single argument is used as it is; several are quoted so that the
/// command receives them unchanged.
pub fn script(arguments: &[String]) -> String {
    match arguments {
        [one] => one.clone(),
        several => several.iter().map(|a| quoted(a)).collect::<Vec<_>>().join(" "),
    }
}

fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_for_the_shell() {
        let script =
            |args: &[&str]| script(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>());
        assert_eq!(script(&["ps | wc -l"]), "ps | wc -l", "one is a script");
        assert_eq!(script(&["ls", "-l", "/var/log/weir.log"]), "ls -l /var/log/weir.log");
        assert_eq!(script(&["echo", "a b", "it's", "", "$X"]), r"echo 'a b' 'it'\''s' '' '$X'");
    }

    #[test]
    fn the_status_is_polled_until_the_command_ends_or_times_out() {
        let of = |status: &str, done: bool| Invocation {
            done,
            status: status.into(),
            exit_code: None,
            output: String::new(),
            errors: String::new(),
        };
        let error = |kind| CallError {
            operation: "GetCommandInvocation",
            kind,
            code: String::new(),
            message: "m".into(),
        };
        let (ten, early, late) =
            (Duration::from_secs(10), FETCH_TIMEOUT, FETCH_TIMEOUT + Duration::from_secs(10));
        assert_eq!(next(Ok(of("Failed", true)), late, ten), NextStep::Done(of("Failed", true)));
        assert_eq!(next(Ok(of("InProgress", false)), early, ten), NextStep::Poll);
        assert_eq!(next(Ok(of("Pending", false)), late, ten), NextStep::TimedOut("Pending".into()));
        assert_eq!(next(Err(error(Failure::Absent)), early, ten), NextStep::Poll);
        assert_eq!(next(Err(error(Failure::Throttled)), early, ten), NextStep::Poll);
        let denied = error(Failure::Denied);
        assert_eq!(next(Err(denied.clone()), early, ten), NextStep::Failed(denied));
        assert!(matches!(next(Err(error(Failure::Transient)), late, ten), NextStep::TimedOut(_)));
    }
}
