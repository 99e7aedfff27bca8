//! MurmurHash3, the 128-bit variant for 64-bit machines (Austin Appleby, public domain).

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

const fn k1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

const fn k2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

const fn finish(mut h: u64) -> u64 {
    h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}

/// Returns the two halves of the hash of `bytes`.
pub(super) fn hash128(bytes: &[u8], seed: u32) -> (u64, u64) {
    let (mut h1, mut h2) = (u64::from(seed), u64::from(seed));
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        let (low, high) = halves(block);
        h1 = (h1 ^ k1(low)).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ k2(high)).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let (low, high) = halves(&last);
    // A word of zeros has no effect, so a rest of less than 16 bytes needs no special case.
    h1 ^= k1(low);
    h2 ^= k2(high);
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2) = (finish(h1), finish(h2));
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

fn halves(block: &[u8; 16]) -> (u64, u64) {
    let number = u128::from_le_bytes(*block);
    (number as u64, (number >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::hash128;

    /// Digests from the reference implementation (h1, then h2, in hexadecimal).
    #[test]
    fn hash_equals_that_of_the_reference_implementation() {
        assert_eq!(hash128(b"", 0), (0, 0));
        assert_eq!(hash128(b"hello", 0), (0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19));
        assert_eq!(hash128(b"hello, world", 0), (0x342f_ac62_3a5e_bc8e, 0x4cdc_bc07_9642_414d));
        assert_eq!(
            hash128(b"The quick brown fox jumps over the lazy dog.", 0),
            (0xcd99_481f_9ee9_02c9, 0x695d_a1a3_8987_b6e7)
        );
    }
}
