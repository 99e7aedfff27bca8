//! Next hops: MAC addresses mirrored from the kernel's neighbor table and updated in place.
//!
//! Next hops follow the state of neighbors instead of the configuration, so they have no
//! generation: a backend refers to a next hop for its whole lifetime, and slowpath stores each
//! change at once. A next hop is stored in two words, each valid by itself, so that a reader may
//! combine the new value of one with the old value of the other.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

use packet::addr::Addr;

use crate::address_filter::mixed;
use crate::region_writer::RegionWriter;
use crate::rows::{Numbered, Rows, Shared};

/// How to reach a neighbor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// MAC address of the neighbor.
    pub mac: [u8; 6],
    /// MAC address of the arm's port.
    pub src_mac: [u8; 6],
    /// MTU of the link in bytes; 0 for no limit of its own.
    pub mtu: u16,
    /// Arm: 0 ingress, 1 egress.
    pub arm: u8,
    /// Whether `mac` is resolved; until then packets are dropped as `no_neighbor`.
    pub known: bool,
}

impl NextHop {
    /// Returns an unresolved neighbor on `arm`.
    pub const fn unknown(arm: u8) -> NextHop {
        NextHop { mac: [0; 6], src_mac: [0; 6], mtu: 0, arm, known: false }
    }

    /// Returns the path MTU in bytes: the smaller of the link's MTU and the one that routers
    /// reported. `learned` is the region's word for the reported one, which is 0 if there is none.
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
    /// MAC in bits 0 to 47, arm in bits 48 to 55, [`USED`] and [`KNOWN`].
    remote: AtomicU64,
    /// Source MAC in bits 0 to 47, MTU in bits 48 to 63.
    local: AtomicU64,
    /// Address of the neighbor, by which a restarted slowpath finds the entry.
    addr: [AtomicU32; 4],
    /// First next hop of the chain of this cell (id + 1), 0 for none. Chains are assigned by
    /// [`chain_of`], independently of the next hop stored in the cell.
    first: AtomicU32,
    /// Successor in the chain (id + 1); 0 for none.
    next: AtomicU32,
}

/// Maximum number of chain elements examined. Chains of this length do not occur by chance.
const MAX_IN_CHAIN: u32 = 32;

/// Returns the cell in which the chain of an address begins.
#[inline(always)]
fn chain_of(addr: &Addr, cells: u32) -> u32 {
    (((mixed(addr) >> 32) * u64::from(cells)) >> 32) as u32
}

/// Returns the id of the next hop at `addr` on `arm`. While a chain is being updated, a reader may
/// end up in another chain, so callers have to tolerate a miss.
#[inline(always)]
pub(crate) fn find(cells: Rows<'_, NextHopCell>, addr: &Addr, arm: u8) -> Option<u32> {
    let mut id = cells.row(chain_of(addr, cells.count()))?.first.load(Ordering::Acquire);
    for _ in 0..MAX_IN_CHAIN {
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
    /// Returns the next hop, or `None` if the cell is free.
    #[inline(always)]
    pub(crate) fn load(&self) -> Option<NextHop> {
        let remote = self.remote.load(Ordering::Acquire);
        if remote & USED == 0 {
            return None;
        }
        let local = self.local.load(Ordering::Acquire);
        Some(NextHop {
            mac: mac_of(remote),
            src_mac: mac_of(local),
            mtu: (local >> 48) as u16,
            arm: (remote >> 48) as u8,
            known: remote & KNOWN != 0,
        })
    }

    #[inline(always)]
    fn is_at(&self, addr: &Addr) -> bool {
        let word = |n: usize| self.addr[n].load(Ordering::Relaxed) ^ addr.words[n];
        // Branch-free: each branch would be a further path for the verifier.
        word(0) | word(1) | word(2) | word(3) == 0
    }

    pub(crate) fn addr(&self) -> Addr {
        Addr { words: self.addr.each_ref().map(|w| w.load(Ordering::Relaxed)) }
    }

    /// Assigns a free cell to a neighbor.
    pub(crate) fn assign(&self, writer: &RegionWriter, addr: &Addr, hop: &NextHop) {
        writer.store_words(&self.addr, &addr.words);
        self.store(writer, hop);
    }

    pub(crate) fn store(&self, writer: &RegionWriter, hop: &NextHop) {
        let known = if hop.known { KNOWN } else { 0 };
        writer.store_u64(&self.local, bits_of(hop.src_mac) | u64::from(hop.mtu) << 48);
        writer.store_u64(&self.remote, bits_of(hop.mac) | u64::from(hop.arm) << 48 | USED | known);
    }

    pub(crate) fn free(&self, writer: &RegionWriter) {
        writer.store_u64(&self.remote, 0);
    }

    /// Corrupts the chain into a cycle. A writer killed during an update leaves less damage.
    #[cfg(test)]
    pub(crate) fn tear_chain(&self) {
        self.first.store(2, Ordering::Relaxed);
        self.next.store(2, Ordering::Relaxed);
    }
}

/// Writer operations on chains. After a writer was killed, its successor rebuilds all chains.
#[cfg(not(target_arch = "bpf"))]
pub(crate) mod chain {
    use super::{AtomicU32, NextHopCell, Ordering, RegionWriter, chain_of};
    use packet::addr::Addr;

    /// Inserts a cell, whose address is set, into its chain.
    pub(crate) fn link(cells: &[NextHopCell], writer: &RegionWriter, id: u32) {
        let cell = &cells[id as usize];
        let first = first_of(cells, &cell.addr());
        writer.store_word(&cell.next, first.load(Ordering::Relaxed));
        writer.store_word(first, id + 1);
    }

    /// Removes a cell from its chain.
    pub(crate) fn unlink(cells: &[NextHopCell], writer: &RegionWriter, id: u32) {
        let cell = &cells[id as usize];
        let mut link = first_of(cells, &cell.addr());
        // A chain has at most as many elements as there are cells.
        for _ in 0..cells.len() {
            let at = link.load(Ordering::Relaxed);
            if at == id + 1 {
                return writer.store_word(link, cell.next.load(Ordering::Relaxed));
            }
            let Some(next) = at.checked_sub(1).and_then(|at| cells.get(at as usize)) else {
                return;
            };
            link = &next.next;
        }
    }

    /// Rebuilds the chains from all cells in use.
    pub(crate) fn rebuild(cells: &[NextHopCell], writer: &RegionWriter) {
        cells.iter().for_each(|cell| writer.store_word(&cell.first, 0));
        for (id, _) in cells.iter().enumerate().filter(|(_, cell)| cell.load().is_some()) {
            link(cells, writer, id as u32);
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
