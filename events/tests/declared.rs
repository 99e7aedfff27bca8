//! Every log call in the sources of Weir's programs is declared in the list of events: with its
//! severity, message and fields.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use events::kind::Severity;
use events::list::{EVENTS, find};
use syn::visit::Visit;

/// Folders of the programs and of the crates in them.
const FOLDERS: [&str; 6] =
    ["slowpath", "fastpath/src", "ebpf-fallback/src", "events/src", "host/src", "hugepages/src"];

/// Fields whose value may differ for each event, which therefore cannot be part of a subject.
const VARYING: [&str; 14] = [
    "added",
    "cause",
    "changes",
    "cut",
    "damage",
    "detail",
    "epoch",
    "error",
    "generation",
    "note",
    "reason",
    "reasons",
    "text",
    "warning",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    FOLDERS.iter().for_each(|folder| sources(&root.join(folder), &mut found));
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Splits the arguments of a call at its commas.
fn arguments(tokens: &str) -> Vec<String> {
    let (mut found, mut depth, mut in_text) = (vec![String::new()], 0, false);
    let mut chars = tokens.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => in_text = !in_text,
            '(' | '[' | '{' if !in_text => depth += 1,
            ')' | ']' | '}' if !in_text => depth -= 1,
            ',' if !in_text && depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        let argument = found.last_mut().unwrap();
        argument.push(c);
        if c == '\\' && in_text {
            argument.extend(chars.next());
        }
    }
    found.iter().map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

fn literal(text: &str) -> Option<String> {
    Some(syn::parse_str::<syn::LitStr>(text).ok()?.value())
}

/// Returns the name of a field: of `name = value`, `%name`, `?name` or `name`.
fn field_name(argument: &str) -> String {
    let name = argument.split_once(" =").map_or(argument, |(name, _)| name);
    name.trim_start_matches(['%', '?', ' ']).trim().to_owned()
}

#[derive(Default)]
struct Calls {
    found: usize,
    faults: Vec<String>,
}

impl<'a> Visit<'a> for Calls {
    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let path: Vec<String> = call.path.segments.iter().map(|s| s.ident.to_string()).collect();
        let severity = match path.last().map(String::as_str) {
            Some("error") => Severity::Error,
            Some("warn") => Severity::Warning,
            Some("info") => Severity::Info,
            Some("debug" | "trace") => Severity::Debug,
            _ => return,
        };
        self.found += 1;
        let tokens = call.tokens.to_string();
        if let Err(fault) = check(severity, &arguments(&tokens)) {
            self.faults.push(format!("{fault}: {tokens}"));
        }
    }
}

/// Compares a call with its declaration.
fn check(severity: Severity, arguments: &[String]) -> Result<(), String> {
    // A call may name its target before the event.
    let has_target = arguments.first().is_some_and(|first| first.starts_with("target :"));
    let arguments = &arguments[usize::from(has_target)..];
    let first = arguments.first().and_then(|first| first.strip_prefix("event = "));
    let name = first.and_then(literal).ok_or("the first argument is not event = \"...\"")?;
    let kind = find(&name).ok_or(format!("`{name}` is not declared in events/src/list.rs"))?;
    let (message, fields) = arguments[1..].split_last().ok_or("no message")?;
    if literal(message).as_deref() != Some(kind.message) {
        return Err(format!("the message is not that of the declaration, {:?}", kind.message));
    }
    let fields: Vec<String> = fields.iter().map(|field| field_name(field)).collect();
    if fields != kind.fields {
        return Err(format!("the fields are {fields:?}, declared are {:?}", kind.fields));
    }
    if severity != kind.severity {
        return Err(format!("the severity is {severity:?}, declared is {:?}", kind.severity));
    }
    Ok(())
}

#[test]
fn every_log_call_is_declared_with_its_severity_message_and_fields() {
    let mut calls = Calls::default();
    let mut faults = Vec::new();
    for (path, text) in all_sources() {
        calls.visit_file(&syn::parse_file(&text).unwrap());
        faults.extend(calls.faults.drain(..).map(|fault| format!("{}: {fault}", path.display())));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(calls.found > 100, "{} calls were found", calls.found);
}

#[test]
fn every_declared_event_occurs_in_the_sources() {
    let list = Path::new("events/src/list.rs");
    let all: String = all_sources()
        .into_iter()
        .filter(|(path, _)| !path.ends_with(list))
        .map(|(_, text)| text)
        .collect();
    let unused: Vec<&str> = EVENTS
        .iter()
        .map(|kind| kind.name)
        .filter(|name| !all.contains(&format!("\"{name}\"")))
        .collect();
    assert!(unused.is_empty(), "no call has the events {unused:?}");
}

#[test]
fn declarations_are_sorted_complete_and_in_one_style() {
    let names: Vec<&str> = EVENTS.iter().map(|kind| kind.name).collect();
    let sorted: BTreeSet<&str> = names.iter().copied().collect();
    assert!(names.iter().eq(&sorted), "sorted by name, without duplicates");
    for kind in EVENTS {
        let is_snake = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        assert!(is_snake(kind.name) && kind.fields.iter().all(|name| is_snake(name)), "{kind:?}");
        assert!(!kind.fields.contains(&"event"), "{}: a name of the record", kind.name);
        assert!(kind.subject <= kind.fields.len().max(1), "{}: subject", kind.name);
        for text in VARYING {
            assert!(!kind.subject_fields().contains(&text), "{}: `{text}`", kind.name);
        }
        for text in [kind.meaning, kind.action] {
            assert!(text.ends_with(['.', '`']), "{}: {text:?} is a sentence", kind.name);
        }
        assert!(kind.severity > Severity::Debug || !kind.is_recorded, "{}", kind.name);
        assert!(!kind.message.ends_with('.') && !kind.message.contains('\n'), "{}", kind.name);
    }
}
