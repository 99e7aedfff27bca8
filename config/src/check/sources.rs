//! Validation of the `[[source]]` sections, whose order is the precedence of the sources.

use super::validator::Validator;
use crate::checked::SourceSettings;
use crate::file;

/// Maximum number of sources: precedence values stay small numbers.
const MAX_SOURCES: usize = 64;

pub(super) fn check(validator: &mut Validator, files: Vec<file::Source>) -> Vec<SourceSettings> {
    let names = files.iter().enumerate();
    let names: Vec<(String, String)> =
        names.map(|(i, file)| (format!("source.{i}.name"), file.name.clone())).collect();
    for (key, name) in &names {
        validator.name(key, name);
    }
    validator.unique(&names, "name");
    if names.len() > MAX_SOURCES {
        let fault = format!("{} sources in all", names.len());
        validator.reject("source", &fault, &format!("allowed: {MAX_SOURCES}"));
    }
    let checked = |file: file::Source| {
        let file::Source { name, lease_s, on_expiry } = file;
        SourceSettings { name, lease_s, on_expiry }
    };
    files.into_iter().map(checked).collect()
}
