//! Random histories of two objects at Azure: calls that are refused or hang, lost responses,
//! processes that end during a call, operations that fail or never end, resources that another
//! party deletes, changes or creates, and changes of the desired state.
//!
//! In the end each object is in its desired state or reports why not, and Weir has never written or
//! deleted a resource of another party. The seed of a history determines all of it.
//! `SIMULATION_SEED=7 cargo test -p private-link --test simulation` repeats one history;
//! `SIMULATIONS=100000` runs that many.
#![expect(clippy::unwrap_used, reason = "a test states what it expects")]

#[expect(dead_code, reason = "this test uses a part of the emulator")]
mod emulator;

use azure::id::ResourceId;
use fastrand::Rng;
use private_link::Role;
use private_link::object::{Aspect, Paused, Reason, Status};
use serde_json::{Value, json};

use emulator::Azure;
use emulator::driver::ObjectDriver;
use emulator::sample::{self, GUEST, OTHER, PROVIDER, network};

/// Default number of histories.
const HISTORIES: u64 = 400;
const HOUR: u64 = 3_600;

#[test]
fn random_histories_converge_and_preserve_foreign_resources() {
    simulation::run_histories("private-link --test simulation", HISTORIES, history);
}

struct History {
    azure: Azure,
    drivers: Vec<ObjectDriver>,
    rng: Rng,
}

fn history(rng: &mut Rng) {
    let azure = sample::azure();
    {
        let mut cloud = azure.state();
        cloud.rng = Some(Rng::with_seed(rng.u64(..)));
        cloud.faults = 4 + rng.u64(..60);
        cloud.slowness = rng.u64(..120);
    }
    let drivers = ["shop/web", "shop/blog"].map(|name| ObjectDriver::new(sample::object(name)));
    let mut history = History { azure, drivers: drivers.into(), rng: rng.clone() };
    history.disturb();
    history.settle();
    for driver in &history.drivers {
        history.check(driver);
    }
    history.end();
}

impl History {
    /// Runs half an hour to two and a half hours with random disturbances.
    fn disturb(&mut self) {
        let end = self.azure.state().now() + HOUR / 2 + self.rng.u64(..2 * HOUR);
        while self.azure.state().now() < end {
            let next = self.drivers.iter().map(|driver| driver.due).min().unwrap();
            let now = self.azure.state().now();
            self.azure.state().pass(next.clamp(now, now + 60));
            let now = self.azure.state().now();
            for at in 0..self.drivers.len() {
                if self.drivers[at].due <= now {
                    self.round(at);
                }
            }
            if self.rng.u32(..12) == 0 {
                self.interfere();
            }
        }
    }

    /// Runs a round. Sometimes the new status is lost, as if the process ended before storing it.
    fn round(&mut self, at: usize) {
        let before = self.drivers[at].object.clone();
        let driver = &mut self.drivers[at];
        let now = self.azure.state().now();
        let ended = driver.round(&self.azure, &Role::Owner).is_none();
        let forgets = !ended && self.rng.u32(..25) == 0;
        if forgets {
            driver.object = before;
        }
        if ended || forgets {
            driver.due = now + self.rng.u64(..20);
        }
    }

    /// Performs a random change: by another party at Azure, or of an object's desired state.
    fn interfere(&mut self) {
        let which = self.rng.usize(..self.drivers.len());
        let name = self.drivers[which].object.name.clone();
        let service = service_of(&name);
        let endpoint = endpoint_of(&name);
        let foreign = json!({ "tags": { "made": "by hand" }, "properties": {} });
        let zone = network(GUEST, "privateDnsZones", "example.internal").to_string();
        let mut cloud = self.azure.state();
        let now = cloud.now();
        match self.rng.u64(..16) {
            0 => cloud.remove(&service),
            1 => cloud.remove(&endpoint),
            2 => cloud.remove(&zone),
            3 => cloud.edit(&service, |body| {
                body["properties"]["visibility"]["subscriptions"] = json!([PROVIDER]);
            }),
            4 => cloud.edit(&service, |body| body["tags"] = json!({})),
            5 => cloud.edit(&endpoint, |body| body["tags"] = json!({ "stripped": "yes" })),
            6 => cloud.edit(&nat_subnet(), |body| {
                body["properties"]["privateLinkServiceNetworkPolicies"] = "Enabled".into();
            }),
            7 => {
                cloud.remove(&service);
                cloud.set(&service, foreign);
            }
            8 => {
                cloud.remove(&endpoint);
                cloud.set(&endpoint, foreign);
            }
            9 => {
                let record = format!("{zone}/A/theirs-{}", self.rng.u64(..3));
                if cloud.get(&zone).is_some() {
                    let list = json!([{ "ipv4Address": "10.9.9.9" }]);
                    cloud.set(&record, json!({ "properties": { "aRecords": list } }));
                }
            }
            10 => {
                let short = name.rsplit('/').next().unwrap_or_default();
                let record = format!("{zone}/A/api-{short}");
                cloud.remove(&record);
                if cloud.get(&zone).is_some() && self.rng.u32(..2) == 0 {
                    let list = json!([{ "ipv4Address": "10.9.9.9" }]);
                    cloud.set(&record, json!({ "properties": { "aRecords": list } }));
                }
            }
            11 => {
                let alias = self.drivers[which].status().service.alias.clone();
                cloud.request_connection(OTHER, "theirs", alias.as_deref());
            }
            12 => {
                let connections = cloud.below(&format!("{service}/privateEndpointConnections"));
                for id in connections.iter().filter_map(|connection| connection["id"].as_str()) {
                    cloud.edit(id, |body| {
                        body["properties"]["privateLinkServiceConnectionState"]["status"] =
                            "Rejected".into();
                    });
                }
            }
            13 => {
                // Azure keeps a subnet that is in use.
                let services = network(PROVIDER, "privateLinkServices", "");
                if cloud.below(services.as_str().trim_end_matches('/')).is_empty() {
                    cloud.remove(nat_subnet().as_str());
                }
            }
            14 => {
                let paused = self.rng.u32(..2) == 0;
                let object = &mut self.drivers[which].object;
                object.spec.paused = Paused::Flag(paused);
                object.generation += 1;
                self.drivers[which].due = now;
            }
            _ => {
                let more = self.rng.u32(..2) == 0;
                let driver = &mut self.drivers[which];
                let list = &mut driver.object.spec.additional_allowed_subscriptions;
                *list = if more { vec![OTHER.to_owned()] } else { vec![] };
                let endpoint = driver.object.spec.endpoint.as_mut().unwrap();
                let odd = "odd".to_owned();
                let records = &mut endpoint.zones[0].records;
                match records.contains(&odd) {
                    true => records.retain(|record| *record != odd),
                    false => records.push(odd),
                }
                driver.object.generation += 1;
                driver.due = now;
            }
        }
    }

    /// Ends disturbances and hanging operations, and runs two more hours.
    fn settle(&mut self) {
        {
            let mut cloud = self.azure.state();
            (cloud.faults, cloud.slowness) = (0, 20);
            cloud.end_all();
            let now = cloud.now();
            cloud.pass(now);
        }
        let now = self.azure.state().now();
        for driver in &mut self.drivers {
            driver.object.spec.paused = Paused::default();
            driver.object.generation += 1;
            driver.due = now;
        }
        self.run_rounds(2 * HOUR);
    }

    /// Runs the rounds of all objects as they are due.
    fn run_rounds(&mut self, seconds: u64) {
        let end = self.azure.state().now() + seconds;
        let mut rounds = 0;
        loop {
            let next = self.drivers.iter().filter(|driver| !driver.gone).map(|driver| driver.due);
            let Some(next) = next.min().filter(|next| *next <= end) else { break };
            self.azure.state().pass(next);
            let now = self.azure.state().now();
            for driver in self.drivers.iter_mut().filter(|driver| !driver.gone) {
                if driver.due <= now {
                    driver.round(&self.azure, &Role::Owner);
                    rounds += 1;
                }
            }
            assert!(rounds < 5_000, "the rounds never settle");
        }
        self.azure.state().pass(end);
    }

    /// Checks that the object is in its desired state, or that a condition reports correctly why
    /// not.
    fn check(&self, driver: &ObjectDriver) {
        let mut cloud = self.azure.state();
        assert_eq!(cloud.foreign_changes, Vec::<String>::new());
        let object = &driver.object;
        let status = driver.status();
        let (holds, reason) =
            driver.why(Aspect::Available).expect("the condition Available is set");
        let message = driver.message(Aspect::Available);
        let stripped = |id: &str| {
            let tags = cloud.get(id).map(|body| body["tags"].clone());
            tags.is_some_and(|tags| tags["weir-object"] != json!(object.name))
        };
        let service = service_of(&object.name);
        let endpoint = endpoint_of(&object.name);
        let foreign = cloud.get(&service).is_some() && !cloud.is_own(&service);
        if holds {
            assert_desired(&mut cloud, object, status);
            return;
        }
        let justified = match reason {
            Reason::NotOurs => {
                stripped(&service)
                    || stripped(&endpoint)
                    || message.contains("does not point to")
                    || message.contains("links another network")
            }
            Reason::NotApproved => {
                let connections = cloud.below(&format!("{service}/privateEndpointConnections"));
                let own = |one: &Value| one["properties"]["privateEndpoint"]["id"] == endpoint;
                let connection = connections.into_iter().find(own);
                connection.is_some_and(|body| {
                    body["properties"]["privateLinkServiceConnectionState"]["status"] != "Approved"
                })
            }
            Reason::SubnetPoliciesEnabled => {
                cloud.get(&nat_subnet()).is_some_and(|body| {
                    body["properties"]["privateLinkServiceNetworkPolicies"] == "Enabled"
                }) && status.service.made_subnet.as_ref().map(ResourceId::to_string)
                    != Some(nat_subnet())
            }
            _ => false,
        };
        assert!(justified, "{reason:?} {message}: {status:#?}\nforeign: {foreign}");
    }

    /// Deletes all objects, and checks that only the NAT subnet and resources of others are left.
    fn end(&mut self) {
        let others = |azure: &Azure| {
            let mut foreign = azure.state().foreign_ids();
            foreign.sort_unstable();
            foreign
        };
        let before = others(&self.azure);
        for driver in &mut self.drivers {
            driver.delete(&self.azure);
        }
        self.run_rounds(2 * HOUR);
        let cloud = self.azure.state();
        for driver in &self.drivers {
            assert!(driver.gone, "{:#?}", driver.status());
        }
        assert_eq!(cloud.foreign_changes, Vec::<String>::new());
        drop(cloud);
        assert_eq!(others(&self.azure), before);
        let mut cloud = self.azure.state();
        // Zones with records of others stay, and so do resources whose tags were removed: Weir no
        // longer recognizes them.
        let own = cloud.own_ids().into_iter().filter(|id| *id != nat_subnet());
        let own = own.filter(|id| !id.contains("example.internal"));
        let left: Vec<String> = own
            .filter(|id| cloud.get(id).is_some_and(|body| body["tags"]["stripped"] != "yes"))
            .collect();
        let stripped = |id: &String| {
            cloud.get(id).is_some_and(|body| body["tags"]["weir-object"].is_null())
                && id.contains("/privateLinkServices/")
        };
        let left: Vec<String> = left.into_iter().filter(|id| !stripped(id)).collect();
        assert_eq!(left, Vec::<String>::new());
        let zone = network(GUEST, "privateDnsZones", "example.internal").to_string();
        let records = cloud.below(&format!("{zone}/A"));
        let made = |record: &Value| cloud.is_own(record["id"].as_str().unwrap());
        assert!(!records.iter().any(made), "{records:?}");
        if cloud.get(&zone).is_some() && cloud.is_own(&zone) {
            let links = cloud.below(&format!("{zone}/virtualNetworkLinks"));
            assert!(!records.is_empty() || !links.is_empty(), "an empty zone was left");
        }
    }
}

fn assert_desired(
    cloud: &mut emulator::FaultyAzure,
    object: &private_link::object::Object,
    status: &Status,
) {
    let service = cloud.get(&service_of(&object.name)).expect("the service exists");
    let listed = |key: &str| {
        let list = service["properties"][key]["subscriptions"].as_array().cloned();
        let list = list.unwrap_or_default();
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let visible: std::collections::BTreeSet<String> = listed("visibility");
    assert_eq!(visible, object.spec.permitted_subscriptions());
    assert_eq!(status.service.alias.as_deref(), service["properties"]["alias"].as_str());
    let endpoint = cloud.get(&endpoint_of(&object.name)).expect("the endpoint exists");
    let connection = endpoint
        .pointer("/properties/manualPrivateLinkServiceConnections/0/properties")
        .expect("it has a connection");
    assert_eq!(connection["privateLinkServiceId"], service["properties"]["alias"]);
    assert_eq!(connection["privateLinkServiceConnectionState"]["status"], "Approved");
    let interface = endpoint["properties"]["networkInterfaces"][0]["id"].as_str().unwrap();
    let interface = cloud.get(interface).expect("the endpoint has an interface");
    let address = &interface["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"];
    for zone in &object.spec.endpoint.as_ref().unwrap().zones {
        let id = network(GUEST, "privateDnsZones", &zone.name).to_string();
        let mut expected: Vec<&str> = zone.records.iter().map(String::as_str).collect();
        for record in &zone.records {
            let record_set = cloud.get(&format!("{id}/A/{record}")).expect("the record exists");
            let list = &record_set["properties"]["aRecords"];
            assert_eq!(*list, json!([{ "ipv4Address": address }]));
        }
        expected.sort_unstable();
        if zone.name.ends_with(".local") {
            let names = cloud.below(&format!("{id}/A"));
            let mut names: Vec<&str> =
                names.iter().filter_map(|record| record["name"].as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, expected, "no DNS name is left over");
        }
        assert_eq!(cloud.below(&format!("{id}/virtualNetworkLinks")).len(), 1);
    }
}

fn service_of(object: &str) -> String {
    let name = format!("pls-{}", object.replace('/', "-"));
    network(PROVIDER, "privateLinkServices", &name).to_string()
}

fn endpoint_of(object: &str) -> String {
    network(GUEST, "privateEndpoints", &format!("{}-pe", object.replace('/', "-"))).to_string()
}

fn nat_subnet() -> String {
    network(PROVIDER, "virtualNetworks", "hub").child("subnets", "weir-pls-nat").to_string()
}
