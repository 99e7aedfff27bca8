//! Who says what should be.

pub mod file;
mod read;

use state::name::Source;

/// The sources that speak through files.
pub fn of_files() -> [Source; 2] {
    [read::own_source(), read::kubernetes_source()]
}
