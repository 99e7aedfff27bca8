//! Parses the files of `weir apply`: services files and directories in all their formats, and
//! objects as printed by `weir get`.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use config::yaml::{self, Documents};
use serde_json::Value;
use slowpath::sources;
use state::name::Source;
use state::object::{API, Key, Object};

use super::offline;
use super::options::GlobalOptions;

/// An object, and its location in a file.
pub struct LocatedObject {
    /// The desired state, as if sent to the API.
    pub object: Object,
    /// Name of the file, or `standard input`.
    pub file: Arc<str>,
    /// Location in the file, for objects as printed by `weir get`; `None` for services files.
    position: Option<Position>,
}

/// Location of an object in the text of a file.
struct Position {
    text: Arc<str>,
    /// Index of the document in the text.
    document: usize,
    /// Path of the object in the document.
    path: String,
}

/// Error of reading files.
pub enum FileError {
    /// The files cannot be read.
    Unreadable(String),
    /// The content of the files is invalid.
    Invalid(String),
}

impl LocatedObject {
    /// Returns the location of a field, `shop.yaml:12: `, or `shop.yaml: ` if the line is unknown.
    pub fn location(&self, field: &str) -> String {
        match &self.position {
            Some(position) => position.location(&self.file, field),
            None => format!("{}: ", self.file),
        }
    }
}

impl Position {
    fn location(&self, file: &str, field: &str) -> String {
        let path = format!("{}.{field}", self.path);
        let line = yaml::line_of(&self.text, self.document, path.trim_end_matches('.'));
        format!("{file}:{line}: ")
    }
}

/// Which objects of files are accepted.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions {
    /// Accept objects of other sources, as objects of the API.
    pub as_api: bool,
    /// Ignore the revisions of objects.
    pub restore: bool,
}

/// Content of files.
#[derive(Default)]
pub struct Files {
    /// Objects to apply.
    pub objects: Vec<LocatedObject>,
    /// Reasons why other objects are skipped, one sentence each.
    pub skipped: Vec<String>,
}

/// Reads files, directories, and standard input for `-`; an object may occur only once.
pub fn read(
    options: &GlobalOptions,
    names: &[String],
    read_options: ReadOptions,
) -> Result<Files, FileError> {
    let (mut all, mut others, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for (file, text) in texts(names)? {
        match envelopes(&file, &text) {
            Some(objects) => all.extend(objects?),
            None => others.push((file, text)),
        }
    }
    all.retain_mut(|object_in_file| match skip_reason(&object_in_file.object, read_options) {
        Some(why) => {
            let (kind, name) = (object_in_file.object.kind(), &object_in_file.object.name);
            skipped.push(format!("{}{kind} {name}: skipped: {why}", object_in_file.location("")));
            false
        }
        None => {
            // The revision of another source's object says nothing about the API's object.
            if read_options.restore || object_in_file.object.source.as_str() != API {
                (object_in_file.object.revision, object_in_file.object.generation) = (0, 0);
            }
            object_in_file.object.source = Source::new(API);
            true
        }
    });
    if !others.is_empty() {
        let config = offline::load(options).map_err(FileError::Unreadable)?;
        let parsed = sources::parse_texts(others, &config).map_err(FileError::Invalid)?;
        all.extend(parsed.into_iter().map(|(file, mut object)| {
            object.source = Source::new(API);
            LocatedObject { object, file: file.into(), position: None }
        }));
    }
    let mut locations: HashMap<Key, String> = HashMap::new();
    for object_in_file in &all {
        let (location, object) = (object_in_file.location(""), &object_in_file.object);
        if let Some(first) = locations.insert(object.key(), location.clone()) {
            let (kind, name) = (object.kind(), &object.name);
            let first = first.trim_end_matches(": ");
            let error = format!("{location}{kind} {name} is also in {first}; keep one of them");
            return Err(FileError::Invalid(error));
        }
    }
    if all.is_empty() && skipped.is_empty() {
        let error = format!("{}: no object that can be applied", names.join(", "));
        return Err(FileError::Invalid(error));
    }
    Ok(Files { objects: all, skipped })
}

/// Returns the reason why an object of a file cannot be applied, or `None` if it can.
fn skip_reason(object: &Object, read_options: ReadOptions) -> Option<String> {
    if let Some(why) = object.kind().read_only_reason() {
        return Some(format!("it is read-only: {why}"));
    }
    if object.lifecycle().deletion.is_some() {
        return Some("it is being deleted".to_owned());
    }
    match object.source.as_str() {
        API => None,
        _ if read_options.as_api => None,
        other => Some(format!(
            "source `{other}` defines it; --as-api applies it as an object of the API"
        )),
    }
}

fn texts(names: &[String]) -> Result<Vec<(String, String)>, FileError> {
    let unreadable = |name: &str, e: std::io::Error| FileError::Unreadable(format!("{name}: {e}"));
    let mut texts = Vec::new();
    for name in names {
        if name == "-" {
            let (mut text, name) = (String::new(), "standard input");
            std::io::stdin().read_to_string(&mut text).map_err(|e| unreadable(name, e))?;
            texts.push((name.to_owned(), text));
            continue;
        }
        for file in sources::files(Path::new(name)).map_err(|e| unreadable(name, e))? {
            let name = file.display().to_string();
            texts.push((
                name.clone(),
                std::fs::read_to_string(&file).map_err(|e| unreadable(&name, e))?,
            ));
        }
    }
    Ok(texts)
}

/// Parses the objects of a text in the format of `weir get`, here called envelopes: YAML or JSON
/// with `kind` and without the `apiVersion` of Kubernetes. Returns `None` if the text is in another
/// format.
fn envelopes(file: &str, text: &str) -> Option<Result<Vec<LocatedObject>, FileError>> {
    let is_envelope = |value: &Value| value["kind"].is_string() && value["apiVersion"].is_null();
    let first = Documents::new(text).find_map(|document| match document {
        Ok(document) if document.value.is_null() => None,
        other => Some(other),
    })?;
    let value = first.ok()?.value;
    let is_envelopes = match &value {
        Value::Array(list) => list.iter().all(is_envelope),
        value => is_envelope(value),
    };
    (is_envelopes && !file.ends_with(".toml")).then(|| parse_envelopes(file, text))
}

fn parse_envelopes(file: &str, text: &str) -> Result<Vec<LocatedObject>, FileError> {
    let (file, text): (Arc<str>, Arc<str>) = (file.into(), text.into());
    let mut all = Vec::new();
    for (number, document) in Documents::new(&text).enumerate() {
        let document = document.map_err(|error| {
            let line = yaml::line(&text, error.at);
            FileError::Invalid(format!("{file}:{line}: invalid YAML: {error}"))
        })?;
        let position = |path: String| Position { text: Arc::clone(&text), document: number, path };
        let values = match document.value {
            Value::Null => Vec::new(),
            Value::Array(list) => {
                list.into_iter().enumerate().map(|(i, one)| (format!("[{i}]"), one)).collect()
            }
            one => vec![(String::new(), one)],
        };
        for (path, value) in values {
            let position = position(path);
            let object = Object::from_json(&value).map_err(|error| {
                FileError::Invalid(format!("{}{error}", position.location(&file, &error.field)))
            })?;
            all.push(LocatedObject { object, file: Arc::clone(&file), position: Some(position) });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<LocatedObject>, String> {
        match envelopes("shop.yaml", text).expect("envelopes") {
            Ok(objects) => Ok(objects),
            Err(FileError::Invalid(text) | FileError::Unreadable(text)) => Err(text),
        }
    }

    #[test]
    fn parses_envelopes_from_documents_and_lists_in_yaml_and_json() {
        let service = "kind: Service\nname: shop/web\nspec:\n  frontends: []\n";
        let backends = "kind: Backends\nname: shop/web\nspec:\n  service: shop/web\n";
        let objects = read(&format!("# both\n---\n{service}---\n{backends}")).unwrap();
        let named = |objects: &[LocatedObject]| {
            let key = |object_in_file: &LocatedObject| {
                format!(
                    "{}{}",
                    object_in_file.location("spec.service"),
                    object_in_file.object.key()
                )
            };
            objects.iter().map(key).collect::<Vec<_>>()
        };
        let expected =
            ["shop.yaml:5: Service shop/web of api", "shop.yaml:11: Backends shop/web of api"];
        assert_eq!(named(&objects), expected);
        let json = r#"[{"kind": "Appliance", "name": "a", "spec": {"zone": "z"}}]"#;
        assert_eq!(named(&read(json).unwrap()), ["shop.yaml:1: Appliance a of api"]);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let error = |text: &str| read(text).err().unwrap();
        let begin = "kind: Service\nname: web\nspec:\n  frontends: []\n";
        let error_text = error(&format!("{begin}---\n{begin}  mss: 9461\n"));
        assert!(
            error_text.starts_with("shop.yaml:10: Service web of api: spec.mss: 9461"),
            "{error_text}"
        );
        assert!(error_text.contains("0 to 9460"), "{error_text}");
        let error_text = error(&format!("{begin}  msss: 1\n"));
        assert!(error_text.contains("msss") && error_text.contains("allowed"), "{error_text}");
        let error_text = error(&format!("{begin}---\na: 1\n b: 2\n"));
        assert!(
            error_text.starts_with("shop.yaml:7: ") && error_text.contains("YAML"),
            "{error_text}"
        );
    }

    #[test]
    fn objects_of_other_sources_are_skipped_without_as_api() {
        let service = |more: &str| {
            let text = format!("kind: Service\nname: web\n{more}spec:\n  frontends: []\n");
            read(&text).unwrap().remove(0).object
        };
        let as_api = ReadOptions { as_api: true, restore: false };
        for source in ["file", "kubernetes-file", "inventory"] {
            let object = service(&format!("source: {source}\n"));
            let why = skip_reason(&object, ReadOptions::default()).unwrap();
            assert!(why.contains(&format!("`{source}`")) && why.contains("--as-api"), "{why}");
            assert_eq!(skip_reason(&object, as_api), None);
        }
        assert_eq!(skip_reason(&service("source: api\n"), ReadOptions::default()), None);
        assert_eq!(skip_reason(&service(""), ReadOptions::default()), None);
    }

    #[test]
    fn read_only_objects_are_skipped_with_a_hint() {
        for (kind, hint) in [("Appliance", "`zone`"), ("Source", "/v1/sources/SOURCE")] {
            for source in ["api", "configuration"] {
                let text = format!("kind: {kind}\nname: a\nsource: {source}\nspec: {{}}\n");
                let object = read(&text).unwrap().remove(0).object;
                let why =
                    skip_reason(&object, ReadOptions { as_api: true, restore: true }).unwrap();
                assert!(why.contains("read-only") && why.contains(hint), "{why}");
            }
        }
    }

    #[test]
    fn other_formats_are_not_envelopes() {
        for text in
            ["[[service]]\nname = \"a\"\n", "apiVersion: v1\nkind: Service\n", "service: []\n", ""]
        {
            assert!(envelopes("shop", text).is_none(), "{text}");
        }
    }
}
