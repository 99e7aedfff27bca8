//! Validation of sources, in the order of their precedence.

use super::door::Door;
use crate::checked::SourceOf;
use crate::file;

/// Maximum number of sources; keeps precedence values small.
const MOST: usize = 64;

pub(super) fn sources(door: &mut Door, files: Vec<file::Source>) -> Vec<SourceOf> {
    let names = files.iter().enumerate();
    let names: Vec<(String, String)> =
        names.map(|(i, file)| (format!("source.{i}.name"), file.name.clone())).collect();
    for (key, name) in &names {
        door.name(key, name);
    }
    door.unique(&names, "name");
    if names.len() > MOST {
        let wrong = format!("{} sources in all", names.len());
        door.refuse("source", &wrong, &format!("allowed: {MOST}"));
    }
    let checked = |file: file::Source| {
        let file::Source { name, lease_s, on_expiry } = file;
        SourceOf { name, lease_s, on_expiry }
    };
    files.into_iter().map(checked).collect()
}
