//! Packet and event counters: one list with names and help texts, and one page of counters per
//! lcore.
//!
//! Each word has one writer, its lcore, which adds by a plain load and store; readers sum over all
//! pages. Counters never decrease, and continue when either process restarts. Counters of a service
//! or backend belong to its id, so a reader takes a new base value when an id is reused.
//!
//! ```text
//! page:  arm 0 | arm 1 | verdicts | others | drops of arm 0 | drops of arm 1 | services | backends
//! words:    16      16        16       16               64               64     8 each     8 each
//! ```
//! The last words of the first four blocks belong to two histograms:
//!
//! - of the verdicts: bursts by their number of packets;
//! - of both arms: sampled iterations of the poll loop that found packets, by their duration;
//! - of the others: the nanoseconds of all sampled iterations, without packets and with packets.
//!
//! A line has eight words. The first `region.counted_services` services have one line each; all
//! others share one line that follows. The same holds for backends, so that every packet is
//! counted.

use crate::atomic::{AtomicU64, Ordering};

#[cfg(target_arch = "bpf")]
use crate::layout::counter_page_words;
use crate::layout::{COUNTER_WORDS, OBJECT_WORDS, Section};
use crate::reason::{DropReason, MAX_REASONS};
use crate::record::NONE;
use crate::region::Region;
#[cfg(target_arch = "bpf")]
use crate::rows::{Numbered, Rows};

#[cfg(test)]
mod tests;

// Offsets of the blocks of a page in words; the arms' blocks come first.
const ARM_WORDS: usize = 16;
const VERDICTS: usize = 2 * ARM_WORDS;
const OTHERS: usize = VERDICTS + 16;
const DROPS: usize = COUNTER_WORDS;
const OBJECTS: usize = DROPS + 2 * MAX_REASONS;

/// Maximum number of counters of an arm; the words after them are buckets of
/// [`LcorePage::iteration`].
const ARM_COUNTERS: usize = ARM_WORDS - ITERATION_BUCKETS / 2;
/// Maximum number of verdicts; the words after them are buckets of [`LcorePage::burst`].
const VERDICT_COUNTERS: usize = 16 - BURST_BUCKETS;
/// Maximum number of counters of an lcore; the words after them are the time of sampled iterations.
const LCORE_COUNTERS: usize = 16 - 2;
/// Number of buckets of bursts by their number of packets: 1, 2, up to 4, 8, 16, 32, and more.
pub const BURST_BUCKETS: usize = 7;
/// Number of iterations of the poll loop from one sampled iteration to the next.
pub const ITERATIONS_PER_SAMPLE: u32 = 1024;
/// Number of buckets of sampled iterations by their duration.
pub const ITERATION_BUCKETS: usize = 8;
/// Upper bounds of the [`ITERATION_BUCKETS`] in nanoseconds, inclusive; the last bucket has none.
pub const ITERATION_BOUNDS_NS: [u64; ITERATION_BUCKETS - 1] =
    [2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000];

macro_rules! counters {
    ($($(#[$doc:meta])* $list:ident at most $max:ident {
        $($variant:ident $name:literal $help:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum $list { $(#[doc = $help] $variant,)* }

        impl $list {
            /// All counters of this list in the order of their words.
            pub const ALL: &'static [$list] = &[$($list::$variant,)*];

            /// Name in metrics, without `weir_` and `_total`.
            pub const fn name(self) -> &'static str {
                match self { $($list::$variant => $name,)* }
            }

            /// Description of what is counted.
            pub const fn help(self) -> &'static str {
                match self { $($list::$variant => $help,)* }
            }
        }

        const _: () = assert!($list::ALL.len() <= $max);
    )*};
}

counters! {
    /// Counters of an arm. With no packets in flight and no drops: rx + from_kernel + originated =
    /// tx + to_kernel.
    ArmCounter at most ARM_COUNTERS {
        RxPackets "rx_packets" "Packets received from the NIC.",
        RxBytes "rx_bytes" "Bytes received from the NIC, without frame check sequence.",
        FromKernelPackets "from_kernel_packets" "Packets received from the kernel by the exception port.",
        FromKernelBytes "from_kernel_bytes" "Bytes received from the kernel by the exception port.",
        OriginatedPackets "originated_packets" "Packets generated in addition to those received, such as an ICMP error about a packet that was also forwarded.",
        OriginatedBytes "originated_bytes" "Bytes of generated packets.",
        TxPackets "tx_packets" "Packets queued to the NIC for transmission.",
        TxBytes "tx_bytes" "Bytes queued to the NIC for transmission.",
        ToKernelPackets "to_kernel_packets" "Packets passed to the kernel by the exception port.",
        ToKernelBytes "to_kernel_bytes" "Bytes passed to the kernel by the exception port.",
        KernelLost "kernel_lost_packets" "Packets lost between Weir and the kernel: counted in to_kernel_packets but dropped by the kernel's interface, or read from it without a free buffer or ring slot, and not counted in from_kernel_packets.",
    }

    /// Packets by verdict. Counted as `Drop` as well: packets that an ICMP error answers, and with
    /// DPDK those that the NIC or the ring to the kernel does not accept.
    VerdictCounter at most VERDICT_COUNTERS {
        Return "return" "Returned to the gateway unchanged.",
        Tunnel "tunnel" "Sent to a backend in a tunnel, including health probes.",
        Nat "nat" "Rewritten and sent to a backend.",
        Answer "answer" "Answers of backends, sent back to the source of their flow.",
        Forward "forward" "Forwarded from the kernel to the NIC.",
        Punt "punt" "Passed to this machine's kernel.",
        Redirect "redirect" "Rewritten and passed to a proxy on this machine.",
        Reply "reply" "Answered by Weir itself, for example pings and ICMP errors.",
        Drop "drop" "Dropped; weir_drops_total has the reasons.",
    }

    /// Counters of an lcore.
    Counter at most LCORE_COUNTERS {
        FlowsUntracked "flows_untracked" "New flows forwarded without a flow entry because the table was full or contended, or flows.tunnel_new_per_s was exceeded.",
        FragmentsUntracked "fragments_untracked" "First fragments forwarded without a fragment entry; the datagram's later fragments do not match the flow.",
        AffinitiesUntracked "affinities_untracked" "New flows without an affinity entry, because the table was full or contended: the client may get another backend when the service's backends change.",
        GatewayLegChanges "gateway_leg_changes" "Changes of the gateway node, ports or options of an established flow.",
        GatewayLegsShared "gateway_legs_shared" "Changes of a gateway leg that both directions of the flow share because no option slab is free.",
        EventsLost "events_lost" "Events for slowpath lost because the event ring was full.",
        TableSwitches "table_switches" "Switches of an lcore to a new table generation.",
        Bursts "bursts" "Bursts with at least one packet.",
        FlowsMoved "flows_moved" "Flows moved to another backend because theirs failed or was removed.",
        FlowsEvicted "flows_evicted" "Unconfirmed or reset flows evicted because the flow table, their ring or the NAT ports were exhausted.",
        FlowsReset "flows_reset" "TCP flows reset towards the client because their backend failed or was removed.",
        IcmpErrorsLimited "icmp_errors_limited" "ICMP errors not sent because icmp.errors_per_s or icmp.errors_per_network_per_s was reached.",
        IcmpErrorsRejected "icmp_errors_rejected" "Received ICMP too-big errors that did not change a path MTU: icmp.path_mtu_errors_per_s was exceeded, the quote is not a tunnel packet that Weir sends to a next hop, or the quoted packet is not longer than the reported MTU.",
        AnswersUntracked "answers_untracked" "Answers of backends behind GENEVE tunnels sent back to their gateway by their own options, because no flow entry matched.",
    }

    /// Counters of a service or of a backend.
    ServiceCounter at most OBJECT_WORDS {
        Packets "packets" "Packets forwarded, both directions.",
        Bytes "bytes" "Bytes forwarded, both directions, as sent.",
        NewFlows "new_flows" "Flows started.",
        EndedFlows "ended_flows" "Flows ended by idle timeout, by eviction, or because their backend failed or was removed; new_flows minus ended_flows is the current number of flows.",
        Drops "drops" "Packets dropped.",
    }
}

/// All counter pages of a region.
#[derive(Clone, Copy)]
#[cfg(not(target_arch = "bpf"))]
pub struct Counters<'r> {
    words: &'r [AtomicU64],
    page_words: usize,
    services: usize,
    backends: usize,
}

/// Counter page of one lcore.
#[derive(Clone, Copy)]
pub struct LcorePage<'r> {
    #[cfg(not(target_arch = "bpf"))]
    words: &'r [AtomicU64],
    /// Map values are lines of words, numbered over all pages.
    #[cfg(target_arch = "bpf")]
    lines: Rows<'r, [AtomicU64; LINE]>,
    /// Number of words before this page.
    #[cfg(target_arch = "bpf")]
    first: usize,
    services: usize,
    backends: usize,
}

/// Number of words of a cache line, which is the size of a BPF map value. A page consists of whole
/// lines.
const LINE: usize = 8;
const _: () = assert!(OBJECT_WORDS == LINE && COUNTER_WORDS.is_multiple_of(LINE));

#[cfg(target_arch = "bpf")]
impl Region {
    /// Returns the page of a CPU. A page beyond the configured number of lcores counts nothing.
    #[inline(always)]
    pub fn page(&self, index: u32) -> LcorePage<'static> {
        let (services, backends) = self.counted();
        let words = counter_page_words(services, backends);
        LcorePage {
            lines: self.slice(Section::Counters),
            first: index as usize * words,
            services: services as usize,
            backends: backends as usize,
        }
    }
}

#[cfg(not(target_arch = "bpf"))]
impl Region {
    /// Returns the counters of all lcores.
    pub fn counters(&self) -> Counters<'_> {
        let (services, backends) = self.sizes().counted();
        Counters {
            words: self.words(Section::Counters),
            page_words: self.layout().term(Section::Counters).bytes_each / 8,
            services: services as usize,
            backends: backends as usize,
        }
    }
}

#[cfg(not(target_arch = "bpf"))]
impl<'r> Counters<'r> {
    /// Returns the page of lcore `index`, or `None` beyond the configured number of lcores.
    pub fn lcore(&self, index: u32) -> Option<LcorePage<'r>> {
        let words = self.words.chunks_exact(self.page_words).nth(index as usize)?;
        Some(LcorePage { words, services: self.services, backends: self.backends })
    }

    /// All pages in the order of lcores.
    pub fn pages(&self) -> impl Iterator<Item = LcorePage<'r>> {
        let (services, backends) = (self.services, self.backends);
        let pages = self.words.chunks_exact(self.page_words);
        pages.map(move |words| LcorePage { words, services, backends })
    }

    /// Returns whether a service has counters of its own instead of the shared ones.
    pub fn counts_service(&self, id: u32) -> bool {
        (id as usize) < self.services
    }

    /// Returns whether a backend has counters of its own instead of the shared ones.
    pub fn counts_backend(&self, id: u32) -> bool {
        (id as usize) < self.backends
    }

    /// Sums a value over all lcores, for example `sum(|page| page.dropped(0, reason))`.
    pub fn sum(&self, one: impl Fn(&LcorePage<'r>) -> u64) -> u64 {
        self.pages().map(|page| one(&page)).fold(0, u64::wrapping_add)
    }
}

impl<'r> LcorePage<'r> {
    #[inline(always)]
    #[cfg(not(target_arch = "bpf"))]
    fn word(&self, word: usize) -> Option<&'r AtomicU64> {
        self.words.get(word)
    }

    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    fn word(&self, word: usize) -> Option<&'r AtomicU64> {
        let line = self.lines.row(((self.first + word) / LINE) as u32)?;
        Some(&line[word % LINE])
    }

    /// Adds to a word. Only the page's own lcore may call it, because the addition is not atomic.
    #[inline(always)]
    fn add(&self, word: usize, n: u64) {
        if let Some(cell) = self.word(word) {
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
    }

    /// Adds to a word and to the next word of the same line, with one map lookup for both.
    #[inline(always)]
    #[cfg(target_arch = "bpf")]
    fn add_both(&self, word: usize, n: u64, next: u64) {
        let Some(line) = self.lines.row(((self.first + word) / LINE) as u32) else { return };
        let both: [&AtomicU64; 2] = [&line[word % LINE], &line[(word + 1) % LINE]];
        both[0].store(both[0].load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        both[1].store(both[1].load(Ordering::Relaxed).wrapping_add(next), Ordering::Relaxed);
    }

    #[inline(always)]
    #[cfg(not(target_arch = "bpf"))]
    fn add_both(&self, word: usize, n: u64, next: u64) {
        let Some([cell, beside]) = self.words.get(word..).and_then(<[_]>::first_chunk) else {
            return;
        };
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        beside.store(beside.load(Ordering::Relaxed).wrapping_add(next), Ordering::Relaxed);
    }

    #[inline(always)]
    fn get(&self, word: usize) -> u64 {
        self.word(word).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// Adds `n` to a counter of an arm: 0 ingress, 1 egress.
    #[inline(always)]
    pub fn arm(&self, arm: u8, counter: ArmCounter, n: u64) {
        self.add(arm_word(arm, counter), n);
    }

    /// Counts a packet and its bytes for an arm; the byte counter follows the counter `packets`.
    #[inline(always)]
    pub fn arm_packet(&self, arm: u8, packets: ArmCounter, bytes: u64) {
        self.add_both(arm_word(arm, packets), 1, bytes);
    }

    /// Adds `n` packets to a verdict.
    #[inline(always)]
    pub fn verdict(&self, verdict: VerdictCounter, n: u64) {
        self.add(VERDICTS + verdict as usize, n);
    }

    /// Adds `n` to a counter of the lcore.
    #[inline(always)]
    pub fn count(&self, counter: Counter, n: u64) {
        self.add(OTHERS + counter as usize, n);
    }

    /// Counts a burst of `packets`, which is not 0.
    #[inline(always)]
    pub fn burst(&self, packets: usize) {
        self.count(Counter::Bursts, 1);
        let bucket = (usize::BITS - (packets - 1).leading_zeros()) as usize;
        self.add(VERDICTS + VERDICT_COUNTERS + bucket.min(BURST_BUCKETS - 1), 1);
    }

    /// Adds the duration of a sampled iteration of the poll loop to the sum of iterations with
    /// packets (`is_busy`) or without. An iteration with packets also counts in its bucket.
    pub fn iteration(&self, ns: u64, is_busy: bool) {
        self.add(OTHERS + LCORE_COUNTERS + usize::from(is_busy), ns);
        if is_busy {
            self.add(iteration_word(ITERATION_BOUNDS_NS.partition_point(|bound| *bound < ns)), 1);
        }
    }

    /// Counts the drop verdict and the reason of a packet received on `arm`.
    #[inline(always)]
    pub fn drop(&self, arm: u8, reason: DropReason) {
        self.verdict(VerdictCounter::Drop, 1);
        self.add(drop_word(arm, reason), 1);
    }

    /// Adds `n` to a counter of a service (`NONE` for none).
    #[inline(always)]
    pub fn service(&self, id: u32, counter: ServiceCounter, n: u64) {
        if let Some(word) = object_word(id, self.services) {
            self.add(OBJECTS + word + counter as usize, n);
        }
    }

    /// Adds `n` to a counter of a backend (`NONE` for none).
    #[inline(always)]
    pub fn backend(&self, id: u32, counter: ServiceCounter, n: u64) {
        if let Some(word) = object_word(id, self.backends) {
            self.add(self.first_backend() + word + counter as usize, n);
        }
    }

    /// Offset of the backends' lines, which follow those of counted services and the shared one.
    #[inline(always)]
    const fn first_backend(&self) -> usize {
        OBJECTS + (self.services + 1) * OBJECT_WORDS
    }

    /// Counts a forwarded packet for a service and its backend (`NONE` for none).
    #[inline(always)]
    pub fn forwarded(&self, service: u32, backend: u32, bytes: u64) {
        let packets = ServiceCounter::Packets as usize;
        if let Some(word) = object_word(service, self.services) {
            self.add_both(OBJECTS + word + packets, 1, bytes);
        }
        if let Some(word) = object_word(backend, self.backends) {
            self.add_both(self.first_backend() + word + packets, 1, bytes);
        }
    }

    /// Counts the end of a flow for its service and backend.
    pub fn flow_ended(&self, service: u32, backend: u32) {
        self.service(service, ServiceCounter::EndedFlows, 1);
        self.backend(backend, ServiceCounter::EndedFlows, 1);
    }

    /// Counts a dropped packet for its service, in addition to the drop reason.
    #[inline]
    pub fn service_drop(&self, service: u32) {
        self.service(service, ServiceCounter::Drops, 1);
    }

    /// Value of a counter of an arm.
    pub fn arm_count(&self, arm: u8, counter: ArmCounter) -> u64 {
        self.get(arm_word(arm, counter))
    }

    /// Number of packets with a verdict.
    pub fn verdict_count(&self, verdict: VerdictCounter) -> u64 {
        self.get(VERDICTS + verdict as usize)
    }

    /// Value of a counter of the lcore.
    pub fn lcore_count(&self, counter: Counter) -> u64 {
        self.get(OTHERS + counter as usize)
    }

    /// Numbers of bursts by bucket of [`LcorePage::burst`].
    pub fn burst_counts(&self) -> [u64; BURST_BUCKETS] {
        core::array::from_fn(|bucket| self.get(VERDICTS + VERDICT_COUNTERS + bucket))
    }

    /// Numbers of sampled iterations with packets, by bucket of [`ITERATION_BOUNDS_NS`].
    pub fn iteration_counts(&self) -> [u64; ITERATION_BUCKETS] {
        core::array::from_fn(|bucket| self.get(iteration_word(bucket)))
    }

    /// Nanoseconds of all sampled iterations without packets, and of those with packets.
    pub fn iteration_ns(&self) -> [u64; 2] {
        [0, 1].map(|busy| self.get(OTHERS + LCORE_COUNTERS + busy))
    }

    /// Number of packets received on `arm` and dropped for this reason.
    pub fn dropped(&self, arm: u8, reason: DropReason) -> u64 {
        self.get(drop_word(arm, reason))
    }

    /// Value of a service's counter; 0 if it has no counters of its own.
    pub fn service_count(&self, id: u32, counter: ServiceCounter) -> u64 {
        if id as usize >= self.services {
            return 0;
        }
        self.get(OBJECTS + id as usize * OBJECT_WORDS + counter as usize)
    }

    /// Value of a backend's counter; 0 if it has no counters of its own.
    pub fn backend_count(&self, id: u32, counter: ServiceCounter) -> u64 {
        if id as usize >= self.backends {
            return 0;
        }
        self.get(self.first_backend() + id as usize * OBJECT_WORDS + counter as usize)
    }

    /// Value of the counter shared by all services without counters of their own.
    pub fn other_services_count(&self, counter: ServiceCounter) -> u64 {
        self.get(OBJECTS + self.services * OBJECT_WORDS + counter as usize)
    }

    /// Value of the counter shared by all backends without counters of their own.
    pub fn other_backends_count(&self, counter: ServiceCounter) -> u64 {
        self.get(self.first_backend() + self.backends * OBJECT_WORDS + counter as usize)
    }
}

#[inline(always)]
const fn arm_word(arm: u8, counter: ArmCounter) -> usize {
    (arm & 1) as usize * ARM_WORDS + counter as usize
}

/// Word of a bucket of sampled iterations: half of them follow the counters of each arm.
const fn iteration_word(bucket: usize) -> usize {
    let half = ITERATION_BUCKETS / 2;
    bucket / half * ARM_WORDS + ARM_COUNTERS + bucket % half
}

#[inline(always)]
const fn drop_word(arm: u8, reason: DropReason) -> usize {
    DROPS + (arm & 1) as usize * MAX_REASONS + reason as usize
}

/// Offset of the line of a service or backend within its kind: its own line, or the shared line
/// that follows the `counted` ones. `None` for [`NONE`].
#[inline(always)]
const fn object_word(id: u32, counted: usize) -> Option<usize> {
    let line = if (id as usize) < counted { id as usize } else { counted };
    if id == NONE { None } else { Some(line * OBJECT_WORDS) }
}
