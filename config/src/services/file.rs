//! The services file as it is written: a list of services, each with its backends.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::backend::BackendSpec;
use super::spec::ServiceSpec;

/// The services file. Its schema serves the key reference and the check of unknown keys; values
/// are read part by part, so that all faults are reported at once.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct ServicesFile {
    /// Take what the files say even where it removes all services, or more than
    /// `control.max_removal_percent` of what they said before. In a folder it is for all files.
    /// Remove the key once the removal is made: as long as it is there, nothing is held back.
    #[schemars(default)]
    allow_removal: bool,
    /// A service; one section each.
    #[schemars(default)]
    service: Vec<Service>,
}

/// A service.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct Service {
    /// `[cluster/]namespace/name` or a single word, unique, at most 120 bytes.
    name: String,
    /// For choosing among services.
    #[schemars(default)]
    labels: BTreeMap<String, String>,
    /// For whoever understands them.
    #[schemars(default)]
    annotations: BTreeMap<String, String>,
    #[schemars(flatten)]
    spec: ServiceSpec,
    /// Who serves; empty drops its packets as `no-backend`.
    #[schemars(default)]
    backends: Vec<BackendSpec>,
}
