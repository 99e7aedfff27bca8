//! Contents of the package: the programs with their crates, and the libraries that are not crates.

use crate::graph::{Crate, Graph, Origin};
use std::collections::BTreeMap;

/// A program of the package and the crate that it is built from.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// File name.
    pub name: &'static str,
    /// Crate.
    pub crate_name: &'static str,
}

/// The programs of the package.
pub const PROGRAMS: [Program; 4] = [
    Program { name: "fastpath", crate_name: "fastpath" },
    Program { name: "slowpath", crate_name: "slowpath" },
    Program { name: "ebpf-fallback", crate_name: "ebpf-fallback" },
    Program { name: "weir", crate_name: "cli" },
];

/// The crate of the XDP programs, a workspace of its own; `ebpf-fallback` contains them.
pub const XDP: &str = "weir-xdp";

/// A library that is not a crate.
#[derive(Clone, Debug)]
pub struct Library {
    /// Name: that of Debian's package, or of the project.
    pub name: String,
    /// Version.
    pub version: String,
    /// Package URL.
    pub purl: String,
    /// SPDX expression, if it is known.
    pub license: Option<&'static str>,
}

/// The contents of the package.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The workspace.
    pub workspace: &'a Graph,
    /// The workspace of the XDP programs.
    pub xdp: &'a Graph,
    /// DPDK, which `fastpath` contains.
    pub dpdk: Library,
    /// Rust's standard library, which each program contains.
    pub standard: Library,
    /// Shared libraries that the package depends on.
    pub shared: Vec<Library>,
}

/// Returns the unique name of a crate in the SBOM: the package URL of a crate from crates.io, or
/// `weir/NAME@VERSION` for a crate of this repository.
pub fn reference(one: &Crate) -> String {
    let Crate { name, version, .. } = one;
    match one.origin {
        Origin::CratesIo => format!("pkg:cargo/{name}@{version}"),
        Origin::Local => format!("weir/{name}@{version}"),
    }
}

impl Parts<'_> {
    /// Returns every linked crate once, by its [`reference`], with the references of the crates
    /// that it uses.
    pub fn crates(&self) -> Result<BTreeMap<String, (&Crate, Vec<String>)>, String> {
        let mut all = BTreeMap::new();
        let roots = PROGRAMS.iter().map(|program| (self.workspace, program.crate_name));
        for (graph, root) in roots.chain([(self.xdp, XDP)]) {
            let linked = graph.linked(graph.local(root)?);
            for index in &linked {
                let one = &graph.crates[*index];
                let (_, uses) =
                    all.entry(reference(one)).or_insert_with(|| (one, Vec::<String>::new()));
                let dependencies = one.dependencies.iter();
                uses.extend(
                    dependencies
                        .filter(|to| to.normal && linked.contains(&to.index))
                        .map(|to| reference(&graph.crates[to.index])),
                );
            }
        }
        for (_, uses) in all.values_mut() {
            uses.sort();
            uses.dedup();
        }
        Ok(all)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a library for tests.
    pub fn library(name: &str, license: Option<&'static str>) -> Library {
        Library {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            purl: format!("pkg:deb/debian/{name}@1.0"),
            license,
        }
    }

    /// Returns a workspace in which every program is one crate with one dependency.
    pub fn workspace(names: &[&str]) -> Graph {
        let mut crates = vec![Crate {
            name: "linked".into(),
            version: "1.0.0".into(),
            license: "MIT OR Apache-2.0".into(),
            authors: vec!["A. Author <a@example.com>".into()],
            folder: "/does-not-exist".into(),
            origin: Origin::CratesIo,
            repository: "https://example.com/linked".into(),
            checksum: "ab".repeat(32),
            is_macro: false,
            dependencies: Vec::new(),
        }];
        for name in names {
            let mut one = crates[0].clone();
            one.name = (*name).into();
            one.origin = Origin::Local;
            one.dependencies =
                vec![crate::graph::Dependency { index: 0, normal: true, build: false }];
            crates.push(one);
        }
        Graph { crates }
    }

    #[test]
    fn a_crate_of_several_programs_is_listed_once() {
        let names: Vec<&str> = PROGRAMS.iter().map(|program| program.crate_name).collect();
        let (workspace, xdp) = (workspace(&names), workspace(&[XDP]));
        let parts = Parts {
            workspace: &workspace,
            xdp: &xdp,
            dpdk: library("dpdk", None),
            standard: library("std", None),
            shared: Vec::new(),
        };
        let crates = parts.crates().expect("all roots exist");
        assert_eq!(crates.len(), 6, "{:?}", crates.keys());
        assert_eq!(crates["weir/cli@1.0.0"].1, ["pkg:cargo/linked@1.0.0"]);
        assert!(crates.contains_key("weir/weir-xdp@1.0.0"));
    }
}
