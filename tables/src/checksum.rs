//! Non-cryptographic checksum of the region's contents.
//!
//! The checksum detects torn writes, memory errors and foreign files. It does not protect against
//! deliberate changes, because only Weir's own processes can write to the region.

/// An odd multiplier: 2^64 divided by the golden ratio.
const K: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a word into a sum.
#[inline]
const fn mix(sum: u64, word: u64) -> u64 {
    let x = (sum ^ word).wrapping_mul(K);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(23)
}

/// Returns the checksum of `bytes`, which depends on their contents, their number and `seed`.
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = mix(seed, bytes.len() as u64);
    for word in words {
        sum = mix(sum, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(sum, u64::from_le_bytes(last)), K)
}

/// Checksum of words, equal to that of their little-endian bytes.
pub(crate) fn checksum_of_words(seed: u64, mut words: impl ExactSizeIterator<Item = u32>) -> u64 {
    let count = words.len();
    let mut sum = mix(seed, 4 * count as u64);
    let mut next = || u64::from(words.next().unwrap_or(0));
    for _ in 0..count / 2 {
        sum = mix(sum, next() | next() << 32);
    }
    mix(mix(sum, next()), K)
}

#[cfg(test)]
mod tests {
    use super::{checksum, checksum_of_words};

    #[test]
    fn checksum_of_words_equals_that_of_their_bytes() {
        let words = [1, 0x8000_0002, u32::MAX, 0, 5];
        for count in 0..=words.len() {
            let words = &words[..count];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(checksum_of_words(9, words.iter().copied()), checksum(9, &bytes));
        }
    }

    #[test]
    fn every_bit_the_length_and_the_seed_change_the_checksum() {
        let bytes = [7u8; 41];
        let sum = checksum(1, &bytes);
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(1, &other), sum);
        }
        assert_ne!(checksum(2, &bytes), sum);
        assert_ne!(checksum(1, &[0; 3]), checksum(1, &[0; 4]));
    }
}
