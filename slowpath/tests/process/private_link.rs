//! Tests of private links: the real process with the Azure emulator, from a file to an available
//! service and its deletion, with a kill in between; and several appliances of which one is the
//! owner.

use std::time::Duration;

use cloud_emulators::azure::{AzureState, Emulator};
use patience::eventually_within;
use serde_json::{Value, json};

use crate::appliance::{Folder, Running};

const SUBSCRIPTION: &str = "00000000-0000-0000-0000-0000000000aa";
/// Subscription of the consumers.
const FOREIGN: &str = "00000000-0000-0000-0000-0000000000bb";
/// Maximum duration of one wait: Azure is polled every few seconds, and a wait may take many steps.
const TIMEOUT: Duration = Duration::from_secs(240);

/// An emulated Azure, with the consumers' subscription and a network in it.
struct Stage {
    azure: Emulator,
    _runtime: tokio::runtime::Runtime,
}

/// Returns the id of the consumers' virtual network.
fn spoke() -> String {
    format!(
        "/subscriptions/{FOREIGN}/resourceGroups/guest/providers/Microsoft.Network/virtualNetworks/\
         spoke"
    )
}

impl Stage {
    fn new() -> Stage {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let mut state = AzureState::sample();
        state.groups.push(format!("/subscriptions/{FOREIGN}/resourceGroups/guest"));
        let subnet = json!({ "name": "endpoints",
            "properties": { "addressPrefix": "10.7.0.0/24" } });
        let properties = json!({
            "addressSpace": { "addressPrefixes": ["10.7.0.0/16"] }, "subnets": [subnet],
        });
        state.write(&spoke(), json!({ "location": "westeurope", "properties": properties }));
        Stage { azure: runtime.block_on(Emulator::start(state)).unwrap(), _runtime: runtime }
    }

    fn slowpath(&self, folder: &Folder) -> Running {
        let ca = folder.path.join("azure.pem");
        std::fs::write(&ca, &self.azure.ca).unwrap();
        let (ca, url) = (ca.display().to_string(), self.azure.url.clone());
        folder.slowpath_with(&[("SSL_CERT_FILE", &ca), ("AZURE_AUTHORITY_HOST", &url)])
    }

    /// Creates an appliance with this name that reads objects from a folder; `owner` is the
    /// configuration of the ownership.
    fn appliance(&self, name: &str, owner: &str) -> Folder {
        let folder = Folder::new(&format!("pls-{name}"));
        std::fs::create_dir_all(folder.path.join("desired")).unwrap();
        self.configure(&folder, name, owner);
        folder
    }

    /// Writes the appliance's configuration.
    fn configure(&self, folder: &Folder, name: &str, owner: &str) {
        let config = folder.config().replace("name = \"weir-p\"", &format!("name = \"{name}\""));
        let (resources, metadata) = (&self.azure.url, &self.azure.imds);
        let section = format!(
            "[private_link]\n{owner}\nfleet = \"east\"\nsubscription = \"{SUBSCRIPTION}\"\n\
             resource_group = \"north\"\nlocation = \"westeurope\"\n\
             resource_manager = \"{resources}\"\nmetadata = \"{metadata}\"\n"
        );
        folder.write("weir.toml", &(config.replace("services.toml", "desired") + &section));
    }

    /// Connects a foreign endpoint, which still exists after the appliance's own is deleted.
    fn connect_foreign_endpoint(&self) {
        let endpoint = "/subscriptions/00000000-0000-0000-0000-0000000000ff/resourceGroups/other/\
                        providers/Microsoft.Network/privateEndpoints/other";
        let connection = json!({ "name": "other.1", "properties": {
            "privateEndpoint": { "id": endpoint }, "linkIdentifier": "77",
            "privateLinkServiceConnectionState": {
                "status": "Pending", "description": "let us in", "actionsRequired": "None",
            },
        }});
        self.azure.with(|state| {
            let mut all = state.resources.iter_mut();
            let service = all.find(|one| one.id.contains("/privateLinkServices/")).unwrap();
            let exists = &mut service.body["properties"]["privateEndpointConnections"];
            exists.as_array_mut().unwrap().push(connection);
        });
    }

    /// Returns whether Azure has a resource whose ID contains `kind`.
    fn exists(&self, kind: &str) -> bool {
        self.azure.with(|state| state.resources.iter().any(|one| one.id.contains(kind)))
    }
}

/// Returns a `PrivateLinkService` whose connections have to be approved by hand.
fn link() -> String {
    let spec = json!({
        "load_balancer_ip": "10.1.0.5", "subscription": SUBSCRIPTION, "resource_group": "north",
        "location": "westeurope", "auto_approved_subscriptions": [],
        "endpoint": {
            "subnet": format!("{}/subnets/endpoints", spoke()), "network": spoke(),
            "zones": [{ "name": "shop.internal", "records": ["api"] }],
        },
    });
    json!({ "kind": "PrivateLinkService", "name": "shop/web", "spec": spec }).to_string()
}

/// Removes the only file of the services' folder, and confirms the removal.
fn remove_the_only_file(folder: &Folder) {
    std::fs::remove_file(folder.path.join("desired/link.yaml")).unwrap();
    folder.until(&["status"], |status| status["held"][0]["source"] == "file");
    let confirmed = folder.weir(&["source", "confirm", "file"]);
    assert!(confirmed.status.success(), "{confirmed:?}");
}

/// Runs `weir pls ARGS` until the output satisfies `fits`.
fn until(folder: &Folder, args: &[&str], fits: impl Fn(&Value) -> bool) -> Value {
    folder.until_within(TIMEOUT, &[&["pls"], args].concat(), fits)
}

/// Returns the condition of a type.
fn condition<'v>(shown: &'v Value, aspect: &str) -> Option<&'v Value> {
    let conditions = shown["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == aspect)
}

/// Returns whether the condition of this type is true.
fn is_true(shown: &Value, aspect: &str) -> bool {
    condition(shown, aspect).is_some_and(|condition| condition["status"] == "True")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_private_link_file_creates_a_service_that_survives_a_kill_and_is_deleted() {
    let stage = Stage::new();
    let folder = stage.appliance("weir-a", "owner = \"weir-a\"");
    folder.write("desired/link.yaml", &link());
    let mut slowpath = stage.slowpath(&folder);
    let show = ["show", "shop/web"];
    let waits = until(&folder, &show, |shown| is_true(shown, "ConnectionsWaiting"));
    let connection = waits["status"]["service"]["connections"][0]["name"].as_str().unwrap();
    assert_eq!(folder.weir(&["pls", "show", "shop/web"]).status.code(), Some(1));
    assert!(!is_true(&waits, "AzurePrivateLinkServiceAvailable"), "{waits}");

    slowpath.kill();
    let _again = stage.slowpath(&folder);
    let known = until(&folder, &show, |shown| shown["status"]["service"]["alias"].is_string());
    assert_eq!(known["status"]["service"]["alias"], waits["status"]["service"]["alias"]);
    let done = folder.weir(&["pls", "approve", "shop/web", connection, "--reason", "reviewed"]);
    assert!(done.status.success() && text(&done.stdout).contains("is Approved"), "{done:?}");
    let unknown = folder.weir(&["pls", "reject", "shop/web", "unknown"]);
    let error = text(&unknown.stderr);
    assert!(unknown.status.code() == Some(2) && error.contains(connection), "{error}");
    let rows = until(&folder, &["list"], |rows| rows[0]["available"] == true);
    assert!(rows[0]["endpoint_address"].as_str().unwrap().starts_with("10.7.0."), "{rows}");
    let table = text(&folder.weir(&["pls", "list"]).stdout);
    assert!(table.starts_with("NAME") && table.contains("shop/web"), "{table}");
    let path = "/v1/objects/private-link-services/shop/web?source=file";
    let object = folder.request("GET", path, &[], "").json();
    assert!(is_true(&object, "AzurePrivateLinkServiceAvailable"), "{object}");
    assert_eq!(object["finalizers"], json!(["weir.dev/private-link-cleanup"]));
    let metrics = folder.get(folder.ports[2], "/metrics", "text/plain");
    assert!(metrics.contains("weir_private_link_available 1"), "{metrics}");
    let metric =
        r#"weir_private_link_calls_total{operation="PrivateLinkServices_Get",outcome="ok"}"#;
    assert!(metrics.contains(metric), "{metrics}");
    let happened = |shown: &Value| shown["events"].to_string().contains("ServiceCreationStarted");
    assert!(happened(&until(&folder, &show, |_| true)), "events outlive the process");
    assert_second_object_is_shadowed(&folder);
    let paused = folder.weir(&["pls", "pause", "shop/web"]);
    assert!(text(&paused.stderr).contains("source file"), "{paused:?}");

    stage.connect_foreign_endpoint();
    stage.azure.take_calls();
    remove_the_only_file(&folder);
    until(&folder, &["list"], |rows| rows == &json!([]));
    for kind in ["/privateLinkServices/", "/privateEndpoints/", "/privateDnsZones/shop.internal"] {
        assert!(!stage.exists(kind), "{kind} is left");
    }
    let calls = stage.azure.take_calls();
    let rejected = |body: &Value| body.to_string().contains("\"Rejected\"");
    let first = calls.iter().position(|call| call.method == "PUT" && rejected(&call.body));
    let last = calls.iter().position(|call| call.operation == "DELETE privateLinkServices");
    let (first, last) = (first.unwrap(), last.unwrap());
    assert!(first < last, "connections are rejected before the deletion: {first} {last}");
    assert_eq!(folder.request("GET", path, &[], "").status, 404);
}

/// Creates the link through the API as well, and asserts that the file's object has precedence.
fn assert_second_object_is_shadowed(folder: &Folder) {
    let path = "/v1/objects/private-link-services/shop/web";
    let put = folder.request("PUT", path, &[("Content-Type", "application/json")], &link());
    assert_eq!(put.status, 201, "{put:?}");
    let accepted = eventually_within(TIMEOUT, "the condition Accepted", || {
        let object = folder.request("GET", path, &[], "").json();
        condition(&object, "Accepted").cloned().ok_or_else(|| object.to_string())
    });
    let verdict = (&accepted["status"], &accepted["reason"]);
    assert_eq!(verdict, (&json!("False"), &json!("Shadowed")), "{accepted}");
    assert!(accepted["message"].as_str().unwrap().contains("`file`"), "{accepted}");
    assert!(matches!(folder.request("DELETE", path, &[], "").status, 202 | 204));
}

#[test]
fn an_appliance_that_is_not_the_owner_only_observes() {
    let stage = Stage::new();
    let folder = stage.appliance("weir-b", "owner = \"weir-a\"");
    let _slowpath = stage.slowpath(&folder);
    until(&folder, &["list"], |rows| rows == &json!([]));
    let path = "/v1/objects/private-link-services/shop/web";
    let wrong = link().replace("westeurope", "West Europe");
    let rejected = folder.request("PUT", path, &[("Content-Type", "application/json")], &wrong);
    assert_eq!((rejected.status, &rejected.json()["field"]), (422, &json!("spec.location")));
    let put = folder.request("PUT", path, &[("Content-Type", "application/json")], &link());
    assert_eq!(put.status, 201, "{put:?}");
    let shown = until(&folder, &["show", "shop/web"], |shown| is_true(shown, "Observed"));
    assert!(condition(&shown, "Observed").unwrap()["message"].to_string().contains("weir-a"));
    assert!(folder.weir(&["pls", "pause", "shop/web"]).status.success());
    let spec = |shown: &Value| shown["spec"]["paused"].clone();
    assert_eq!(spec(&until(&folder, &["show", "shop/web"], |_| true)), json!(true));
    assert!(folder.weir(&["pls", "resume", "shop/web"]).status.success());
    assert_eq!(spec(&until(&folder, &["show", "shop/web"], |_| true)), Value::Null);
    assert!(!stage.exists("/privateLinkServices/"), "nothing is made by an observer");
    assert!(matches!(folder.request("DELETE", path, &[], "").status, 202 | 204));
    until(&folder, &["list"], |rows| rows == &json!([]));
}

/// Returns a `PrivateLinkService` with automatic approval. Its subscription, resource group and
/// location are those of the configuration.
fn plain_link() -> String {
    let network = spoke();
    let endpoint = json!({ "subnet": format!("{network}/subnets/endpoints"), "network": network });
    let spec = json!({ "load_balancer_ip": "10.1.0.5", "endpoint": endpoint });
    json!({ "kind": "PrivateLinkService", "name": "shop/web", "spec": spec }).to_string()
}

const SHOW: [&str; 2] = ["show", "shop/web"];

fn available(shown: &Value) -> bool {
    is_true(shown, "AzurePrivateLinkServiceAvailable")
}

fn alias(shown: &Value) -> String {
    shown["status"]["service"]["alias"].as_str().unwrap_or_default().to_owned()
}

/// Returns whether the appliance only observes the link, which `owner` owns.
fn observes(shown: &Value, owner: &str) -> bool {
    is_true(shown, "Observed")
        && condition(shown, "Observed").unwrap()["message"].as_str().unwrap().contains(owner)
}

#[test]
fn ownership_moves_by_configuration() {
    let stage = Stage::new();
    let folders = ["weir-1", "weir-2"].map(|name| stage.appliance(name, "owner = \"weir-1\""));
    folders.iter().for_each(|folder| folder.write("desired/link.yaml", &plain_link()));
    let mut first = stage.slowpath(&folders[0]);
    let owned = until(&folders[0], &SHOW, available);
    assert!(!is_true(&owned, "Observed"), "{owned}");
    // An observer that finds no service checks again only after two minutes, so it is started once
    // there is a service. In the test with a lease, both appliances start together.
    let mut second = stage.slowpath(&folders[1]);
    let watched = |shown: &Value| observes(shown, "weir-1") && alias(shown) == alias(&owned);
    until(&folders[1], &SHOW, watched);
    first.kill();
    second.kill();
    stage.azure.take_calls();
    stage.configure(&folders[1], "weir-2", "owner = \"weir-2\"");
    let _second = stage.slowpath(&folders[1]);
    let taken = until(&folders[1], &SHOW, available);
    assert!(!is_true(&taken, "Observed") && alias(&taken) == alias(&owned), "{taken}");
    let calls = stage.azure.take_calls();
    let written = calls.iter().filter(|call| ["PUT", "DELETE"].contains(&&*call.method));
    let written: Vec<&str> = written.map(|call| call.operation.as_str()).collect();
    assert!(written.is_empty(), "existing resources are found, not created again: {written:?}");
}

#[test]
fn ownership_by_lease_moves_when_the_owner_is_killed() {
    let stage = Stage::new();
    let zone = format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/north/providers/Microsoft.Network/\
         privateDnsZones/weir.lease"
    );
    stage.azure.with(|state| state.write(&zone, json!({ "location": "global", "properties": {} })));
    let names = ["weir-3", "weir-4"];
    let lease = format!("lease_zone = \"{zone}\"\nlease_s = 15");
    let folders = names.map(|name| stage.appliance(name, &lease));
    folders.iter().for_each(|folder| folder.write("desired/link.yaml", &plain_link()));
    let mut running = [stage.slowpath(&folders[0]), stage.slowpath(&folders[1])];
    // One appliance owns the link, and the other one reports it as the owner.
    let owner = eventually_within(TIMEOUT, "one owner and one observer", || {
        let shown = folders.each_ref().map(|folder| until(folder, &SHOW, |_| true));
        let is_owner = |at: usize| available(&shown[at]) && observes(&shown[1 - at], names[at]);
        [0, 1].into_iter().find(|at| is_owner(*at)).ok_or_else(|| format!("{shown:?}"))
    });
    let other = 1 - owner;
    let owned = until(&folders[owner], &SHOW, available);
    running[owner].kill();
    let taken =
        until(&folders[other], &SHOW, |shown| available(shown) && !is_true(shown, "Observed"));
    assert_eq!(alias(&taken), alias(&owned), "it is the same service");
    // The new owner may delete what the other one created.
    remove_the_only_file(&folders[other]);
    until(&folders[other], &["list"], |rows| rows == &json!([]));
    assert!(!stage.exists("/privateLinkServices/") && !stage.exists("/privateEndpoints/"));
}
