//! Applications that may log in, and the tokens that were issued.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Who may log in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Application {
    /// Its client id.
    pub client: String,
    /// Its secret.
    pub secret: String,
    /// What it shows instead, where it is a workload.
    pub assertion: String,
}

/// A token that was given out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Token {
    /// What is shown.
    pub text: String,
    /// It is good until then.
    pub until: Duration,
    /// For whom it is good.
    pub audience: String,
}
