//! Reads the path `services`: one file, or a folder of files, in Weir's format (TOML or YAML), as
//! objects of the API (YAML or JSON), or as Kubernetes manifests. The content is accepted as a
//! whole or not at all.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::checked::Config;
use config::yaml::{self, Documents};
use serde_json::Value;
use state::name::Source;
use state::object::{ChangeError, Key, Object};
use state::{kubernetes, services};

use super::regular;

/// File extensions that are read in a folder.
pub const EXTENSIONS: [&str; 4] = ["toml", "yaml", "yml", "json"];

/// Returns the source of files in Weir's format.
pub fn file_source() -> Source {
    Source::new("file")
}

/// Returns the source of Kubernetes manifests.
pub fn kubernetes_source() -> Source {
    Source::new("kubernetes-file")
}

/// Returns the files at a path: the path itself, or the files in the folder, sorted by name and
/// without hidden ones. An entry that is not a regular file is included and causes an error when it
/// is read.
pub fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        let hidden = file.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let end = file.extension().and_then(|end| end.to_str()).unwrap_or_default();
        if !hidden && EXTENSIONS.contains(&end) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// The complete list of objects in the files.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct List {
    /// The objects of both sources.
    pub objects: Vec<Object>,
    /// Whether one of the files permits any removal (`allow_removal`).
    pub allow_removal: bool,
}

/// Reads and checks the files at a path; an empty path yields an empty list. The error names file
/// and cause.
pub fn read(path: &Path, config: &Config) -> Result<List, String> {
    if path.as_os_str().is_empty() {
        return Ok(List::default());
    }
    let failed = |path: &Path, e: io::Error| {
        let path = path.display();
        format!("cannot read {path}: {e}; create it, or set `services` to its path")
    };
    let text = |file: PathBuf| match regular::read(&file) {
        Ok(text) => Ok((file.display().to_string(), text)),
        Err(e) => Err(failed(&file, e)),
    };
    let files = files(path).map_err(|e| failed(path, e))?;
    let texts = files.into_iter().map(text).collect::<Result<Vec<_>, String>>()?;
    let (objects, allow_removal) = parse(texts, config)?;
    let objects = objects.into_iter().map(|(_, object)| object).collect();
    Ok(List { objects, allow_removal })
}

/// Parses texts, each given with the name of its file. Returns the objects, each with the name of
/// its file.
///
/// # Errors
/// Fails if something is invalid. The message names file, line and cause.
pub fn parse_texts(
    texts: Vec<(String, String)>,
    config: &Config,
) -> Result<Vec<(String, Object)>, String> {
    parse(texts, config).map(|(objects, _)| objects)
}

/// Parses like [`parse_texts`], and also returns whether one of the texts permits any removal.
fn parse(
    texts: Vec<(String, String)>,
    config: &Config,
) -> Result<(Vec<(String, Object)>, bool), String> {
    let (mut all, mut kubernetes_texts) = (Vec::new(), Vec::new());
    let mut allow_removal = false;
    for (name, text) in texts {
        if is_kubernetes(&name, &text) {
            kubernetes_texts.push((name, text));
            continue;
        }
        if is_api_objects(&name, &text) {
            all.extend(parse_api_objects(&name, &text)?);
            continue;
        }
        let written = config::services_from(&name, &text, config).map_err(|e| e.to_string())?;
        allow_removal |= written.allow_removal;
        let own = services::objects(&written, &file_source()).map_err(|e| e.to_string())?;
        all.extend(own.into_iter().map(|object| (name.clone(), object)));
    }
    let mut objects = reject_duplicates(all)?;
    objects.extend(from_kubernetes(&kubernetes_texts, config)?);
    Ok((objects, allow_removal))
}

/// Returns whether a file is a Kubernetes manifest: its first document has an `apiVersion`.
fn is_kubernetes(name: &str, text: &str) -> bool {
    let first = || Documents::new(text).find_map(|document| document.ok());
    !name.ends_with(".toml")
        && first().is_some_and(|document| document.value["apiVersion"].is_string())
}

/// Returns whether a file has objects in the form of the API, with `kind`, `name` and `spec`, each
/// in a document or all in a list, as `weir get --output yaml` prints them.
fn is_api_objects(name: &str, text: &str) -> bool {
    let values = || Documents::new(text).filter_map(|document| Some(document.ok()?.value));
    let first = || values().find(|value| !value.is_null());
    let is_object = |value: &Value| value["kind"].is_string();
    !name.ends_with(".toml")
        && first().is_some_and(|value| match &value {
            Value::Array(list) => list.first().is_some_and(is_object),
            value => is_object(value),
        })
}

/// Parses a file of objects in the form of the API.
fn parse_api_objects(name: &str, text: &str) -> Result<Vec<(String, Object)>, String> {
    let mut all = Vec::new();
    for (number, document) in Documents::new(text).enumerate() {
        let document = document.map_err(|error| {
            let line = yaml::line(text, error.at);
            format!("{name}:{line}: invalid YAML: {error}")
        })?;
        let values = match document.value {
            Value::Null => Vec::new(),
            Value::Array(list) => {
                let path = |(at, value)| (format!("[{at}]."), value);
                list.into_iter().enumerate().map(path).collect()
            }
            value => vec![(String::new(), value)],
        };
        for (path, value) in values {
            let mut object =
                Object::from_json(&value).and_then(check_writable).map_err(|error| {
                    let line = yaml::line_of(text, number, &format!("{path}{}", error.field));
                    format!("{name}:{line}: {error}")
                })?;
            object.source = file_source();
            all.push((name.to_owned(), object));
        }
    }
    Ok(all)
}

/// Returns the object, or an error if files can't contain its kind.
fn check_writable(object: Object) -> Result<Object, ChangeError> {
    let Some(why) = object.kind().read_only_reason() else { return Ok(object) };
    let message = format!("{} cannot be defined in a file: {why}", object.kind());
    let allowed = "allowed: Service, Backends, BgpPeeringPolicy, PrivateLinkService";
    Err(ChangeError::new("kind", message, allowed).with_object(&object.key()))
}

/// Returns the objects, or an error if two of them have the same kind, name and source.
fn reject_duplicates(all: Vec<(String, Object)>) -> Result<Vec<(String, Object)>, String> {
    let mut defined_in: HashMap<Key, String> = HashMap::new();
    let mut objects = Vec::with_capacity(all.len());
    for (file, object) in all {
        if let Some(other) = defined_in.insert(object.key(), file.clone()) {
            let (kind, name) = (object.kind().as_str().to_lowercase(), &object.name);
            return Err(format!(
                "{kind} {name} is defined in {other} and in {file}; keep one of them"
            ));
        }
        objects.push((file, object));
    }
    Ok(objects)
}

fn from_kubernetes(
    files: &[(String, String)],
    config: &Config,
) -> Result<Vec<(String, Object)>, String> {
    let labels = config.labels.iter();
    let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().into()));
    let settings = kubernetes::Settings {
        labels: (!config.labels.is_empty()).then(|| Arc::new(labels.collect())),
        node: config.name.as_str().into(),
        classes: config.load_balancer_classes.iter().map(|class| class.as_str().into()).collect(),
        ..kubernetes::Settings::new(kubernetes_source())
    };
    let texts = files.iter().map(|(file, text)| (file.as_str(), text.as_str()));
    let mut found = kubernetes::read(texts, &settings)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    for kind in &found.skipped {
        tracing::info!(event = "objects_unsupported", %kind, "objects of unsupported kind ignored");
    }
    for note in &found.notes {
        tracing::warn!(event = "manifest_warning", %note, "Kubernetes manifest warning");
    }
    let with_file =
        |object: Object| (found.files.remove(&object.key()).unwrap_or_default(), object);
    Ok(found.objects.into_iter().map(with_file).collect())
}

#[cfg(test)]
mod tests;
