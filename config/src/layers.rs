//! Merging of the configuration's layers, with the origin of each value.
//!
//! The layers are the defaults, the file, `WEIR_` variables and `--set`, in this order. Later ones
//! win, key by key, and a list replaces a list. Keys are dotted paths that may contain list
//! indices: `gateway.0.sources`.

mod key;
mod parsed_file;

use std::collections::BTreeMap;
use std::ops::Range;

use figment::providers::Env;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::checked::DEFAULT_LAYER;
use crate::error::{ConfigError, ConfigProblem};

pub(crate) use key::{display_path, join};
pub(crate) use parsed_file::ParsedFile;

/// One layer; its name is used in errors and reports.
struct Layer {
    name: String,
    dict: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.dict.clone()))
    }
}

/// Returns the text, truncated to 60 characters.
pub(crate) fn truncated(text: &str) -> String {
    if text.chars().count() <= 60 {
        return text.to_owned();
    }
    text.chars().take(57).chain("...".chars()).collect()
}

/// The merged values of all layers, with their origins.
pub(crate) struct Merged {
    figment: Figment,
    value: Value,
    pub(crate) json: Json,
    file: Option<ParsedFile>,
}

impl Merged {
    /// Merges `defaults`, the file, the environment and the `--set` arguments. `top_level` has the
    /// names of all top-level keys, which distinguish keys from other variables; with `None` the
    /// environment is not read.
    pub(crate) fn new(
        defaults: Dict,
        file: Option<ParsedFile>,
        top_level: Option<Vec<String>>,
        sets: &[String],
    ) -> Result<Merged, ConfigError> {
        let mut figment = Figment::from(Layer { name: DEFAULT_LAYER.into(), dict: defaults });
        if let Some(file) = &file {
            figment = figment.merge(Layer { name: file.name.clone(), dict: file.dict.clone() });
        }
        if let Some(keys) = top_level {
            // Other variables begin with WEIR_ too: keys contain `__` or are top-level. WEIR_LOG
            // holds log levels and is not the section `log`.
            let is_top_level = move |key: &str| {
                keys.iter().any(|k| k.eq_ignore_ascii_case(key)) && !key.eq_ignore_ascii_case("log")
            };
            let env = Env::prefixed("WEIR_")
                .filter(move |key| key.as_str().contains("__") || is_top_level(key.as_str()))
                .split("__");
            figment = figment.merge(env);
        }
        for text in sets {
            figment = figment.merge(parse_set(text)?);
        }
        Merged::of(figment, file)
    }

    fn of(figment: Figment, file: Option<ParsedFile>) -> Result<Merged, ConfigError> {
        let value: Value = figment
            .extract()
            .map_err(|e| ConfigError::invalid(vec![problem_without_value(&e.to_string())]))?;
        let json = serde_json::to_value(&value)
            .map_err(|e| ConfigError::invalid(vec![problem_without_value(&e.to_string())]))?;
        Ok(Merged { figment, value, json, file })
    }

    /// Merges values over all other layers. Reports show `name` as their origin.
    pub(crate) fn with_layer(self, name: String, dict: Dict) -> Result<Merged, ConfigError> {
        Merged::of(self.figment.merge(Layer { name, dict }), self.file)
    }

    /// Returns whether a layer above the defaults sets the value at `path`.
    pub(crate) fn is_set(&self, path: &str) -> bool {
        walk(&self.value, path).is_some() && self.layer(path) != DEFAULT_LAYER
    }

    /// Deserializes the merged values.
    pub(crate) fn typed<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        T::deserialize(&self.value).map_err(|errors| {
            let all = errors.into_iter();
            let problems =
                all.map(|e| self.problem(&e.path.join("."), &e.kind.to_string(), "")).collect();
            ConfigError::invalid(problems)
        })
    }

    /// Creates a problem of the value at `path`, with the layer and the source line of the value.
    pub(crate) fn problem(&self, path: &str, fault: &str, remedy: &str) -> ConfigProblem {
        let mut layer = self.layer(path);
        let mut found = self.found(path);
        if let (true, "\"\"" | "[]", Some(file)) = (layer == DEFAULT_LAYER, &*found, &self.file) {
            // The value is an empty default: show the section of the file in which it is missing.
            (layer, found) = (file.name.clone(), String::new());
        }
        let in_file = self.file.as_ref().filter(|f| layer == f.name);
        let span = in_file.and_then(|file| Some((file, self.span(file, path)?)));
        ConfigProblem {
            location: span.as_ref().map_or(layer, |(file, span)| file.line(span)),
            key: display_path(path),
            found: truncated(&found),
            fault: fault.into(),
            remedy: remedy.into(),
            snippet: span.map(|(file, span)| (file.text.clone(), span)),
        }
    }

    /// Creates the problem of an unknown key, and underlines the key instead of its value.
    pub(crate) fn unknown(&self, path: &str, remedy: &str) -> ConfigProblem {
        let mut problem = self.problem(path, "unknown key", remedy);
        let keys = self.file.as_ref().and_then(|file| file.spans.get(path));
        if let (Some((_, span)), Some((key, _))) = (&mut problem.snippet, keys) {
            *span = key.clone();
        }
        problem
    }

    /// Returns the position of a value, or if it is absent, that of the section around it.
    fn span(&self, file: &ParsedFile, path: &str) -> Option<Range<usize>> {
        let (key, value) = file
            .spans
            .get(path)
            .or_else(|| path.rsplit_once('.').and_then(|(section, _)| file.spans.get(section)))?;
        let scalar = walk(&self.value, path).is_some_and(|v| v.as_dict().is_none());
        Some(if scalar { value.clone() } else { key.clone() })
    }

    /// Returns the value in TOML notation, or an empty string for a section or an absent value.
    fn found(&self, path: &str) -> String {
        match path.split('.').try_fold(&self.json, step) {
            None | Some(Json::Null | Json::Object(_)) => String::new(),
            Some(value) => value.to_string(),
        }
    }

    /// Returns the layer that set the value at `path`. If there is no such value, returns the layer
    /// of the section around it.
    fn layer(&self, path: &str) -> String {
        let mut at = path;
        let value = loop {
            match walk(&self.value, at) {
                // The tag of a merged section is not that of its values, so `leaf_tag` below takes
                // the tag of a value in it.
                Some(value) if !at.is_empty() => break value,
                _ => at = at.rsplit_once('.').map_or("", |(section, _)| section),
            }
            if at.is_empty() {
                break &self.value;
            }
        };
        let mut name =
            self.figment.get_metadata(leaf_tag(value)).map_or(DEFAULT_LAYER, |m| &m.name);
        if let (true, Some(file)) = (name == DEFAULT_LAYER && at.is_empty(), &self.file) {
            name = &file.name;
        }
        if name.starts_with("`WEIR_") { variable(path) } else { name.to_owned() }
    }

    /// Returns every value with the layer that set it, for the report.
    pub(crate) fn origins(&self) -> BTreeMap<String, crate::checked::Origin> {
        let mut all = BTreeMap::new();
        leaves(&self.json, "", &mut |path| {
            let (value, mut layer) = (self.found(path), self.layer(path));
            if let Some(file) = self.file.as_ref().filter(|f| f.name == layer) {
                layer = self.span(file, path).map_or(layer, |span| file.line(&span));
            }
            all.insert(display_path(path), crate::checked::Origin { value, layer });
        });
        all
    }
}

/// Returns the tag of the first leaf below `value`. figment tags each value with its layer, so it
/// identifies a layer that set a part of the section.
fn leaf_tag(value: &Value) -> figment::value::Tag {
    let first = match value {
        Value::Dict(_, dict) => dict.values().next(),
        Value::Array(_, list) => list.first(),
        _ => None,
    };
    first.map_or(value.tag(), leaf_tag)
}

fn walk<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').filter(|p| !p.is_empty()).try_fold(value, |value, part| match value {
        Value::Dict(_, dict) => dict.get(part),
        Value::Array(_, list) => list.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn step<'j>(json: &'j Json, part: &str) -> Option<&'j Json> {
    match json {
        Json::Array(list) => list.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    }
}

/// Calls `each` with the path of each value. A list without sections is one value.
fn leaves(json: &Json, at: &str, each: &mut impl FnMut(&str)) {
    match json {
        Json::Object(map) => map.iter().for_each(|(k, v)| leaves(v, &join(at, k), each)),
        Json::Array(list) if list.iter().any(Json::is_object) => {
            list.iter().enumerate().for_each(|(i, v)| leaves(v, &join(at, &i.to_string()), each));
        }
        _ => each(at),
    }
}

/// Returns the variable that set `path`: its own, or that of an enclosing section or list.
fn variable(path: &str) -> String {
    let mut at = path;
    loop {
        let name = format!("WEIR_{}", at.replace('.', "__").to_uppercase());
        match at.rsplit_once('.') {
            Some((section, _)) if std::env::var_os(&name).is_none() => at = section,
            _ => return format!("environment {name}"),
        }
    }
}

/// Parses `key=value` as a layer. The value has the syntax of an environment variable's value.
fn parse_set(text: &str) -> Result<Layer, ConfigError> {
    let name = format!("--set {text}");
    let parts = text.split_once('=').filter(|(key, _)| {
        let word = |p: &str| !p.is_empty() && !p.contains(char::is_whitespace);
        key.trim().split('.').all(word)
    });
    let Some((key, value)) = parts else {
        let mut problem = problem_without_value("not in the form key=value");
        (problem.location, problem.remedy) = (name, "for example --set ingress.mtu=9001".into());
        return Err(ConfigError::invalid(vec![problem]));
    };
    // Parsing does not fail: what is not a list, number or boolean is a string.
    let mut value: Value =
        value.trim().parse().unwrap_or_else(|_| Value::from(value.trim().to_owned()));
    let mut dict = Dict::new();
    for (depth, part) in key.trim().split('.').rev().enumerate() {
        if depth > 0 {
            value = Value::from(std::mem::take(&mut dict));
        }
        dict.insert(part.to_owned(), value.clone());
    }
    Ok(Layer { name, dict })
}

fn problem_without_value(fault: &str) -> ConfigProblem {
    ConfigProblem {
        location: "configuration".into(),
        key: String::new(),
        found: String::new(),
        fault: fault.into(),
        remedy: String::new(),
        snippet: None,
    }
}
