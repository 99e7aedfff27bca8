//! The services file as written: a list of services, each with its backends.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::backend::BackendSpec;
use super::spec::ServiceSpec;

/// The services file. Its schema is used for the key reference and for detecting unknown keys;
/// values are read part by part, so that all faults are reported at once.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct ServicesFile {
    /// Apply the files even if they remove all services, or more than `control.max_removal_percent`
    /// of the previous ones. In a directory it applies to all files. Remove the key after the
    /// removal: as long as it is present, no removal is held back.
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
    /// Unique name, `[cluster/]namespace/name` or a single word, at most 120 bytes.
    name: String,
    /// Labels, for selecting services.
    #[schemars(default)]
    labels: BTreeMap<String, String>,
    /// Annotations, for other components.
    #[schemars(default)]
    annotations: BTreeMap<String, String>,
    #[schemars(flatten)]
    spec: ServiceSpec,
    /// Backends of the service; if empty, its packets are dropped as `no_backend`.
    #[schemars(default)]
    backends: Vec<BackendSpec>,
}
