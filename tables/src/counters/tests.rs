//! Counters land in words of their own, and are read back from there.

use super::*;
use crate::layout::Sizes;
use crate::record::NONE;
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
fn every_word_is_counted_by_itself() {
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
fn ids_that_there_is_no_room_for_count_nothing() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    assert!(region.counters().lcore(Sizes::SMALL.lcores).is_none());
    let page = region.counters().lcore(1).unwrap();
    page.passage(NONE, NONE, 99);
    page.passage(Sizes::SMALL.services, Sizes::SMALL.backends, 99);
    page.service_drop(NONE);
    page.flow_ended(NONE, NONE);
    assert!(region.words(Section::Counters).iter().all(|word| word.load(Ordering::Relaxed) == 0));
}
