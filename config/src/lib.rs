//! Configuration of the appliance and its services: parsing, merging of layers, and validation.
//!
//! `file.rs` holds the configuration as written, `checked.rs` the validated form that the rest of
//! the workspace uses, and `check.rs` converts the first into the second. `services/` does the same
//! for the services file. Only validated types leave this crate. Every error names the key, the
//! cause and the remedy.

#![forbid(unsafe_code)]

pub mod atomic_file;
pub mod automatic;
mod check;
pub mod checked;
pub mod device_address;
pub mod duration;
mod environment;
mod error;
mod file;
#[cfg(any(test, feature = "fuzz"))]
pub mod harness;
mod key_use;
mod layers;
pub mod log_level;
pub mod machine_values;
pub mod plane_decision;
pub mod private_link;
pub mod protocol;
mod report;
pub mod restore_journal;
pub mod rfc3339;
mod schema;
pub mod secret_file;
pub mod secrets;
pub mod seed;
pub mod services;
mod validation_error;
pub mod yaml;

use std::path::Path;

use figment::value::Dict;

use checked::Plane;

pub use checked::Config;
pub use error::{ConfigError, ConfigProblem, FileKind};
use layers::{Merged, ParsedFile};
pub use report::report;
pub use services::Services;
pub use validation_error::ValidationError;

/// Loads and validates the configuration from all layers. The layers are the defaults, `file`, the
/// environment (`WEIR_INGRESS__MTU`), and `sets` (`ingress.mtu=9001`); later ones win. A value
/// `"auto"` is replaced by the value of this machine. `plane = "auto"` becomes the plane that `weir
/// plane decide` selected; without a decision it stays undecided.
pub fn load(file: Option<&Path>, sets: &[String]) -> Result<Config, ConfigError> {
    load_with(read(file)?, sets, plane_decision::resolve)
}

/// Loads the configuration like [`load`], with `text` in place of the contents of `file`.
pub fn load_text(file: &Path, text: &str, sets: &[String]) -> Result<Config, ConfigError> {
    let file = ParsedFile::parse(&file.display().to_string(), text.to_owned())?;
    load_with(Some(file), sets, plane_decision::resolve)
}

/// Loads the configuration like [`load`], but resolves `plane = "auto"` to `plane` and ignores the
/// decision of `weir plane decide`. For programs that already run on a plane, and for the commands
/// that decide.
pub fn load_as(file: Option<&Path>, sets: &[String], plane: Plane) -> Result<Config, ConfigError> {
    load_with(read(file)?, sets, |config| {
        config.resolve_auto(plane);
        Ok(())
    })
}

/// Loads the configuration from all layers. `resolve` resolves `plane = "auto"`.
fn load_with(
    file: Option<ParsedFile>,
    sets: &[String],
    resolve: impl FnOnce(&mut Config) -> Result<(), ConfigError>,
) -> Result<Config, ConfigError> {
    let interrupted = file.as_ref().and_then(|file| restore_journal::warning(file.name.as_ref()));
    let (merged, warnings) = merge(file, sets)?;
    let mut config = check::check(&automatic::fill(merged)?)?;
    resolve(&mut config)?;
    seed::load(&mut config)?;
    config.warnings.extend(checked::machine::warnings(&config, Path::new("/")));
    config.warnings.extend(secrets::warnings(&config));
    config.warnings.extend(warnings);
    config.warnings.extend(interrupted);
    Ok(config)
}

/// Returns the keys that are `"auto"` in the configuration of `file`, the environment and `sets`.
///
/// # Errors
/// A layer cannot be read, or has an unknown key or a value of a wrong type. Rules that involve
/// several keys are not checked, because the values that replace `"auto"` are not known yet.
pub fn auto_keys(file: Option<&Path>, sets: &[String]) -> Result<automatic::AutoKeys, ConfigError> {
    let (merged, _) = merge(read(file)?, sets)?;
    check::check_schema(&merged)?;
    Ok(automatic::AutoKeys::of(&merged))
}

/// Reads and parses the configuration file, if there is one.
fn read(file: Option<&Path>) -> Result<Option<ParsedFile>, ConfigError> {
    file.map(|path| ParsedFile::read(path, FileKind::Configuration)).transpose()
}

/// Merges the layers. Returns them with warnings about environment variables that begin with
/// `WEIR_` and are not keys.
fn merge(file: Option<ParsedFile>, sets: &[String]) -> Result<(Merged, Vec<String>), ConfigError> {
    let schema = serde_json::Value::from(schemars::schema_for!(file::File));
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    let (errors, warnings) = environment::check(&schema, variables);
    if !errors.is_empty() {
        return Err(ConfigError::invalid(errors));
    }
    let top_level = schema["properties"].as_object().into_iter().flat_map(|p| p.keys().cloned());
    let merged = Merged::new(defaults(), file, Some(top_level.collect()), sets)?;
    Ok((merged, warnings))
}

/// Loads the configuration like [`load`], requires that the plane is decided, and with `tables.seed
/// = "generate"` creates the hash seed if it does not exist yet. For programs that forward packets
/// or control the data plane.
pub fn load_to_run(file: Option<&Path>, sets: &[String]) -> Result<Config, ConfigError> {
    let mut config = load(file, sets)?;
    plane_decision::require(&config)?;
    seed::generate(&mut config)?;
    Ok(config)
}

/// Parses and validates a configuration from TOML text over the defaults. Reads neither the
/// environment nor the machine's state.
pub fn from_toml(text: &str) -> Result<Config, ConfigError> {
    let file = ParsedFile::parse("weir.toml", text.to_owned())?;
    check::check(&Merged::new(defaults(), Some(file), None, &[])?)
}

/// Loads the services file, and validates it in itself and against `config`.
pub fn load_services(path: &Path, config: &Config) -> Result<Services, ConfigError> {
    services_of(ParsedFile::read(path, FileKind::Services)?, config)
}

/// Parses services from text like [`load_services`]. Errors show `name`, and its extension selects
/// the format.
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
    // Serialization of `File` cannot fail. The empty dictionary avoids a panic here.
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
         `tables.maglev_size`, `control.max_removal_percent`, `log.level` and `log.limit` may \
         change while Weir runs: save the file (the data plane reads `log` only when it starts). \
         A change of any other key requires a restart, which slowpath reports.\n\n{}\n{}",
        schema::reference(&config, "The configuration"),
        schema::reference(&services::schema(), "The services file"),
    )
}
