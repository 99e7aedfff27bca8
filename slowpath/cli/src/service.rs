//! `weir service`: manages services of the API and their backends without a file.

use std::path::Path;
use std::process::ExitCode;

use api::Problem;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use state::name::Name;
use state::object::{API, Kind, Object, Spec};

use super::ask::{escaped, get};
use super::options::With;
use super::policy::{self, Backend, Policy};
use super::write::{self, How, Wish};

/// Subcommands of `weir service`.
#[derive(Subcommand)]
pub enum ServiceWhat {
    /// Add a service
    ///
    /// Example: weir service add shop/web --frontend tcp://203.0.113.10:80 --backend 10.0.2.11:8080
    Add {
        /// Name of the service: `name`, `namespace/name` or `cluster/namespace/name`
        #[arg(value_parser = name)]
        name: Name,
        #[command(flatten)]
        parts: Parts,
        #[command(flatten)]
        how: How,
    },
    /// Change the given settings of a service and keep the others
    ///
    /// Frontends and backends are added to the existing ones.
    Set {
        /// Name of the service
        #[arg(value_parser = name)]
        name: Name,
        #[command(flatten)]
        parts: Parts,
        /// Frontend to remove; may be repeated
        #[arg(long, value_parser = policy::frontend, value_name = "PROTOCOL://ADDRESS:PORT")]
        remove_frontend: Vec<Value>,
        /// Backend to remove; may be repeated
        #[arg(long, value_parser = policy::backend, value_name = "ADDRESS:PORT")]
        remove_backend: Vec<Backend>,
        #[command(flatten)]
        how: How,
    },
    /// Delete a service and its backends that were defined over the API
    Delete {
        /// Name of the service
        #[arg(value_parser = name)]
        name: Name,
        #[command(flatten)]
        how: How,
    },
}

/// Frontends, backends and policies of a service.
#[derive(Args)]
pub struct Parts {
    /// Frontend to add; may be repeated; `,name=..`, `,type=..` and `,scope=..` may follow
    #[arg(long, value_parser = policy::frontend, value_name = "PROTOCOL://ADDRESS:PORT")]
    frontend: Vec<Value>,
    /// Backend to add; may be repeated; `,weight=..`, `,state=..`, `,zone=..`, `,node=..`,
    /// `,arm=..` and `,probe=..` may follow
    #[arg(long, value_parser = policy::backend, value_name = "ADDRESS[:PORT]")]
    backend: Vec<Backend>,
    #[command(flatten)]
    policy: Policy,
}

/// Parses the name of a service, for clap.
pub fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|e| e.to_string())
}

/// Runs `weir service`.
pub fn run(with: &With, socket: &Path, what: &ServiceWhat) -> Result<ExitCode, String> {
    let asked = |e: super::ask::AskError| e.to_string();
    match what {
        ServiceWhat::Add { name, parts, how } => {
            if write::current(socket, Kind::Service, name).map_err(asked)?.is_some() {
                let told = format!("service {name} is there; `weir service set` changes it");
                return Ok(write::refused(with, &told));
            }
            if let Some(told) = owner(socket, name)? {
                return Ok(write::refused(with, &told));
            }
            let new = json!({ "kind": "Service", "name": name, "spec": { "frontends": [] } });
            let change = Change { name, parts, gone: (&[], &[]), there: new.clone() };
            let wishes = change.wishes(Some(&new));
            write::carry_out(with, socket, &wishes, how)
        }
        ServiceWhat::Set { name, parts, remove_frontend, remove_backend, how } => {
            let there = write::current(socket, Kind::Service, name).map_err(asked)?;
            let Some(there) = json_of(there.as_ref()) else {
                let told = owner(socket, name)?;
                let absent = || {
                    format!(
                        "there is no service {name}; `weir service add` adds it, and \
                             `weir get service` shows those that are there"
                    )
                };
                return Ok(write::refused(with, &told.unwrap_or_else(absent)));
            };
            let gone = (remove_frontend.as_slice(), remove_backend.as_slice());
            let change = Change { name, parts, gone, there };
            write::carry_out(with, socket, &change.wishes(None), how)
        }
        ServiceWhat::Delete { name, how } => delete(with, socket, name, how),
    }
}

/// Returns an error message if a source other than the API defines the service.
fn owner(socket: &Path, name: &Name) -> Result<Option<String>, String> {
    let path = format!("/db/services?prefix={}", escaped(name.as_str()));
    let rows: Vec<Value> = get(socket, &path)?;
    let mut sources = rows.iter().filter(|row| row["name"] == name.as_str());
    let source = sources.find_map(|row| row["source"].as_str()).filter(|source| *source != API);
    Ok(source.map(|source| {
        let of_files = slowpath::sources::of_files();
        let change = match of_files.iter().any(|file| file.as_str() == source) {
            true => "change it in the services file (`weir status` shows where it is)",
            false => "change it there",
        };
        format!(
            "service {name} belongs to source `{source}`: {change}; or say it yourself, in its \
             place: `weir get service {name} --output yaml`, leave `source` and `revision` out, \
             `weir apply`"
        )
    }))
}

/// A change of a service.
struct Change<'c> {
    name: &'c Name,
    parts: &'c Parts,
    /// Frontends and backends to remove.
    gone: (&'c [Value], &'c [Backend]),
    /// The service before the change.
    there: Value,
}

impl<'c> Change<'c> {
    /// Returns the changes of the service, which starts as `new` if it does not exist, and of its
    /// list of backends.
    fn wishes(&'c self, new: Option<&'c Value>) -> Vec<Wish<'c>> {
        let wish = |kind, next| Wish {
            kind,
            name: self.name.clone(),
            next,
            place: Box::new(|_: &str| String::new()),
        };
        let service = move |before: Option<&Object>| match (before, new) {
            (None, None) => Err(Problem::absent(format!("there is no service {}", self.name))),
            (before, _) => self.service(json_of(before).or(new.cloned()).unwrap_or_default()),
        };
        let mut all = vec![wish(Kind::Service, Box::new(service) as Box<_>)];
        if !self.parts.backend.is_empty() || !self.gone.1.is_empty() {
            all.push(wish(Kind::Backends, Box::new(|before| self.backends(before))));
        }
        all
    }

    fn service(&self, mut json: Value) -> Result<Option<Object>, Problem> {
        self.parts.policy.edit(&mut json).map_err(Problem::request)?;
        let same = |one: &Value, other: &Value| {
            ["address", "port", "protocol"].iter().all(|key| one[key] == other[key])
        };
        if let Some(list) = json["spec"]["frontends"].as_array_mut() {
            for gone in self.gone.0 {
                let before = list.len();
                list.retain(|there| !same(there, gone));
                if list.len() == before {
                    let wrong = format!("it has no frontend {}", gone["address"]);
                    return Err(Problem::absent(wrong));
                }
            }
            for new in &self.parts.frontend {
                list.retain(|there| !same(there, new));
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
            for gone in self.gone.1 {
                let before = list.len();
                list.retain(|there| !gone.is(there));
                if list.len() == before {
                    let wrong = format!("the API names no backend {gone} of {}", self.name);
                    return Err(Problem::absent(wrong));
                }
            }
            for new in &self.parts.backend {
                match list.iter_mut().find(|there| new.is(there)) {
                    Some(there) => new.edit(there),
                    None => list.push(new.member(&protocol)),
                }
            }
        }
        Ok(Some(Object::from_json(&json)?))
    }

    /// Returns the protocol of new backends: that of all frontends, or `any` if they differ.
    fn protocol(&self) -> String {
        let there = self.there["spec"]["frontends"].as_array().into_iter().flatten();
        let mut all = there.chain(&self.parts.frontend).map(|one| one["protocol"].as_str());
        let ports = |word: &&str| ["tcp", "udp", "sctp"].contains(word);
        let first = all.next().flatten().filter(ports).unwrap_or("any");
        if all.all(|other| other == Some(first)) { first.to_owned() } else { "any".to_owned() }
    }
}

/// Serializes an object.
pub fn json_of(object: Option<&Object>) -> Option<Value> {
    object.and_then(|object| serde_json::to_value(object).ok())
}

fn delete(with: &With, socket: &Path, name: &Name, how: &How) -> Result<ExitCode, String> {
    let mut gone: Vec<(Kind, Name)> = Vec::new();
    if write::current(socket, Kind::Service, name).map_err(|e| e.to_string())?.is_some() {
        gone.push((Kind::Service, name.clone()));
    } else if let Some(told) = owner(socket, name)? {
        return Ok(write::refused(with, &told));
    }
    for list in lists(socket, name)?.into_iter().filter(|list| list.source.as_str() == API) {
        gone.push((Kind::Backends, list.name));
    }
    if gone.is_empty() {
        let told = format!("there is no service {name}; see `weir get service`");
        return Ok(write::refused(with, &told));
    }
    let wish = |(kind, name): (Kind, Name)| Wish {
        kind,
        name,
        next: Box::new(|_| Ok(None)),
        place: Box::new(|_| String::new()),
    };
    let wishes: Vec<Wish<'_>> = gone.into_iter().map(wish).collect();
    write::carry_out(with, socket, &wishes, how)
}

/// Returns the lists of a service's backends of all sources.
pub fn lists(socket: &Path, service: &Name) -> Result<Vec<Object>, String> {
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
