//! Tests of all steps, conditions, error classes and kinds of deletion, against the Azure emulator.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

mod emulator;

use std::time::Duration;

use azure::id::ResourceId;
use clouds::failure::Failure;
use private_link::object::{Aspect, Paused, Reason, Spec};
use private_link::{Decision, Next, Role, decide};
use serde_json::{Value, json};

use emulator::driver::ObjectDriver;
use emulator::sample::{self, GUEST, OTHER, PROVIDER, UNAPPROVED, network};
use emulator::{Azure, Fault, once};

const MINUTES: u64 = 60;
/// Address of the first endpoint: Azure reserves the first four addresses of a subnet.
const ADDRESS: &str = "10.7.0.4";

/// Returns an emulator whose operations take `slowness` seconds, and a new object.
fn begin(slowness: u64) -> (Azure, ObjectDriver) {
    let azure = sample::azure();
    azure.state().slowness = slowness;
    (azure, ObjectDriver::new(sample::object("shop/web")))
}

fn service() -> String {
    network(PROVIDER, "privateLinkServices", "pls-shop-web").to_string()
}

fn endpoint() -> String {
    network(GUEST, "privateEndpoints", "shop-web-pe").to_string()
}

fn zone(name: &str) -> String {
    network(GUEST, "privateDnsZones", name).to_string()
}

fn nat_subnet() -> String {
    network(PROVIDER, "virtualNetworks", "hub").child("subnets", "weir-pls-nat").to_string()
}

fn body(azure: &Azure, id: &str) -> Value {
    azure.state().get(id).unwrap_or_else(|| panic!("{id} does not exist"))
}

/// Returns a connection's name without the suffix that Azure adds.
fn short(connection: &str) -> &str {
    connection.split('.').next().unwrap()
}

fn exists(azure: &Azure, id: &str) -> bool {
    azure.state().get(id).is_some()
}

/// Returns an emulator whose operations take `slowness` seconds, and an object that is available.
fn working(slowness: u64) -> (Azure, ObjectDriver) {
    let (azure, mut web) = begin(slowness);
    web.run_for(&azure, 20 * MINUTES);
    assert_eq!(
        web.why(Aspect::Available),
        Some((true, Reason::AzureSuccess)),
        "{web:?}",
        web = web.status()
    );
    azure.state().calls.clear();
    (azure, web)
}

#[test]
fn creates_service_endpoint_and_dns_names() {
    for slowness in [0, 40] {
        let (azure, web) = working(slowness);
        let made = body(&azure, &service());
        assert_eq!(made["properties"]["visibility"]["subscriptions"], json!([GUEST, OTHER]));
        assert_eq!(made["properties"]["autoApproval"], made["properties"]["visibility"]);
        assert_eq!(made["properties"]["enableProxyProtocol"], json!(false));
        let nat_of = &made["properties"]["ipConfigurations"][0]["properties"];
        assert_eq!(nat_of["subnet"]["id"], json!(nat_subnet()));
        assert_eq!(
            (&nat_of["primary"], &nat_of["privateIPAllocationMethod"]),
            (&json!(true), &json!("Dynamic"))
        );
        assert_eq!(made["tags"], json!({ "weir-fleet": "east", "weir-object": "shop/web" }));
        let subnet = body(&azure, &nat_subnet());
        assert_eq!(subnet["properties"]["addressPrefix"], "10.1.1.0/24");
        assert_eq!(subnet["properties"]["privateLinkServiceNetworkPolicies"], "Disabled");
        for (zone_name, record) in [
            ("web.hypershift.local", "api"),
            ("web.hypershift.local", "*.apps"),
            ("example.internal", "api-web"),
        ] {
            let record = body(&azure, &format!("{}/A/{record}", zone(zone_name)));
            assert_eq!(record["properties"]["aRecords"], json!([{ "ipv4Address": ADDRESS }]));
            assert_eq!(record["properties"]["ttl"], json!(300));
            assert_eq!(
                azure.state().below(&format!("{}/virtualNetworkLinks", zone(zone_name))).len(),
                1
            );
        }
        let aspects = [Aspect::Balancer, Aspect::Service, Aspect::Endpoint, Aspect::Names];
        assert!(aspects.iter().all(|aspect| web.is(*aspect)));
        assert_eq!(web.status().endpoint.address, Some(ADDRESS.parse().unwrap()));
        assert_eq!(web.status().service.connections[0].state, "Approved");
        assert!(azure.state().foreign_changes.is_empty());
    }
}

#[test]
fn finalizer_is_added_before_anything_is_created() {
    let (azure, mut web) = begin(0);
    assert_eq!(web.round(&azure, &Role::Owner), Some(Next::Now));
    assert!(web.object.has_finalizer && azure.state().calls.is_empty());
    assert_eq!(web.round(&azure, &Role::Owner), Some(Next::Now));
    assert!(web.status().immutable.is_some() && azure.state().calls.is_empty());
}

#[test]
fn operations_are_stored_and_polled_not_awaited() {
    let (azure, mut web) = begin(90);
    while web.status().service.running.is_none() {
        assert!(web.round(&azure, &Role::Owner).is_some());
    }
    let running = web.status().service.running.clone().unwrap();
    assert!(running.handle.operation.is_some());
    assert_eq!(web.why(Aspect::Service), Some((false, Reason::InProgress)));
    let calls = azure.state().calls.len();
    // No call is made before the next poll is due.
    assert!(web.round(&azure, &Role::Owner).is_some());
    assert_eq!(azure.state().calls.len(), calls);
    web.run_for(&azure, 20 * MINUTES);
    assert!(web.is(Aspect::Available));
}

#[test]
fn waiting_is_reported_with_a_reason() {
    let (azure, mut web) = begin(0);
    web.object.spec.load_balancer_ip = None;
    web.run_for(&azure, 60);
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::WaitingForAddress)));
    assert_eq!(web.why(Aspect::Endpoint), Some((false, Reason::WaitingForAlias)));
    assert!(web.pause(&azure) <= Duration::from_secs(30));
    web.change(&azure, |object| object.spec.load_balancer_ip = Some("10.1.0.77".parse().unwrap()));
    web.run_for(&azure, 60);
    assert_eq!(web.why(Aspect::Service), Some((false, Reason::BalancerNotFound)));
    assert!(web.message(Aspect::Balancer).contains("10.1.0.77"));
    sample::balancer(&azure, "10.1.0.77");
    web.run_for(&azure, 60);
    assert!(web.is(Aspect::Available));
}

#[test]
fn changed_address_selects_another_frontend() {
    let (azure, mut web) = working(5);
    sample::balancer(&azure, "10.1.0.99");
    web.change(&azure, |object| object.spec.load_balancer_ip = Some("10.1.0.99".parse().unwrap()));
    web.run_for(&azure, 10 * MINUTES);
    let frontend = body(&azure, &service());
    let frontend =
        frontend.pointer("/properties/loadBalancerFrontendIpConfigurations/0/id").unwrap();
    assert!(frontend.as_str().unwrap().ends_with("at-10.1.0.99"), "{frontend}");
    assert!(web.is(Aspect::Available));
}

#[test]
fn service_with_another_frontend_is_reported_and_corrected() {
    let ids = |azure: &Azure| {
        let list = body(azure, &service());
        let list = list["properties"]["loadBalancerFrontendIpConfigurations"].clone();
        list.as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>()
    };
    let elsewhere = json!([{ "id": "/subscriptions/x/somewhere-else" }]);
    for taken_over in [false, true] {
        let (azure, mut web) = working(20);
        let right = ids(&azure);
        let both = json!([{ "id": right[0] }, elsewhere[0]]);
        for wrong in [elsewhere.clone(), both, json!([])] {
            azure.state().edit(&service(), |body| {
                body["properties"]["loadBalancerFrontendIpConfigurations"] = wrong.clone();
            });
            if taken_over {
                // Another appliance takes over; its store has the object, but no status.
                web = ObjectDriver::new(sample::object("shop/web"));
                web.object.has_finalizer = true;
            }
            let mut reported = false;
            let end = azure.state().now() + 8 * MINUTES;
            while azure.state().now() < end {
                web.run_for(&azure, 1);
                reported |= web.why(Aspect::Service) == Some((false, Reason::FrontendDiffers))
                    && web.message(Aspect::Service).contains(right[0].as_str().unwrap())
                    && !web.is(Aspect::Available);
            }
            assert!(reported, "{taken_over} {wrong}: {:#?}", web.events);
            assert_eq!(ids(&azure), right, "{taken_over} {wrong}");
            assert!(web.is(Aspect::Service), "{:#?}", web.status());
        }
    }
}

#[test]
fn missing_load_balancer_is_reported() {
    let (azure, mut web) = working(0);
    azure.state().remove(network(PROVIDER, "loadBalancers", "inner").as_str());
    web.run_for(&azure, 6 * MINUTES);
    assert_eq!(web.why(Aspect::Balancer), Some((false, Reason::BalancerNotFound)));
    assert!(!web.is(Aspect::Available));
    assert!(exists(&azure, &service()), "what consumers use stays");
}

#[test]
fn drift_is_repaired_at_the_next_check() {
    let (azure, mut web) = working(20);
    let alias = web.status().service.alias.clone();
    let spoil: [fn(&mut Value); 4] = [
        |body| body["properties"]["visibility"]["subscriptions"] = json!(["*"]),
        |body| body["properties"]["autoApproval"]["subscriptions"] = json!([]),
        |body| body["tags"] = json!({ "theirs": "too" }),
        |_| (),
    ];
    for (at, spoil) in spoil.into_iter().enumerate() {
        azure.state().edit(&service(), spoil);
        azure.state().azure.find_mut(&service()).unwrap().failed = at == 3;
        web.run_for(&azure, 6 * MINUTES);
        let now = body(&azure, &service());
        assert_eq!(now["properties"]["visibility"]["subscriptions"], json!([GUEST, OTHER]));
        assert_eq!(now["properties"]["autoApproval"], now["properties"]["visibility"]);
        assert_eq!(now["tags"]["weir-object"], "shop/web");
        assert_eq!(now["properties"]["provisioningState"], "Succeeded");
        assert!(web.is(Aspect::Available));
    }
    assert_eq!(body(&azure, &service())["tags"]["theirs"], "too");
    assert_eq!(web.status().service.alias, alias);
    // A record that another party changed, and one that it deleted.
    let record = format!("{}/A/api", zone("web.hypershift.local"));
    azure.state().edit(&record, |body| body["properties"]["ttl"] = json!(5));
    azure.state().remove(&format!("{}/A/*.apps", zone("web.hypershift.local")));
    web.run_for(&azure, 6 * MINUTES);
    assert_eq!(body(&azure, &record)["properties"]["ttl"], json!(300));
    assert!(exists(&azure, &format!("{}/A/*.apps", zone("web.hypershift.local"))));
}

#[test]
fn subscription_lists_compare_as_sets() {
    let (azure, mut web) = working(0);
    azure.state().edit(&service(), |body| {
        body["properties"]["visibility"]["subscriptions"] = json!([OTHER, GUEST, OTHER]);
    });
    azure.state().calls.clear();
    web.run_for(&azure, 11 * MINUTES);
    let calls = azure.state().calls.clone();
    assert!(!calls.iter().any(|name| name == "PrivateLinkServices_CreateOrUpdate"), "{calls:?}");
}

#[test]
fn ineffective_update_is_reported_and_not_repeated_at_once() {
    let (azure, mut web) = working(0);
    // Another party reverts every change.
    for _ in 0..10 {
        azure.state().edit(&service(), |body| body["properties"]["autoApproval"] = json!({}));
        web.due = azure.state().now();
        assert!(web.round(&azure, &Role::Owner).is_some());
    }
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::UpdateFailed)));
    let calls = azure.state().calls.clone();
    let writes = calls.iter().filter(|name| *name == "PrivateLinkServices_CreateOrUpdate");
    assert_eq!(writes.count(), 1);
}

#[test]
fn deleted_service_is_recreated_with_its_endpoint() {
    let (azure, mut web) = working(15);
    let alias = web.status().service.alias.clone().unwrap();
    azure.state().remove(&service());
    web.run_for(&azure, 15 * MINUTES);
    assert!(web.is(Aspect::Available), "{:#?}", web.status().conditions);
    assert_ne!(web.status().service.alias.clone().unwrap(), alias);
    let events: Vec<&str> = web.events.iter().map(|event| event.reason).collect();
    assert!(
        events.contains(&"ServiceDeleted") && events.contains(&"EndpointReplaced"),
        "{events:?}"
    );
    azure.state().remove(&endpoint());
    azure.state().remove(&zone("example.internal"));
    web.run_for(&azure, 15 * MINUTES);
    assert!(
        exists(&azure, &endpoint())
            && exists(&azure, &format!("{}/A/api-web", zone("example.internal")))
    );
    assert!(web.is(Aspect::Available));
}

#[test]
fn each_error_class_has_its_condition_and_delay() {
    let operation = "PrivateLinkServices_Get";
    for (kind, after, pause) in [
        (Failure::Throttled, Some(41), 41),
        (Failure::Throttled, None, 300),
        (Failure::Denied, None, 600),
        (Failure::Conflict, None, 30),
        (Failure::Transient, None, 120),
        (Failure::Invalid, None, 120),
    ] {
        let (azure, mut web) = begin(0);
        web.object.spec.endpoint = None;
        web.object.has_finalizer = true;
        let retry_after = after.map(Duration::from_secs);
        azure.state().retry_after = retry_after;
        azure.state().script = vec![(operation, Fault::Refused(kind))];
        assert_eq!(web.round(&azure, &Role::Owner), Some(Next::Now));
        let next = web.round(&azure, &Role::Owner);
        assert_eq!(next, Some(Next::After(Duration::from_secs(pause))), "{kind:?}");
        for aspect in [Aspect::Service, Aspect::Available] {
            assert_eq!(web.why(aspect), Some((false, Reason::AzureError)), "{kind:?}");
            assert!(web.message(aspect).contains("PrivateLinkServices_Get"));
        }
        web.run_for(&azure, 20 * MINUTES);
        assert!(web.is(Aspect::Available), "{kind:?}");
    }
}

#[test]
fn requested_delay_of_one_side_does_not_depend_on_the_other() {
    let (azure, mut web) = begin(0);
    azure.state().retry_after = Some(Duration::from_secs(1_000));
    azure.state().script = vec![("PrivateLinkServices_Get", Fault::Refused(Failure::Throttled))];
    web.run_for(&azure, 900);
    let calls = azure.state().calls.clone();
    assert_eq!(calls, ["PrivateLinkServices_Get"]);
    assert_eq!(web.why(Aspect::Endpoint), Some((false, Reason::WaitingForAlias)));
    // A change of the desired state is tried at once.
    web.change(&azure, |object| object.spec.tags = [("a".to_owned(), "b".to_owned())].into());
    web.run_for(&azure, 60);
    assert!(web.is(Aspect::Available));
}

#[test]
fn each_failed_step_has_its_condition_and_reason() {
    for (operation, fault, aspect, reason) in [
        (
            "LoadBalancers_List",
            Fault::Refused(Failure::Denied),
            Aspect::Balancer,
            Reason::BalancerLookupFailed,
        ),
        (
            "Subnets_CreateOrUpdate",
            Fault::Refused(Failure::Denied),
            Aspect::Service,
            Reason::SubnetFailed,
        ),
        ("Subnets_CreateOrUpdate", Fault::Fails, Aspect::Service, Reason::SubnetFailed),
        ("VirtualNetworks_Get", Fault::Hangs, Aspect::Service, Reason::SubnetFailed),
        (
            "PrivateLinkServices_CreateOrUpdate",
            Fault::Refused(Failure::Denied),
            Aspect::Service,
            Reason::CreationFailed,
        ),
        (
            "PrivateLinkServices_CreateOrUpdate",
            Fault::Fails,
            Aspect::Service,
            Reason::CreationFailed,
        ),
        ("PrivateLinkServices_Get", Fault::Hangs, Aspect::Service, Reason::AzureError),
        ("PrivateEndpoints_CreateOrUpdate", Fault::Fails, Aspect::Endpoint, Reason::AzureError),
        ("PrivateEndpoints_Get", Fault::Hangs, Aspect::Endpoint, Reason::AzureError),
        ("PrivateZones_CreateOrUpdate", Fault::Fails, Aspect::Names, Reason::AzureError),
        (
            "RecordSets_CreateOrUpdate",
            Fault::Refused(Failure::Denied),
            Aspect::Names,
            Reason::AzureError,
        ),
        ("VirtualNetworkLinks_CreateOrUpdate", Fault::Fails, Aspect::Names, Reason::AzureError),
    ] {
        let (azure, mut web) = begin(10);
        azure.state().script = vec![(operation, fault)];
        let mut reported = Vec::new();
        for _ in 0..60 {
            azure.state().pass(web.due);
            assert!(web.round(&azure, &Role::Owner).is_some());
            reported.extend(web.why(aspect));
            if !web.is(Aspect::Available) {
                assert_ne!(web.why(Aspect::Available), Some((true, Reason::AzureSuccess)));
            }
        }
        assert!(reported.contains(&(false, reason)), "{operation} {fault:?}: {reported:?}");
        assert!(web.is(Aspect::Available), "{operation} {fault:?}: {:#?}", web.status());
        assert!(azure.state().foreign_changes.is_empty());
    }
}

#[test]
fn operations_without_handle_or_end_are_checked_by_resource_state() {
    for fault in [Fault::NoHandle, Fault::Lost] {
        for operation in [
            "PrivateLinkServices_CreateOrUpdate",
            "PrivateEndpoints_CreateOrUpdate",
            "Subnets_CreateOrUpdate",
        ] {
            let (azure, mut web) = begin(45);
            azure.state().script = vec![(operation, fault)];
            web.run_for(&azure, 30 * MINUTES);
            assert!(web.is(Aspect::Available), "{operation} {fault:?}: {:#?}", web.status());
            let requests = azure.state().calls.iter().filter(|name| *name == operation).count();
            assert_eq!(requests, 1, "{operation} {fault:?}");
        }
    }
    let (azure, mut web) = begin(10);
    azure.state().script = vec![("PrivateLinkServices_CreateOrUpdate", Fault::Never)];
    web.run_for(&azure, 5 * MINUTES);
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::InProgress)));
    assert!(web.status().service.running.is_some());
    web.run_for(&azure, 2 * MINUTES);
    let events: Vec<&str> = web.events.iter().map(|event| event.reason).collect();
    assert!(events.contains(&"PLSCreationFailed"), "{events:?}");
    assert!(web.status().service.running.is_none());
    assert!(web.message(Aspect::Service).contains("Updating"), "{}", web.message(Aspect::Service));
    azure.state().end_all();
    web.run_for(&azure, 10 * MINUTES);
    assert!(web.is(Aspect::Available));
}

#[test]
fn foreign_resources_with_our_names_are_reported_and_not_changed() {
    let (azure, mut web) = begin(0);
    let foreign =
        json!({ "tags": { "weir-fleet": "west", "weir-object": "shop/web" }, "properties": {} });
    azure.state().set(&service(), foreign.clone());
    web.run_for(&azure, 10 * MINUTES);
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::NotOurs)));
    assert!(web.message(Aspect::Service).contains("az tag update"));
    azure.state().remove(&service());
    azure.state().set(&endpoint(), foreign.clone());
    web.run_for(&azure, 10 * MINUTES);
    assert_eq!(web.why(Aspect::Endpoint), Some((false, Reason::NotOurs)));
    azure.state().remove(&endpoint());
    azure.state().set(&zone("example.internal"), json!({}));
    let record = format!("{}/A/api-web", zone("example.internal"));
    azure
        .state()
        .set(&record, json!({ "properties": { "aRecords": [{ "ipv4Address": "10.9.9.9" }] } }));
    web.run_for(&azure, 10 * MINUTES);
    assert_eq!(web.why(Aspect::Names), Some((false, Reason::NotOurs)));
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::NotOurs)));
    web.delete(&azure);
    web.run_for(&azure, 30 * MINUTES);
    assert!(web.gone && !exists(&azure, &service()) && !exists(&azure, &endpoint()));
    assert!(exists(&azure, &zone("example.internal")) && exists(&azure, &record));
    assert!(!exists(&azure, &zone("web.hypershift.local")));
    assert!(azure.state().foreign_changes.is_empty(), "{:?}", azure.state().foreign_changes);
}

#[test]
fn foreign_service_replacing_ours_is_not_deleted() {
    let (azure, mut web) = working(0);
    azure.state().remove(&service());
    azure.state().set(&service(), json!({ "properties": {} }));
    web.run_for(&azure, 10 * MINUTES);
    assert_eq!(web.why(Aspect::Service), Some((false, Reason::NotOurs)));
    web.delete(&azure);
    web.run_for(&azure, 30 * MINUTES);
    assert!(web.gone && exists(&azure, &service()) && !exists(&azure, &endpoint()));
    assert!(azure.state().foreign_changes.is_empty());
    assert!(web.events.iter().any(|event| event.reason == "NotDeleted"));
}

#[test]
fn policies_are_disabled_on_own_subnets_only() {
    let on = |body: &mut Value| {
        body["properties"]["privateLinkServiceNetworkPolicies"] = "Enabled".into();
    };
    // Found by name, created by another party.
    let (azure, mut web) = begin(0);
    azure.state().set(&nat_subnet(), json!({ "properties": { "addressPrefix": "10.1.9.0/24" } }));
    azure.state().edit(&nat_subnet(), on);
    web.run_for(&azure, 10 * MINUTES);
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::SubnetPoliciesEnabled)));
    let message = web.message(Aspect::Service);
    assert!(message.contains("az network vnet subnet update --ids"), "{message}");
    azure.state().edit(&nat_subnet(), |body| {
        body["properties"]["privateLinkServiceNetworkPolicies"] = "Disabled".into();
    });
    web.run_for(&azure, 10 * MINUTES);
    assert!(web.is(Aspect::Available) && azure.state().foreign_changes.is_empty());
    // Created by Weir: it is needed again when the service is created anew.
    let (azure, mut web) = working(0);
    azure.state().edit(&nat_subnet(), on);
    azure.state().remove(&service());
    web.run_for(&azure, 10 * MINUTES);
    assert_eq!(
        body(&azure, &nat_subnet())["properties"]["privateLinkServiceNetworkPolicies"],
        "Disabled"
    );
    assert!(web.is(Aspect::Available));
    // Configured, but absent.
    let (azure, mut web) = begin(0);
    let given = network(PROVIDER, "virtualNetworks", "hub").child("subnets", "given");
    web.object.spec.nat_subnet = Some(private_link::object::ResourceRef(given.clone()));
    web.run_for(&azure, 10 * MINUTES);
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::SubnetFailed)));
    let properties = json!({
        "addressPrefix": "10.1.8.0/24", "privateLinkServiceNetworkPolicies": "Disabled",
    });
    azure.state().set(given.as_str(), json!({ "properties": properties }));
    web.run_for(&azure, 10 * MINUTES);
    assert!(web.is(Aspect::Available) && !exists(&azure, &nat_subnet()));
}

#[test]
fn full_network_is_reported() {
    let (azure, mut web) = begin(0);
    let hub = network(PROVIDER, "virtualNetworks", "hub");
    azure.state().edit(hub.as_str(), |body| {
        body["properties"]["addressSpace"]["addressPrefixes"] = json!(["10.1.0.0/24"]);
    });
    web.run_for(&azure, 10 * MINUTES);
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::SubnetFailed)));
    assert!(web.message(Aspect::Service).contains("no free prefix"));
}

#[test]
fn connections_are_approved_by_subscription_and_others_wait() {
    let (azure, mut web) = working(0);
    // This subscription may see the service, but is not approved: its connection has to wait.
    web.change(&azure, |object| {
        object.spec.additional_allowed_subscriptions.push(UNAPPROVED.to_owned());
        object.spec.auto_approved_subscriptions = Some(vec![GUEST.to_owned(), OTHER.to_owned()]);
    });
    web.run_for(&azure, 2 * MINUTES);
    let alias = web.status().service.alias.clone();
    // Azure's automatic approval does not contain this subscription yet.
    azure.state().edit(&service(), |body| body["properties"]["autoApproval"] = json!({}));
    assert!(azure.state().request_connection(OTHER, "known", alias.as_deref()));
    assert!(azure.state().request_connection(UNAPPROVED, "unapproved", alias.as_deref()));
    web.run_for(&azure, 12 * MINUTES);
    let states: Vec<(&str, &str)> = web
        .status()
        .service
        .connections
        .iter()
        .map(|connection| (short(&connection.name), connection.state.as_str()))
        .collect();
    let expected = [("known", "Approved"), ("shop-web-pe", "Approved"), ("unapproved", "Pending")];
    assert_eq!(states, expected);
    assert_eq!(web.why(Aspect::ConnectionsWaiting), Some((true, Reason::Pending)));
    let unapproved = web.status().service.connections[2].name.clone();
    let waiting = format!("{unapproved} of subscription {UNAPPROVED}");
    assert!(web.message(Aspect::ConnectionsWaiting).contains(&waiting));
    assert!(web.is(Aspect::Available));
    let id = web.status().service.id.clone().unwrap();
    let unapproved = unapproved.to_uppercase();
    let decided =
        once(decide(&azure, &azure, &id, &unapproved, Decision::Rejected, "not known")).unwrap();
    assert_eq!(decided.unwrap().unwrap().state, "Rejected");
    let absent = once(decide(&azure, &azure, &id, "absent", Decision::Approved, "")).unwrap();
    assert_eq!(absent.unwrap(), None);
    web.run_for(&azure, 2 * MINUTES);
    assert_eq!(web.why(Aspect::ConnectionsWaiting), None);
    assert_eq!(web.status().service.connections[2].state, "Rejected");
}

#[test]
fn unapproved_endpoint_waits_with_a_condition() {
    let (azure, mut web) = begin(0);
    web.object.spec.auto_approved_subscriptions = Some(vec![]);
    web.run_for(&azure, 5 * MINUTES);
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::NotApproved)));
    assert!(web.message(Aspect::Endpoint).contains("Pending") && web.is(Aspect::Service));
    let id = web.status().service.id.clone().unwrap();
    let own = web.status().service.connections[0].name.clone();
    assert_eq!(short(&own), "shop-web-pe");
    once(decide(&azure, &azure, &id, &own, Decision::Approved, "ok")).unwrap().unwrap();
    web.run_for(&azure, 5 * MINUTES);
    assert!(web.is(Aspect::Available), "{:#?}", web.status().conditions);
}

#[test]
fn shared_zones_are_deleted_with_the_last_record() {
    let azure = sample::azure();
    let (mut web, mut blog) = (
        ObjectDriver::new(sample::object("shop/web")),
        ObjectDriver::new(sample::object("shop/blog")),
    );
    for _ in 0..4 {
        web.run_for(&azure, MINUTES);
        blog.run_for(&azure, MINUTES);
    }
    assert!(web.is(Aspect::Available) && blog.is(Aspect::Available));
    let links = format!("{}/virtualNetworkLinks", zone("example.internal"));
    assert_eq!(azure.state().below(&links).len(), 1);
    web.delete(&azure);
    web.run_for(&azure, 10 * MINUTES);
    assert!(web.gone && !exists(&azure, &format!("{}/A/api-web", zone("example.internal"))));
    blog.run_for(&azure, 10 * MINUTES);
    assert_eq!(azure.state().below(&links).len(), 1, "the remaining object creates the link");
    assert!(blog.is(Aspect::Available));
    blog.delete(&azure);
    blog.run_for(&azure, 10 * MINUTES);
    assert!(blog.gone && !exists(&azure, &zone("example.internal")));
    // The subnet stays, because others may use it.
    assert_eq!(azure.state().own_ids(), [nat_subnet()]);
}

#[test]
fn undesired_dns_names_are_removed() {
    let (azure, mut web) = working(10);
    web.change(&azure, |object| {
        let endpoint = object.spec.endpoint.as_mut().unwrap();
        endpoint.zones.remove(1);
        endpoint.zones[0].records = vec!["console".to_owned()];
    });
    web.run_for(&azure, 15 * MINUTES);
    assert!(web.is(Aspect::Available), "{:#?}", web.status());
    assert!(!exists(&azure, &zone("example.internal")));
    let records = azure.state().below(&format!("{}/A", zone("web.hypershift.local"))).len();
    assert_eq!(records, 1);
    assert_eq!(web.status().endpoint.zones.len(), 1);
}

#[test]
fn network_linked_to_another_zone_is_tolerated() {
    let (azure, mut web) = begin(0);
    let other = ResourceId::network("s", "x", "privateDnsZones", "example.internal");
    let spoke = network(GUEST, "virtualNetworks", "spoke");
    let link = json!({ "properties": { "virtualNetwork": { "id": spoke } } });
    azure.state().set(&format!("{other}/virtualNetworkLinks/theirs"), link);
    web.run_for(&azure, 10 * MINUTES);
    assert!(web.is(Aspect::Available), "{:#?}", web.status().conditions);
    assert!(web.events.iter().any(|event| event.reason == "ZoneLinkedElsewhere"));
}

#[test]
fn deletion_rejects_connections_first_and_removes_finalizer_last() {
    let (azure, mut web) = working(25);
    let alias = web.status().service.alias.clone();
    let id = network(OTHER, "privateEndpoints", "theirs");
    assert!(azure.state().request_connection(OTHER, "theirs", alias.as_deref()));
    web.run_for(&azure, MINUTES);
    azure.state().calls.clear();
    web.delete(&azure);
    assert!(web.round(&azure, &Role::Owner).is_some());
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::Deleting)));
    let list = format!("{}/privateEndpointConnections", service());
    let mut connections = azure.state().below(&list).into_iter();
    let foreign = connections.find(|one| short(one["name"].as_str().unwrap()) == "theirs");
    let state = foreign.unwrap()["properties"]["privateLinkServiceConnectionState"].clone();
    assert_eq!(state["status"], "Rejected");
    assert!(!azure.state().calls.iter().any(|name| name == "PrivateLinkServices_Delete"));
    web.run_for(&azure, 10 * MINUTES);
    assert!(web.gone && !web.object.has_finalizer);
    assert!(!exists(&azure, &service()) && !exists(&azure, &endpoint()));
    assert!(exists(&azure, id.as_str()) && azure.state().foreign_changes.is_empty());
    let calls = azure.state().calls.clone();
    let first = |name: &str| calls.iter().position(|calls| calls == name).unwrap();
    assert!(first("RecordSets_Delete") < first("VirtualNetworkLinks_Delete"));
    assert!(first("VirtualNetworkLinks_Delete") < first("PrivateZones_Delete"));
    assert!(first("PrivateZones_Delete") < first("PrivateEndpoints_Delete"));
    assert!(
        first("PrivateLinkServices_UpdatePrivateEndpointConnection")
            < first("PrivateLinkServices_Delete")
    );
}

#[test]
fn absent_resources_count_as_deleted_and_errors_keep_the_finalizer() {
    // Before anything was created.
    let (azure, mut web) = begin(0);
    web.object.has_finalizer = true;
    web.delete(&azure);
    assert_eq!(web.round(&azure, &Role::Owner), Some(Next::Never));
    assert!(web.gone && azure.state().calls.is_empty());
    // Another party deleted one of the resources before the object is deleted.
    for gone in [service(), endpoint(), zone("web.hypershift.local"), zone("example.internal")] {
        let (azure, mut web) = working(0);
        azure.state().remove(&gone);
        web.delete(&azure);
        web.run_for(&azure, 10 * MINUTES);
        assert!(web.gone, "{gone}: {:#?}", web.status());
    }
    for operation in [
        "PrivateLinkServices_Delete",
        "PrivateLinkServices_UpdatePrivateEndpointConnection",
        "PrivateLinkServices_ListPrivateEndpointConnections",
        "PrivateEndpoints_Delete",
        "RecordSets_Delete",
        "VirtualNetworkLinks_Delete",
        "PrivateZones_Delete",
    ] {
        for fault in [
            Fault::Refused(Failure::Denied),
            Fault::Refused(Failure::Absent),
            Fault::Hangs,
            Fault::Lost,
            Fault::NoHandle,
            Fault::Fails,
            Fault::EndsAfter,
            Fault::EndsBefore,
        ] {
            let (azure, mut web) = working(10);
            azure.state().script = vec![(operation, fault)];
            web.delete(&azure);
            web.run_for(&azure, 60 * MINUTES);
            assert!(web.gone, "{operation} {fault:?}: {:#?}", web.status());
            let left = azure.state().own_ids().into_iter().filter(|id| *id != nat_subnet()).count();
            // If Azure reports a resource as absent, Weir takes it for deleted.
            let is_trusted = fault == Fault::Refused(Failure::Absent);
            assert!(left == 0 || is_trusted, "{operation} {fault:?}");
        }
    }
    let (azure, mut web) = working(0);
    azure.state().script = vec![("PrivateLinkServices_Delete", Fault::Refused(Failure::Denied)); 3];
    web.delete(&azure);
    web.run_for(&azure, 25 * MINUTES);
    assert!(!web.gone && web.object.has_finalizer);
    let calls = azure.state().calls.clone();
    // Every ten minutes: at 0, 10 and 20.
    assert_eq!(calls.iter().filter(|name| *name == "PrivateLinkServices_Delete").count(), 3);
    assert_eq!(web.why(Aspect::Available), Some((false, Reason::AzureError)));
}

#[test]
fn paused_objects_are_not_changed_unless_deleted() {
    let (azure, mut web) = working(0);
    azure.state().remove(&service());
    let until = Paused::Until("2026-11-18T14:00:00+02:00".to_owned());
    web.change(&azure, |object| object.spec.paused = until.clone());
    azure.state().calls.clear();
    web.run_for(&azure, 10 * MINUTES);
    assert_eq!(web.why(Aspect::Paused), Some((true, Reason::Paused)));
    assert!(azure.state().calls.is_empty() && web.pause(&azure) <= Duration::from_secs(300));
    web.run_for(&azure, 60 * MINUTES);
    assert!(web.is(Aspect::Available) && web.why(Aspect::Paused).is_none());
    web.change(&azure, |object| object.spec.paused = Paused::Until("tomorrow".to_owned()));
    azure.state().remove(&service());
    web.run_for(&azure, 10 * MINUTES);
    assert!(exists(&azure, &service()), "an invalid time does not pause");
    web.change(&azure, |object| object.spec.paused = Paused::Flag(true));
    web.delete(&azure);
    web.run_for(&azure, 10 * MINUTES);
    assert!(web.gone && !exists(&azure, &service()));
}

#[test]
fn invalid_objects_are_reported_with_backoff() {
    let (azure, mut web) = working(0);
    type Spoil = fn(&mut Spec);
    let wrongs: [(Spoil, &str); 4] = [
        (|spec| spec.location = "northeurope".to_owned(), "spec.location"),
        (|spec| spec.subscription = OTHER.to_owned(), "spec.subscription"),
        (|spec| spec.cluster = "x".repeat(80), "spec.service_name"),
        (|spec| spec.endpoint = None, "spec.endpoint.subnet"),
    ];
    for (wrong, field) in wrongs {
        let right = web.object.spec.clone();
        web.change(&azure, |object| wrong(&mut object.spec));
        assert_eq!(web.round(&azure, &Role::Owner), Some(Next::BackOff));
        assert_eq!(web.why(Aspect::Available), Some((false, Reason::Invalid)));
        assert!(web.message(Aspect::Service).contains(field), "{}", web.message(Aspect::Service));
        web.change(&azure, |object| object.spec = right);
        web.run_for(&azure, MINUTES);
        assert!(web.is(Aspect::Available));
    }
}

#[test]
fn observer_never_writes() {
    let (azure, web) = working(0);
    let observer = |candidate| Role::Observer { owner: "weir-1".to_owned(), candidate };
    let (candidate_role, bystander_role) = (observer(true), observer(false));
    let mut other = ObjectDriver::new(sample::object("shop/web"));
    assert!(matches!(other.round(&azure, &candidate_role), Some(Next::After(_))));
    assert_eq!(other.why(Aspect::Observed), Some((true, Reason::OtherOwner)));
    assert!(other.message(Aspect::Observed).contains("weir-1"));
    assert_eq!(other.status().service.alias, web.status().service.alias);
    assert!(azure.state().calls.iter().all(|name| name == "PrivateLinkServices_Get"));
    // An observer reads no more often than the owner, and obeys delays requested by Azure.
    assert_eq!(other.pause(&azure), Duration::from_secs(300));
    let mut early = ObjectDriver::new(sample::object("shop/early"));
    early.round(&azure, &candidate_role);
    assert_eq!(early.pause(&azure), Duration::from_secs(120));
    for (failure, pause) in [(Failure::Throttled, 1_234), (Failure::Denied, 600)] {
        azure.state().retry_after = Some(Duration::from_secs(1_234));
        azure.state().script = vec![("PrivateLinkServices_Get", Fault::Refused(failure))];
        other.round(&azure, &candidate_role);
        assert_eq!(other.pause(&azure), Duration::from_secs(pause));
        azure.state().calls.clear();
        let now = azure.state().now();
        azure.state().pass(now + pause / 2);
        other.round(&azure, &candidate_role);
        assert_eq!(
            azure.state().calls,
            Vec::<String>::new(),
            "{failure:?}: no call during the delay"
        );
        assert_eq!(other.pause(&azure), Duration::from_secs(pause - pause / 2));
        azure.state().pass(now + pause);
        other.round(&azure, &candidate_role);
        assert_eq!(other.pause(&azure), Duration::from_secs(300));
    }
    // An appliance that may become the owner keeps the object until the service is gone; another
    // one releases it at once.
    let mut candidate = ObjectDriver::new(web.object.clone());
    candidate.delete(&azure);
    assert!(matches!(candidate.round(&azure, &candidate_role), Some(Next::After(_))));
    assert!(candidate.object.has_finalizer);
    let mut never = ObjectDriver::new(web.object.clone());
    never.delete(&azure);
    assert_eq!(never.round(&azure, &bystander_role), Some(Next::Never));
    assert!(never.gone);
    azure.state().remove(&service());
    assert_eq!(candidate.round(&azure, &candidate_role), Some(Next::Never));
    assert!(candidate.gone);
}
