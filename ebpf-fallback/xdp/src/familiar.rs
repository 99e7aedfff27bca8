//! Gateways met before: by which tunnel their packets come in, and in which scope.
//!
//! Whether a tunnel takes a packet is asked of all tunnels and of all their sources, and the answer
//! is the same for all packets of a gateway's node and endpoint as long as the tables are. So each
//! CPU remembers some answers that the stage `decap` came to, for `usual`.

use crate::ports::Place;
use crate::work::Work;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;
use packet::addr::Addr;
use packet::ip::Ip;
use tables::scope::KEPT_S;

/// How many a CPU remembers: a gateway has a node or two in each zone, and some endpoints.
const PLACES: u32 = 64;

/// An answer, and of what. Zero is nobody's: no packet is looked at by the tables of generation 0.
#[repr(C)]
pub struct Known {
    /// GENEVE's endpoint, or VXLAN's VNI. Which of the two, the port says.
    endpoint: u64,
    /// Tables of which generation.
    generation: u32,
    /// [`era`].
    era: u32,
    /// Outer IPv4 addresses, raw.
    src: u32,
    dst: u32,
    /// The endpoint's scope.
    pub scope: u32,
    /// Outer destination port.
    dport: u16,
    /// Tunnel id.
    pub tunnel: u16,
}

const _: () = assert!(size_of::<Known>() == 32);

/// What has to be the same for an answer to hold, besides the tables' generation: tables that were
/// begun anew ([`Place::told`]) count generations anew, and a scope is not used for longer than
/// [`KEPT_S`] without asking for it.
#[inline(always)]
pub fn era(place: &Place, now_s: u32) -> u32 {
    place.told ^ (now_s / KEPT_S) << 8
}

#[btf_map]
static FAMILIAR: PerCpuArray<Known, { PLACES as usize }> = PerCpuArray::new();

/// Where an answer is kept.
#[inline(always)]
fn at(outer: &Ip, endpoint: u64) -> Option<*mut Known> {
    let mixed = (outer.src.words[3] ^ endpoint as u32).wrapping_mul(0x9e37_79b1);
    FAMILIAR.get_ptr_mut(mixed >> 26 & (PLACES - 1))
}

/// What is known of a gateway's packet in GENEVE or VXLAN over IPv4.
#[inline(always)]
pub fn recognise(era: u32, generation: u32, outer: &Ip, endpoint: u64) -> Option<&'static Known> {
    // SAFETY: a CPU works on one packet at a time, and nobody writes while this one is looked at.
    let known = unsafe { &*at(outer, endpoint)? };
    let differs = (known.generation ^ generation)
        | (known.era ^ era)
        | (known.src ^ outer.src.words[3])
        | (known.dst ^ outer.dst.words[3])
        | u32::from(known.dport ^ outer.dport);
    (u64::from(differs) | (known.endpoint ^ endpoint) == 0).then_some(known)
}

/// Remembers what `decap` found out of a gateway's packet in GENEVE or VXLAN over IPv4.
#[inline(always)]
pub fn remember(place: &Place, work: &Work, endpoint: u64) {
    let outer = &work.outer;
    let Some(known) = at(outer, endpoint) else { return };
    // SAFETY: a CPU works on one packet at a time.
    let known = unsafe { &mut *known };
    known.endpoint = endpoint;
    known.generation = work.generation;
    known.era = era(place, work.now_s);
    known.src = outer.src.words[3];
    known.dst = outer.dst.words[3];
    known.scope = work.scope;
    known.dport = outer.dport;
    known.tunnel = work.tunnel as u16;
}

/// The same of backends' packets in our own GENEVE: in which scope their flows are. From which
/// backend one came does not matter here, since its flow tells.
#[repr(C)]
pub struct KnownBackend {
    endpoint: u64,
    /// Names the gateway.
    attachment: u64,
    dst: Addr,
    generation: u32,
    era: u32,
    /// The endpoint's scope.
    pub scope: u32,
    dport: u16,
    /// Tunnel id.
    pub tunnel: u16,
}

#[btf_map]
static FAMILIAR_BACKENDS: PerCpuArray<KnownBackend, { PLACES as usize }> = PerCpuArray::new();

/// Where that is kept.
#[inline(always)]
fn backend_at(endpoint: u64, attachment: u64) -> Option<*mut KnownBackend> {
    let mixed = (endpoint as u32 ^ (attachment as u32) << 16).wrapping_mul(0x9e37_79b1);
    FAMILIAR_BACKENDS.get_ptr_mut(mixed >> 26 & (PLACES - 1))
}

/// What is known of a backend's packet with these two options.
#[inline(always)]
pub fn recognise_backend(
    era: u32,
    generation: u32,
    outer: &Ip,
    (endpoint, attachment): (u64, u64),
) -> Option<&'static KnownBackend> {
    // SAFETY: a CPU works on one packet at a time, and nothing writes while this one is looked at.
    let known = unsafe { &*backend_at(endpoint, attachment)? };
    let differs =
        (known.generation ^ generation) | (known.era ^ era) | u32::from(known.dport ^ outer.dport);
    let options = (known.endpoint ^ endpoint) | (known.attachment ^ attachment);
    (u64::from(differs) | options == 0 && known.dst == outer.dst).then_some(known)
}

/// Remembers what `decap` found out of a backend's packet.
#[inline(always)]
pub fn remember_backend(place: &Place, work: &Work) {
    let Some(known) = backend_at(work.scope_key, work.attachment) else { return };
    // SAFETY: a CPU works on one packet at a time.
    let known = unsafe { &mut *known };
    known.endpoint = work.scope_key;
    known.attachment = work.attachment;
    known.dst = work.outer.dst;
    known.generation = work.generation;
    known.era = era(place, work.now_s);
    known.scope = work.scope;
    known.dport = work.outer.dport;
    known.tunnel = work.tunnel as u16;
}
