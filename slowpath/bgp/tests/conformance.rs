//! Checks that each test named in `CONFORMANCE.md` exists, and that each requirement there has an
//! answer.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Collects the names of all tests in the sources: functions under `#[test]`.
fn tests(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let mut lines = text.lines().map(str::trim);
            while lines.any(|line| line == "#[test]") {
                let name = lines.next().and_then(|line| line.strip_prefix("fn "));
                found.extend(name.and_then(|name| name.split('(').next()).map(str::to_owned));
            }
        }
    }
}

#[test]
fn every_named_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("CONFORMANCE.md")).unwrap();
    let mut found = BTreeSet::new();
    tests(&root.join("src"), &mut found);
    tests(&root.join("tests"), &mut found);
    tests(&root.join("../bfd/tests"), &mut found);
    // Of the quoted words, only names of tests have more than two underscores.
    let quoted = table.split('`').skip(1).step_by(2);
    let named: Vec<&str> = quoted.filter(|word| word.matches('_').count() > 2).collect();
    assert!(named.len() > 60, "{}", named.len());
    let missing: Vec<_> = named.iter().filter(|name| !found.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_section_has_an_answer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("CONFORMANCE.md")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.contains("---"));
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{row}");
        // The table about RFC 4271; that of routers has four columns as well.
        let of_rfc =
            cells[0].starts_with(|c: char| c.is_ascii_digit()) || cells[0].starts_with("App");
        if cells.len() == 4 && of_rfc {
            let answers = ["yes", "no", "in part", "otherwise", "does not apply"];
            assert!(answers.contains(&cells[2]), "{row}");
        }
    }
}
