//! The crates that are linked into the programs, read from `cargo metadata` and `Cargo.lock`.

use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// One crate of the dependency graph.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Name, as in its manifest.
    pub name: String,
    /// Version.
    pub version: String,
    /// SPDX expression, with `OR` in place of the older `/`. Empty: the manifest has none.
    pub license: String,
    /// Authors, as in the manifest. Many crates name none.
    pub authors: Vec<String>,
    /// Directory of its sources.
    pub folder: PathBuf,
    /// Origin of the crate.
    pub origin: Origin,
    /// Web address of its repository; may be empty.
    pub repository: String,
    /// SHA-256 of the archive on the registry; empty for crates of this repository.
    pub checksum: String,
    /// Whether it is a procedural macro, which runs in the compiler and is not linked into
    /// programs.
    pub is_macro: bool,
    /// Dependencies of the crate.
    pub dependencies: Vec<Dependency>,
}

/// The origin of a crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// This repository.
    Local,
    /// crates.io.
    CratesIo,
}

/// A dependency of a crate.
#[derive(Clone, Copy, Debug)]
pub struct Dependency {
    /// Index into [`Graph::crates`].
    pub index: usize,
    /// Whether it is a normal dependency, which the crate itself uses.
    pub normal: bool,
    /// Whether it is a build dependency, which the crate's build script uses.
    pub build: bool,
}

/// All crates of one workspace.
#[derive(Debug)]
pub struct Graph {
    /// The crates.
    pub crates: Vec<Crate>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    #[serde(default)]
    authors: Vec<String>,
    source: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl Graph {
    /// Parses the output of `cargo metadata --format-version 1` and the text of `Cargo.lock`.
    pub fn parse(metadata: &str, lock: &str) -> Result<Self, String> {
        let metadata: Metadata =
            serde_json::from_str(metadata).map_err(|e| format!("cargo metadata: {e}"))?;
        let checksums = checksums(lock)?;
        let indices: BTreeMap<&str, usize> =
            metadata.packages.iter().enumerate().map(|(i, one)| (one.id.as_str(), i)).collect();
        let mut crates = Vec::with_capacity(metadata.packages.len());
        for package in &metadata.packages {
            let origin = match package.source.as_deref() {
                None => Origin::Local,
                Some(source) if source.contains("github.com/rust-lang/crates.io-index") => {
                    Origin::CratesIo
                }
                Some(source) => {
                    let Package { name, version, .. } = package;
                    return Err(format!("{name} {version}: unknown registry {source}"));
                }
            };
            let key = (package.name.clone(), package.version.clone());
            let checksum = match origin {
                Origin::Local => String::new(),
                Origin::CratesIo => checksums
                    .get(&key)
                    .cloned()
                    .ok_or_else(|| format!("Cargo.lock has no checksum of {} {}", key.0, key.1))?,
            };
            crates.push(Crate {
                name: key.0,
                version: key.1,
                license: package.license.as_deref().unwrap_or_default().replace('/', " OR "),
                authors: package.authors.clone(),
                folder: package.manifest_path.parent().map(PathBuf::from).unwrap_or_default(),
                origin,
                repository: package.repository.clone().unwrap_or_default(),
                checksum,
                is_macro: package.targets.iter().any(|t| t.kind.iter().any(|k| k == "proc-macro")),
                dependencies: Vec::new(),
            });
        }
        for node in &metadata.resolve.nodes {
            let index = *indices.get(node.id.as_str()).ok_or("cargo metadata: unknown node")?;
            for dependency in &node.deps {
                let target =
                    *indices.get(dependency.pkg.as_str()).ok_or("cargo metadata: unknown crate")?;
                let has = |kind: Option<&str>| {
                    dependency.dep_kinds.iter().any(|one| one.kind.as_deref() == kind)
                };
                crates[index].dependencies.push(Dependency {
                    index: target,
                    normal: has(None),
                    build: has(Some("build")),
                });
            }
        }
        Ok(Self { crates })
    }

    /// Returns the index of a crate of this repository.
    pub fn local(&self, name: &str) -> Result<usize, String> {
        let matches = |one: &Crate| one.name == name && one.origin == Origin::Local;
        self.crates
            .iter()
            .position(matches)
            .ok_or_else(|| format!("the workspace has no crate `{name}`"))
    }

    /// Returns the crates that are linked into the program of the crate `root`, itself included.
    pub fn linked(&self, root: usize) -> BTreeSet<usize> {
        self.closure(root, |from, dependency| {
            !from.is_macro && dependency.normal && !self.crates[dependency.index].is_macro
        })
    }

    /// Returns the linked crates, and those that run while the program is built.
    pub fn linked_and_built_with(&self, root: usize) -> BTreeSet<usize> {
        self.closure(root, |_, dependency| dependency.normal || dependency.build)
    }

    fn closure(
        &self,
        root: usize,
        follow: impl Fn(&Crate, &Dependency) -> bool,
    ) -> BTreeSet<usize> {
        let (mut found, mut open) = (BTreeSet::from([root]), vec![root]);
        while let Some(index) = open.pop() {
            let from = &self.crates[index];
            for dependency in from.dependencies.iter().filter(|one| follow(from, one)) {
                if found.insert(dependency.index) {
                    open.push(dependency.index);
                }
            }
        }
        found
    }
}

/// Returns the checksums in `Cargo.lock` by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>, String> {
    let lock: Value = toml::from_str(lock).map_err(|e| format!("Cargo.lock: {e}"))?;
    let packages = lock["package"].as_array().ok_or("Cargo.lock: no packages")?;
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    Ok(packages
        .iter()
        .filter(|one| one["checksum"].is_string())
        .map(|one| ((text(one, "name"), text(one, "version")), text(one, "checksum")))
        .collect())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A program with a linked crate, a macro with a crate of its own, a build dependency, and a
    /// dependency of tests.
    pub fn example() -> Graph {
        let source = "registry+https://github.com/rust-lang/crates.io-index";
        let package = |name: &str, source: Option<&str>, kind: &str| {
            serde_json::json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
                "authors": ["A. Author <a@example.com>"], "source": source,
                "repository": null, "manifest_path": format!("/crates/{name}/Cargo.toml"),
                "targets": [{"kind": [kind]}],
            })
        };
        let uses = |name: &str, kind: Option<&str>| {
            let kinds = serde_json::json!([{"kind": kind, "target": null}]);
            serde_json::json!({"pkg": name, "dep_kinds": kinds})
        };
        let mut packages = vec![package("program", None, "bin")];
        let mut lock = String::from("version = 4\n");
        for (name, kind) in [
            ("linked", "lib"),
            ("derive", "proc-macro"),
            ("syn", "lib"),
            ("cc", "lib"),
            ("t", "lib"),
        ] {
            packages.push(package(name, Some(source), kind));
            lock += &format!(
                "[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\nchecksum = \"ab{name}\"\n"
            );
        }
        let metadata = serde_json::json!({
            "packages": packages,
            "resolve": {"nodes": [
                {"id": "program", "deps": [
                    uses("linked", None), uses("derive", None), uses("cc", Some("build")),
                    uses("t", Some("dev")),
                ]},
                {"id": "derive", "deps": [uses("syn", None)]},
                {"id": "linked", "deps": []}, {"id": "syn", "deps": []},
                {"id": "cc", "deps": []}, {"id": "t", "deps": []},
            ]},
        });
        Graph::parse(&metadata.to_string(), &lock).expect("the example is valid")
    }

    fn names(graph: &Graph, indices: BTreeSet<usize>) -> Vec<&str> {
        indices.into_iter().map(|index| graph.crates[index].name.as_str()).collect()
    }

    #[test]
    fn macros_and_build_dependencies_are_not_linked() {
        let graph = example();
        let root = graph.local("program").expect("it exists");
        assert_eq!(names(&graph, graph.linked(root)), ["program", "linked"]);
        let all = graph.linked_and_built_with(root);
        assert_eq!(names(&graph, all), ["program", "linked", "derive", "syn", "cc"]);
        assert_eq!(graph.crates[1].license, "MIT OR Apache-2.0");
        assert_eq!(graph.crates[1].checksum, "ablinked");
    }

    #[test]
    fn a_crate_of_another_registry_is_an_error() {
        let metadata = serde_json::json!({
            "packages": [{
                "id": "x", "name": "x", "version": "1.0.0", "license": null,
                "source": "git+https://example.com/x", "repository": null,
                "manifest_path": "/x/Cargo.toml", "targets": [],
            }],
            "resolve": {"nodes": []},
        });
        let error = Graph::parse(&metadata.to_string(), "package = []").expect_err("git");
        assert!(error.contains("x 1.0.0: unknown registry git+https://example.com/x"), "{error}");
    }
}
