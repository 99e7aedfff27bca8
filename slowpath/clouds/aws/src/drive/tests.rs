//! What can't be met from outside; the rest is in `tests/drive.rs`.

use std::collections::HashMap;

use tokio::task::JoinSet;

use super::ask::{self, joined};
use crate::life::{Answer, Call};
use crate::told::Failure;

#[tokio::test]
async fn a_task_that_broke_has_an_answer_and_one_that_did_not_has_its_own() {
    let (mut calls, mut asked) = (JoinSet::new(), HashMap::new());
    let broken = calls.spawn(async { panic!("a test breaks it") });
    asked.insert(broken.id(), Call::Register);
    let told = joined(calls.join_next_with_id().await.unwrap(), &mut asked);
    let Some((Answer::Registered(Err(error)), None)) = told else { panic!("{told:?}") };
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "Broken"));
    let whole = calls.spawn(async { (Answer::Heartbeat(Ok(())), None) as ask::Told });
    asked.insert(whole.id(), Call::Heartbeat);
    let told = joined(calls.join_next_with_id().await.unwrap(), &mut asked);
    assert!(matches!(told, Some((Answer::Heartbeat(Ok(())), None))));
    assert!(asked.is_empty());
}
