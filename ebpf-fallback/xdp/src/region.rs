//! The region's maps, as `tables` asks for them: one array for each section, by its name.
//!
//! Whoever loads the program gives them their sizes, or the maps of a region that is there. Values
//! of eight bytes and more are rows; rows of four bytes lie in pairs. What a row is, is written in
//! `tables::layout`; how many there are is told in [`TOLD`].
#![allow(non_upper_case_globals, reason = "maps have the names of sections")]

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
    header 4096
    tunnels 512
    settings 1152
    services 256
    frontend_kinds 128
    frontend_heads 8
    frontend_bits 8
    frontend_filter 8192
    frontends 64
    backends 128
    next_hops 64
    path_mtus 8
    slots 8
    counters 64
    flow_index 64
    flow_locks 8
    flow_filter 8192
    flow_state 64
    paths 192
    path_links 8
    option_slabs 320
    slab_links 8
    fragments 64
    fragment_locks 8
    nat_port_maps 8192
    scopes 32
}
