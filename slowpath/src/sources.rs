//! Who says what should be.

pub mod file;
pub mod objects;
mod read;

use state::name::Source;

/// The sources that speak through files.
pub fn of_files() -> [Source; 2] {
    [objects::source(), read::kubernetes_source()]
}
