//! Rules of the repository that no other tool holds: what files begin with, nothing unfinished,
//! where `unsafe` may stand, and documents that keep up and lead somewhere.

use std::path::{Path, PathBuf};

const COLUMNS: usize = 100;

/// The crates with `unsafe` code; clippy asks each block for its reason.
const WITH_UNSAFE: [&str; 4] = ["dpdk-bindings", "ebpf-fallback", "packet", "tables"];

/// Marks of unfinished work, which clippy doesn't look for in comments. Written in two parts, so
/// that this file does not find itself.
const UNFINISHED: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the workspace").to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_default()
}

/// The files below the root with one of these endings, by their paths from there; build folders
/// and dot folders left out.
fn files(endings: &[&str]) -> Vec<String> {
    let (root, mut paths, mut folders) = (root(), Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() && !path.is_symlink() {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let path = path.strip_prefix(&root).expect("below the root");
                paths.push(path.to_string_lossy().into_owned());
            }
        }
    }
    paths.sort();
    paths
}

/// Fails with all complaints at once, each on its own line.
#[track_caller]
fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn every_file_begins_with_a_sentence() {
    let begins = |path: &String| {
        let text = read(path);
        // The sentence may need more than one line; the paragraph ends at the first empty one.
        let paragraph: Vec<&str> = text.lines().map_while(|l| l.strip_prefix("//! ")).collect();
        paragraph.join(" ").trim_end().ends_with(['.', ':', '!', '?', '`', '|'])
    };
    let without = files(&[".rs"]).into_iter().filter(|path| !begins(path));
    none(
        without
            .map(|path| format!("{path}: begin it with `//!` and a sentence that says what for"))
            .collect(),
    );
}

#[test]
fn nothing_is_left_unfinished_or_ignored_without_a_way_to_run_it() {
    let mut complaints = Vec::new();
    for path in files(&[".rs", ".c", ".h"]) {
        for (n, line) in read(&path).lines().enumerate() {
            let place = format!("{path}:{}", n + 1);
            for mark in UNFINISHED.iter().filter(|mark| line.contains(**mark)) {
                complaints.push(format!("{place}: {mark}: a wish is an issue, a gap is a refusal"));
            }
            if line.trim_start().starts_with("#[ignore") && !line.contains(": make ") {
                complaints.push(format!(
                    "{place}: write why it is ignored, and the make target that CI runs it by: \
                     #[ignore = \"needs X: make target\"]"
                ));
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
fn unsafe_code_is_forbidden_in_all_but_the_named_crates() {
    let mut complaints = Vec::new();
    for member in members().iter().filter(|member| !WITH_UNSAFE.contains(&member.as_str())) {
        let is_root = |path: &&String| match path.strip_prefix(&format!("{member}/")) {
            Some("lib.rs" | "src/lib.rs" | "src/main.rs") => true,
            Some(rest) => {
                let rest = rest.strip_prefix("src/").unwrap_or(rest);
                rest.strip_prefix("bin/")
                    .is_some_and(|name| !name.contains('/') || name.ends_with("/main.rs"))
            }
            None => false,
        };
        for path in files(&[".rs"]).iter().filter(is_root) {
            if !read(path).lines().any(|line| line == "#![forbid(unsafe_code)]") {
                complaints.push(format!(
                    "{path}: write #![forbid(unsafe_code)]; unsafe code lives in {WITH_UNSAFE:?}"
                ));
            }
        }
    }
    none(complaints);
}

/// What stands between two marks, one after the other.
fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).filter_map(move |rest| Some(rest.split_once(close)?.0))
}

/// Whether a word in code type is a path in this repository: with a slash, and an ending of ours.
fn is_path(word: &str) -> bool {
    let ending = word.rsplit_once('.').map(|(_, ending)| ending);
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    word.contains('/')
        && word.starts_with(|c: char| c.is_ascii_lowercase() || c == '.')
        && word.chars().all(plain)
        && matches!(ending, Some("rs" | "md" | "sh" | "toml" | "yaml" | "json" | "service"))
}

#[test]
fn links_and_paths_in_documents_lead_somewhere() {
    let mut complaints = Vec::new();
    for document in files(&[".md"]) {
        let text = read(&document);
        let beside = Path::new(&document).parent().unwrap_or(Path::new("")).to_owned();
        let leads = |path: &str| {
            let places = [root().join(path), root().join(&beside).join(path)];
            places.iter().any(|place| place.exists())
        };
        for link in between(&text, "](", ")") {
            let path = link.split(['#', ' ']).next().unwrap_or_default();
            if !link.contains("://") && !path.is_empty() && !leads(path) {
                complaints.push(format!("{document}: the link to {link} leads nowhere"));
            }
        }
        for path in text.split('`').skip(1).step_by(2).filter(|word| is_path(word)) {
            if !leads(path) {
                complaints.push(format!("{document}: there is no `{path}`"));
            }
        }
    }
    none(complaints);
}

/// The folders of the workspace's crates.
fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
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
