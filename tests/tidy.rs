//! Rules of the repository as a test: functions of bounded length, `unsafe` in named crates with
//! its reason, nothing unfinished, and documents that keep up.

#[path = "tidy/source.rs"]
mod source;

use source::Source;
use std::path::{Path, PathBuf};

/// Clippy's own default for lines of a function.
const FUNCTION_LINES: usize = 100;
/// A list of stages or a `match` may be longer when a comment in it says why, beginning so.
const LONGER: &str = "// Longer than 70 lines:";
const COLUMNS: usize = 100;

/// Where `unsafe` may stand.
const UNSAFE_PLACES: &[&str] =
    &["dpdk-bindings/", "tables/", "ebpf-fallback/", "packet/src/window.rs"];

/// Marks of unfinished work. Written in two parts, so that this file does not find itself.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the workspace").to_owned()
}

fn sources() -> Vec<Source> {
    source::all(&root())
}

/// Fails with all complaints at once, each on its own line.
#[track_caller]
fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn no_function_is_too_long() {
    let (mut sizes, mut complaints) = (Vec::new(), Vec::new());
    for source in sources().iter().filter(|s| s.is_rust()) {
        for function in source.functions() {
            let place = format!("{}:{} {}", source.path, function.first + 1, function.name);
            let body = &source.lines[function.first..=function.last];
            let excused = body.iter().any(|line| line.trim_start().starts_with(LONGER));
            if function.len() > FUNCTION_LINES && !excused {
                complaints.push(format!(
                    "{place} has {} lines of {FUNCTION_LINES}: name its parts; a plain list of \
                     stages or a match may stay with a comment `{LONGER} why`",
                    function.len()
                ));
            }
            sizes.push((function.len(), place));
        }
    }
    sizes.sort_by(|a, b| b.cmp(a));
    println!("the ten largest functions, in lines:");
    sizes.iter().take(10).for_each(|(lines, place)| println!("{lines:>6}  {place}"));
    none(complaints);
}

#[test]
fn every_file_begins_with_a_sentence() {
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|s| s.is_rust()) {
        let first = source.lines.first().map_or("", |line| line.as_str());
        // The sentence may need more than one line; the paragraph ends at the first empty one.
        let paragraph: Vec<&str> =
            source.lines.iter().map_while(|l| l.strip_prefix("//! ")).collect();
        let whole = paragraph.join(" ");
        if !first.starts_with("//! ") || !whole.trim_end().ends_with(['.', ':', '!', '?', '`', '|'])
        {
            complaints.push(format!(
                "{}: begin the file with `//!` and one whole sentence that says what it is for",
                source.path
            ));
        }
    }
    none(complaints);
}

#[test]
fn nothing_is_left_unfinished_ignored_or_allowed() {
    let mut complaints = Vec::new();
    for source in &sources() {
        for (n, (line, code)) in source.lines.iter().zip(&source.code).enumerate() {
            let place = format!("{}:{}", source.path, n + 1);
            for mark in UNFINISHED.iter().filter(|mark| line.contains(**mark)) {
                complaints.push(format!("{place}: {mark}: a wish is an issue, a gap is a refusal"));
            }
            if source.is_rust() && code.contains("#[ignore") && !line.contains(": make ") {
                complaints.push(format!(
                    "{place}: write why it is ignored, and the make target that CI runs it by: \
                     #[ignore = \"needs X: make target\"]"
                ));
            }
            if source.is_rust() && (code.contains("#[allow(") || code.contains("#![allow(")) {
                complaints
                    .push(format!("{place}: write #[expect(.., reason = \"..\")] for #[allow]"));
            }
            let width = line.chars().count();
            // A row of a table whose last cell is a sentence, and a link, can't be broken.
            let whole = line.ends_with("\",") || line.contains("://");
            if width > COLUMNS && !whole {
                complaints.push(format!("{place}: {width} columns of {COLUMNS}: break the line"));
            }
        }
    }
    none(complaints);
}

#[test]
fn unsafe_stands_only_where_it_may_and_says_why() {
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|s| s.is_rust()) {
        for (n, _) in source.identifiers().filter(|(_, word)| *word == "unsafe") {
            let place = format!("{}:{}", source.path, n + 1);
            // `unsafe(link_section)` and the like are attributes of the edition, not code.
            if source.code[n].trim_start().starts_with("#[") {
                continue;
            }
            if !UNSAFE_PLACES.iter().any(|p| source.path.starts_with(p)) {
                complaints.push(format!(
                    "{place}: unsafe lives in {UNSAFE_PLACES:?}: call a checked function there"
                ));
            }
            let said = (n.saturating_sub(12)..=n).rev().any(|above| {
                let line = &source.lines[above];
                line.contains("SAFETY:") || line.contains("# Safety")
            });
            if !said {
                complaints.push(format!(
                    "{place}: say above it why it is sound: `// SAFETY: ...` for a block, \
                     `/// # Safety` for a function"
                ));
            }
        }
    }
    none(complaints);
}

/// The folders of the workspace's crates.
fn members() -> Vec<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let list = manifest.lines().find_map(|line| line.strip_prefix("members = ["));
    let members = list.and_then(|list| list.strip_suffix(']')).expect("members in one line");
    members.split(", ").map(|member| member.trim_matches('"').to_owned()).collect()
}

/// The direct dependencies that a manifest names, crates of the workspace by path left out.
fn dependencies(manifest: &str) -> Vec<String> {
    let (mut section, mut names) = (String::new(), Vec::new());
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if section.ends_with("dependencies") && !line.starts_with('#') {
            let name: String = line.chars().take_while(|c| !" .=".contains(*c)).collect();
            if !name.is_empty() && !line.contains("path =") {
                names.push(name);
            }
        }
    }
    names
}

#[test]
fn the_documents_keep_up() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap_or_default();
    let (readme, architecture) = (read("README.md"), read("ARCHITECTURE.md"));
    let mut complaints = Vec::new();
    let members = members();
    // The emulators and router drivers below tests/ are described with it.
    for member in members.iter().filter(|member| !member.starts_with("tests/")) {
        if !architecture.contains(&format!("`{member}`")) {
            complaints.push(format!("ARCHITECTURE.md does not name the crate `{member}`"));
        }
        for dependency in dependencies(&read(&format!("{member}/Cargo.toml"))) {
            let own = members.iter().any(|other| other.rsplit('/').next() == Some(&dependency));
            if !own && !architecture.contains(&format!("`{dependency}`")) {
                complaints.push(format!(
                    "ARCHITECTURE.md gives no reason for `{dependency}`, a dependency of {member}"
                ));
            }
        }
    }
    if root().join("config/KEYS.md").exists() && !readme.contains("config/KEYS.md") {
        complaints.push("README.md does not lead to config/KEYS.md".into());
    }
    let makefile = read("Makefile");
    for target in readme.split("`make ").skip(1).filter_map(|rest| rest.split(['`', ' ']).next()) {
        if !makefile.lines().any(|line| line.starts_with(&format!("{target}:"))) {
            complaints
                .push(format!("README.md says `make {target}`, the Makefile has no such target"));
        }
    }
    none(complaints);
}

#[test]
fn the_scanner_knows_code_from_words() {
    let text = "//! A file.\nfn one() {\n    let s = \"fn two() {\"; // }\n    let c = '{';\n}\n\
                #[cfg(test)]\nmod tests {\n    fn three() {}\n}\n\
                fn four<'a>(x: &'a [u8; 2]) {\n}\n";
    let source = Source::new("packet/src/x.rs".into(), text);
    let names: Vec<_> = source.functions().iter().map(|f| (f.name.clone(), f.len())).collect();
    assert_eq!(names, [("one".to_owned(), 4), ("four".to_owned(), 2)]);
}
