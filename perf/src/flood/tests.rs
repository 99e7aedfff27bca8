//! Runs each flood in each mode at a small size; asserts only on the simulation's own time.

use super::*;

/// Capacity for 2,048 unconfirmed flows, so that one stays for 205 ms: two round trips of 100 ms.
fn small(mode: Mode, kind: Kind) -> Plan {
    Plan { mode, kind, rate: 10_000, flows: 4_096, established: 200, new_per_s: 150, ms: 400 }
}

fn keeps_its_promises(mode: Mode) {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_of(mode)) {
        let outcome = run(&small(mode, kind)).unwrap();
        assert_eq!(outcome.broken(true), Vec::<String>::new(), "{outcome}\n{:?}", outcome.drops);
        assert!(outcome.flood_packets >= 6_900, "{outcome}");
        let full = outcome.flows_most > 2_048;
        let fills = mode != Mode::Return && kind.begins_flows() && mode != Mode::Dsr;
        assert!(full || !fills, "the table was never short: {outcome}");
    }
}

#[test]
fn clients_lose_nothing_where_packets_are_returned() {
    keeps_its_promises(Mode::Return);
}

#[test]
fn clients_lose_nothing_where_answers_come_by_us() {
    keeps_its_promises(Mode::Tunnel);
}

#[test]
fn clients_lose_nothing_where_answers_go_past_us() {
    keeps_its_promises(Mode::Dsr);
}

#[test]
fn clients_lose_nothing_behind_nat() {
    keeps_its_promises(Mode::Nat);
}

#[test]
fn where_nat_has_too_few_places_new_clients_lose_and_established_ones_do_not() {
    let plan = Plan { rate: 200_000, ..small(Mode::Nat, Kind::Syn) };
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.established().lost, 0, "{outcome}");
    assert!(outcome.during()[2].through < outcome.during()[2].begun, "{outcome}");
    assert!(!outcome.is_within(2) && outcome.broken(false).is_empty(), "{outcome}");
}
