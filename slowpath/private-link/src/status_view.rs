//! Views of all objects for the API, the command line and the metrics.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::object::{Aspect, Object, Status};
use crate::time::Time;

/// Column titles of a list.
pub const COLUMNS: [&str; 5] = ["NAME", "PLS ALIAS", "ENDPOINT IP", "AVAILABLE", "AGE"];

/// A row of the list of objects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Name of the object.
    pub name: String,
    /// Alias of the service; empty until it has one.
    pub alias: String,
    /// Address of the endpoint.
    pub endpoint_address: Option<Ipv4Addr>,
    /// True if everything that is desired works.
    pub available: bool,
    /// Name of the reason why the object is not available; empty if it is, or before the first
    /// round.
    pub reason: String,
    /// Age in seconds.
    pub age_s: u64,
}

/// Returns a row for each object, sorted by name.
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
    /// Returns the cells in the order of [`COLUMNS`].
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

/// Formats an age: `47s`, `12m`, `5h`, `33d`.
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Totals of all objects, for the metrics.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Number of objects.
    pub objects: u64,
    /// Number of available objects.
    pub available: u64,
    /// Number of paused objects.
    pub paused: u64,
    /// Number of objects that are being deleted.
    pub deleting: u64,
    /// Number of objects that another appliance reconciles.
    pub observed: u64,
    /// Number of long operations in progress at Azure.
    pub operations: u64,
    /// Number of connections by state: `Pending`, `Approved`, `Rejected`, `Disconnected`.
    pub connections: BTreeMap<String, u64>,
    /// Number of objects that are not available, by reason.
    pub reasons: BTreeMap<String, u64>,
}

impl Totals {
    /// Returns the totals of these objects.
    pub fn of(objects: &[Object]) -> Totals {
        let mut numbers = Totals { objects: objects.len() as u64, ..Totals::default() };
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
