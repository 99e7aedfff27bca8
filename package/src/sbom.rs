//! The software bill of materials, in CycloneDX 1.5 (JSON).

use crate::graph::Origin;
use crate::parts::{Library, PROGRAMS, Parts, XDP};
use serde_json::{Value, json};

/// Returns the document for the package of this version.
pub fn document(parts: &Parts<'_>, version: &str, timestamp: &str) -> Result<Value, String> {
    let crates = parts.crates()?;
    let root = format!("pkg:deb/weir@{version}?arch=amd64");
    let mut components = Vec::new();
    let mut dependencies = Vec::new();

    let program_ref = |name: &str| format!("program/{name}");
    for program in &PROGRAMS {
        components.push(json!({
            "type": "application", "bom-ref": program_ref(program.name), "name": program.name,
            "version": version, "licenses": [{"expression": "Apache-2.0"}],
        }));
        let own = |name: &str| {
            let found =
                crates.iter().find(|(_, (one, _))| one.origin == Origin::Local && one.name == name);
            found.map(|(reference, _)| reference.clone())
        };
        let mut uses: Vec<String> = own(program.crate_name).into_iter().collect();
        uses.push(parts.standard.purl.clone());
        match program.name {
            "fastpath" => uses.push(parts.dpdk.purl.clone()),
            "ebpf-fallback" => uses.extend(own(XDP)),
            _ => {}
        }
        dependencies.push(json!({"ref": program_ref(program.name), "dependsOn": uses}));
    }
    for (reference, (one, uses)) in &crates {
        let mut component = json!({
            "type": "library", "bom-ref": reference, "name": one.name, "version": one.version,
        });
        if !one.license.is_empty() {
            component["licenses"] = json!([{"expression": one.license}]);
        }
        if one.origin == Origin::CratesIo {
            component["purl"] = reference.as_str().into();
            component["hashes"] = json!([{"alg": "SHA-256", "content": one.checksum}]);
        }
        if !one.repository.is_empty() {
            component["externalReferences"] = json!([{"type": "vcs", "url": one.repository}]);
        }
        components.push(component);
        dependencies.push(json!({"ref": reference, "dependsOn": uses}));
    }
    for library in [&parts.dpdk, &parts.standard].into_iter().chain(&parts.shared) {
        components.push(component(library));
        dependencies.push(json!({"ref": library.purl}));
    }
    let mut contained: Vec<String> = PROGRAMS.iter().map(|one| program_ref(one.name)).collect();
    contained.extend(parts.shared.iter().map(|library| library.purl.clone()));
    dependencies.push(json!({"ref": root, "dependsOn": contained}));

    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp,
            "component": {
                "type": "application", "bom-ref": root, "name": "weir", "version": version,
                "purl": root, "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn component(library: &Library) -> Value {
    let Library { name, version, purl, license } = library;
    let mut component = json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
    });
    if let Some(license) = license {
        component["licenses"] = json!([{"expression": license}]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::tests::{library, workspace};
    use std::collections::BTreeSet;

    #[test]
    fn every_dependency_is_a_component_and_no_component_is_listed_twice() {
        let names: Vec<&str> = PROGRAMS.iter().map(|program| program.crate_name).collect();
        let (workspace, xdp) = (workspace(&names), workspace(&[XDP]));
        let parts = Parts {
            workspace: &workspace,
            xdp: &xdp,
            dpdk: library("dpdk", Some("BSD-3-Clause")),
            standard: library("rust", Some("MIT OR Apache-2.0")),
            shared: vec![library("libnuma1", None)],
        };
        let bom = document(&parts, "0.1.0", "2026-11-27T00:00:00Z").expect("a document");
        let list = |key: &str| bom[key].as_array().expect("an array").clone();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let components: Vec<String> =
            list("components").iter().map(|one| text(&one["bom-ref"])).collect();
        let mut known: BTreeSet<String> = components.iter().cloned().collect();
        assert_eq!(known.len(), components.len(), "{components:?}");
        assert_eq!(known.len(), 4 + 6 + 3, "{components:?}");
        known.insert(text(&bom["metadata"]["component"]["bom-ref"]));
        let dependencies = list("dependencies");
        assert_eq!(dependencies.len(), known.len());
        for one in &dependencies {
            let uses = one["dependsOn"].as_array().cloned().unwrap_or_default();
            for name in uses.iter().chain([&one["ref"]]) {
                assert!(known.contains(&text(name)), "{name}");
            }
        }
        let fastpath = dependencies.iter().find(|one| one["ref"] == "program/fastpath");
        let uses = &fastpath.expect("fastpath")["dependsOn"];
        assert!(uses.as_array().is_some_and(|uses| uses.contains(&parts.dpdk.purl.into())));
    }
}
