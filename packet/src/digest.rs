//! A 32-bit digest of a few words, for detecting changes without keeping the words.

/// An accumulator of 64-bit words.
///
/// Each word is multiplied by an odd multiplier of its position, and the digest is the mixed sum of
/// the products. It therefore depends on the order of the words.
#[derive(Clone, Copy, Debug)]
pub struct Digest {
    sum: u64,
    multiplier: u64,
}

/// The multiplier of the first word; odd, so that no bit of a word is lost.
const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
/// The difference between the multipliers of consecutive words; even, so that all stay odd.
const STEP: u64 = 0xd6e8_feb8_6659_fd92;

impl Default for Digest {
    #[inline(always)]
    fn default() -> Digest {
        Digest::new()
    }
}

impl Digest {
    /// Creates the digest of no words.
    #[inline(always)]
    pub const fn new() -> Digest {
        Digest { sum: 0, multiplier: FIRST }
    }

    /// Adds a word, after mixing its upper half into its lower half. Without the mixing, flipping
    /// bit 63 of a word would flip bit 63 of its product, for every odd multiplier: the effect
    /// would be the same in every word, and two such flips would cancel.
    #[inline(always)]
    pub const fn add(&mut self, word: u64) {
        let word = word ^ word >> 32;
        self.sum = self.sum.wrapping_add(word.wrapping_mul(self.multiplier));
        self.multiplier = self.multiplier.wrapping_add(STEP);
    }

    /// Returns the digest of all words added.
    #[inline(always)]
    pub const fn finish(self) -> u32 {
        let mixed = (self.sum ^ self.sum >> 32).wrapping_mul(FIRST);
        (mixed >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[u64]) -> u32 {
        let mut digest = Digest::new();
        words.iter().for_each(|word| digest.add(*word));
        digest.finish()
    }

    #[test]
    fn digest_depends_on_order_and_each_bit() {
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[1]));
        for bit in 0..64 {
            assert_ne!(of(&[7, 5]), of(&[7, 5 ^ 1 << bit]), "bit {bit}");
        }
    }

    #[test]
    fn each_bit_of_each_word_changes_the_digest_differently() {
        let mut digests = std::collections::HashSet::new();
        for word in 0..8 {
            for bit in 0..64 {
                let mut words = [7, 5, 3, 1, 0, u64::MAX, 9, 11];
                words[word] ^= 1 << bit;
                assert!(digests.insert(of(&words)), "bit {bit} of word {word}");
            }
        }
    }
}
