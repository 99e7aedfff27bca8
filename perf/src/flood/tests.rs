//! Runs each flood in each mode at a small size. The results depend on the simulated time only, not
//! on the speed of the machine.

use super::*;

/// Returns a plan with capacity for 2,048 unconfirmed flows. At its rate, such a flow stays for 205
/// ms, a little more than two round trips of 100 ms.
fn small(mode: Mode, kind: Kind) -> Plan {
    Plan { mode, kind, rate: 10_000, flows: 4_096, established: 200, new_per_s: 150, ms: 400 }
}

fn assert_promises_kept(mode: Mode) {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.exists_in(mode)) {
        let outcome = run(&small(mode, kind)).unwrap();
        assert_eq!(outcome.broken(true), Vec::<String>::new(), "{outcome}\n{:?}", outcome.drops);
        assert!(outcome.flood_packets >= 6_900, "{outcome}");
        let full = outcome.flows_max > 2_048;
        let fills = mode != Mode::Return && kind.begins_flows() && mode != Mode::Dsr;
        assert!(full || !fills, "the ring of unconfirmed flows was never full: {outcome}");
    }
}

#[test]
fn return_mode_keeps_all_promises_in_each_flood() {
    assert_promises_kept(Mode::Return);
}

#[test]
fn tunnel_mode_keeps_all_promises_in_each_flood() {
    assert_promises_kept(Mode::Tunnel);
}

#[test]
fn dsr_mode_keeps_all_promises_in_each_flood() {
    assert_promises_kept(Mode::Dsr);
}

#[test]
fn nat_mode_keeps_all_promises_in_each_flood() {
    assert_promises_kept(Mode::Nat);
}

#[test]
fn nat_exhaustion_affects_only_new_clients() {
    let plan = Plan { rate: 200_000, ..small(Mode::Nat, Kind::Syn) };
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.established().lost, 0, "{outcome}");
    assert!(outcome.during()[2].finished < outcome.during()[2].begun, "{outcome}");
    assert!(!outcome.is_within(2) && outcome.broken(false).is_empty(), "{outcome}");
}
