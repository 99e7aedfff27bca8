//! Published models and examples of the clouds. They are not part of this repository: the tests
//! that read them are ignored by default and run by `make fixtures FIXTURES=DIR`.

use std::path::PathBuf;

/// Returns the folder `name`, which is `aws-examples` or `azure-rest-examples`, below the one that
/// the environment variable `FIXTURES` names.
///
/// # Panics
/// Panics if the variable is not set or the folder is missing.
#[expect(clippy::panic, reason = "a test fails without its data")]
pub fn folder(name: &str) -> PathBuf {
    let Some(root) = std::env::var_os("FIXTURES") else {
        panic!(
            "FIXTURES is not set; `make fixtures FIXTURES=DIR` runs this test, DIR holds \
             aws-examples and azure-rest-examples"
        );
    };
    let folder = PathBuf::from(root).join(name);
    assert!(folder.is_dir(), "FIXTURES: there is no folder {}", folder.display());
    folder
}
