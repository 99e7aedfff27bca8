//! The list of crates inside a program, in the format of `cargo auditable`: JSON, compressed with
//! zlib, in the ELF section `.dep-v0`. `cargo audit bin PROGRAM`, trivy, grype and others read it.

use crate::graph::{Graph, Origin};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the content of the section for the program of the crate `root`.
pub fn section(graph: &Graph, root: usize) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec_zlib(list(graph, root).to_string().as_bytes(), 9)
}

fn list(graph: &Graph, root: usize) -> Value {
    let linked = graph.linked(root);
    let mut order: Vec<usize> = graph.linked_and_built_with(root).into_iter().collect();
    order.sort_by_key(|index| {
        let one = &graph.crates[*index];
        (&one.name, &one.version)
    });
    let positions: BTreeMap<usize, usize> =
        order.iter().enumerate().map(|(position, index)| (*index, position)).collect();
    let packages = order.iter().map(|index| {
        let one = &graph.crates[*index];
        let source = match one.origin {
            Origin::Local => "local",
            Origin::CratesIo => "crates.io",
        };
        let mut entry = json!({"name": one.name, "version": one.version, "source": source});
        if !linked.contains(index) {
            entry["kind"] = "build".into();
        }
        let mut dependencies: Vec<usize> = one
            .dependencies
            .iter()
            .filter(|dependency| dependency.normal || dependency.build)
            .filter_map(|dependency| positions.get(&dependency.index).copied())
            .collect();
        dependencies.sort_unstable();
        dependencies.dedup();
        if !dependencies.is_empty() {
            entry["dependencies"] = dependencies.into();
        }
        if *index == root {
            entry["root"] = true.into();
        }
        entry
    });
    json!({"packages": packages.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::tests::example;

    #[test]
    fn the_section_lists_linked_and_build_crates_with_one_root() {
        let bytes = section(&example(), 0);
        let text = miniz_oxide::inflate::decompress_to_vec_zlib(&bytes).expect("zlib");
        let list: Value = serde_json::from_slice(&text).expect("JSON");
        let expected = json!({"packages": [
            {"name": "cc", "version": "1.0.0", "source": "crates.io", "kind": "build"},
            {"name": "derive", "version": "1.0.0", "source": "crates.io", "kind": "build",
             "dependencies": [4]},
            {"name": "linked", "version": "1.0.0", "source": "crates.io"},
            {"name": "program", "version": "1.0.0", "source": "local",
             "dependencies": [0, 1, 2], "root": true},
            {"name": "syn", "version": "1.0.0", "source": "crates.io", "kind": "build"},
        ]});
        assert_eq!(list, expected);
    }
}
