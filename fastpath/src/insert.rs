//! Insertion of new flows, and eviction of others if the table is full.

use crate::burst::Work;
use crate::lcore::Lcore;
use crate::leg;
use crate::track::{remember, towards_backend};
use packet::flow::{FlowKey, Side};
use packet::ip::Fragment;
use packet::window::Window;
use tables::counters::{Counter, ServiceCounter};
use tables::flow::{Ended, Hit, InsertError, NewFlow, PATH_ONE_WAY};
use tables::fragment::FragmentTarget;
use tables::record::{NONE, Service};

/// Uses the entry of the same flow that another lcore has just inserted.
pub fn adopt(work: &mut Work, lcore: &Lcore<'_>) -> Option<()> {
    let hit = lcore.flows().find(work.hash, &work.key)?;
    work.path = lcore.flows().forward(&hit).ok()?;
    settle(work, hit);
    towards_backend(work);
    Some(())
}

fn settle(work: &mut Work, hit: Hit) {
    work.service = work.path.service;
    work.backend = work.path.backend;
    work.hit = Some(hit);
}

/// Counts a flow that was evicted. Returns true if there was one.
pub fn evicted(lcore: &Lcore<'_>, ended: Option<Ended>) -> bool {
    if let Some(Ended { forward, .. }) = &ended {
        lcore.page().flow_ended(forward.service, forward.backend);
        lcore.page().count(Counter::FlowsEvicted, 1);
    }
    ended.is_some()
}

/// Inserts the flow of `work`, and records it for later fragments if it begins with a first one.
pub fn insert(
    window: &Window<'_>,
    work: &mut Work,
    lcore: &Lcore<'_>,
    service: &Service,
    back: Option<(FlowKey, Side)>,
    nat_map: u32,
) -> Result<(), InsertError> {
    let mut room = [0; leg::OPTIONS];
    let new = NewFlow {
        front: work.key,
        front_initiator: work.side,
        back,
        forward: work.path,
        gateway: leg::gateway_leg(window, work, lcore.snapshot()),
        digest: leg::digest(window, work),
        nat_map,
        idle_s: service.idle_s(work.path.proto),
    };
    let options = leg::options(window, work, &mut room);
    lcore.flow_addresses().add(&work.inner.dst);
    let flows = lcore.flows();
    let hashes = [work.hash, back.map_or(work.hash, |(key, _)| flows.hash(&key))];
    let hit = match flows.insert_hashed(&new, hashes, options, lcore.now_s()) {
        Err(InsertError::Full | InsertError::NoSlab) if evicted(lcore, flows.make_room()) => {
            work.frees_ports = true;
            flows.insert_hashed(&new, hashes, options, lcore.now_s())
        }
        done => done,
    };
    let hit = match hit {
        Ok(hit) => hit,
        Err(InsertError::Exists(_)) if nat_map == NONE => {
            adopt(work, lcore).ok_or(InsertError::Contended)?;
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    work.hit = Some(hit);
    lcore.count_new_flow(service.needs_entry());
    if let Some(flags) = work.inner.kind.flow_flags() {
        flows.note(&hit, flags, true);
    }
    work.frees_ports |= evicted(lcore, flows.hold(&hit, work.path.flags & PATH_ONE_WAY != 0));
    lcore.page().service(work.service, ServiceCounter::NewFlows, 1);
    lcore.page().backend(work.backend, ServiceCounter::NewFlows, 1);
    if work.inner.fragment == Fragment::First {
        let target =
            FragmentTarget::Flow { path: hit.path, stamp: hit.stamp, from_initiator: true };
        remember(work, lcore, target);
    }
    Ok(())
}
