//! Runs every case on the pipeline in memory and on the XDP programs, and checks that the cases
//! cover all verdicts and drop reasons.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    pub mod differences;
    pub mod loaded;
    pub mod memory;
    pub mod xdp;
}

use planes::differences::{DIFFERENCES, find_difference};
use planes::xdp::{Xdp, namespace};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use tables::counters::{Counter, VerdictCounter};
use tables::reason::DropReason;
use tests::cases::{self, COVERED_ELSEWHERE};

/// All failures are reported together, because the first one is rarely the most informative.
#[test]
fn every_case_passes_in_memory() {
    let mut failed = Vec::new();
    let all = cases::all();
    for case in &all {
        let mut plane = planes::memory::Memory::new();
        if let Err(text) = cases::run(case, &mut plane) {
            failed.push(text);
        }
    }
    println!("{} cases in memory, {} failed", all.len(), failed.len());
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
}

/// A case that is listed in `DIFFERENCES` must fail in the kernel.
#[test]
fn every_case_passes_in_the_kernel() -> Result<(), Box<dyn Error>> {
    let namespace = namespace("cases-xdp")?;
    let failed = namespace.run(|| {
        let mut plane = Xdp::new();
        let mut failed = Vec::new();
        let all = cases::all();
        for case in &all {
            let done = cases::run(case, &mut plane);
            match (find_difference(case.claim), done) {
                (None, Ok(())) | (Some(_), Err(_)) => {}
                (None, Err(text)) => failed.push(text),
                (Some(other), Ok(())) => failed.push(format!(
                    "\"{}\" passes with XDP: remove it from DIFFERENCES ({})",
                    case.claim, other.because
                )),
            }
        }
        let other = DIFFERENCES.len();
        println!("{} cases with XDP, {other} known to differ, {} failed", all.len(), failed.len());
        failed
    })?;
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    Ok(())
}

#[test]
fn every_difference_between_planes_is_a_case() {
    let all = cases::all();
    for other in DIFFERENCES {
        assert!(all.iter().any(|case| case.claim == other.claim), "no case: {}", other.claim);
    }
}

#[test]
fn legs_shared_by_both_directions_are_counted() {
    let shared = |option_slabs: u32| {
        let all = cases::all();
        let mut case = all.into_iter().find(|case| case.setup.option_slabs == 1).expect("a case");
        case.setup.option_slabs = option_slabs;
        let mut plane = planes::memory::Memory::new();
        let same = cases::run(&case, &mut plane).is_ok();
        let counters = plane.loaded().region.counters();
        (same, counters.sum(|page| page.lcore_count(Counter::GatewayLegsShared)))
    };
    assert_eq!(shared(1), (true, 1));
    // With one more slab the case fails, because each direction keeps its own options.
    assert_eq!(shared(2), (false, 0));
}

#[test]
fn clients_without_an_affinity_entry_are_counted() {
    let untracked = |max_affinities: u32| {
        let all = cases::all();
        let mut case = all.into_iter().find(|case| case.setup.max_affinities == 8).expect("a case");
        case.setup.max_affinities = max_affinities;
        let mut plane = planes::memory::Memory::new();
        cases::run(&case, &mut plane).unwrap_or_else(|text| panic!("{text}"));
        let counters = plane.loaded().region.counters();
        counters.sum(|page| page.lcore_count(Counter::AffinitiesUntracked))
    };
    assert!(untracked(8) > 250, "most of 300 clients have no affinity");
    assert_eq!(untracked(1024), 0);
}

#[test]
fn claims_are_unique_sentences_and_cases_have_steps() {
    let mut claims = BTreeSet::new();
    for case in cases::all() {
        assert!(claims.insert(case.claim), "duplicate claim: {}", case.claim);
        assert!(case.claim.ends_with('.'), "the claim is not a sentence: {}", case.claim);
        assert!(!case.steps.is_empty(), "the case has no steps: {}", case.claim);
    }
}

#[test]
fn every_drop_reason_has_a_case_or_a_named_test() {
    let covered = cases::reasons_covered(&cases::all());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a parent of tests");
    let mut missing = Vec::new();
    for reason in DropReason::ALL.iter().filter(|reason| !covered.contains(reason)) {
        let Some(elsewhere) = COVERED_ELSEWHERE.iter().find(|e| e.reason == *reason) else {
            missing.push(format!(
                "no case of drop reason {}: add one to tests/cases, or name its test in \
                 tests/cases/coverage.rs",
                reason.name()
            ));
            continue;
        };
        let text = std::fs::read_to_string(root.join(elsewhere.file)).unwrap_or_default();
        if !text.contains(&format!("fn {}(", elsewhere.test)) {
            missing.push(format!(
                "{}: no test {} in {}",
                reason.name(),
                elsewhere.test,
                elsewhere.file
            ));
        }
    }
    for elsewhere in COVERED_ELSEWHERE.iter().filter(|e| covered.contains(&e.reason)) {
        let reason = elsewhere.reason.name();
        missing.push(format!("{reason} has a case: remove it from COVERED_ELSEWHERE"));
    }
    assert!(missing.is_empty(), "\n{}\n", missing.join("\n"));
}

#[test]
fn every_verdict_has_a_case() {
    let covered = cases::verdicts_covered(&cases::all());
    let all: BTreeSet<&str> = VerdictCounter::ALL
        .iter()
        .filter(|verdict| **verdict != VerdictCounter::Drop)
        .map(|verdict| verdict.name())
        .collect();
    assert_eq!(covered, all, "every verdict has a case");
}
