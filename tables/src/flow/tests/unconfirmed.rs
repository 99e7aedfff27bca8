//! Eviction of unconfirmed and reset flows when space is short; other flows are never evicted.

use super::*;
use crate::flow::{DEFAULT_PERCENT, budget, unconfirmed_ring_slots};
use packet::rewrite::{ACK, RST};

/// Begins a flow as the data planes do: in a ring slot, and with eviction of others when space is
/// short.
fn begin(flows: &Flows<'_>, new: &NewFlow) -> Result<Hit, InsertError> {
    let one_way = new.forward.flags & crate::flow::PATH_ONE_WAY != 0;
    let done = match flows.insert(new, &[], 100) {
        Err(InsertError::Full) if flows.evict_any().is_some() => flows.insert(new, &[], 100),
        done => done,
    };
    let hit = done?;
    flows.note(&hit, 0, true);
    flows.add_unconfirmed(&hit, one_way);
    Ok(hit)
}

fn flow(n: u32) -> NewFlow {
    NewFlow { nat_map: NONE, ..nat_flow(n, 1024 + (n % 60_000) as u16) }
}

fn one_way(n: u32) -> NewFlow {
    let new = flow(n);
    let forward =
        Forward { flags: crate::flow::PATH_ONE_WAY, mode: Mode::Dsr as u8, ..new.forward };
    NewFlow { back: None, forward, ..new }
}

fn confirm(flows: &Flows<'_>, hit: &Hit) {
    flows.note(hit, ACK, false);
    assert_eq!(flows.note(hit, ACK, true), TcpState::Established);
}

fn has(flows: &Flows<'_>, n: u32) -> bool {
    find(flows, &flow(n).front).is_some()
}

#[test]
fn flood_evicts_only_oldest_unconfirmed_flows() {
    let region = small();
    let flows = table(&region);
    let budget = budget(flows.capacity(), DEFAULT_PERCENT[0]);
    let confirmed = flows.capacity() - budget;
    for n in 0..confirmed {
        confirm(&flows, &begin(&flows, &flow(n)).unwrap());
    }
    let last = confirmed + 20 * budget;
    for n in confirmed..last {
        begin(&flows, &flow(n)).unwrap();
        let oldest = n.saturating_sub(budget - 1).max(confirmed);
        assert!(has(&flows, n) && has(&flows, oldest));
        assert!(oldest == confirmed || !has(&flows, oldest - 1), "{n}: one more than the budget");
    }
    assert!((0..confirmed).all(|n| has(&flows, n)));
    assert_eq!(flows.live(), flows.capacity());
    // A flow that was confirmed after it entered its ring is kept. The table is full, so each new
    // flow evicts an unconfirmed one.
    let newest = find(&flows, &flow(last - 1).front).unwrap();
    confirm(&flows, &newest);
    for n in last..last + 3 * budget {
        begin(&flows, &flow(n)).unwrap();
    }
    assert!(has(&flows, last - 1) && (0..confirmed).all(|n| has(&flows, n)));
    assert_consistent(&flows);
}

#[test]
fn one_way_flows_have_their_own_budget() {
    let region = small();
    let flows = table(&region);
    let [two_way_budget, one_way_budget] =
        DEFAULT_PERCENT.map(|percent| budget(flows.capacity(), percent));
    for n in 0..two_way_budget {
        begin(&flows, &flow(n)).unwrap();
    }
    for n in 1000..1000 + 5 * one_way_budget {
        begin(&flows, &one_way(n)).unwrap();
    }
    assert!((0..two_way_budget).all(|n| has(&flows, n)));
    assert_eq!(flows.live(), two_way_budget + one_way_budget);
    // The initiator's second packet confirms the flow.
    let confirmed = find(&flows, &one_way(1000 + 5 * one_way_budget - 1).front).unwrap();
    assert_eq!(flows.note(&confirmed, ACK, true), TcpState::Established);
    for n in 5000..5000 + 5 * one_way_budget {
        begin(&flows, &one_way(n)).unwrap();
    }
    assert!(find(&flows, &one_way(1000 + 5 * one_way_budget - 1).front).is_some());
    assert_consistent(&flows);
}

#[test]
fn budgets_are_percentages_that_can_change_at_run_time() {
    let region = small();
    let flows = table(&region);
    let unconfirmed = |n: u32, make: fn(u32) -> NewFlow| {
        let has = |n: &u32| find(&flows, &make(*n).front).is_some();
        (0..n).filter(has).count() as u32
    };
    let mut percents = vec![[50, 25], [75, 1], [1, 50], [33, 42], [10, 10], [60, 15]];
    percents.push([100, 100]);
    for percent in percents {
        flows.set_unconfirmed_budget(percent);
        let max = [budget(flows.capacity(), percent[0].min(75)), {
            budget(flows.capacity(), percent[1].min(50))
        }];
        let all = 3 * flows.capacity();
        // One ring after the other: the maximum percentages together exceed the table.
        for n in 0..all {
            begin(&flows, &flow(n)).unwrap();
        }
        assert_eq!(unconfirmed(all, flow), max[0], "{percent:?}");
        while flows.evict_any().is_some() {}
        for n in 0..all {
            begin(&flows, &one_way(n)).unwrap();
        }
        assert_eq!(unconfirmed(all, one_way), max[1], "{percent:?}");
        // A successor keeps the flows, and the budget unless it is set again.
        let live = flows.live();
        assert_eq!(flows.recover().recovered, live);
        begin(&flows, &one_way(all)).unwrap();
        assert_eq!(flows.live(), live);
        while flows.evict_any().is_some() {}
        assert_consistent(&flows);
    }
}

#[test]
fn rings_hold_the_largest_budgets_of_tables_of_any_size() {
    for flows in (64..5000).chain([1 << 16, (1 << 16) + 1, 1 << 22, 67_108_864]) {
        for (slots, max) in unconfirmed_ring_slots(flows).into_iter().zip(crate::flow::MAX_PERCENT)
        {
            assert!(slots.is_power_of_two() && slots >= budget(flows, max));
            assert!(slots <= 2 * budget(flows, max));
        }
    }
    assert_eq!(
        (budget(64, 1), budget(4096, 50), unconfirmed_ring_slots(4096)),
        (1, 2048, [4096, 2048])
    );
}

#[test]
fn full_table_evicts_reset_flows_and_no_other_confirmed_ones() {
    let region = small();
    let flows = table(&region);
    for n in 0..flows.capacity() {
        confirm(&flows, &begin(&flows, &flow(n)).unwrap());
    }
    for n in 5000..5100 {
        assert_eq!(begin(&flows, &flow(n)), Err(InsertError::Full));
    }
    let reset = find(&flows, &flow(3).front).unwrap();
    assert_eq!(flows.note(&reset, RST, true), TcpState::Reset);
    assert_eq!((flows.live(), flows.count_not_reset()), (flows.capacity(), flows.capacity() - 1));
    let evicted: Vec<_> = (0..flows.capacity()).filter_map(|_| flows.evict_any()).collect();
    assert_eq!(evicted.len(), 1);
    assert!(!has(&flows, 3));
    assert_eq!(flows.live(), flows.capacity() - 1);
    assert_consistent(&flows);
}

#[test]
fn flow_that_continues_after_a_reset_is_not_evicted() {
    let region = small();
    let flows = table(&region);
    let hit = begin(&flows, &flow(1)).unwrap();
    confirm(&flows, &hit);
    let again = || find(&flows, &flow(1).front).unwrap();
    assert_eq!(flows.note(&again(), RST, true), TcpState::Reset);
    assert!(!again().is_established(), "a reset clears the entry's established flag");
    assert_eq!(flows.note(&again(), ACK, true), TcpState::Established);
    assert!(again().is_established());
    assert!((0..64).all(|_| flows.evict_any().is_none()));
}

#[test]
fn evict_ends_an_unconfirmed_flow_and_keeps_a_confirmed_one() {
    let region = small();
    let flows = table(&region);
    let evict = |n| {
        let back = flow(n).back.unwrap().0;
        find(&flows, &back).and_then(|hit| flows.evict(&hit))
    };
    confirm(&flows, &begin(&flows, &flow(1)).unwrap());
    begin(&flows, &flow(2)).unwrap();
    assert_eq!(evict(1), None);
    assert_eq!(evict(3), None);
    assert!(evict(2).is_some());
    assert!(has(&flows, 1) && !has(&flows, 2));
    assert_consistent(&flows);
}

#[test]
fn recovery_restores_unconfirmed_flows() {
    let region = small();
    let flows = table(&region);
    for n in 0..20 {
        let hit = begin(&flows, &flow(n)).unwrap();
        if n % 2 == 0 {
            confirm(&flows, &hit);
        }
    }
    assert_eq!(flows.recover().recovered, 20);
    let evicted = std::iter::from_fn(|| flows.evict_any()).count();
    assert_eq!(evicted, 10);
    assert!((0..20).all(|n| has(&flows, n) == (n % 2 == 0)));
    assert_consistent(&flows);
}
