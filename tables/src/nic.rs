//! State and counters of the arms' NICs, written by the data plane's control thread about once a
//! second and read by slowpath.
//!
//! Each arm has a block of words under a sequence number, which is odd during a write. Counters
//! never decrease: the writer adds what its driver counted to what the block already holds, so they
//! survive restarts of the data plane and resets of the NIC.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::layout::{NIC_HEADER_WORDS as HEADER_WORDS, NIC_XSTATS, Section, XSTAT_WORDS};
use crate::region::Region;

/// Number of words of the name of a driver counter or port.
const NAME_WORDS: usize = XSTAT_WORDS - 1;

// Indices of the words of an arm's block, and numbers of words of its longer fields.
const SEQUENCE: usize = 0;
const STATE: usize = 1;
const LINK: usize = 2;
const SPEED: usize = 3;
const UPDATED: usize = 4;
const MAC: usize = 5;
const RX_QUEUES: usize = 6;
const XSTATS: usize = 7;
const COUNTERS: usize = 8;
const EVENTS: usize = 16;
const DRIVER: usize = 24;
const DRIVER_WORDS: usize = 4;
const PORT: usize = 28;
const DETAIL: usize = 36;
const DETAIL_WORDS: usize = 24;
const XDP_LOSSES: usize = DETAIL + DETAIL_WORDS;
const _: () = assert!(XDP_LOSSES + XdpLoss::ALL.len() <= HEADER_WORDS);

/// Number of attempts to read a block that is being written.
const TRIES: usize = 64;

/// State of an arm's NIC.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum NicState {
    /// No data plane has published the NIC.
    #[default]
    Unknown = 0,
    /// The NIC receives and sends.
    Running = 1,
    /// The driver is resetting the NIC.
    Resetting = 2,
    /// The NIC is gone. With DPDK, the data plane opens it again when it returns; with XDP, the
    /// loader must be restarted.
    Removed = 3,
}

impl NicState {
    /// All states.
    pub const ALL: [NicState; 4] =
        [NicState::Unknown, NicState::Running, NicState::Resetting, NicState::Removed];

    /// Name of the state in reports and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            NicState::Unknown => "unknown",
            NicState::Running => "running",
            NicState::Resetting => "resetting",
            NicState::Removed => "removed",
        }
    }
}

macro_rules! nic_counts {
    ($($(#[$doc:meta])* $list:ident of $words:literal at $first:ident {
        $($field:ident $name:literal $help:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $list {
            $(#[doc = $help] pub $field: u64,)*
        }

        impl $list {
            /// Names in metrics without `weir_nic_` and `_total`, help texts and values.
            pub fn named(
                &self,
            ) -> impl Iterator<Item = (&'static str, &'static str, u64)> + use<> {
                [$(($name, $help, self.$field)),*].into_iter()
            }

            /// Returns these counts plus what the driver counted from its values `before` to its
            /// values `now`, each of which may have restarted from zero.
            #[must_use]
            pub fn advanced(self, before: $list, now: $list) -> $list {
                $list { $($field: self.$field + since(before.$field, now.$field),)* }
            }

            fn store(&self, words: &[AtomicU64]) {
                for (word, (_, _, value)) in words[$first..].iter().zip(self.named()) {
                    word.store(value, Ordering::Relaxed);
                }
            }

            fn load(words: &[AtomicU64]) -> $list {
                let mut words = words[$first..].iter().map(|word| word.load(Ordering::Relaxed));
                $list { $($field: words.next().unwrap_or_default(),)* }
            }
        }

        const _: () = assert!([$($name),*].len() <= $words);
    )*};
}

nic_counts! {
    /// What the NIC's driver counted. Frames that reached the NIC: `received` + `missed` +
    /// `receive_errors`, and `no_buffer` where the driver loses those frames.
    NicCounters of 8 at COUNTERS {
        received "received_packets" "Frames that the NIC's driver delivered to Weir.",
        sent "sent_packets" "Frames that the NIC's driver accepted and sent.",
        received_bytes "received_bytes" "Bytes of the frames that the driver delivered to Weir.",
        sent_bytes "sent_bytes" "Bytes of the frames that the driver sent.",
        missed "missed_packets" "Frames that the NIC dropped because its receive queues were full: the lcores were too slow or stopped. More lcores, or larger rx_descriptors.",
        receive_errors "receive_errors" "Frames that the NIC received with errors (checksum, length) and dropped.",
        send_errors "send_errors" "Frames that the driver accepted and could not send.",
        no_buffer "no_buffer_events" "Times that the driver found no free packet buffer for its receive queues: raise fastpath.buffers.",
    }

    /// Incidents of the NIC since the region was created.
    NicEvents of 8 at EVENTS {
        link_losses "link_losses" "Times that the link went down.",
        resets "resets" "Times that the driver requested a reset of the NIC and got it.",
        removals "removals" "Times that the NIC was removed from the machine, for example by host maintenance.",
        returns "returns" "Times that a removed or failed NIC was opened again.",
        failures "open_failures" "Failed attempts to open the NIC again.",
        send_stalls "send_stalls" "Times that the NIC accepted no frame of an lcore for a second, after which it was reset.",
    }
}

/// A kind of loss behind the XDP programs: they had decided to send the packet, counted it as sent,
/// and the kernel or the driver did not send it. The DPDK plane has none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum XdpLoss {
    /// The kernel refused the redirect.
    RedirectRefused = 0,
    /// The driver of the interface to which the packet was redirected did not accept it.
    RedirectDropped = 1,
    /// The driver of the interface by which the packet had arrived did not accept it back.
    SendDropped = 2,
    /// The kernel aborted the program.
    Aborted = 3,
}

/// The number of packets of each [`XdpLoss`], in the order of [`XdpLoss::ALL`]; `None` if the
/// kernel does not report this kind.
pub type XdpLosses = [Option<u64>; XdpLoss::ALL.len()];

impl XdpLoss {
    /// All kinds.
    pub const ALL: [XdpLoss; 4] = [
        XdpLoss::RedirectRefused,
        XdpLoss::RedirectDropped,
        XdpLoss::SendDropped,
        XdpLoss::Aborted,
    ];

    /// Name in reports, and in metrics between `weir_nic_` and `_total`.
    pub const fn name(self) -> &'static str {
        match self {
            XdpLoss::RedirectRefused => "xdp_redirects_refused",
            XdpLoss::RedirectDropped => "xdp_redirects_dropped",
            XdpLoss::SendDropped => "xdp_sends_dropped",
            XdpLoss::Aborted => "xdp_aborted",
        }
    }

    /// Meaning, and what to do.
    pub const fn help(self) -> &'static str {
        match self {
            XdpLoss::RedirectRefused => {
                "Packets from this arm that the kernel refused to redirect to the other interface: \
                 it was down, its MTU was too small, or it does not transmit for XDP (a veth does \
                 only while its peer has an XDP program). Compare `ip link` of both arms; with \
                 fastpath.attach = \"generic\", any driver transmits."
            }
            XdpLoss::RedirectDropped => {
                "Packets redirected to this arm that its driver dropped: the transmit queue was \
                 full (`ethtool -G` enlarges it), or the interface has no queue for XDP. From \
                 Linux 6.3 on, the kernel refuses the redirect if the driver reports that it has \
                 none."
            }
            XdpLoss::SendDropped => {
                "Packets that the driver of this arm did not send back (XDP_TX), in generic mode \
                 also redirected ones: the transmit queue was full (`ethtool -G` enlarges it), or \
                 the interface has no queue for XDP."
            }
            XdpLoss::Aborted => {
                "Packets on which the kernel aborted Weir's XDP program, which is a defect of \
                 Weir: report it with the versions of Weir and the kernel."
            }
        }
    }
}

/// Returns how much a counter advanced. A smaller value than before means that it started anew.
const fn since(before: u64, now: u64) -> u64 {
    if now >= before { now - before } else { now }
}

/// State and counters of an arm's NIC.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Nic {
    /// State of the NIC.
    pub state: NicState,
    /// Whether the link is up.
    pub link_up: bool,
    /// Speed of the link in Mbit/s, or 0 if unknown.
    pub speed_mbps: u32,
    /// Time of the last update in milliseconds of the region's clock.
    pub updated_ms: u64,
    /// MAC address.
    pub mac: [u8; 6],
    /// Number of receive queues.
    pub rx_queues: u16,
    /// Name of the driver, for example `net_ena`; at most 32 bytes.
    pub driver: String,
    /// Name of the port or interface; at most 64 bytes.
    pub port: String,
    /// Last problem of the NIC and what is being done; empty while it runs. At most 192 bytes.
    pub detail: String,
    /// The counters that all drivers have.
    pub counters: NicCounters,
    /// Losses behind the XDP programs.
    pub xdp_losses: XdpLosses,
    /// Incidents since the region was created.
    pub events: NicEvents,
    /// All counters of the driver by name, at most [`NIC_XSTATS`]. Unlike the others, they are
    /// those of the driver and may start anew.
    pub xstats: Vec<(String, u64)>,
}

/// The NICs of a region by arm.
#[derive(Clone, Copy)]
pub struct Nics<'r> {
    words: &'r [AtomicU64],
    words_each: usize,
}

impl Region {
    /// Returns the state and counters of the arms' NICs.
    pub fn nics(&self) -> Nics<'_> {
        let words_each = self.layout().term(Section::Nics).bytes_each / 8;
        Nics { words: self.words(Section::Nics), words_each }
    }
}

impl Nics<'_> {
    fn block(&self, arm: usize) -> Option<&[AtomicU64]> {
        self.words.chunks_exact(self.words_each).nth(arm)
    }

    /// Publishes the NIC of an arm (0 ingress, 1 egress). There is one writer, the control thread
    /// of the data plane that has claimed the region.
    pub fn publish(&self, arm: usize, nic: &Nic) {
        let Some(words) = self.block(arm) else { return };
        let store = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
        // A writer that was killed during a write left the number odd.
        let next = words[SEQUENCE].load(Ordering::Relaxed) | 1;
        store(SEQUENCE, next);
        fence(Ordering::Release);
        store(STATE, nic.state as u64);
        store(LINK, u64::from(nic.link_up));
        store(SPEED, u64::from(nic.speed_mbps));
        store(UPDATED, nic.updated_ms);
        let [a, b, c, d, e, f] = nic.mac;
        store(MAC, u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        store(RX_QUEUES, u64::from(nic.rx_queues));
        nic.counters.store(words);
        nic.events.store(words);
        // Zero means that this kind is not reported, as always by the DPDK plane.
        for (word, count) in words[XDP_LOSSES..].iter().zip(nic.xdp_losses) {
            word.store(count.map_or(0, |count| count.wrapping_add(1)), Ordering::Relaxed);
        }
        store_text(&words[DRIVER..DRIVER + DRIVER_WORDS], &nic.driver);
        store_text(&words[PORT..PORT + NAME_WORDS], &nic.port);
        store_text(&words[DETAIL..DETAIL + DETAIL_WORDS], &nic.detail);
        let slots = words[HEADER_WORDS..].chunks_exact(XSTAT_WORDS).take(NIC_XSTATS);
        let mut count = 0;
        for (slot, (name, value)) in slots.zip(&nic.xstats) {
            store_text(&slot[..NAME_WORDS], name);
            slot[NAME_WORDS].store(*value, Ordering::Relaxed);
            count += 1;
        }
        store(XSTATS, count);
        words[SEQUENCE].store(next.wrapping_add(1), Ordering::Release);
    }

    /// Returns the NIC of an arm; `None` if there is no such arm, or during a write that does not
    /// end (its writer was killed).
    pub fn read(&self, arm: usize) -> Option<Nic> {
        let words = self.block(arm)?;
        for _ in 0..TRIES {
            let before = words[SEQUENCE].load(Ordering::Acquire);
            let nic = load(words);
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && words[SEQUENCE].load(Ordering::Relaxed) == before {
                return Some(nic);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Returns what an earlier writer left for an arm, also if it was killed during a write: each
    /// counter is one word and therefore whole.
    pub fn recover(&self, arm: usize) -> Nic {
        self.block(arm).map(load).unwrap_or_default()
    }
}

/// Loads the words of a NIC, which may be in any state.
fn load(words: &[AtomicU64]) -> Nic {
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    let state = NicState::ALL.into_iter().find(|state| *state as u64 == word(STATE));
    let [_, _, mac @ ..] = word(MAC).to_be_bytes();
    let count = usize::try_from(word(XSTATS)).unwrap_or_default().min(NIC_XSTATS);
    let slots = words[HEADER_WORDS..].chunks_exact(XSTAT_WORDS).take(count);
    Nic {
        state: state.unwrap_or_default(),
        link_up: word(LINK) == 1,
        speed_mbps: word(SPEED) as u32,
        updated_ms: word(UPDATED),
        mac,
        rx_queues: word(RX_QUEUES) as u16,
        driver: load_text(&words[DRIVER..DRIVER + DRIVER_WORDS]),
        port: load_text(&words[PORT..PORT + NAME_WORDS]),
        detail: load_text(&words[DETAIL..DETAIL + DETAIL_WORDS]),
        counters: NicCounters::load(words),
        xdp_losses: std::array::from_fn(|kind| word(XDP_LOSSES + kind).checked_sub(1)),
        events: NicEvents::load(words),
        xstats: slots
            .map(|slot| (load_text(&slot[..NAME_WORDS]), slot[NAME_WORDS].load(Ordering::Relaxed)))
            .collect(),
    }
}

/// Stores the beginning of a text that fits, followed by zeros.
fn store_text(words: &[AtomicU64], text: &str) {
    let text = &text[..text.floor_char_boundary(words.len() * 8)];
    let mut bytes = text.bytes();
    for word in words {
        let part: [u8; 8] = std::array::from_fn(|_| bytes.next().unwrap_or_default());
        word.store(u64::from_ne_bytes(part), Ordering::Relaxed);
    }
}

/// Loads a text up to the first zero; bytes that are no UTF-8 are replaced.
fn load_text(words: &[AtomicU64]) -> String {
    let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
