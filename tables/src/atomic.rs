//! Atomic words, the same to processes and to the kernel's program.
//!
//! For processes they are std's. Rust's BPF target knows one thread only and would make plain loads
//! and stores of its atomics; so there they are inline assembly. All that change a word order
//! everything, as BPF's atomics do that return a value. Loads and stores are plain ones that the
//! compiler neither drops nor moves past each other: on x86, which keeps loads in order and stores
//! in order, these are acquire and release. On AArch64 they would not be: it needs the instructions
//! for that (BPF version 4, Linux 6.15), so the program is for x86 only until then.

#[cfg(not(target_arch = "bpf"))]
pub use std::hint::spin_loop;
#[cfg(not(target_arch = "bpf"))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(target_arch = "bpf")]
pub use bpf::{AtomicU32, AtomicU64, fence, spin_loop};
#[cfg(target_arch = "bpf")]
pub use core::sync::atomic::Ordering;

/// A shared word; loom's stands in for the real one in tests.
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
#[expect(unsafe_code, reason = "assembly, and words that others write")]
mod bpf {
    use core::arch::asm;
    use core::cell::UnsafeCell;
    use core::sync::atomic::Ordering;

    /// Nothing: the words around it are ordered by themselves. (LLVM can't translate a fence here,
    /// and an assembly without instructions breaks the program's line table.)
    #[inline(always)]
    pub fn fence(_: Ordering) {}

    /// A short while, so that a few of them outlast a record that another CPU is writing.
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
            /// A word in a value of a map.
            #[repr(transparent)]
            #[derive(Debug, Default)]
            pub struct $name(UnsafeCell<$of>);

            // SAFETY: it is only changed by what is atomic to the kernel.
            unsafe impl Sync for $name {}

            impl $name {
                /// A word.
                pub const fn new(value: $of) -> $name {
                    $name(UnsafeCell::new(value))
                }

                /// What it says.
                #[inline(always)]
                pub fn load(&self, _: Ordering) -> $of {
                    // SAFETY: a word in a value of a map; one instruction.
                    unsafe { self.0.get().read_volatile() }
                }

                /// Says something else.
                #[inline(always)]
                pub fn store(&self, value: $of, _: Ordering) {
                    // SAFETY: as above.
                    unsafe { self.0.get().write_volatile(value) }
                }

                /// Says something else, and what it said before.
                #[inline(always)]
                pub fn swap(&self, mut value: $of, _: Ordering) -> $of {
                    // SAFETY: as above.
                    unsafe {
                        asm!($exchange, p = in(reg) self.0.get(), v = inout($register) value,
                            options(nostack));
                    }
                    value
                }

                /// Changes it from `old` to `new` if it is `old`.
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

                /// The same; it never fails by itself.
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

                /// Takes from it.
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
        AtomicU32 u32 wreg fetch_xor "{v} = atomic_fetch_xor((u32 *)({p} + 0), {v})" "Turns bits.";
        AtomicU64 u64 reg fetch_add "{v} = atomic_fetch_add((u64 *)({p} + 0), {v})" "Adds.";
        AtomicU64 u64 reg fetch_and "{v} = atomic_fetch_and((u64 *)({p} + 0), {v})" "Keeps bits.";
        AtomicU64 u64 reg fetch_or "{v} = atomic_fetch_or((u64 *)({p} + 0), {v})" "Sets bits.";
        AtomicU64 u64 reg fetch_xor "{v} = atomic_fetch_xor((u64 *)({p} + 0), {v})" "Turns bits.";
    }
}
