//! Sources: who wins over whom, and what becomes of one that isn't heard any more.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::door::Door;
use crate::file;

/// More than anybody has, and places in the precedence stay small numbers.
const MOST: usize = 64;

/// A `[[source]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceOf {
    /// Its name, unique.
    pub name: String,
    /// Seconds of its lease unless it asks for one, at most a day; 0 for none.
    pub lease_s: u32,
    /// What becomes of what it said when its lease runs out.
    pub on_expiry: OnExpiry,
}

/// What becomes of what a source said when its lease runs out.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// It still holds.
    #[default]
    Keep,
    /// Its backends get no new flows until it is heard again.
    Quarantine,
    /// It is gone.
    Release,
}

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
