//! Stage 6, rewrite and encap: carries the verdict out on the packet's bytes and names its exit.
//!
//! The match in [`carry_out`] is the list of ways out; each is one hop away, and all but the two
//! that most packets take are out of line, so that those keep their registers. Beside it stand the
//! few questions that all ways to a backend ask: which next hop, does it fit, does it live long
//! enough.

use crate::burst::{Front, Work};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::{Exit, Reply, Verdict};
use crate::{nat, punt, redirect, reply, tunnel};
use packet::ethernet::{self, Macs};
use packet::rewrite::Congestion;
use packet::translate::Untranslatable;
use packet::tunnel::{cross_in_place, return_in_place};
use packet::window::{Short, Window};
use tables::reason::DropReason;
use tables::record::{SERVICE_REPLY_TOO_BIG, TUNNEL_REPLY_TOO_BIG, Tunnel};

/// Bytes of an Ethernet header without a VLAN tag.
pub const ETHERNET: usize = 14;

/// Why a verdict could not be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The packet is dropped.
    Drop(DropReason),
    /// The packet is dropped, and its sender is told.
    Answer(Reply),
}

impl From<Short> for Refused {
    fn from(_: Short) -> Refused {
        Refused::Drop(DropReason::TooShort)
    }
}

impl From<Congestion> for Refused {
    fn from(cause: Congestion) -> Refused {
        Refused::Drop(match cause {
            Congestion::Short => DropReason::TooShort,
            Congestion::Lost => DropReason::Congestion,
        })
    }
}

impl From<Untranslatable> for Refused {
    fn from(cause: Untranslatable) -> Refused {
        Refused::Drop(match cause {
            Untranslatable::Short => DropReason::TooShort,
            Untranslatable::Nothing | Untranslatable::Unsummed => DropReason::NotTranslatable,
        })
    }
}

/// Carries out the verdict.
#[inline(always)]
pub fn encap<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) {
    match carry_out(buffer, work, lcore) {
        Ok(()) => {}
        Err(Refused::Drop(reason)) => work.drop(reason),
        Err(Refused::Answer(what)) => {
            work.verdict = Verdict::Reply(what);
            if let Err(reason) = reply::reply(buffer, work, lcore, what) {
                work.drop(reason);
            }
        }
    }
}

#[inline(always)]
fn carry_out<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) -> Result<(), Refused> {
    match work.verdict {
        Verdict::Return => {
            work.exit = send_back(&mut buffer.window(), &work.front, work.arm, lcore)?;
            Ok(())
        }
        Verdict::Nat => nat::to_backend(buffer, work, lcore),
        Verdict::Tunnel => tunnel::to_backend(buffer, work, lcore),
        Verdict::Answer => tunnel::to_front(buffer, work, lcore),
        Verdict::Probe => tunnel::probe(buffer, work, lcore),
        Verdict::Redirect => redirect::to_proxy(buffer, work, lcore),
        Verdict::Punt => punt::punt(buffer, work, lcore),
        Verdict::Forward => {
            work.exit = Exit::Port(work.arm);
            Ok(())
        }
        Verdict::Reply(what) => Err(Refused::Answer(what)),
        Verdict::Drop(_) | Verdict::Undecided => Ok(()),
    }
}

/// `return`: the frame goes back as it is, but for its outer addresses. Gives its way out.
#[inline(always)]
fn send_back(
    window: &mut Window<'_>,
    front: &Front,
    arm: u8,
    lcore: &Lcore<'_>,
) -> Result<Exit, Short> {
    if front.marks & Front::CROSSES != 0
        && let Some(peer) = peer(front, lcore)
    {
        cross_in_place(window, &front.outer, peer.port, peer.vni)?;
        return Ok(Exit::Port(peer.arm));
    }
    return_in_place(window, &front.outer)?;
    Ok(Exit::Port(arm))
}

/// The tunnel that a packet crosses to.
#[inline(never)]
fn peer<'a>(front: &Front, lcore: &'a Lcore<'_>) -> Option<&'a Tunnel> {
    let snapshot = lcore.snapshot();
    let tunnel = &snapshot.tunnels[usize::from(front.tunnel)];
    snapshot.tunnel(tunnel.record.peer).map(|peer| &peer.record)
}

/// Decides on `return` and carries it out, by what is known of headers like these in front: all
/// that it reads of them is the same in each.
#[inline(always)]
pub fn turn_around(window: &mut Window<'_>, work: &mut Work, front: &Front, lcore: &Lcore<'_>) {
    match send_back(window, front, work.arm, lcore) {
        Ok(exit) => (work.verdict, work.exit) = (Verdict::Return, exit),
        Err(Short) => work.drop(DropReason::TooShort),
    }
}

/// The way to a backend: in two words, for the reason that [`Macs`] gives.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    first: u64,
    /// The rest of the MACs, the MTU, the arm.
    second: u64,
}

impl Way {
    #[inline(always)]
    fn new(macs: Macs, mtu: u16, arm: u8) -> Way {
        let second = u64::from(macs.rest) | u64::from(mtu) << 32 | u64::from(arm) << 48;
        Way { first: macs.first, second }
    }

    /// The next hop's address, and ours.
    #[inline(always)]
    pub fn macs(&self) -> Macs {
        Macs { first: self.first, rest: self.second as u32 }
    }

    /// The largest IP packet that passes, bytes.
    #[inline(always)]
    pub fn mtu(&self) -> u16 {
        (self.second >> 32) as u16
    }

    /// By which arm.
    #[inline(always)]
    pub fn arm(&self) -> u8 {
        (self.second >> 48) as u8
    }
}

/// The way to the packet's backend.
#[inline(always)]
pub fn next_hop(work: &Work, lcore: &Lcore<'_>) -> Result<Way, Refused> {
    let backend = lcore.set().backend(work.backend);
    let backend = backend.ok_or(Refused::Drop(DropReason::NoBackend))?;
    let next = lcore.set().next_hop(backend.next_hop);
    let next = next.ok_or(Refused::Drop(DropReason::NoRoute))?;
    if !next.known {
        lcore.control().want_neighbour(backend.next_hop);
        return Err(Refused::Drop(DropReason::NoNeighbour));
    }
    let link = if next.mtu == 0 { u16::MAX } else { next.mtu };
    let mtu = lcore.path_mtu(backend.next_hop, link);
    Ok(Way::new(Macs::new(next.mac, next.src_mac), mtu, next.arm))
}

/// Whether a packet has at most `mtu` bytes; else the MTU to report to its sender.
#[inline(always)]
pub fn passes(work: &Work, mtu: u16) -> Result<(), u16> {
    match work.inner.end - work.inner.at <= mtu {
        true => Ok(()),
        false => Err(mtu),
    }
}

/// Refuses a packet above `mtu` bytes on its way to a backend.
#[inline(always)]
pub fn fits(work: &Work, lcore: &Lcore<'_>, mtu: u16) -> Result<(), Refused> {
    passes(work, mtu).map_err(|mtu| too_big(work, lcore, mtu))
}

/// How a packet is refused that is too big for the way to a backend: with an ICMP error that
/// reports `mtu`, unless its service asks for a silent drop.
#[cold]
pub fn too_big(work: &Work, lcore: &Lcore<'_>, mtu: u16) -> Refused {
    let service = lcore.set().service(work.service);
    match service.is_none_or(|service| service.flags & SERVICE_REPLY_TOO_BIG != 0) {
        true => Refused::Answer(Reply::TooBig(mtu)),
        false => Refused::Drop(DropReason::TooBig),
    }
}

/// Whether the tunnel that the packet came by wants its sender told of oversized packets.
pub fn tells_too_big(work: &Work, lcore: &Lcore<'_>) -> bool {
    let tunnel = lcore.snapshot().tunnels.get(usize::from(work.front.tunnel));
    tunnel.is_none_or(|t| t.is_backend() || t.record.flags & TUNNEL_REPLY_TOO_BIG != 0)
}

/// Refuses a packet whose TTL ends here.
#[inline(always)]
pub fn ends_here(work: &Work) -> Result<(), Refused> {
    if work.inner.ttl > 1 {
        return Ok(());
    }
    Err(Refused::Answer(Reply::TimeExceeded))
}

/// Turns the frame into the inner packet alone behind an Ethernet header.
#[inline(always)]
pub fn plain_frame<B: Buffer>(
    buffer: &mut B,
    work: &Work,
    macs: &Macs,
    vlan: u16,
) -> Result<(), Refused> {
    let header = ETHERNET + if vlan == 0 { 0 } else { 4 };
    trim(buffer, work);
    if !buffer.strip(usize::from(work.inner.at)) || !buffer.grow(header) {
        return Err(Refused::Drop(DropReason::NoHeadroom));
    }
    let ethertype = if work.inner.v6 { ethernet::IPV6 } else { ethernet::IPV4 };
    ethernet::write(&mut buffer.window(), macs, vlan, ethertype)?;
    Ok(())
}

/// Cuts Ethernet padding behind the inner packet off, so that it does not travel in a tunnel.
#[inline(always)]
pub fn trim<B: Buffer>(buffer: &mut B, work: &Work) {
    let end = usize::from(work.inner.end);
    if buffer.len() > end && !buffer.is_chained() {
        // It can't fail: the frame is one segment and longer than `end`.
        let _ = buffer.truncate(end);
    }
}
