//! The packages and the image under test.

use crate::Result;
use std::path::{Path, PathBuf};

/// Returns the directory of build results.
pub fn target() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(3).ok_or("the test is not in target/PROFILE/deps")?;
    Ok(target.to_owned())
}

/// Returns the package of this name, which the test's make target made.
pub fn package(name: &str) -> Result<PathBuf> {
    package_in(&target()?.join("deb"), name)
}

/// Returns the file of this name that `make image` built.
pub fn image(name: &str) -> Result<PathBuf> {
    let path = target()?.join("image").join(name);
    match path.exists() {
        true => Ok(path),
        false => Err(format!("no {}; run: make image-test", path.display()).into()),
    }
}

/// Returns the package of this name in a folder.
pub fn package_in(folder: &Path, name: &str) -> Result<PathBuf> {
    let missing =
        || format!("no {name}_*.deb in {}; run the test by its make target", folder.display());
    let mut files = std::fs::read_dir(folder).map_err(|_| missing())?;
    let found = files.find_map(|file| {
        let path = file.ok()?.path();
        let start = format!("{name}_");
        path.file_name()?.to_str()?.starts_with(&start).then_some(path)
    });
    Ok(found.ok_or_else(missing)?)
}

/// Returns the directory of the repository.
pub fn repository() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own)
}
