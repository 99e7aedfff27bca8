//! What the operator writes, checked: layers, two types, and errors that say what to type.
//!
//! `file.rs` is the configuration as written, `checked.rs` as needed, `check.rs` makes the one of
//! the other; `services/` has the same for the services file. Everything past this crate sees the
//! checked types only.

#![forbid(unsafe_code)]

mod check;
pub mod checked;
mod environment;
mod error;
mod file;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
mod layers;
pub mod private_link;
pub mod protocol;
mod report;
pub mod rfc3339;
mod schema;
pub mod secret_file;
mod secrets;
mod seed;
pub mod services;
mod wrong;
pub mod yaml;

use std::path::Path;

use figment::value::Dict;

pub use checked::Config;
pub use error::{ConfigError, Problem, Which};
use layers::{Merged, Written};
pub use report::report;
pub use services::Services;
pub use wrong::Wrong;

/// The configuration out of all layers: defaults, `file`, the environment (`WEIR_INGRESS__MTU`),
/// and `sets` (`ingress.mtu=9001`).
pub fn load(file: Option<&Path>, sets: &[String]) -> Result<Config, ConfigError> {
    let file = file.map(|path| Written::read(path, Which::Configuration)).transpose()?;
    let schema = serde_json::Value::from(schemars::schema_for!(file::File));
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    let (wrong, strange) = environment::strangers(&schema, variables);
    if !wrong.is_empty() {
        return Err(ConfigError::wrong(wrong));
    }
    let sections = schema["properties"].as_object().into_iter().flat_map(|p| p.keys().cloned());
    let merged = Merged::new(defaults(), file, Some(sections.collect()), sets)?;
    let mut config = check::check(&merged)?;
    seed::find(&mut config)?;
    config.warnings.extend(checked::machine::warnings(&config, Path::new("/")));
    config.warnings.extend(secrets::exposed(&config));
    config.warnings.extend(strange);
    Ok(config)
}

/// As [`load`], for a program that moves or steers packets: what such programs generate and keep is
/// made where it is missing.
pub fn load_to_run(file: Option<&Path>, sets: &[String]) -> Result<Config, ConfigError> {
    let mut config = load(file, sets)?;
    seed::make(&mut config)?;
    Ok(config)
}

/// The configuration that `text` makes over the defaults, independent of environment and machine.
pub fn from_toml(text: &str) -> Result<Config, ConfigError> {
    let file = Written::parse("weir.toml", text.to_owned())?;
    check::check(&Merged::new(defaults(), Some(file), None, &[])?)
}

/// The services file, checked against itself and `config`.
pub fn load_services(path: &Path, config: &Config) -> Result<Services, ConfigError> {
    services_of(Written::read(path, Which::Services)?, config)
}

/// As [`load_services`], out of a text that is called so.
pub fn services_from(name: &str, text: &str, config: &Config) -> Result<Services, ConfigError> {
    services_of(Written::parse(name, text.to_owned())?, config)
}

/// As [`load_services`], out of a text.
pub fn services_from_toml(text: &str, config: &Config) -> Result<Services, ConfigError> {
    services_of(Written::parse("services.toml", text.to_owned())?, config)
}

/// As [`load_services`], out of a text in YAML: the same keys.
pub fn services_from_yaml(text: &str, config: &Config) -> Result<Services, ConfigError> {
    services_of(Written::parse("services.yaml", text.to_owned())?, config)
}

fn services_of(file: Written, config: &Config) -> Result<Services, ConfigError> {
    services::check(&Merged::new(Dict::new(), Some(file), None, &[])?, config)
}

/// The lowest layer.
fn defaults() -> Dict {
    let value = figment::value::Value::serialize(file::File::default());
    // The type is ours and serializes; an empty layer would only miss the defaults.
    value.ok().and_then(figment::value::Value::into_dict).unwrap_or_default()
}

/// The key reference, as it stands in KEYS.md.
pub fn key_reference() -> String {
    let config = serde_json::Value::from(schemars::schema_for!(file::File));
    format!(
        "# Keys\n\nGenerated from the types by `cargo run -p config --example keys > \
         config/KEYS.md`; do not edit.\n\nLayers, later ones win: defaults, the file \
         (`--config`), the environment (`WEIR_INGRESS__MTU=9001`: sections joined by `__`), the \
         command line (`--set ingress.mtu=9001`). A list is replaced as a whole.\n\n`gateway`, \
         `source`, `nat`, `flows`, `punt`, `icmp`, `ingress.ipip_sources`, `egress.ipip_sources`, \
         `tables.maglev_size` and `control.max_removal_percent` may change while Weir runs: save the file. Every other key takes a restart, and says so.\n\n{}\n{}",
        schema::reference(&config, "The configuration"),
        schema::reference(&services::schema(), "The services file"),
    )
}
