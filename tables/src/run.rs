//! Sorted runs of the slot arena, searched by bisection: source ranges of a service, and the
//! backends to which its clients may have affinity.
//!
//! ```text
//! 10.0.0.0/8, 192.0.2.0/24  ->  ::ffff:a00:0 | ::ffff:b00:0 | ::ffff:c000:200 | ::ffff:c000:300
//!                                begins         ends           begins           ends
//! ```
//! Ranges of both families are ascending bounds in the 128-bit form, four words each, most
//! significant first. A client is in a range if the number of bounds at or below its address is
//! odd. A range that ends at the highest address has no end bound. Nested, adjacent and duplicate
//! prefixes are merged when the bounds are computed.

use packet::addr::Addr;

use crate::affinity::Affinity;
use crate::record::{SERVICE_DENY, Service};
use crate::set::TableSet;

/// Words per bound.
pub const BOUND_WORDS: u32 = 4;

/// Bisection steps that suffice for the longest run that fits in the arena (2^30 words).
const STEPS: u32 = 31;

/// Returns how many of the first `count` sorted elements are at or below the searched value.
/// `is_not_above` returns 1 for the index of such an element and 0 for that of another. Each step
/// halves the remainder whatever the comparison yields, so that no branch depends on it.
#[inline(always)]
fn not_above(count: u32, is_not_above: impl Fn(u32) -> u32) -> u32 {
    let (mut found, mut left) = (0, count);
    for _ in 0..STEPS {
        if left == 0 {
            break;
        }
        let half = left.div_ceil(2);
        found += half * is_not_above(found + half - 1);
        left /= 2;
    }
    found
}

#[inline(always)]
const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

impl TableSet<'_> {
    /// Returns whether a service's source ranges permit a client.
    #[inline(always)]
    pub fn admits(&self, service: &Service, client: &Addr) -> bool {
        let run = service.ranges;
        if run.count == 0 {
            return true;
        }
        let [a, b, c, d] = client.words.map(u32::from_be);
        let (high, low) = (pair(a, b), pair(c, d));
        let bounds = not_above(run.count / BOUND_WORDS, |n| {
            let at = run.first.wrapping_add(n * BOUND_WORDS);
            // A separate function in the BPF program, so that each step is one path for the
            // verifier.
            #[cfg(target_arch = "bpf")]
            return crate::parts::bound(at, high, low);
            #[cfg(not(target_arch = "bpf"))]
            self.bound(at, high, low).into()
        });
        (bounds % 2 == 1) != (service.flags & SERVICE_DENY != 0)
    }

    /// Returns whether the bound at arena index `at` is at or below the address whose halves are
    /// `high` and `low`.
    #[inline(always)]
    pub(crate) fn bound(&self, at: u32, high: u64, low: u64) -> bool {
        let word = |i| self.slot(at.wrapping_add(i)).unwrap_or(0);
        let (first, rest) = (pair(word(0), word(1)), pair(word(2), word(3)));
        first < high || (first == high && rest <= low)
    }
}

impl TableSet<'_> {
    /// Returns whether a client's affinity to a backend is still valid: the backend has the same
    /// incarnation and serves the service.
    #[inline(always)]
    pub fn is_affinity_valid(&self, service: &Service, affinity: &Affinity) -> bool {
        let run = service.affinity_backends;
        let among = not_above(run.count, |n| {
            let at = run.first.wrapping_add(n);
            #[cfg(target_arch = "bpf")]
            return crate::parts::member(at, affinity.backend);
            #[cfg(not(target_arch = "bpf"))]
            self.slot(at).is_some_and(|word| word <= affinity.backend).into()
        });
        // If the backend is in the run, it is the last element at or below itself.
        among != 0
            && self.slot(run.first.wrapping_add(among - 1)) == Some(affinity.backend)
            && self.backend(affinity.backend).is_some_and(|b| b.incarnation == affinity.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bisection_equals_linear_count() {
        for count in 0..70_u32 {
            for sought in 0..=count {
                assert_eq!(
                    not_above(count, |n| u32::from(n < sought)),
                    sought,
                    "{sought} of {count}"
                );
            }
        }
        assert_eq!(not_above(1 << 30, |n| u32::from(n < 123_456_789)), 123_456_789);
        assert_eq!(not_above(1 << 30, |_| 1), 1 << 30);
    }
}
