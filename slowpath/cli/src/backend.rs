//! `weir backend`: sets weight and state of one backend of a service, whichever source defines it.
//!
//! A backend that the API defines is changed in place. A backend of another source, such as a file,
//! remains unchanged there; the API defines it once more in a list of its own, `SERVICE:override`.
//! If two sources define a backend, the source with precedence wins.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use api::Problem;
use clap::Subcommand;
use serde_json::{Value, json};
use slowpath::control::report::{FlowPage, ServiceReport};
use state::name::Name;
use state::object::{API, Kind, Object, Spec};

use super::options::{GlobalOptions, Output};
use super::output::{print, write_stdout};
use super::policy::{self, Backend};
use super::request::{escaped, get};
use super::service::{backend_lists, json_of, parse_name};
use super::table;
use super::write::{self, Change, Report, WriteOptions};

/// Subcommands of `weir backend`.
#[derive(Subcommand)]
pub enum BackendCommand {
    /// Set weight and state of a backend
    Set {
        /// Service of the backend
        #[arg(value_parser = parse_name)]
        service: Name,
        /// Address and port of the backend
        #[arg(value_parser = policy::parse_backend, value_name = "ADDRESS[:PORT]")]
        backend: Backend,
        /// Weight relative to the other backends, 0 to 65535; 0 gives it no new flows and keeps
        /// established ones
        #[arg(long, required_unless_present = "state")]
        weight: Option<u16>,
        /// State of the backend, which determines whether it gets new flows
        #[arg(long, value_parser = ["active", "terminating", "quarantined", "maintenance"])]
        state: Option<String>,
        #[command(flatten)]
        write_options: WriteOptions,
    },
    /// Drain a backend: keep its flows and send it no new ones
    ///
    /// With --wait, shows the number of its flows until none are left.
    Drain {
        /// Service of the backend
        #[arg(value_parser = parse_name)]
        service: Name,
        /// Address and port of the backend
        #[arg(value_parser = policy::parse_backend, value_name = "ADDRESS[:PORT]")]
        backend: Backend,
        /// End the drain: state and weight are again those of the source that defines the backend
        /// (file, Kubernetes); a backend that only the API defines becomes active
        #[arg(long)]
        undo: bool,
        /// Show what would change without changing anything
        #[arg(long)]
        dry_run: bool,
        /// Maximum number of seconds to wait until the backend has no flows
        #[arg(long, default_value_t = 0, value_name = "SECONDS",
            value_parser = clap::value_parser!(u64).range(0..=900))]
        wait: u64,
    },
    /// Set the weight of a backend
    Weight {
        /// Service of the backend
        #[arg(value_parser = parse_name)]
        service: Name,
        /// Address and port of the backend
        #[arg(value_parser = policy::parse_backend, value_name = "ADDRESS[:PORT]")]
        backend: Backend,
        /// Weight relative to the other backends, 0 to 65535; 0 gives it no new flows and keeps
        /// established ones
        weight: u16,
        #[command(flatten)]
        write_options: WriteOptions,
    },
}

/// A change of a backend.
#[derive(Default)]
struct Edit<'e> {
    weight: Option<u16>,
    state: Option<&'e str>,
    /// Remove the backend from the override list, so that its state and weight are those of the
    /// other source again. Has no effect on another list: there, `weight` and `state` are set.
    undo: bool,
}

/// Runs `weir backend`.
pub fn run(
    options: &GlobalOptions,
    socket: &Path,
    command: &BackendCommand,
) -> Result<ExitCode, String> {
    match command {
        BackendCommand::Set { service, backend, weight, state, write_options } => {
            let edit = Edit { weight: *weight, state: state.as_deref(), undo: false };
            print_outcome(options, set(options, socket, (service, backend), &edit, write_options)?)
        }
        BackendCommand::Weight { service, backend, weight, write_options } => {
            let edit = Edit { weight: Some(*weight), ..Edit::default() };
            print_outcome(options, set(options, socket, (service, backend), &edit, write_options)?)
        }
        BackendCommand::Drain { service, backend, undo, dry_run, wait } => {
            let edit = match undo {
                true => Edit { state: Some("active"), undo: true, weight: None },
                false => Edit { state: Some("terminating"), ..Edit::default() },
            };
            // One time limit applies to both waits together: until all lcores serve the drain, and
            // until the flows have ended.
            let begun = Instant::now();
            let write_options =
                WriteOptions { dry_run: *dry_run, wait: if *undo { 0 } else { *wait } };
            let outcome = set(options, socket, (service, backend), &edit, &write_options)?;
            match outcome {
                Ok((reports, ExitCode::SUCCESS)) if !undo && !dry_run => {
                    let (flows, code) = follow(options, socket, (service, backend), begun, *wait)?;
                    print(options, &json!({ "objects": reports, "flows": flows }), String::new);
                    Ok(code)
                }
                other => print_outcome(options, other),
            }
        }
    }
}

/// The reports of the written objects with the exit code, or the reason why nothing was changed.
type Outcome = Result<(Vec<Report>, ExitCode), String>;

fn print_outcome(options: &GlobalOptions, outcome: Outcome) -> Result<ExitCode, String> {
    match outcome {
        Ok((reports, code)) => {
            print(options, &reports, String::new);
            Ok(code)
        }
        Err(why) => Ok(write::print_rejection(options, &why)),
    }
}

/// Returns the name of the API's list that overrides other sources' backends of a service.
fn override_of(service: &Name) -> Result<Name, String> {
    Name::new(&format!("{service}:override")).map_err(|e| e.to_string())
}

/// Returns the entries of a list that define this backend.
fn members<'o>(list: &'o Value, backend: &Backend) -> Vec<&'o Value> {
    let all = list["spec"]["endpoints"].as_array().into_iter().flatten();
    all.filter(|member| backend.matches(member)).collect()
}

/// Changes a backend in the list of the API that defines it. If only another source defines the
/// backend, changes it in the override list, unless that source takes precedence over the API.
fn set(
    options: &GlobalOptions,
    socket: &Path,
    (service, backend): (&Name, &Backend),
    edit: &Edit<'_>,
    write_options: &WriteOptions,
) -> Result<Outcome, String> {
    let own_list = override_of(service)?;
    let all = backend_lists(socket, service)?;
    let json = |list: &Object| json_of(Some(list)).unwrap_or_default();
    let defines = |list: &&Object| !members(&json(list), backend).is_empty();
    let is_own = |list: &&Object| list.source.as_str() == API;
    let own = all.iter().filter(defines).find(|list| is_own(list));
    let others: Vec<Value> =
        all.iter().filter(defines).filter(|list| !is_own(list)).map(json).collect();
    let other = others.first();
    if own.is_none() && other.is_none() {
        return Ok(Err(no_such_backend(service, backend, &all)));
    }
    let list = own.map_or(own_list.clone(), |list| list.name.clone());
    let is_override = list == own_list;
    let inherited: Vec<Value> = other
        .filter(|_| is_override)
        .map(|list| members(list, backend).into_iter().cloned().collect())
        .unwrap_or_default();
    let change = Change {
        kind: Kind::Backends,
        name: list,
        next: Box::new(|before| {
            apply_edit(before, service, backend, &inherited, is_override, edit)
        }),
        location: Box::new(|_| String::new()),
    };
    let (reports, code) =
        write::apply_changes(options, socket, std::slice::from_ref(&change), write_options)?;
    let written = is_override && !edit.undo && !write_options.dry_run && code == ExitCode::SUCCESS;
    let Some(other) = other.filter(|_| written) else { return Ok(Ok((reports, code))) };
    let source = other["source"].as_str().unwrap_or_default();
    if !takes_effect(socket, service, backend)? {
        // The override has no effect now, and without its removal it could take effect later,
        // unexpectedly.
        let revert = Edit { undo: true, ..Edit::default() };
        let change = Change {
            next: Box::new(|before| {
                apply_edit(before, service, backend, &inherited, true, &revert)
            }),
            ..change
        };
        let write_options = WriteOptions { dry_run: false, wait: 0 };
        write::apply_changes(options, socket, &[change], &write_options)?;
        let message = format!(
            "{backend} of {service} belongs to source `{source}`, which takes precedence over the \
             API: change it there, or add a [[source]] named \"{API}\" before it to the \
             configuration; the change was reverted"
        );
        return Ok(Err(message));
    }
    if options.output() == Output::Table {
        write_stdout(&format!(
            "source `{source}` defines this backend too; the override applies until \
             `weir backend drain {service} {backend} --undo`\n"
        ));
    }
    Ok(Ok((reports, code)))
}

fn no_such_backend(service: &Name, backend: &Backend, all: &[Object]) -> String {
    let endpoints = all.iter().filter_map(|list| match &list.spec {
        Spec::Backends(spec) => Some(spec.endpoints.iter()),
        _ => None,
    });
    let mut existing: Vec<String> = endpoints
        .flatten()
        .map(|m| state::text::address_port(&m.address.to_string(), m.port))
        .collect();
    existing.sort();
    existing.dedup();
    let more = existing.len().saturating_sub(5);
    existing.truncate(5);
    let has = match (existing.is_empty(), more) {
        (true, _) => "it has none".to_owned(),
        (_, 0) => format!("it has {}", existing.join(", ")),
        (_, more) => format!("it has {} and {more} more", existing.join(", ")),
    };
    format!(
        "{service} has no backend {backend}: {has}; `weir service set {service} --backend \
         {backend}` adds one"
    )
}

/// Returns the API's list of backends after the change; `None` deletes the list. `inherited` has
/// the other source's entries for the backend, from which entries of an override list start.
fn apply_edit(
    before: Option<&Object>,
    service: &Name,
    backend: &Backend,
    inherited: &[Value],
    is_override: bool,
    edit: &Edit<'_>,
) -> Result<Option<Object>, Problem> {
    let name = before.map(|list| list.name.clone()).map_or_else(|| override_of(service), Ok);
    let name = name.map_err(Problem::bad_request)?;
    let new = json!({ "kind": "Backends", "name": name,
        "spec": { "service": service, "endpoints": [] } });
    let mut json = json_of(before).unwrap_or(new);
    let Some(list) = json["spec"]["endpoints"].as_array_mut() else { return Ok(None) };
    if !list.iter().any(|member| backend.matches(member)) {
        list.extend(inherited.iter().cloned());
    }
    for member in list.iter_mut().filter(|member| backend.matches(member)) {
        if let Some(weight) = edit.weight {
            member["weight"] = weight.into();
        }
        if let Some(state) = edit.state {
            member["state"] = state.into();
        }
    }
    if is_override {
        // An entry equal to that of the other source would only hide later changes of that source.
        let is_redundant = |member: &Value| edit.undo || inherited.contains(member);
        list.retain(|member| !(backend.matches(member) && is_redundant(member)));
        if list.is_empty() {
            return Ok(None);
        }
    }
    Ok(Some(Object::from_json(&json)?))
}

/// Waits until the backends table contains the API's definition of the backend, and returns whether
/// that takes precedence over the other source's. Returns true if the table does not contain it
/// after 5 s.
fn takes_effect(socket: &Path, service: &Name, backend: &Backend) -> Result<bool, String> {
    let until = Instant::now() + Duration::from_secs(5);
    // A shadow is a definition that another one overrides, in the form `SERVICE ... (SOURCE)`.
    let is_shadow = |text: &str, source: &str| {
        let of = text.split(' ').next().unwrap_or_default();
        of == service.as_str() && (source.is_empty() || text.ends_with(source))
    };
    loop {
        let prefix = escaped(&backend.to_string());
        let rows: Vec<Value> = get(socket, &format!("/db/backends?prefix={prefix}"))?;
        let shadows = rows.iter().flat_map(|row| row["shadows"].as_array().into_iter().flatten());
        let shadows: Vec<&str> = shadows.filter_map(Value::as_str).collect();
        if shadows.iter().any(|text| is_shadow(text, "(api)")) {
            return Ok(false);
        }
        if shadows.iter().any(|text| is_shadow(text, "")) || Instant::now() >= until {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns whether a name in the region belongs to this service. The region has a service under its
/// own name, or in parts named `SERVICE~PART`.
fn belongs_to(name: &str, service: &Name) -> bool {
    name.split('~').next() == Some(service.as_str())
}

/// Returns the number of flows of a service that a backend still has.
fn flows(socket: &Path, service: &Name, backend: &Backend) -> Result<u64, String> {
    let (mut count, mut from) = (0, 0);
    loop {
        let filter = format!(
            "&service={}&backend={}",
            escaped(service.as_str()),
            escaped(&backend.to_string())
        );
        let page: FlowPage = get(socket, &format!("/flows?from={from}&limit=10000{filter}"))?;
        let own = page.flows.iter().filter(|flow| belongs_to(&flow.service, service));
        count += own.count() as u64;
        match page.next {
            Some(next) if next > from => from = next,
            _ => return Ok(count),
        }
    }
}

/// Prints the number of flows of the backend whenever it changes, until there are none or `wait`
/// seconds since `begun` are over. Returns the last number, and exit code 1 if flows are left then.
/// With a `wait` of 0, prints the number once and returns exit code 0.
fn follow(
    options: &GlobalOptions,
    socket: &Path,
    (service, backend): (&Name, &Backend),
    begun: Instant,
    wait: u64,
) -> Result<(u64, ExitCode), String> {
    let until = begun + Duration::from_secs(wait);
    let is_table = options.output() == Output::Table;
    let services: Vec<ServiceReport> = get(socket, "/services")?;
    let reports = services.iter().filter(|report| belongs_to(&report.name, service));
    let is_this =
        |address: &str, port: u16| address == backend.address.to_string() && port == backend.port;
    let other_is_active = reports
        .flat_map(|report| &report.backends)
        .any(|other| other.state == "active" && !is_this(&other.address, other.port));
    if is_table && !other_is_active {
        eprintln!("no other backend of {service} is active: this one still gets new flows");
    }
    let mut last_count = None;
    loop {
        let left = flows(socket, service, backend)?;
        if is_table && last_count != Some(left) {
            write_stdout(&format!("{backend} has {} flows\n", table::count(left)));
        }
        last_count = Some(left);
        if left == 0 || wait == 0 {
            return Ok((left, ExitCode::SUCCESS));
        }
        if Instant::now() >= until {
            return Ok((left, ExitCode::from(1)));
        }
        thread::sleep(Duration::from_millis(500));
    }
}
