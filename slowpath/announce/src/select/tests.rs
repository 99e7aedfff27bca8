//! None, one, several.

use serde_json::json;
use state::name::Source;
use state::object::{Change, Object};
use std::time::SystemTime;

use super::*;
use crate::world::{pairs, policy, router, selecting};

#[test]
fn none_one_and_several() {
    let routers = || json!([router(65001, "192.0.2.254")]);
    let a = selecting("a", json!({"rack": "a"}), routers());
    let b = selecting("b", json!({"rack": "b"}), routers());
    let all = policy("all", routers());
    let rack = |rack| pairs(&[("rack", rack)]);
    let both = [a.clone(), b.clone()];
    assert_eq!(select(&[], &rack("a")), Ok(None));
    assert_eq!(select(&both, &rack("c")), Ok(None));
    assert_eq!(select(&both, &None), Ok(None));
    // It is that object, and no copy of what it wants.
    let found = select(&both, &rack("b")).unwrap().unwrap();
    assert!(Arc::ptr_eq(&found.spec, &b.spec));
    assert_eq!(select(std::slice::from_ref(&all), &None), Ok(Some(&all)));
    let several = select(&[a, b, all], &rack("a")).unwrap_err();
    assert_eq!(several.0.iter().map(Name::as_str).collect::<Vec<_>>(), ["a", "all"]);
    assert_eq!(
        several.to_string(),
        "2 BGP peering policies select this appliance (a, all): let the labels in their \
         node_selector leave one"
    );
}

#[test]
fn of_two_sources_with_one_name_the_preferred_is_heard() {
    let mut objects = Objects::default();
    for (source, asn) in [("api", 65001), ("file", 65002), ("kubernetes-file", 65003)] {
        let object = json!({"kind": "BgpPeeringPolicy", "name": "edge", "source": source,
            "spec": {"routers": [router(asn, "192.0.2.254")]}});
        let change = Change::put(Object::from_json(&object).unwrap());
        objects.apply(&change, SystemTime::UNIX_EPOCH).unwrap();
    }
    let heard_of = |order: &[&str]| {
        let precedence = Precedence::new(order.iter().map(|name| Source::new(name)));
        let heard = heard(&objects, &precedence);
        assert_eq!(heard.len(), 1);
        heard[0].spec.routers[0].local_asn
    };
    assert_eq!(heard_of(&["file", "api"]), 65002);
    assert_eq!(heard_of(&["kubernetes-file"]), 65003);
    assert_eq!(heard_of(&[]), 65001);
}
