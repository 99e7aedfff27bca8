//! Return legs: routes back to gateway endpoints for replies whose flow is in no table.
//!
//! The options in the reply of a GENEVE backend identify the endpoint, the gateway, its node, the
//! node's UDP port and the flow cookie ([`packet::origin`]). This table stores the rest, which is
//! common to all packets of an endpoint through one node: addresses, VNI, delivery (MAC, VLAN, arm)
//! and the endpoint's attachment.
//!
//! The table is a cache of sets of [`WAYS`] records of 128 bytes:
//!
//! - A record is written when a flow begins or changes its leg. If its set is full, it replaces
//!   another record.
//! - A reply without a matching record is dropped, as it would be without this table.
//! - A sequence number guards a record and is odd during a write; readers then ignore the record.
//! - A record becomes ambiguous when it is written with another attachment, node (of the same
//!   digest), local address, local port or VNI. An ambiguous record is no longer used, because a
//!   reply does not say which of these values it needs.

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

/// Flag of `key`: the record is in use.
const USED: u64 = 1 << 32;
/// Flag of `key`: the record is ambiguous.
const AMBIGUOUS: u64 = 1 << 33;
/// Number of attempts to read a record that is being written; fewer in the BPF program, because the
/// verifier checks each iteration.
const TRIES: u32 = if cfg!(target_arch = "bpf") { 2 } else { 64 };

/// Number of leading words of a [`GatewayLeg`] whose change makes a record ambiguous: node, local
/// address, VNI and local port (the node's port is 0 in a record). MAC, VLAN and arm may change,
/// because the latest ones reach the same node.
const IDENTITY_WORDS: usize = core::mem::offset_of!(GatewayLeg, vlan) / 8;
const _: () = assert!(core::mem::offset_of!(GatewayLeg, vlan) % 8 == 0);

/// Return leg of an endpoint through one node, guarded by its sequence number.
#[repr(C, align(64))]
struct Record {
    /// Sequence number; odd while the record is written.
    seq: AtomicU64,
    /// GENEVE endpoint id.
    endpoint: AtomicU64,
    /// `node digest << 16 | gateway`, [`USED`], [`AMBIGUOUS`]; 0 if the record is free.
    key: AtomicU64,
    /// Attachment id of the endpoint.
    attachment: AtomicU64,
    /// Words of a [`GatewayLeg`].
    leg: [AtomicU64; 8],
    /// [`digests`] of attachment and leg: one comparison instead of nine.
    digests: AtomicU64,
}

const _: () = assert!(size_of::<Record>() == 128);

// SAFETY: atomics only.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Record {}

/// Table of return legs, read and written by all lcores concurrently.
#[derive(Clone, Copy)]
pub struct ReturnLegs<'r> {
    records: Rows<'r, Record>,
}

/// Contents of a record.
struct Contents {
    leg: GatewayLeg,
    attachment: u64,
}

#[inline(always)]
const fn key(gateway: u16, node: u16) -> u64 {
    USED | (node as u64) << 16 | gateway as u64
}

/// Returns a digest of the attachment and [`IDENTITY_WORDS`] of the leg in the upper half, and a
/// digest of the attachment and the whole leg in the lower half.
#[inline(always)]
fn digests(leg: &GatewayLeg, attachment: u64) -> u64 {
    let mut digest = Digest::new();
    digest.add(attachment);
    for i in 0..IDENTITY_WORDS {
        digest.add(words::word(leg, i));
    }
    let identity = u64::from(digest.finish());
    for i in IDENTITY_WORDS..size_of::<GatewayLeg>() / 8 {
        digest.add(words::word(leg, i));
    }
    identity << 32 | u64::from(digest.finish())
}

impl Record {
    #[inline(always)]
    fn is_of(&self, endpoint: u64, key: u64) -> bool {
        self.key.load(Acquire) & !AMBIGUOUS == key && self.endpoint.load(Relaxed) == endpoint
    }

    /// Writes the record, unless another lcore is writing it. In that case the record is left to a
    /// later flow.
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

    /// Returns the contents if the record is that of `endpoint` and `key`.
    #[inline(always)]
    fn read(&self, endpoint: u64, key: u64) -> Option<Contents> {
        for _ in 0..TRIES {
            let seq = self.seq.load(Acquire);
            if seq & 1 == 0 {
                let is_valid = self.key.load(Relaxed) == key;
                let found = Contents {
                    leg: words::load(&self.leg),
                    attachment: self.attachment.load(Relaxed),
                };
                let same = self.endpoint.load(Relaxed) == endpoint;
                fence(Acquire);
                if self.seq.load(Relaxed) == seq {
                    return if is_valid && same { Some(found) } else { None };
                }
            }
        }
        None
    }
}

impl<'r> ReturnLegs<'r> {
    /// Returns the table of return legs of a region.
    #[inline]
    pub fn new(region: &'r Region) -> ReturnLegs<'r> {
        ReturnLegs { records: region.slice(Section::ReturnLegs) }
    }

    /// Returns the first record of an endpoint's set, and the record to replace if the set is full.
    #[inline(always)]
    fn set(&self, endpoint: u64, key: u64) -> (u32, u32) {
        let mixed = (endpoint ^ key << 32 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let sets = (self.records.count() / WAYS).wrapping_sub(1);
        let first = ((mixed >> 32) as u32 & sets) * WAYS;
        (first, first + ((mixed >> 30) as u32 & (WAYS - 1)))
    }

    /// Records the leg of a packet that arrived for an endpoint. The packet must have had exactly
    /// the gateway's three options, which [`ReturnLegs::answer`] reproduces. The fields of `leg`
    /// that differ by flow (the node's port, the length of options) must be 0. Does nothing if the
    /// record is up to date.
    #[inline(always)]
    pub fn record(&self, endpoint: u64, attachment: u64, gateway: u16, leg: &GatewayLeg) {
        let key = key(gateway, node_digest(&leg.node));
        let digests = digests(leg, attachment);
        let (first, mut at) = self.set(endpoint, key);
        // Chooses the matching record, or else the first free one: later iterations, which look at
        // earlier records, override the choice of a free one.
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

    /// Writes the route back to the gateway's node for a packet with this endpoint and origin, with
    /// the gateway's options, to `out`. Returns false if the route is unknown or ambiguous, or if
    /// the gateway's configuration no longer permits it.
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

/// Returns whether a tunnel belongs to the gateway and permits the leg's node.
#[inline(always)]
fn leads_to(tunnel: &Tunnel, gateway: u16, leg: &GatewayLeg) -> bool {
    tunnel.flags & TUNNEL_BACKEND == 0
        && tunnel.kind == TunnelKind::Geneve as u8
        && tunnel.gateway == gateway
        && tunnel.local == leg.local
        && tunnel.admits(&leg.node)
}

/// Operations that run between packets.
#[cfg(not(target_arch = "bpf"))]
impl ReturnLegs<'_> {
    /// Clears half-written records of a killed process while no lcore runs. Returns their number.
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

/// Returns whether a backend's packet identifies its flow by itself: it is not a fragment, and if
/// it is an ICMP error, its destination is the source of the quoted packet.
#[inline(always)]
pub fn identifies_flow(ip: &Ip, quoted: Option<&Ip>) -> bool {
    ip.fragment == Fragment::Whole && quoted.is_none_or(|quoted| quoted.src == ip.dst)
}

impl TableSet<'_> {
    /// Returns the backend that selection picks for a flow from `client` to `target` by this hash,
    /// if its address is `from` and `service` uses GENEVE tunnels without further state. A packet
    /// from that backend may then belong to the flow.
    #[inline(always)]
    pub fn select_stateless(
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
        // No flow has a martian client address or equal addresses at both ends.
        if !stateless || client.is_martian() || client == target {
            return None;
        }
        let backend = self.pick(service, hash)?;
        (self.backend(backend)?.addr == *from).then_some(backend)
    }

    /// Returns service and backend of a packet from the backend at `from` whose flow is in no
    /// table, by selection alone. The packet is a reply, whose source is the frontend, or a packet
    /// that an inspecting backend returns, whose destination is the frontend. `ip` is the packet,
    /// or the packet that an ICMP error quotes, and `hash` the hash of its flow.
    #[cfg(not(target_arch = "bpf"))]
    pub fn stateless_backend(
        &self,
        scope_key: u64,
        ip: &Ip,
        hash: u64,
        from: &Addr,
    ) -> Option<(u32, u32)> {
        [((&ip.dst, ip.dport), &ip.src), ((&ip.src, ip.sport), &ip.dst)].into_iter().find_map(
            |((target, port), client)| {
                let id = self.frontend(scope_key, target, port, ip.proto)?;
                let service = self.service(id).filter(|service| self.admits(service, client))?;
                Some((id, self.select_stateless(service, (client, target), hash, from)?))
            },
        )
    }
}

#[cfg(test)]
mod tests;
