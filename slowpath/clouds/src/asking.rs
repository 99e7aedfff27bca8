//! Cloud calls in progress. Each call is its own task, so that the lifecycle never blocks on the
//! cloud.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{self, JoinError, JoinSet};

use crate::failure::{CallError, Failure, Operation};

/// The set of calls in progress: `C` identifies a call, `T` is the output of its task.
#[derive(Debug)]
pub struct Asking<C, T> {
    tasks: JoinSet<T>,
    calls: HashMap<task::Id, C>,
}

/// How a call ended.
#[derive(Debug)]
pub enum Ended<C, T> {
    /// The task returned its output.
    Answered(T),
    /// The task panicked. The caller must still complete the call, or it would stay in progress
    /// forever.
    Broken(C, JoinError),
}

/// Returns the error that stands for the answer of a call whose task panicked.
pub fn broken(error: &JoinError) -> CallError {
    let why = format!("a fault of ours, see the log: {error}");
    Operation::new("", "Task").failed(Failure::Transient, "Broken", why).error
}

impl<C, T: Send + 'static> Default for Asking<C, T> {
    fn default() -> Asking<C, T> {
        Asking { tasks: JoinSet::new(), calls: HashMap::new() }
    }
}

impl<C, T: Send + 'static> Asking<C, T> {
    /// Starts a call as a task.
    pub fn begin(&mut self, call: C, asked: impl Future<Output = T> + Send + 'static) {
        let id = self.tasks.spawn(asked).id();
        self.calls.insert(id, call);
    }

    /// Returns the number of calls in progress.
    pub fn under_way(&self) -> usize {
        self.tasks.len()
    }

    /// Waits for the next call to end; returns `None` if no call is in progress. Cancel-safe: if
    /// the future is dropped early, no result is lost.
    pub async fn next(&mut self) -> Option<Ended<C, T>> {
        match self.tasks.join_next_with_id().await? {
            Ok((id, answer)) => {
                self.calls.remove(&id);
                Some(Ended::Answered(answer))
            }
            Err(broken) => Some(Ended::Broken(self.calls.remove(&broken.id())?, broken)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_broke_has_an_answer_and_one_that_did_not_has_its_own() {
        let mut asking: Asking<u8, &str> = Asking::default();
        asking.begin(1, async { panic!("a test breaks it") });
        let Some(Ended::Broken(1, error)) = asking.next().await else { panic!("not broken") };
        let error = broken(&error);
        assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "Broken"));
        asking.begin(2, async { "told" });
        assert_eq!(asking.under_way(), 1);
        assert!(matches!(asking.next().await, Some(Ended::Answered("told"))));
        assert!(asking.calls.is_empty() && asking.next().await.is_none());
    }
}
