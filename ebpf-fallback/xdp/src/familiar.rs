//! Header cache: for known senders, the tunnel of their packets and their scope.
//!
//! To find the tunnel of a packet, `decap` compares all tunnels and all their permitted sources.
//! The result is the same for all packets of a gateway's node and endpoint as long as the tables do
//! not change. Therefore each CPU caches some results of the stage `decap` for `usual`.

use crate::ports::Place;
use crate::work::Work;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;
use packet::addr::Addr;
use packet::ip::Ip;
use tables::scope::KEPT_S;

/// Number of cached results per CPU: a gateway has one or two nodes per zone, and some endpoints.
const PLACES: u32 = 64;

/// A cached result and its key. A zeroed entry matches no packet, because no packet is handled with
/// the tables of generation 0.
#[repr(C)]
pub struct Known {
    /// Endpoint of GENEVE or VNI of VXLAN, which the port distinguishes.
    endpoint: u64,
    /// Generation of the tables.
    generation: u32,
    /// Value of [`era`].
    era: u32,
    /// Outer IPv4 addresses in network byte order.
    src: u32,
    dst: u32,
    /// Scope of the endpoint.
    pub scope: u32,
    /// Outer UDP destination port, in host byte order.
    dport: u16,
    /// Tunnel id.
    pub tunnel: u16,
}

const _: () = assert!(size_of::<Known>() == 32);

/// Returns a value that changes when cached results become invalid for reasons other than a new
/// generation: the program was configured anew ([`Place::told`]), so that generations may restart,
/// or [`KEPT_S`] have passed, for which a scope may be used without a lookup.
#[inline(always)]
pub fn era(place: &Place, now_s: u32) -> u32 {
    place.told ^ (now_s / KEPT_S) << 8
}

#[btf_map]
static FAMILIAR: PerCpuArray<Known, { PLACES as usize }> = PerCpuArray::new();

/// Returns the cache entry for a gateway's packet.
#[inline(always)]
fn at(outer: &Ip, endpoint: u64) -> Option<*mut Known> {
    let mixed = (outer.src.words[3] ^ endpoint as u32).wrapping_mul(0x9e37_79b1);
    FAMILIAR.get_ptr_mut(mixed >> 26 & (PLACES - 1))
}

/// Returns the cached result for a gateway's packet in GENEVE or VXLAN over IPv4.
#[inline(always)]
pub fn recognise(era: u32, generation: u32, outer: &Ip, endpoint: u64) -> Option<&'static Known> {
    // SAFETY: a CPU processes one packet at a time, and nothing writes the entry while it is in
    // use.
    let known = unsafe { &*at(outer, endpoint)? };
    let differs = (known.generation ^ generation)
        | (known.era ^ era)
        | (known.src ^ outer.src.words[3])
        | (known.dst ^ outer.dst.words[3])
        | u32::from(known.dport ^ outer.dport);
    (u64::from(differs) | (known.endpoint ^ endpoint) == 0).then_some(known)
}

/// Caches the result of `decap` for a gateway's packet in GENEVE or VXLAN over IPv4.
#[inline(always)]
pub fn remember(place: &Place, work: &Work, endpoint: u64) {
    let outer = &work.outer;
    let Some(known) = at(outer, endpoint) else { return };
    // SAFETY: a CPU processes one packet at a time.
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

/// Cached result for backends' packets in Weir's GENEVE: the scope of their flows. The backend
/// itself is not part of it, because the flow determines it.
#[repr(C)]
pub struct KnownBackend {
    endpoint: u64,
    /// Attachment option, which contains the gateway's number.
    attachment: u64,
    dst: Addr,
    generation: u32,
    era: u32,
    /// Scope of the endpoint.
    pub scope: u32,
    dport: u16,
    /// Tunnel id.
    pub tunnel: u16,
}

#[btf_map]
static FAMILIAR_BACKENDS: PerCpuArray<KnownBackend, { PLACES as usize }> = PerCpuArray::new();

/// Returns the cache entry for a backend's packet.
#[inline(always)]
fn backend_at(endpoint: u64, attachment: u64) -> Option<*mut KnownBackend> {
    let mixed = (endpoint as u32 ^ (attachment as u32) << 16).wrapping_mul(0x9e37_79b1);
    FAMILIAR_BACKENDS.get_ptr_mut(mixed >> 26 & (PLACES - 1))
}

/// Returns the cached result for a backend's packet with these two options.
#[inline(always)]
pub fn recognise_backend(
    era: u32,
    generation: u32,
    outer: &Ip,
    (endpoint, attachment): (u64, u64),
) -> Option<&'static KnownBackend> {
    // SAFETY: a CPU processes one packet at a time, and nothing writes the entry while it is in
    // use.
    let known = unsafe { &*backend_at(endpoint, attachment)? };
    let differs =
        (known.generation ^ generation) | (known.era ^ era) | u32::from(known.dport ^ outer.dport);
    let options = (known.endpoint ^ endpoint) | (known.attachment ^ attachment);
    (u64::from(differs) | options == 0 && known.dst == outer.dst).then_some(known)
}

/// Caches the result of `decap` for a backend's packet.
#[inline(always)]
pub fn remember_backend(place: &Place, work: &Work) {
    let Some(known) = backend_at(work.scope_key, work.attachment) else { return };
    // SAFETY: a CPU processes one packet at a time.
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
