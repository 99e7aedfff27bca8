//! Applications that may log in, and issued tokens.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An application that may log in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Application {
    /// Client id.
    pub client: String,
    /// Client secret.
    pub secret: String,
    /// Client assertion, which a workload identity sends instead of the secret.
    pub assertion: String,
}

/// An issued token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Token {
    /// The token itself.
    pub text: String,
    /// Time of expiry, since the emulator's start.
    pub until: Duration,
    /// Audience.
    pub audience: String,
}
