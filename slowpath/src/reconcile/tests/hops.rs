//! Test of the next hop of a backend that is removed and added again.

use super::*;

/// Returns the last address bytes of backends whose next hop is not resolved.
fn unresolved(region: &Region) -> Vec<u8> {
    let set = region.tables(region.generation());
    let backends = set.backends().map(|(_, backend)| backend);
    let is_resolved = |hop: u32| set.next_hop(hop).is_some_and(|hop| hop.known);
    backends.filter(|one| !is_resolved(one.next_hop)).map(|one| one.addr.octets()[15]).collect()
}

#[test]
fn a_backend_that_returns_within_6_s_is_resolved() {
    let mut fixture = Fixture::new("comes-back");
    let (mut reconcile, _shared) = fixture.start();
    let _fastpath = fixture.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(fixture.region);
    for absence_ms in (200..6_000).step_by(200) {
        fixture.backends(&["10.0.2.11", "10.0.2.12"]);
        fixture.pass(1_000, &mut reconcile, Some(&mut lcore));
        assert_eq!(ids(fixture.region).1.len(), 2);
        assert_eq!(
            unresolved(fixture.region),
            Vec::<u8>::new(),
            "absent for {} ms",
            absence_ms - 200
        );
        fixture.backends(&["10.0.2.11"]);
        fixture.pass(absence_ms, &mut reconcile, Some(&mut lcore));
    }
}
