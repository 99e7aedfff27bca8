//! The region's maps, as `tables` asks for them: one array for each section, by its name.
//!
//! Whoever loads the program gives it the maps of a region, or their sizes. Bytes of a value are
//! `Section::map_value_bytes`; how many rows there are is told in [`TOLD`].

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use tables::told::Told;

/// What the loader says of the region.
#[unsafe(no_mangle)]
static TOLD: Told = Told::NOTHING;

/// User space maps them (BPF_F_MMAPABLE).
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
