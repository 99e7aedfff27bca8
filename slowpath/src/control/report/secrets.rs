//! Status of the secrets of the API over TCP.

use std::sync::Arc;
use std::time::Duration;

use api::credentials::{CredentialStatus, Credentials};

use super::SecretStatus;

/// Returns the status of each secret that was read.
pub(crate) fn secrets(credentials: Option<&Arc<Credentials>>) -> Vec<SecretStatus> {
    let all = credentials.map(|credentials| credentials.status()).unwrap_or_default();
    all.into_iter().map(secret).collect()
}

fn secret(of: CredentialStatus) -> SecretStatus {
    let valid_until = of.validity.map(|validity| config::rfc3339::format(validity.until));
    // Rounded up: 0 would say that the overlap has ended.
    let seconds = |left: Duration| left.as_secs() + u64::from(left.subsec_nanos() > 0);
    SecretStatus {
        key: of.key.to_owned(),
        path: of.path.display().to_string(),
        error: of.error,
        warnings: of.warnings,
        valid_until,
        overlap_left_s: of.overlap_left.map(seconds),
    }
}
