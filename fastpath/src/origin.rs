//! Stateless return path: passes the origin of a gateway's packet to the backend in Weir's own
//! GENEVE options, and sends answers back whose flow is in no table (see [`packet::origin`],
//! [`tables::return_leg`]).

use crate::burst::{Arrival, OuterHeaders, PacketState};
use crate::lcore::Lcore;
use crate::leg;
use packet::geneve::{self, OWN_OPTIONS};
use packet::origin::{Origin, without_origin};
use packet::window::Window;
use tables::flow::{Answer, Forward};
use tables::reason::DropReason;
use tables::record::TunnelKind;
use tables::return_leg::identifies_flow;

/// Returns attachment and cookie for Weir's own options on a packet to a backend. Only a gateway's
/// packet with exactly the three options in their usual order has an origin: an answer could not
/// restore other options.
#[inline(always)]
pub fn attachment(window: &Window<'_>, pkt: &PacketState, gateway: u16) -> (u64, u32) {
    let from_gateway = pkt.headers.arrival == Arrival::Gateway;
    if from_gateway && pkt.headers.marks & OuterHeaders::USUAL_OPTIONS != 0 {
        // The cookie is the last option.
        let at = usize::from(pkt.headers.options_at) + OWN_OPTIONS - 4;
        let cookie = window.be32(at).unwrap_or(0);
        let outer = &pkt.headers.outer;
        if let Some(origin) = Origin::new(gateway, &outer.src, outer.sport, cookie) {
            return (origin.attachment(pkt.hash), cookie);
        }
    }
    (without_origin(gateway), pkt.hash as u32)
}

/// Records the return leg (by which answers without a table entry reach the gateway) for the
/// endpoint and node of a gateway's packet. Called when a flow of a GENEVE service begins, with or
/// without a table entry, or changes its leg.
#[inline(never)]
pub fn record_return_leg(window: &Window<'_>, pkt: &PacketState, lcore: &Lcore<'_>) {
    let snapshot = lcore.snapshot();
    if pkt.headers.arrival != Arrival::Gateway
        || pkt.headers.marks & OuterHeaders::USUAL_OPTIONS == 0
    {
        return;
    }
    let service = lcore.set().service(pkt.service);
    if service.is_none_or(|service| service.tunnel != TunnelKind::Geneve as u8) {
        return;
    }
    let Some(tunnel) = snapshot.tunnels.get(usize::from(pkt.headers.tunnel)) else { return };
    let (at, len, class) =
        (pkt.headers.options_at, pkt.headers.options_len, tunnel.record.option_class);
    let Some(options) = geneve::usual_options(window, at, len, class) else { return };
    let mut leg = leg::gateway_leg(window, pkt, snapshot);
    leg.node_port = 0;
    lcore.return_legs().record(options.endpoint, options.attachment, tunnel.record.gateway, &leg);
}

/// Returns the origin that a backend's packet without a flow names, if it is valid for the return
/// path: the packet is whole, and its options are those sent to the backend with this flow's
/// packets.
#[cold]
pub fn origin_of(window: &Window<'_>, pkt: &PacketState, lcore: &Lcore<'_>) -> Option<Origin> {
    let tunnel = lcore.snapshot().tunnels.get(usize::from(pkt.headers.tunnel))?;
    if pkt.hash == 0 || !identifies_flow(&pkt.inner, pkt.quoted.as_ref()) {
        return None;
    }
    let (at, len, class) =
        (pkt.headers.options_at, pkt.headers.options_len, tunnel.record.option_class);
    let options = geneve::usual_options(window, at, len, class)?;
    Origin::of_flow(options.attachment, options.cookie, pkt.hash)
}

/// Returns true if a backend's packet without a flow can be returned by the origin that it names:
/// it must come from the backend that selection yields for its flow. Sets service, backend and
/// path.
#[cold]
pub fn matches_backend(window: &Window<'_>, pkt: &mut PacketState, lcore: &Lcore<'_>) -> bool {
    if origin_of(window, pkt, lcore).is_none() {
        return false;
    }
    let set = lcore.set();
    let (ip, from) = (pkt.quoted.as_ref().unwrap_or(&pkt.inner), pkt.headers.outer.src);
    let Some((service, backend)) =
        set.stateless_backend(pkt.headers.scope_key, ip, pkt.hash, &from)
    else {
        return false;
    };
    (pkt.service, pkt.backend) = (service, backend);
    pkt.path = Forward::of_reply(&pkt.inner, service, backend, &from);
    true
}

/// Fills in the return leg of a packet for which [`matches_backend`] returned true. Returns false
/// if there is none.
#[cold]
pub fn fill_answer(
    window: &Window<'_>,
    pkt: &PacketState,
    lcore: &Lcore<'_>,
    out: &mut Answer,
) -> bool {
    let Some(origin) = origin_of(window, pkt, lcore) else { return false };
    lcore.return_legs().answer(lcore.set(), pkt.headers.scope_key, &origin, out)
}

/// Returns the drop reason of an answer, or of an error about one, whose flow is unknown.
pub const fn unknown_flow(pkt: &PacketState) -> DropReason {
    match pkt.quoted {
        Some(_) => DropReason::IcmpUnknownFlow,
        None => DropReason::NoFlow,
    }
}
