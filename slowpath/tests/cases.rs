//! Test cases of the control plane: objects as input, tables and the plane's dump as output. Each
//! case runs over four planes: maps in memory, maps in memory with injected faults, the region in a
//! file, and the region in kernel maps. The result is the same, except for the differences of the
//! region that the case lists. Needs root and a kernel with BPF.
//!
//! A case is a file in `cases/`: a sentence, followed by sections, each after a line `-- TITLE --`.
//! Sections with actions:
//!
//! ```text
//!   appliance                 the appliance's spec, YAML
//!   objects                   YAML documents, Weir's or Kubernetes', applied in one transaction
//!   delete                    one per line: `Service shop/web of api`
//!   health                    one per line: `shop/web 10.0.0.1:8080/TCP fails`, or `passes`
//!   redirect                  one per line: `203.0.113.1:80/TCP to shop/other`, or `to itself`
//!   precedence                sources, highest precedence first
//!   restart                   a new process over the same plane; lines: deletions in between
//!   restart waiting           the same, with a source whose list is not complete yet
//!   initialized               that source's list is complete now
//! ```
//! Sections with the expected state, once everything is reconciled:
//!
//! ```text
//!   services, frontends, backends [COLUMN ...]     as in `weir db show`, separated by two spaces
//!   conditions                                     conditions of the objects
//!   maps [SVC|BE|REV|AFF|SRCRANGE|MAGLEV ...]      as in `weir maps dump --no-ids`
//!   region refuses            one per line: `203.0.113.1:80/TCP CAUSE`, a frontend that only the
//!                             region rejects, and that keeps its former state there
//!   region lacks, region adds intended differences of the region from `maps`, as lines
//! ```
//! A case fails also if a listed difference of the region does not exist.
//!
//! `CASES=write cargo test -p slowpath --test cases` writes the actual state into the files: write
//! the actions and the titles of the expected sections, run the command, and review the result.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails where what it expects is not so"
)]

#[path = "cases/check.rs"]
mod check;
#[path = "cases/planes.rs"]
mod planes;
#[path = "cases/script.rs"]
mod script;
#[path = "cases/stage.rs"]
mod stage;

use planes::PlaneKind;
use script::Case;

/// Cases that must exist.
const REQUIRED: &[&str] = &[
    "address_moved",
    "affinity",
    "algorithm",
    "cluster_ip",
    "dsr",
    "dual_stack",
    "external_ips",
    "graceful_termination",
    "headless",
    "host_port",
    "load_balancer",
    "local_redirect",
    "maintenance",
    "nat46_nat64",
    "node_port",
    "policy_external",
    "policy_internal",
    "port_names",
    "proxy_redirect",
    "pruning",
    "quarantine",
    "restart",
    "slices",
    "source_ranges",
    "topology",
    "two_services_one_address",
    "two_sources",
    "weights",
];

/// Runs all cases over one kind of plane.
fn run_all(plane_kind: PlaneKind) {
    let cases = Case::all();
    let missing: Vec<&&str> =
        REQUIRED.iter().filter(|name| !cases.iter().any(|case| case.name == **name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
    let mut wrong = Vec::new();
    let mut faults = 0;
    for case in &cases {
        // Each seed makes other writes fail.
        let seeds = if plane_kind == PlaneKind::Faulty { 1..=6 } else { 1..=1 };
        for seed in seeds {
            let played = stage::play(case, plane_kind, seed);
            faults += played.faults;
            wrong.extend(check::mismatches(case, &played.shown, plane_kind));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    match plane_kind {
        PlaneKind::Faulty => assert!(faults > 200, "only {faults} writes failed in all cases"),
        _ => assert_eq!(faults, 0),
    }
}

#[test]
fn memory() {
    if std::env::var("CASES").is_ok_and(|what| what == "write") {
        for case in Case::all() {
            let (plain, region) =
                (stage::play(&case, PlaneKind::Memory, 1), stage::play(&case, PlaneKind::File, 1));
            case.write(&check::actual_sections(&case, &plain.shown, &region.shown));
        }
    }
    run_all(PlaneKind::Memory);
}

#[test]
fn faulty_memory() {
    run_all(PlaneKind::Faulty);
}

#[test]
fn region_in_a_file() {
    run_all(PlaneKind::File);
}

#[test]
fn region_in_kernel_maps() {
    run_all(PlaneKind::KernelMaps);
}
