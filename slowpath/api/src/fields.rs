//! The query parameter `fields=name,spec.frontends`, which reduces documents to some of their
//! fields.

use serde_json::{Map, Value};

use crate::problem::Problem;

/// Paths of the selected fields; empty selects all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<Vec<String>>);

/// Maximum number of paths.
const MAX_PATHS: usize = 64;

impl Fields {
    /// Parses a comma-separated list of paths.
    pub fn read(text: &str) -> Result<Fields, Problem> {
        let good = |key: &str| {
            !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
        };
        let paths: Vec<Vec<String>> = text
            .split(',')
            .filter(|path| !path.is_empty())
            .map(|path| path.split('.').map(str::to_owned).collect())
            .collect();
        if paths.len() > MAX_PATHS || paths.iter().flatten().any(|key| !good(key)) {
            let wrong = format!("fields: write at most {MAX_PATHS} paths: `name,spec.frontends`");
            return Err(Problem::bad_request(wrong));
        }
        Ok(Fields(paths))
    }

    /// Returns the document reduced to the selected fields. Paths apply to each element of a list.
    pub fn of(&self, document: Value) -> Value {
        if self.0.is_empty() {
            return document;
        }
        let paths: Vec<&[String]> = self.0.iter().map(Vec::as_slice).collect();
        select(document, &paths)
    }
}

/// Returns the parts of a document that the paths select.
fn select(document: Value, paths: &[&[String]]) -> Value {
    match document {
        // A path ends here, which selects everything below.
        all if paths.iter().any(|path| path.is_empty()) => all,
        Value::Array(list) => list.into_iter().map(|one| select(one, paths)).collect(),
        Value::Object(map) => {
            let mut some = Map::new();
            for (key, value) in map {
                let within = paths.iter().filter_map(|path| path.split_first());
                let within: Vec<&[String]> =
                    within.filter(|(first, _)| **first == key).map(|(_, rest)| rest).collect();
                if !within.is_empty() {
                    some.insert(key, select(value, &within));
                }
            }
            Value::Object(some)
        }
        plain => plain,
    }
}
