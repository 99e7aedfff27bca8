//! Stateless return path: passes the origin of a gateway's packet to the backend in Weir's own
//! GENEVE options, and sends answers back whose flow is in no table (see [`packet::origin`],
//! [`tables::return_leg`]).

use crate::burst::{Arrival, Front, Work};
use crate::lcore::Lcore;
use crate::leg;
use packet::geneve::{self, OWN_OPTIONS};
use packet::origin::{Origin, without_origin};
use packet::window::Window;
use tables::flow::{Answer, Forward};
use tables::reason::DropReason;
use tables::record::TunnelKind;
use tables::return_leg::is_of_itself;

/// Returns attachment and cookie for Weir's own options on a packet to a backend. Only a gateway's
/// packet with exactly the three options in their usual order has an origin: an answer could not
/// restore other options.
#[inline(always)]
pub fn attachment(window: &Window<'_>, work: &Work, gateway: u16) -> (u64, u32) {
    let gateways = work.front.arrival == Arrival::Gateway;
    if gateways && work.front.marks & Front::USUAL_OPTIONS != 0 {
        // The cookie is the last option.
        let at = usize::from(work.front.options_at) + OWN_OPTIONS - 4;
        let cookie = window.be32(at).unwrap_or(0);
        let outer = &work.front.outer;
        if let Some(origin) = Origin::new(gateway, &outer.src, outer.sport, cookie) {
            return (origin.attachment(work.hash), cookie);
        }
    }
    (without_origin(gateway), work.hash as u32)
}

/// Records the return leg to the endpoint and node of a gateway's packet, when a GENEVE tunnel flow
/// begins or changes its leg.
#[inline(never)]
pub fn note(window: &Window<'_>, work: &Work, lcore: &Lcore<'_>) {
    let snapshot = lcore.snapshot();
    if work.front.arrival != Arrival::Gateway || work.front.marks & Front::USUAL_OPTIONS == 0 {
        return;
    }
    let service = lcore.set().service(work.service);
    if service.is_none_or(|service| service.tunnel != TunnelKind::Geneve as u8) {
        return;
    }
    let Some(tunnel) = snapshot.tunnels.get(usize::from(work.front.tunnel)) else { return };
    let (at, len, class) =
        (work.front.options_at, work.front.options_len, tunnel.record.option_class);
    let Some(options) = geneve::usual_options(window, at, len, class) else { return };
    let mut leg = leg::gateway_leg(window, work, snapshot);
    leg.node_port = 0;
    lcore.return_legs().note(options.endpoint, options.attachment, tunnel.record.gateway, &leg);
}

/// Returns the origin that a backend's packet without a flow names, if it is valid for the return
/// path: the packet is whole, and its options are those sent to the backend with this flow's
/// packets.
#[cold]
pub fn named(window: &Window<'_>, work: &Work, lcore: &Lcore<'_>) -> Option<Origin> {
    let tunnel = lcore.snapshot().tunnels.get(usize::from(work.front.tunnel))?;
    if work.hash == 0 || !is_of_itself(&work.inner, work.quoted.as_ref()) {
        return None;
    }
    let (at, len, class) =
        (work.front.options_at, work.front.options_len, tunnel.record.option_class);
    let options = geneve::usual_options(window, at, len, class)?;
    Origin::of_flow(options.attachment, options.cookie, work.hash)
}

/// Returns true if a backend's packet without a flow can be returned by the origin that it names:
/// it must come from the backend that selection yields for its flow. Sets service, backend and
/// path.
#[cold]
pub fn goes_back(window: &Window<'_>, work: &mut Work, lcore: &Lcore<'_>) -> bool {
    if named(window, work, lcore).is_none() {
        return false;
    }
    let set = lcore.set();
    let (ip, from) = (work.quoted.as_ref().unwrap_or(&work.inner), work.front.outer.src);
    let Some((service, backend)) = set.answering(work.front.scope_key, ip, work.hash, &from) else {
        return false;
    };
    (work.service, work.backend) = (service, backend);
    work.path = Forward::of_answer(&work.inner, service, backend, &from);
    true
}

/// Fills in the return leg of a packet for which [`goes_back`] returned true. Returns false if
/// there is none.
#[cold]
pub fn answer(window: &Window<'_>, work: &Work, lcore: &Lcore<'_>, out: &mut Answer) -> bool {
    let Some(origin) = named(window, work, lcore) else { return false };
    lcore.return_legs().answer(lcore.set(), work.front.scope_key, &origin, out)
}

/// Returns the drop reason of an answer, or of an error about one, whose flow is unknown.
pub const fn unknown(work: &Work) -> DropReason {
    match work.quoted {
        Some(_) => DropReason::IcmpUnknownFlow,
        None => DropReason::NoFlow,
    }
}
