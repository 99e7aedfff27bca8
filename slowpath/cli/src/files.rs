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
use super::options::With;

/// An object, and its location in a file.
pub struct Given {
    /// The desired state, as if sent to the API.
    pub object: Object,
    /// Name of the file, or `standard input`.
    pub file: Arc<str>,
    /// Location in the file, for objects as printed by `weir get`.
    spot: Option<Spot>,
}

/// Location of an object in a text.
struct Spot {
    text: Arc<str>,
    /// Number of the document, from 0.
    document: usize,
    /// Path of the object in the document.
    path: String,
}

/// Error of reading files.
pub enum Wrong {
    /// The files cannot be read.
    Unread(String),
    /// The content of the files is invalid.
    Refused(String),
}

impl Given {
    /// Returns the location of a field, `shop.yaml:12: `, as precisely as it is known.
    pub fn place(&self, field: &str) -> String {
        match &self.spot {
            Some(spot) => spot.place(&self.file, field),
            None => format!("{}: ", self.file),
        }
    }
}

impl Spot {
    fn place(&self, file: &str, field: &str) -> String {
        let path = format!("{}.{field}", self.path);
        let line = yaml::line_of(&self.text, self.document, path.trim_end_matches('.'));
        format!("{file}:{line}: ")
    }
}

/// Which objects of files are accepted.
#[derive(Clone, Copy, Default)]
pub struct Take {
    /// Objects of other sources become objects of the API.
    pub as_api: bool,
    /// The revision of objects is ignored.
    pub restore: bool,
}

/// Content of files.
#[derive(Default)]
pub struct Files {
    /// Objects to apply.
    pub given: Vec<Given>,
    /// Reasons why other objects are skipped, one sentence each.
    pub left_out: Vec<String>,
}

/// Reads files, directories, and standard input for `-`; an object may occur only once.
pub fn read(with: &With, names: &[String], take: Take) -> Result<Files, Wrong> {
    let (mut all, mut others, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for (file, text) in texts(names)? {
        match envelopes(&file, &text) {
            Some(given) => all.extend(given?),
            None => others.push((file, text)),
        }
    }
    all.retain_mut(|given| match not_applied(&given.object, take) {
        Some(why) => {
            let (kind, name) = (given.object.kind(), &given.object.name);
            left_out.push(format!("{}{kind} {name}: left out: {why}", given.place("")));
            false
        }
        None => {
            // The revision of another source's object is not comparable with that of the API's.
            if take.restore || given.object.source.as_str() != API {
                (given.object.revision, given.object.generation) = (0, 0);
            }
            given.object.source = Source::new(API);
            true
        }
    });
    if !others.is_empty() {
        let config = offline::load(with).map_err(Wrong::Unread)?;
        let said = sources::said(others, &config).map_err(Wrong::Refused)?;
        all.extend(said.into_iter().map(|(file, mut object)| {
            object.source = Source::new(API);
            Given { object, file: file.into(), spot: None }
        }));
    }
    let mut seen: HashMap<Key, String> = HashMap::new();
    for given in &all {
        if let Some(first) = seen.insert(given.object.key(), given.place("")) {
            let (place, kind, name) = (given.place(""), given.object.kind(), &given.object.name);
            let first = first.trim_end_matches(": ");
            let wrong = format!("{place}{kind} {name} is in {first} already; keep one of them");
            return Err(Wrong::Refused(wrong));
        }
    }
    if all.is_empty() && left_out.is_empty() {
        let wrong = format!("there is no object in {} that means anything here", names.join(", "));
        return Err(Wrong::Refused(wrong));
    }
    Ok(Files { given: all, left_out })
}

/// Returns the reason why an object of a file cannot be applied, or `None` if it can.
fn not_applied(object: &Object, take: Take) -> Option<String> {
    if let Some(why) = object.kind().read_only() {
        return Some(format!("it is read-only: {why}"));
    }
    if object.life().deletion.is_some() {
        return Some("it was being deleted".to_owned());
    }
    match object.source.as_str() {
        API => None,
        _ if take.as_api => None,
        other => Some(format!(
            "source `{other}` says it, and will say it again; --as-api makes it one of the API's"
        )),
    }
}

fn texts(names: &[String]) -> Result<Vec<(String, String)>, Wrong> {
    let unread = |name: &str, e: std::io::Error| Wrong::Unread(format!("{name}: {e}"));
    let mut texts = Vec::new();
    for name in names {
        if name == "-" {
            let (mut text, name) = (String::new(), "standard input");
            std::io::stdin().read_to_string(&mut text).map_err(|e| unread(name, e))?;
            texts.push((name.to_owned(), text));
            continue;
        }
        for file in sources::files(Path::new(name)).map_err(|e| unread(name, e))? {
            let name = file.display().to_string();
            texts.push((
                name.clone(),
                std::fs::read_to_string(&file).map_err(|e| unread(&name, e))?,
            ));
        }
    }
    Ok(texts)
}

/// Parses the objects of a text in the format of `weir get`; `None` if it is in another format.
fn envelopes(file: &str, text: &str) -> Option<Result<Vec<Given>, Wrong>> {
    let is_envelope = |value: &Value| value["kind"].is_string() && value["apiVersion"].is_null();
    let first = Documents::new(text, false).find_map(|document| match document {
        Ok(document) if document.value.is_null() => None,
        other => Some(other),
    })?;
    let value = first.ok()?.value;
    let mine = match &value {
        Value::Array(list) => list.iter().all(is_envelope),
        value => is_envelope(value),
    };
    (mine && !file.ends_with(".toml")).then(|| opened(file, text))
}

fn opened(file: &str, text: &str) -> Result<Vec<Given>, Wrong> {
    let (file, text): (Arc<str>, Arc<str>) = (file.into(), text.into());
    let mut all = Vec::new();
    for (number, document) in Documents::new(&text, false).enumerate() {
        let document = document.map_err(|wrong| {
            let line = yaml::line(&text, wrong.at);
            Wrong::Refused(format!("{file}:{line}: this is no YAML that is taken: {wrong}"))
        })?;
        let spot = |path: String| Spot { text: Arc::clone(&text), document: number, path };
        let values = match document.value {
            Value::Null => Vec::new(),
            Value::Array(list) => {
                list.into_iter().enumerate().map(|(i, one)| (format!("[{i}]"), one)).collect()
            }
            one => vec![(String::new(), one)],
        };
        for (path, value) in values {
            let spot = spot(path);
            let object = Object::from_json(&value).map_err(|refusal| {
                Wrong::Refused(format!("{}{refusal}", spot.place(&file, &refusal.field)))
            })?;
            all.push(Given { object, file: Arc::clone(&file), spot: Some(spot) });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Given>, String> {
        match envelopes("shop.yaml", text).expect("envelopes") {
            Ok(given) => Ok(given),
            Err(Wrong::Refused(text) | Wrong::Unread(text)) => Err(text),
        }
    }

    #[test]
    fn envelopes_are_documents_or_lists_of_them_in_yaml_or_json() {
        let service = "kind: Service\nname: shop/web\nspec:\n  frontends: []\n";
        let backends = "kind: Backends\nname: shop/web\nspec:\n  service: shop/web\n";
        let given = read(&format!("# both\n---\n{service}---\n{backends}")).unwrap();
        let named = |given: &[Given]| {
            let key =
                |given: &Given| format!("{}{}", given.place("spec.service"), given.object.key());
            given.iter().map(key).collect::<Vec<_>>()
        };
        let expected =
            ["shop.yaml:5: Service shop/web of api", "shop.yaml:11: Backends shop/web of api"];
        assert_eq!(named(&given), expected);
        let json = r#"[{"kind": "Appliance", "name": "a", "spec": {"zone": "z"}}]"#;
        assert_eq!(named(&read(json).unwrap()), ["shop.yaml:1: Appliance a of api"]);
    }

    #[test]
    fn what_is_wrong_is_told_by_file_line_and_field() {
        let wrong = |text: &str| read(text).err().unwrap();
        let begin = "kind: Service\nname: web\nspec:\n  frontends: []\n";
        let told = wrong(&format!("{begin}---\n{begin}  mss: 9461\n"));
        assert!(told.starts_with("shop.yaml:10: Service web of api: spec.mss: 9461"), "{told}");
        assert!(told.contains("0 to 9460"), "{told}");
        let told = wrong(&format!("{begin}  msss: 1\n"));
        assert!(told.contains("msss") && told.contains("allowed"), "{told}");
        let told = wrong(&format!("{begin}---\na: 1\n b: 2\n"));
        assert!(told.starts_with("shop.yaml:7: ") && told.contains("YAML"), "{told}");
    }

    #[test]
    fn what_other_sources_say_is_left_out_unless_it_becomes_the_apis() {
        let service = |more: &str| {
            let text = format!("kind: Service\nname: web\n{more}spec:\n  frontends: []\n");
            read(&text).unwrap().remove(0).object
        };
        let as_api = Take { as_api: true, restore: false };
        for source in ["file", "kubernetes-file", "inventory"] {
            let object = service(&format!("source: {source}\n"));
            let why = not_applied(&object, Take::default()).unwrap();
            assert!(why.contains(&format!("`{source}`")) && why.contains("--as-api"), "{why}");
            assert_eq!(not_applied(&object, as_api), None);
        }
        assert_eq!(not_applied(&service("source: api\n"), Take::default()), None);
        assert_eq!(not_applied(&service(""), Take::default()), None);
    }

    #[test]
    fn what_is_read_only_is_left_out_and_says_where_it_is_written() {
        for (kind, place) in [("Appliance", "`zone`"), ("Source", "/v1/sources/SOURCE")] {
            for source in ["api", "configuration"] {
                let text = format!("kind: {kind}\nname: a\nsource: {source}\nspec: {{}}\n");
                let object = read(&text).unwrap().remove(0).object;
                let why = not_applied(&object, Take { as_api: true, restore: true }).unwrap();
                assert!(why.contains("read-only") && why.contains(place), "{why}");
            }
        }
    }

    #[test]
    fn other_shapes_are_left_to_their_readers() {
        for text in
            ["[[service]]\nname = \"a\"\n", "apiVersion: v1\nkind: Service\n", "service: []\n", ""]
        {
            assert!(envelopes("shop", text).is_none(), "{text}");
        }
    }
}
