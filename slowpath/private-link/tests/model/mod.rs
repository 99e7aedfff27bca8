//! A small Azure in memory: resources with ETags, operations that take their time, fail or hang,
//! answers that get lost, and a note of who made what.

pub mod play;
pub mod sample;

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending, ready};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use azure::arm::{Arm, Ask, Begun, Call, Handle, Progress, Resource};
use azure::id::ResourceId;
use clouds::failure::{Failure, Operation, Setback};
use clouds::retry::Pause;
use fastrand::Rng;
use serde_json::{Value, json};

/// What becomes of a call, where it doesn't simply do what is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is refused so.
    Refused(Failure),
    /// No answer comes, and nothing was done.
    Hangs,
    /// It is done, and no answer comes.
    Lost,
    /// The process ends in it; it is done, or it isn't.
    Ends(bool),
    /// A write goes on without a way to follow it.
    NoHandle,
    /// A write goes on and fails.
    Fails,
    /// A write goes on and never ends.
    Never,
}

/// A resource.
#[derive(Clone, Debug)]
pub struct Thing {
    pub id: String,
    pub body: Value,
    pub etag: u64,
    /// Weir made it; else somebody else did.
    pub ours: bool,
    /// An operation is at it.
    pub busy: Option<u64>,
}

/// An operation that goes on.
#[derive(Clone, Debug)]
struct Job {
    id: String,
    ends: Option<u64>,
    fails: bool,
    deletes: bool,
    over: bool,
    /// Why it fails, where a write is to blame.
    doom: Option<Setback>,
}

/// The world.
#[derive(Default)]
pub struct World {
    pub things: BTreeMap<String, Thing>,
    jobs: Vec<Job>,
    /// All jobs before this one are over.
    ended: usize,
    pub now: u64,
    etags: u64,
    guids: u64,
    /// Operations take up to so many seconds; 0 for none.
    pub slowness: u64,
    /// One call in so many meets a fault; 0 for none.
    pub faults: u64,
    /// What the next calls of an operation meet, by its name.
    pub script: Vec<(&'static str, Fault)>,
    pub rng: Option<Rng>,
    /// The bound of the call that is under way runs out.
    hanging: bool,
    /// What we did to things that others made.
    pub trespasses: Vec<String>,
    /// Operations by their names, as they were asked.
    pub asked: Vec<String>,
    /// What [`Failure::Throttled`] asks to wait.
    pub retry_after: Option<Duration>,
}

/// Shared by all who ask.
#[derive(Clone, Default)]
pub struct Azure(pub Arc<Mutex<World>>);

impl Azure {
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

/// Asks once, and drops it if it waits: as a process that is killed.
pub fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(told) => Some(told),
        Poll::Pending => None,
    }
}

/// Bounds run out at once where a call hangs, and never else.
impl Pause for Azure {
    fn now(&self) -> Duration {
        Duration::from_secs(self.world().now)
    }

    fn wait(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let azure = self.clone();
        Box::pin(std::future::poll_fn(move |_| match azure.world().hanging {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }
}

fn kind_of(id: &str) -> &str {
    id.rsplit('/').nth(1).unwrap_or_default()
}

fn key(id: &str) -> String {
    id.to_ascii_lowercase()
}

impl World {
    /// Somebody else makes a thing, or changes it.
    pub fn set(&mut self, id: &str, body: Value) {
        self.write(id, body, false);
    }

    pub fn get(&self, id: &str) -> Option<&Value> {
        self.things.get(&key(id)).map(|thing| &thing.body)
    }

    pub fn edit(&mut self, id: &str, change: impl FnOnce(&mut Value)) {
        self.etags += 1;
        let etag = self.etags;
        if let Some(thing) = self.things.get_mut(&key(id)) {
            change(&mut thing.body);
            thing.etag = etag;
        }
    }

    /// Somebody else deletes it, and whatever is part of it.
    pub fn remove(&mut self, id: &str) {
        let (own, below) = (key(id), key(id) + "/");
        self.things.retain(|id, _| *id != own && !id.starts_with(&below));
        self.jobs.iter_mut().filter(|job| key(&job.id) == own).for_each(|job| job.over = true);
        self.connect();
    }

    /// Everything that is in a resource of a type, or in a group.
    pub fn below(&self, prefix: &str) -> Vec<&Thing> {
        let prefix = key(prefix) + "/";
        let from = self.things.range(prefix.clone()..);
        let own = from.take_while(|(id, _)| id.starts_with(&prefix));
        own.filter(|(id, _)| !id[prefix.len()..].contains('/')).map(|(_, thing)| thing).collect()
    }

    /// Operations that hang end at last.
    pub fn end_all(&mut self) {
        let now = self.now;
        self.jobs.iter_mut().for_each(|job| job.ends = job.ends.or(Some(now)));
    }

    fn write(&mut self, id: &str, mut body: Value, ours: bool) {
        self.etags += 1;
        let name = id.rsplit('/').next().unwrap_or_default();
        body["id"] = id.into();
        body["name"] = name.into();
        let kind = id.split('/').rev().nth(1).unwrap_or_default();
        body["type"] = format!("Microsoft.Network/{kind}").into();
        let before = self.things.get(&key(id)).cloned();
        if kind == "privateLinkServices" {
            self.guids += 1;
            let guid = self.guids;
            let known = before.as_ref().map(|thing| thing.body["properties"]["alias"].clone());
            let new = || json!(format!("{name}.{guid:08x}.westeurope.azure.privatelinkservice"));
            body["properties"]["alias"] = known.unwrap_or_else(new);
        }
        let ours = before.as_ref().map_or(ours, |thing| thing.ours);
        if body["properties"].is_null() {
            body["properties"] = json!({});
        }
        if !matches!(kind, "A" | "AAAA" | "TXT" | "privateEndpointConnections") {
            body["properties"]["provisioningState"] = "Succeeded".into();
        }
        let thing = Thing { id: id.to_owned(), body, etag: self.etags, ours, busy: None };
        self.things.insert(key(id), thing);
        if kind == "privateDnsZones" {
            self.write(&format!("{id}/SOA/@"), json!({ "properties": { "ttl": 3600 } }), ours);
        }
        if matches!(kind, "privateLinkServices" | "privateEndpoints" | "privateEndpointConnections")
        {
            self.connect();
        }
    }

    /// Endpoints and services meet: connections come and go.
    fn connect(&mut self) {
        let of = |kind: &str| {
            let found = self.things.values().filter(|thing| kind_of(&thing.id) == kind);
            found.cloned().collect::<Vec<Thing>>()
        };
        let services = of("privateLinkServices");
        let connections = of("privateEndpointConnections");
        for endpoint in of("privateEndpoints") {
            let path = "/properties/manualPrivateLinkServiceConnections/0/properties";
            let Some(mut wanted) = endpoint.body.pointer(path).cloned() else { continue };
            let leads = |service: &&Thing| {
                service.body["properties"]["alias"] == wanted["privateLinkServiceId"]
            };
            let state = match services.iter().find(leads) {
                None => json!({ "status": "Disconnected", "description": "the service is gone" }),
                Some(service) => {
                    let name = endpoint.id.rsplit('/').next().unwrap_or_default();
                    let id = format!("{}/privateEndpointConnections/{name}.1", service.id);
                    match self.things.get(&key(&id)) {
                        Some(there) => {
                            there.body["properties"]["privateLinkServiceConnectionState"].clone()
                        }
                        None => self.greet(&endpoint, service, &id),
                    }
                }
            };
            wanted["privateLinkServiceConnectionState"] = state.clone();
            if let Some(there) = self.things.get_mut(&key(&endpoint.id)) {
                if let Some(place) = there.body.pointer_mut(path) {
                    *place = wanted;
                }
                if state["status"] == "Approved" {
                    there.body["properties"]["customDnsConfigs"] =
                        json!([{ "ipAddresses": ["10.7.0.9"] }]);
                }
            }
        }
        for connection in connections {
            let from = connection.body.pointer("/properties/privateEndpoint/id");
            let from = from.and_then(Value::as_str).unwrap_or_default();
            if !from.is_empty() && !self.things.contains_key(&key(from)) && connection.ours {
                self.things.remove(&key(&connection.id));
            }
        }
    }

    fn greet(&mut self, endpoint: &Thing, service: &Thing, id: &str) -> Value {
        let from = ResourceId::parse(&endpoint.id).unwrap();
        let approved = service.body["properties"]["autoApproval"]["subscriptions"].as_array();
        let approved = approved.into_iter().flatten().filter_map(Value::as_str);
        let approved = approved.collect::<BTreeSet<&str>>().contains(from.subscription());
        let status = if approved { "Approved" } else { "Pending" };
        let state = json!({ "status": status, "description": "" });
        let body = json!({
            "name": id.rsplit('/').next(),
            "properties": {
                "privateEndpoint": { "id": endpoint.id },
                "privateLinkServiceConnectionState": state,
            },
        });
        self.etags += 1;
        let thing =
            Thing { id: id.to_owned(), body, etag: self.etags, ours: endpoint.ours, busy: None };
        self.things.insert(key(id), thing);
        state
    }

    /// What is due has happened.
    pub fn pass(&mut self, to: u64) {
        self.now = self.now.max(to);
        for at in self.ended..self.jobs.len() {
            if at == self.ended && self.jobs[at].over {
                self.ended += 1;
                continue;
            }
            let Job { id, ends, fails, deletes, over, doom } = self.jobs[at].clone();
            if over || ends.is_none_or(|ends| ends > self.now) {
                continue;
            }
            self.jobs[at].over = true;
            match (deletes, fails) {
                (true, false) => self.remove(&id),
                _ if doom.is_some() => self.remove(&id),
                (_, fails) => {
                    if let Some(thing) = self.things.get_mut(&key(&id)) {
                        thing.busy = None;
                        let state = if fails { "Failed" } else { "Succeeded" };
                        thing.body["properties"]["provisioningState"] = state.into();
                    }
                    self.connect();
                }
            }
        }
    }

    fn fault(&mut self, name: &str) -> Option<Fault> {
        self.asked.push(name.to_owned());
        if let Some(at) = self.script.iter().position(|(asked, _)| *asked == name) {
            return Some(self.script.remove(at).1);
        }
        let times = self.faults;
        let rng = self.rng.as_mut()?;
        if times == 0 || rng.u64(..times) != 0 {
            return None;
        }
        Some(match rng.u64(..12) {
            0 => Fault::Refused(Failure::Throttled),
            1 => Fault::Refused(Failure::Transient),
            2 => Fault::Refused(Failure::Conflict),
            3 => Fault::Refused(Failure::Denied),
            4 => Fault::Refused(Failure::Invalid),
            5 => Fault::Hangs,
            6 => Fault::Lost,
            7 => Fault::Ends(true),
            8 => Fault::Ends(false),
            9 => Fault::NoHandle,
            10 => Fault::Fails,
            _ => Fault::Never,
        })
    }

    /// Why Azure would not take a write.
    fn refusal(&self, operation: Operation, id: &str, body: &Value) -> Option<Setback> {
        let refused = |code: &str, why: &str| Some(operation.failed(Failure::Invalid, code, why));
        let place = |path: &str| body.pointer(path).and_then(Value::as_str).unwrap_or_default();
        match id.split('/').rev().nth(1).unwrap_or_default() {
            "privateLinkServices" => {
                let subnet = place("/properties/ipConfigurations/0/properties/subnet/id");
                let Some(subnet) = self.get(subnet) else {
                    return refused("InvalidResourceReference", "the subnet is not there");
                };
                if subnet["properties"]["privateLinkServiceNetworkPolicies"] == "Enabled" {
                    return refused("PrivateLinkServiceNetworkPoliciesEnabled", "switch them off");
                }
                let frontend = place("/properties/loadBalancerFrontendIpConfigurations/0/id");
                let (balancer, _) = frontend.split_once("/frontendIPConfigurations/")?;
                match self.get(balancer) {
                    None => refused("InvalidResourceReference", "the load balancer is not there"),
                    Some(_) => None,
                }
            }
            "subnets" => {
                let (network, _) = id.rsplit_once('/')?;
                let prefix = &body["properties"]["addressPrefix"];
                let others = self.below(network);
                let same = others.iter().any(|other| {
                    key(&other.id) != key(id)
                        && other.body["properties"]["addressPrefix"] == *prefix
                });
                if same { refused("NetcfgInvalidSubnet", "it overlaps another") } else { None }
            }
            "virtualNetworkLinks" => {
                let network = key(place("/properties/virtualNetwork/id"));
                let zone = id.split('/').rev().nth(2).unwrap_or_default();
                let overlaps = self.things.values().any(|other| {
                    let to = other.body.pointer("/properties/virtualNetwork/id");
                    key(&other.id) != key(id)
                        && key(&other.id).contains(&format!("/{}/", key(zone)))
                        && to.and_then(Value::as_str).is_some_and(|to| key(to) == network)
                });
                let why = "A virtual network cannot be linked to multiple zones with overlapping \
                           namespaces.";
                overlaps.then(|| operation.failed(Failure::Conflict, "BadRequest", why))
            }
            _ => None,
        }
    }

    fn begun(
        &mut self,
        id: &str,
        fault: Option<Fault>,
        (deletes, doom): (bool, Option<Setback>),
        name: &str,
    ) -> Begun {
        // Records and verdicts are done at once.
        let parts: Vec<&str> = id.split('/').collect();
        let kind = parts[parts.len() - 2];
        let simple = matches!(kind, "A" | "AAAA" | "TXT" | "privateEndpointConnections");
        let takes = match self.rng.as_mut() {
            Some(rng) if self.slowness > 0 => rng.u64(..self.slowness + 1),
            _ => self.slowness,
        };
        let odd = matches!(fault, Some(Fault::NoHandle | Fault::Fails | Fault::Never));
        if simple || (takes == 0 && !odd && doom.is_none()) {
            if deletes {
                self.remove(id);
            }
            return Begun::Done(None);
        }
        let ends = (fault != Some(Fault::Never)).then_some(self.now + takes.max(1));
        let fails = fault == Some(Fault::Fails);
        self.jobs.push(Job { id: id.to_owned(), ends, fails, deletes, over: false, doom });
        let number = self.jobs.len() as u64;
        if let Some(thing) = self.things.get_mut(&key(id)) {
            thing.busy = Some(number);
            let state = if deletes { "Deleting" } else { "Updating" };
            thing.body["properties"]["provisioningState"] = state.into();
        }
        let at = format!("https://azure.test/operations/{}", number - 1);
        let followed = fault != Some(Fault::NoHandle);
        let handle = Handle {
            operation: (followed && !deletes).then(|| at.clone()),
            location: (followed && deletes).then_some(at),
            resource: id.to_owned(),
            name: name.to_owned(),
        };
        Begun::UnderWay { handle, after: None }
    }
}

/// What a call comes to: an answer, or none.
enum Came<T> {
    Told(Result<T, Setback>),
    Hangs,
    Ends,
}

impl Azure {
    fn answer<'a, T: Send + 'a>(&self, came: Came<T>) -> Call<'a, T> {
        self.world().hanging = matches!(came, Came::Hangs);
        match came {
            Came::Told(told) => Box::pin(ready(told)),
            Came::Hangs | Came::Ends => Box::pin(pending()),
        }
    }

    fn refused(world: &World, operation: Operation, kind: Failure) -> Setback {
        let after = if kind == Failure::Throttled { world.retry_after } else { None };
        Setback { after, ..operation.failed(kind, "Told", "refused for the test") }
    }

    fn read<T>(&self, ask: &Ask, told: impl FnOnce(&World) -> Result<T, Setback>) -> Came<T> {
        let mut world = self.world();
        match world.fault(ask.operation.name) {
            Some(Fault::Refused(kind)) => {
                Came::Told(Err(Azure::refused(&world, ask.operation, kind)))
            }
            Some(Fault::Hangs | Fault::Lost) => Came::Hangs,
            Some(Fault::Ends(_)) => Came::Ends,
            _ => Came::Told(told(&world)),
        }
    }

    fn write(
        &self,
        ask: &Ask,
        write: impl FnOnce(&mut World, Option<Fault>) -> Result<Begun, Setback>,
    ) -> Came<Begun> {
        let mut world = self.world();
        let fault = world.fault(ask.operation.name);
        match fault {
            Some(Fault::Refused(kind)) => {
                Came::Told(Err(Azure::refused(&world, ask.operation, kind)))
            }
            Some(Fault::Hangs) => Came::Hangs,
            Some(Fault::Ends(false)) => Came::Ends,
            _ => {
                let told = write(&mut world, fault);
                match fault {
                    Some(Fault::Lost) => Came::Hangs,
                    Some(Fault::Ends(_)) => Came::Ends,
                    _ => Came::Told(told),
                }
            }
        }
    }
}

fn absent(operation: Operation) -> Setback {
    operation.failed(Failure::Absent, "ResourceNotFound", "it is not there")
}

impl Arm for Azure {
    fn get<'a>(&'a self, ask: &'a Ask) -> Call<'a, Resource> {
        let came = self.read(ask, |world| {
            let there = world.things.get(&key(&ask.path)).ok_or_else(|| absent(ask.operation))?;
            Ok(Resource { body: there.body.clone(), etag: Some(there.etag.to_string()) })
        });
        self.answer(came)
    }

    fn list<'a>(&'a self, ask: &'a Ask) -> Call<'a, Vec<Value>> {
        let came = self.read(ask, |world| {
            if let Some(zone) = ask.path.strip_suffix("/ALL") {
                let kinds = ["SOA", "A", "AAAA", "TXT"].map(|kind| format!("{zone}/{kind}"));
                let all = kinds.iter().flat_map(|kind| world.below(kind));
                return Ok(all.map(|thing| thing.body.clone()).collect());
            }
            Ok(world.below(&ask.path).into_iter().map(|thing| thing.body.clone()).collect())
        });
        self.answer(came)
    }

    fn put<'a>(&'a self, ask: &'a Ask, body: &'a Value, etag: Option<&'a str>) -> Call<'a, Begun> {
        let came = self.write(ask, |world, fault| {
            let there = world.things.get(&key(&ask.path)).cloned();
            if let Some(there) = &there {
                if there.busy.is_some() {
                    let (code, why) = ("AnotherOperationInProgress", "wait");
                    return Err(ask.operation.failed(Failure::Conflict, code, why));
                }
                if etag.is_some_and(|etag| etag != there.etag.to_string()) {
                    let (code, why) = ("PreconditionFailed", "it changed");
                    return Err(ask.operation.failed(Failure::Conflict, code, why));
                }
                if !there.ours && !ask.path.contains("privateEndpointConnections") {
                    world.trespasses.push(format!("wrote {}", ask.path));
                }
            }
            let (above, _) = ask.path.rsplit_once('/').unwrap_or_default();
            let (parent, _) = above.rsplit_once('/').unwrap_or_default();
            if parent.contains("/providers/Microsoft.Network/")
                && !world.things.contains_key(&key(parent))
            {
                let why = format!("{parent} is not there");
                return Err(ask.operation.failed(Failure::Absent, "ParentResourceNotFound", why));
            }
            let mut doom = world.refusal(ask.operation, &ask.path, body);
            // That networks know one zone of a name only is found while the operation runs.
            if kind_of(&ask.path) != "virtualNetworkLinks" || there.is_some() {
                doom.take().map_or(Ok(()), Err)?;
            }
            let mut body = body.clone();
            if above.ends_with("/privateEndpointConnections")
                && let Some(there) = &there
            {
                body["properties"]["privateEndpoint"] =
                    there.body["properties"]["privateEndpoint"].clone();
            }
            world.write(&ask.path, body, true);
            Ok(world.begun(&ask.path, fault, (false, doom), ask.operation.name))
        });
        self.answer(came)
    }

    fn delete<'a>(&'a self, ask: &'a Ask) -> Call<'a, Begun> {
        let came = self.write(ask, |world, fault| {
            let there = world.things.get(&key(&ask.path)).cloned();
            let there = there.ok_or_else(|| absent(ask.operation))?;
            let conflict = |code, why| Err(ask.operation.failed(Failure::Conflict, code, why));
            if there.busy.is_some() {
                return conflict("AnotherOperationInProgress", "wait");
            }
            let below: Vec<Thing> = ["privateEndpointConnections", "virtualNetworkLinks"]
                .iter()
                .flat_map(|kind| world.below(&format!("{}/{kind}", ask.path)))
                .cloned()
                .collect();
            let used = |thing: &Thing| {
                let state =
                    thing.body.pointer("/properties/privateLinkServiceConnectionState/status");
                state.is_none_or(|state| state == "Approved")
            };
            if below.iter().any(used) {
                return conflict("InUse", "somebody uses it");
            }
            let parts = ["A", "AAAA", "TXT"];
            let inside = parts.iter().flat_map(|kind| world.below(&format!("{}/{kind}", ask.path)));
            let others = inside.filter(|thing| !thing.ours).map(|thing| thing.id.clone()).next();
            if let Some(other) = others.or_else(|| (!there.ours).then(|| ask.path.clone())) {
                world.trespasses.push(format!("deleted {other}"));
            }
            Ok(world.begun(&ask.path, fault, (true, None), ask.operation.name))
        });
        self.answer(came)
    }

    fn poll<'a>(&'a self, handle: &'a Handle) -> Call<'a, Progress> {
        let operation = Operation::new("", "Operation");
        let at = handle.operation.as_ref().or(handle.location.as_ref()).unwrap();
        let number: usize = at.rsplit('/').next().unwrap().parse().unwrap();
        let ask = Ask { operation, path: at.clone(), version: "" };
        let came = self.read(&ask, |world| {
            let job = &world.jobs[number];
            Ok(match (job.over, job.fails) {
                (false, _) => Progress::UnderWay { after: None },
                _ if job.doom.is_some() => Progress::Failed(job.doom.clone().unwrap()),
                (true, false) => Progress::Done,
                (true, true) => Progress::Failed(operation.failed(
                    Failure::Invalid,
                    "InternalServerError",
                    "it failed for the test",
                )),
            })
        });
        self.answer(came)
    }
}
