//! Tests of valid and invalid specs, of names, of the Kubernetes form, and of the stored status.

use config::private_link::SpecDefaults;
use serde_json::{Value, json};

use super::*;
use crate::names;

const SUBSCRIPTION: &str = "550e8400-e29b-41d4-a716-446655440000";
const SUBNET: &str = "/subscriptions/660e8400-e29b-41d4-a716-446655440000/resourceGroups/guest/\
                      providers/Microsoft.Network/virtualNetworks/spoke/subnets/nodes";

fn network() -> &'static str {
    SUBNET.strip_suffix("/subnets/nodes").unwrap()
}

/// Returns the spec of an object as an operator writes it.
fn written() -> Value {
    json!({
        "load_balancer_ip": "10.0.1.5",
        "subscription": SUBSCRIPTION,
        "resource_group": "management",
        "location": "westeurope",
        "cluster": "c1",
        "additional_allowed_subscriptions": [SUBSCRIPTION],
        "tags": { "team": "shop" },
        "paused": "2026-11-22T08:00:00Z",
        "endpoint": {
            "subnet": SUBNET,
            "network": network(),
            "zones": [{ "name": "c1.hypershift.local", "records": ["api", "*.apps"] }],
        },
    })
}

fn check(json: &Value) -> Result<Spec, ValidationError> {
    let spec: Spec = serde_json::from_value(json.clone()).unwrap();
    spec.check().map(|()| spec)
}

#[test]
fn spec_round_trips() {
    let spec = check(&written()).unwrap();
    assert_eq!(serde_json::to_value(&spec).unwrap(), written());
    let allowed: Vec<String> = spec.permitted_subscriptions().into_iter().collect();
    assert_eq!(allowed, [SUBSCRIPTION, "660e8400-e29b-41d4-a716-446655440000"]);
    assert_eq!(spec.approved_subscriptions(), spec.permitted_subscriptions());
}

#[test]
fn invalid_specs_are_rejected_with_field_and_remedy() {
    let long = "x".repeat(91);
    let many: Vec<String> =
        (0..51).map(|n| format!("550e8400-e29b-41d4-a716-4466554400{n:02}")).collect();
    for (at, value, field) in [
        ("/subscription", json!("mine"), "spec.subscription"),
        ("/subscription", json!("550e8400e29b41d4a716446655440000"), "spec.subscription"),
        ("/resource_group", json!(long), "spec.resource_group"),
        ("/resource_group", json!("rg."), "spec.resource_group"),
        ("/location", json!("West Europe"), "spec.location"),
        ("/load_balancer_ip", json!("127.0.0.1"), "spec.load_balancer_ip"),
        ("/cluster", json!("-c"), "spec.cluster"),
        ("/tags", json!({ "weir-object": "x" }), "spec.tags"),
        ("/tags", json!({ "a/b": "x" }), "spec.tags"),
        ("/additional_allowed_subscriptions", json!(many), "spec.additional_allowed_subscriptions"),
        (
            "/additional_allowed_subscriptions",
            json!([SUBSCRIPTION, SUBSCRIPTION.to_uppercase()]),
            "spec.additional_allowed_subscriptions[1]",
        ),
        ("/endpoint/subnet", json!(network()), "spec.endpoint.subnet"),
        ("/endpoint/network", json!(SUBNET), "spec.endpoint.network"),
        ("/endpoint/zones/0/name", json!("local"), "spec.endpoint.zones[0].name"),
        ("/endpoint/zones/0/records", json!([]), "spec.endpoint.zones[0].records"),
        ("/endpoint/zones/0/records/1", json!("-a"), "spec.endpoint.zones[0].records[1]"),
        ("/endpoint/zones/0/records/1", json!("API"), "spec.endpoint.zones[0].records[1]"),
    ] {
        let mut json = written();
        *json.pointer_mut(at).unwrap() = value.clone();
        let wrong = check(&json).unwrap_err();
        assert_eq!(wrong.field, field, "{value}");
        assert!(!wrong.fault.is_empty() && !wrong.remedy.is_empty(), "{wrong}");
    }
    let mut foreign = written();
    foreign["auto_approved_subscriptions"] = json!(["770e8400-e29b-41d4-a716-446655440000"]);
    let wrong = check(&foreign).unwrap_err();
    assert!(wrong.to_string().contains("may not connect"), "{wrong}");
    for broken in [json!({ "what": 1 }), json!({ "nat_subnet": "here" }), json!({ "paused": 7 })] {
        assert!(serde_json::from_value::<Spec>(broken.clone()).is_err(), "{broken}");
    }
}

#[test]
fn omitted_fields_come_from_configuration_or_are_reported() {
    let mut json = written();
    for field in ["subscription", "resource_group", "location"] {
        json.as_object_mut().unwrap().remove(field);
    }
    let left_out = check(&json).unwrap();
    assert_eq!(serde_json::to_value(&left_out).unwrap(), json, "the spec is stored as written");
    let mut defaults = SpecDefaults::default();
    for (field, value) in [
        ("subscription", SUBSCRIPTION),
        ("resource_group", "management"),
        ("location", "northeurope"),
    ] {
        let mut spec = left_out.clone();
        defaults.fill(&mut spec);
        let wrong = spec.complete().unwrap_err().to_string();
        let key = format!("private_link.{field}");
        assert!(wrong.starts_with(&format!("spec.{field}: ")) && wrong.contains(&key), "{wrong}");
        match field {
            "subscription" => defaults.subscription = value.to_owned(),
            "resource_group" => defaults.resource_group = value.to_owned(),
            _ => defaults.location = value.to_owned(),
        }
    }
    let mut spec = left_out;
    defaults.fill(&mut spec);
    assert_eq!((spec.complete(), spec.location.as_str()), (Ok(()), "northeurope"));
    let mut own = check(&written()).unwrap();
    defaults.fill(&mut own);
    assert_eq!(own.location, "westeurope", "the object's own value has precedence");
}

#[test]
fn names_follow_azures_rules_up_to_80_characters() {
    let mut spec = check(&written()).unwrap();
    for (object, cluster, name) in [
        ("clusters/private-router", "c1", "pls-c1"),
        ("clusters/oauth", "c1", "pls-oauth-c1"),
        ("shop/web", "", "pls-shop-web"),
    ] {
        spec.cluster = cluster.to_owned();
        assert_eq!(names::service(object, &spec).unwrap(), name);
    }
    spec.cluster = "c".repeat(76);
    assert_eq!(names::service("a/private-router", &spec).unwrap().len(), 80);
    spec.cluster.push('c');
    let wrong = names::service("a/private-router", &spec).unwrap_err();
    assert!(wrong.fault.contains("81 characters"), "{wrong}");
    spec.service_name = Some("mine".to_owned());
    assert_eq!(names::service("a/b", &spec).unwrap(), "mine");
    let long = Zone { name: format!("{}.local", "z".repeat(60)), records: vec![], link: None };
    let link = names::link(&format!("shop/{}", "w".repeat(60)), &long);
    assert!(names::check("", &link).is_ok(), "{link}");
}

#[test]
fn location_is_immutable_but_an_endpoint_can_be_added() {
    let spec = check(&written()).unwrap();
    let without = Spec { endpoint: None, ..spec.clone() };
    let immutable = |spec: &Spec| ImmutableSpec::of("shop/web", spec).unwrap();
    assert_eq!(immutable(&spec).forbidden_change(&immutable(&spec)), None);
    assert_eq!(immutable(&without).forbidden_change(&immutable(&spec)), None);
    assert!(immutable(&spec).forbidden_change(&immutable(&without)).is_some());
    let upper_case = Spec { resource_group: "MANAGEMENT".to_owned(), ..spec.clone() };
    assert_eq!(
        immutable(&spec).forbidden_change(&immutable(&upper_case)),
        None,
        "Azure ignores case"
    );
    let moved = Spec { location: "northeurope".to_owned(), ..spec.clone() };
    let wrong = immutable(&spec).forbidden_change(&immutable(&moved)).unwrap();
    assert!(wrong.to_string().contains("from `westeurope` to `northeurope`"), "{wrong}");
}

fn kubernetes() -> Value {
    json!({
        "apiVersion": "hypershift.openshift.io/v1beta1",
        "kind": "AzurePrivateLinkService",
        "metadata": {
            "name": "private-router",
            "namespace": "clusters-c1",
            "annotations": {
                (ANNOTATION_CLUSTER): "clusters/c1",
                "weir.dev/cluster-id": "0b3f",
                "weir.dev/service-resource-group": "management",
            },
        },
        "spec": {
            "loadBalancerIP": "10.0.1.5",
            "subscriptionID": SUBSCRIPTION,
            "resourceGroupName": "guest",
            "location": "westeurope",
            "natSubnetID": SUBNET,
            "additionalAllowedSubscriptions": [SUBSCRIPTION],
            "guestSubnetID": SUBNET,
            "guestVNetID": network(),
            "baseDomain": "example.com",
        },
        "status": { "privateLinkServiceAlias": "fields of other controllers are not read" },
    })
}

#[test]
fn kubernetes_form_is_equivalent() {
    let (name, spec) = from_kubernetes(&kubernetes(), &[]).unwrap();
    assert_eq!(name, "clusters-c1/private-router");
    assert_eq!(names::service(&name, &spec).unwrap(), "pls-0b3f");
    assert_eq!((spec.resource_group.as_str(), spec.cluster.as_str()), ("management", "0b3f"));
    let endpoint = spec.endpoint.unwrap();
    assert_eq!(endpoint.resource_group.as_deref(), Some("guest"));
    let zones: Vec<(&str, String, Option<&str>)> = endpoint
        .zones
        .iter()
        .map(|zone| (zone.name.as_str(), zone.records.join(" "), zone.link.as_deref()))
        .collect();
    let expected = [
        ("c1.hypershift.local", "api *.apps".to_owned(), Some("private-router-vnet-link")),
        ("example.com", "api-c1 oauth-c1".to_owned(), Some("private-router-basedomain-vnet-link")),
    ];
    assert_eq!(zones, expected);
    assert_eq!(spec.tags["kubernetes.io_cluster_c1"], "owned");
}

/// Returns the zones and records of the object `object`, converted along with the objects `all` of
/// its cluster.
fn zones(object: &str, all: &[&str]) -> Vec<String> {
    let named = |name: &str| {
        let mut json = kubernetes();
        json["metadata"]["name"] = json!(name);
        json
    };
    let siblings: Vec<Sibling> =
        all.iter().map(|name| Sibling::of(&named(name)).unwrap()).collect();
    let (_, spec) = from_kubernetes(&named(object), &siblings).unwrap();
    let zones = spec.endpoint.unwrap().zones;
    zones.iter().map(|zone| format!("{}: {}", zone.name, zone.records.join(" "))).collect()
}

#[test]
fn dns_names_of_a_cluster_are_divided_among_its_objects() {
    let own = "c1.hypershift.local: api *.apps";
    let both = ["private-router", "oauth-openshift"];
    assert_eq!(zones("private-router", &both), [own, "example.com: api-c1"]);
    assert_eq!(zones("oauth-openshift", &both), ["example.com: oauth-c1"]);
    assert_eq!(zones("private-router", &[]), [own, "example.com: api-c1 oauth-c1"]);
    assert_eq!(zones("oauth-openshift", &[]), ["example.com: oauth-c1"]);
    assert_eq!(zones("web", &["web"]), [own, "example.com: api-c1 oauth-c1"]);
    assert_eq!(zones("web", &["web", "private-router"]), Vec::<String>::new());
    // Objects of another cluster are not siblings.
    let mut other = kubernetes();
    other["metadata"]["name"] = json!("oauth-openshift");
    other["metadata"]["annotations"][ANNOTATION_CLUSTER] = json!("clusters/c2");
    let (_, spec) = from_kubernetes(&kubernetes(), &[Sibling::of(&other).unwrap()]).unwrap();
    assert_eq!(spec.endpoint.unwrap().zones[1].records, ["api-c1", "oauth-c1"]);
}

#[test]
fn kubernetes_errors_name_the_resource_path() {
    for (at, value, field) in [
        ("/spec/subscriptionID", json!("x"), "spec.subscriptionID"),
        ("/spec/resourceGroupName", json!("x."), "spec.resourceGroupName"),
        ("/spec/guestVNetID", json!(SUBNET), "spec.guestVNetID"),
        ("/spec/baseDomain", json!("com"), "spec.baseDomain"),
        ("/spec/additionalAllowedSubscriptions", json!([]), "spec.additionalAllowedSubscriptions"),
        (
            "/spec/additionalAllowedSubscriptions",
            json!(["x"]),
            "spec.additionalAllowedSubscriptions[0]",
        ),
        (
            "/metadata/annotations",
            json!({}),
            "metadata.annotations[hypershift.openshift.io/cluster]",
        ),
        (
            "/metadata/annotations",
            json!({ (ANNOTATION_CLUSTER): "c1" }),
            "metadata.annotations[hypershift.openshift.io/cluster]",
        ),
    ] {
        let mut json = kubernetes();
        *json.pointer_mut(at).unwrap() = value;
        assert_eq!(from_kubernetes(&json, &[]).unwrap_err().field, field);
    }
    for broken in [json!(7), json!({}), json!({ "metadata": {}, "spec": [] })] {
        assert!(from_kubernetes(&broken, &[]).is_err());
    }
}

#[test]
fn status_converts_to_kubernetes_form() {
    let (name, spec) = from_kubernetes(&kubernetes(), &[]).unwrap();
    let immutable = ImmutableSpec::of(&name, &spec).unwrap();
    let mut status = Status { observed: 3, ..Status::default() };
    status.service.id = Some(immutable.service.clone());
    status.service.alias = Some("pls-0b3f.guid.westeurope.azure.privatelinkservice".to_owned());
    status.endpoint.address = Some("10.7.0.9".parse().unwrap());
    for (name, zone) in [("example.com", "base"), ("c1.hypershift.local", "own")] {
        let id = azure::id::ResourceId::network("s", "g", "privateDnsZones", zone);
        let zone = ZoneStatus { id, links: vec![], records: vec![], elsewhere: None };
        status.endpoint.zones.insert(name.to_owned(), zone);
    }
    let outcome = (true, Reason::AzureSuccess);
    status.set_condition(Time(7), Aspect::Service, outcome, "it works");
    status.set_condition(Time(9), Aspect::Service, outcome, "it still works");
    let json = status_for_kubernetes(&status, |time| time.0.to_string());
    let condition = json!([{
        "type": "AzurePLSCreated",
        "status": "True",
        "reason": "AzureSuccess",
        "message": "it still works",
        "lastTransitionTime": "7",
        "observedGeneration": 3,
    }]);
    assert_eq!(json["conditions"], condition);
    assert_eq!(json["privateEndpointIP"], "10.7.0.9");
    assert_eq!(json["dnsZoneName"], "c1.hypershift.local");
    assert!(json["privateDNSZoneID"].as_str().unwrap().ends_with("/own"));
    assert!(json["baseDomainDNSZoneID"].as_str().unwrap().ends_with("/base"));
    assert_eq!(json.get("privateEndpointID"), None);
}

#[test]
fn status_of_an_earlier_build_is_read() {
    let mut status = Status::default();
    status.set_condition(Time(7), Aspect::Service, (false, Reason::InProgress), "");
    let backoff = Backoff { generation: 3, deleting: false, until: Time(9) };
    status.service.backoff = Some(backoff);
    status.endpoint.backoff = Some(backoff);
    let stored = serde_json::to_string(&status).unwrap();
    let earlier = stored.replace("\"backoff\"", "\"held_off\"").replace("InProgress", "UnderWay");
    assert_eq!(earlier.matches("held_off").count(), 2);
    assert!(earlier.contains("UnderWay"), "{earlier}");
    assert_eq!(serde_json::from_str::<Status>(&earlier).unwrap(), status);
}

#[test]
fn aspects_and_reasons_serialize_as_their_names() {
    for aspect in [
        Aspect::Available,
        Aspect::Balancer,
        Aspect::Service,
        Aspect::Endpoint,
        Aspect::Names,
        Aspect::ConnectionsWaiting,
        Aspect::Paused,
        Aspect::Observed,
    ] {
        assert_eq!(serde_json::to_value(aspect).unwrap(), aspect.as_str());
    }
    for reason in [
        Reason::AzureSuccess,
        Reason::AzureError,
        Reason::BalancerLookupFailed,
        Reason::SubnetFailed,
        Reason::CreationFailed,
        Reason::UpdateFailed,
        Reason::NotApproved,
        Reason::WaitingForAddress,
        Reason::BalancerNotFound,
        Reason::FrontendDiffers,
        Reason::InProgress,
        Reason::WaitingForAlias,
        Reason::LinkedElsewhere,
        Reason::SubnetPoliciesEnabled,
        Reason::NotOurs,
        Reason::Invalid,
        Reason::Deleting,
        Reason::Pending,
        Reason::Paused,
        Reason::OtherOwner,
    ] {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
    }
}
