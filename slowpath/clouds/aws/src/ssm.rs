//! Systems Manager (SSM): commands on other instances.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::account::Account;
use super::signed::{RequestBody, json};
use super::types::Invocation;
use clouds::failure::{AttemptError, Operation};

const PREFIX: &str = "AmazonSSM";
const SEND: Operation = Operation::new("ssm", "SendCommand");
const INVOCATION: Operation = Operation::new("ssm", "GetCommandInvocation");
/// SSM document that runs a script with `/bin/sh`.
const DOCUMENT: &str = "AWS-RunShellScript";

pub(super) async fn send_command(
    account: &Account,
    instance: &str,
    script: &str,
    timeout: Duration,
) -> Result<String, AttemptError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Command {
        command_id: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        command: Command,
    }
    let seconds = timeout.as_secs().max(1);
    let body = json!({
        "DocumentName": DOCUMENT,
        "InstanceIds": [instance],
        "Parameters": { "commands": [script], "executionTimeout": [seconds.to_string()] },
        // Time in which the SSM agent has to fetch the command, in seconds; AWS allows 30 to
        // 2,592,000.
        "TimeoutSeconds": seconds.clamp(30, 2_592_000),
    });
    let body = account.signed(SEND, &RequestBody::Json { prefix: PREFIX, body }).await?;
    Ok(json::<Answer>(SEND, &body)?.command.command_id)
}

pub(super) async fn invocation(
    account: &Account,
    command: &str,
    instance: &str,
) -> Result<Invocation, AttemptError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        status: String,
        response_code: Option<i32>,
        #[serde(default)]
        standard_output_content: String,
        #[serde(default)]
        standard_error_content: String,
    }
    let body = json!({ "CommandId": command, "InstanceId": instance });
    let body = account.signed(INVOCATION, &RequestBody::Json { prefix: PREFIX, body }).await?;
    let answer: Answer = json(INVOCATION, &body)?;
    let running = ["Pending", "InProgress", "Delayed", "Cancelling"];
    Ok(Invocation {
        done: !running.contains(&answer.status.as_str()),
        status: answer.status,
        // AWS reports -1 until the script has ended.
        exit_code: answer.response_code.filter(|code| *code >= 0),
        output: answer.standard_output_content,
        errors: answer.standard_error_content,
    })
}
