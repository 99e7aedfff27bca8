//! Atomic words with one interface in processes and in the BPF program.
//!
//! In processes, the words are those of std. Rust's BPF target assumes a single thread and would
//! turn atomics into plain loads and stores, so the BPF program uses inline assembly.
//!
//! - Read-modify-write operations are fully ordered, as BPF atomics that return a value are.
//! - Loads and stores are plain instructions that the compiler neither drops nor reorders. On x86,
//!   which keeps the order of loads and of stores, they have acquire and release ordering.
//! - AArch64 needs explicit instructions for acquire and release (BPF version 4, Linux 6.15).
//!   Without them, the program supports x86 only.

#[cfg(not(target_arch = "bpf"))]
pub use std::hint::spin_loop;
#[cfg(not(target_arch = "bpf"))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(target_arch = "bpf")]
pub use bpf::{AtomicU32, AtomicU64, fence, spin_loop};
#[cfg(target_arch = "bpf")]
pub use core::sync::atomic::Ordering;

/// A shared 32-bit word; tests substitute the type of loom.
pub(crate) trait Word {
    fn get(&self, order: Ordering) -> u32;
    fn set(&self, value: u32, order: Ordering);
    /// A fence that orders stores before it with loads after it.
    fn fence();
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn get(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    #[inline(always)]
    fn set(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

#[cfg(target_arch = "bpf")]
#[expect(unsafe_code, reason = "assembly, and words with other writers")]
mod bpf {
    use core::arch::asm;
    use core::cell::UnsafeCell;
    use core::sync::atomic::Ordering;

    /// Does nothing: the words around it are ordered already. (LLVM cannot translate a fence for
    /// BPF, and assembly without instructions breaks the program's line table.)
    #[inline(always)]
    pub fn fence(_: Ordering) {}

    /// Waits briefly, so that a few calls outlast another CPU's write of a record.
    #[inline(always)]
    pub fn spin_loop() {
        // SAFETY: a register is counted down.
        unsafe {
            asm!("{n} = 64", "{n} += -1", "if {n} != 0 goto -2", n = out(reg) _, options(nostack));
        }
    }

    macro_rules! words {
        ($($name:ident $of:ident $register:ident $exchange:literal $compare:literal $size:tt;)*)
        => {$(
            /// An atomic word in a map value.
            #[repr(transparent)]
            #[derive(Debug, Default)]
            pub struct $name(UnsafeCell<$of>);

            // SAFETY: the word is changed only by single stores and by atomic instructions.
            unsafe impl Sync for $name {}

            impl $name {
                /// Creates a word with a value.
                pub const fn new(value: $of) -> $name {
                    $name(UnsafeCell::new(value))
                }

                /// Returns the value.
                #[inline(always)]
                pub fn load(&self, _: Ordering) -> $of {
                    // SAFETY: a word in a value of a map; one instruction.
                    unsafe { self.0.get().read_volatile() }
                }

                /// Replaces the value.
                #[inline(always)]
                pub fn store(&self, value: $of, _: Ordering) {
                    // SAFETY: as above.
                    unsafe { self.0.get().write_volatile(value) }
                }

                /// Replaces the value and returns the previous one.
                #[inline(always)]
                pub fn swap(&self, mut value: $of, _: Ordering) -> $of {
                    // SAFETY: as above.
                    unsafe {
                        asm!($exchange, p = in(reg) self.0.get(), v = inout($register) value,
                            options(nostack));
                    }
                    value
                }

                /// Replaces `old` by `new`; returns the current value as an error if it is not
                /// `old`.
                #[inline(always)]
                pub fn compare_exchange(
                    &self,
                    old: $of,
                    new: $of,
                    _: Ordering,
                    _: Ordering,
                ) -> Result<$of, $of> {
                    let mut was = old;
                    // SAFETY: as above.
                    unsafe {
                        asm!($compare, p = in(reg) self.0.get(), v = in($register) new,
                            inout($size) was, options(nostack));
                    }
                    if was == old { Ok(was) } else { Err(was) }
                }

                /// As `compare_exchange`; unlike that of std, it does not fail spuriously.
                #[inline(always)]
                pub fn compare_exchange_weak(
                    &self,
                    old: $of,
                    new: $of,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$of, $of> {
                    self.compare_exchange(old, new, success, failure)
                }

                /// Subtracts and returns the previous value.
                #[inline(always)]
                pub fn fetch_sub(&self, value: $of, order: Ordering) -> $of {
                    self.fetch_add(value.wrapping_neg(), order)
                }
            }
        )*};
    }

    macro_rules! operations {
        ($($word:ident $of:ident $register:ident $name:ident $instruction:literal $doc:literal;)*)
        => {$(
            impl $word {
                #[doc = $doc]
                /// Returns the previous value.
                #[inline(always)]
                pub fn $name(&self, mut value: $of, _: Ordering) -> $of {
                    // SAFETY: a word in a value of a map.
                    unsafe {
                        asm!($instruction, p = in(reg) self.0.get(), v = inout($register) value,
                            options(nostack));
                    }
                    value
                }
            }
        )*};
    }

    words! {
        AtomicU32 u32 wreg "{v} = xchg32_32({p} + 0, {v})"
            "w0 = cmpxchg32_32({p} + 0, w0, {v})" "w0";
        AtomicU64 u64 reg "{v} = xchg_64({p} + 0, {v})"
            "r0 = cmpxchg_64({p} + 0, r0, {v})" "r0";
    }

    operations! {
        AtomicU32 u32 wreg fetch_add "{v} = atomic_fetch_add((u32 *)({p} + 0), {v})" "Adds.";
        AtomicU32 u32 wreg fetch_and "{v} = atomic_fetch_and((u32 *)({p} + 0), {v})" "Keeps bits.";
        AtomicU32 u32 wreg fetch_or "{v} = atomic_fetch_or((u32 *)({p} + 0), {v})" "Sets bits.";
        AtomicU32 u32 wreg fetch_xor "{v} = atomic_fetch_xor((u32 *)({p} + 0), {v})" "Flips bits.";
        AtomicU64 u64 reg fetch_add "{v} = atomic_fetch_add((u64 *)({p} + 0), {v})" "Adds.";
        AtomicU64 u64 reg fetch_and "{v} = atomic_fetch_and((u64 *)({p} + 0), {v})" "Keeps bits.";
        AtomicU64 u64 reg fetch_or "{v} = atomic_fetch_or((u64 *)({p} + 0), {v})" "Sets bits.";
        AtomicU64 u64 reg fetch_xor "{v} = atomic_fetch_xor((u64 *)({p} + 0), {v})" "Flips bits.";
    }
}
