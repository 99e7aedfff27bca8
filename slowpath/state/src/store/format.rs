//! Formats of the stored lines, and the steps between them.
//!
//! A store keeps the format in which it was found, so that the previous version of Weir can still
//! read it, until [`super::Store::commit_format`]. An empty store begins with the newest format. A
//! snapshot in a format later than 2 begins with a line that names the format; the log has the same
//! format. Format 1 had other record headers (`record.rs`), and the lines of format 2.
//!
//! A change of the format adds a [`Step`] here in the same commit: in both directions, because a
//! version also writes all earlier formats that its steps reach.

use serde::Serialize;
use serde_json::Value;

use super::record::Line;
use crate::object::ChangeError;

/// Format of files that name no format.
pub(super) const UNNAMED: u32 = 2;

/// Conversion between two successive formats. Lines have the JSON form of [`Line`].
pub(super) struct Step {
    /// Converts a line of the earlier format to the later one.
    up: fn(&mut Value),
    /// Converts a line of the later format to the earlier one. The error is what the earlier
    /// format cannot express.
    down: fn(&mut Value) -> Result<(), String>,
}

/// The formats that a version reads and writes: from [`UNNAMED`] to its own, the newest.
pub(super) struct Formats {
    /// All steps, from [`UNNAMED`] on.
    steps: &'static [Step],
    /// Conversion of this program's lines to the newest format, and back. `None` in releases, whose
    /// lines are in the newest format; set in tests, in which this program acts as a later version.
    newest: Option<[fn(&mut Value); 2]>,
}

/// Formats of this version.
#[cfg(not(feature = "next-format"))]
pub(super) const FORMATS: &Formats = &Formats { steps: &[], newest: None };
#[cfg(feature = "next-format")]
pub(super) const FORMATS: &Formats = NEXT;

/// Formats of a later version, for tests: the key `source` of an object is called `writer`, and
/// only this format can express the label `shadow`.
#[cfg(any(test, feature = "next-format"))]
pub(super) const NEXT: &Formats = &Formats {
    steps: &[Step {
        up: to_next,
        down: |line| {
            if line.pointer("/put/labels/shadow").is_some() {
                return Err("label `shadow`".to_owned());
            }
            from_next(line);
            Ok(())
        },
    }],
    newest: Some([to_next, from_next]),
};

#[cfg(any(test, feature = "next-format"))]
fn to_next(line: &mut Value) {
    rename(line, "source", "writer");
}

#[cfg(any(test, feature = "next-format"))]
fn from_next(line: &mut Value) {
    rename(line, "writer", "source");
}

#[cfg(any(test, feature = "next-format"))]
fn rename(line: &mut Value, from: &str, to: &str) {
    let object = line.pointer_mut("/put").and_then(Value::as_object_mut);
    if let Some((object, value)) = object.and_then(|o| o.remove(from).map(|value| (o, value))) {
        object.insert(to.to_owned(), value);
    }
}

/// A line as it is stored.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum StoredLine {
    /// In the newest format.
    Own(Line),
    /// In another format, as JSON.
    Other(Value),
}

impl Formats {
    /// Returns the newest format.
    pub(super) const fn own(&self) -> u32 {
        UNNAMED + self.steps.len() as u32
    }

    /// Returns whether files of this format can be read and written.
    pub(super) fn contains(&self, format: u32) -> bool {
        (UNNAMED..=self.own()).contains(&format)
    }

    /// Returns the steps from a format to the newest, in ascending order.
    fn steps_after(&self, format: u32) -> &'static [Step] {
        self.steps.get((format - UNNAMED) as usize..).unwrap_or_default()
    }

    /// Converts a line for files of a format.
    ///
    /// # Errors
    /// Fails if the format cannot express the line.
    pub(super) fn encode(&self, format: u32, line: Line) -> Result<StoredLine, ChangeError> {
        let steps = self.steps_after(format);
        if steps.is_empty() && self.newest.is_none() {
            return Ok(StoredLine::Own(line));
        }
        let error = |what: String| {
            let wrong = format!(
                "{what} cannot be stored: the store still has format {format}, which the version \
                 before an upgrade reads"
            );
            let remedy = "type `weir upgrade commit`, after which there is no way back to that \
                          version";
            ChangeError::new("", wrong, remedy)
        };
        let mut stored = serde_json::to_value(line).map_err(|e| error(e.to_string()))?;
        if let Some([to_newest, _]) = self.newest {
            to_newest(&mut stored);
        }
        for step in steps.iter().rev() {
            (step.down)(&mut stored).map_err(error)?;
        }
        Ok(StoredLine::Other(stored))
    }

    /// Decodes the lines of a record in a file of this format.
    ///
    /// # Errors
    /// Fails if the content is not in this format.
    pub(super) fn decode(&self, format: u32, content: &[u8]) -> serde_json::Result<Vec<Line>> {
        let steps = self.steps_after(format);
        if steps.is_empty() && self.newest.is_none() {
            return serde_json::from_slice(content);
        }
        let mut lines: Vec<Value> = serde_json::from_slice(content)?;
        for line in &mut lines {
            steps.iter().for_each(|step| (step.up)(line));
            if let Some([_, from_newest]) = self.newest {
                from_newest(line);
            }
        }
        serde_json::from_value(Value::Array(lines))
    }
}
