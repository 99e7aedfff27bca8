//! Sources of the desired state.

pub mod desired;
pub mod file;
mod read;
mod regular;

pub use read::{List, files, parse_texts, read};

use config::checked::Config;
use state::name::Source;
use state::sources::removals::{Permit, RemovalLimit};
use state::sources::{Limits, Setting, Settings};

/// Default path of the configuration.
pub const CONFIG: &str = "/etc/weir/weir.toml";

/// Returns the sources that read files.
pub fn file_sources() -> [Source; 2] {
    [read::file_source(), read::kubernetes_source()]
}

/// Returns the settings of the sources that use the API.
pub fn settings(config: &Config) -> Settings {
    let one = |source: &config::checked::SourceSettings| {
        let setting = Setting { lease_s: source.lease_s, on_expiry: source.on_expiry };
        (Source::new(&source.name), setting)
    };
    let sources = config.sources.iter().map(one).collect();
    let removals = removal_limit(config);
    Settings { sources, own: file_sources().to_vec(), limits: Limits::default(), removals }
}

fn removal_limit(config: &Config) -> RemovalLimit {
    RemovalLimit { percent: config.control.max_removal_percent }
}

/// Returns what a list of the files may remove.
pub fn permit(list: &List, config: &Config) -> Permit {
    match list.allow_removal {
        true => Permit::Any,
        false => Permit::Within(removal_limit(config)),
    }
}
