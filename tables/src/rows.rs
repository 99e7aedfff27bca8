//! Rows of a section by number: a slice in processes, a map in the BPF program.
//!
//! Numbers come from shared memory and from packets, so an out-of-range number is a miss. In
//! processes, [`Rows`] is the slice itself and [`Numbered::row`] is `get`.

use crate::atomic::{AtomicU32, AtomicU64};

/// Types that may be borrowed from the region while another process writes them.
///
/// # Safety
/// `repr(C)`, any bytes are a valid value, and everything mutable is in atomics or `UnsafeCell`s.
#[expect(unsafe_code, reason = "marker for references into shared memory")]
pub(crate) unsafe trait Shared: Sync + 'static {
    /// Elements per value of the section's map (`Section::map_value_bytes`): a power of two.
    #[cfg_attr(not(target_arch = "bpf"), expect(dead_code, reason = "used by the BPF program"))]
    const IN_VALUE: u32 = 1;
}

// SAFETY: an atomic integer is valid for any bytes.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for AtomicU32 {
    const IN_VALUE: u32 = 2;
}
// SAFETY: as above.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for AtomicU64 {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

/// Records that may be stored in shared memory: plain data, no padding, any bytes valid.
///
/// # Safety
/// `repr(C)`, no padding, and every bit pattern is a valid value.
#[expect(unsafe_code, reason = "marker for reads from shared memory")]
pub unsafe trait Record: Copy + 'static {}

/// Implements [`Record`] for types of these sizes.
macro_rules! records {
    ($($name:ident: $size:literal),* $(,)?) => {$(
        const _: () = assert!(size_of::<$name>() == $size && align_of::<$name>() <= 8);
        // SAFETY: repr(C), its fields sum up to its size (asserted beside it), all are integers.
        #[expect(unsafe_code, reason = "see the trait")]
        unsafe impl $crate::rows::Record for $name {}
    )*};
}
pub(crate) use records;

/// Access to rows by number.
pub(crate) trait Numbered<'r, T> {
    /// Returns row `i`, or `None` if it is out of range.
    fn row(self, i: u32) -> Option<&'r T>;
    /// Number of rows.
    fn count(self) -> u32;
}

/// Rows of a section.
#[cfg(not(target_arch = "bpf"))]
pub(crate) type Rows<'r, T> = &'r [T];

#[cfg(not(target_arch = "bpf"))]
impl<'r, T> Numbered<'r, T> for &'r [T] {
    #[inline(always)]
    fn row(self, i: u32) -> Option<&'r T> {
        self.get(i as usize)
    }

    #[inline(always)]
    fn count(self) -> u32 {
        self.len() as u32
    }
}

#[cfg(target_arch = "bpf")]
pub(crate) use crate::region::Rows;
