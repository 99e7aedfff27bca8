//! Where the program runs, as the loader says: interfaces, addresses, the clock, the ways out.

use crate::here::cpu;
use crate::ports::{Place, Port};
use crate::work::Work;
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
static PLACE: Array<Place, 1> = Array::new();
/// The arms' ports again, to send out of the one that a packet did not come by.
#[map]
static OUT: DevMap = DevMap::with_max_entries(2, 0);
/// A bit for each next hop whose neighbour somebody asked for; the loader takes them out.
#[btf_map]
static WANTED: Array<[AtomicU64; 8], 1024> = Array::new();
/// Packets punted in a second, by processor; a region has room for no more of them.
#[btf_map]
static PUNTED: Array<Punted, 64> = Array::new();

/// ICMP errors of a second, by processor.
#[btf_map]
static ERRORS: Array<ErrorLimit, 64> = Array::new();
/// Flows begun lately, by processor.
#[btf_map]
static NEW_FLOWS: Array<NewFlowLimit, 64> = Array::new();

#[repr(C)]
struct Punted {
    second: u32,
    used: [u32; PUNT_CLASSES],
}

/// Where it runs.
#[inline(always)]
pub fn place() -> Option<&'static Place> {
    PLACE.get(0)
}

impl Place {
    /// Seconds of the region's clock.
    #[inline(always)]
    pub fn now_s(&self) -> u32 {
        ((monotonic_ns() / SECOND_NS) as u32).wrapping_add(self.skew_s)
    }

    /// The same in nanoseconds, to a step of the kernel's tick.
    #[inline(always)]
    fn now_ns(&self) -> u64 {
        let now = monotonic_ns();
        u64::from(((now / SECOND_NS) as u32).wrapping_add(self.skew_s)) * SECOND_NS
            + now % SECOND_NS
    }

    /// The port of an arm.
    #[inline(always)]
    pub fn port(&self, arm: u8) -> &Port {
        if arm & 1 == 0 { &self.ports[0] } else { &self.ports[1] }
    }
}

impl Port {
    /// Its MAC address.
    #[inline(always)]
    pub fn mac(&self) -> [u8; 6] {
        let m = &self.mac;
        [m[0], m[1], m[2], m[3], m[4], m[5]]
    }
}

/// Nanoseconds of the kernel's monotonic clock.
#[inline(always)]
fn monotonic_ns() -> u64 {
    // SAFETY: the call takes nothing and touches nothing.
    unsafe { bpf_ktime_get_coarse_ns() }
}

/// Sends the frame out of the other arm's port; false where there is none.
#[inline(always)]
pub fn redirect(arm: u8) -> bool {
    matches!(OUT.redirect(u32::from(arm & 1), 0), Ok(XDP_REDIRECT))
}

/// Notes that nobody knows the next hop's MAC address.
#[inline(always)]
pub fn want(next_hop: u32) {
    let Some(line) = WANTED.get(next_hop / 512) else { return };
    let word = &line[(next_hop / 64 % 8) as usize];
    let bit = 1 << (next_hop % 64);
    if word.load(Relaxed) & bit == 0 {
        word.fetch_or(bit, Relaxed);
    }
}

/// Whether one more packet of a class may be punted in this second; `limit` 0 is none.
#[inline(always)]
pub fn may_punt(work: &Work, class: PuntClass, limit: u32) -> bool {
    let Some(punted) = PUNTED.get_ptr_mut(cpu() & 63) else { return false };
    // SAFETY: a CPU works on one packet at a time.
    let punted = unsafe { &mut *punted };
    if punted.second != work.now_s {
        punted.second = work.now_s;
        punted.used = [0; PUNT_CLASSES];
    }
    let used = &mut punted.used[class as usize & (PUNT_CLASSES - 1)];
    if limit != 0 && *used >= limit {
        return false;
    }
    *used += 1;
    true
}

/// This processor's ICMP errors of the second.
#[inline(always)]
pub fn error_limit() -> Option<&'static ErrorLimit> {
    ERRORS.get(cpu() & 63)
}

/// Whether this processor's limit of new flows admits one more; `translated`: one that needs its
/// entry, by NAT or to a proxy.
#[inline(always)]
pub fn admits_new_flow(work: &Work, translated: bool) -> bool {
    let limits = &work.set().settings().new_flow_limits;
    let (Some(place), Some(limit)) = (place(), NEW_FLOWS.get(cpu() & 63)) else { return true };
    !limits.limit(translated) || limit.admits(limits, translated, place.now_ns())
}

/// Counts a flow that has begun towards that limit.
#[inline(always)]
pub fn count_new_flow(work: &Work, translated: bool) {
    let limits = &work.set().settings().new_flow_limits;
    let (Some(place), Some(limit)) = (place(), NEW_FLOWS.get(cpu() & 63)) else { return };
    if limits.limit(translated) {
        limit.count(limits, translated, place.now_ns());
    }
}
