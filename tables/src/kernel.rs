//! The region in the BPF program: one map per section, declared by the program
//! (`ebpf-fallback/xdp/src/region.rs`).
//!
//! Sections are accessed by the name of their map. [`BpfConfig`] contains the values that a map
//! cannot provide. `Region` is therefore zero-sized, and views created from `Region` cost nothing
//! until a row is looked up.

#![expect(unsafe_code, reason = "the only file that accesses BPF maps")]

use core::ffi::c_void;
use core::marker::PhantomData;

use packet::flow::HashKey;

use crate::atomic::{AtomicU32, Ordering};
use crate::bpf_config::{BpfConfig, GENERATION_WORD};
use crate::layout::{SECTION_ALIGN, Section};
use crate::rows::Numbered;
pub(crate) use crate::rows::Shared;

/// A map as declared by the program; only its address is used.
#[repr(C)]
struct Map([u8; 0]);

macro_rules! maps {
    ($($section:ident $map:ident,)*) => {
        mod program {
            //! Symbols that the program declares.

            // SAFETY: the program declares them with these names and types; otherwise its loader
            // fails.
            unsafe extern "C" {
                /// Constants that the loader sets.
                pub(super) static BPF_CONFIG: super::BpfConfig;
                $(pub(super) static $map: super::Map;)*
            }
        }

        /// Returns the map of a section.
        #[inline(always)]
        fn map(section: Section) -> *const Map {
            match section {
                $(Section::$section => &raw const program::$map,)*
                // The program uses neither service notes, nor lcore status, NIC counters or rings.
                _ => core::ptr::null(),
            }
        }
    };
}

maps! {
    Header HEADER,
    Tunnels TUNNELS,
    Settings SETTINGS,
    Services SERVICES,
    FrontendKinds FRONTEND_KINDS,
    FrontendHeads FRONTEND_HEADS,
    FrontendBits FRONTEND_BITS,
    FrontendAddresses FRONTEND_FILTER,
    Frontends FRONTENDS,
    Backends BACKENDS,
    NextHops NEXT_HOPS,
    PathMtus PATH_MTUS,
    Slots SLOTS,
    Counters COUNTERS,
    FlowIndex FLOW_INDEX,
    FlowLocks FLOW_LOCKS,
    FlowAddresses FLOW_FILTER,
    FlowState FLOW_STATE,
    Paths PATHS,
    PathFronts PATH_FRONTS,
    PathLinks PATH_LINKS,
    Unconfirmed UNCONFIRMED,
    OptionSlabs OPTION_SLABS,
    SlabLinks SLAB_LINKS,
    LegCopies LEG_COPIES,
    Fragments FRAGMENTS,
    FragmentLocks FRAGMENT_LOCKS,
    Affinities AFFINITIES,
    AffinityLocks AFFINITY_LOCKS,
    NatMaps NAT_MAPS,
    Scopes SCOPES,
    ReturnLegs RETURN_LEGS,
}

/// `bpf_map_lookup_elem`; the kernel inlines it as a few instructions.
#[inline(always)]
fn look_up(map: *const Map, row: u32) -> *mut c_void {
    const LOOK_UP: usize = 1;
    // SAFETY: the kernel's function number 1 has this type; the verifier checks both arguments.
    unsafe {
        let look_up: unsafe extern "C" fn(*const c_void, *const c_void) -> *mut c_void =
            core::mem::transmute(LOOK_UP);
        look_up(map.cast(), (&raw const row).cast())
    }
}

/// Rows of a section. A map value contains [`Shared::IN_VALUE`] of them.
pub(crate) struct Rows<'r, T> {
    map: *const Map,
    section: Section,
    of: PhantomData<&'r T>,
}

impl<T> Clone for Rows<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Rows<'_, T> {}

impl<'r, T: Shared> Numbered<'r, T> for Rows<'r, T> {
    #[inline(always)]
    fn row(self, i: u32) -> Option<&'r T> {
        const { assert!(T::IN_VALUE.is_power_of_two()) };
        let value = look_up(self.map, i / T::IN_VALUE);
        if value.is_null() {
            return None;
        }
        // The verifier rejects arithmetic on a pointer that may be null, and the compiler would
        // move it before the check. The copy hides from the compiler that the pointers are equal.
        let copy: *mut c_void;
        // SAFETY: a move from register to register.
        unsafe {
            core::arch::asm!("{t} = {v}", t = out(reg) copy, v = in(reg) value, options(nostack));
        }
        let within = i & (T::IN_VALUE - 1);
        // SAFETY: a map value with that many elements of `T`; the verifier checks every access.
        // `Shared` guarantees that any bytes are valid.
        Some(unsafe { &*copy.cast::<T>().add(within as usize) })
    }

    #[inline(always)]
    fn count(self) -> u32 {
        read_config(|c| unsafe { &raw const (*c).counts[self.section as usize] })
    }
}

/// Reads one of the loader's constants. Volatile, because the compiler sees zeros at build time.
#[inline(always)]
fn read_config<T: Copy>(field: impl FnOnce(*const BpfConfig) -> *const T) -> T {
    // SAFETY: a field of a record in the program's read-only memory.
    unsafe { field(&raw const program::BPF_CONFIG).read_volatile() }
}

/// Number of elements of a section.
#[inline(always)]
fn count(section: Section) -> u32 {
    // SAFETY: within the record.
    read_config(|c| unsafe { &raw const (*c).counts[section as usize] })
}

/// Handle of the region; zero-sized.
#[derive(Clone, Copy, Debug)]
pub struct Region;

impl Region {
    /// Returns a section as rows of `T`.
    #[inline(always)]
    pub(crate) fn slice<T: Shared>(&self, section: Section) -> Rows<'static, T> {
        const { assert!(size_of::<T>() * T::IN_VALUE as usize % 8 == 0) };
        Rows { map: map(section), section, of: PhantomData }
    }

    /// Returns the committed generation; 0 before the first commit. A program reads it once per
    /// packet, so that the packet sees only one generation.
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        let header: Rows<'_, [AtomicU32; SECTION_ALIGN / 4]> = self.slice(Section::Header);
        header.row(0).map_or(0, |words| words[GENERATION_WORD].load(Ordering::SeqCst))
    }

    /// Returns the hash key derived from the region's seed.
    #[inline(always)]
    pub fn hash_key(&self) -> HashKey {
        // SAFETY: within the record.
        HashKey::of_words(core::array::from_fn(|i| {
            read_config(|c| unsafe { &raw const (*c).hash_key[i] })
        }))
    }

    /// Numbers of services and backends with counters of their own.
    #[inline(always)]
    pub(crate) fn counted(&self) -> (u32, u32) {
        // SAFETY: within the record.
        let [services, backends] =
            [0, 1].map(|i| read_config(|c| unsafe { &raw const (*c).counted[i] }));
        (services, backends)
    }

    /// Number of sets of recent-flow hints.
    #[inline(always)]
    pub fn hint_sets(&self) -> u32 {
        // SAFETY: within the record.
        read_config(|c| unsafe { &raw const (*c).hint_sets })
    }

    /// Maximum number of tunnels.
    #[inline(always)]
    pub fn tunnels(&self) -> u32 {
        count(Section::Tunnels)
    }

    /// Maximum number of lcores, which are CPUs here.
    #[inline(always)]
    pub fn lcores(&self) -> u32 {
        count(Section::Lcores)
    }

    /// Maximum number of scopes.
    #[inline(always)]
    pub(crate) fn max_scopes(&self) -> u32 {
        // SAFETY: within the record.
        read_config(|c| unsafe { &raw const (*c).scopes })
    }

    /// Epoch of fastpath, stored in lock words.
    #[inline(always)]
    pub fn epoch(&self) -> u32 {
        // SAFETY: within the record.
        read_config(|c| unsafe { &raw const (*c).epoch })
    }

    /// Returns the word that holds the path MTU towards a next hop in bytes, or 0 if it is unknown.
    #[inline(always)]
    pub fn path_mtu(&self, next_hop: u32) -> Option<&'static AtomicU32> {
        self.slice::<AtomicU32>(Section::PathMtus).row(next_hop)
    }
}
