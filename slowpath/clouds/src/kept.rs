//! A file that remembers over restarts what the cloud told.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What is in the file; none where there is no file, or nothing in it that can be read.
pub fn read<T: DeserializeOwned>(file: Option<&Path>) -> Option<T> {
    let text = fs::read(file?).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Puts it there whole: whoever reads finds what was before, or this. Not to be able to is told,
/// and no reason to do without.
pub fn write(file: Option<&Path>, what: &impl Serialize) {
    let Some(file) = file else { return };
    if let Err(error) = put(file, what) {
        tracing::warn!("{}: our place at the cloud is not kept: {error}", file.display());
    }
}

fn put(file: &Path, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(what)?;
    let beside = file.with_extension("new");
    let mut new = File::create(&beside)?;
    new.write_all(&text)?;
    // A machine that is about to be restarted must find it afterwards.
    new.sync_all()?;
    fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_read_and_what_is_garbled_or_not_there_is_none() {
        let name = format!("weir-kept-{}.json", std::process::id());
        let file = std::env::temp_dir().join(name);
        assert_eq!(read::<Vec<u8>>(Some(&file)), None);
        write(Some(&file), &vec![1, 2]);
        write(Some(&file), &vec![3]);
        let told = (read::<Vec<u8>>(Some(&file)), file.with_extension("new").exists());
        fs::write(&file, "[3").unwrap();
        let garbled = read::<Vec<u8>>(Some(&file));
        fs::remove_file(&file).unwrap();
        assert_eq!((told, garbled), ((Some(vec![3]), false), None));
        // Nobody keeps anything, or nobody can.
        write(None, &1);
        write(Some(Path::new("/nowhere/at/all")), &1);
        assert_eq!(read::<u8>(None), None);
    }
}
