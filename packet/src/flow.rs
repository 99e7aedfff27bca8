//! `FlowKey`: the key that both directions of a flow share, and its hash.
//!
//! The two ends are stored in an order that does not depend on the packet's direction, so that
//! packets of both directions find the same entry; [`Side`] identifies the end that sent a packet.
//! The scope separates overlapping networks: two gateway endpoints may carry the same 5-tuple.

use crate::addr::Addr;

/// The scope of plain traffic (no tunnel), and of backends' packets that name no gateway endpoint.
pub const SCOPE_PLAIN: u32 = 0;

/// One of the two ends of a [`FlowKey`], such as the sender of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Side {
    /// The end `key.low`.
    Low = 0,
    /// The end `key.high`.
    High = 1,
}

impl Side {
    /// Returns the other end.
    #[inline(always)]
    pub const fn other(self) -> Side {
        match self {
            Side::Low => Side::High,
            Side::High => Side::Low,
        }
    }
}

/// The key of a flow, the same in both directions. 44 bytes without padding.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct FlowKey {
    /// Number that the scope table assigned to the gateway endpoint (GENEVE) or tunnel pair
    /// (VXLAN); [`SCOPE_PLAIN`] if there is none.
    pub scope: u32,
    /// IP protocol number (for IPv6 the upper-layer protocol).
    pub proto: u32,
    /// Ports in host order: that of `low` in the low half, that of `high` in the high half. For an
    /// ICMP echo both halves hold the identifier; 0 for protocols without ports.
    pub ports: u32,
    /// Address of the lesser end. Ends are ordered by address (as [`Addr`] is) and port.
    pub low: Addr,
    /// Address of the greater end.
    pub high: Addr,
}

/// Joins two words, the first in the low half.
#[inline(always)]
const fn pair(a: u32, b: u32) -> u64 {
    a as u64 | (b as u64) << 32
}

#[inline(always)]
const fn halves(addr: &Addr) -> [u64; 2] {
    let [a, b, c, d] = addr.words;
    [pair(a, b), pair(c, d)]
}

#[inline(always)]
const fn joined(first: u64, second: u64) -> Addr {
    let words = [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32];
    Addr { words }
}

impl FlowKey {
    /// Returns the key of a packet from `src:sport` to `dst:dport`, and the end that sent it.
    #[inline(always)]
    pub fn new(
        scope: u32,
        proto: u8,
        src: Addr,
        sport: u16,
        dst: Addr,
        dport: u16,
    ) -> (Self, Side) {
        let (s, d) = (halves(&src), halves(&dst));
        // The order of the ends is unpredictable, so it must not decide a branch.
        let (s0, d0) = (s[0].rotate_left(32), d[0].rotate_left(32));
        let (s1, d1) = (s[1].rotate_left(32), d[1].rotate_left(32));
        let ports_swapped = (s1 == d1) & (sport > dport);
        let swapped = (s0 > d0) | ((s0 == d0) & ((s1 > d1) | ports_swapped));
        let mask = u64::from(swapped).wrapping_neg();
        let (x0, x1) = ((s[0] ^ d[0]) & mask, (s[1] ^ d[1]) & mask);
        let ports = u32::from(sport) | u32::from(dport) << 16;
        let key = FlowKey {
            scope,
            proto: u32::from(proto),
            ports: ports.rotate_left(16 * u32::from(swapped)),
            low: joined(s[0] ^ x0, s[1] ^ x1),
            high: joined(d[0] ^ x0, d[1] ^ x1),
        };
        (key, if swapped { Side::High } else { Side::Low })
    }

    /// Returns address and port of one end.
    #[inline(always)]
    pub const fn end(&self, side: Side) -> (Addr, u16) {
        match side {
            Side::Low => (self.low, self.ports as u16),
            Side::High => (self.high, (self.ports >> 16) as u16),
        }
    }

    /// Returns a 64-bit hash of the whole key.
    ///
    /// Its low half selects the flow's first bucket in the flow table, its high half the backend
    /// and the outer source port. Bits of the high half also select the second bucket and are the
    /// tag of the table entry.
    #[inline(always)]
    pub fn hash(&self, hash_key: &HashKey) -> u64 {
        let (l, h) = (&self.low.words, &self.high.words);
        // The most variable words go in the low halves, from which a product spreads them furthest.
        hash_key.hash(&[
            pair(self.scope, self.proto),
            u64::from(self.ports),
            pair(l[3], l[2]),
            pair(l[1], l[0]),
            pair(h[3], h[2]),
            pair(h[1], h[0]),
        ])
    }
}

/// A hash key derived from a seed: one 64-bit secret per 64-bit word of a flow key, used as two
/// 32-bit halves.
///
/// The hash is a mixed sum of products, one per word: each half of the word is added to a half of
/// the secret, and the two sums are multiplied. This is NH of UMAC (RFC 4418 §5.2.2): two keys
/// chosen by an attacker who does not know the secrets collide with a probability of 2^-32. The
/// products are independent of each other, which keeps latency low, and none needs 128 bits, which
/// BPF does not support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashKey {
    seed: u64,
    secrets: [u64; 6],
}

impl HashKey {
    /// Derives the hash key from a seed.
    #[inline(always)]
    pub const fn new(seed: u64) -> HashKey {
        // As in SplitMix64: a sequence with a fixed step, each element mixed, so that neither
        // adjacent secrets nor those of similar seeds resemble each other.
        let (mut secrets, mut i) = ([0; 6], 0);
        while i < secrets.len() {
            secrets[i] =
                mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i as u64 + 1)));
            i += 1;
        }
        HashKey { seed, secrets }
    }

    /// Returns the key as words, for passing it to the BPF program.
    pub const fn words(&self) -> [u64; 7] {
        let [a, b, c, d, e, f] = self.secrets;
        [self.seed, a, b, c, d, e, f]
    }

    /// Restores a key from [`HashKey::words`].
    #[inline(always)]
    pub const fn of_words([seed, a, b, c, d, e, f]: [u64; 7]) -> HashKey {
        HashKey { seed, secrets: [a, b, c, d, e, f] }
    }

    /// Returns the seed from which the key was derived.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the hash of one to six words; it ignores any further words.
    #[inline(always)]
    pub fn hash<const N: usize>(&self, words: &[u64; N]) -> u64 {
        let mut h = self.seed;
        for (word, secret) in words.iter().zip(&self.secrets) {
            let low = (*word as u32).wrapping_add(*secret as u32);
            let high = ((word >> 32) as u32).wrapping_add((secret >> 32) as u32);
            h = h.wrapping_add(u64::from(low) * u64::from(high));
        }
        mix(h)
    }
}

/// The finalizer of MurmurHash3.
#[inline(always)]
const fn mix(mut h: u64) -> u64 {
    h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}

const _: () = assert!(size_of::<FlowKey>() == 44 && align_of::<FlowKey>() == 4);

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    const SEED: HashKey = HashKey::new(0);

    fn addr(last: u8) -> Addr {
        Addr::v4(u32::from_ne_bytes([10, 0, 0, last]))
    }

    #[test]
    fn a_packet_and_its_answer_share_a_key() {
        let (forward, side) = FlowKey::new(7, 6, addr(9), 1234, addr(2), 80);
        let (back, other) = FlowKey::new(7, 6, addr(2), 80, addr(9), 1234);
        assert_eq!((forward, side), (back, other.other()));
        assert_eq!(forward.end(side), (addr(9), 1234));
        assert_eq!(forward.end(other), (addr(2), 80));
    }

    #[test]
    fn the_lesser_end_by_address_and_port_is_the_low_one() {
        let mut rng = Rng::with_seed(5);
        for _ in 0..if cfg!(miri) { 100 } else { 10_000 } {
            let mut word = || [0, 1, 2, 0x8000_0000, 0xffff_ffff][rng.usize(..5)];
            let a = Addr { words: [word(), word(), word(), word()] };
            let b = Addr { words: [word(), a.words[1], word(), a.words[3]] };
            let (p, q) = (rng.u16(..3), rng.u16(..3));
            let (key, side) = FlowKey::new(0, 6, a, p, b, q);
            assert_eq!(side == Side::Low, (a, p) <= (b, q));
            assert_eq!((key.end(side), key.end(side.other())), ((a, p), (b, q)));
        }
    }

    #[test]
    fn flow_between_two_ports_of_one_address_has_two_ends() {
        let (forward, side) = FlowKey::new(0, 17, addr(1), 5, addr(1), 6);
        let (back, other) = FlowKey::new(0, 17, addr(1), 6, addr(1), 5);
        assert_eq!(forward, back);
        assert_ne!(side, other);
    }

    #[test]
    fn every_field_changes_the_hash() {
        let (key, _) = FlowKey::new(1, 6, addr(1), 2, addr(3), 4);
        let other = [
            FlowKey { scope: 2, ..key },
            FlowKey { proto: 17, ..key },
            FlowKey { ports: key.ports + 1, ..key },
            FlowKey { low: addr(2), ..key },
            FlowKey { high: addr(4), ..key },
        ];
        assert!(other.iter().all(|k| k.hash(&SEED) != key.hash(&SEED)));
        assert_ne!(key.hash(&SEED), key.hash(&HashKey::new(1)));
    }

    #[test]
    fn adjacent_flows_spread_evenly_over_slots() {
        const SLOTS: usize = 251;
        let mut filled = [0u32; SLOTS];
        for port in 0..25_100u16 {
            let (key, _) = FlowKey::new(1, 6, addr(1), port, addr(2), 80);
            filled[((key.hash(&SEED) >> 32) as usize * SLOTS) >> 32] += 1;
        }
        // Chi-square with 250 degrees of freedom: mean 250, standard deviation 22.4.
        let chi: f64 = filled.iter().map(|&n| (f64::from(n) - 100.0).powi(2) / 100.0).sum();
        assert!((150.0..350.0).contains(&chi), "chi-square {chi}");
    }

    /// Returns how unevenly `keys` fill 2^16 buckets selected by 16 bits of the hash, of which
    /// the lowest is bit `lowest_bit`, in standard deviations of chi-square from its mean.
    fn unevenness(keys: impl Iterator<Item = FlowKey>, lowest_bit: u32, hash_key: &HashKey) -> f64 {
        const BUCKETS: usize = 1 << 16;
        let (mut filled, mut count) = (std::vec![0u32; BUCKETS], 0u32);
        for key in keys {
            filled[(key.hash(hash_key) >> lowest_bit) as usize % BUCKETS] += 1;
            count += 1;
        }
        let mean = f64::from(count) / BUCKETS as f64;
        let chi: f64 = filled.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
        let free = (BUCKETS - 1) as f64;
        (chi - free) / (2.0 * free).sqrt()
    }

    /// Generates 2^19 flows: `clients` clients, whose addresses are `2^shift` apart, each with the
    /// same number of source ports, which are `step` apart.
    fn regular_flows(clients: u32, shift: u32, step: u16) -> impl Iterator<Item = FlowKey> {
        let ports = ((1 << 19) / clients) as u16;
        (0..clients).flat_map(move |client| {
            let from = Addr::v4((0x0a00_0000 + (client << shift)).to_be());
            (0..ports)
                .map(move |port| FlowKey::new(1, 6, from, port.wrapping_mul(step), addr(2), 443).0)
        })
    }

    #[test]
    fn regular_clients_and_ports_fill_buckets_like_random_keys() {
        if cfg!(miri) {
            return;
        }
        for seed in [0, 1, 0x5745_4952_0000_0001, u64::MAX] {
            let hash_key = HashKey::new(seed);
            for (clients, shift, step) in [(16, 0, 1), (256, 0, 1), (4096, 0, 2), (256, 16, 32)] {
                for lowest_bit in [0, 16, 32, 48] {
                    let off =
                        unevenness(regular_flows(clients, shift, step), lowest_bit, &hash_key);
                    assert!(
                        off.abs() < 6.0,
                        "{clients} clients 2^{shift} apart, every port number {step}, seed \
                         {seed:#x}, bits from {lowest_bit}: {off:.1} standard deviations"
                    );
                }
            }
        }
    }

    #[test]
    fn each_bit_of_a_key_flips_half_of_the_bits_in_each_half_of_the_hash() {
        let (trials, mut rng) = (if cfg!(miri) { 8 } else { 512 }, Rng::with_seed(9));
        for bit in 0..11 * 32 {
            let (mut low, mut high) = (0, 0);
            for _ in 0..trials {
                let mut words: [u32; 11] = [0; 11];
                words.iter_mut().for_each(|word| *word = rng.u32(..1 << 31));
                let hash_key = HashKey::new((rng.u64(..1 << 31)) << 33 | rng.u64(..1 << 31));
                let before = of_words(&words).hash(&hash_key);
                words[bit / 32] ^= 1 << (bit % 32);
                let flipped = before ^ of_words(&words).hash(&hash_key);
                low += (flipped as u32).count_ones();
                high += (flipped >> 32).count_ones();
            }
            // The expected number is 16 of 32 bits, with a standard deviation of 2.83; of a mean
            // over 512 trials, 0.125.
            let allowed = 8.0 * 2.83 / f64::from(trials).sqrt();
            for (half, flipped) in [("low", low), ("high", high)] {
                let mean = f64::from(flipped) / f64::from(trials);
                assert!((mean - 16.0).abs() < allowed, "bit {bit} flips {mean} {half} bits");
            }
        }
    }

    #[test]
    fn flipping_any_two_bits_of_a_key_changes_the_hash() {
        let seeds = if cfg!(miri) { 1 } else { 20 };
        for hash_key in (0..seeds).map(|n| HashKey::new(n * 0x0123_4567_89ab_cdef)) {
            let before = of_words(&[1; 11]).hash(&hash_key);
            for one in 0..11 * 32 {
                for other in 0..one {
                    let mut words = [1; 11];
                    words[one / 32] ^= 1 << (one % 32);
                    words[other / 32] ^= 1 << (other % 32);
                    assert_ne!(of_words(&words).hash(&hash_key), before, "bits {other} and {one}");
                }
            }
        }
    }

    fn of_words(w: &[u32; 11]) -> FlowKey {
        let [scope, proto, ports, l @ .., h0, h1, h2, h3] = *w;
        FlowKey {
            scope,
            proto,
            ports,
            low: Addr { words: l },
            high: Addr { words: [h0, h1, h2, h3] },
        }
    }
}
