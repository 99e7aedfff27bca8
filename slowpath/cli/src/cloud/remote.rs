//! `weir cloud exec` and `weir cloud wait`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use aws::remote::{self, ERRORS_MAX, OUTPUT_MAX};
use aws::runner::find_group;
use aws::types::CallError;
use aws::wait::{self, INSTANCE_STATES, TARGET_STATES, WaitResult};
use clap::{Args, Subcommand};
use clouds::report::Report;
use clouds::retry::{Clock, Policy};
use serde_json::json;

use super::super::offline;
use super::super::options::{GlobalOptions, Output};
use super::super::output::{print, write_stdout};
use super::super::request;
use super::account::{account, block_on};

/// Timeout of a single request to AWS.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Exit code if AWS did not run the command, or did not report its end in time or its exit code;
/// ssh uses the same.
const NOT_RUN: u8 = 255;

/// Arguments of `weir cloud exec`.
#[derive(Args)]
pub struct ExecArgs {
    /// ID of the instance, i-...
    instance: String,
    /// Maximum run time of the command in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=172_800))]
    timeout: u64,
    /// Command to run: a single argument is a shell script, several are a command with its
    /// arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs `weir cloud exec`. AWS keeps the first 24,000 characters of standard output and the first
/// 8,000 of standard error.
pub(super) fn exec(options: &GlobalOptions, args: &ExecArgs) -> Result<ExitCode, String> {
    let (script, timeout) = (remote::script(&args.command), Duration::from_secs(args.timeout));
    let ran = block_on(async {
        let (account, _cancel_sender) = account(None, Policy::API, REQUEST_TIMEOUT).await?;
        remote::run(&account, &Clock::default(), &args.instance, &script, timeout).await
    })?;
    let done = match ran {
        Ok(done) => done,
        Err(error) => {
            eprintln!("weir: {error}");
            return Ok(ExitCode::from(NOT_RUN));
        }
    };
    let (output, errors) = (done.output.chars().count(), done.errors.chars().count());
    let truncated = output >= OUTPUT_MAX || errors >= ERRORS_MAX;
    match options.output() {
        Output::Table => {
            write_stdout(&done.output);
            eprint!("{}", done.errors);
        }
        _ => print(
            options,
            &json!({
                "instance": args.instance, "script": script, "status": done.status,
                "exit_code": done.exit_code, "output": done.output, "errors": done.errors,
                "truncated": truncated,
            }),
            String::new,
        ),
    }
    if truncated {
        eprintln!(
            "weir: AWS keeps {OUTPUT_MAX} characters of output and {ERRORS_MAX} of errors: the \
             rest is lost; redirect the output to a file on the instance"
        );
    }
    match (done.status.as_str(), done.exit_code.map(u8::try_from)) {
        ("Success", _) => Ok(ExitCode::SUCCESS),
        (_, Some(Ok(code))) if code != 0 => Ok(ExitCode::from(code)),
        (status, _) => {
            eprintln!("weir: the command ended with status {status} and without an exit code");
            Ok(ExitCode::from(NOT_RUN))
        }
    }
}

/// Subcommands of `weir cloud wait`.
#[derive(Subcommand)]
pub enum WaitCommand {
    /// Wait until an EC2 instance reaches a state
    Instance {
        /// ID of the instance, i-...
        id: String,
        /// State to wait for, as named by EC2
        #[arg(value_parser = INSTANCE_STATES)]
        state: String,
        #[command(flatten)]
        limit: WaitTimeout,
    },
    /// Wait until the load balancer reports a state for a target
    Target {
        /// Instance ID or IP address of the target [default: this machine's target, as reported by
        /// slowpath], and the state to wait for, as named by AWS [default: healthy]
        #[arg(num_args = 0..=2, value_names = ["ID", "STATE"])]
        what: Vec<String>,
        /// ARN of the target group; requires ID [default: the one that slowpath reports, otherwise
        /// the one found from the configuration]
        #[arg(long, value_name = "ARN")]
        group: Option<String>,
        #[command(flatten)]
        limit: WaitTimeout,
    },
    /// Wait until a TCP connection succeeds
    Tcp {
        /// Address or name, and port
        #[arg(value_name = "HOST:PORT")]
        to: String,
        #[command(flatten)]
        limit: WaitTimeout,
    },
}

/// Time limit of `weir cloud wait`.
#[derive(Args, Clone, Copy)]
pub struct WaitTimeout {
    /// Maximum number of seconds to wait
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u64,
}

impl WaitTimeout {
    fn total(self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Returns the timeout of a single request: the whole wait, but at least 1 s and at most
    /// [`REQUEST_TIMEOUT`].
    fn per_request(self) -> Duration {
        self.total().clamp(Duration::from_secs(1), REQUEST_TIMEOUT)
    }
}

/// Runs `weir cloud wait`.
pub(super) fn wait(
    options: &GlobalOptions,
    socket: &Path,
    what: &WaitCommand,
) -> Result<ExitCode, String> {
    let (name, desired, waited) = match what {
        WaitCommand::Instance { id, state, limit } => {
            let waited = block_on(instance(id, state, *limit))?;
            (format!("instance {id}"), state.clone(), waited.map_err(|e| e.to_string())?)
        }
        WaitCommand::Target { what, group, limit } => {
            let (id, state) = parse_target(what)?;
            let waited = match (&id, group) {
                (None, Some(_)) => return Err("--group requires the target's ID".to_owned()),
                (None, None) => block_on(own_target(socket, state, *limit))?,
                (Some(id), group) => {
                    block_on(target(options, socket, group.as_deref(), (id, state), *limit))?
                }
            };
            let name = id.map_or("this machine's target".to_owned(), |id| format!("target {id}"));
            (name, state.to_owned(), waited?)
        }
        WaitCommand::Tcp { to, limit } => {
            if to.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                return Err(format!("{to:?} is not HOST:PORT; write for example 10.0.1.11:443"));
            }
            let waited = block_on(tcp(to, *limit))?;
            (to.clone(), "connected".to_owned(), waited.map_err(|e| e.to_string())?)
        }
    };
    let WaitResult { reached, last } = waited;
    let document = json!({ "what": name, "expected": desired, "reached": reached, "last": last });
    print(options, &document, || match reached {
        true => format!("{name}: {last}\n"),
        false => format!("{name}: not {desired} within the timeout; last: {last}\n"),
    });
    Ok(if reached { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Parses `[ID] [STATE]`; a single argument is a state if it is the name of one.
pub(super) fn parse_target(what: &[String]) -> Result<(Option<String>, &'static str), String> {
    let state = |word: &str| TARGET_STATES.into_iter().find(|state| *state == word);
    match what {
        [] => Ok((None, "healthy")),
        [one] => Ok(match state(one) {
            Some(state) => (None, state),
            None => (Some(one.clone()), "healthy"),
        }),
        [id, word, ..] => {
            let allowed = TARGET_STATES.join(", ");
            let no_state = || format!("{word:?} is not a target state; allowed: {allowed}");
            Ok((Some(id.clone()), state(word).ok_or_else(no_state)?))
        }
    }
}

async fn instance(id: &str, state: &str, limit: WaitTimeout) -> Result<WaitResult, CallError> {
    let (account, _cancel_sender) = account(None, Policy::ONCE, limit.per_request()).await?;
    let (account, pause) = (&account, Clock::default());
    let poll = || wait::instance_state(account, id);
    wait::until(&pause, limit.total(), state, poll).await
}

/// Returns slowpath's report about the cloud.
async fn report(socket: &Path) -> Result<Report, String> {
    let socket = socket.to_owned();
    let read = tokio::task::spawn_blocking(move || request::get(&socket, "/cloud"));
    read.await.map_err(|e| e.to_string())?
}

/// Waits until slowpath reports the state for this machine's own target. slowpath polls AWS
/// continuously.
async fn own_target(socket: &Path, state: &str, limit: WaitTimeout) -> Result<WaitResult, String> {
    let poll = || async {
        Ok(match report(socket).await {
            Ok(report) if !report.state.is_empty() => report.state,
            Ok(report) if report.cloud.is_empty() => "no cloud is configured".to_owned(),
            Ok(report) => format!("no target: {} {}", report.phase, report.error),
            Err(error) => error,
        })
    };
    let waited = wait::until(&Clock::default(), limit.total(), state, poll).await;
    waited.map_err(|e| e.to_string())
}

async fn target(
    options: &GlobalOptions,
    socket: &Path,
    group: Option<&str>,
    (id, state): (&str, &str),
    limit: WaitTimeout,
) -> Result<WaitResult, String> {
    let text = |error: CallError| error.to_string();
    let (account, _cancel_sender) =
        account(None, Policy::ONCE, limit.per_request()).await.map_err(text)?;
    let given_or_reported = match group {
        Some(arn) => Some(arn.to_owned()),
        None => report(socket).await.ok().map(|report| report.group),
    };
    let group = match given_or_reported.filter(|arn| !arn.is_empty()) {
        Some(arn) => arn,
        None => {
            let config = offline::load(options)?;
            let aws = config.aws.ok_or(
                "no target group: set --group, or add an [aws] section to the configuration",
            )?;
            let found = find_group(&account, &aws, account.region()).await;
            found.map_err(|e| e.to_string())?.arn
        }
    };
    let (account, pause) = (&account, Clock::default());
    let poll = || wait::target_state(account, &group, id);
    wait::until(&pause, limit.total(), state, poll).await.map_err(text)
}

async fn tcp(to: &str, limit: WaitTimeout) -> Result<WaitResult, CallError> {
    let poll = || async {
        let connect = tokio::net::TcpStream::connect(to);
        Ok(match tokio::time::timeout(limit.per_request(), connect).await {
            Ok(Ok(_)) => "connected".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no response".to_owned(),
        })
    };
    wait::until(&Clock::default(), limit.total(), "connected", poll).await
}
