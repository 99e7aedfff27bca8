//! Tests of Maglev tables against Cilium's own test vectors, and of the accuracy of shares.

use super::*;
use std::net::IpAddr;

fn backend(ip: &str, port: u16, weight: u32) -> MaglevBackend {
    let addr = Addr::from(ip.parse::<IpAddr>().unwrap());
    MaglevBackend { text: text(&addr, port, "TCP"), weight }
}

fn slots_of(table: &[u32], index: u32) -> Vec<usize> {
    (0..table.len()).filter(|&slot| table[slot] == index).collect()
}

/// Returns the number of slots of each of `count` backends.
fn slot_counts(table: &[u32], count: usize) -> Vec<u32> {
    let mut counts = vec![0; count];
    table.iter().for_each(|&index| counts[index as usize] += 1);
    counts
}

#[test]
fn shares_are_exact_to_a_slot_and_fill_the_table() {
    for weights in [&[1][..], &[1, 1], &[1, 2, 3], &[65_535, 1], &[1, 0, 7, 7], &[100; 251]] {
        for size in SIZES {
            let table = super::shares(weights, size);
            assert_eq!(table.len(), size as usize);
            let sum: u32 = weights.iter().sum();
            for (index, weight) in (0..).zip(weights) {
                let have = table.iter().filter(|slot| **slot == index).count() as f64;
                let share = f64::from(size) * f64::from(*weight) / f64::from(sum);
                assert!((have - share).abs() < 1.0, "{weights:?} in {size}: {have} of {share}");
            }
        }
    }
    assert!(super::shares(&[], 251).is_empty());
}

#[test]
fn text_equals_that_of_cilium() {
    let v6 = Addr::from("2001:db8::1".parse::<IpAddr>().unwrap());
    assert_eq!(text(&v6, 53, "UDP"), "[[2001:db8::1]:53/UDP,State:active]");
    assert_eq!(backend("10.0.0.1", 80, 1).text, "[10.0.0.1:80/TCP,State:active]");
}

/// Cilium's own test vector for its smallest table (main of 2025, `pkg/maglev`): weights 2, 13, 111
/// and 10; every slot that is not listed belongs to backend 2.
#[test]
fn table_equals_that_of_cilium_slot_for_slot() {
    let backends = [
        backend("0.0.0.1", 1, 2),
        backend("0.0.0.3", 3, 13),
        backend("0.0.0.4", 4, 111),
        backend("0.0.0.5", 5, 10),
    ];
    let table = build(&backends, 251, Seed::default());
    assert_eq!(slots_of(&table, 0), [12, 129, 196, 230]);
    let of_1 = [
        9, 18, 26, 43, 44, 61, 78, 95, 96, 112, 113, 122, 130, 139, 147, 164, 165, 171, 182, 191,
        198, 208, 217, 243,
    ];
    assert_eq!(slots_of(&table, 1), of_1);
    let of_3 =
        [5, 14, 16, 41, 57, 66, 75, 100, 118, 127, 152, 154, 179, 181, 204, 213, 231, 235, 240];
    assert_eq!(slots_of(&table, 3), of_3);
    assert!(table.iter().all(|&index| index < 4));
}

/// The numbers of slots that Cilium's tests state for these weights and for two equal backends.
#[test]
fn slot_counts_equal_those_in_tests_of_cilium() {
    let weighted = [
        backend("0.0.0.1", 1, 2),
        backend("0.0.0.2", 2, 13),
        backend("0.0.0.3", 3, 111),
        backend("0.0.0.4", 4, 10),
    ];
    assert_eq!(slot_counts(&build(&weighted, 1021, Seed::default()), 4), [16, 98, 832, 75]);
    let equal = [backend("10.1.0.1", 80, 100), backend("10.1.0.2", 80, 100)];
    assert_eq!(slot_counts(&build(&equal, 1021, Seed::default()), 2), [511, 510]);
}

#[test]
fn the_order_of_backends_changes_no_slot() {
    let mut backends: Vec<_> =
        (1..20).map(|i| backend(&format!("10.0.0.{i}"), 80, 1 + i % 4)).collect();
    let table = build(&backends, 509, Seed::default());
    let texts: Vec<_> = table.iter().map(|&i| backends[i as usize].text.clone()).collect();
    backends.reverse();
    let table = build(&backends, 509, Seed::default());
    let reversed: Vec<_> = table.iter().map(|&i| backends[i as usize].text.clone()).collect();
    assert_eq!(texts, reversed);
}

/// Backends are removed, added and reordered, and change weights, few or many at once; some have
/// equal texts.
#[test]
fn cached_order_builds_the_same_table() {
    let mut random = fastrand::Rng::with_seed(7);
    let text = |key: &u16| text(&Addr::from(IpAddr::from([10, 0, 0, *key as u8])), *key / 256, "");
    let mut order = Order::default();
    let mut backends: Vec<(u16, u32)> = Vec::new();
    for round in 0..400 {
        for _ in 0..random.usize(..if round % 20 == 0 { 120 } else { 4 }) {
            let at = random.usize(..=backends.len());
            match random.u8(..5) {
                0 if at < backends.len() => drop(backends.remove(at)),
                1 if at < backends.len() => backends[at].1 = random.u32(1..200),
                2 if at < backends.len() => backends.swap(0, at),
                3 if random.bool() => backends.sort_unstable(),
                _ if backends.len() < 251 => backends.insert(at, (random.u16(..600), 100)),
                _ => backends.clear(),
            }
        }
        let size = if round % 50 < 40 { 251 } else { 509 };
        let (keys, weights): (Vec<u16>, Vec<u32>) = backends.iter().copied().unzip();
        let with_text = |(key, weight): &(u16, u32)| (text(key), *weight);
        let all = backends.iter().map(with_text);
        let all: Vec<_> = all.map(|(text, weight)| MaglevBackend { text, weight }).collect();
        let built = build(&all, size, Seed::default());
        assert_eq!(order.table(&keys, &weights, text, size, Seed::default()), built);
    }
}

#[test]
fn a_removed_backend_moves_hardly_any_slot_of_the_others() {
    let backends: Vec<_> = (1..=10).map(|i| backend(&format!("10.0.0.{i}"), 80, 1)).collect();
    let before = build(&backends, 16_381, Seed::default());
    let after = build(&backends[..9], 16_381, Seed::default());
    let moved = before.iter().zip(&after).filter(|(b, a)| **b < 9 && a != b).count();
    assert!(moved * 100 < 16_381, "{moved} slots of staying backends moved");
}

#[test]
fn small_weights_count_although_their_integer_mean_is_one() {
    let table =
        build(&[backend("10.0.0.1", 80, 1), backend("10.0.0.2", 80, 2)], 1021, Seed::default());
    assert_eq!(slot_counts(&table, 2), [341, 680]);
}

/// Maximum deviation of a backend's slots from its exact share, in slots, for each size and over
/// the weights below: the meaning of "exact to the table's resolution". The values equal Cilium's,
/// whose algorithm makes a backend with a low weight wait for whole rounds.
const WORST: [(u32, f64); 10] = [
    (251, 2.12),
    (509, 1.88),
    (1021, 3.99),
    (2039, 2.33),
    (4093, 1.88),
    (8191, 1.30),
    (16_381, 0.97),
    (32_749, 1.88),
    (65_521, 1.70),
    (131_071, 2.03),
];

#[test]
fn largest_deviation_of_a_share_is_the_stated_one() {
    let sets: [&[u32]; 7] = [
        &[1, 2],
        &[1, 1, 1],
        &[1, 3, 1, 1, 2],
        &[100, 50, 25],
        &[2, 13, 111, 10],
        &[1, 1000],
        &[7, 7, 7, 7, 7, 1, 1, 1, 50, 3],
    ];
    for (size, stated) in WORST {
        let mut worst = 0.0_f64;
        for weights in sets {
            let backends: Vec<_> = (0..weights.len())
                .map(|i| backend(&format!("10.0.0.{}", i + 1), 80, weights[i]))
                .collect();
            let sum: u32 = weights.iter().sum();
            let table = build(&backends, size, Seed::default());
            assert_eq!(table.len(), size as usize);
            for (share, weight) in slot_counts(&table, weights.len()).iter().zip(weights) {
                let exact = f64::from(size) * f64::from(*weight) / f64::from(sum);
                worst = worst.max((f64::from(*share) - exact).abs());
            }
        }
        assert!((worst - stated).abs() < 0.01, "size {size}: {worst:.2} slots off, not {stated}");
    }
    assert_eq!(WORST.map(|(size, _)| size), SIZES);
}

#[test]
fn handles_no_backends_and_more_backends_than_slots() {
    assert!(build(&[], 251, Seed::default()).is_empty());
    let many: Vec<_> =
        (0..300).map(|i| backend(&format!("10.0.{}.{}", i / 250, i % 250), 1, 1)).collect();
    assert_eq!(build(&many, 251, Seed::default()).len(), 251);
}
