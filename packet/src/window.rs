//! The checked window onto a packet: all `unsafe` of this crate, and all that touches memory.
//!
//! A window is two addresses, as both worlds have them (`xdp_md.data` and `data_end`; an mbuf's
//! data address and `data_len`). Every access compares with the end first, in the form that BPF's
//! verifier understands and that costs the host one compare. Values are raw: as they lie on the
//! wire, read with the machine's byte order; `be16` and its kin convert.

#![expect(unsafe_code, reason = "the one file of this crate that touches memory")]

use crate::addr::Addr;
use core::marker::PhantomData;

/// The window ends before what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Short;

/// The largest frame that is looked at: offsets are `u16` everywhere.
pub const MAX_FRAME: usize = u16::MAX as usize;

/// How many bytes [`Window::sum`] adds up in the kernel, where a loop has to have an end: the
/// longest IPv4 or TCP header. A whole payload is never summed there.
pub const MAX_SUM: usize = 64;

/// How deep in a frame the kernel's program looks. Its first buffer, which has to hold all headers,
/// is a page.
#[cfg(target_arch = "bpf")]
const DEEPEST: usize = 0x3fff;

mod sealed {
    pub trait Sealed {}
}

/// Plain data: every bit pattern is a value, and there is no padding.
pub trait Plain: Copy + sealed::Sealed {}

macro_rules! plain {
    ($($t:ty),* $(,)?) => {$(
        impl sealed::Sealed for $t {}
        impl Plain for $t {}
    )*};
}

// Integers, arrays of them, and `Addr`, which is `repr(C)` over four words.
plain!(u8, u16, u32, u64, [u8; 6], [u16; 3], [u16; 2], [u32; 2], [u32; 3], [u32; 4], [u32; 5]);
plain!([u32; 6], [u32; 8], [u32; 10], [u64; 2], [u64; 4], [u64; 12], Addr);

/// The first segment of a frame, from its first byte.
#[derive(Debug)]
pub struct Window<'a> {
    start: *mut u8,
    end: *mut u8,
    /// Bytes of the whole frame; more than the window shows when the frame is chained.
    frame: usize,
    frame_of: PhantomData<&'a mut [u8]>,
}

impl<'a> Window<'a> {
    /// A window onto a frame that lies in one piece. Bytes past [`MAX_FRAME`] are out of sight.
    #[inline(always)]
    pub fn new(bytes: &'a mut [u8]) -> Window<'a> {
        let len = bytes.len();
        Window::of_segment(bytes, len)
    }

    /// A window onto the first segment of a frame of `frame` bytes in all.
    #[inline(always)]
    pub fn of_segment(segment: &'a mut [u8], frame: usize) -> Window<'a> {
        let len = segment.len();
        // SAFETY: the slice is borrowed mutably for the window's lifetime.
        unsafe { Window::from_raw(segment.as_mut_ptr(), len, frame) }
    }

    /// A window onto `len` bytes from `start`, the first segment of a frame of `frame` bytes.
    ///
    /// # Safety
    /// The bytes are valid for reads and writes, and nobody else touches them, as long as the
    /// window lives.
    #[inline(always)]
    pub unsafe fn from_raw(start: *mut u8, len: usize, frame: usize) -> Window<'a> {
        let seen = if len > MAX_FRAME { MAX_FRAME } else { len };
        let frame = if frame > MAX_FRAME { MAX_FRAME } else { frame };
        let frame = if frame < seen { seen } else { frame };
        Window { start, end: start.wrapping_add(seen), frame, frame_of: PhantomData }
    }

    /// A window between two addresses, as the kernel's BPF knows a frame: its verifier wants every
    /// access compared with `end` as it was given.
    ///
    /// # Safety
    /// As for [`Window::from_raw`]; `end` is behind the last byte in sight, at most [`MAX_FRAME`]
    /// bytes from `start`, and `frame` is no less.
    #[inline(always)]
    pub unsafe fn between(start: *mut u8, end: *mut u8, frame: usize) -> Window<'a> {
        Window { start, end, frame, frame_of: PhantomData }
    }

    /// Bytes in sight, 0 to [`MAX_FRAME`].
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "an empty frame is merely a short one")]
    pub fn len(&self) -> usize {
        self.end as usize - self.start as usize
    }

    /// Bytes of the whole frame, at least [`Window::len`].
    #[inline(always)]
    pub fn frame_len(&self) -> usize {
        self.frame
    }

    /// The address of `n` bytes at `at`, if the window holds them.
    #[inline(always)]
    fn find(&self, at: usize, n: usize) -> Result<*mut u8, Short> {
        #[cfg(target_arch = "bpf")]
        {
            // The verifier wants the packet pointer itself compared, and an offset that can't wrap
            // it: it has to see that in the very register that is added.
            let at = if core::intrinsics::is_val_statically_known(at) {
                at
            } else if at > DEEPEST {
                return Err(Short);
            } else {
                mask_deepest(at)
            };
            let p = self.start.wrapping_add(at);
            if p.wrapping_add(n) > self.end { Err(Short) } else { Ok(p) }
        }
        #[cfg(not(target_arch = "bpf"))]
        match at.checked_add(n) {
            Some(past) if past <= self.len() => Ok(self.start.wrapping_add(at)),
            _ => Err(Short),
        }
    }

    /// Whether the window holds `n` bytes at `at`.
    #[inline(always)]
    pub fn holds(&self, at: usize, n: usize) -> Result<(), Short> {
        self.find(at, n).map(|_| ())
    }

    /// The value at `at`, raw.
    #[inline(always)]
    pub fn load<T: Plain>(&self, at: usize) -> Result<T, Short> {
        let p = self.find(at, size_of::<T>())?.cast::<T>();
        // SAFETY: `find` saw that the bytes are in the window; `Plain` takes any bytes.
        unsafe {
            // As C does it: one load. The kernel allows misaligned packet loads where the CPU does.
            #[cfg(target_arch = "bpf")]
            return Ok(*p);
            #[cfg(not(target_arch = "bpf"))]
            Ok(p.read_unaligned())
        }
    }

    /// Puts the raw value `v` at `at`.
    #[inline(always)]
    pub fn store<T: Plain>(&mut self, at: usize, v: T) -> Result<(), Short> {
        let p = self.find(at, size_of::<T>())?.cast::<T>();
        // SAFETY: `find` saw that the bytes are in the window; `Plain` has no padding.
        unsafe {
            #[cfg(target_arch = "bpf")]
            {
                *p = v;
            }
            #[cfg(not(target_arch = "bpf"))]
            p.write_unaligned(v);
        }
        Ok(())
    }

    /// The byte at `at`.
    #[inline(always)]
    pub fn byte(&self, at: usize) -> Result<u8, Short> {
        self.load(at)
    }

    /// Puts a byte at `at`.
    #[inline(always)]
    pub fn set_byte(&mut self, at: usize, v: u8) -> Result<(), Short> {
        self.store(at, v)
    }

    /// The number in the two bytes at `at`.
    #[inline(always)]
    pub fn be16(&self, at: usize) -> Result<u16, Short> {
        self.load::<u16>(at).map(u16::from_be)
    }

    /// The number in the four bytes at `at`.
    #[inline(always)]
    pub fn be32(&self, at: usize) -> Result<u32, Short> {
        self.load::<u32>(at).map(u32::from_be)
    }

    /// Writes a number to the two bytes at `at`.
    #[inline(always)]
    pub fn set_be16(&mut self, at: usize, v: u16) -> Result<(), Short> {
        self.store(at, v.to_be())
    }

    /// Writes a number to the four bytes at `at`.
    #[inline(always)]
    pub fn set_be32(&mut self, at: usize, v: u32) -> Result<(), Short> {
        self.store(at, v.to_be())
    }

    /// Moves `n` bytes within the window; the places may overlap.
    pub fn copy_within(&mut self, from: usize, to: usize, n: usize) -> Result<(), Short> {
        let source = self.find(from, n)?;
        let target = self.find(to, n)?;
        // SAFETY: both ranges are in the window; `copy` allows them to overlap.
        unsafe { core::ptr::copy(source, target, n) };
        Ok(())
    }

    /// Writes `bytes` at `at`. 32 bytes, an AWS gateway's options, go as four words.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> Result<(), Short> {
        let target = self.find(at, bytes.len())?;
        // SAFETY: the target is in the window, which is borrowed mutably: `bytes` lies elsewhere.
        unsafe {
            if bytes.len() == 32 {
                let words = bytes.as_ptr().cast::<[u64; 4]>().read_unaligned();
                target.cast::<[u64; 4]>().write_unaligned(words);
            } else {
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
            }
        }
        Ok(())
    }

    /// As above, of whole words of four bytes, at most 63 of them, which lie on a boundary of
    /// eight: BPF's verifier wants a loop that ends by itself.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> Result<(), Short> {
        let from = bytes.as_ptr();
        if bytes.len() == 32 {
            // One by one: of all at once the compiler makes a loop over bytes.
            for word in 0..4 {
                // SAFETY: within the 32 bytes; aligned, as the verifier makes sure.
                let word_there =
                    unsafe { from.wrapping_add(word * 8).cast::<u64>().read_volatile() };
                self.store(at + word * 8, word_there)?;
            }
            return Ok(());
        }
        for word in 0..63 {
            if word * 4 >= bytes.len() {
                break;
            }
            // SAFETY: within the slice; aligned, as above.
            let word_there = unsafe { *from.wrapping_add(word * 4).cast::<u32>() };
            self.store(at + word * 4, word_there)?;
        }
        Ok(())
    }

    /// The sum of `n` bytes at `at` as raw 16-bit words for [`crate::checksum`], an odd last byte
    /// filled up with zero. Not folded. In the kernel at most [`MAX_SUM`] bytes.
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub fn sum(&self, at: usize, n: usize) -> Result<u64, Short> {
        let from = self.find(at, n)?;
        let (mut total, mut done) = (0u64, 0);
        while done + 4 <= n {
            // SAFETY: `done + 4 <= n`, and `n` bytes at `from` are in the window.
            let word = unsafe { from.wrapping_add(done).cast::<u32>().read_unaligned() };
            // 65,535 bytes hold 2^14 words: the total stays below 2^46.
            total += u64::from(word);
            done += 4;
        }
        while done < n {
            // SAFETY: `done < n`, as above.
            let byte = unsafe { *from.wrapping_add(done) };
            total += u64::from(u16::from_ne_bytes(match done % 2 {
                0 => [byte, 0],
                _ => [0, byte],
            }));
            done += 1;
        }
        Ok(total)
    }

    /// As above. BPF's verifier wants a loop that ends by itself, and each access compared.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn sum(&self, at: usize, n: usize) -> Result<u64, Short> {
        let (mut total, mut done) = (0u64, 0);
        for _ in 0..MAX_SUM / 4 {
            if done + 4 > n {
                break;
            }
            total += u64::from(self.load::<u32>(at + done)?);
            done += 4;
        }
        if done + 2 <= n {
            total += u64::from(self.load::<u16>(at + done)?);
            done += 2;
        }
        if done < n {
            total += u64::from(self.byte(at + done)?);
            done += 1;
        }
        if done == n { Ok(total) } else { Err(Short) }
    }
}

/// `x & 0xfc`, in a form that the optimiser may not drop: BPF's verifier has to see the mask.
#[inline(always)]
pub(crate) fn mask_options(x: usize) -> usize {
    #[cfg(target_arch = "bpf")]
    {
        let mut y = x;
        // SAFETY: one instruction on one register.
        unsafe { core::arch::asm!("{0} &= 252", inout(reg) y, options(pure, nomem, nostack)) };
        y
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        x & 0xfc
    }
}

/// `x & 0x3f`, for the same reason: where in a header of 60 bytes.
#[inline(always)]
pub(crate) fn mask_header(x: usize) -> usize {
    #[cfg(target_arch = "bpf")]
    {
        let mut y = x;
        // SAFETY: one instruction on one register.
        unsafe { core::arch::asm!("{0} &= 63", inout(reg) y, options(pure, nomem, nostack)) };
        y
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        x & 0x3f
    }
}

/// `x & DEEPEST`, for the same reason.
#[cfg(target_arch = "bpf")]
#[inline(always)]
fn mask_deepest(x: usize) -> usize {
    let mut y = x;
    // SAFETY: one instruction on one register.
    unsafe { core::arch::asm!("{0} &= 0x3fff", inout(reg) y, options(pure, nomem, nostack)) };
    y
}

/// The highest bit as a number; kept from becoming a branch under BPF. A mask of all ones would be
/// handier, but newer kernels (6.18) follow both values of such a mask as they do for a branch.
#[inline(always)]
pub(crate) fn sign_bit(x: u32) -> u32 {
    #[cfg(target_arch = "bpf")]
    {
        let mut y = u64::from(x);
        // SAFETY: one instruction on one register.
        unsafe { core::arch::asm!("{0} >>= 31", inout(reg) y, options(pure, nomem, nostack)) };
        y as u32
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        x >> 31
    }
}

/// Any bytes, any offsets: nothing is read or written outside.
#[cfg(any(test, feature = "fuzz"))]
pub fn harness(bytes: &mut [u8]) {
    let at = bytes.first().map_or(0, |&b| usize::from(b));
    let n = bytes.get(1).map_or(0, |&b| usize::from(b));
    let len = bytes.len();
    let mut window = Window::new(bytes);
    for at in [at, at.wrapping_neg(), usize::MAX, len.saturating_sub(at)] {
        assert!(window.load::<u64>(at).is_ok() == (at.checked_add(8).is_some_and(|p| p <= len)));
        let _ = window.store::<[u32; 5]>(at, [7; 5]);
        let _ = window.sum(at, n);
        let _ = window.copy_within(at, n, n);
        let _ = window.put(at, &[1; 32][..n.min(32)]);
    }
}

#[cfg(test)]
mod tests;
