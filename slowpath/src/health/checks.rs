//! The health checker: its requests, and how it is started.

mod start;

pub use start::start;

use std::sync::{Arc, OnceLock};

use health::checker::Question;
use health::counters::Counters;
use health::report::Row;
use tokio::sync::{mpsc, oneshot};

/// How the checker is asked, once it runs.
#[derive(Default)]
pub struct Checks {
    questions: OnceLock<mpsc::Sender<Question>>,
    counters: Arc<Counters>,
}

impl Checks {
    /// What it counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What it knows of each backend that it probes; nothing before it runs.
    pub async fn rows(&self) -> Vec<Row> {
        let Some(questions) = self.questions.get() else { return Vec::new() };
        let (question, answer) = oneshot::channel();
        match questions.send(question).await {
            Ok(()) => answer.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}
