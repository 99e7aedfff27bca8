//! A digest of a few words, by which something unchanged is recognised without looking at it.

/// Takes words one after the other.
///
/// A sum of products, each with a multiplier of its own, so that none waits for another.
#[derive(Clone, Copy, Debug)]
pub struct Digest {
    sum: u64,
    multiplier: u64,
}

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const STEP: u64 = 0xd6e8_feb8_6659_fd92;

impl Default for Digest {
    #[inline(always)]
    fn default() -> Digest {
        Digest::new()
    }
}

impl Digest {
    /// Of nothing yet.
    #[inline(always)]
    pub const fn new() -> Digest {
        Digest { sum: 0, multiplier: FIRST }
    }

    /// Takes a word. Its upper half is mixed into the lower one: a product's highest bits are the
    /// same for all odd multipliers, and changes there would be the same in whichever word.
    #[inline(always)]
    pub const fn take(&mut self, word: u64) {
        let word = word ^ word >> 32;
        self.sum = self.sum.wrapping_add(word.wrapping_mul(self.multiplier));
        self.multiplier = self.multiplier.wrapping_add(STEP);
    }

    /// The digest of all that was taken.
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
        words.iter().for_each(|word| digest.take(*word));
        digest.finish()
    }

    #[test]
    fn order_and_each_bit_count() {
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[1]));
        for bit in 0..64 {
            assert_ne!(of(&[7, 5]), of(&[7, 5 ^ 1 << bit]), "bit {bit}");
        }
    }

    #[test]
    fn a_bit_in_one_word_is_no_bit_in_another() {
        let mut seen = std::collections::HashSet::new();
        for word in 0..8 {
            for bit in 0..64 {
                let mut words = [7, 5, 3, 1, 0, u64::MAX, 9, 11];
                words[word] ^= 1 << bit;
                assert!(seen.insert(of(&words)), "bit {bit} of word {word}");
            }
        }
    }
}
