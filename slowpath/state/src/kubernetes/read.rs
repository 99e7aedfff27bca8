//! Reads files of Kubernetes objects: one object, several documents, or lists of objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use config::private_link::{Sibling, from_kubernetes};
use config::yaml::{self, Documents};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::bgp::{self, Located, PolicyParts};
use super::{EndpointSlice, Service, Settings, service, slice};
use crate::object::{ChangeError, Key, Object, Spec};

/// Result of reading files.
#[derive(Debug, Default)]
pub struct ConvertedFiles {
    /// Services, lists of backends, BGP policies and private links.
    pub objects: Vec<Object>,
    /// Unsupported versions and kinds, whose objects were skipped.
    pub skipped: BTreeSet<String>,
    /// Notes about ignored parts of objects.
    pub notes: Vec<String>,
    /// File of each object.
    pub files: BTreeMap<Key, String>,
    /// BGP objects, which are joined to policies after all files have been read.
    policy_parts: PolicyParts,
    /// Private links, whose DNS names depend on the other private links.
    links: Vec<Located<Value>>,
}

/// Error in a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct FileError {
    /// Name of the file.
    pub file: String,
    /// Number of the document in the file, from 1.
    pub document: usize,
    /// Line number, from 1.
    pub line: usize,
    /// Error, with the path of the field in the document.
    pub error: Box<ChangeError>,
}

/// `shop.yaml:12 (document 2): spec.ports[0].port: ...`.
impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} (document {}): {}", self.file, self.line, self.document, self.error)
    }
}

/// Reads files, given as name and text. Returns the objects of all files, or the first error of
/// each file. BGP objects are joined, and private links converted, only if every file can be read;
/// then all errors of these objects are returned.
pub fn read<'t>(
    files: impl IntoIterator<Item = (&'t str, &'t str)>,
    settings: &Settings,
) -> Result<ConvertedFiles, Vec<FileError>> {
    let (mut found, mut errors) = (ConvertedFiles::default(), Vec::new());
    let mut texts = BTreeMap::new();
    for (file, text) in files {
        texts.insert(file, text);
        if let Err(wrong) = found.read(file, text, settings) {
            errors.push(wrong);
        }
    }
    // After a read error, joining would also report the objects of that file as missing.
    if errors.is_empty() {
        errors = found.convert_collected(&texts, settings);
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

impl ConvertedFiles {
    fn read(&mut self, file: &str, text: &str, settings: &Settings) -> Result<(), FileError> {
        // Positions are not recorded, which saves memory: `yaml::line_of` finds an error's line.
        for (i, document) in Documents::new(text).enumerate() {
            let file_error = |line, error| FileError {
                file: file.to_owned(),
                document: i + 1,
                line,
                error: Box::new(error),
            };
            let document = document.map_err(|wrong| {
                let error = ChangeError::new("", format!("invalid YAML: {wrong}"), "");
                file_error(yaml::line(text, wrong.at), error)
            })?;
            let mut value = document.value;
            remove_nulls(&mut value);
            self.convert((file, i), &value, "", None, settings)
                .map_err(|error| file_error(yaml::line_of(text, i, &error.field), error))?;
        }
        Ok(())
    }

    /// Converts the value at a path, or the items of a list. `at` is the file and the index of the
    /// document in it. `implied` is the version and kind of items that do not name their own, as
    /// the kind of their list implies them.
    fn convert(
        &mut self,
        at: (&str, usize),
        value: &Value,
        path: &str,
        implied: Option<(&str, &str)>,
        settings: &Settings,
    ) -> Result<(), ChangeError> {
        if value.is_null() {
            return Ok(());
        }
        let text = |key: &str| value[key].as_str();
        let named = text("apiVersion").zip(text("kind"));
        let Some((version, kind)) = named.or(implied) else {
            let allowed = "write apiVersion and kind, for example v1 and Service";
            return Err(ChangeError::new(path, "not a Kubernetes object", allowed));
        };
        let one = match (version, kind) {
            ("v1", "Service") => {
                let from: Service = typed(value, path)?;
                service(&from, settings, &mut self.notes)
            }
            ("discovery.k8s.io/v1", "EndpointSlice") => {
                let from: EndpointSlice = typed(value, path)?;
                slice(&from, settings, &mut self.notes)
            }
            (_, "AzurePrivateLinkService") => {
                let location = (at.0.to_owned(), at.1, path.to_owned());
                self.links.push(Located { object: value.clone(), location });
                return Ok(());
            }
            (version, list) if list.ends_with("List") && value["items"].is_array() => {
                let item = list.strip_suffix("List").filter(|item| !item.is_empty());
                for (i, each) in value["items"].as_array().into_iter().flatten().enumerate() {
                    let below = below(path, &format!("items[{i}]"));
                    self.convert(at, each, &below, item.map(|item| (version, item)), settings)?;
                }
                return Ok(());
            }
            (version, kind) => match self.bgp(at, value, path, (version, kind), settings) {
                Some(one) => one,
                None => {
                    self.skipped.insert(format!("{version} {kind}"));
                    return Ok(());
                }
            },
        };
        let inside = |error: ChangeError| ChangeError { field: below(path, &error.field), ..error };
        let Some(object) = one.map_err(inside)? else { return Ok(()) };
        self.add(at.0, path, object)
    }

    /// Converts a BGP object; returns `None` for other kinds. The result has no object if the kind
    /// is joined with others after all files have been read.
    fn bgp(
        &mut self,
        (file, document): (&str, usize),
        value: &Value,
        path: &str,
        (version, kind): (&str, &str),
        settings: &Settings,
    ) -> Option<Result<Option<Object>, ChangeError>> {
        let policy_parts = &mut self.policy_parts;
        let nothing = |()| None;
        Some(match (version, kind) {
            ("weir.dev/v1", "BgpPeeringPolicy") => typed::<bgp::WeirPolicy>(value, "")
                .and_then(|own| bgp::weir_policy(&own.metadata, own.spec, settings).map(Some)),
            ("cilium.io/v2alpha1", "CiliumBGPPeeringPolicy") => {
                typed::<bgp::PeeringPolicy>(value, "").and_then(|from| {
                    bgp::first_generation(&from, settings, &mut self.notes).map(Some)
                })
            }
            ("cilium.io/v2" | "cilium.io/v2alpha1", kind) => match kind {
                "CiliumBGPClusterConfig" => typed(value, "").map(|object| {
                    let location = (file.to_owned(), document, path.to_owned());
                    policy_parts.clusters.push(Located { object, location });
                    None
                }),
                "CiliumBGPPeerConfig" => typed(value, "")
                    .and_then(|from| policy_parts.add_peer_config(&from).map(nothing)),
                "CiliumBGPAdvertisement" => typed(value, "").and_then(|from| {
                    policy_parts.add_advertisement(from, &mut self.notes).map(nothing)
                }),
                "CiliumBGPNodeConfigOverride" => {
                    typed(value, "").and_then(|from| policy_parts.add_override(from).map(nothing))
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Joins the BGP objects to policies and converts private links. Returns the errors.
    fn convert_collected(
        &mut self,
        texts: &BTreeMap<&str, &str>,
        settings: &Settings,
    ) -> Vec<FileError> {
        let mut joined = Vec::new();
        for Located { object, location } in std::mem::take(&mut self.policy_parts.clusters) {
            joined.push((self.policy_parts.policy(&object, settings), location));
        }
        let links = std::mem::take(&mut self.links);
        let siblings: Vec<Sibling> = links.iter().filter_map(|l| Sibling::of(&l.object)).collect();
        for Located { object, location } in links {
            joined.push((private_link(&object, &siblings, settings), location));
        }
        let mut errors = Vec::new();
        for (object, (file, document, path)) in joined {
            let object =
                object.map_err(|error| ChangeError { field: below(&path, &error.field), ..error });
            if let Err(error) = object.and_then(|object| self.add(&file, &path, object)) {
                let text = texts.get(&*file).copied().unwrap_or_default();
                let line = yaml::line_of(text, document, &error.field);
                let error = Box::new(error);
                errors.push(FileError { file, document: document + 1, line, error });
            }
        }
        errors
    }

    /// Validates an object and adds it; rejects an object that another file or document defines.
    fn add(&mut self, file: &str, path: &str, object: Object) -> Result<(), ChangeError> {
        object.spec.check().map_err(|wrong| ChangeError { field: path.to_owned(), ..wrong })?;
        if let Some(first) = self.files.insert(object.key(), file.to_owned()) {
            let (field, key) = (below(path, "metadata.name"), object.key());
            let wrong = format!("{} {} is already defined in {first}", key.kind, key.name);
            return Err(ChangeError::new(field, wrong, "remove one of them"));
        }
        self.objects.push(object);
        Ok(())
    }
}

/// Converts a private link of any API group and version.
fn private_link(
    value: &Value,
    siblings: &[Sibling],
    settings: &Settings,
) -> Result<Object, ChangeError> {
    let (name, spec) = from_kubernetes(value, siblings)?;
    let (namespace, short) = name.split_once('/').unwrap_or(("", &name));
    let name = settings.name(namespace, short, "metadata.name")?;
    let spec = Spec::PrivateLinkService(Arc::new(spec));
    Ok(Object::new(name, settings.source.clone(), spec))
}

/// Parses a value. Errors have paths that begin with `path`.
fn typed<T: DeserializeOwned>(value: &Value, path: &str) -> Result<T, ChangeError> {
    crate::object::read(value, path)
}

/// Joins a path and a key below it; either may be empty.
fn below(path: &str, key: &str) -> String {
    if path.is_empty() || key.is_empty() { format!("{path}{key}") } else { format!("{path}.{key}") }
}

/// Removes keys whose value is null: Kubernetes writes, for example, `endpoints: null` with the
/// meaning of an absent key.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
