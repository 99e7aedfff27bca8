//! Maps of the region for `tables`: one array per section, found by name.
//!
//! The loader replaces them by the maps of a region, or sets their sizes. The value sizes are those
//! of `Section::map_value_bytes`; the numbers of rows are in [`TOLD`].

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use tables::told::Told;

/// Constants that the loader sets.
#[unsafe(no_mangle)]
static TOLD: Told = Told::NOTHING;

/// Map flag: user space can map the values (BPF_F_MMAPABLE).
const MAPPED: usize = 1024;

macro_rules! sections {
    ($($name:ident $bytes:literal)*) => {$(
        #[btf_map]
        static $name: Array<[u64; $bytes / 8], 1, MAPPED> = Array::new();
    )*};
}

sections! {
    HEADER 4096
    TUNNELS 512
    SETTINGS 2816
    SERVICES 256
    FRONTEND_KINDS 128
    FRONTEND_HEADS 8
    FRONTEND_BITS 8
    FRONTEND_FILTER 8
    FRONTENDS 64
    BACKENDS 128
    NEXT_HOPS 64
    PATH_MTUS 8
    SLOTS 8
    COUNTERS 64
    FLOW_INDEX 256
    FLOW_LOCKS 8
    FLOW_FILTER 8
    FLOW_STATE 64
    PATHS 192
    PATH_FRONTS 64
    PATH_LINKS 8
    UNCONFIRMED 8
    OPTION_SLABS 320
    SLAB_LINKS 8
    LEG_COPIES 704
    FRAGMENTS 256
    FRAGMENT_LOCKS 8
    AFFINITIES 256
    AFFINITY_LOCKS 8
    NAT_MAPS 8192
    SCOPES 32
    RETURN_LEGS 128
}
