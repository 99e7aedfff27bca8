//! Sources of the desired state: files, and the settings of sources that use the API.

pub mod desired;
pub mod file;
mod read;
mod regular;

pub use read::{EXTENSIONS, List, files, parse_texts, read};
pub use regular::read as read_regular;

use config::checked::Config;
use state::name::Source;
use state::sources::removals::{Permit, RemovalLimit};
use state::sources::{Limits, Setting, Settings};

/// Default path of the configuration file.
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

/// Returns what the complete list in the files may remove.
pub fn permit(list: &List, config: &Config) -> Permit {
    match list.allow_removal {
        true => Permit::Any,
        false => Permit::Within(removal_limit(config)),
    }
}
