//! Test fixtures: tables built from objects, policies built from JSON, and a fake speaker that
//! records calls and has no sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bgp::advertise::Table as RouteTable;
use bgp::peer::{Event, Peer, Stop};
use bgp::status::{AdvertisedRoute, PeerStatus};
use bgp::wire::Family;
use config::checked::ArmName;
use serde_json::{Value, json};
use state::appliance::Appliance;
use state::frontend::Progress;
use state::labels::Pairs;
use state::name::{Name, Precedence};
use state::object::{Change, Object, Objects, Spec};
use state::reflect::Reflector;
use state::tables::Tables;
use state::writer::Writer;

use crate::select::{Origin, Policy};
use crate::snapshot::ControlPlaneState;
use crate::speaker::{PeerConfig, PeerKey, Speaker};

/// Returns labels or annotations.
pub fn pairs(all: &[(&str, &str)]) -> Pairs {
    let all = all.iter().map(|(key, value)| ((*key).into(), (*value).into()));
    Some(Arc::new(all.collect()))
}

/// Returns a policy with this name and these routers, which selects every appliance.
pub fn policy(name: &str, routers: Value) -> Policy {
    selecting(name, json!({}), routers)
}

/// Returns a policy with this name and these routers, which selects appliances with these labels.
pub fn selecting(name: &str, labels: Value, routers: Value) -> Policy {
    let spec = json!({"node_selector": {"match_labels": labels}, "routers": routers});
    let object = json!({"kind": "BgpPeeringPolicy", "name": name, "spec": spec});
    match Object::from_json(&object).unwrap().spec {
        Spec::BgpPeeringPolicy(spec) => {
            Policy { name: Name::new(name).unwrap(), spec, origin: Origin::default() }
        }
        other => panic!("{other:?}"),
    }
}

/// Returns a router that announces all load balancer addresses to one neighbor.
pub fn router(asn: u32, neighbor: &str) -> Value {
    json!({"local_asn": asn, "advertisements": [{"services": {}}],
        "neighbors": [{"address": neighbor, "asn": 65000}]})
}

/// Returns a service with these frontends, each given by address, port and type. `more` has further
/// keys of its spec; `labels` in it are the labels of the object.
pub fn service(name: &str, more: Value, frontends: &[(&str, u16, &str)]) -> Value {
    let frontend = |(address, port, kind): &(&str, u16, &str)| {
        let protocol = "tcp";
        json!({"address": address, "port": port, "protocol": protocol, "type": kind})
    };
    let frontends: Vec<Value> = frontends.iter().map(frontend).collect();
    let mut spec = json!({"mode": "nat", "frontends": frontends});
    let more = more.as_object().cloned().unwrap_or_default();
    let labels = more.get("labels").cloned();
    for (key, value) in more.into_iter().filter(|(key, _)| key != "labels") {
        spec[key] = value;
    }
    json!({"kind": "Service", "name": name, "labels": labels.unwrap_or(json!({})), "spec": spec})
}

/// Returns the backends of a service, each given by address, state and node.
pub fn backends(service: &str, all: &[(&str, &str, &str)]) -> Value {
    let one = |(address, state, node): &(&str, &str, &str)| {
        json!({"address": address, "port": 80, "protocol": "tcp", "state": state,
            "node": node})
    };
    let endpoints: Vec<Value> = all.iter().map(one).collect();
    json!({"kind": "Backends", "name": service, "spec": {"service": service,
        "endpoints": endpoints}})
}

/// Returns the tables of these objects, with all frontends acknowledged by the data plane.
pub fn tables(objects: &[Value]) -> Tables {
    let tables = pending_tables(objects);
    for row in tables.frontends() {
        row.set_status(Progress::Done, None, SystemTime::UNIX_EPOCH);
    }
    tables
}

/// Returns the tables of these objects, with all frontends pending.
pub fn pending_tables(objects: &[Value]) -> Tables {
    let (mut all, writer) = (Objects::default(), Writer::new());
    let mut events = Vec::new();
    for object in objects {
        let change = Change::put(Object::from_json(object).unwrap());
        events.extend(all.apply(&change, SystemTime::UNIX_EPOCH).unwrap());
    }
    let mut reflector = Reflector::new(Precedence::default(), ArmName::Egress);
    let mut to = writer.begin(SystemTime::UNIX_EPOCH);
    let errors = reflector.apply(&all, &events, &mut to);
    assert!(errors.is_empty(), "{errors:?}");
    to.commit();
    writer.tables()
}

/// Returns the snapshot of an appliance that takes traffic, with name `edge-1`, local node `n1`,
/// addresses of both families and these tables.
pub fn state(tables: Tables) -> ControlPlaneState {
    let mut state = ControlPlaneState::new(Instant::now());
    state.name = "edge-1".into();
    state.labels = pairs(&[("rack", "a")]);
    state.ipv4 = Some([192, 0, 2, 10].into());
    state.ipv6 = "2001:db8::10".parse().ok();
    state.plane.forwarding = true;
    state.plane.complete = true;
    state.plane.owned = [state.ipv4.map(IpAddr::V4), state.ipv6.map(IpAddr::V6)]
        .into_iter()
        .flatten()
        .collect::<BTreeSet<_>>();
    let local = BTreeSet::from(["n1".into()]);
    state.plane.appliance = Arc::new(Appliance { local, ..Appliance::default() });
    state.plane.acknowledged = crate::snapshot::Acknowledged::default().update(&tables);
    state.plane.tables = tables;
    state
}

/// A speaker that records its calls. Its peers are state machines without sockets.
#[derive(Default)]
pub struct Recorder {
    pub calls: Vec<String>,
    pub peers: BTreeMap<PeerKey, (PeerConfig, Peer, Arc<RouteTable>)>,
    /// [`Speaker::all_sent`] returns false.
    pub never_sent: bool,
}

impl Recorder {
    /// Returns the calls since the previous `take_calls`.
    pub fn take_calls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls)
    }

    /// Returns the prefixes that were last set for each peer.
    pub fn routes(&self) -> BTreeMap<PeerKey, Vec<String>> {
        let prefixes = |table: &RouteTable| table.routes.keys().map(ToString::to_string).collect();
        self.peers.iter().map(|(key, (_, _, table))| (*key, prefixes(table))).collect()
    }
}

/// Returns the name of a peer in recorded calls.
fn name(key: PeerKey) -> String {
    format!("{}-{}", key.local_asn, key.peer.ip())
}

impl Speaker for Recorder {
    fn add(&mut self, key: PeerKey, config: &PeerConfig) {
        self.calls.push(format!("add {}", name(key)));
        let mut peer = Peer::new(config.settings.clone(), Instant::now());
        peer.step(Instant::now(), Event::Start);
        let before = self.peers.insert(key, (config.clone(), peer, Arc::default()));
        assert!(before.is_none(), "{key:?} exists already");
    }

    fn remove(&mut self, key: PeerKey, why: Stop) {
        self.calls.push(format!("remove {} {why:?}", name(key)));
        assert!(self.peers.remove(&key).is_some(), "{key:?} does not exist");
    }

    fn set_keys(&mut self, key: PeerKey, config: &PeerConfig) {
        self.calls.push(format!("keys {}", name(key)));
        let (own, ..) = self.peers.get_mut(&key).unwrap();
        assert!(own.can_rekey_to(config), "{config:?}");
        *own = config.clone();
    }

    fn set_routes(&mut self, key: PeerKey, table: &Arc<RouteTable>) {
        self.calls.push(format!("routes {} {}", name(key), table.routes.len()));
        let (_, peer, own) = self.peers.get_mut(&key).unwrap();
        peer.step(Instant::now(), Event::Desired(Arc::clone(table)));
        *own = Arc::clone(table);
    }

    fn complete(&mut self) {
        self.calls.push("complete".to_owned());
    }

    fn graceful_shutdown(&mut self, on: bool) {
        self.calls.push(format!("graceful shutdown {on}"));
    }

    fn all_sent(&self) -> bool {
        !self.never_sent
    }

    fn peers(&self, now: Instant) -> Vec<(PeerKey, PeerStatus)> {
        self.peers.iter().map(|(key, (_, peer, _))| (*key, peer.status(now))).collect()
    }

    fn advertised(&self, key: PeerKey, family: Family) -> Vec<AdvertisedRoute> {
        self.peers.get(&key).map(|(_, peer, _)| peer.advertised(family)).unwrap_or_default()
    }
}
