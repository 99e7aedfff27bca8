//! Runtime configuration from the loader, the clock, and the maps for rate limits, redirection and
//! requests of neighbors.

use crate::cpu_views::cpu;
use crate::packet_state::PacketState;
use crate::runtime_config::{Port, RuntimeConfig};
use aya_ebpf::bindings::xdp_action::XDP_REDIRECT;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_ktime_get_coarse_ns;
use aya_ebpf::macros::{btf_map, map};
use aya_ebpf::maps::xdp::DevMap;
use tables::atomic::{AtomicU64, Ordering::Relaxed};
use tables::error_limit::ErrorLimit;
use tables::new_flow_limit::NewFlowLimit;
use tables::punt::{PUNT_CLASSES, PuntClass};
use tables::token_bucket::SECOND_NS;

#[btf_map]
static RUNTIME_CONFIG: Array<RuntimeConfig, 1> = Array::new();
/// Ports of both arms. A packet is redirected if it leaves by another interface than it arrived on.
#[map]
static OUT_PORTS: DevMap = DevMap::with_max_entries(2, 0);
/// One bit per next hop, set if packets need its MAC address; the loader reads and clears the bits.
#[btf_map]
static MAC_REQUESTS: Array<[AtomicU64; 8], 1024> = Array::new();
/// Punted packets of the current second, by CPU. CPUs whose numbers are equal modulo 64 share an
/// entry, here and in the other two arrays of rate limits.
#[btf_map]
static PUNTED: Array<Punted, 64> = Array::new();

/// Rate limiters of ICMP errors, by CPU.
#[btf_map]
static ERRORS: Array<ErrorLimit, 64> = Array::new();
/// Rate limiters of new flows, by CPU.
#[btf_map]
static NEW_FLOWS: Array<NewFlowLimit, 64> = Array::new();

/// The number of packets that a CPU punted in one second.
#[repr(C)]
struct Punted {
    /// The second, of the region's clock.
    second: u32,
    /// The number of packets by class.
    used: [u32; PUNT_CLASSES],
}

/// Returns the configuration from the loader.
#[inline(always)]
pub fn runtime_config() -> Option<&'static RuntimeConfig> {
    RUNTIME_CONFIG.get(0)
}

impl RuntimeConfig {
    /// Returns the seconds of the region's clock.
    #[inline(always)]
    pub fn now_s(&self) -> u32 {
        ((monotonic_ns() / SECOND_NS) as u32).wrapping_add(self.skew_s)
    }

    /// Returns the nanoseconds of the region's clock, with the resolution of the kernel's tick.
    #[inline(always)]
    fn now_ns(&self) -> u64 {
        let now = monotonic_ns();
        u64::from(((now / SECOND_NS) as u32).wrapping_add(self.skew_s)) * SECOND_NS
            + now % SECOND_NS
    }

    /// Returns the port of an arm.
    #[inline(always)]
    pub fn port(&self, arm: u8) -> &Port {
        if arm & 1 == 0 { &self.ports[0] } else { &self.ports[1] }
    }
}

impl Port {
    /// Returns the MAC address.
    #[inline(always)]
    pub fn mac(&self) -> [u8; 6] {
        let m = &self.mac;
        [m[0], m[1], m[2], m[3], m[4], m[5]]
    }
}

/// Returns the nanoseconds of the kernel's monotonic clock, as of its last tick.
#[inline(always)]
fn monotonic_ns() -> u64 {
    // SAFETY: the helper has no arguments and no side effects.
    unsafe { bpf_ktime_get_coarse_ns() }
}

/// Redirects the frame to the port of `arm`; returns false if there is none.
#[inline(always)]
pub fn redirect(arm: u8) -> bool {
    matches!(OUT_PORTS.redirect(u32::from(arm & 1), 0), Ok(XDP_REDIRECT))
}

/// Records that the next hop's MAC address is needed.
#[inline(always)]
pub fn request_neighbor(next_hop: u32) {
    let Some(line) = MAC_REQUESTS.get(next_hop / 512) else { return };
    let word = &line[(next_hop / 64 % 8) as usize];
    let bit = 1 << (next_hop % 64);
    if word.load(Relaxed) & bit == 0 {
        word.fetch_or(bit, Relaxed);
    }
}

/// Counts a packet against the punt limit of its class in this second. Returns false if the limit
/// is reached; `limit` 0 is unlimited.
#[inline(always)]
pub fn may_punt(pkt: &PacketState, class: PuntClass, limit: u32) -> bool {
    let Some(punted) = PUNTED.get_ptr_mut(cpu() & 63) else { return false };
    // SAFETY: a CPU processes one packet at a time.
    let punted = unsafe { &mut *punted };
    if punted.second != pkt.now_s {
        punted.second = pkt.now_s;
        punted.used = [0; PUNT_CLASSES];
    }
    let used = &mut punted.used[class as usize & (PUNT_CLASSES - 1)];
    if limit != 0 && *used >= limit {
        return false;
    }
    *used += 1;
    true
}

/// Returns the ICMP error limiter of this CPU.
#[inline(always)]
pub fn error_limit() -> Option<&'static ErrorLimit> {
    ERRORS.get(cpu() & 63)
}

/// Returns whether this CPU's limit admits another new flow. `needs_entry`: the flow cannot be
/// forwarded without an entry, because it uses NAT or a proxy.
#[inline(always)]
pub fn admits_new_flow(pkt: &PacketState, needs_entry: bool) -> bool {
    let limits = &pkt.set().settings().new_flow_limits;
    let (Some(config), Some(limit)) = (runtime_config(), NEW_FLOWS.get(cpu() & 63)) else {
        return true;
    };
    !limits.is_limited(needs_entry) || limit.admits(limits, needs_entry, config.now_ns())
}

/// Counts a flow that has begun against this CPU's limit.
#[inline(always)]
pub fn count_new_flow(pkt: &PacketState, needs_entry: bool) {
    let limits = &pkt.set().settings().new_flow_limits;
    let (Some(config), Some(limit)) = (runtime_config(), NEW_FLOWS.get(cpu() & 63)) else { return };
    if limits.is_limited(needs_entry) {
        limit.count(limits, needs_entry, config.now_ns());
    }
}
