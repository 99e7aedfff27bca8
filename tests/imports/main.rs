//! Checks that the imports between the files of each crate have no cycles.
//!
//! An import is a name of another file in a `use` item or in a path. It counts as an import of
//! the file that defines the name, through whatever re-exports it is reached. Neither a re-export
//! alone nor a `mod` line counts. Method calls are not followed, because the types of their
//! receivers are not known.

mod graph;
mod modules;

use std::path::{Path, PathBuf};

use graph::Graph;
use modules::Modules;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a parent of tests").to_owned()
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}

/// Returns the directories of the workspace's crates, and those of the BPF programs, which are
/// separate workspaces.
fn crates() -> Vec<String> {
    let manifest = read(Path::new("Cargo.toml")).expect("the workspace's manifest");
    let list = manifest.lines().find_map(|line| line.strip_prefix("members = ["));
    let list = list.and_then(|list| list.strip_suffix(']')).expect("members on one line");
    let members = list.split(", ").map(|member| member.trim_matches('"').to_owned());
    members.chain(["ebpf-fallback/xdp", "tests/xdp/bpf"].map(str::to_owned)).collect()
}

/// Returns the root files of a crate's library and programs.
fn targets(folder: &Path) -> Vec<PathBuf> {
    let manifest = read(&folder.join("Cargo.toml")).expect("a crate's manifest");
    let (mut section, mut targets) = ("", Vec::new());
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if matches!(section, "[lib]" | "[[bin]]")
            && let Some(path) = line.strip_prefix("path = ")
        {
            targets.push(folder.join(path.trim_matches('"')));
        }
    }
    targets.extend(["src/lib.rs", "src/main.rs"].map(|file| folder.join(file)));
    let programs = std::fs::read_dir(root().join(folder).join("src/bin"));
    for program in programs.into_iter().flatten().flatten() {
        let path = folder.join("src/bin").join(program.file_name());
        targets.push(if program.path().is_dir() { path.join("main.rs") } else { path });
    }
    targets.sort();
    targets.dedup();
    targets.retain(|file| read(file).is_some());
    targets
}

fn graph_of(folder: &str) -> Graph {
    let mut graph = Graph::default();
    for target in targets(Path::new(folder)) {
        graph.add(&Modules::of_target(&target, &read));
    }
    graph
}

#[test]
fn imports_are_acyclic_in_every_crate() {
    let (mut complaints, mut files) = (Vec::new(), 0);
    for folder in crates() {
        let graph = graph_of(&folder);
        assert!(graph.files().next().is_some(), "{folder}: no file was read");
        files += graph.files().count();
        let cycles = graph.cycles();
        complaints.extend(cycles.iter().map(|c| format!("{folder}: {}", graph.describe(c))));
    }
    assert!(files > 550, "only {files} files were read");
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Returns the graph of one crate with the given sources, `src/lib.rs` first.
fn graph(sources: &[(&str, &str)]) -> Graph {
    let read = |path: &Path| {
        let source = sources.iter().find(|(file, _)| Path::new(file) == path);
        source.map(|(_, text)| (*text).to_owned())
    };
    let mut graph = Graph::default();
    graph.add(&Modules::of_target(Path::new("src/lib.rs"), &read));
    graph
}

#[test]
fn names_are_resolved_to_the_file_that_defines_them() {
    let graph = graph(&[
        ("src/lib.rs", "mod a; mod b; #[path = \"elsewhere/c.rs\"] mod c; mod d; mod e; mod f;"),
        ("src/a.rs", "mod x; mod y; pub use x::X; pub struct A; pub mod inline { pub fn f() {} }"),
        ("src/a/x.rs", "pub struct X; pub fn x() {}"),
        ("src/a/y/mod.rs", "use super::{X as Other, A}; use self::z::Z; mod z;"),
        ("src/a/y/z.rs", "pub struct Z; impl super::super::A {}"),
        ("src/b.rs", "use crate::a::{self, inline}; fn b(x: a::X) -> Vec<a::A> { inline::f() }"),
        ("src/elsewhere/c.rs", "mod sibling; use std::fmt; const C: u8 = crate::d::macro_made();"),
        ("src/elsewhere/sibling.rs", "use super::super::b::nested::Deep; use serde::X;"),
        ("src/d.rs", "made! {} macro_rules! m { () => { $crate::a::A } }"),
        (
            "src/e.rs",
            "use crate::a::*; #[serde(with = \"crate::d::text\")] struct E(X); \
                      fn e() { println!(\"{}\", crate::b::shown()) }",
        ),
        ("src/f.rs", "mod g; pub use g::{G, H}; fn f(g: G) -> u8 { g.H }"),
        ("src/f/g.rs", "pub struct G; pub struct H;"),
    ]);
    let files: Vec<_> = graph.files().map(|file| file.display().to_string()).collect();
    assert_eq!(files.len(), 12, "{files:?}");
    // Through the parent's re-export, and under another name.
    assert_eq!(graph.names("src/a/y/mod.rs", "src/a/x.rs"), ["X"]);
    assert_eq!(graph.names("src/a/y/mod.rs", "src/a.rs"), ["A"]);
    assert_eq!(graph.names("src/a/y/mod.rs", "src/a/y/z.rs"), ["Z"]);
    assert_eq!(graph.names("src/a/y/z.rs", "src/a.rs"), ["A"]);
    // A re-export counts only if the file uses the name itself.
    assert_eq!(graph.names("src/a.rs", "src/a/x.rs"), [""; 0]);
    assert_eq!(graph.names("src/f.rs", "src/f/g.rs"), ["G"]);
    // Through an imported module and an inline module.
    assert_eq!(graph.names("src/b.rs", "src/a/x.rs"), ["X"]);
    assert_eq!(graph.names("src/b.rs", "src/a.rs"), ["A", "f"]);
    // Names that a macro defines belong to the deepest module that exists.
    assert_eq!(graph.names("src/elsewhere/c.rs", "src/d.rs"), ["macro_made"]);
    assert_eq!(graph.names("src/elsewhere/sibling.rs", "src/b.rs"), ["nested"]);
    // In macros' tokens, attributes and globs.
    assert_eq!(graph.names("src/d.rs", "src/a.rs"), ["A"]);
    assert_eq!(graph.names("src/e.rs", "src/d.rs"), ["text"]);
    assert_eq!(graph.names("src/e.rs", "src/b.rs"), ["shown"]);
    assert_eq!(graph.names("src/e.rs", "src/a/x.rs"), ["X"]);
    assert_eq!(graph.names("src/e.rs", "src/a.rs"), [""; 0]);
}

#[test]
fn import_cycles_are_reported_with_their_names() {
    let sources = [
        ("src/lib.rs", "mod a; mod b; mod c; mod d; pub use a::A; use b::B; fn start(b: B) {}"),
        ("src/a.rs", "use crate::b::B; pub struct A;"),
        ("src/b.rs", "pub struct B(crate::c::C);"),
        ("src/c.rs", "pub struct C; fn c() { super::a::A; }"),
        ("src/d.rs", "use crate::{A, start};"),
    ];
    let graph = graph(&sources);
    let cycles = graph.cycles();
    assert_eq!(cycles.len(), 1);
    assert_eq!(
        graph.describe(&cycles[0]),
        "3 files import each other in a cycle:\n  src/a.rs -> src/b.rs: B\n  \
         src/b.rs -> src/c.rs: C\n  src/c.rs -> src/a.rs: A"
    );
}

#[test]
fn test_code_is_ignored() {
    let graph = graph(&[
        ("src/lib.rs", "mod a; mod b; #[cfg(all(test, not(miri)))] mod absent;"),
        ("src/a.rs", "use crate::b::B; pub struct A;"),
        (
            "src/b.rs",
            "pub struct B; #[cfg(test)] use crate::a::A; #[cfg(test)] mod tests { use super::*; } \
             impl B { #[cfg(test)] fn a() -> crate::a::A { crate::a::A } } \
             #[cfg(any(test, feature = \"fuzz\"))] fn fuzzed() { crate::a::A; }",
        ),
    ]);
    assert_eq!(graph.names("src/a.rs", "src/b.rs"), ["B"]);
    assert!(graph.cycles().is_empty());
}
