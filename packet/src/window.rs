//! `Window`: bounds-checked access to a packet. All `unsafe` and memory access of this crate is
//! here.
//!
//! A window is a pair of addresses, as in both environments (`xdp_md.data` and `data_end`; an
//! mbuf's data address and `data_len`). Every access is first compared with the end, in the form
//! that the BPF verifier accepts; on the host, it costs one comparison for a constant offset.
//! Values are raw: wire order, read with the host's byte order. `be16`, `be32` and their setters
//! convert.

#![expect(unsafe_code, reason = "the only file that accesses memory")]

use crate::addr::Addr;
use core::marker::PhantomData;

/// The window ends before the requested bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Short;

/// The maximum frame size in bytes: all offsets are `u16`.
pub const MAX_FRAME: usize = u16::MAX as usize;

/// The maximum number of bytes that callers may pass to [`Window::sum`] under BPF, where loops must
/// be bounded: enough for the longest IPv4 or TCP header. A sum over more than 67 bytes (16 words
/// and 3 bytes) returns [`Short`] there.
pub const MAX_SUM: usize = 64;

/// The maximum offset that the BPF program accesses: beyond the end of a frame's first buffer,
/// which is one page and has to hold all headers. All bits are ones, so that it is also a mask.
#[cfg(target_arch = "bpf")]
const DEEPEST: usize = 0x3fff;

mod sealed {
    pub trait Sealed {}
}

/// Types of which every bit pattern is valid and which have no padding.
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

/// A view of the first segment (buffer) of a frame, from its first byte.
#[derive(Debug)]
pub struct Window<'a> {
    start: *mut u8,
    end: *mut u8,
    /// Length of the whole frame in bytes; exceeds the window if the frame is chained.
    frame: usize,
    frame_of: PhantomData<&'a mut [u8]>,
}

impl<'a> Window<'a> {
    /// Creates a window onto a frame that is contiguous. Bytes past [`MAX_FRAME`] are not
    /// accessible.
    #[inline(always)]
    pub fn new(bytes: &'a mut [u8]) -> Window<'a> {
        let len = bytes.len();
        Window::of_segment(bytes, len)
    }

    /// Creates a window onto the first segment of a frame of `frame` bytes in total.
    #[inline(always)]
    pub fn of_segment(segment: &'a mut [u8], frame: usize) -> Window<'a> {
        let len = segment.len();
        // SAFETY: the slice is borrowed mutably for the window's lifetime.
        unsafe { Window::from_raw(segment.as_mut_ptr(), len, frame) }
    }

    /// Creates a window onto `len` bytes from `start`, the first segment of a frame of `frame`
    /// bytes.
    ///
    /// # Safety
    /// The bytes are valid for reads and writes, and are not accessed by other means while the
    /// window lives.
    #[inline(always)]
    pub unsafe fn from_raw(start: *mut u8, len: usize, frame: usize) -> Window<'a> {
        let visible = if len > MAX_FRAME { MAX_FRAME } else { len };
        let frame = if frame > MAX_FRAME { MAX_FRAME } else { frame };
        let frame = if frame < visible { visible } else { frame };
        Window { start, end: start.wrapping_add(visible), frame, frame_of: PhantomData }
    }

    /// Creates a window between two addresses, as BPF represents a frame: the verifier requires
    /// that every access is compared with the original `end`.
    ///
    /// # Safety
    /// As for [`Window::from_raw`]; `end` is the address after the last accessible byte, at most
    /// [`MAX_FRAME`] bytes from `start`. `frame` is no less than this distance and at most
    /// [`MAX_FRAME`].
    #[inline(always)]
    pub unsafe fn between(start: *mut u8, end: *mut u8, frame: usize) -> Window<'a> {
        Window { start, end, frame, frame_of: PhantomData }
    }

    /// Returns the number of accessible bytes, 0 to [`MAX_FRAME`].
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a frame is not a collection")]
    pub fn len(&self) -> usize {
        self.end as usize - self.start as usize
    }

    /// Returns the length of the whole frame in bytes, at least [`Window::len`].
    #[inline(always)]
    pub fn frame_len(&self) -> usize {
        self.frame
    }

    /// Returns the address of `n` bytes at `at` if they lie in the window.
    #[inline(always)]
    fn find(&self, at: usize, n: usize) -> Result<*mut u8, Short> {
        #[cfg(target_arch = "bpf")]
        {
            // The verifier requires that the packet pointer itself is compared, and that the offset
            // cannot wrap it, as seen in the register that is added.
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

    /// Checks that `n` bytes at `at` lie in the window.
    #[inline(always)]
    pub fn holds(&self, at: usize, n: usize) -> Result<(), Short> {
        self.find(at, n).map(|_| ())
    }

    /// Returns the raw value at `at`.
    #[inline(always)]
    pub fn load<T: Plain>(&self, at: usize) -> Result<T, Short> {
        let p = self.find(at, size_of::<T>())?.cast::<T>();
        // SAFETY: `find` checked that the bytes are in the window; `Plain` accepts any bytes.
        unsafe {
            // One load, as in C. The kernel allows misaligned packet loads where the CPU does.
            #[cfg(target_arch = "bpf")]
            return Ok(*p);
            #[cfg(not(target_arch = "bpf"))]
            Ok(p.read_unaligned())
        }
    }

    /// Writes the raw value `v` at `at`.
    #[inline(always)]
    pub fn store<T: Plain>(&mut self, at: usize, v: T) -> Result<(), Short> {
        let p = self.find(at, size_of::<T>())?.cast::<T>();
        // SAFETY: `find` checked that the bytes are in the window; `Plain` has no padding.
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

    /// Returns the byte at `at`.
    #[inline(always)]
    pub fn byte(&self, at: usize) -> Result<u8, Short> {
        self.load(at)
    }

    /// Writes a byte at `at`.
    #[inline(always)]
    pub fn set_byte(&mut self, at: usize, v: u8) -> Result<(), Short> {
        self.store(at, v)
    }

    /// Returns the big-endian number in the two bytes at `at`.
    #[inline(always)]
    pub fn be16(&self, at: usize) -> Result<u16, Short> {
        self.load::<u16>(at).map(u16::from_be)
    }

    /// Returns the big-endian number in the four bytes at `at`.
    #[inline(always)]
    pub fn be32(&self, at: usize) -> Result<u32, Short> {
        self.load::<u32>(at).map(u32::from_be)
    }

    /// Writes a big-endian number to the two bytes at `at`.
    #[inline(always)]
    pub fn set_be16(&mut self, at: usize, v: u16) -> Result<(), Short> {
        self.store(at, v.to_be())
    }

    /// Writes a big-endian number to the four bytes at `at`.
    #[inline(always)]
    pub fn set_be32(&mut self, at: usize, v: u32) -> Result<(), Short> {
        self.store(at, v.to_be())
    }

    /// Copies `n` bytes within the window; source and destination may overlap.
    pub fn copy_within(&mut self, from: usize, to: usize, n: usize) -> Result<(), Short> {
        let source = self.find(from, n)?;
        let target = self.find(to, n)?;
        // SAFETY: both ranges are in the window; `copy` allows them to overlap.
        unsafe { core::ptr::copy(source, target, n) };
        Ok(())
    }

    /// Writes `bytes` at `at`. 32 bytes, the size of an AWS gateway's options, are copied as four
    /// words.
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

    /// Writes `bytes` at `at`: at most 63 words of four bytes, aligned to eight bytes. The BPF
    /// verifier requires a bounded loop.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> Result<(), Short> {
        let from = bytes.as_ptr();
        if bytes.len() == 32 {
            // One at a time: the compiler turns a copy of all four into a loop over bytes.
            for word in 0..4 {
                // SAFETY: within the 32 bytes; aligned, as the verifier checks.
                let value = unsafe { from.wrapping_add(word * 8).cast::<u64>().read_volatile() };
                self.store(at + word * 8, value)?;
            }
            return Ok(());
        }
        for word in 0..63 {
            if word * 4 >= bytes.len() {
                break;
            }
            // SAFETY: within the slice; aligned, as above.
            let value = unsafe { *from.wrapping_add(word * 4).cast::<u32>() };
            self.store(at + word * 4, value)?;
        }
        Ok(())
    }

    /// Returns the sum of `n` bytes at `at` as raw 16-bit words for [`crate::checksum`], not
    /// folded; an odd last byte is padded with zero. Under BPF, `n` is limited to [`MAX_SUM`].
    #[cfg(not(target_arch = "bpf"))]
    #[inline(always)]
    pub fn sum(&self, at: usize, n: usize) -> Result<u64, Short> {
        let from = self.find(at, n)?;
        let (mut total, mut done) = (0u64, 0);
        while done + 4 <= n {
            // SAFETY: `done + 4 <= n`, and `n` bytes at `from` are in the window.
            let word = unsafe { from.wrapping_add(done).cast::<u32>().read_unaligned() };
            // At most 65,535 bytes, which is 2^14 words: the total stays below 2^46.
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

    /// Returns the sum of `n` bytes at `at` as raw 16-bit words, not folded; an odd last byte is
    /// padded with zero. The BPF verifier requires a bounded loop and a comparison per access.
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

/// Returns `x & 0xfc`, in a form that the optimizer cannot remove: the BPF verifier must see the
/// mask.
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

/// Returns `x & 0x3f`, for an offset in a header of at most 60 bytes, in the form of
/// [`mask_options`].
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

/// Returns `x & DEEPEST` in the form of [`mask_options`].
#[cfg(target_arch = "bpf")]
#[inline(always)]
fn mask_deepest(x: usize) -> usize {
    let mut y = x;
    // SAFETY: one instruction on one register.
    unsafe { core::arch::asm!("{0} &= 0x3fff", inout(reg) y, options(pure, nomem, nostack)) };
    y
}

/// Returns the highest bit as the number 0 or 1, in a form from which the BPF compiler makes no
/// branch. A mask of all zeros or all ones would be more convenient, but the verifier of newer
/// kernels (6.18) follows both values of such a mask as if there were a branch.
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

/// Checks for arbitrary bytes and offsets that nothing outside the window is read or written.
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
