//! Private links: the real process at the stand-in for Azure, from a file to an available service
//! and back, over a kill; and a second appliance that observes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use standins::azure::{Standin, World};

use crate::appliance::{Folder, Running};

const OURS: &str = "00000000-0000-0000-0000-0000000000aa";
const GUEST: &str = "00000000-0000-0000-0000-0000000000bb";
/// Azure is polled every few seconds, and there are many steps.
const PATIENCE: Duration = Duration::from_secs(240);

/// Azure, with the consumers' subscription and a network in it.
struct Stage {
    azure: Standin,
    _serves: tokio::runtime::Runtime,
}

fn spoke() -> String {
    format!(
        "/subscriptions/{GUEST}/resourceGroups/guest/providers/Microsoft.Network/virtualNetworks/\
         spoke"
    )
}

impl Stage {
    fn new() -> Stage {
        let mut serves = tokio::runtime::Builder::new_multi_thread();
        let serves = serves.worker_threads(1).enable_all().build().unwrap();
        let mut world = World::sample();
        world.groups.push(format!("/subscriptions/{GUEST}/resourceGroups/guest"));
        let subnet = json!({ "name": "endpoints",
            "properties": { "addressPrefix": "10.7.0.0/24" } });
        let properties = json!({
            "addressSpace": { "addressPrefixes": ["10.7.0.0/16"] }, "subnets": [subnet],
        });
        world.write(&spoke(), json!({ "location": "westeurope", "properties": properties }));
        Stage { azure: serves.block_on(Standin::start(world)).unwrap(), _serves: serves }
    }

    fn slowpath(&self, folder: &Folder) -> Running {
        let ca = folder.path.join("azure.pem");
        std::fs::write(&ca, &self.azure.ca).unwrap();
        let (ca, url) = (ca.display().to_string(), self.azure.url.clone());
        folder.slowpath_with(&[("SSL_CERT_FILE", &ca), ("AZURE_AUTHORITY_HOST", &url)])
    }

    /// An appliance of this name that takes its objects from a folder.
    fn appliance(&self, name: &str, owner: &str) -> Folder {
        let folder = Folder::new(&format!("pls-{name}"));
        std::fs::create_dir_all(folder.path.join("wanted")).unwrap();
        let config = folder.config().replace("name = \"weir-p\"", &format!("name = \"{name}\""));
        let (resources, metadata) = (&self.azure.url, &self.azure.imds);
        let section = format!(
            "[private_link]\nowner = \"{owner}\"\nfleet = \"east\"\n\
             resource_manager = \"{resources}\"\nmetadata = \"{metadata}\"\n"
        );
        folder.write("weir.toml", &(config.replace("services.toml", "wanted") + &section));
        folder
    }

    fn there(&self, kind: &str) -> bool {
        self.azure.with(|world| world.resources.iter().any(|one| one.id.contains(kind)))
    }
}

/// Nobody is let in without being asked about.
fn link() -> String {
    let spec = json!({
        "load_balancer_ip": "10.1.0.5", "subscription": OURS, "resource_group": "north",
        "location": "westeurope", "auto_approved_subscriptions": [],
        "endpoint": {
            "subnet": format!("{}/subnets/endpoints", spoke()), "network": spoke(),
            "zones": [{ "name": "shop.internal", "records": ["api"] }],
        },
    });
    json!({ "kind": "PrivateLinkService", "name": "shop/web", "spec": spec }).to_string()
}

/// What `weir pls ARGS` tells, once it fits.
fn until(folder: &Folder, args: &[&str], fits: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let out = folder.weir(&[&["pls"], args, &["--json"]].concat());
        if let Ok(value) = serde_json::from_slice(&out.stdout)
            && fits(&value)
        {
            return value;
        }
        let log = std::fs::read_to_string(folder.path.join("log")).unwrap_or_default();
        assert!(begun.elapsed() < PATIENCE, "{args:?}: {out:?}\n{log}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn condition<'v>(shown: &'v Value, aspect: &str) -> Option<&'v Value> {
    let conditions = shown["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == aspect)
}

fn is(shown: &Value, aspect: &str) -> bool {
    condition(shown, aspect).is_some_and(|condition| condition["status"] == "True")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_becomes_a_service_that_outlives_a_kill_and_is_taken_back() {
    let stage = Stage::new();
    let folder = stage.appliance("weir-a", "weir-a");
    folder.write("wanted/link.yaml", &link());
    let mut slowpath = stage.slowpath(&folder);
    let show = ["show", "shop/web"];
    let waits = until(&folder, &show, |shown| is(shown, "ConnectionsWaiting"));
    let connection = waits["status"]["service"]["connections"][0]["name"].as_str().unwrap();
    assert_eq!(folder.weir(&["pls", "show", "shop/web"]).status.code(), Some(1));
    assert!(!is(&waits, "AzurePrivateLinkServiceAvailable"), "{waits}");

    slowpath.kill();
    let _again = stage.slowpath(&folder);
    let known = until(&folder, &show, |shown| shown["status"]["service"]["alias"].is_string());
    assert_eq!(known["status"]["service"]["alias"], waits["status"]["service"]["alias"]);
    let done = folder.weir(&["pls", "approve", "shop/web", connection, "--reason", "ours"]);
    assert!(done.status.success() && text(&done.stdout).contains("is Approved"), "{done:?}");
    let nobody = folder.weir(&["pls", "reject", "shop/web", "nobody"]);
    let said = text(&nobody.stderr);
    assert!(nobody.status.code() == Some(2) && said.contains(connection), "{said}");
    let rows = until(&folder, &["list"], |rows| rows[0]["available"] == true);
    assert!(rows[0]["endpoint_address"].as_str().unwrap().starts_with("10.7.0."), "{rows}");
    let table = text(&folder.weir(&["pls", "list"]).stdout);
    assert!(table.starts_with("NAME") && table.contains("shop/web"), "{table}");
    let path = "/v1/objects/private-link-services/shop/web?source=file";
    let object = folder.ask("GET", path, &[], "").json();
    assert!(is(&object, "AzurePrivateLinkServiceAvailable"), "{object}");
    assert_eq!(object["finalizers"], json!(["weir.dev/private-link-cleanup"]));
    let metrics = folder.get(folder.ports[2], "/metrics", "text/plain");
    assert!(metrics.contains("weir_private_link_available 1"), "{metrics}");
    let paused = folder.weir(&["pls", "pause", "shop/web"]);
    assert!(text(&paused.stderr).contains("source file"), "{paused:?}");

    stage.azure.take_calls();
    std::fs::remove_file(folder.path.join("wanted/link.yaml")).unwrap();
    until(&folder, &["list"], |rows| rows == &json!([]));
    for kind in ["/privateLinkServices/", "/privateEndpoints/", "/privateDnsZones/shop.internal"] {
        assert!(!stage.there(kind), "{kind} is left");
    }
    let calls = stage.azure.take_calls();
    let rejected = |body: &Value| body.to_string().contains("\"Rejected\"");
    let first = calls.iter().position(|call| call.method == "PUT" && rejected(&call.body));
    let last = calls.iter().position(|call| call.operation == "DELETE privateLinkServices");
    assert!(last.is_some() && first.is_none_or(|first| Some(first) < last), "{first:?} {last:?}");
    assert_eq!(folder.ask("GET", path, &[], "").status, 404);
}

#[test]
fn an_appliance_that_is_not_the_owner_observes_and_says_so() {
    let stage = Stage::new();
    let folder = stage.appliance("weir-b", "weir-a");
    let _slowpath = stage.slowpath(&folder);
    until(&folder, &["list"], |rows| rows == &json!([]));
    let path = "/v1/objects/private-link-services/shop/web";
    let wrong = link().replace("westeurope", "West Europe");
    let refused = folder.ask("PUT", path, &[("Content-Type", "application/json")], &wrong);
    assert_eq!((refused.status, &refused.json()["field"]), (422, &json!("spec.location")));
    let put = folder.ask("PUT", path, &[("Content-Type", "application/json")], &link());
    assert_eq!(put.status, 201, "{put:?}");
    let shown = until(&folder, &["show", "shop/web"], |shown| is(shown, "Observed"));
    assert!(condition(&shown, "Observed").unwrap()["message"].to_string().contains("weir-a"));
    assert!(folder.weir(&["pls", "pause", "shop/web"]).status.success());
    let spec = |shown: &Value| shown["spec"]["paused"].clone();
    assert_eq!(spec(&until(&folder, &["show", "shop/web"], |_| true)), json!(true));
    assert!(folder.weir(&["pls", "resume", "shop/web"]).status.success());
    assert_eq!(spec(&until(&folder, &["show", "shop/web"], |_| true)), Value::Null);
    assert!(!stage.there("/privateLinkServices/"), "nothing is made by an observer");
    assert!(matches!(folder.ask("DELETE", path, &[], "").status, 202 | 204));
    until(&folder, &["list"], |rows| rows == &json!([]));
}
