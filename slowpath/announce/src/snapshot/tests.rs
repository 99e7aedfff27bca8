//! Tests of annotations and of the tracking of frontends in force.

use std::time::SystemTime;

use serde_json::json;

use super::*;
use crate::fixture::{pairs, pending_tables, service};

#[test]
fn annotations_set_router_ids_and_ports() {
    let parsed = annotations(&pairs(&[
        ("cilium.io/bgp-virtual-router.65001", "router-id=192.0.2.1,local-port=1790"),
        ("cilium.io/bgp-virtual-router.65002", "local-port=179"),
        ("weir.dev/bgp-virtual-router.65002", "router-id=192.0.2.2"),
        ("weir.dev/other", "x"),
    ]))
    .unwrap();
    let one = RouterAnnotation { router_id: "192.0.2.1".parse().ok(), local_port: Some(1790) };
    // Weir's annotation takes precedence over Cilium's for the same router.
    let two = RouterAnnotation { router_id: "192.0.2.2".parse().ok(), local_port: None };
    assert_eq!(parsed, BTreeMap::from([(65001, one), (65002, two)]));
    assert_eq!(annotations(&None), Ok(BTreeMap::new()));
    let empty = annotations(&pairs(&[("weir.dev/bgp-virtual-router.65001", " ")])).unwrap();
    assert_eq!(empty, BTreeMap::from([(65001, RouterAnnotation::default())]));
    for (asn, value, wrong) in [
        ("x", "router-id=192.0.2.1", "`x` is not an ASN"),
        ("1", "router-id=192.0.2", "`192.0.2` is not a router id"),
        ("1", "router-id=0.0.0.0", "`0.0.0.0` is not a router id"),
        ("1", "local-port=0", "`0` is not a port"),
        ("1", "local-port=65536", "`65536` is not a port"),
        ("1", "port=179", "`port=179` is neither router-id nor local-port"),
        ("1", "local-port=179,", "`` is neither"),
    ] {
        let key = format!("weir.dev/bgp-virtual-router.{asn}");
        let error = annotations(&pairs(&[(&key, value)])).unwrap_err().to_string();
        assert!(error.contains(wrong) && error.contains(&key), "{error}");
    }
}

#[test]
fn updated_frontend_stays_in_force_and_a_failed_one_does_not() {
    let web = [service("web", json!({}), &[("203.0.113.1", 80, "LoadBalancer")])];
    let mut acknowledged = Acknowledged::default();
    let now = SystemTime::UNIX_EPOCH;
    let set = |tables: &Tables, progress: Progress| {
        tables.frontends().for_each(|row| row.set_status(progress.clone(), None, now));
    };
    let first = pending_tables(&web);
    assert!(acknowledged.update(&first).is_empty());
    set(&first, Progress::Done);
    assert_eq!(acknowledged.update(&first).len(), 1);
    // The data plane still has the previous row.
    let updated = pending_tables(&web);
    assert_eq!(acknowledged.update(&updated).len(), 1);
    set(&updated, Progress::Error("region full".into()));
    assert!(acknowledged.update(&updated).is_empty());
    // After the error the frontend is not in force, so it must be acknowledged first.
    set(&updated, Progress::Pending);
    assert!(acknowledged.update(&updated).is_empty());
    set(&updated, Progress::Done);
    assert_eq!(acknowledged.update(&updated).len(), 1);
    assert!(acknowledged.update(&Tables::default()).is_empty());
}
