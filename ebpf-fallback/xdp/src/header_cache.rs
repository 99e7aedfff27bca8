//! Header cache: tunnel and scope of packets by their outer headers and endpoint. It caches what
//! follows from the headers, not the headers themselves.
//!
//! To find the tunnel of a packet, `decap` compares all tunnels and all their permitted sources.
//! The result is the same for all packets of a gateway's node and endpoint as long as the tables do
//! not change. Therefore each CPU caches some results of the stage `decap` for `fast_forward` and
//! `fast_reply`.

use crate::packet_state::PacketState;
use crate::runtime_config::RuntimeConfig;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;
use packet::addr::Addr;
use packet::ip::Ip;
use tables::scope::CACHE_MAX_S;

/// Number of cached results per CPU: a gateway has one or two nodes per zone, and some endpoints.
const ENTRIES: u32 = 64;

/// A cached result and its key. A zeroed entry has no effect: it is of generation 0, whose tables
/// are empty, so that the lookup of its tunnel fails.
#[repr(C)]
pub struct CachedTunnel {
    /// Endpoint of GENEVE or VNI of VXLAN. An endpoint that equals a VNI is not confused with it:
    /// the two kinds of tunnel have different ports (`dport`).
    endpoint: u64,
    /// Generation of the tables.
    generation: u32,
    /// Value of [`cache_epoch`].
    cache_epoch: u32,
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

const _: () = assert!(size_of::<CachedTunnel>() == 32);

/// Returns a value that changes when cached results become invalid for reasons other than a new
/// generation: the program was configured anew ([`RuntimeConfig::revision`]), so that generations
/// may restart, or [`CACHE_MAX_S`] seconds have passed, the time for which a scope may be used
/// without a lookup.
#[inline(always)]
pub fn cache_epoch(config: &RuntimeConfig, now_s: u32) -> u32 {
    config.revision ^ (now_s / CACHE_MAX_S) << 8
}

#[btf_map]
static TUNNEL_CACHE: PerCpuArray<CachedTunnel, { ENTRIES as usize }> = PerCpuArray::new();

/// Returns the cache entry for a gateway's packet.
#[inline(always)]
fn entry(outer: &Ip, endpoint: u64) -> Option<*mut CachedTunnel> {
    let hash = (outer.src.words[3] ^ endpoint as u32).wrapping_mul(0x9e37_79b1);
    TUNNEL_CACHE.get_ptr_mut(hash >> 26 & (ENTRIES - 1))
}

/// Returns the cached result for a gateway's packet in GENEVE or VXLAN over IPv4.
#[inline(always)]
pub fn lookup(
    cache_epoch: u32,
    generation: u32,
    outer: &Ip,
    endpoint: u64,
) -> Option<&'static CachedTunnel> {
    // SAFETY: a CPU processes one packet at a time, and nothing writes the entry while it is in
    // use.
    let cached = unsafe { &*entry(outer, endpoint)? };
    let differs = (cached.generation ^ generation)
        | (cached.cache_epoch ^ cache_epoch)
        | (cached.src ^ outer.src.words[3])
        | (cached.dst ^ outer.dst.words[3])
        | u32::from(cached.dport ^ outer.dport);
    (u64::from(differs) | (cached.endpoint ^ endpoint) == 0).then_some(cached)
}

/// Caches the result of `decap` for a gateway's packet in GENEVE or VXLAN over IPv4.
#[inline(always)]
pub fn insert(config: &RuntimeConfig, pkt: &PacketState, endpoint: u64) {
    let outer = &pkt.outer;
    let Some(cached) = entry(outer, endpoint) else { return };
    // SAFETY: a CPU processes one packet at a time.
    let cached = unsafe { &mut *cached };
    cached.endpoint = endpoint;
    cached.generation = pkt.generation;
    cached.cache_epoch = cache_epoch(config, pkt.now_s);
    cached.src = outer.src.words[3];
    cached.dst = outer.dst.words[3];
    cached.scope = pkt.scope;
    cached.dport = outer.dport;
    cached.tunnel = pkt.tunnel as u16;
}

/// A cached result for backends' packets in Weir's GENEVE: tunnel and scope. The backend's address
/// is not part of the key, because `fast_reply` compares it with the flow's backend.
#[repr(C)]
pub struct CachedBackendTunnel {
    endpoint: u64,
    /// Attachment option, which contains the gateway's number.
    attachment: u64,
    dst: Addr,
    generation: u32,
    cache_epoch: u32,
    /// Scope of the endpoint.
    pub scope: u32,
    dport: u16,
    /// Tunnel id.
    pub tunnel: u16,
}

#[btf_map]
static BACKEND_CACHE: PerCpuArray<CachedBackendTunnel, { ENTRIES as usize }> = PerCpuArray::new();

/// Returns the cache entry for a backend's packet.
#[inline(always)]
fn backend_entry(endpoint: u64, attachment: u64) -> Option<*mut CachedBackendTunnel> {
    let hash = (endpoint as u32 ^ (attachment as u32) << 16).wrapping_mul(0x9e37_79b1);
    BACKEND_CACHE.get_ptr_mut(hash >> 26 & (ENTRIES - 1))
}

/// Returns the cached result for a backend's packet with these two options.
#[inline(always)]
pub fn lookup_backend(
    cache_epoch: u32,
    generation: u32,
    outer: &Ip,
    (endpoint, attachment): (u64, u64),
) -> Option<&'static CachedBackendTunnel> {
    // SAFETY: a CPU processes one packet at a time, and nothing writes the entry while it is in
    // use.
    let cached = unsafe { &*backend_entry(endpoint, attachment)? };
    let differs = (cached.generation ^ generation)
        | (cached.cache_epoch ^ cache_epoch)
        | u32::from(cached.dport ^ outer.dport);
    let options = (cached.endpoint ^ endpoint) | (cached.attachment ^ attachment);
    (u64::from(differs) | options == 0 && cached.dst == outer.dst).then_some(cached)
}

/// Caches the result of `decap` for a backend's packet.
#[inline(always)]
pub fn insert_backend(config: &RuntimeConfig, pkt: &PacketState) {
    let Some(cached) = backend_entry(pkt.scope_key, pkt.attachment) else { return };
    // SAFETY: a CPU processes one packet at a time.
    let cached = unsafe { &mut *cached };
    cached.endpoint = pkt.scope_key;
    cached.attachment = pkt.attachment;
    cached.dst = pkt.outer.dst;
    cached.generation = pkt.generation;
    cached.cache_epoch = cache_epoch(config, pkt.now_s);
    cached.scope = pkt.scope;
    cached.dport = pkt.outer.dport;
    cached.tunnel = pkt.tunnel as u16;
}
