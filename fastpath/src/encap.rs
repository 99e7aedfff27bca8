//! Stage 6, rewrite and encap: applies the verdict to the packet's bytes and sets its exit.
//!
//! The match in [`carry_out`] lists all actions. All except the two most frequent ones are separate
//! functions, so that those keep their registers.

use crate::burst::{Front, Work};
use crate::delivery::Refused;
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::verdict::{Exit, Verdict};
use crate::{nat, punt, redirect, reply, tunnel};
use packet::tunnel::{cross_in_place, return_in_place};
use packet::window::{Short, Window};
use tables::reason::DropReason;
use tables::record::Tunnel;

/// Performs the action of the verdict.
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

/// Sends a frame back to its gateway, unchanged except for its outer addresses; returns its exit.
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

/// Returns the tunnel through which a crossing packet leaves.
#[inline(never)]
fn peer<'a>(front: &Front, lcore: &'a Lcore<'_>) -> Option<&'a Tunnel> {
    let snapshot = lcore.snapshot();
    let tunnel = &snapshot.tunnels[usize::from(front.tunnel)];
    snapshot.tunnel(tunnel.record.peer).map(|peer| &peer.record)
}

/// Sets the verdict `return` and performs it, using the cached state of equal outer headers: all
/// fields that it reads are the same for each of them.
#[inline(always)]
pub fn turn_around(window: &mut Window<'_>, work: &mut Work, front: &Front, lcore: &Lcore<'_>) {
    match send_back(window, front, work.arm, lcore) {
        Ok(exit) => (work.verdict, work.exit) = (Verdict::Return, exit),
        Err(Short) => work.drop(DropReason::TooShort),
    }
}
