//! Next hops: MAC addresses mirrored from the kernel, changed in place.
//!
//! They follow the neighbours and not the operator, so that they have no generation: a backend
//! refers to a next hop for as long as it lives, and slowpath fills in what it learns. Each of the
//! two words means something by itself, so that a packet may see the new one of the one and the old
//! one of the other.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

use packet::addr::Addr;

use crate::pen::Pen;
use crate::rows::Shared;

/// How to reach a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The neighbour's MAC address.
    pub mac: [u8; 6],
    /// The MAC address of the arm's port.
    pub src_mac: [u8; 6],
    /// Largest IP packet that the link takes, bytes; 0 for no limit of its own.
    pub mtu: u16,
    /// 0 ingress, 1 egress.
    pub arm: u8,
    /// Whether `mac` is known; packets are dropped as `no-neighbour` until then.
    pub known: bool,
}

impl NextHop {
    /// A neighbour behind `arm` that nothing is known about.
    pub const fn unknown(arm: u8) -> NextHop {
        NextHop { mac: [0; 6], src_mac: [0; 6], mtu: 0, arm, known: false }
    }
}

/// A next hop in the region. 64 bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct NextHopCell {
    /// MAC in the low 48 bits, arm in bits 48 to 55, [`USED`] and [`KNOWN`].
    there: AtomicU64,
    /// Source MAC in the low 48 bits, MTU in the high 16.
    here: AtomicU64,
    /// Whose it is: what a restarted slowpath finds it by.
    addr: [AtomicU32; 4],
}

const USED: u64 = 1 << 62;
const KNOWN: u64 = 1 << 63;

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for NextHopCell {}

impl NextHopCell {
    /// The next hop, if this one is in use.
    #[inline(always)]
    pub(crate) fn load(&self) -> Option<NextHop> {
        let there = self.there.load(Ordering::Acquire);
        if there & USED == 0 {
            return None;
        }
        let here = self.here.load(Ordering::Acquire);
        Some(NextHop {
            mac: mac_of(there),
            src_mac: mac_of(here),
            mtu: (here >> 48) as u16,
            arm: (there >> 48) as u8,
            known: there & KNOWN != 0,
        })
    }

    pub(crate) fn addr(&self) -> Addr {
        Addr { words: self.addr.each_ref().map(|w| w.load(Ordering::Relaxed)) }
    }

    /// Takes a free one for a neighbour.
    pub(crate) fn take(&self, pen: &Pen, addr: &Addr, hop: &NextHop) {
        pen.words(&self.addr, &addr.words);
        self.store(pen, hop);
    }

    pub(crate) fn store(&self, pen: &Pen, hop: &NextHop) {
        let known = if hop.known { KNOWN } else { 0 };
        pen.long(&self.here, bits_of(hop.src_mac) | u64::from(hop.mtu) << 48);
        pen.long(&self.there, bits_of(hop.mac) | u64::from(hop.arm) << 48 | USED | known);
    }

    pub(crate) fn free(&self, pen: &Pen) {
        pen.long(&self.there, 0);
    }
}

#[inline(always)]
fn mac_of(word: u64) -> [u8; 6] {
    let b = word.to_le_bytes();
    [b[0], b[1], b[2], b[3], b[4], b[5]]
}

fn bits_of(mac: [u8; 6]) -> u64 {
    u64::from_le_bytes([mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], 0, 0])
}
