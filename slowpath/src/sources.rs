//! Who says what should be.

pub mod file;
mod read;

pub use read::{files, said};
use state::name::Source;

/// Where the configuration is when nobody says.
pub const CONFIG: &str = "/etc/weir/weir.toml";

/// The sources that speak through files.
pub fn of_files() -> [Source; 2] {
    [read::own_source(), read::kubernetes_source()]
}
