//! Configuration of the appliance and its services: parsing, merging of layers, and validation.
//!
//! `file.rs` holds the configuration as written, `checked.rs` the validated form that the rest of
//! the workspace uses, and `check.rs` converts the first into the second. `services/` does the same
//! for the services file. Only validated types leave this crate. Every error names the key, the
//! cause and the remedy.

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
mod validation_error;
pub mod yaml;

use std::path::Path;

use figment::value::Dict;

pub use checked::Config;
pub use error::{ConfigError, ConfigProblem, FileKind};
use layers::{Merged, ParsedFile};
pub use report::report;
pub use services::Services;
pub use validation_error::ValidationError;

/// Loads the configuration from all layers. Later layers win: the defaults, `file`, the environment
/// (`WEIR_INGRESS__MTU`), and `sets` (`ingress.mtu=9001`).
pub fn load(file: Option<&Path>, sets: &[String]) -> Result<Config, ConfigError> {
    let file = file.map(|path| ParsedFile::read(path, FileKind::Configuration)).transpose()?;
    let schema = serde_json::Value::from(schemars::schema_for!(file::File));
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    let (errors, warnings) = environment::check(&schema, variables);
    if !errors.is_empty() {
        return Err(ConfigError::invalid(errors));
    }
    let sections = schema["properties"].as_object().into_iter().flat_map(|p| p.keys().cloned());
    let merged = Merged::new(defaults(), file, Some(sections.collect()), sets)?;
    let mut config = check::check(&merged)?;
    seed::load(&mut config)?;
    config.warnings.extend(checked::machine::warnings(&config, Path::new("/")));
    config.warnings.extend(secrets::warnings(&config));
    config.warnings.extend(warnings);
    Ok(config)
}

/// Loads the configuration like [`load`], and creates persisted values that are missing (the table
/// seed). For programs that forward packets or control the data plane.
pub fn load_to_run(file: Option<&Path>, sets: &[String]) -> Result<Config, ConfigError> {
    let mut config = load(file, sets)?;
    seed::generate(&mut config)?;
    Ok(config)
}

/// Parses a configuration from TOML text over the defaults. Reads neither the environment nor the
/// machine's state.
pub fn from_toml(text: &str) -> Result<Config, ConfigError> {
    let file = ParsedFile::parse("weir.toml", text.to_owned())?;
    check::check(&Merged::new(defaults(), Some(file), None, &[])?)
}

/// Loads the services file and validates it, also against `config`.
pub fn load_services(path: &Path, config: &Config) -> Result<Services, ConfigError> {
    services_of(ParsedFile::read(path, FileKind::Services)?, config)
}

/// Parses services from text like [`load_services`]; `name` is used in errors and its extension
/// selects the format.
pub fn services_from(name: &str, text: &str, config: &Config) -> Result<Services, ConfigError> {
    services_of(ParsedFile::parse(name, text.to_owned())?, config)
}

/// Parses services from TOML text like [`load_services`].
pub fn services_from_toml(text: &str, config: &Config) -> Result<Services, ConfigError> {
    services_of(ParsedFile::parse("services.toml", text.to_owned())?, config)
}

/// Parses services from YAML text like [`load_services`]. The keys are those of the TOML format.
pub fn services_from_yaml(text: &str, config: &Config) -> Result<Services, ConfigError> {
    services_of(ParsedFile::parse("services.yaml", text.to_owned())?, config)
}

fn services_of(file: ParsedFile, config: &Config) -> Result<Services, ConfigError> {
    services::check(&Merged::new(Dict::new(), Some(file), None, &[])?, config)
}

/// Returns the lowest layer: the defaults of all keys.
fn defaults() -> Dict {
    let value = figment::value::Value::serialize(file::File::default());
    // `File` always serializes; if it did not, an empty layer would miss nothing but the defaults.
    value.ok().and_then(figment::value::Value::into_dict).unwrap_or_default()
}

/// Returns the key reference in Markdown, the contents of KEYS.md.
pub fn key_reference() -> String {
    let config = serde_json::Value::from(schemars::schema_for!(file::File));
    format!(
        "# Keys\n\nGenerated from the types by `cargo run -p config --example keys > \
         config/KEYS.md`; do not edit.\n\nLayers, later ones win: defaults, the file \
         (`--config`), the environment (`WEIR_INGRESS__MTU=9001`: sections joined by `__`), the \
         command line (`--set ingress.mtu=9001`). A list is replaced as a whole.\n\n`gateway`, \
         `source`, `nat`, `flows`, `punt`, `icmp`, `ingress.ipip_sources`, `egress.ipip_sources`, \
         `tables.maglev_size` and `control.max_removal_percent` may \
         change while Weir runs: save the file. A change of any other key requires a restart, \
         which slowpath reports.\n\n{}\n{}",
        schema::reference(&config, "The configuration"),
        schema::reference(&services::schema(), "The services file"),
    )
}
