//! Insertion of new flows, and eviction of others if the table is full.

use crate::burst::PacketState;
use crate::lcore::Lcore;
use crate::leg;
use crate::track::{record_fragment, set_backend_verdict};
use packet::flow::{FlowKey, Side};
use packet::ip::Fragment;
use packet::window::Window;
use tables::counters::{Counter, ServiceCounter};
use tables::flow::{EndedFlow, Hit, InsertError, NewFlow, PATH_ONE_WAY};
use tables::fragment::FragmentTarget;
use tables::record::{NONE, Service};

/// Uses the entry of the same flow that another lcore has just inserted. Returns `None` if the
/// entry is gone.
pub fn adopt(pkt: &mut PacketState, lcore: &Lcore<'_>) -> Option<()> {
    let hit = lcore.flows().find(pkt.hash, &pkt.key)?;
    pkt.path = lcore.flows().forward(&hit).ok()?;
    set_flow(pkt, hit);
    set_backend_verdict(pkt);
    Some(())
}

fn set_flow(pkt: &mut PacketState, hit: Hit) {
    pkt.service = pkt.path.service;
    pkt.backend = pkt.path.backend;
    pkt.hit = Some(hit);
}

/// Counts a flow that was evicted. Returns true if there was one.
pub fn count_evicted(lcore: &Lcore<'_>, ended: Option<EndedFlow>) -> bool {
    if let Some(EndedFlow { forward, .. }) = &ended {
        lcore.page().flow_ended(forward.service, forward.backend);
        lcore.page().count(Counter::FlowsEvicted, 1);
    }
    ended.is_some()
}

/// Inserts the flow of `pkt`, and records it for later fragments if it begins with a first one.
pub fn insert(
    window: &Window<'_>,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    service: &Service,
    back: Option<(FlowKey, Side)>,
    nat_map: u32,
) -> Result<(), InsertError> {
    let mut buffer = [0; leg::MAX_OPTIONS_LEN];
    let new = NewFlow {
        front: pkt.key,
        front_initiator: pkt.side,
        back,
        forward: pkt.path,
        gateway: leg::gateway_leg(window, pkt, lcore.snapshot()),
        digest: leg::digest(window, pkt),
        nat_map,
        idle_s: service.idle_s(pkt.path.proto),
    };
    let options = leg::options(window, pkt, &mut buffer);
    lcore.flow_addresses().add(&pkt.inner.dst);
    let flows = lcore.flows();
    let hashes = [pkt.hash, back.map_or(pkt.hash, |(key, _)| flows.hash(&key))];
    let hit = match flows.insert_hashed(&new, hashes, options, lcore.now_s()) {
        Err(InsertError::Full | InsertError::NoSlab) if count_evicted(lcore, flows.evict_any()) => {
            pkt.frees_ports = true;
            flows.insert_hashed(&new, hashes, options, lcore.now_s())
        }
        done => done,
    };
    let hit = match hit {
        Ok(hit) => hit,
        Err(InsertError::Exists(_)) if nat_map == NONE => {
            adopt(pkt, lcore).ok_or(InsertError::Contended)?;
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    pkt.hit = Some(hit);
    lcore.count_new_flow(service.needs_entry());
    if let Some(flags) = pkt.inner.kind.flow_flags() {
        flows.note(&hit, flags, true);
    }
    pkt.frees_ports |=
        count_evicted(lcore, flows.add_unconfirmed(&hit, pkt.path.flags & PATH_ONE_WAY != 0));
    lcore.page().service(pkt.service, ServiceCounter::NewFlows, 1);
    lcore.page().backend(pkt.backend, ServiceCounter::NewFlows, 1);
    if pkt.inner.fragment == Fragment::First {
        let target =
            FragmentTarget::Flow { path: hit.path, stamp: hit.stamp, from_initiator: true };
        record_fragment(pkt, lcore, target);
    }
    Ok(())
}
