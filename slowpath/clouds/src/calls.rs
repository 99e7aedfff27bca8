//! Cloud calls in progress. Each call is its own task, so that the lifecycle never blocks on the
//! cloud.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{self, JoinError, JoinSet};

use crate::failure::{CallError, Failure, Operation};

/// The set of calls in progress: `C` identifies a call, `T` is the output of its task.
#[derive(Debug)]
pub struct PendingCalls<C, T> {
    tasks: JoinSet<T>,
    calls: HashMap<task::Id, C>,
}

/// A call that ended.
#[derive(Debug)]
pub enum CompletedCall<C, T> {
    /// The task returned its output.
    Answered(T),
    /// The task panicked. The caller must treat the call as failed ([`panic_error`]): otherwise it
    /// would wait for the answer forever.
    Panicked(C, JoinError),
}

/// Returns the error that is used as the answer to a call whose task panicked.
pub fn panic_error(error: &JoinError) -> CallError {
    let message = format!("internal error: {error}; see the log of slowpath");
    Operation::new("", "Task").failed(Failure::Transient, "Internal", message).error
}

impl<C, T: Send + 'static> Default for PendingCalls<C, T> {
    fn default() -> PendingCalls<C, T> {
        PendingCalls { tasks: JoinSet::new(), calls: HashMap::new() }
    }
}

impl<C, T: Send + 'static> PendingCalls<C, T> {
    /// Starts a call as a task.
    pub fn start(&mut self, call: C, task: impl Future<Output = T> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.calls.insert(id, call);
    }

    /// Returns the number of calls in progress.
    pub fn in_progress(&self) -> usize {
        self.tasks.len()
    }

    /// Waits for the next call to end; returns `None` if no call is in progress. Cancel-safe: if
    /// the future is dropped early, no result is lost.
    pub async fn next(&mut self) -> Option<CompletedCall<C, T>> {
        match self.tasks.join_next_with_id().await? {
            Ok((id, answer)) => {
                self.calls.remove(&id);
                Some(CompletedCall::Answered(answer))
            }
            Err(error) => Some(CompletedCall::Panicked(self.calls.remove(&error.id())?, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicked_call_ends_with_an_error_and_others_with_their_output() {
        let mut calls: PendingCalls<u8, &str> = PendingCalls::default();
        calls.start(1, async { panic!("panic of the test") });
        let Some(CompletedCall::Panicked(1, error)) = calls.next().await else {
            panic!("no panic")
        };
        let error = panic_error(&error);
        assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "Internal"));
        calls.start(2, async { "done" });
        assert_eq!(calls.in_progress(), 1);
        assert!(matches!(calls.next().await, Some(CompletedCall::Answered("done"))));
        assert!(calls.calls.is_empty() && calls.next().await.is_none());
    }
}
