//! Tests of policy selection.

use serde_json::json;
use state::name::Source;
use state::object::{Change, Object};
use std::time::SystemTime;

use super::*;
use crate::fixture::{pairs, policy, router, selecting};

#[test]
fn selects_no_policy_or_one_and_rejects_several() {
    let routers = || json!([router(65001, "192.0.2.254")]);
    let a = selecting("a", json!({"rack": "a"}), routers());
    let b = selecting("b", json!({"rack": "b"}), routers());
    let all = policy("all", routers());
    let rack = |rack| pairs(&[("rack", rack)]);
    let both = [a.clone(), b.clone()];
    assert_eq!(select(&[], &rack("a")), Ok(None));
    assert_eq!(select(&both, &rack("c")), Ok(None));
    assert_eq!(select(&both, &None), Ok(None));
    // The result shares the specification instead of copying it.
    let found = select(&both, &rack("b")).unwrap().unwrap();
    assert!(Arc::ptr_eq(&found.spec, &b.spec));
    assert_eq!(select(std::slice::from_ref(&all), &None), Ok(Some(&all)));
    let several = select(&[a, b, all], &rack("a")).unwrap_err();
    assert_eq!(several.0.iter().map(Name::as_str).collect::<Vec<_>>(), ["a", "all"]);
    assert_eq!(
        several.to_string(),
        "2 BGP peering policies select this appliance (a, all): change their node_selector so \
         that only one does"
    );
}

#[test]
fn preferred_source_of_a_policy_name_is_used() {
    let mut objects = Objects::default();
    for (source, asn) in [("api", 65001), ("file", 65002), ("kubernetes-file", 65003)] {
        let object = json!({"kind": "BgpPeeringPolicy", "name": "edge", "source": source,
            "spec": {"routers": [router(asn, "192.0.2.254")]}});
        let change = Change::put(Object::from_json(&object).unwrap());
        objects.apply(&change, SystemTime::UNIX_EPOCH).unwrap();
    }
    let preferred_asn = |order: &[&str]| {
        let precedence = Precedence::new(order.iter().map(|name| Source::new(name)));
        let policies = preferred_policies(&objects, &precedence);
        assert_eq!(policies.len(), 1);
        policies[0].spec.routers[0].local_asn
    };
    assert_eq!(preferred_asn(&["file", "api"]), 65002);
    assert_eq!(preferred_asn(&["kubernetes-file"]), 65003);
    assert_eq!(preferred_asn(&[]), 65001);
}

#[test]
fn first_cilium_generation_takes_precedence() {
    let of = |name: &str, rack: &str, origin: Origin| {
        let routers = json!([router(65001, "192.0.2.254")]);
        Policy { origin, ..selecting(name, json!({"rack": rack}), routers) }
    };
    let first = of("first", "a", Origin::CiliumFirst);
    let second = of("second", "a", Origin::CiliumSecond);
    let elsewhere = of("elsewhere", "b", Origin::CiliumSecond);
    let all = [first.clone(), second.clone(), elsewhere.clone()];
    let rack = |rack| pairs(&[("rack", rack)]);
    assert_eq!(select(&all, &rack("a")), Ok(Some(&first)));
    // The second generation applies where the first does not select the appliance.
    assert_eq!(select(&all, &rack("b")), Ok(Some(&elsewhere)));
    assert_eq!(select(std::slice::from_ref(&second), &rack("a")), Ok(Some(&second)));
    let own = of("own", "a", Origin::Own);
    let both = [own, first];
    let conflict = select(&both, &rack("a"));
    assert!(conflict.is_err(), "Weir's own policy and Cilium's must conflict");
}
