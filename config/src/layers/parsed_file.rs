//! Parsing of configuration files, with the positions of keys and values.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use figment::value::{Dict, Value};
use miette::NamedSource;
use serde_json::{Map, Value as Json};
use toml::de::{DeTable, DeValue};

use super::key::join;
use crate::error::{ConfigError, ConfigProblem, FileKind, Text};
use crate::yaml::{Document, Documents, Spans, YamlError};

/// A parsed file, TOML or YAML, with the positions of its keys and values.
pub(crate) struct ParsedFile {
    pub(super) text: Text,
    pub(crate) name: String,
    pub(super) dict: Dict,
    pub(super) spans: Spans,
}

impl ParsedFile {
    pub(crate) fn read(path: &Path, kind: FileKind) -> Result<ParsedFile, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|reason| ConfigError::Unreadable {
            path: path.to_owned(),
            kind,
            reason,
        })?;
        ParsedFile::parse(&path.display().to_string(), text)
    }

    /// Parses a text, or returns its syntax errors: all errors of TOML, the first error of YAML.
    ///
    /// The extension of `name` selects the format: `toml`, or `yaml`, `yml` and `json`, which are
    /// parsed as YAML. With any other extension, a text that is a YAML mapping is parsed as YAML,
    /// and all others as TOML.
    pub(crate) fn parse(name: &str, text: String) -> Result<ParsedFile, ConfigError> {
        let source = Arc::new(NamedSource::new(name, text.clone()));
        let first = || Documents::new(&text).next();
        let is_mapping = || matches!(first(), Some(Ok(document)) if document.value.is_object());
        let is_yaml = match name.rsplit_once('.').map_or("", |(_, end)| end) {
            "yaml" | "yml" | "json" => true,
            "toml" => false,
            _ => is_mapping(),
        };
        if is_yaml {
            return ParsedFile::yaml(name, source, &text);
        }
        let (table, errors) = DeTable::parse_recoverable(&text);
        let mut file =
            ParsedFile { text: source, name: name.into(), dict: Dict::new(), spans: Spans::new() };
        if !errors.is_empty() {
            let problems = errors.iter().map(|e| file.toml_problem(e)).collect();
            return Err(ConfigError::invalid(problems));
        }
        file.dict = file.table(table.get_ref(), "");
        Ok(file)
    }

    /// Parses a single YAML document, which has the same keys as a TOML file.
    fn yaml(name: &str, source: Text, text: &str) -> Result<ParsedFile, ConfigError> {
        let mut file =
            ParsedFile { text: source, name: name.into(), dict: Dict::new(), spans: Spans::new() };
        for (i, document) in Documents::with_spans(text).enumerate() {
            let error = match document {
                Ok(Document { value: Json::Null, .. }) => continue,
                Ok(Document { value: Json::Object(map), spans }) if i == 0 => {
                    file.dict = dict(map);
                    file.spans = spans;
                    continue;
                }
                Ok(_) if i == 0 => {
                    YamlError { at: 0, fault: "the file is not a mapping of keys to values".into() }
                }
                Ok(_) => YamlError { at: 0, fault: "there is more than one document".into() },
                Err(error) => error,
            };
            return Err(ConfigError::invalid(vec![file.yaml_problem(&error, text)]));
        }
        Ok(file)
    }

    fn yaml_problem(&self, error: &YamlError, text: &str) -> ConfigProblem {
        // A position at the end of a line, or of the text, is shown at the character before.
        let start = error.at.min(text.len().saturating_sub(1));
        let start = (0..=start).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let len = text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        let span = start..start + len;
        ConfigProblem {
            location: self.line(&span),
            key: String::new(),
            found: String::new(),
            fault: format!("invalid or unsupported YAML: {}", error.fault),
            remedy: "write `key: value`, and lists with `- ` before each item".into(),
            snippet: Some((self.text.clone(), span)),
        }
    }

    fn toml_problem(&self, error: &toml::de::Error) -> ConfigProblem {
        let span = error.span();
        ConfigProblem {
            location: span.as_ref().map_or_else(|| self.name.clone(), |s| self.line(s)),
            key: String::new(),
            found: String::new(),
            fault: format!("invalid TOML: {}", error.message()),
            remedy: "write key = value; strings in quotes, lists in [ ], sections as [name]".into(),
            snippet: span.map(|span| (self.text.clone(), span)),
        }
    }

    /// Returns the location of a position for messages, `FILE:LINE`.
    pub(super) fn line(&self, span: &Range<usize>) -> String {
        let before = self.text.inner().as_bytes().get(..span.start).unwrap_or_default();
        format!("{}:{}", self.name, before.iter().filter(|b| **b == b'\n').count() + 1)
    }

    fn table(&mut self, table: &DeTable, at: &str) -> Dict {
        let mut dict = Dict::new();
        for (key, value) in table {
            let path = join(at, key.get_ref());
            self.spans.insert(path.clone(), (key.span(), value.span()));
            dict.insert(key.get_ref().to_string(), self.value(value.get_ref(), &path));
        }
        dict
    }

    fn value(&mut self, value: &DeValue, at: &str) -> Value {
        match value {
            DeValue::String(text) => Value::from(text.as_ref()),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::from(number),
                    Err(_) => Value::from(number.to_string()),
                }
            }
            DeValue::Boolean(yes) => Value::from(*yes),
            DeValue::Array(list) => {
                let mut values = Vec::new();
                for (i, item) in list.iter().enumerate() {
                    let path = join(at, &i.to_string());
                    self.spans.insert(path.clone(), (item.span(), item.span()));
                    values.push(self.value(item.get_ref(), &path));
                }
                Value::from(values)
            }
            DeValue::Table(table) => Value::from(self.table(table, at)),
            // No key is a float or a time. The string lets the type error show the value found.
            DeValue::Float(float) => Value::from(float.to_string()),
            DeValue::Datetime(moment) => Value::from(moment.to_string()),
        }
    }
}

/// Converts a mapping. Keys with null are dropped, since TOML has no null.
fn dict(map: Map<String, Json>) -> Dict {
    let present = map.into_iter().filter(|(_, value)| !value.is_null());
    present.map(|(key, value)| (key, value_of(value))).collect()
}

fn value_of(json: Json) -> Value {
    match json {
        Json::Object(map) => Value::from(dict(map)),
        Json::Array(list) => Value::from(list.into_iter().map(value_of).collect::<Vec<Value>>()),
        Json::String(text) => Value::from(text),
        Json::Bool(yes) => Value::from(yes),
        // No key is a float. The string lets the type error show the value found.
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::from(number),
            None => Value::from(number.to_string()),
        },
        Json::Null => Value::from(""),
    }
}
