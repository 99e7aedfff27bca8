//! Tables as rows of named columns, the same for text, JSON and YAML output.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use crate::address::Endpoint;
use crate::appliance::Appliance;
use crate::backend::Instance;
use crate::frontend::{Frontend, Progress};
use crate::object::ServiceSpec;
use crate::select::{select_backends, unreachable};
use crate::service::Service;
use crate::tables::{Entry, Tables};
use config::services::TrafficPolicy;

mod filter;

pub use filter::KeyFilter;

/// Table that can be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// One row for each service.
    Services,
    /// One row for each frontend.
    Frontends,
    /// One row for each endpoint, with all services that use it.
    Backends,
}

/// Row: values by column. A value is a text, a number or a list of texts.
pub type Row = Map<String, Value>;

impl Table {
    /// All tables.
    pub const ALL: [Table; 3] = [Table::Services, Table::Frontends, Table::Backends];

    /// Returns the table's name in commands and paths.
    pub fn name(self) -> &'static str {
        match self {
            Table::Services => "services",
            Table::Frontends => "frontends",
            Table::Backends => "backends",
        }
    }

    /// Returns the table with this name.
    pub fn named(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Returns the columns in order; the first identifies the row.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Table::Services => &["name", "source", "portNames", "trafficPolicy", "flags"],
            Table::Frontends => &[
                "address",
                "type",
                "serviceName",
                "portName",
                "status",
                "since",
                "error",
                "redirectTo",
                "backends",
            ],
            Table::Backends => &["address", "instances", "shadows", "nodeName"],
        }
    }

    /// Returns the rows, sorted by name, address or endpoint as in the tables; that is not the
    /// order of the texts in the first column.
    pub fn rows(self, tables: &Tables, appliance: &Appliance) -> Vec<Row> {
        match self {
            Table::Services => tables.services().map(|row| service(row)).collect(),
            Table::Frontends => {
                tables.frontends().map(|row| frontend(tables, row, appliance)).collect()
            }
            Table::Backends => backends(tables),
        }
    }
}

/// Creates a row from the values of a table's columns, in order.
fn row(table: Table, values: impl IntoIterator<Item = Value>) -> Row {
    table.columns().iter().map(|column| (*column).to_owned()).zip(values).collect()
}

/// Returns the row of a service.
fn service(service: &Service) -> Row {
    let names = service.spec.port_names.iter().flat_map(|names| names.iter());
    let names: Vec<String> = names.map(|(name, port)| format!("{name}={port}")).collect();
    let policy = match (service.spec.external_policy, service.spec.internal_policy) {
        (TrafficPolicy::Cluster, TrafficPolicy::Cluster) => "Cluster".to_owned(),
        (TrafficPolicy::Local, TrafficPolicy::Local) => "Local".to_owned(),
        (external, internal) => format!("Ext={external:?}, Int={internal:?}"),
    };
    row(
        Table::Services,
        [
            json!(service.name),
            json!(service.source),
            json!(names),
            json!(policy),
            json!(flags(&service.spec)),
        ],
    )
}

/// Returns the entries of the column `flags`: settings of a service that differ from their
/// defaults.
fn flags(spec: &ServiceSpec) -> Vec<String> {
    let mut flags = Vec::new();
    let mut add = |name: &str, value: String| flags.push(format!("{name}={value}"));
    match spec.mode {
        config::services::Mode::Nat => {}
        config::services::Mode::Tunnel(tunnel) => add("Tunnel", format!("{:?}", tunnel.kind)),
        config::services::Mode::Dsr(tunnel) => add("Dsr", format!("{:?}", tunnel.kind)),
    }
    if spec.affinity_s != 0 {
        add("SessionAffinity", format!("{}s", spec.affinity_s));
    }
    if spec.nat_policy != Default::default() {
        add("NatPolicy", format!("{:?}", spec.nat_policy));
    }
    if spec.algorithm != Default::default() {
        add("Algorithm", format!("{:?}", spec.algorithm));
    }
    if spec.distribution != Default::default() {
        add("TrafficDistribution", spec.distribution.kubernetes_name().to_owned());
    }
    if let Some(ranges) = &spec.source_ranges {
        let prefixes: Vec<String> = ranges.prefixes.iter().map(ToString::to_string).collect();
        add(if ranges.denies() { "DeniedRanges" } else { "SourceRanges" }, prefixes.join("+"));
    }
    if let Some(redirect) = &spec.proxy_redirect {
        let ports: Vec<String> = redirect.ports.iter().map(ToString::to_string).collect();
        let of = if ports.is_empty() { String::new() } else { format!(" of {}", ports.join("+")) };
        add("ProxyRedirect", format!("{}{of}", redirect.port));
    }
    if spec.health_check_port != 0 {
        add("HealthCheckNodePort", spec.health_check_port.to_string());
    }
    if spec.loopback_host_port {
        add("LoopbackHostPort", "true".to_owned());
    }
    flags
}

/// Returns the row of a frontend.
fn frontend(tables: &Tables, frontend: &Arc<Frontend>, appliance: &Appliance) -> Row {
    let spec = &frontend.spec;
    let status = frontend.status();
    let (progress, error) = match (&status.progress, unreachable(frontend, appliance)) {
        (Progress::Pending, _) => ("Pending", String::new()),
        (Progress::Error(text), _) => ("Error", text.to_string()),
        // Planes accept unreachable frontends, and write nothing for them.
        (Progress::Done, Some(why)) => ("Unreachable", why.to_owned()),
        (Progress::Done, None) => ("Done", String::new()),
    };
    // Without an error, the column shows the note: the reason why no backend serves.
    let error = if error.is_empty() { status.note.unwrap_or_default().to_owned() } else { error };
    let desired = select_backends(tables, frontend, appliance);
    let backends: Vec<String> = desired.backends.iter().map(|b| b.endpoint.to_string()).collect();
    row(
        Table::Frontends,
        [
            json!(spec.address.to_string()),
            json!(spec.kind.as_str()),
            json!(frontend.service.name),
            json!(spec.port_name.as_deref().unwrap_or_default()),
            json!(progress),
            json!(unix_ms(status.since)),
            json!(error),
            json!(frontend.redirect_to.as_ref().map_or("", |name| name.as_str())),
            json!(backends),
        ],
    )
}

/// Returns milliseconds since 1970; 0 for earlier times.
fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns one row for each endpoint.
fn backends(tables: &Tables) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut endpoints: Vec<&Endpoint> = tables.endpoints().map(|(endpoint, _)| endpoint).collect();
    endpoints.dedup();
    for endpoint in endpoints {
        let entries = tables.services_at(endpoint).filter_map(|name| tables.entry(name));
        let (mut used, mut shadows, mut nodes) = (Vec::new(), Vec::new(), BTreeSet::new());
        for entry in entries {
            let mut found = instances(entry, endpoint).iter();
            let Some(first) = found.next() else { continue };
            used.push(instance(first));
            shadows.extend(found.map(|shadow| format!("{} ({})", instance(shadow), shadow.source)));
            nodes.extend(first.placement.iter().map(|placement| placement.node.to_string()));
        }
        let nodes: Vec<String> = nodes.into_iter().filter(|node| !node.is_empty()).collect();
        rows.push(row(
            Table::Backends,
            [json!(endpoint.to_string()), json!(used), json!(shadows), json!(nodes)],
        ));
    }
    rows
}

/// Returns a service's instances at an endpoint: the one in use, then its shadows.
fn instances<'e>(entry: &'e Entry, endpoint: &Endpoint) -> &'e [Arc<Instance>] {
    let first = entry.instances.partition_point(|instance| instance.endpoint < *endpoint);
    let from = entry.instances.get(first..).unwrap_or_default();
    let count = from.iter().take_while(|instance| instance.endpoint == *endpoint).count();
    from.get(..count).unwrap_or_default()
}

/// Formats an instance as `shop/web (http)`: service and port names, and state and weight if they
/// differ from their defaults.
fn instance(instance: &Instance) -> String {
    let mut about: Vec<String> = instance.port_names.iter().map(ToString::to_string).collect();
    let state = instance.effective();
    if state != Default::default() {
        about.push(state.as_str().to_owned());
    }
    if instance.weight != 100 {
        about.push(format!("weight {}", instance.weight));
    }
    match about.is_empty() {
        true => instance.service.to_string(),
        false => format!("{} ({})", instance.service, about.join(", ")),
    }
}

/// Maximum number of list entries in a cell of a text table.
const CELL_ENTRIES_MAX: usize = 5;

/// Formats a value as a cell of a text table. A list of more than five entries is cut to the
/// first five, and the number of omitted entries follows.
pub fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => {
            let first = all.iter().take(CELL_ENTRIES_MAX).map(cell).collect::<Vec<_>>().join(", ");
            match all.len().saturating_sub(CELL_ENTRIES_MAX) {
                0 => first,
                more => format!("{first} + {more} more"),
            }
        }
        other => other.to_string(),
    }
}
