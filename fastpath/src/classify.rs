//! Stage 3, classify: determines the flow of a packet, and identifies packets without one.
//!
//! Builds the flow key (from the quoted packet for ICMP errors; the fragment table supplies it for
//! later fragments), and prefetches the flow's bucket for `track`.

use crate::burst::{Arrival, OuterHeaders, PacketState};
use crate::lcore::Lcore;
use crate::proxy;
use crate::verdict::{Reply, Verdict};
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN, Side};
use packet::icmp;
use packet::ip::{Fragment, Ip, L4};
use packet::window::Window;
use tables::address_filter::AddressFilter;
use tables::reason::DropReason;
use tables::record::{TUNNEL_REPLY_TOO_BIG, Tunnel};

/// Builds the flow key of an undecided packet, or sets the verdict of one that needs no flow.
#[inline(always)]
pub fn classify(window: &Window<'_>, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    if pkt.is_undecided() {
        pkt.reset_flow();
        match pkt.headers.arrival {
            Arrival::Kernel => from_kernel(window, pkt, lcore),
            _ => from_wire(window, pkt, lcore),
        }
    }
}

/// Classifies a packet of the kernel: it is forwarded unchanged, unless it comes from a probe
/// source (the address reserved for health checks of one backend) or is a proxy's answer.
#[cold]
fn from_kernel(window: &Window<'_>, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    pkt.verdict = Verdict::Forward;
    if let Some(backend) = lcore.set().probe(&pkt.inner.src) {
        pkt.verdict = Verdict::Probe;
        pkt.backend = backend;
        return;
    }
    pkt.headers.scope = SCOPE_PLAIN;
    pkt.hash = 0;
    match pkt.inner.kind {
        L4::IcmpError => classify_error(window, pkt, lcore),
        L4::Tcp { .. } | L4::Udp => {
            pkt.side = set_key(pkt.inner.fragment, key(SCOPE_PLAIN, &pkt.inner), pkt, lcore);
        }
        _ => return,
    }
    if proxy::is_answer(lcore, pkt) {
        pkt.verdict = Verdict::Undecided;
    }
}

#[inline(always)]
fn from_wire(window: &Window<'_>, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    if pkt.headers.arrival == Arrival::Gateway && exceeds_inner_mtu(pkt, lcore) {
        return;
    }
    if pkt.headers.arrival == Arrival::Backend && lcore.set().probe(&pkt.inner.dst).is_some() {
        pkt.verdict = Verdict::Punt;
        return;
    }
    if pkt.inner.kind == L4::IcmpError {
        return classify_error(window, pkt, lcore);
    }
    // One copy of the code per family: for IPv4, most words of the addresses are constants.
    let (ip, scope) = (&pkt.inner, pkt.headers.scope);
    pkt.side = if ip.v6 {
        set_key(ip.fragment, key(scope, ip), pkt, lcore)
    } else {
        let (src, dst) = (Addr::v4(ip.src.v4_wire()), Addr::v4(ip.dst.v4_wire()));
        let key = FlowKey::new(scope, ip.proto, src, ip.sport, dst, ip.dport);
        set_key(ip.fragment, key, pkt, lcore)
    };
}

/// Recognizes gateways' packets that match no frontend and no flow by their addresses alone,
/// without table lookups. It finds most of them and no others; the rest take the lookups. Each
/// packet of a flow has, as source or destination, the address to which the flow was begun, and the
/// filter contains these addresses.
pub struct UnmatchedFilter<'r> {
    frontends: Option<AddressFilter<'r>>,
    flows: AddressFilter<'r>,
}

impl<'r> UnmatchedFilter<'r> {
    /// Creates the filter from the tables of this iteration.
    #[inline(always)]
    pub fn of(lcore: &Lcore<'r>) -> UnmatchedFilter<'r> {
        UnmatchedFilter { frontends: lcore.set().address_filter(), flows: *lcore.flow_addresses() }
    }

    /// Returns true if `ip`, which arrived through a tunnel behind `headers`, is unmatched and
    /// returned.
    #[inline(always)]
    pub fn is_unmatched(&self, ip: &Ip, headers: &OuterHeaders) -> bool {
        let Some(frontends) = &self.frontends else { return false };
        !(frontends.may_contain(&ip.dst) | self.flows.may_contain(&ip.dst))
            && !self.flows.may_contain(&ip.src)
            && ip.end - ip.at <= headers.max_returned_len
            && ip.fragment == Fragment::Whole
            && ip.kind != L4::IcmpError
    }

    /// Sets the verdict of an undecided packet that is unmatched and returned.
    #[inline(always)]
    pub fn apply(&self, pkt: &mut PacketState) {
        let from_gateway = pkt.headers.arrival == Arrival::Gateway;
        if from_gateway && pkt.is_undecided() && self.is_unmatched(&pkt.inner, &pkt.headers) {
            pkt.hash = 0;
            pkt.verdict = Verdict::Return;
        }
    }
}

/// Assigns an ICMP error to the flow of the packet that it quotes.
#[cold]
fn classify_error(window: &Window<'_>, pkt: &mut PacketState, lcore: &Lcore<'_>) {
    // A damaged error cannot be assigned: it has no key, and so no flow.
    (pkt.key, pkt.hash) = (FlowKey::default(), 0);
    // An error from a martian source belongs to no flow and is handled as unmatched.
    if pkt.headers.arrival != Arrival::Kernel && pkt.inner.src.is_martian() {
        return;
    }
    let Ok(quoted) = icmp::quoted(window, &pkt.inner) else { return };
    pkt.quoted = Some(quoted);
    if pkt.headers.arrival == Arrival::Plain && quoted.src == pkt.inner.dst {
        pkt.pending |= PacketState::LEARN_MTU;
    }
    pkt.side = set_key(quoted.fragment, key(pkt.headers.scope, &quoted), pkt, lcore).other();
}

#[inline(always)]
fn key(scope: u32, ip: &Ip) -> (FlowKey, Side) {
    FlowKey::new(scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport)
}

/// Stores the key and prefetches its bucket; returns the sender's side.
#[inline(always)]
fn set_key(
    fragment: Fragment,
    (key, side): (FlowKey, Side),
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
) -> Side {
    if fragment == Fragment::Later {
        pkt.hash = 0; // `track` consults the fragment table.
        return side;
    }
    pkt.key = key;
    pkt.hash = lcore.flows().hash(&key);
    lcore.flows().prefetch(pkt.hash);
    side
}

/// Decides on packets that exceed the gateway's inner MTU. Returns true if this one does.
#[inline(always)]
fn exceeds_inner_mtu(pkt: &mut PacketState, lcore: &Lcore<'_>) -> bool {
    let tunnel = &lcore.snapshot().tunnels[usize::from(pkt.headers.tunnel)].record;
    let len = pkt.inner.end - pkt.inner.at;
    if len <= tunnel.inner_mtu || tunnel.inner_mtu == 0 {
        return false;
    }
    too_big(pkt, tunnel);
    true
}

#[cold]
fn too_big(pkt: &mut PacketState, tunnel: &Tunnel) {
    if tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0 {
        pkt.verdict = Verdict::Reply(Reply::TooBig(tunnel.inner_mtu));
    } else {
        pkt.drop(DropReason::TooBig);
    }
}
