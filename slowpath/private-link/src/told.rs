//! What people and programs are told of all objects.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::object::{Aspect, Object, Status};
use crate::time::Time;

/// The columns of a list.
pub const COLUMNS: [&str; 5] = ["NAME", "PLS ALIAS", "ENDPOINT IP", "AVAILABLE", "AGE"];

/// An object in a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// By what consumers name the service; empty before it has one.
    pub alias: String,
    /// The endpoint's address.
    pub endpoint_address: Option<Ipv4Addr>,
    /// All that is wanted works.
    pub available: bool,
    /// Why it isn't; empty where it is, or where nobody has looked yet.
    pub reason: String,
    /// Seconds since it was made.
    pub age_s: u64,
}

/// All objects, by their names.
pub fn rows(objects: &[Object], now: Time) -> Vec<Row> {
    let row = |object: &Object| {
        let available = object.status.is(Aspect::Available);
        let condition = object.status.condition(Aspect::Available);
        let reason = condition.map(|condition| condition.reason.as_str()).unwrap_or_default();
        Row {
            name: object.name.clone(),
            alias: object.status.service.alias.clone().unwrap_or_default(),
            endpoint_address: object.status.endpoint.address,
            available,
            reason: if available { String::new() } else { reason.to_owned() },
            age_s: now.since(object.created).as_secs(),
        }
    };
    let mut rows: Vec<Row> = objects.iter().map(row).collect();
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    rows
}

impl Row {
    /// Its cells, as [`COLUMNS`] name them.
    pub fn cells(&self) -> [String; 5] {
        let available = match (self.available, self.reason.as_str()) {
            (true, _) => "True".to_owned(),
            (false, "") => "False".to_owned(),
            (false, reason) => format!("False ({reason})"),
        };
        let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        let address = self.endpoint_address.map(|address| address.to_string());
        [
            self.name.clone(),
            or_dash(self.alias.clone()),
            or_dash(address.unwrap_or_default()),
            available,
            age(Duration::from_secs(self.age_s)),
        ]
    }
}

/// `47s`, `12m`, `5h`, `33d`.
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Numbers of all objects, for metrics.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Numbers {
    /// Objects.
    pub objects: u64,
    /// Those of which all that is wanted works.
    pub available: u64,
    /// Those that are paused.
    pub paused: u64,
    /// Those that are being deleted.
    pub deleting: u64,
    /// Those that another appliance looks after.
    pub observed: u64,
    /// Operations that go on at Azure.
    pub operations: u64,
    /// Connections by their state: `Pending`, `Approved`, `Rejected`, `Disconnected`.
    pub connections: BTreeMap<String, u64>,
    /// Those that are not available, by why.
    pub reasons: BTreeMap<String, u64>,
}

impl Numbers {
    /// Of these.
    pub fn of(objects: &[Object]) -> Numbers {
        let mut numbers = Numbers { objects: objects.len() as u64, ..Numbers::default() };
        for object in objects {
            let Status { service, endpoint, .. } = &object.status;
            let is = |aspect| u64::from(object.status.is(aspect));
            numbers.available += is(Aspect::Available);
            numbers.paused += is(Aspect::Paused);
            numbers.observed += is(Aspect::Observed);
            numbers.deleting += u64::from(object.deletion.is_some());
            let running = [&service.running, &endpoint.running];
            numbers.operations += running.into_iter().flatten().count() as u64;
            for connection in &service.connections {
                *numbers.connections.entry(connection.state.clone()).or_default() += 1;
            }
            let condition = object.status.condition(Aspect::Available);
            if let Some(condition) = condition.filter(|_| !object.status.is(Aspect::Available)) {
                *numbers.reasons.entry(condition.reason.as_str().to_owned()).or_default() += 1;
            }
        }
        numbers
    }
}
