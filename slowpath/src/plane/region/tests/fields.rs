//! Tests that each field of a service takes effect or is rejected, so that none is accepted and
//! ignored.

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
enum VisibleIn {
    /// In the records that lcores read.
    Region,
    /// In the targets of health probes.
    Probes,
    /// In the response on the health check port.
    HealthPort,
    /// In the object's condition `Complete`.
    Condition,
    /// In `weir db show services` only, as information for operators.
    Note,
    /// Nowhere: the object is rejected with this error.
    Rejected(&'static str),
}

/// Everything that is derived from one service.
#[derive(PartialEq, Debug)]
struct DerivedState {
    region: Vec<String>,
    probes: String,
    health_port: String,
    condition: String,
    note: String,
}

impl DerivedState {
    fn at(&self, visible_in: VisibleIn) -> String {
        match visible_in {
            VisibleIn::Region => self.region.join("\n"),
            VisibleIn::Probes => self.probes.clone(),
            VisibleIn::HealthPort => self.health_port.clone(),
            VisibleIn::Condition => self.condition.clone(),
            VisibleIn::Note => self.note.clone(),
            VisibleIn::Rejected(_) => String::new(),
        }
    }
}

/// Returns the spec of a service with frontends of both families, a cluster IP and a host port.
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
fn fields() -> Vec<(&'static str, Value, Value, VisibleIn)> {
    let tunnel = json!({"mode": "tunnel", "tunnel": "geneve"});
    let ignored_fields = json!({ state::kubernetes::IGNORED: "a field" });
    let fewer = json!([base()["frontends"][0].clone()]);
    let alone = json!({});
    let of = |field, value, visible_in| (field, value, alone.clone(), visible_in);
    vec![
        of("properties", ignored_fields, VisibleIn::Condition),
        of("nat_policy", json!("nat64"), VisibleIn::Region),
        of("external_policy", json!("local"), VisibleIn::Region),
        of("internal_policy", json!("local"), VisibleIn::Region),
        of("distribution", json!("same-zone"), VisibleIn::Region),
        ("mode", json!("dsr"), tunnel.clone(), VisibleIn::Region),
        ("tunnel", json!("vxlan"), tunnel.clone(), VisibleIn::Region),
        ("tunnel_port", json!(6082), tunnel.clone(), VisibleIn::Region),
        ("vni", json!(5), tunnel.clone(), VisibleIn::Region),
        ("outer_checksum", json!(true), tunnel.clone(), VisibleIn::Region),
        ("dont_fragment", json!(false), tunnel, VisibleIn::Region),
        of("algorithm", json!("random"), VisibleIn::Region),
        of("loopback_host_port", json!(true), VisibleIn::Region),
        of("delegate_if_local", json!(true), VisibleIn::Rejected("spec.delegate_if_local: true")),
        of("affinity_s", json!(30), VisibleIn::Region),
        // Load balancers check for local backends, and only with the local policy.
        (
            "health_check_port",
            json!(31_000),
            json!({"external_policy": "local"}),
            VisibleIn::HealthPort,
        ),
        of("health", json!({"kind": "tcp"}), VisibleIn::Probes),
        of("mss", json!(1400), VisibleIn::Region),
        of("tcp_idle_s", json!(60), VisibleIn::Region),
        of("udp_idle_s", json!(60), VisibleIn::Region),
        of("table_size", json!(509), VisibleIn::Region),
        of("too_big", json!("drop"), VisibleIn::Region),
        of("failed_udp", json!("keep"), VisibleIn::Region),
        of("failed_tcp", json!("reset"), VisibleIn::Region),
        of("proxy_redirect", json!({"port": 9000}), VisibleIn::Region),
        of("source_ranges", json!(["198.51.100.0/24"]), VisibleIn::Region),
        (
            "source_policy",
            json!("deny"),
            json!({"source_ranges": ["10.0.0.0/8"]}),
            VisibleIn::Region,
        ),
        of("port_names", json!({"http": 80}), VisibleIn::Note),
        of("frontends", fewer, VisibleIn::Region),
    ]
}

fn object(kind: &str, spec: &Value) -> Result<Object, String> {
    let json = json!({"kind": kind, "name": "web", "source": "file", "spec": spec});
    Object::from_json(&json).map_err(|error| error.to_string())
}

/// Returns the records of services, backends and frontends that lcores read. Indices into the slot
/// arena are replaced by the content.
fn records(writer: &Writer<'_>) -> Vec<String> {
    let set = writer.committed();
    let mut lines = Vec::new();
    for (id, service) in set.services() {
        let name = set.service_name(id).unwrap();
        let slots: Vec<u32> = set.slots(&service.slots).collect();
        let ranges: Vec<u32> = set.slots(&service.ranges).collect();
        let affinity: Vec<u32> = set.slots(&service.affinity_backends).collect();
        let plain = tables::record::Service {
            slots: Default::default(),
            ranges: Default::default(),
            affinity_backends: Default::default(),
            ..*service
        };
        lines.push(format!("service {name}: {plain:?} {slots:?} {ranges:?} {affinity:?}"));
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

/// Returns what is derived from a service with this spec, by the region and by all other readers of
/// the tables.
fn derive(spec: &Value) -> DerivedState {
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
    let settings =
        ProbeSettings { probing: config.health.probing.clone(), tunnel_entries: Vec::new() };
    let objects = store.objects();
    let statuses: Vec<_> =
        objects.of_kind(Kind::Service).map(|object| object.lifecycle().status.clone()).collect();
    DerivedState {
        region: records(&plane.writer),
        probes: format!("{:?}", plan(entry, &settings)),
        health_port: format!("{:?}", node_port::local_backends(entry, &appliance)),
        condition: format!("{statuses:?}"),
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
    let mut tested: Vec<&str> = all.iter().map(|(field, ..)| *field).collect();
    let existing = schema["properties"]["spec"]["properties"].as_object().unwrap();
    let mut existing: Vec<&str> = existing.keys().map(String::as_str).collect();
    tested.sort_unstable();
    existing.sort_unstable();
    assert_eq!(tested, existing, "a new field needs a row above");
    assert_eq!(derive(&base()), derive(&base()), "equal services give equal tables");
    for (field, value, beside, visible_in) in all {
        let before = with(&base(), &beside);
        let after = with(&before, &json!({ field: value }));
        if let VisibleIn::Rejected(message) = visible_in {
            let error = object("Service", &after).unwrap_err();
            assert!(error.contains(message) && error.contains("allowed: "), "{field}: {error}");
            assert!(object("Service", &before).is_ok());
            continue;
        }
        let (old, new) = (derive(&before).at(visible_in), derive(&after).at(visible_in));
        assert!(
            !old.is_empty() && !new.is_empty(),
            "{field} = {value} shows nothing in {visible_in:?}"
        );
        assert_ne!(old, new, "{field} = {value} changes nothing in {visible_in:?}");
    }
}
