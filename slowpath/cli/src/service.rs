//! `weir service`: adds, changes and deletes services that are defined over the API, with their
//! backends.

use std::path::Path;
use std::process::ExitCode;

use api::Problem;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use state::name::Name;
use state::object::{API, Kind, Object, Spec};

use super::options::GlobalOptions;
use super::policy::{self, Backend, ServiceSettings};
use super::request::{escaped, get};
use super::write::{self, Change, WriteOptions};

/// Subcommands of `weir service`.
#[derive(Subcommand)]
pub enum ServiceCommand {
    /// Add a service
    ///
    /// Example: weir service add shop/web --frontend tcp://203.0.113.10:80 --backend 10.0.2.11:8080
    Add {
        /// Name of the service: `name`, `namespace/name` or `cluster/namespace/name`
        #[arg(value_parser = parse_name)]
        name: Name,
        #[command(flatten)]
        parts: Parts,
        #[command(flatten)]
        write_options: WriteOptions,
    },
    /// Change the given settings of a service and keep the others
    ///
    /// Frontends and backends are added to the existing ones.
    Set {
        /// Name of the service
        #[arg(value_parser = parse_name)]
        name: Name,
        #[command(flatten)]
        parts: Parts,
        /// Frontend to remove; may be repeated
        #[arg(long, value_parser = policy::parse_frontend, value_name = "PROTOCOL://ADDRESS:PORT")]
        remove_frontend: Vec<Value>,
        /// Backend to remove; may be repeated
        #[arg(long, value_parser = policy::parse_backend, value_name = "ADDRESS:PORT")]
        remove_backend: Vec<Backend>,
        #[command(flatten)]
        write_options: WriteOptions,
    },
    /// Delete a service that was defined over the API, with its backends
    Delete {
        /// Name of the service
        #[arg(value_parser = parse_name)]
        name: Name,
        #[command(flatten)]
        write_options: WriteOptions,
    },
}

/// Frontends, backends and settings of a service.
#[derive(Args)]
pub struct Parts {
    /// Frontend to add; may be repeated. `,name=..` (port name), `,type=..` (LoadBalancer,
    /// ClusterIP, NodePort, ExternalIPs, HostPort, LocalRedirect) and `,scope=..` (gateway endpoint
    /// in hexadecimal) may follow
    #[arg(long, value_parser = policy::parse_frontend, value_name = "PROTOCOL://ADDRESS:PORT")]
    frontend: Vec<Value>,
    /// Backend to add; may be repeated; `,weight=..`, `,state=..`, `,zone=..`, `,node=..`,
    /// `,arm=..` and `,probe=..` may follow
    #[arg(long, value_parser = policy::parse_backend, value_name = "ADDRESS[:PORT]")]
    backend: Vec<Backend>,
    #[command(flatten)]
    settings: ServiceSettings,
}

/// Parses the name of a service, for clap.
pub fn parse_name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|e| e.to_string())
}

/// Runs `weir service`.
pub fn run(
    options: &GlobalOptions,
    socket: &Path,
    command: &ServiceCommand,
) -> Result<ExitCode, String> {
    let error_text = |e: super::request::RequestError| e.to_string();
    match command {
        ServiceCommand::Add { name, parts, write_options } => {
            if write::current(socket, Kind::Service, name).map_err(error_text)?.is_some() {
                let message = format!("service {name} exists; `weir service set` changes it");
                return Ok(write::print_rejection(options, &message));
            }
            if let Some(message) = foreign_source_error(socket, name)? {
                return Ok(write::print_rejection(options, &message));
            }
            let new = json!({ "kind": "Service", "name": name, "spec": { "frontends": [] } });
            let change = ServiceChange { name, parts, removed: (&[], &[]), current: new.clone() };
            let changes = change.changes(Some(&new));
            write::apply_and_print(options, socket, &changes, write_options)
        }
        ServiceCommand::Set { name, parts, remove_frontend, remove_backend, write_options } => {
            let current = write::current(socket, Kind::Service, name).map_err(error_text)?;
            let Some(current) = json_of(current.as_ref()) else {
                let message = foreign_source_error(socket, name)?;
                let absent = || {
                    format!(
                        "there is no service {name}; `weir service add` adds it, and \
                             `weir get service` lists services"
                    )
                };
                return Ok(write::print_rejection(options, &message.unwrap_or_else(absent)));
            };
            let removed = (remove_frontend.as_slice(), remove_backend.as_slice());
            let change = ServiceChange { name, parts, removed, current };
            write::apply_and_print(options, socket, &change.changes(None), write_options)
        }
        ServiceCommand::Delete { name, write_options } => {
            delete(options, socket, name, write_options)
        }
    }
}

/// Returns an error message if a source other than the API defines the service.
fn foreign_source_error(socket: &Path, name: &Name) -> Result<Option<String>, String> {
    let path = format!("/db/services?prefix={}", escaped(name.as_str()));
    let rows: Vec<Value> = get(socket, &path)?;
    let mut sources = rows.iter().filter(|row| row["name"] == name.as_str());
    let source = sources.find_map(|row| row["source"].as_str()).filter(|source| *source != API);
    Ok(source.map(|source| {
        let of_files = slowpath::sources::file_sources();
        let change = match of_files.iter().any(|file| file.as_str() == source) {
            true => "change it in the services file (`weir status` shows its path)",
            false => "change it there",
        };
        format!(
            "service {name} belongs to source `{source}`: {change}; or define it over the API \
             instead: `weir get service {name} --output yaml`, remove `source` and `revision`, \
             `weir apply`"
        )
    }))
}

/// A change of a service.
struct ServiceChange<'c> {
    name: &'c Name,
    parts: &'c Parts,
    /// Frontends and backends to remove.
    removed: (&'c [Value], &'c [Backend]),
    /// The service before the change.
    current: Value,
}

impl<'c> ServiceChange<'c> {
    /// Returns the change of the service, and that of its list of backends if backends are added or
    /// removed. A service that does not exist starts as `new`; without `new` it is an error.
    fn changes(&'c self, new: Option<&'c Value>) -> Vec<Change<'c>> {
        let object_change = |kind, next| Change {
            kind,
            name: self.name.clone(),
            next,
            location: Box::new(|_: &str| String::new()),
        };
        let service = move |before: Option<&Object>| match (before, new) {
            (None, None) => Err(Problem::not_found(format!("there is no service {}", self.name))),
            (before, _) => self.service(json_of(before).or(new.cloned()).unwrap_or_default()),
        };
        let mut all = vec![object_change(Kind::Service, Box::new(service) as Box<_>)];
        if !self.parts.backend.is_empty() || !self.removed.1.is_empty() {
            all.push(object_change(Kind::Backends, Box::new(|before| self.backends(before))));
        }
        all
    }

    fn service(&self, mut json: Value) -> Result<Option<Object>, Problem> {
        self.parts.settings.edit(&mut json).map_err(Problem::bad_request)?;
        let same = |one: &Value, other: &Value| {
            ["address", "port", "protocol"].iter().all(|key| one[key] == other[key])
        };
        if let Some(list) = json["spec"]["frontends"].as_array_mut() {
            for removed in self.removed.0 {
                let before = list.len();
                list.retain(|current| !same(current, removed));
                if list.len() == before {
                    let fault = format!("the service has no frontend {}", removed["address"]);
                    return Err(Problem::not_found(fault));
                }
            }
            for new in &self.parts.frontend {
                list.retain(|current| !same(current, new));
                list.push(new.clone());
            }
        }
        Ok(Some(Object::from_json(&json)?))
    }

    fn backends(&self, before: Option<&Object>) -> Result<Option<Object>, Problem> {
        let new = json!({ "kind": "Backends", "name": self.name,
            "spec": { "service": self.name, "endpoints": [] } });
        let mut json = json_of(before).unwrap_or(new);
        let protocol = self.protocol();
        if let Some(list) = json["spec"]["endpoints"].as_array_mut() {
            for removed in self.removed.1 {
                let before = list.len();
                list.retain(|current| !removed.matches(current));
                if list.len() == before {
                    let fault = format!("the API defines no backend {removed} of {}", self.name);
                    return Err(Problem::not_found(fault));
                }
            }
            for new in &self.parts.backend {
                match list.iter_mut().find(|current| new.matches(current)) {
                    Some(current) => new.edit(current),
                    None => list.push(new.member(&protocol)),
                }
            }
        }
        Ok(Some(Object::from_json(&json)?))
    }

    /// Returns the protocol of new backends: that of all frontends, or `any` if their protocols
    /// differ or have no ports.
    fn protocol(&self) -> String {
        let current = self.current["spec"]["frontends"].as_array().into_iter().flatten();
        let mut all = current.chain(&self.parts.frontend).map(|one| one["protocol"].as_str());
        let ports = |word: &&str| ["tcp", "udp", "sctp"].contains(word);
        let first = all.next().flatten().filter(ports).unwrap_or("any");
        if all.all(|other| other == Some(first)) { first.to_owned() } else { "any".to_owned() }
    }
}

/// Serializes an object; `None` if there is none.
pub fn json_of(object: Option<&Object>) -> Option<Value> {
    object.and_then(|object| serde_json::to_value(object).ok())
}

fn delete(
    options: &GlobalOptions,
    socket: &Path,
    name: &Name,
    write_options: &WriteOptions,
) -> Result<ExitCode, String> {
    let mut removed: Vec<(Kind, Name)> = Vec::new();
    if write::current(socket, Kind::Service, name).map_err(|e| e.to_string())?.is_some() {
        removed.push((Kind::Service, name.clone()));
    } else if let Some(message) = foreign_source_error(socket, name)? {
        return Ok(write::print_rejection(options, &message));
    }
    let all = backend_lists(socket, name)?.into_iter();
    for list in all.filter(|list| list.source.as_str() == API) {
        removed.push((Kind::Backends, list.name));
    }
    if removed.is_empty() {
        let message = format!("there is no service {name}; see `weir get service`");
        return Ok(write::print_rejection(options, &message));
    }
    let object_change = |(kind, name): (Kind, Name)| Change {
        kind,
        name,
        next: Box::new(|_| Ok(None)),
        location: Box::new(|_| String::new()),
    };
    let changes: Vec<Change<'_>> = removed.into_iter().map(object_change).collect();
    write::apply_and_print(options, socket, &changes, write_options)
}

/// Returns the lists of a service's backends, from all sources.
pub fn backend_lists(socket: &Path, service: &Name) -> Result<Vec<Object>, String> {
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let fields = "fields=name,source,spec.service";
        let path = format!("/v1/objects/backends?limit=1000&{fields}{next}");
        let page: Value = get(socket, &path)?;
        for item in page["items"].as_array().into_iter().flatten() {
            if item["spec"]["service"] != service.as_str() {
                continue;
            }
            let (name, source) = (&item["name"], &item["source"]);
            let (name, source) =
                (name.as_str().unwrap_or_default(), source.as_str().unwrap_or_default());
            let path = format!("/v1/objects/backends/{name}?source={}", escaped(source));
            let object: Object = get(socket, &path)?;
            if matches!(&object.spec, Spec::Backends(spec) if spec.service == *service) {
                found.push(object);
            }
        }
        match page["continue"].as_str() {
            Some(mark) => next = format!("&continue={mark}"),
            None => return Ok(found),
        }
    }
}
