//! Cases of the control plane: objects in, tables and the map dump out, the same through four
//! planes: maps in memory, maps in memory that fail now and then, the region in a file and the
//! region in kernel maps. Root is needed, and a kernel with BPF.
//!
//! A case is a file in `cases/`: a sentence, and then sections, each after a line `-- TITLE --`.
//! What is done:
//!
//! ```text
//!   appliance                 the appliance's spec, YAML
//!   objects                   documents in YAML, ours or Kubernetes', taken in one transaction
//!   delete                    a line each: `Service shop/web of api`
//!   health                    a line each: `shop/web 10.0.0.1:8080/TCP fails`, or `passes`
//!   redirect                  a line each: `203.0.113.1:80/TCP to shop/other`, or `to itself`
//!   precedence                sources, the preferred first
//!   restart                   a new process over the same maps; what was deleted meanwhile
//!   restart waiting           the same, and a source has not said all that it knows
//!   initialized               now it has
//! ```
//! What is there then, once everything is reconciled:
//!
//! ```text
//!   services, frontends, backends [COLUMN ...]     as `weir db show` has them, two spaces between
//!   conditions                                     what the objects are told
//!   maps [SVC|BE|REV|AFF|SRCRANGE|MAGLEV ...]      as `weir maps dump --no-ids` has them
//!   region refuses            a line each: `203.0.113.1:80/TCP why`; it stays as it was there
//!   region lacks, region adds lines of the dump in which the region differs, on purpose
//! ```
//! A difference of the region that is written down and isn't there any more fails like any other.
//! `CASES=write cargo test -p slowpath --test cases` writes what is there into the files: write
//! what is done and the titles of what shall be shown, let it be written, and read it.
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

use planes::Below;
use script::Case;

/// What has to have a case of its own.
const ASKED: &[&str] = &[
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

/// Plays all cases over one kind of plane.
fn all(below: Below) {
    let cases = Case::all();
    let missing: Vec<&&str> =
        ASKED.iter().filter(|name| !cases.iter().any(|case| case.name == **name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
    let mut wrong = Vec::new();
    let mut faults = 0;
    for case in &cases {
        // Other writes fail each time.
        let times = if below == Below::Faulty { 1..=6 } else { 1..=1 };
        for seed in times {
            let played = stage::play(case, below, seed);
            faults += played.faults;
            wrong.extend(check::complaints(case, &played.shown, below));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    match below {
        Below::Faulty => assert!(faults > 200, "only {faults} writes failed in all cases"),
        _ => assert_eq!(faults, 0),
    }
}

#[test]
fn memory() {
    if std::env::var("CASES").is_ok_and(|what| what == "write") {
        for case in Case::all() {
            let (plain, region) =
                (stage::play(&case, Below::Memory, 1), stage::play(&case, Below::File, 1));
            case.write(&check::written(&case, &plain.shown, &region.shown));
        }
    }
    all(Below::Memory);
}

#[test]
fn faulty_memory() {
    all(Below::Faulty);
}

#[test]
fn region_in_a_file() {
    all(Below::File);
}

#[test]
fn region_in_kernel_maps() {
    all(Below::KernelMaps);
}
