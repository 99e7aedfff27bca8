//! Where a gateway's packet came from, said to the backend in our own GENEVE options, and the way
//! back for an answer whose flow is in no table (see [`packet::origin`], [`tables::return_leg`]).

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

/// Attachment and cookie of a packet to a backend, as our own options have them. Only a gateway's
/// packet whose options are the three, in their usual order, has an origin: of others an answer
/// could not bring all of them back.
#[inline(always)]
pub fn attachment(window: &Window<'_>, work: &Work, gateway: u16) -> (u64, u32) {
    let gateways = work.front.arrival == Arrival::Gateway;
    if gateways && work.front.marks & Front::USUAL_OPTIONS != 0 {
        // The cookie is the last of them.
        let at = usize::from(work.front.options_at) + OWN_OPTIONS - 4;
        let cookie = window.be32(at).unwrap_or(0);
        let outer = &work.front.outer;
        if let Some(origin) = Origin::new(gateway, &outer.src, outer.sport, cookie) {
            return (origin.attachment(work.hash), cookie);
        }
    }
    (without_origin(gateway), work.hash as u32)
}

/// Notes the way back to the endpoint and node of a gateway's packet, when a flow by a GENEVE
/// tunnel begins or changes its leg.
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

/// The origin that a backend's packet of no known flow names, if it may go back by that: it is
/// whole, and its options are those that this flow's packets went to the backend with.
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

/// Whether a backend's packet of no known flow goes back by the origin that it names: it has to
/// come from the backend that selection gives its flow. Then service, backend and path are set.
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

/// The way back for a packet that [`goes_back`].
#[cold]
pub fn answer(window: &Window<'_>, work: &Work, lcore: &Lcore<'_>, out: &mut Answer) -> bool {
    let Some(origin) = named(window, work, lcore) else { return false };
    lcore.return_legs().answer(lcore.set(), work.front.scope_key, &origin, out)
}

/// Why an answer, or an error about one, is dropped where its flow is not known.
pub const fn unknown(work: &Work) -> DropReason {
    match work.quoted {
        Some(_) => DropReason::IcmpUnknownFlow,
        None => DropReason::NoFlow,
    }
}
