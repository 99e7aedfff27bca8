//! Long operations, which continue after their request was answered.

use serde_json::{Value, json};

use crate::azure::answer::{AzureResponse, ServiceResult, fail};
use crate::azure::kind::Completion;
use crate::azure::path::same;
use crate::azure::state::{AzureState, Resource, guid};
pub use crate::azure::state::{End, Operation, Outcome};

/// A long operation to start.
pub struct Plan {
    /// Name of the operation, `PUT loadBalancers` for instance.
    pub name: String,
    /// How the operation is polled.
    pub completion: Completion,
    /// Id of the item that is written, deleted or queried.
    pub item: String,
    /// Ids of the resources that no other operation may change meanwhile. The first is that of the
    /// item, or of the resource in which the item is stored.
    pub resources: Vec<String>,
    /// Resources before the write, which are restored if the operation ends with another result
    /// than [`End::Succeed`].
    pub before: Vec<Resource>,
    /// Result, if the write itself determines it; otherwise it is configured ([`Outcome`]).
    pub end: Option<End>,
}

impl AzureState {
    /// Fails while another operation on one of the resources is in progress.
    pub fn check_idle(&self, resources: &[String]) -> ServiceResult<()> {
        let busy = self.operations.iter().find(|operation| {
            let overlaps = |id: &String| resources.iter().any(|other| same(id, other));
            !operation.settled && operation.resources.iter().any(overlaps)
        });
        let Some(busy) = busy else { return Ok(()) };
        let why = format!(
            "Another operation on this or dependent resource is in progress. To retrieve status \
             of the operation use uri: {}.",
            self.operation_path(&busy.id, "operations")
        );
        fail(409, "AnotherOperationInProgress", why)
    }

    /// Returns the path at which an operation is polled: `what` is `operations` or
    /// `operationResults`.
    fn operation_path(&self, id: &str, what: &str) -> String {
        let subscription = self.groups.first().map_or("", |group| group.as_str());
        let subscription = subscription.split('/').nth(2).unwrap_or_default();
        format!(
            "/subscriptions/{subscription}/providers/Microsoft.Network/locations/{}/{what}/{id}\
             ?api-version=2024-05-01",
            self.location
        )
    }

    /// Takes the configured result of the next operation of this name; success if there is none.
    fn take_outcome(&mut self, name: &str) -> End {
        let found = self.outcomes.iter_mut().find(|outcome| {
            let matches = match outcome.operation.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => outcome.operation == name,
            };
            matches && outcome.times != Some(0)
        });
        found.map_or(End::Succeed, |outcome| {
            outcome.times = outcome.times.map(|left| left - 1);
            outcome.end.clone()
        })
    }

    /// Starts an operation. The change of a write has been made already; a deletion is made at the
    /// end. Returns the operation's id, or `None` if it completes at once.
    pub fn begin(&mut self, plan: Plan, result: Option<Value>) -> Option<String> {
        let end = plan.end.clone().unwrap_or_else(|| self.take_outcome(&plan.name));
        let at_once =
            plan.completion == Completion::Now || (self.pace.is_zero() && end == End::Succeed);
        if at_once {
            return None;
        }
        let over = (end != End::Hang).then(|| self.now + self.pace);
        let id = guid(1_000_000 + self.operations.len() as u64);
        let Plan { name, item, resources, before, .. } = plan;
        let settled = false;
        self.operations.push(Operation {
            id: id.clone(),
            name,
            item,
            resources,
            over,
            end,
            settled,
            before,
            result,
        });
        Some(id)
    }

    /// Adds the headers by which an operation is polled to the response of the request that started
    /// it.
    pub fn announce(
        &self,
        answer: AzureResponse,
        id: &str,
        completion: Completion,
        base: &str,
    ) -> AzureResponse {
        let answer = answer.with("retry-after", self.pause.to_string());
        match completion {
            Completion::Location => {
                let path = self.operation_path(id, "operationResults");
                answer.with("location", format!("{base}{path}"))
            }
            _ => {
                let path = self.operation_path(id, "operations");
                answer.with("azure-asyncoperation", format!("{base}{path}"))
            }
        }
    }

    /// Completes the operations that are due: makes the deletions that succeed, and restores the
    /// resources of writes that do not.
    pub fn settle(&mut self) {
        for index in 0..self.operations.len() {
            let operation = &mut self.operations[index];
            if operation.settled || operation.over.is_none_or(|over| over > self.now) {
                continue;
            }
            operation.settled = true;
            let (before, end) = (std::mem::take(&mut operation.before), operation.end.clone());
            let about = operation.resources.first().cloned().unwrap_or_default();
            let item = operation.item.clone();
            let deletes = operation.name.starts_with("DELETE ");
            if end == End::Succeed {
                if deletes {
                    self.remove(&item);
                }
                continue;
            }
            for old in before.into_iter().filter(|_| !deletes) {
                self.write(&old.id, old.body);
            }
            if let Some(found) = self.find_mut(&about) {
                found.failed = end != End::Lose;
            }
        }
    }

    /// Returns the provisioning state of a resource: `Succeeded` unless an operation is in progress
    /// or the last one failed.
    pub fn state_of(&self, resource: &Resource) -> &'static str {
        let about = |operation: &&Operation| {
            !operation.settled && operation.resources.first().is_some_and(|r| same(r, &resource.id))
        };
        match self.operations.iter().find(about) {
            Some(operation)
                if operation.name.starts_with("DELETE") && same(&operation.item, &resource.id) =>
            {
                "Deleting"
            }
            Some(_) => "Updating",
            None if resource.failed => "Failed",
            None => "Succeeded",
        }
    }

    /// Answers a poll, in the format of `Location` if `results`, else of `Azure-AsyncOperation`.
    pub fn poll(&self, id: &str, results: bool, base: &str) -> ServiceResult<AzureResponse> {
        let Some(operation) = self.operations.iter().find(|o| o.id == id) else {
            let why = format!("The operation '{id}' was not found.");
            return fail(404, "OperationNotFound", why);
        };
        let pause = self.pause.to_string();
        let over = operation.settled;
        if results {
            let path = self.operation_path(id, "operationResults");
            return match &operation.end {
                _ if !over => Ok(AzureResponse::empty(202)
                    .with("location", format!("{base}{path}"))
                    .with("retry-after", pause)),
                End::Fail { code, message } => fail(400, code, message.clone()),
                End::Cancel => fail(409, "Canceled", "Operation was canceled."),
                _ => Ok(match &operation.result {
                    Some(result) => AzureResponse::of(200, result.clone()),
                    None => AzureResponse::empty(204),
                }),
            };
        }
        Ok(match &operation.end {
            _ if !over => {
                AzureResponse::of(200, json!({ "status": "InProgress" })).with("retry-after", pause)
            }
            End::Fail { code, message } => {
                let error = json!({ "code": code, "message": message, "details": [] });
                AzureResponse::of(200, json!({ "status": "Failed", "error": error }))
            }
            End::Cancel => {
                let details = json!([{
                    "code": "CanceledAndSupersededDueToAnotherOperation",
                    "message": format!("Operation {id} was canceled and superseded."),
                }]);
                let error = json!({
                    "code": "Canceled", "message": "Operation was canceled.", "details": details,
                });
                AzureResponse::of(200, json!({ "status": "Canceled", "error": error }))
            }
            _ => {
                let mut body = json!({ "status": "Succeeded" });
                if let Some(result) = &operation.result {
                    body["properties"] = result.clone();
                }
                AzureResponse::of(200, body)
            }
        })
    }
}
