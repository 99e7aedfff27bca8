//! License files: `copyright` in Debian's machine-readable format (DEP 5), and the license texts of
//! all linked crates with their copyright notices.

use crate::graph::{Crate, Origin};
use crate::parts::{Library, Parts};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Licenses whose texts are part of every Debian installation (package `base-files`), with the
/// file.
const COMMON: [(&str, &str); 1] = [("Apache-2.0", "/usr/share/common-licenses/Apache-2.0")];

/// File with all other license texts, in `/usr/share/doc/weir`.
const TEXTS: &str = "third-party-licenses.txt.gz";

/// Beginnings of the names of license files.
const FILES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// Returns the file `copyright`.
pub fn copyright(parts: &Parts<'_>) -> Result<String, String> {
    let mut text = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weir
Comment:
 The programs contain the components below, linked statically. Their license
 texts with all copyright notices are in third-party-licenses.txt.gz,
 dpdk-copyright and rust-library-copyright.html.gz in this directory, and
 every component with version and checksum in sbom.cdx.json.gz.

Files: *
Copyright: 2026 the authors of Weir
License: Apache-2.0
"
    .to_owned();
    let mut licenses = BTreeSet::from(["Apache-2.0".to_owned()]);
    for (one, _) in parts.crates()?.values().filter(|(one, _)| one.origin != Origin::Local) {
        let authors = match one.authors.is_empty() {
            true => format!("the authors of {}", one.name),
            false => one.authors.join("\n "),
        };
        let license = debian_expression(&one.license);
        write!(
            text,
            "\nFiles: crates/{}-{}/*\nCopyright: {authors}\nLicense: {license}\n",
            one.name, one.version
        )
        .map_err(|e| e.to_string())?;
        licenses.extend(identifiers(&one.license));
    }
    for library in [&parts.dpdk, &parts.standard] {
        let Library { name, version, license, .. } = library;
        let license = license.ok_or_else(|| format!("{name}: no license"))?;
        write!(
            text,
            "\nFiles: {name}-{version}/*\nCopyright: the authors of {name}\nLicense: {}\n",
            debian_expression(license)
        )
        .map_err(|e| e.to_string())?;
        licenses.extend(identifiers(license));
    }
    for license in licenses {
        let location = match COMMON.iter().find(|(name, _)| *name == license) {
            Some((_, file)) => format!("On Debian systems, the text is in {file}."),
            None => format!("The text is in /usr/share/doc/weir/{TEXTS}."),
        };
        write!(text, "\nLicense: {license}\n {location}\n").map_err(|e| e.to_string())?;
    }
    Ok(text)
}

/// Returns an SPDX expression in the notation of DEP 5.
fn debian_expression(spdx: &str) -> String {
    spdx.replace(" OR ", " or ").replace(" AND ", " and ").replace(['(', ')'], "")
}

/// Returns the licenses that an SPDX expression names, an exception with its license.
fn identifiers(spdx: &str) -> Vec<String> {
    let plain = spdx.replace(['(', ')'], "").replace(" AND ", " OR ");
    plain.split(" OR ").map(|one| one.trim().to_owned()).collect()
}

/// Returns the license files of all crates. Equal texts are printed once.
pub fn texts(parts: &Parts<'_>) -> Result<String, String> {
    let crates = parts.crates()?;
    let crates = crates.values().map(|(one, _)| *one).filter(|one| one.origin != Origin::Local);
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for one in crates {
        let files = files(one)?;
        if files.is_empty() {
            without.push(format!("{} {}: {}", one.name, one.version, one.license));
        }
        for (file, content) in files {
            let name = format!("{} {}: {file}", one.name, one.version);
            by_text.entry(content).or_default().push(name);
        }
    }
    let mut sections: Vec<(Vec<String>, String)> =
        by_text.into_iter().map(|(content, names)| (names, content)).collect();
    sections.sort();
    let line = "=".repeat(78);
    let mut text = "Licenses of the crates that are linked into Weir's programs.\n".to_owned();
    if !without.is_empty() {
        text += "\nThese crates contain no license file; their manifests name the license:\n\n  ";
        text += &without.join("\n  ");
        text += "\n";
    }
    for (names, content) in sections {
        let names = names.join("\n");
        write!(text, "\n{line}\n{names}\n{line}\n\n{}\n", content.trim_end())
            .map_err(|e| e.to_string())?;
    }
    Ok(text)
}

/// Returns the license files in a crate's directory, by name.
fn files(one: &Crate) -> Result<Vec<(String, String)>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}; run: cargo fetch", one.folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&one.folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let lower = name.to_lowercase();
        let is_file = entry.path().is_file();
        if is_file && FILES.iter().any(|beginning| lower.starts_with(beginning)) {
            let content = std::fs::read(entry.path()).map_err(failed)?;
            let content = String::from_utf8_lossy(&content).replace("\r\n", "\n");
            files.push((name, content));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::tests::{library, workspace};
    use crate::parts::{PROGRAMS, XDP};

    fn with_parts<T>(folder: &std::path::Path, test: impl FnOnce(&Parts<'_>) -> T) -> T {
        let names: Vec<&str> = PROGRAMS.iter().map(|program| program.crate_name).collect();
        let (mut workspace, mut xdp) = (workspace(&names), workspace(&[XDP]));
        workspace.crates[0].folder = folder.into();
        xdp.crates[0].folder = folder.into();
        test(&Parts {
            workspace: &workspace,
            xdp: &xdp,
            dpdk: library("dpdk", Some("BSD-3-Clause")),
            standard: library("rust-std", Some("MIT OR Apache-2.0")),
            shared: Vec::new(),
        })
    }

    #[test]
    fn every_license_of_a_component_has_a_paragraph() {
        let text = with_parts("/".as_ref(), copyright).expect("a copyright file");
        let files = "\nFiles: crates/linked-1.0.0/*\nCopyright: A. Author <a@example.com>\n\
                     License: MIT or Apache-2.0\n";
        assert!(text.contains(files), "{text}");
        for license in ["Apache-2.0", "BSD-3-Clause", "MIT"] {
            let paragraph = format!("\n\nLicense: {license}\n ");
            assert_eq!(text.matches(&paragraph).count(), 1, "{license}: {text}");
        }
        assert!(!text.contains("weir-xdp"), "{text}");
    }

    #[test]
    fn an_exception_stays_with_its_license() {
        let spdx = "(Apache-2.0 WITH LLVM-exception OR MIT) AND Zlib";
        assert_eq!(identifiers(spdx), ["Apache-2.0 WITH LLVM-exception", "MIT", "Zlib"]);
    }

    #[test]
    fn license_files_are_found_by_name_and_printed_once() {
        let folder = std::env::temp_dir().join(format!("weir-licenses-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory");
        for (name, text) in
            [("LICENSE-MIT", "Permission"), ("lib.rs", "code"), ("COPYING", "Other")]
        {
            std::fs::write(folder.join(name), text).expect("a file");
        }
        let text = with_parts(&folder, texts).expect("the texts");
        std::fs::remove_dir_all(&folder).expect("to remove it");
        assert_eq!(text.matches("Permission").count(), 1, "{text}");
        assert!(text.contains("linked 1.0.0: LICENSE-MIT") && text.contains("Other"), "{text}");
        assert!(!text.contains("code") && !text.contains("no license file"), "{text}");
    }

    #[test]
    fn a_crate_without_a_license_file_is_listed() {
        let folder = std::env::temp_dir().join(format!("weir-no-license-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory");
        let text = with_parts(&folder, texts).expect("the texts");
        std::fs::remove_dir_all(&folder).expect("to remove it");
        assert!(text.contains("  linked 1.0.0: MIT OR Apache-2.0"), "{text}");
    }
}
