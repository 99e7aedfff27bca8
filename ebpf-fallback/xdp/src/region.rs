//! Maps of the region for `tables`: one array per section, found by name.
//!
//! The loader replaces these maps by those of a region; tests set their sizes instead. The numbers
//! of rows are in [`BPF_CONFIG`].

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use tables::bpf_config::BpfConfig;
use tables::layout::Section;

/// Constants that the loader sets.
#[unsafe(no_mangle)]
static BPF_CONFIG: BpfConfig = BpfConfig::UNSET;

/// Map flag: user space can map the values (BPF_F_MMAPABLE).
const MAPPED: usize = 1024;

macro_rules! sections {
    ($($name:ident $section:ident)*) => {$(
        #[btf_map]
        static $name: Array<[u64; Section::$section.map_value_bytes() / 8], 1, MAPPED> =
            Array::new();
    )*};
}

sections! {
    HEADER Header
    TUNNELS Tunnels
    SETTINGS Settings
    SERVICES Services
    FRONTEND_KINDS FrontendKinds
    FRONTEND_HEADS FrontendHeads
    FRONTEND_BITS FrontendBits
    FRONTEND_FILTER FrontendAddresses
    FRONTENDS Frontends
    BACKENDS Backends
    NEXT_HOPS NextHops
    PATH_MTUS PathMtus
    SLOTS Slots
    COUNTERS Counters
    FLOW_INDEX FlowIndex
    FLOW_LOCKS FlowLocks
    FLOW_FILTER FlowAddresses
    FLOW_STATE FlowState
    PATHS Paths
    PATH_FRONTS PathFronts
    PATH_LINKS PathLinks
    UNCONFIRMED Unconfirmed
    OPTION_SLABS OptionSlabs
    SLAB_LINKS SlabLinks
    LEG_COPIES LegCopies
    FRAGMENTS Fragments
    FRAGMENT_LOCKS FragmentLocks
    AFFINITIES Affinities
    AFFINITY_LOCKS AffinityLocks
    NAT_MAPS NatMaps
    SCOPES Scopes
    RETURN_LEGS ReturnLegs
}
