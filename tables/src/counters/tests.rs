//! Each counter is stored in a word of its own and read back from it.

use super::*;
use crate::layout::{Layout, Sizes};
use std::collections::HashSet;

fn names() -> Vec<(&'static str, &'static str)> {
    let arm = ArmCounter::ALL.iter().map(|c| (c.name(), c.help()));
    let verdict = VerdictCounter::ALL.iter().map(|c| (c.name(), c.help()));
    let lcore = Counter::ALL.iter().map(|c| (c.name(), c.help()));
    let service = ServiceCounter::ALL.iter().map(|c| (c.name(), c.help()));
    arm.chain(verdict).chain(lcore).chain(service).collect()
}

#[test]
fn every_counter_has_a_name_for_metrics_and_a_sentence() {
    for (name, help) in names() {
        assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'), "{name}");
        assert!(help.ends_with('.'), "{name}");
    }
    assert_eq!(ArmCounter::ALL.iter().map(|c| c.name()).collect::<HashSet<_>>().len(), 11);
}

#[test]
fn arm_service_and_backend_counters_have_words_of_their_own() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let pages: Vec<_> = region.counters().pages().collect();
    assert_eq!(pages.len(), Sizes::SMALL.lcores as usize);
    let mut n = 0;
    let mut next = || {
        n += 1;
        n
    };
    let mut expected = Vec::new();
    for (i, page) in pages.iter().enumerate() {
        for arm in [0, 1] {
            for c in ArmCounter::ALL {
                let n = next();
                page.arm(arm, *c, n);
                expected.push((format!("{i} {arm} {c:?}"), n));
            }
        }
        for id in [0, Sizes::SMALL.services - 1] {
            for c in ServiceCounter::ALL {
                let n = next();
                page.service(id, *c, n);
                expected.push((format!("{i} service {id} {c:?}"), n));
            }
        }
        for id in [0, Sizes::SMALL.backends - 1] {
            for c in ServiceCounter::ALL {
                let n = next();
                page.backend(id, *c, n);
                expected.push((format!("{i} backend {id} {c:?}"), n));
            }
        }
    }
    let mut found = Vec::new();
    for (i, page) in pages.iter().enumerate() {
        for arm in [0, 1] {
            for c in ArmCounter::ALL {
                found.push((format!("{i} {arm} {c:?}"), page.arm_count(arm, *c)));
            }
        }
        for id in [0, Sizes::SMALL.services - 1] {
            for c in ServiceCounter::ALL {
                found.push((format!("{i} service {id} {c:?}"), page.service_count(id, *c)));
            }
        }
        for id in [0, Sizes::SMALL.backends - 1] {
            for c in ServiceCounter::ALL {
                found.push((format!("{i} backend {id} {c:?}"), page.backend_count(id, *c)));
            }
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn a_drop_is_counted_once_by_arm_and_reason() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let counters = region.counters();
    for (i, reason) in DropReason::ALL.iter().enumerate() {
        for _ in 0..=i {
            counters.lcore(i as u32 % 2).unwrap().drop((i % 2) as u8, *reason);
        }
    }
    let mut all = 0;
    for (i, reason) in DropReason::ALL.iter().enumerate() {
        let arms = [0, 1].map(|arm| counters.sum(|page| page.dropped(arm, *reason)));
        assert_eq!(arms[i % 2], i as u64 + 1);
        assert_eq!(arms[1 - i % 2], 0);
        all += i as u64 + 1;
    }
    assert_eq!(counters.sum(|page| page.verdict_count(VerdictCounter::Drop)), all);
}

#[test]
fn services_and_backends_beyond_the_counted_ones_are_counted_together() {
    let counted = Sizes { counted_services: 3, counted_backends: 0, ..Sizes::SMALL };
    let region = Region::anonymous(&counted).unwrap();
    let counters = region.counters();
    assert!(counters.counts_service(2) && !counters.counts_service(3));
    assert!(!counters.counts_backend(0) && !counters.counts_backend(NONE));
    for page in counters.pages() {
        for id in 0..Sizes::SMALL.services {
            page.forwarded(id, id, 100);
            page.service(id, ServiceCounter::NewFlows, 1);
            page.backend(id, ServiceCounter::NewFlows, 1);
            page.flow_ended(id, id);
            page.service_drop(id);
        }
        for counter in ServiceCounter::ALL {
            let each = if *counter == ServiceCounter::Bytes { 100 } else { 1 };
            let own: Vec<u64> = (0..6).map(|id| page.service_count(id, *counter)).collect();
            assert_eq!(own, [each, each, each, 0, 0, 0]);
            assert_eq!(page.other_services_count(*counter), each * 13);
            let dropped = *counter == ServiceCounter::Drops;
            let others = if dropped { 0 } else { each * 16 };
            assert_eq!(page.other_backends_count(*counter), others);
            assert_eq!(page.backend_count(0, *counter), 0);
        }
    }
    let full = Layout::new(&Sizes { counted_services: u32::MAX, ..Sizes::SMALL });
    assert_eq!(full.term(Section::Counters), Layout::new(&Sizes::SMALL).term(Section::Counters));
}

#[test]
fn packet_without_service_and_backend_counts_nothing() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    assert!(region.counters().lcore(Sizes::SMALL.lcores).is_none());
    let page = region.counters().lcore(1).unwrap();
    page.forwarded(NONE, NONE, 99);
    page.service_drop(NONE);
    page.flow_ended(NONE, NONE);
    assert!(region.words(Section::Counters).iter().all(|word| word.load(Ordering::Relaxed) == 0));
}

/// The histograms' words are none of the counters', and their bounds are inclusive.
#[test]
fn bursts_and_iterations_have_buckets_of_their_own() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let page = region.counters().lcore(1).unwrap();
    for packets in [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 512] {
        page.burst(packets);
    }
    assert_eq!(page.burst_counts(), [1, 1, 2, 2, 2, 2, 3]);
    assert_eq!(page.lcore_count(Counter::Bursts), 13);
    for bound in ITERATION_BOUNDS_NS {
        page.iteration(bound, true);
        page.iteration(bound + 1, true);
    }
    page.iteration(7, false);
    assert_eq!(page.iteration_counts(), [1, 2, 2, 2, 2, 2, 2, 1]);
    let sum: u64 = ITERATION_BOUNDS_NS.iter().map(|bound| 2 * bound + 1).sum();
    assert_eq!(page.iteration_ns(), [7, sum]);
    let others = Counter::ALL.iter().filter(|counter| **counter != Counter::Bursts);
    assert!(others.clone().all(|counter| page.lcore_count(*counter) == 0));
    assert!(VerdictCounter::ALL.iter().all(|verdict| page.verdict_count(*verdict) == 0));
    for arm in [0, 1] {
        assert!(ArmCounter::ALL.iter().all(|counter| page.arm_count(arm, *counter) == 0));
        assert!(DropReason::ALL.iter().all(|reason| page.dropped(arm, *reason) == 0));
    }
    assert_eq!(region.counters().lcore(0).unwrap().burst_counts(), [0; BURST_BUCKETS]);
}
