//! Next hops: MAC addresses mirrored from the kernel, changed in place.
//!
//! They follow the neighbours and not the operator, so that they have no generation: a backend
//! refers to a next hop for as long as it lives, and slowpath fills in what it learns. Each of the
//! two words means something by itself, so that a packet may see the new one of the one and the old
//! one of the other.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

use packet::addr::Addr;

use crate::addresses::mixed;
use crate::pen::Pen;
use crate::rows::{Numbered, Rows, Shared};

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

    /// The largest IP packet that passes, bytes: the link's, or what routers reported if that is
    /// less. `learned` is where the region keeps that, 0 for none.
    #[inline(always)]
    pub fn path_mtu(&self, learned: Option<&AtomicU32>) -> u16 {
        let link = if self.mtu == 0 { u16::MAX } else { self.mtu };
        let learned = learned.map_or(0, |mtu| mtu.load(Ordering::Relaxed));
        if learned != 0 && learned < u32::from(link) { learned as u16 } else { link }
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
    /// The first next hop of the chain that begins here, its id + 1; 0 for none. Chains are by
    /// [`chain_of`] and have nothing to do with the next hop in this cell.
    first: AtomicU32,
    /// The next hop behind this one in its chain, its id + 1; 0 for none.
    next: AtomicU32,
}

/// How many of a chain are looked at: as many of one hash there are never by chance.
const MOST_IN_CHAIN: u32 = 32;

/// Which cell the chain of an address begins in.
#[inline(always)]
fn chain_of(addr: &Addr, cells: u32) -> u32 {
    (((mixed(addr) >> 32) * u64::from(cells)) >> 32) as u32
}

/// The next hop at `addr` behind `arm`. A chain that is being changed may lead astray for a moment:
/// then none is found, and whoever asks has to live with that.
#[inline(always)]
pub(crate) fn find(cells: Rows<'_, NextHopCell>, addr: &Addr, arm: u8) -> Option<u32> {
    let mut id = cells.row(chain_of(addr, cells.count()))?.first.load(Ordering::Acquire);
    for _ in 0..MOST_IN_CHAIN {
        let at = id.checked_sub(1)?;
        let cell = cells.row(at)?;
        if cell.is_at(addr) && cell.load().is_some_and(|hop| hop.arm == arm) {
            return Some(at);
        }
        id = cell.next.load(Ordering::Acquire);
    }
    None
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

    #[inline(always)]
    fn is_at(&self, addr: &Addr) -> bool {
        let word = |n: usize| self.addr[n].load(Ordering::Relaxed) ^ addr.words[n];
        // Branches would be many ways for the kernel's verifier to look at.
        word(0) | word(1) | word(2) | word(3) == 0
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

    /// Leaves the chains as a writer might that is killed at the worst time, and worse: in circles.
    #[cfg(test)]
    pub(crate) fn tear_chain(&self) {
        self.first.store(2, Ordering::Relaxed);
        self.next.store(2, Ordering::Relaxed);
    }
}

/// What the writer does to chains. A writer that was killed at it chains all anew.
#[cfg(not(target_arch = "bpf"))]
pub(crate) mod chain {
    use super::{AtomicU32, NextHopCell, Ordering, Pen, chain_of};
    use packet::addr::Addr;

    /// Puts a cell that has its address into its chain.
    pub(crate) fn link(cells: &[NextHopCell], pen: &Pen, id: u32) {
        let cell = &cells[id as usize];
        let first = first_of(cells, &cell.addr());
        pen.word(&cell.next, first.load(Ordering::Relaxed));
        pen.word(first, id + 1);
    }

    /// Takes a cell out of its chain.
    pub(crate) fn unlink(cells: &[NextHopCell], pen: &Pen, id: u32) {
        let cell = &cells[id as usize];
        let mut link = first_of(cells, &cell.addr());
        // A chain is no longer than there are cells.
        for _ in 0..cells.len() {
            let at = link.load(Ordering::Relaxed);
            if at == id + 1 {
                return pen.word(link, cell.next.load(Ordering::Relaxed));
            }
            let Some(next) = at.checked_sub(1).and_then(|at| cells.get(at as usize)) else {
                return;
            };
            link = &next.next;
        }
    }

    /// Chains all that are in use.
    pub(crate) fn renew(cells: &[NextHopCell], pen: &Pen) {
        cells.iter().for_each(|cell| pen.word(&cell.first, 0));
        for (id, _) in cells.iter().enumerate().filter(|(_, cell)| cell.load().is_some()) {
            link(cells, pen, id as u32);
        }
    }

    fn first_of<'c>(cells: &'c [NextHopCell], addr: &Addr) -> &'c AtomicU32 {
        &cells[chain_of(addr, cells.len() as u32) as usize].first
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
