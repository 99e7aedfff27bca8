//! Queries of the tables by tests, and their evaluation: compiled for the kernel and for the
//! host.

use packet::addr::Addr;
use packet::flow::{FlowKey, Side};
use tables::flow::IndexError;
use tables::flow::{
    Answer, Flows, Forward, GatewayLeg, InsertError, NewFlow, OptionWords, Options,
};
use tables::fragment::{FragmentKey, FragmentTarget, Fragments};
use tables::set::TableSet;

/// [`Query::outcome`]: no result.
pub const MISSED: u32 = u32::MAX;
/// [`Query::sides`]: for `insert`, the front key's high end is the initiator; for `answer`, `leg`
/// and `remember`, the flow's initiator sent the packet.
pub const FRONT_HIGH: u8 = 1;
/// [`Query::sides`]: there is a back key.
pub const BACK: u8 = 2;
/// [`Query::sides`]: the back key's high end is the initiator.
pub const BACK_HIGH: u8 = 4;

/// A query with its result.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Query {
    /// Scope key of a frontend query; for `scope`, the endpoint.
    pub scope_key: u64,
    /// The hash that selects a backend; for `count`, a packet's length in bytes.
    pub hash: u64,
    /// The result as one number, or [`MISSED`].
    pub outcome: u32,
    /// Further results; for `count`, service id and backend id.
    pub more: [u32; 5],
    /// Second of the region's clock.
    pub now_s: u32,
    /// Bytes of options.
    pub option_len: u32,
    /// A NAT port map; for `remember`, a flow's path; for `count`, an lcore.
    pub nat_map: u32,
    /// The digest of a leg; for `remember`, a flow's stamp.
    pub digest: u32,
    /// The first port of a range.
    pub first: u16,
    /// The last port of a range.
    pub last: u16,
    /// A port; for `scope`, the gateway's number.
    pub port: u16,
    /// A protocol number; for `answer`, TCP flags; for `scope`, the gateway's kind; for `count`, an
    /// arm.
    pub proto: u8,
    /// [`FRONT_HIGH`], [`BACK`], [`BACK_HIGH`].
    pub sides: u8,
    /// A destination address.
    pub addr: Addr,
    /// A flow's key on the gateway's side, by which it is looked up.
    pub front: FlowKey,
    /// A flow's key on the backend's side.
    pub back: FlowKey,
    /// How the flow is forwarded.
    pub forward: Forward,
    /// Its gateway leg.
    pub gateway: GatewayLeg,
    /// Its options.
    pub options: OptionWords,
    /// The data for answers of the flow.
    pub answer: Answer,
}

fn side(high: bool) -> Side {
    if high { Side::High } else { Side::Low }
}

/// Looks up the service at `addr:port`, whether it admits the client `front.low`, the backend that
/// it selects, and that backend's next hop.
#[inline(always)]
pub fn frontend(query: &mut Query, set: &TableSet<'_>) {
    (query.outcome, query.more[0]) = (MISSED, MISSED);
    let Some(id) = set.frontend(query.scope_key, &query.addr, query.port, query.proto) else {
        return;
    };
    query.outcome = id;
    let Some(service) = set.service(id) else { return };
    query.more[2] = set.admits(service, &query.front.low).into();
    let Some(backend) = set.pick(service, query.hash) else { return };
    query.more[0] = backend;
    let Some(backend) = set.backend(backend) else { return };
    query.answer.forward.backend_addr = backend.addr;
    let Some(hop) = set.next_hop(backend.next_hop) else { return };
    query.more[1] = u32::from(hop.mtu) << 16 | u32::from(hop.known) << 8 | u32::from(hop.arm);
}

/// Fills in a new flow.
#[inline(always)]
pub fn new_flow(query: &Query, to: &mut NewFlow) {
    to.front = query.front;
    to.front_initiator = side(query.sides & FRONT_HIGH != 0);
    let back = (query.back, side(query.sides & BACK_HIGH != 0));
    to.back = if query.sides & BACK != 0 { Some(back) } else { None };
    to.forward = query.forward;
    to.gateway = query.gateway;
    to.digest = query.digest;
    to.nat_map = query.nat_map;
    to.idle_s = 0;
}

/// Looks up the flow of `front`, and records the time of its use.
#[inline(always)]
pub fn find(query: &mut Query, flows: &Flows<'_>) {
    query.outcome = MISSED;
    let Some(hit) = flows.find(flows.hash(&query.front), &query.front) else { return };
    query.outcome = hit.path;
    query.more = [hit.entry, hit.stamp, hit.digest, hit.last_seen_s, hit.is_front().into()];
    flows.touch(&hit, query.now_s);
}

/// Records a segment's flags in the flow of `front`, and looks up the data for its answer.
#[inline(always)]
pub fn answer(query: &mut Query, flows: &Flows<'_>) {
    query.outcome = MISSED;
    let Some(hit) = flows.find(flows.hash(&query.front), &query.front) else { return };
    let state = flows.note(&hit, query.proto, query.sides & FRONT_HIGH != 0);
    if flows.answer(&hit, query.sides & FRONT_HIGH != 0, &mut query.answer).is_ok() {
        query.outcome = hit.path;
        query.more[0] = state as u32;
    }
}

/// Records the leg of a packet.
#[inline(always)]
pub fn leg(query: &Query, options: Options<'_>, flows: &Flows<'_>) -> u32 {
    let Some(hit) = flows.find(flows.hash(&query.front), &query.front) else { return MISSED };
    let from_initiator = query.sides & FRONT_HIGH != 0;
    flows.update_gateway(&hit, from_initiator, &query.gateway, options, query.digest) as u32
}

/// Looks up initiator and target of the flow of `front`, and the flow's front entry by its path.
#[inline(always)]
pub fn ends(query: &mut Query, flows: &Flows<'_>) {
    query.outcome = MISSED;
    let Some(hit) = flows.find(flows.hash(&query.front), &query.front) else { return };
    if let Ok(ends) = flows.ends(&hit) {
        query.outcome = ends.scope << 8 | u32::from(ends.proto);
        (query.answer.gateway.node, query.answer.gateway.node_port) = ends.initiator;
        (query.answer.gateway.local, query.answer.gateway.local_port) = ends.target;
    }
    let Some(stamp) = flows.front_stamp(&hit) else { return };
    let Some(front) = flows.revisit(hit.path, stamp) else { return };
    query.more = [front.entry, front.stamp, front.path, front.digest, stamp];
}

/// Removes the flow of `front`. Returns its scope, [`MISSED`] if there is no such flow, or
/// `MISSED - 1` if it could not be removed.
#[inline(always)]
pub fn remove(query: &Query, flows: &Flows<'_>) -> u32 {
    let Some(hit) = flows.find(flows.hash(&query.front), &query.front) else { return MISSED };
    flows.remove(&hit).map_or(MISSED - 1, |ended| ended.scope)
}

/// Returns the path of a new flow, or a number from `MISSED - 6` to `MISSED - 1` for the error.
#[inline(always)]
pub fn insert_outcome(result: Result<tables::flow::Hit, InsertError>) -> u32 {
    match result {
        Ok(hit) => hit.path,
        Err(InsertError::Full) => MISSED - 1,
        Err(InsertError::Contended) => MISSED - 2,
        Err(InsertError::Exists(_)) => MISSED - 3,
        Err(InsertError::BackTaken(_)) => MISSED - 4,
        Err(InsertError::NoSlab) => MISSED - 5,
        Err(InsertError::OptionsTooLong) => MISSED - 6,
    }
}

/// Inserts an entry for the later fragments of a datagram into the fragment table.
#[inline(always)]
pub fn remember(query: &mut Query, fragments: &Fragments<'_>) {
    let (scope, proto) = (query.front.scope, query.proto);
    let (src, dst, id) = (query.front.low, query.front.high, query.front.ports);
    let key = FragmentKey { scope, src, dst, id, proto };
    let (path, from_initiator) = (query.nat_map, query.sides & FRONT_HIGH != 0);
    let target = FragmentTarget::Flow { path, stamp: query.digest, from_initiator };
    query.outcome = match fragments.insert_over_expired(&key, target, query.now_s) {
        Ok(()) => 0,
        Err(IndexError::Full) => 1,
        Err(IndexError::Contended) => 2,
    };
}

/// Looks up the entry of a datagram in the fragment table.
#[inline(always)]
pub fn datagram(query: &mut Query, fragments: &Fragments<'_>) {
    let (scope, proto) = (query.front.scope, query.proto);
    let (src, dst, id) = (query.front.low, query.front.high, query.front.ports);
    let key = FragmentKey { scope, src, dst, id, proto };
    (query.outcome, query.more) = match fragments.find(&key, query.now_s) {
        None => (MISSED, [0; 5]),
        Some(FragmentTarget::Return) => (1, [0; 5]),
        Some(FragmentTarget::Flow { path, stamp, from_initiator }) => {
            (0, [path, stamp, from_initiator.into(), 0, 0])
        }
    };
}
