//! `TokenBucket`: a rate limiter that is refilled by elapsed time. Both data planes use it, each
//! with its own clock.
//!
//! One word holds the time at which the bucket will be full again, as in the virtual scheduling
//! form of the generic cell rate algorithm (ITU-T I.371). Each token advances that time by one
//! interval; the bucket is empty if that time is further ahead than the bucket's depth.

use crate::atomic::{AtomicU64, Ordering::Relaxed};

/// Nanoseconds per second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Rate and depth of a bucket. They may change from call to call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Tokens per second; 0 for no limit.
    pub per_s: u32,
    /// Time in nanoseconds in which an empty bucket refills. The bucket holds at least one token.
    pub depth_ns: u64,
}

impl Rate {
    /// Returns the time per token and the depth, both in nanoseconds.
    #[inline(always)]
    fn interval_and_depth(self) -> (u64, u64) {
        let interval = SECOND_NS / if self.per_s == 0 { 1 } else { self.per_s as u64 };
        (interval, if self.depth_ns < interval { interval } else { self.depth_ns })
    }
}

/// A token bucket. Only one lcore writes it.
#[repr(transparent)]
#[derive(Debug)]
pub struct TokenBucket(AtomicU64);

impl TokenBucket {
    /// Creates a full bucket.
    pub const fn new() -> TokenBucket {
        TokenBucket(AtomicU64::new(0))
    }

    /// Returns the time in nanoseconds until the bucket is full. If a bucket of this depth cannot
    /// be that empty, the clock was set back or the limit was raised, and the bucket counts as
    /// full.
    #[inline(always)]
    fn full_in(&self, depth: u64, now_ns: u64) -> u64 {
        let ahead = self.0.load(Relaxed).saturating_sub(now_ns);
        if ahead > 2 * depth { 0 } else { ahead }
    }

    /// Returns whether a token is left.
    #[inline(always)]
    pub fn has_token(&self, rate: Rate, now_ns: u64) -> bool {
        if rate.per_s == 0 {
            return true;
        }
        let (interval, depth) = rate.interval_and_depth();
        self.full_in(depth, now_ns) + interval <= depth
    }

    /// Takes a token. If none is left, the bucket refills correspondingly later.
    #[inline(always)]
    pub fn take(&self, rate: Rate, now_ns: u64) {
        if rate.per_s != 0 {
            let (interval, depth) = rate.interval_and_depth();
            self.0.store(now_ns + self.full_in(depth, now_ns) + interval, Relaxed);
        }
    }
}

impl Default for TokenBucket {
    fn default() -> TokenBucket {
        TokenBucket::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns how many of `requests` simultaneous events are admitted.
    fn admitted(bucket: &TokenBucket, rate: Rate, now_ns: u64, requests: u32) -> u32 {
        let mut all = 0;
        for _ in 0..requests {
            if bucket.has_token(rate, now_ns) {
                bucket.take(rate, now_ns);
                all += 1;
            }
        }
        all
    }

    #[test]
    fn a_full_bucket_admits_its_depth_and_is_refilled_by_elapsed_time() {
        let (bucket, rate) = (TokenBucket::new(), Rate { per_s: 1000, depth_ns: 50 * MS });
        let start = 7 * SECOND_NS;
        assert_eq!(admitted(&bucket, rate, start, 99), 50);
        assert_eq!(admitted(&bucket, rate, start + 10 * MS, 99), 10);
        assert_eq!(admitted(&bucket, rate, start + 10 * MS + MS / 2, 99), 0);
        // After a pause of any length, the bucket holds its depth and no more.
        assert_eq!(admitted(&bucket, rate, start + 900 * SECOND_NS, 99), 50);
    }

    #[test]
    fn rate_holds_over_ten_seconds_for_any_clock_step() {
        for step in [MS / 7, 3 * MS, 10 * MS] {
            let (bucket, rate) = (TokenBucket::new(), Rate { per_s: 12_345, depth_ns: 50 * MS });
            let steps = 10 * SECOND_NS / step;
            let all: u32 = (0..steps).map(|n| admitted(&bucket, rate, n * step, 999)).sum();
            let depth = 12_345 / 20;
            assert!(all.abs_diff(123_450 + depth) <= 130, "{all} with steps of {step} ns");
        }
    }

    #[test]
    fn a_slow_rate_admits_one_at_a_time() {
        let (bucket, rate) = (TokenBucket::new(), Rate { per_s: 2, depth_ns: 50 * MS });
        let all = [0, 499, 500, 999, 1000].map(|ms| admitted(&bucket, rate, ms * MS, 9));
        assert_eq!(all, [1, 0, 1, 0, 1]);
    }

    #[test]
    fn unconditionally_taken_token_delays_later_ones() {
        let (bucket, rate) = (TokenBucket::new(), Rate { per_s: 10, depth_ns: 100 * MS });
        bucket.take(rate, 0);
        bucket.take(rate, 0);
        assert_eq!([100, 199, 200].map(|ms| bucket.has_token(rate, ms * MS)), [false, false, true]);
    }

    #[test]
    fn a_clock_that_was_set_back_finds_a_full_bucket() {
        let (bucket, rate) = (TokenBucket::new(), Rate { per_s: 1000, depth_ns: 50 * MS });
        assert_eq!(admitted(&bucket, rate, 900 * SECOND_NS, 99), 50);
        assert_eq!(admitted(&bucket, rate, 7 * SECOND_NS, 99), 50);
    }

    #[test]
    fn zero_is_no_limit() {
        let (bucket, none) = (TokenBucket::new(), Rate { per_s: 0, depth_ns: 0 });
        assert_eq!(admitted(&bucket, none, 7, 9_999), 9_999);
    }
}
