//! Comparison of a case's expected state with the actual one, and generation of expected sections.

use std::collections::BTreeMap;

use state::show::{Table, cell};

use super::planes::PlaneKind;
use super::script::{Case, Section, Step};
use super::stage::ObservedState;

/// Returns all differences between a plane and the case, with the actual state.
pub fn mismatches(case: &Case, shown: &[ObservedState], plane_kind: PlaneKind) -> Vec<String> {
    let mut wrong = Vec::new();
    let nothing = Vec::new();
    for (number, (step, now)) in case.steps.iter().zip(shown).enumerate() {
        let before = number.checked_sub(1).map_or(&nothing, |before| &shown[before].lines);
        let region = plane_kind.is_region().then(|| RegionDifferences::of(step));
        let refused = region.as_ref().map(|region| region.refuses.clone()).unwrap_or_default();
        let mut complain = |title: &str, expected: &[String], actual: &[String]| {
            if expected != actual {
                let (name, sentence) = (&case.name, &case.sentence);
                wrong.push(format!(
                    "{name}, step {} over {plane_kind:?}: {sentence}\n{}-- {title} --\n{}\n",
                    number + 1,
                    difference(expected, actual),
                    actual.join("\n"),
                ));
            }
        };
        let unlisted: BTreeMap<_, _> =
            now.refused.iter().filter(|(at, why)| refused.get(*at) != Some(why)).collect();
        let accepted = refused.iter().filter(|(at, _)| !now.refused.contains_key(*at));
        let accepted: Vec<String> = accepted.map(|(at, why)| format!("{at} {why}")).collect();
        complain("region refuses (these are not refused: delete the lines)", &accepted, &[]);
        for section in &step.expected {
            match section.words().as_slice() {
                ["maps", kinds @ ..] => {
                    let expected: Vec<String> = section.lines().map(str::to_owned).collect();
                    let expected = match &region {
                        Some(region) => region.expected(&expected, before, kinds),
                        None => expected,
                    };
                    complain(&section.title, &expected, &of_kinds(&now.lines, kinds));
                }
                ["conditions"] => {
                    let expected: Vec<String> = section.lines().map(str::to_owned).collect();
                    complain(&section.title, &expected, &now.conditions);
                }
                ["region", ..] => {}
                _ => {
                    let (expected, actual) = compared(section, now, &refused);
                    complain(&section.title, &expected, &actual);
                }
            }
        }
        // A section `frontends` shows errors. A step without one must have no errors but those in
        // `region refuses`.
        if step.expected.iter().all(|section| section.words()[0] != "frontends") {
            let unlisted: Vec<String> =
                unlisted.iter().map(|(at, why)| format!("{at} {why}")).collect();
            complain("region refuses", &[], &unlisted);
        }
    }
    wrong
}

/// Returns the missing lines and the additional lines.
fn difference(expected: &[String], actual: &[String]) -> String {
    let missing = expected.iter().filter(|line| !actual.contains(line));
    let surplus = actual.iter().filter(|line| !expected.contains(line));
    let missing = missing.map(|line| format!("  missing: {line}\n"));
    missing.chain(surplus.map(|line| format!("  surplus: {line}\n"))).collect()
}

/// The expected differences of the region in a step.
struct RegionDifferences {
    refuses: BTreeMap<String, String>,
    lacks: Vec<String>,
    adds: Vec<String>,
}

impl RegionDifferences {
    fn of(step: &Step) -> RegionDifferences {
        let lines = |title: &str| -> Vec<String> {
            step.expected(title).iter().flat_map(|s| s.lines()).map(str::to_owned).collect()
        };
        let refuses = lines("region refuses").into_iter().map(|line| {
            let (at, why) = line.split_once(' ').expect("an address and why");
            (at.to_owned(), why.to_owned())
        });
        let refuses = refuses.collect();
        RegionDifferences { refuses, lacks: lines("region lacks"), adds: lines("region adds") }
    }

    /// Returns the lines that the region is expected to have, given the lines expected of maps
    /// (`plain`) and the lines that the region had before the step.
    fn expected(&self, plain: &[String], before: &[String], kinds: &[&str]) -> Vec<String> {
        let mut lines = without_refused(&self.refuses, plain, before);
        for line in &of_kinds(&self.lacks, kinds) {
            let was = lines.len();
            lines.retain(|other| other != line);
            assert!(lines.len() < was, "`region lacks` has a line of no effect: {line}");
        }
        for line in of_kinds(&self.adds, kinds) {
            assert!(!lines.contains(&line), "`region adds` has a line of no effect: {line}");
            lines.push(line);
        }
        lines.sort();
        of_kinds(&lines, kinds)
    }
}

/// Returns the lines expected of a plane that rejects some frontends: these keep their lines of
/// `before`, with the backends that they refer to; the others have the lines of `plain`.
fn without_refused(
    refused: &BTreeMap<String, String>,
    plain: &[String],
    before: &[String],
) -> Vec<String> {
    let (_, mut lines) = split_rejected(plain, refused);
    lines.retain(|line| !line.starts_with("BE:"));
    lines.extend(split_rejected(before, refused).0);
    let mut referenced: BTreeMap<&str, &String> = BTreeMap::new();
    for line in before.iter().chain(plain).filter(|line| line.starts_with("BE:")) {
        let address = word_after(line, "ADDR=").unwrap_or_default();
        let slot = format!(" BEID={address} COUNT");
        if lines.iter().any(|other| other.contains(&slot)) {
            referenced.insert(address, line);
        }
    }
    let referenced: Vec<String> = referenced.into_values().cloned().collect();
    lines.extend(referenced);
    lines.sort();
    lines
}

/// Separates the lines of rejected frontends from the others. Reverse NAT lines (`REV`) show
/// neither protocol nor scope, so one such line is taken for each rejected frontend.
fn split_rejected(
    lines: &[String],
    refused: &BTreeMap<String, String>,
) -> (Vec<String>, Vec<String>) {
    let mut reverse: Vec<&str> =
        refused.keys().map(|at| at.split('/').next().unwrap_or(at)).collect();
    lines.iter().cloned().partition(|line| {
        let of = word_after(line, "ADDR=").or_else(|| word_after(line, "ID="));
        let of = of.unwrap_or_default();
        match line.split(':').next() {
            Some("BE") => false,
            Some("REV") => match reverse.iter().position(|at| *at == of) {
                Some(at) => !reverse.swap_remove(at).is_empty(),
                None => false,
            },
            _ => refused.contains_key(of),
        }
    })
}

/// Returns the word that follows a space and `key` in a line.
fn word_after<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    line.split(&format!(" {key}")).nth(1)?.split(' ').next()
}

/// Returns the lines of these kinds (`SVC`, `BE`); all lines if no kinds are given.
fn of_kinds(lines: &[String], kinds: &[&str]) -> Vec<String> {
    let is_of = |line: &&String| {
        kinds.is_empty() || kinds.iter().any(|kind| line.starts_with(&format!("{kind}:")))
    };
    lines.iter().filter(is_of).cloned().collect()
}

/// Same as `of_kinds`, but returns no lines if no kinds are given.
fn of_listed_kinds(lines: Vec<String>, kinds: &[&str]) -> Vec<String> {
    if kinds.is_empty() { Vec::new() } else { of_kinds(&lines, kinds) }
}

/// Returns the table and the columns that the title of a section names; without columns, all but
/// `since`.
fn columns(section: &Section) -> (Table, Vec<String>) {
    let words = section.words();
    let table = Table::named(words[0]).expect("a title of expected state");
    let columns = match &words[1..] {
        [] => table.columns().iter().filter(|column| **column != "since").copied().collect(),
        some => some.to_vec(),
    };
    (table, columns.into_iter().map(str::to_owned).collect())
}

/// Returns the cells of a table by line, the first line being the column names.
fn cells(section: &Section, shown: &ObservedState) -> Vec<Vec<String>> {
    let (table, columns) = columns(section);
    let rows =
        &shown.rows[Table::ALL.iter().position(|other| *other == table).expect("one of all")];
    let value = |row: &state::show::Row, column: &String| {
        let value = row.get(column).unwrap_or_else(|| panic!("there is no column {column}"));
        match cell(value) {
            empty if empty.is_empty() => "-".to_owned(),
            text => text,
        }
    };
    let rows = rows.iter().map(|row| columns.iter().map(|column| value(row, column)).collect());
    std::iter::once(columns.clone()).chain(rows).collect()
}

/// Returns lines in which columns are aligned and separated by two spaces.
fn aligned(cells: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
    let line = |row: &Vec<String>| {
        let padded = row.iter().enumerate().map(|(n, cell)| {
            let width = width(n).unwrap_or_default();
            format!("{cell:width$}")
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

/// Returns a table as expected and as it is, in the same form. Status and error of frontends that
/// the region must reject are masked in both, because `mismatches` compares them.
fn compared(
    section: &Section,
    shown: &ObservedState,
    refused: &BTreeMap<String, String>,
) -> (Vec<String>, Vec<String>) {
    let mut actual = cells(section, shown);
    let split = |line: &str| -> Vec<String> {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    };
    let mut expected: Vec<Vec<String>> = section.lines().map(split).collect();
    let (_, columns) = columns(section);
    for rows in [&mut actual, &mut expected] {
        for row in rows.iter_mut().filter(|row| refused.contains_key(&row[0])) {
            for (cell, column) in row.iter_mut().zip(&columns) {
                if ["status", "error"].contains(&column.as_str()) {
                    "(refused)".clone_into(cell);
                }
            }
        }
    }
    let complete = expected.iter().all(|row| row.len() == columns.len());
    let expected =
        if complete { aligned(&expected) } else { section.lines().map(str::to_owned).collect() };
    (expected, aligned(&actual))
}

/// Returns the expected sections of each step, generated from the actual state.
pub fn actual_sections(
    case: &Case,
    plain: &[ObservedState],
    region: &[ObservedState],
) -> Vec<Vec<Section>> {
    let nothing = Vec::new();
    let mut all = Vec::new();
    for (number, step) in case.steps.iter().enumerate() {
        let (now, actual) = (&plain[number], &region[number]);
        let mut sections = Vec::new();
        let mut kinds: Vec<&str> = Vec::new();
        for section in step.expected.iter().filter(|section| section.words()[0] != "region") {
            let lines = match section.words().as_slice() {
                ["maps", some @ ..] => {
                    kinds.extend(if some.is_empty() {
                        &["SVC", "BE", "REV", "AFF", "SRCRANGE", "MAGLEV"]
                    } else {
                        some
                    });
                    of_kinds(&now.lines, some)
                }
                ["conditions"] => now.conditions.clone(),
                _ => aligned(&cells(section, now)),
            };
            sections.push(Section::new(&section.title, &lines));
        }
        let refused: BTreeMap<String, String> = actual
            .refused
            .iter()
            .filter(|(at, _)| !now.refused.contains_key(*at))
            .map(|(at, why)| (at.clone(), why.clone()))
            .collect();
        let before = number.checked_sub(1).map_or(&nothing, |before| &region[before].lines);
        let expected = without_refused(&refused, &now.lines, before);
        let missing = expected.iter().filter(|line| !actual.lines.contains(line)).cloned();
        let surplus = actual.lines.iter().filter(|line| !expected.contains(line)).cloned();
        let refuses = refused.iter().map(|(at, why)| format!("{at} {why}"));
        for (title, lines) in [
            ("region refuses", refuses.collect::<Vec<_>>()),
            ("region lacks", of_listed_kinds(missing.collect(), &kinds)),
            ("region adds", of_listed_kinds(surplus.collect(), &kinds)),
        ] {
            if !lines.is_empty() {
                sections.push(Section::new(title, &lines));
            }
        }
        all.push(sections);
    }
    all
}
