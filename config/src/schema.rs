//! JSON schema of the configuration types, used to validate all values at once before they are
//! deserialized, and to generate the key reference.

use serde_json::Value as Json;

use crate::error::ConfigProblem;
use crate::layers::{Merged, display_path, join};

/// Keyword of the schema with the use of a key, for `weir backup` and `weir restore`; written at
/// the key: `#[schemars(extend("x-weir" = "machine"))]`. Keys without it have the same value on all
/// machines of a set. `key_use.rs` has the values.
const USE: &str = "x-weir";

/// Returns a problem for each unknown or missing key, wrong type, number out of range and unknown
/// choice.
pub(crate) fn check(merged: &Merged, schema: &Json) -> Vec<ConfigProblem> {
    let mut validator = SchemaValidator { merged, root: schema, problems: Vec::new() };
    validator.value(&merged.json, schema, "");
    validator.problems
}

struct SchemaValidator<'a> {
    merged: &'a Merged,
    root: &'a Json,
    problems: Vec<ConfigProblem>,
}

impl SchemaValidator<'_> {
    fn report(&mut self, path: &str, fault: String, remedy: String) {
        self.problems.push(self.merged.problem(path, &fault, &remedy));
    }

    fn value(&mut self, value: &Json, schema: &Json, path: &str) {
        let schema = resolve(self.root, schema);
        let kind = kind(schema);
        match (value, kind) {
            (Json::Object(map), "object") => self.object(map, schema, path),
            (Json::Array(list), "array") => {
                for (i, item) in list.iter().enumerate() {
                    self.value(item, &schema["items"], &join(path, &i.to_string()));
                }
            }
            // A single string is accepted as a list of one.
            (Json::String(_), "array") if kind_of_items(self.root, schema) == "string" => {}
            (Json::Number(number), "integer") => self.range(number.as_i64(), schema, path),
            (Json::String(text), "string") => self.choice(text, schema, path),
            (Json::Bool(_), "boolean") => {}
            (Json::Null, _) => {}
            // The parser passes floats on as strings, since no key is a float.
            (Json::String(text), "integer")
                if text.trim_start_matches('.').parse::<i64>().is_err()
                    && text
                        .to_lowercase()
                        .replace(".inf", "inf")
                        .replace(".nan", "nan")
                        .parse::<f64>()
                        .is_ok() =>
            {
                self.not_whole(text, schema, path);
            }
            (found, kind) => {
                let mut remedy = format!("write {}", type_phrase(kind));
                if kind == "string" {
                    remedy += ", in double quotes";
                }
                self.report(path, format!("this is {}", type_phrase(type_of(found))), remedy);
            }
        }
    }

    fn object(&mut self, map: &serde_json::Map<String, Json>, schema: &Json, path: &str) {
        let properties = schema["properties"].as_object();
        let known: Vec<&str> =
            properties.iter().flat_map(|p| p.keys().map(String::as_str)).collect();
        for (key, value) in map {
            let at = join(path, key);
            match (properties.and_then(|p| p.get(key)), &schema["additionalProperties"]) {
                (Some(property), _) => self.value(value, property, &at),
                (None, free @ Json::Object(_)) => self.value(value, free, &at),
                (None, _) => {
                    let mut remedy = format!("known keys: {}", known.join(", "));
                    if let Some(near) = nearest(key, &known) {
                        remedy = format!("did you mean `{near}`? {remedy}");
                    }
                    self.problems.push(self.merged.unknown(&at, &remedy));
                }
            }
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for key in required.filter_map(Json::as_str).filter(|k| !map.contains_key(*k)) {
            let about = description(&schema["properties"][key]);
            self.report(&join(path, key), "this key is missing".into(), about);
        }
    }

    fn range(&mut self, number: Option<i64>, schema: &Json, path: &str) {
        let (min, max) = bounds(schema);
        if !number.is_some_and(|n| (min..=max).contains(&n)) {
            self.report(path, "out of range".into(), format!("allowed: {min} to {max}"));
        }
    }

    /// Reports a number that is not an integer: 1.5, nan, inf.
    fn not_whole(&mut self, text: &str, schema: &Json, path: &str) {
        let (min, max) = bounds(schema);
        let remedy = format!("write a whole number from {min} to {max}");
        let mut problem = self.merged.problem(path, "this is not a whole number", &remedy);
        problem.found = text.to_owned();
        self.problems.push(problem);
    }

    fn choice(&mut self, text: &str, schema: &Json, path: &str) {
        let choices = choices(schema);
        if !choices.is_empty() && !choices.contains(&text) {
            let near = nearest(text, &choices)
                .map_or_else(String::new, |near| format!("did you mean \"{near}\"? "));
            let remedy = format!("{near}allowed: \"{}\"", choices.join("\", \""));
            self.report(path, "unknown value".into(), remedy);
        }
    }
}

/// Follows references, and resolves an optional value to the schema of the value.
fn resolve<'a>(root: &'a Json, mut schema: &'a Json) -> &'a Json {
    for _ in 0..8 {
        if let Some(name) = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
            schema = &root["$defs"][name];
        } else if let Some(first) = schema["anyOf"].get(0) {
            schema = first;
        } else {
            break;
        }
    }
    schema
}

fn kind(schema: &Json) -> &str {
    let kind = &schema["type"];
    let kind = kind.as_str().or_else(|| kind.get(0)?.as_str());
    kind.unwrap_or(if choices(schema).is_empty() { "value" } else { "string" })
}

fn kind_of_items<'a>(root: &'a Json, schema: &'a Json) -> &'a str {
    kind(resolve(root, &schema["items"]))
}

fn choices(schema: &Json) -> Vec<&str> {
    let plain = schema["enum"].as_array().into_iter().flatten();
    let named = schema["oneOf"].as_array().into_iter().flatten();
    let named = named.flat_map(|one| {
        let listed = one["enum"].as_array().into_iter().flatten();
        listed.chain(std::iter::once(&one["const"]))
    });
    plain.chain(named).filter_map(Json::as_str).collect()
}

/// Returns the range of an integer: that of the schema, limited by that of its type.
fn bounds(schema: &Json) -> (i64, i64) {
    let type_max = match schema["format"].as_str() {
        Some("uint8") => 255,
        Some("uint16") => 65_535,
        Some("uint32") => i64::from(u32::MAX),
        _ => i64::MAX,
    };
    let min = schema["minimum"].as_i64().unwrap_or(0);
    (min, schema["maximum"].as_i64().unwrap_or(type_max).min(type_max))
}

fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn type_phrase(kind: &str) -> &'static str {
    match kind {
        "boolean" => "true or false",
        "integer" => "a whole number",
        "string" => "a string",
        "array" => "a list",
        "object" => "a section",
        _ => "a value",
    }
}

fn description(schema: &Json) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}

/// Returns the most similar known word, if it differs in at most two letters, or in a third of its
/// length if that is more.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|k| (distance(word, k), *k)).min()?;
    (near.0 <= 2.max(near.1.len() / 3)).then_some(near.1)
}

/// Returns the Levenshtein distance in bytes.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut substitution = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let cost = substitution + usize::from(x != y);
            substitution = row[j + 1];
            row[j + 1] = cost.min(substitution + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Returns the dotted names of all keys, without those of sections and of list elements.
pub(crate) fn keys(root: &Json) -> Vec<String> {
    let mut keys = Vec::new();
    collect_keys(root, root, "", &mut keys);
    keys.into_iter().map(|(key, _)| key).collect()
}

/// Returns each key that has a use, with the use.
pub(crate) fn keys_with_use(root: &Json) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    collect_keys(root, root, "", &mut keys);
    keys.into_iter().filter_map(|(key, key_use)| Some((key, key_use?))).collect()
}

fn collect_keys(root: &Json, schema: &Json, path: &str, keys: &mut Vec<(String, Option<String>)>) {
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let (at, inner) = (join(path, key), resolve(root, property));
        match inner["properties"].is_object() {
            true => collect_keys(root, inner, &at, keys),
            false => keys.push((at, property[USE].as_str().map(str::to_owned))),
        }
    }
}

/// A value of a configuration whose key has a use.
pub(crate) struct UsedValue<'j> {
    /// Path of the value, with the indices of lists.
    pub(crate) path: String,
    /// The use of its key.
    pub(crate) key_use: &'j str,
    /// The value.
    pub(crate) value: &'j Json,
}

/// Returns the values of all keys that have a use, also in elements of lists.
pub(crate) fn used_values<'j>(root: &'j Json, values: &'j Json) -> Vec<UsedValue<'j>> {
    let mut used = Vec::new();
    collect_used(root, root, values, "", &mut used);
    used
}

fn collect_used<'j>(
    root: &'j Json,
    schema: &'j Json,
    values: &'j Json,
    path: &str,
    used: &mut Vec<UsedValue<'j>>,
) {
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let (Some(value), path) = (values.get(key), join(path, key)) else { continue };
        let inner = resolve(root, property);
        if let Some(key_use) = property[USE].as_str() {
            used.push(UsedValue { path, key_use, value });
        } else if kind(inner) == "object" {
            collect_used(root, inner, value, &path, used);
        } else if kind(inner) == "array" {
            let items = resolve(root, &inner["items"]);
            for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                collect_used(root, items, item, &join(&path, &number.to_string()), used);
            }
        }
    }
}

/// Returns the keys, also in elements of lists, whose value is free text, a list or a map, and that
/// have no use.
#[cfg(test)]
pub(crate) fn free_keys_without_use(root: &Json) -> Vec<String> {
    fn collect(root: &Json, schema: &Json, path: &str, keys: &mut Vec<String>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let (at, inner) = (join(path, key), resolve(root, property));
            let items = resolve(root, &inner["items"]);
            let is_free = match kind(inner) {
                "string" => choices(inner).is_empty(),
                "array" => !items["properties"].is_object(),
                "object" => !inner["properties"].is_object(),
                _ => false,
            };
            if is_free && property[USE].is_null() {
                keys.push(at.clone());
            }
            collect(root, inner, &at, keys);
            collect(root, items, &at, keys);
        }
    }
    let mut keys = Vec::new();
    collect(root, root, "", &mut keys);
    keys
}

/// Returns the key reference of a schema as Markdown tables, one section per table of the file.
pub(crate) fn reference(root: &Json, title: &str) -> String {
    let mut out = format!("## {title}\n\n");
    section(root, root, "", &mut out);
    out
}

fn section(root: &Json, schema: &Json, path: &str, out: &mut String) {
    let (mut sections, mut rows) = (Vec::new(), String::new());
    let head = "| key | type | default | meaning |\n|---|---|---|---|\n";
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let inner = resolve(root, property);
        let items = resolve(root, &inner["items"]);
        let (below, many) = match kind(inner) {
            "object" if inner["properties"].is_object() => (Some(inner), false),
            "array" if kind(items) == "object" => (Some(items), true),
            _ => (None, false),
        };
        if let Some(below) = below {
            sections.push((join(path, key), description(property), below, many));
            continue;
        }
        let names = schema["required"].as_array();
        let is_required = names.is_some_and(|names| names.contains(&Json::from(&**key)));
        let default = match default(root, property) {
            _ if is_required => "required".into(),
            Json::Null => "–".into(),
            value => format!("`{value}`"),
        };
        let meaning = description(property);
        rows += &format!("| `{key}` | {} | {default} | {meaning} |\n", type_text(root, inner));
    }
    if !rows.is_empty() {
        *out += &format!("{head}{rows}");
    }
    for (at, meaning, below, many) in sections {
        let name = if many { format!("[[{at}]]") } else { format!("[{at}]") };
        *out += &format!("\n### `{}`\n{meaning}\n\n", display_path(&name));
        section(root, below, &at, out);
    }
}

/// Returns the default of a key; null for an optional key. The schema lacks the default of a key
/// that is skipped in serialization when it has its type's default. Such a key gets that default
/// here; for an enum it is the first variant.
pub(crate) fn default(root: &Json, property: &Json) -> Json {
    let schema = resolve(root, property);
    let is_nullable = property["anyOf"].is_array() || schema["type"].is_array();
    match (&property["default"], kind(schema)) {
        (Json::Null, _) if is_nullable => Json::Null,
        (Json::Null, "integer") => 0.into(),
        (Json::Null, "boolean") => false.into(),
        (Json::Null, "array") => Json::Array(Vec::new()),
        (Json::Null, "string") => {
            choices(schema).first().map_or_else(|| "".into(), |c| (*c).into())
        }
        (default, _) => default.clone(),
    }
}

fn type_text(root: &Json, schema: &Json) -> String {
    match kind(schema) {
        "integer" => {
            let (min, max) = bounds(schema);
            format!("{min} to {max}")
        }
        "array" => format!("list of {}s", kind_of_items(root, schema)),
        "string" if !choices(schema).is_empty() => choices(schema).join(", "),
        "object" => "table".into(),
        other => other.into(),
    }
}
