//! Stage 6, rewrite and encap: applies the verdict to the packet's bytes and sets its exit.
//!
//! The match in [`apply_verdict`] lists all actions. All except the two most frequent ones are
//! separate functions, so that those keep their registers.

use crate::burst::{OuterHeaders, PacketState};
use crate::delivery::Rejection;
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::{Exit, Verdict};
use crate::{nat, proxy, punt, reply, tunnel};
use packet::tunnel::{cross_in_place, return_in_place};
use packet::window::{Short, Window};
use tables::reason::DropReason;
use tables::record::Tunnel;

/// Performs the action of the verdict.
#[inline(always)]
pub fn encap<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    match apply_verdict(buffer, pkt, lcore) {
        Ok(()) => {}
        Err(Rejection::Drop(reason)) => pkt.drop(reason),
        Err(Rejection::Reply(reply_kind)) => {
            pkt.verdict = Verdict::Reply(reply_kind);
            if let Err(reason) = reply::reply(buffer, pkt, lcore, reply_kind) {
                pkt.drop(reason);
            }
        }
    }
}

#[inline(always)]
fn apply_verdict<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Result<(), Rejection> {
    match pkt.verdict {
        Verdict::Return => {
            pkt.exit = send_back(&mut buffer.window(), &pkt.headers, pkt.arm, lcore)?;
            Ok(())
        }
        Verdict::Nat => nat::to_backend(buffer, pkt, lcore),
        Verdict::Tunnel => tunnel::to_backend(buffer, pkt, lcore),
        Verdict::Answer => tunnel::to_client(buffer, pkt, lcore),
        Verdict::Probe => tunnel::probe(buffer, pkt, lcore),
        Verdict::Redirect => proxy::to_proxy(buffer, pkt, lcore),
        Verdict::Punt => punt::punt(buffer, pkt, lcore),
        Verdict::Forward => {
            pkt.exit = Exit::Port(pkt.arm);
            Ok(())
        }
        Verdict::Reply(reply_kind) => Err(Rejection::Reply(reply_kind)),
        Verdict::Drop(_) | Verdict::Undecided => Ok(()),
    }
}

/// Sends a frame back to its gateway, unchanged except for its outer addresses; returns its exit.
#[inline(always)]
fn send_back(
    window: &mut Window<'_>,
    headers: &OuterHeaders,
    arm: u8,
    lcore: &Lcore<'_>,
) -> Result<Exit, Short> {
    if headers.marks & OuterHeaders::CROSSES != 0
        && let Some(peer) = peer(headers, lcore)
    {
        cross_in_place(window, &headers.outer, peer.port, peer.vni)?;
        return Ok(Exit::Port(peer.arm));
    }
    return_in_place(window, &headers.outer)?;
    Ok(Exit::Port(arm))
}

/// Returns the tunnel through which a crossing packet leaves.
#[inline(never)]
fn peer<'a>(headers: &OuterHeaders, lcore: &'a Lcore<'_>) -> Option<&'a Tunnel> {
    let snapshot = lcore.snapshot();
    let tunnel = &snapshot.tunnels[usize::from(headers.tunnel)];
    snapshot.tunnel(tunnel.record.peer).map(|peer| &peer.record)
}

/// Sets the verdict `return` and performs it, for a packet that matched the cache of outer headers.
/// `headers` is the cached state: the fields that are read here are equal for all packets that
/// match.
#[inline(always)]
pub fn return_cached(
    window: &mut Window<'_>,
    pkt: &mut PacketState,
    headers: &OuterHeaders,
    lcore: &Lcore<'_>,
) {
    match send_back(window, headers, pkt.arm, lcore) {
        Ok(exit) => (pkt.verdict, pkt.exit) = (Verdict::Return, exit),
        Err(Short) => pkt.drop(DropReason::TooShort),
    }
}
