//! Stage 3, classify: determines the flow of a packet, and identifies packets without one.
//!
//! Builds the flow key (from the quoted packet for ICMP errors; the fragment table supplies it for
//! later fragments), and prefetches the flow's bucket for `track`.

use crate::burst::{Arrival, Front, Work};
use crate::lcore::Lcore;
use crate::redirect;
use crate::verdict::{Reply, Verdict};
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN, Side};
use packet::icmp;
use packet::ip::{Fragment, Ip, L4};
use packet::window::Window;
use tables::addresses::Addresses;
use tables::reason::DropReason;
use tables::record::{TUNNEL_REPLY_TOO_BIG, Tunnel};

/// Builds the flow key of an undecided packet.
#[inline(always)]
pub fn classify(window: &Window<'_>, work: &mut Work, lcore: &Lcore<'_>) {
    if work.open() {
        work.begin_flow();
        match work.front.arrival {
            Arrival::Kernel => from_kernel(window, work, lcore),
            _ => from_wire(window, work, lcore),
        }
    }
}

/// Packets of the kernel are forwarded unchanged, except those from a probe source and a proxy's
/// answers.
#[cold]
fn from_kernel(window: &Window<'_>, work: &mut Work, lcore: &Lcore<'_>) {
    work.verdict = Verdict::Forward;
    if let Some(backend) = lcore.set().probe(&work.inner.src) {
        work.verdict = Verdict::Probe;
        work.backend = backend;
        return;
    }
    work.front.scope = SCOPE_PLAIN;
    work.hash = 0;
    match work.inner.kind {
        L4::IcmpError => error(window, work, lcore),
        L4::Tcp { .. } | L4::Udp => {
            work.side = file(work.inner.fragment, key(SCOPE_PLAIN, &work.inner), work, lcore);
        }
        _ => return,
    }
    if redirect::is_answer(lcore, work) {
        work.verdict = Verdict::Undecided;
    }
}

#[inline(always)]
fn from_wire(window: &Window<'_>, work: &mut Work, lcore: &Lcore<'_>) {
    if work.front.arrival == Arrival::Gateway && oversized(work, lcore) {
        return;
    }
    if work.front.arrival == Arrival::Backend && lcore.set().probe(&work.inner.dst).is_some() {
        work.verdict = Verdict::Punt;
        return;
    }
    if work.inner.kind == L4::IcmpError {
        return error(window, work, lcore);
    }
    // Two copies of the same code: for IPv4, most words of the addresses are constants.
    let (ip, scope) = (&work.inner, work.front.scope);
    work.side = if ip.v6 {
        file(ip.fragment, key(scope, ip), work, lcore)
    } else {
        let (src, dst) = (Addr::v4(ip.src.v4_wire()), Addr::v4(ip.dst.v4_wire()));
        let key = FlowKey::new(scope, ip.proto, src, ip.sport, dst, ip.dport);
        file(ip.fragment, key, work, lcore)
    };
}

/// A filter for gateways' packets that match no frontend and no flow, by their addresses alone. It
/// gives the result of the table lookups for most packets of a gateway without performing them. (A
/// flow was begun to one of the two addresses of each of its packets.)
pub struct Strangers<'r> {
    frontends: Option<Addresses<'r>>,
    flows: Addresses<'r>,
}

impl<'r> Strangers<'r> {
    /// Creates the filter from the tables of this iteration.
    #[inline(always)]
    pub fn of(lcore: &Lcore<'r>) -> Strangers<'r> {
        Strangers { frontends: lcore.set().acquaintances(), flows: *lcore.flow_addresses() }
    }

    /// Returns true if `ip`, which arrived through a tunnel behind `front`, is unmatched and
    /// returned.
    #[inline(always)]
    pub fn meet_in(&self, ip: &Ip, front: &Front) -> bool {
        let Some(frontends) = &self.frontends else { return false };
        !(frontends.may_have(&ip.dst) | self.flows.may_have(&ip.dst))
            && !self.flows.may_have(&ip.src)
            && ip.end - ip.at <= front.returned
            && ip.fragment == Fragment::Whole
            && ip.kind != L4::IcmpError
    }

    /// Sets the verdict of an undecided packet that is unmatched and returned.
    #[inline(always)]
    pub fn sift(&self, work: &mut Work) {
        let tunnelled = work.front.arrival == Arrival::Gateway;
        if tunnelled && work.open() && self.meet_in(&work.inner, &work.front) {
            work.hash = 0;
            work.verdict = Verdict::Return;
        }
    }
}

/// Assigns an ICMP error to the flow of the packet that it quotes.
#[cold]
fn error(window: &Window<'_>, work: &mut Work, lcore: &Lcore<'_>) {
    // A damaged error cannot be assigned: it has no key, and so no flow.
    (work.key, work.hash) = (FlowKey::default(), 0);
    // An error from a martian source belongs to no flow; its gateway decides how it is handled.
    if work.front.arrival != Arrival::Kernel && work.inner.src.is_martian() {
        return;
    }
    let Ok(quoted) = icmp::quoted(window, &work.inner) else { return };
    work.quoted = Some(quoted);
    if work.front.arrival == Arrival::Plain && quoted.src == work.inner.dst {
        work.pending |= Work::LEARNS;
    }
    work.side = file(quoted.fragment, key(work.front.scope, &quoted), work, lcore).other();
}

#[inline(always)]
fn key(scope: u32, ip: &Ip) -> (FlowKey, Side) {
    FlowKey::new(scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport)
}

/// Stores the key and prefetches its bucket; returns the sender's side.
#[inline(always)]
fn file(
    fragment: Fragment,
    (key, side): (FlowKey, Side),
    work: &mut Work,
    lcore: &Lcore<'_>,
) -> Side {
    if fragment == Fragment::Later {
        work.hash = 0; // `track` consults the fragment table.
        return side;
    }
    work.key = key;
    work.hash = lcore.flows().hash(&key);
    lcore.flows().prefetch(work.hash);
    side
}

/// Decides on packets that exceed the gateway's inner MTU. Returns true if this one does.
#[inline(always)]
fn oversized(work: &mut Work, lcore: &Lcore<'_>) -> bool {
    let tunnel = &lcore.snapshot().tunnels[usize::from(work.front.tunnel)].record;
    let len = work.inner.end - work.inner.at;
    if len <= tunnel.inner_mtu || tunnel.inner_mtu == 0 {
        return false;
    }
    too_big(work, tunnel);
    true
}

#[cold]
fn too_big(work: &mut Work, tunnel: &Tunnel) {
    if tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0 {
        work.verdict = Verdict::Reply(Reply::TooBig(tunnel.inner_mtu));
    } else {
        work.drop(DropReason::TooBig);
    }
}
