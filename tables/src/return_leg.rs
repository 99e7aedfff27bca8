//! Return legs: the way back to a gateway's endpoint, for answers whose flow is in no table.
//!
//! What a GENEVE backend's answer brings with it names the endpoint, the gateway, its node, the
//! node's UDP port and the flow cookie ([`packet::origin`]). What is the same for all packets of an
//! endpoint by one node is kept here: addresses, VNI, delivery (MAC, VLAN, arm) and the endpoint's
//! attachment.
//!
//! Sets of [`WAYS`] records of 128 bytes. It is a cache: a record is written where a flow begins or
//! changes its leg, a further one replaces another of its set, and an answer whose record is
//! missing is dropped, as it would be without this table. A record is guarded by a sequence that is
//! odd while it is written; a reader that finds it odd does without. A record whose attachment,
//! VNI, node or local address differed once is ambiguous, and no answer goes by it: the answer does
//! not say which of them it needs.

use crate::atomic::{AtomicU64, Ordering::*, fence};
use crate::flow::{Answer, GatewayLeg, words};
use crate::layout::{RETURN_LEG_WAYS as WAYS, Section};
use crate::record::{Mode, Service, TUNNEL_BACKEND, Tunnel, TunnelKind};
use crate::region::Region;
use crate::rows::{Numbered, Rows, Shared};
use crate::set::TableSet;
use packet::addr::Addr;
use packet::digest::Digest;
use packet::geneve::{self, OWN_OPTIONS};
use packet::ip::{Fragment, Ip};
use packet::origin::{Origin, node_digest};

/// Set in the key of a record that is there.
const USED: u64 = 1 << 32;
/// Set beside it where the record is ambiguous.
const AMBIGUOUS: u64 = 1 << 33;
/// How often a reader tries while another writes. The kernel's verifier looks at each turn.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 2 } else { 64 };

/// The first words of a [`GatewayLeg`], of which an answer could not tell which were its flow's:
/// the node, our address, the VNI. MAC, VLAN and arm may change: the latest ones deliver to the
/// same node.
const IDENTITY_WORDS: usize = core::mem::offset_of!(GatewayLeg, vlan) / 8;
const _: () = assert!(core::mem::offset_of!(GatewayLeg, vlan) % 8 == 0);

#[repr(C, align(64))]
struct Record {
    /// Odd while the rest is written.
    seq: AtomicU64,
    endpoint: AtomicU64,
    /// `node digest << 16 | gateway`, [`USED`], [`AMBIGUOUS`]; 0 where there is none.
    key: AtomicU64,
    attachment: AtomicU64,
    leg: [AtomicU64; 8],
    /// [`digests`] of attachment and leg, so that one word is compared and not nine.
    digests: AtomicU64,
}

const _: () = assert!(size_of::<Record>() == 128);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Record {}

/// The table of return legs, read and written by all lcores at once.
#[derive(Clone, Copy)]
pub struct ReturnLegs<'r> {
    records: Rows<'r, Record>,
}

/// What a record says.
struct Found {
    leg: GatewayLeg,
    attachment: u64,
}

#[inline(always)]
const fn key(gateway: u16, node: u16) -> u64 {
    USED | (node as u64) << 16 | gateway as u64
}

/// A digest of the attachment and [`IDENTITY_WORDS`] of the leg in the upper half, and in the lower
/// one of all of it.
#[inline(always)]
fn digests(leg: &GatewayLeg, attachment: u64) -> u64 {
    let mut digest = Digest::new();
    digest.take(attachment);
    for i in 0..IDENTITY_WORDS {
        digest.take(words::word(leg, i));
    }
    let identity = u64::from(digest.finish());
    for i in IDENTITY_WORDS..size_of::<GatewayLeg>() / 8 {
        digest.take(words::word(leg, i));
    }
    identity << 32 | u64::from(digest.finish())
}

impl Record {
    #[inline(always)]
    fn is_of(&self, endpoint: u64, key: u64) -> bool {
        self.key.load(Acquire) & !AMBIGUOUS == key && self.endpoint.load(Relaxed) == endpoint
    }

    /// Writes it, unless another is just doing so: then it will be written for a later flow.
    #[inline(always)]
    fn write(&self, endpoint: u64, key: u64, leg: &GatewayLeg, attachment: u64, digests: u64) {
        let seq = self.seq.load(Relaxed);
        if seq & 1 != 0 || self.seq.compare_exchange(seq, seq + 1, AcqRel, Relaxed).is_err() {
            return;
        }
        fence(Release);
        let mut ambiguous = 0;
        if self.is_of(endpoint, key) {
            ambiguous = self.key.load(Relaxed) & AMBIGUOUS;
            if self.digests.load(Relaxed) >> 32 != digests >> 32 {
                ambiguous = AMBIGUOUS;
            }
        }
        self.endpoint.store(endpoint, Relaxed);
        self.key.store(key | ambiguous, Relaxed);
        self.attachment.store(attachment, Relaxed);
        self.digests.store(digests, Relaxed);
        words::store(&self.leg, leg);
        self.seq.store(seq + 2, Release);
    }

    /// What it says of that endpoint and node.
    #[inline(always)]
    fn read(&self, endpoint: u64, key: u64) -> Option<Found> {
        for _ in 0..TRIES {
            let seq = self.seq.load(Acquire);
            if seq & 1 == 0 {
                let is_there = self.key.load(Relaxed) == key;
                let found = Found {
                    leg: words::load(&self.leg),
                    attachment: self.attachment.load(Relaxed),
                };
                let same = self.endpoint.load(Relaxed) == endpoint;
                fence(Acquire);
                if self.seq.load(Relaxed) == seq {
                    return if is_there && same { Some(found) } else { None };
                }
            }
        }
        None
    }
}

impl<'r> ReturnLegs<'r> {
    /// The table of a region.
    #[inline]
    pub fn new(region: &'r Region) -> ReturnLegs<'r> {
        ReturnLegs { records: region.slice(Section::ReturnLegs) }
    }

    /// The first record of the set of an endpoint and node, and the one of them that goes where
    /// there is no room.
    #[inline(always)]
    fn set(&self, endpoint: u64, key: u64) -> (u32, u32) {
        let mixed = (endpoint ^ key << 32 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let sets = (self.records.count() / WAYS).wrapping_sub(1);
        let first = ((mixed >> 32) as u32 & sets) * WAYS;
        (first, first + ((mixed >> 30) as u32 & (WAYS - 1)))
    }

    /// Notes the leg by which a packet of an endpoint came that had the gateway's three options and
    /// no others. Each flow's own has to be 0 in it: the node's port, and the length of options.
    /// Writes nothing where it is known.
    #[inline(always)]
    pub fn note(&self, endpoint: u64, attachment: u64, gateway: u16, leg: &GatewayLeg) {
        let key = key(gateway, node_digest(&leg.node));
        let digests = digests(leg, attachment);
        let (first, mut at) = self.set(endpoint, key);
        // From the last one on, so that the record itself, and else the first free one, is last.
        let mut found = false;
        for way in (0..WAYS).rev() {
            let Some(record) = self.records.row(first + way) else { return };
            let is_of = record.is_of(endpoint, key);
            if is_of && record.digests.load(Relaxed) == digests {
                return;
            }
            if is_of || !found && record.key.load(Relaxed) == 0 {
                (at, found) = (first + way, is_of);
            }
        }
        if let Some(record) = self.records.row(at) {
            record.write(endpoint, key, leg, attachment, digests);
        }
    }

    /// The way back to the gateway's node for a packet that names this endpoint and origin, with
    /// the options that the gateway knows it by. False where it is not known, is ambiguous, or the
    /// gateway is not configured so any more.
    #[inline(always)]
    pub fn answer(
        &self,
        set: &TableSet<'_>,
        endpoint: u64,
        origin: &Origin,
        out: &mut Answer,
    ) -> bool {
        let key = key(origin.gateway, origin.node);
        let (first, _) = self.set(endpoint, key);
        for way in 0..WAYS {
            let Some(record) = self.records.row(first + way) else { return false };
            let Some(found) = record.read(endpoint, key) else { continue };
            let Some(tunnel) = set.tunnel(u32::from(found.leg.tunnel)) else { return false };
            if !leads_to(tunnel, origin.gateway, &found.leg) {
                return false;
            }
            let class = tunnel.option_class;
            let options = geneve::gateway_words(class, endpoint, found.attachment, origin.cookie);
            for (to, word) in out.options.iter_mut().zip(options) {
                *to = word;
            }
            out.gateway = found.leg;
            out.gateway.node_port = origin.port;
            out.gateway.option_len = OWN_OPTIONS as u8;
            return true;
        }
        false
    }
}

/// Whether a tunnel is the gateway's, and open to the leg's node.
#[inline(always)]
fn leads_to(tunnel: &Tunnel, gateway: u16, leg: &GatewayLeg) -> bool {
    tunnel.flags & TUNNEL_BACKEND == 0
        && tunnel.kind == TunnelKind::Geneve as u8
        && tunnel.gateway == gateway
        && tunnel.local == leg.local
        && tunnel.admits(&leg.node)
}

/// What happens between packets.
#[cfg(not(target_arch = "bpf"))]
impl ReturnLegs<'_> {
    /// Clears what a killed process left half-written, while no lcore runs. Returns how many.
    pub fn recover(&self) -> u32 {
        let mut cleared = 0;
        for record in self.records.iter().filter(|record| record.seq.load(Acquire) & 1 != 0) {
            record.key.store(0, Relaxed);
            record.seq.fetch_add(1, Release);
            cleared += 1;
        }
        cleared
    }
}

/// Whether a backend's packet says by itself of which flow it is: it is whole, and an error goes to
/// the sender of what it quotes.
#[inline(always)]
pub fn is_of_itself(ip: &Ip, quoted: Option<&Ip>) -> bool {
    ip.fragment == Fragment::Whole && quoted.is_none_or(|quoted| quoted.src == ip.dst)
}

impl TableSet<'_> {
    /// The backend that selection gives a flow with this hash of `client`, if it is the one at
    /// `from`, and `service` is by a GENEVE tunnel and keeps no other state: then what comes from
    /// there may be of that flow. `target` is the flow's other end.
    #[inline(always)]
    pub fn selected(
        &self,
        service: &Service,
        (client, target): (&Addr, &Addr),
        hash: u64,
        from: &Addr,
    ) -> Option<u32> {
        let by_tunnel = service.mode == Mode::Tunnel as u8 || service.mode == Mode::Dsr as u8;
        let stateless = by_tunnel
            && service.tunnel == TunnelKind::Geneve as u8
            && service.proxy_port == 0
            && service.affinity_s == 0;
        // Of such ends no flow begins.
        if !stateless || client.is_martian() || client == target {
            return None;
        }
        let backend = self.pick(service, hash)?;
        (self.backend(backend)?.addr == *from).then_some(backend)
    }

    /// Service and backend of an answer of no known flow, or of a packet that an appliance returns:
    /// `ip` is the packet, or the one that an ICMP error quotes, and `hash` its flow's. The backend
    /// is the one at `from`, by selection alone. A returned packet goes to the frontend, an answer
    /// comes from it.
    #[cfg(not(target_arch = "bpf"))]
    pub fn answering(&self, scope_key: u64, ip: &Ip, hash: u64, from: &Addr) -> Option<(u32, u32)> {
        [((&ip.dst, ip.dport), &ip.src), ((&ip.src, ip.sport), &ip.dst)].into_iter().find_map(
            |((target, port), client)| {
                let id = self.frontend(scope_key, target, port, ip.proto)?;
                let service = self.service(id).filter(|service| self.admits(service, client))?;
                Some((id, self.selected(service, (client, target), hash, from)?))
            },
        )
    }
}

#[cfg(test)]
mod tests;
