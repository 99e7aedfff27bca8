//! Repository rules that no other tool checks: file headers, unfinished code, ignored tests, line
//! lengths, `unsafe`, and documents that are short and current and whose links resolve.

use std::path::{Path, PathBuf};

/// The maximum length of a line, in characters.
const COLUMNS: usize = 100;

/// The crates whose libraries and programs may have `unsafe` code; clippy requires a `SAFETY`
/// comment for each block.
const WITH_UNSAFE: [&str; 4] = ["dpdk-bindings", "ebpf-fallback", "packet", "tables"];

/// Marks of unfinished work in comments. Each is written in two parts, so that this file does not
/// match.
const UNFINISHED: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a parent of tests").to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_default()
}

/// Returns the relative paths of the files below the root with one of these endings, without those
/// in build directories and hidden directories.
fn files(endings: &[&str]) -> Vec<String> {
    let (root, mut paths, mut folders) = (root(), Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a readable directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() && !path.is_symlink() {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let path = path.strip_prefix(&root).expect("a path below the root");
                paths.push(path.to_string_lossy().into_owned());
            }
        }
    }
    paths.sort();
    paths
}

/// Fails with all complaints, one per line, if there are any.
#[track_caller]
fn assert_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn every_rust_file_begins_with_a_doc_sentence() {
    let begins = |path: &String| {
        let text = read(path);
        // The sentence may take several lines; the paragraph ends at the first empty line.
        let paragraph: Vec<&str> = text.lines().map_while(|l| l.strip_prefix("//! ")).collect();
        paragraph.join(" ").trim_end().ends_with(['.', ':', '!', '?', '`', '|'])
    };
    let without = files(&[".rs"]).into_iter().filter(|path| !begins(path));
    assert_none(
        without
            .map(|path| format!("{path}: begin with `//!` and a sentence on its purpose"))
            .collect(),
    );
}

#[test]
fn no_unfinished_code_no_long_lines_and_every_ignored_test_names_its_make_target() {
    let mut complaints = Vec::new();
    for path in files(&[".rs", ".c", ".h"]) {
        for (n, line) in read(&path).lines().enumerate() {
            let at = format!("{path}:{}", n + 1);
            for mark in UNFINISHED.iter().filter(|mark| line.contains(**mark)) {
                complaints.push(format!("{at}: {mark}: finish it, or move it to an issue"));
            }
            if line.trim_start().starts_with("#[ignore") && !line.contains(": make ") {
                complaints.push(format!(
                    "{at}: no reason or make target; write #[ignore = \"needs X: make target\"]"
                ));
            }
            let width = line.chars().count();
            // Lines that end with a string in a table, and lines with a URL, cannot be broken.
            let exempt = line.ends_with("\",") || line.contains("://");
            if width > COLUMNS && !exempt {
                complaints.push(format!("{at}: {width} columns; break the line at {COLUMNS}"));
            }
        }
    }
    assert_none(complaints);
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
                    "{path}: add #![forbid(unsafe_code)]; only {WITH_UNSAFE:?} may have unsafe code"
                ));
            }
        }
    }
    assert_none(complaints);
}

/// Returns each text between `open` and the next `close`.
fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).filter_map(move |rest| Some(rest.split_once(close)?.0))
}

/// Returns whether a word between backquotes looks like a path of this repository: it has a slash
/// and a known ending.
fn is_path(word: &str) -> bool {
    let ending = word.rsplit_once('.').map(|(_, ending)| ending);
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    word.contains('/')
        && word.starts_with(|c: char| c.is_ascii_lowercase() || c == '.')
        && word.chars().all(plain)
        && matches!(ending, Some("rs" | "md" | "sh" | "toml" | "yaml" | "json" | "service"))
}

#[test]
fn links_and_paths_in_documents_exist() {
    let mut complaints = Vec::new();
    for document in files(&[".md"]) {
        let text = resolved(&document);
        let directory = Path::new(&document).parent().unwrap_or(Path::new("")).to_owned();
        let exists = |path: &str| {
            let candidates = [root().join(path), root().join(&directory).join(path)];
            candidates.iter().any(|candidate| candidate.exists())
        };
        for link in between(&text, "](", ")").filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = path.split(' ').next().unwrap_or_default();
            if !path.is_empty() && !exists(path) {
                complaints.push(format!("{document}: broken link to {link}"));
            }
            let target = if path.is_empty() { document.clone() } else { joined(&directory, path) };
            if !anchor.is_empty() && !anchors(&resolved(&target)).contains(&anchor.to_owned()) {
                complaints.push(format!("{document}: {target} has no heading #{anchor}"));
            }
            // mdBook copies only files below its source.
            if document.starts_with(BOOK) && !target.starts_with(BOOK) {
                complaints.push(format!("{document}: the link to {link} leaves the book"));
            }
        }
        for path in text.split('`').skip(1).step_by(2).filter(|word| is_path(word)) {
            if !exists(path) {
                complaints.push(format!("{document}: no file `{path}`"));
            }
        }
    }
    assert_none(complaints);
}

/// The directory of the book's pages.
const BOOK: &str = "docs/src/";

/// Converts a path relative to a document's directory to one relative to the root.
fn joined(directory: &Path, path: &str) -> String {
    let mut parts: Vec<&str> = directory.iter().filter_map(|part| part.to_str()).collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns a document's text with the text of included files in it (mdBook's `{{#include PATH}}` on
/// a separate line).
fn resolved(document: &str) -> String {
    let directory = Path::new(document).parent().unwrap_or(Path::new(""));
    let line = |line: &str| {
        let path = line.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
        path.map_or_else(
            || line.to_owned(),
            |path| {
                let included = joined(directory, path);
                assert!(root().join(&included).exists(), "{document}: no file {included}");
                read(&included)
            },
        )
    };
    read(document).lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the anchors that mdBook and GitHub generate for a document's headings.
fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut all = Vec::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let stem = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        all.push(stem.collect::<String>().to_lowercase().replace(' ', "-"));
    }
    all
}

#[test]
fn anchors_are_those_of_headings_outside_of_code() {
    let text = "# The `weir` command\n```sh\n# no heading\n```\n## DPDK plane, one lcore\n";
    assert_eq!(anchors(text), ["the-weir-command", "dpdk-plane-one-lcore"]);
    assert_eq!(
        joined(Path::new("docs/src/operate"), "../concepts/./flows.md"),
        "docs/src/concepts/flows.md"
    );
}

#[test]
fn the_book_and_the_decisions_list_every_page_once() {
    let mut complaints = Vec::new();
    for (list, folder) in
        [("docs/src/SUMMARY.md", BOOK), ("docs/decisions/README.md", "docs/decisions/")]
    {
        let text = read(list);
        let listed: Vec<String> =
            between(&text, "](", ")").map(|path| format!("{folder}{path}")).collect();
        let pages = files(&[".md"]).into_iter();
        let pages = pages.filter(|page| page.starts_with(folder) && page != list);
        for page in pages {
            let times = listed.iter().filter(|one| **one == page).count();
            if times != 1 {
                complaints.push(format!("{list} lists {page} {times} times, expected once"));
            }
        }
    }
    let parts = ["Context", "Decision", "Measurement", "Consequence"];
    let decision = |page: &String| page.starts_with("docs/decisions/0");
    for page in files(&[".md"]).iter().filter(|page| decision(page)) {
        let text = read(page);
        let found: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        if found != parts {
            complaints.push(format!("{page}: its sections are {found:?}, expected {parts:?}"));
        }
        let number = page.split('/').next_back().and_then(|name| name.split('-').next());
        if !text.starts_with(&format!("# {}: ", number.unwrap_or_default())) {
            complaints.push(format!("{page}: begin with the number and title"));
        }
    }
    assert_none(complaints);
}

/// Documents of bounded length: path, maximum lines, maximum words.
const LENGTHS: [(&str, usize, usize); 3] =
    [("README.md", 150, 1_800), ("ARCHITECTURE.md", 250, 4_000), ("CONTRIBUTING.md", 100, 1_500)];

#[test]
fn documents_do_not_exceed_their_lengths() {
    let length = |path: &str| (read(path).lines().count(), read(path).split_whitespace().count());
    let mut complaints = Vec::new();
    let mut check = |path: &str, lines, words| {
        let found = length(path);
        if found.0 > lines || found.1 > words {
            complaints.push(format!(
                "{path} has {} lines and {} words, at most {lines} and {words} are allowed",
                found.0, found.1
            ));
        }
    };
    for (path, lines, words) in LENGTHS {
        assert!(root().join(path).exists(), "{path}");
        check(path, lines, words);
    }
    let pages = files(&[".md"]);
    // One screen for a decision, three for a page of the book that is not generated.
    for page in pages.iter().filter(|page| page.starts_with("docs/decisions/0")) {
        check(page, 60, 400);
    }
    let generated = |page: &str| page.starts_with("docs/src/reference/");
    for page in pages.iter().filter(|page| page.starts_with(BOOK) && !generated(page)) {
        check(page, 150, 1_000);
    }
    assert_none(complaints);
}

#[test]
fn the_tests_that_the_provenance_names_exist() {
    let sources: String = files(&[".rs"]).iter().map(|path| read(path)).collect();
    let text = read("docs/provenance.md");
    let named = |word: &&str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        word.matches('_').count() >= 3 && word.chars().all(plain)
    };
    let tests: Vec<&str> = text.split('`').skip(1).step_by(2).filter(named).collect();
    assert!(tests.len() > 60, "{tests:?}");
    let missing = tests.iter().filter(|test| {
        !sources.contains(&format!("fn {test}("))
            && !sources.contains(&format!("name = \"{test}\""))
    });
    assert_none(missing.map(|test| format!("docs/provenance.md: no test {test}")).collect());
}

/// Returns the directories of the workspace's crates.
fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let list = manifest.lines().find_map(|line| line.strip_prefix("members = ["));
    let members = list.and_then(|list| list.strip_suffix(']')).expect("members on one line");
    members.split(", ").map(|member| member.trim_matches('"').to_owned()).collect()
}

/// Returns a manifest's direct dependencies, without those given by path.
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
fn documents_name_every_crate_and_dependency_and_only_existing_make_targets() {
    let (readme, architecture) = (read("README.md"), read("ARCHITECTURE.md"));
    let reasons = read("docs/dependencies.md");
    let mut complaints = Vec::new();
    let members = members();
    // The emulators and router drivers below tests/ are described with `tests`.
    for member in members.iter().filter(|member| !member.starts_with("tests/")) {
        if !architecture.contains(&format!("`{member}`")) {
            complaints.push(format!("ARCHITECTURE.md: no crate `{member}`"));
        }
        for dependency in dependencies(&read(&format!("{member}/Cargo.toml"))) {
            let own = members.iter().any(|other| other.rsplit('/').next() == Some(&dependency));
            if !own && !reasons.contains(&format!("`{dependency}`")) {
                complaints.push(format!(
                    "docs/dependencies.md: no reason for `{dependency}`, which {member} uses"
                ));
            }
        }
    }
    if root().join("config/KEYS.md").exists() && !readme.contains("config/KEYS.md") {
        complaints.push("README.md: no link to config/KEYS.md".into());
    }
    let makefile = read("Makefile");
    for document in files(&[".md"]) {
        let text = read(&document);
        let targets = text.split("`make ").skip(1);
        for target in targets.filter_map(|rest| rest.split(['`', ' ']).next()) {
            if !makefile.lines().any(|line| line.starts_with(&format!("{target}:"))) {
                complaints.push(format!(
                    "{document} names `make {target}`, which is no target of the Makefile"
                ));
            }
        }
    }
    assert_none(complaints);
}
