//! Each field of a service takes effect or is rejected: none is accepted and ignored.

use health::node_port;
use health::plan::{ProbeSettings, plan};
use serde_json::{Value, json};
use state::frontend::Progress;
use state::object::{Kind, Object, schema};
use state::reconcile::{Now, Reconciler, Settings};
use state::show::Table;
use tables::writer::Writer;

use super::*;
use crate::sources::desired::{Desired, appliance, open_store};

/// Where the value of a field is visible.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// In the records that lcores read.
    Region,
    /// In the targets of health probes.
    Probes,
    /// In the response on the health check port.
    HealthPort,
    /// In the object's condition `Complete`.
    Condition,
    /// In `weir db show services` only: information for people, like labels.
    Note,
    /// Nowhere: the object is rejected with this error.
    Refused(&'static str),
}

/// All that is derived from one service.
#[derive(PartialEq, Debug)]
struct Shown {
    region: Vec<String>,
    probes: String,
    health_port: String,
    condition: String,
    note: String,
}

impl Shown {
    fn at(&self, seen: Seen) -> String {
        match seen {
            Seen::Region => self.region.join("\n"),
            Seen::Probes => self.probes.clone(),
            Seen::HealthPort => self.health_port.clone(),
            Seen::Condition => self.condition.clone(),
            Seen::Note => self.note.clone(),
            Seen::Refused(_) => String::new(),
        }
    }
}

/// Returns frontends of both families, of the cluster, and a host port, with backends in several
/// locations.
fn base() -> Value {
    json!({
        "mode": "nat",
        "frontends": [
            {"address": "203.0.113.1", "port": 80, "protocol": "tcp"},
            {"address": "2001:db8::1", "port": 80, "protocol": "tcp"},
            {"address": "10.96.0.1", "port": 80, "protocol": "tcp", "type": "ClusterIP"},
            {"address": "0.0.0.0", "port": 9090, "protocol": "tcp", "type": "HostPort"},
        ],
    })
}

/// Returns each field, another value of it, the fields that the value requires beside it, and where
/// it is visible.
fn fields() -> Vec<(&'static str, Value, Value, Seen)> {
    let tunnel = json!({"mode": "tunnel", "tunnel": "geneve"});
    let ignored = json!({ state::kubernetes::IGNORED: "a field" });
    let fewer = json!([base()["frontends"][0].clone()]);
    let alone = json!({});
    let of = |field, value, seen| (field, value, alone.clone(), seen);
    vec![
        of("properties", ignored, Seen::Condition),
        of("nat_policy", json!("nat64"), Seen::Region),
        of("external_policy", json!("local"), Seen::Region),
        of("internal_policy", json!("local"), Seen::Region),
        of("distribution", json!("same-zone"), Seen::Region),
        ("mode", json!("dsr"), tunnel.clone(), Seen::Region),
        ("tunnel", json!("vxlan"), tunnel.clone(), Seen::Region),
        ("tunnel_port", json!(6082), tunnel.clone(), Seen::Region),
        ("vni", json!(5), tunnel.clone(), Seen::Region),
        ("outer_checksum", json!(true), tunnel.clone(), Seen::Region),
        ("dont_fragment", json!(false), tunnel, Seen::Region),
        of("algorithm", json!("random"), Seen::Region),
        of("loopback_host_port", json!(true), Seen::Region),
        of("delegate_if_local", json!(true), Seen::Refused("spec.delegate_if_local: true")),
        of("affinity_s", json!(30), Seen::Region),
        // Load balancers check for local backends, and only with the local policy.
        ("health_check_port", json!(31_000), json!({"external_policy": "local"}), Seen::HealthPort),
        of("health", json!({"kind": "tcp"}), Seen::Probes),
        of("mss", json!(1400), Seen::Region),
        of("tcp_idle_s", json!(60), Seen::Region),
        of("udp_idle_s", json!(60), Seen::Region),
        of("table_size", json!(509), Seen::Region),
        of("too_big", json!("drop"), Seen::Region),
        of("failed_udp", json!("keep"), Seen::Region),
        of("failed_tcp", json!("reset"), Seen::Region),
        of("proxy_redirect", json!({"port": 9000}), Seen::Region),
        of("source_ranges", json!(["198.51.100.0/24"]), Seen::Region),
        ("source_policy", json!("deny"), json!({"source_ranges": ["10.0.0.0/8"]}), Seen::Region),
        of("port_names", json!({"http": 80}), Seen::Note),
        of("frontends", fewer, Seen::Region),
    ]
}

fn object(kind: &str, spec: &Value) -> Result<Object, String> {
    let json = json!({"kind": kind, "name": "web", "source": "file", "spec": spec});
    Object::from_json(&json).map_err(|refusal| refusal.to_string())
}

/// Returns all records that lcores read, with indices into the slot arena replaced by the content.
fn records(writer: &Writer<'_>) -> Vec<String> {
    let set = writer.committed();
    let mut lines = Vec::new();
    for (id, service) in set.services() {
        let name = set.service_name(id).unwrap();
        let slots: Vec<u32> = set.slots(&service.slots).collect();
        let ranges: Vec<u32> = set.slots(&service.ranges).collect();
        let stays: Vec<u32> = set.slots(&service.affinity_backends).collect();
        let plain = tables::record::Service {
            slots: Default::default(),
            ranges: Default::default(),
            affinity_backends: Default::default(),
            ..*service
        };
        lines.push(format!("service {name}: {plain:?} {slots:?} {ranges:?} {stays:?}"));
    }
    for (id, backend) in set.backends() {
        lines.push(format!("backend {id}: {backend:?}"));
    }
    for (key, service) in set.frontends() {
        let name = set.service_name(service).unwrap();
        lines.push(format!("frontend {key:?}: {name}"));
    }
    lines.sort();
    lines
}

/// Applies an object to the region and to all other readers of the tables of services.
fn shown(spec: &Value) -> Shown {
    let text = format!("zone = \"a\"\nlocal = [\"n1\"]\nexternal_cluster_ip = true\n{CONFIG}");
    let config = Arc::new(config::from_toml(&text).unwrap());
    let sizes = Sizes { slots: 1 << 15, nat_maps: 64, ..Sizes::SMALL };
    let mut plane = RegionPlane::attach(region(&sizes), &config).unwrap();
    let appliance = appliance(&config);
    plane.set_appliance(&appliance);
    let now = Now { steady: std::time::Instant::now(), wall: SystemTime::UNIX_EPOCH };
    let store = Arc::new(open_store(None).unwrap());
    let mut desired = Desired::new(&config, Arc::clone(&store), &[], now.wall);
    let endpoint = |last: u8, node: &str, zone: &str| {
        json!({"address": format!("10.0.2.{last}"), "port": 8080, "protocol": "tcp",
               "weight": last, "node": node, "zone": zone})
    };
    let endpoints = [endpoint(11, "n1", "a"), endpoint(12, "n2", "a"), endpoint(13, "n3", "b")];
    let backends = object("Backends", &json!({"service": "web", "endpoints": endpoints}));
    desired
        .apply_now(&[object("Service", spec).unwrap(), backends.unwrap()], &[], now.wall)
        .unwrap();
    let mut reconciler = Reconciler::new(Settings::default());
    reconciler.step(now, &desired.writer.changes_since(0), &appliance, &mut plane);
    plane.take_outcome().unwrap().unwrap();
    let tables = desired.writer.tables();
    assert!(tables.frontends().next().is_some(), "{spec} is not in the tables");
    for frontend in tables.frontends() {
        let status = frontend.status();
        assert!(!matches!(status.progress, Progress::Error(_)), "{spec}: {frontend:?}");
    }
    let entry = tables.entry(&Name::new("web").unwrap()).unwrap();
    let place =
        ProbeSettings { probing: config.health.probing.clone(), tunnel_entries: Vec::new() };
    let objects = store.objects();
    let state_of_note: Vec<_> =
        objects.of_kind(Kind::Service).map(|object| object.lifecycle().status.clone()).collect();
    Shown {
        region: records(&plane.writer),
        probes: format!("{:?}", plan(entry, &place)),
        health_port: format!("{:?}", node_port::local(entry, &appliance)),
        condition: format!("{state_of_note:?}"),
        note: format!("{:?}", Table::Services.rows(&tables, &appliance)),
    }
}

fn with(spec: &Value, more: &Value) -> Value {
    let (mut spec, more) = (spec.as_object().unwrap().clone(), more.as_object().unwrap().clone());
    spec.extend(more);
    spec.into()
}

#[test]
fn every_service_field_is_applied_or_rejected() {
    let (all, schema) = (fields(), schema(Kind::Service, &mut Default::default()));
    let mut known: Vec<&str> = all.iter().map(|(field, ..)| *field).collect();
    let there = schema["properties"]["spec"]["properties"].as_object().unwrap();
    let mut there: Vec<&str> = there.keys().map(String::as_str).collect();
    known.sort_unstable();
    there.sort_unstable();
    assert_eq!(known, there, "a new field changes the tables or is rejected");
    assert_eq!(shown(&base()), shown(&base()), "equal services give equal tables");
    for (field, value, beside, seen) in all {
        let before = with(&base(), &beside);
        let after = with(&before, &json!({ field: value }));
        if let Seen::Refused(words) = seen {
            let told = object("Service", &after).unwrap_err();
            assert!(told.contains(words) && told.contains("allowed: "), "{field}: {told}");
            assert!(object("Service", &before).is_ok());
            continue;
        }
        let (old, new) = (shown(&before).at(seen), shown(&after).at(seen));
        assert!(!old.is_empty() && !new.is_empty(), "{field} = {value} shows nothing in {seen:?}");
        assert_ne!(old, new, "{field} = {value} changes nothing in {seen:?}");
    }
}
