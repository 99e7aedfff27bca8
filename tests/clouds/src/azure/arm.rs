//! Resource Manager: a tree of resources, read and written by common rules for all types.

use serde_json::{Value, json};

use crate::azure::answer::{Answer, Told, list, refuse};
use crate::azure::kind::{Kind, Place};
use crate::azure::path::{Path, above, same};
use crate::azure::request::Asked;
use crate::azure::rights::allowed;
use crate::azure::view::{look, shown};
use crate::azure::world::{Resource, World};
use crate::azure::{dns, identity, link, probe, write};

impl World {
    /// Answers a request to Resource Manager, without authentication.
    pub fn answer(&mut self, asked: &Asked) -> Answer {
        self.settle();
        answer(self, asked).unwrap_or_else(Answer::from)
    }
}

fn answer(world: &mut World, asked: &Asked) -> Told<Answer> {
    version(asked)?;
    let marker = "/providers/microsoft.authorization/permissions";
    if asked.path.to_ascii_lowercase().ends_with(marker) {
        return Ok(identity::permissions(world));
    }
    let Some(path) = Path::parse(&asked.path) else {
        return refuse(404, "InvalidResourceType", "The resource type could not be found.");
    };
    scope(world, &path)?;
    if path.types().eq_ignore_ascii_case("locations/operations") {
        return world.poll(path.name(), false, &asked.base);
    }
    if path.types().eq_ignore_ascii_case("locations/operationResults") {
        return world.poll(path.name(), true, &asked.base);
    }
    if asked.method == "POST" {
        return action(world, asked, &path);
    }
    let Some(kind) = Kind::of(&path) else {
        let why = format!(
            "The resource type '{}' could not be found in the namespace '{}' for api version '{}'.",
            path.types(),
            path.provider,
            asked.query("api-version").unwrap_or_default()
        );
        return refuse(404, "InvalidResourceType", why);
    };
    let verb = match asked.method.as_str() {
        "GET" => "read",
        "PUT" => "write",
        "DELETE" => "delete",
        other => return refuse(405, "MethodNotAllowed", format!("no {other} here")),
    };
    if !world.forbidden.is_empty() {
        allowed(world, &format!("{}/{verb}", kind.whole()), &path.id())?;
    }
    match (asked.method.as_str(), path.is_item()) {
        ("GET", false) => listed(world, asked, &path, kind),
        ("GET", true) => read(world, &path, kind),
        ("PUT", true) => write::write(world, asked, &path, kind),
        ("DELETE", true) => write::delete(world, asked, &path, kind),
        _ => refuse(405, "MethodNotAllowed", "lists are read only"),
    }
}

fn version(asked: &Asked) -> Told<()> {
    let Some(version) = asked.query("api-version") else {
        let why = "The api-version query parameter (?api-version=) is required for all requests.";
        return refuse(400, "MissingApiVersionParameter", why);
    };
    let day = version.strip_suffix("-preview").unwrap_or(version).as_bytes();
    let good = day.len() == 10
        && day.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if good {
        return Ok(());
    }
    let why = format!("The api-version '{version}' is invalid.");
    refuse(400, "InvalidApiVersionParameter", why)
}

/// Checks that subscription and resource group exist.
fn scope(world: &World, path: &Path) -> Told<()> {
    let named = |id: &str, at, name: &str| {
        id.split('/').nth(at).is_some_and(|word| word.eq_ignore_ascii_case(name))
    };
    let mut here = world.groups.iter().filter(|id| named(id, 2, &path.subscription)).peekable();
    if here.peek().is_none() {
        let why = format!("The subscription '{}' could not be found.", path.subscription);
        return refuse(404, "SubscriptionNotFound", why);
    }
    match &path.group {
        Some(group) if !here.any(|id| named(id, 4, group)) => {
            let why = format!("Resource group '{group}' could not be found.");
            refuse(404, "ResourceGroupNotFound", why)
        }
        _ => Ok(()),
    }
}

fn absent<T>(path: &Path, kind: &Kind) -> Told<T> {
    if kind.place != Place::Own || kind.types.contains('/') {
        return refuse(404, "NotFound", format!("Resource {} not found.", path.id()));
    }
    let why = format!(
        "The Resource '{}/{}' under resource group '{}' was not found. For more details please go \
         to https://aka.ms/ARMResourceNotFoundFix",
        kind.whole(),
        path.name(),
        path.group.as_deref().unwrap_or_default()
    );
    refuse(404, "ResourceNotFound", why)
}

fn read(world: &World, path: &Path, kind: &Kind) -> Told<Answer> {
    match look(world, path, kind) {
        Some((body, etag)) => Ok(Answer::of(200, body).with("etag", etag)),
        None => absent(path, kind),
    }
}

fn listed(world: &World, asked: &Asked, path: &Path, kind: &Kind) -> Told<Answer> {
    let all: Vec<Value> = match kind.place {
        Place::Inside(member) => {
            let holder = path.id();
            let holder = above(&holder);
            match world.find(holder) {
                Some(home) => list(&shown(world, home), &format!("/properties/{member}")).to_vec(),
                None => return refuse(404, "NotFound", format!("Resource {holder} not found.")),
            }
        }
        Place::Own => {
            let (id, all) = (path.id(), dns::is_list_of_all(path));
            let within = |resource: &&Resource| match &path.group {
                Some(_) if all => dns::lists(&id, &resource.id),
                Some(_) => same(above(&resource.id), &id),
                None => Path::parse(&resource.id).is_some_and(|other| {
                    let here = other.subscription.eq_ignore_ascii_case(&path.subscription);
                    here && Kind::of(&other) == Some(kind)
                }),
            };
            world.resources.iter().filter(within).map(|r| shown(world, r)).collect()
        }
    };
    let token = asked.query("$skiptoken");
    let (page, next) = crate::answer::page(all, token, world.page)?;
    let mut body = json!({});
    body["value"] = Value::Array(page);
    if let Some(next) = next {
        let version = asked.query("api-version").unwrap_or_default();
        let (base, path) = (&asked.base, &asked.path);
        body["nextLink"] = format!("{base}{path}?api-version={version}&%24skiptoken={next}").into();
    }
    Ok(Answer::of(200, body))
}

fn action(world: &mut World, asked: &Asked, path: &Path) -> Told<Answer> {
    let types = path.types();
    let name = types.strip_prefix("locations/").unwrap_or(&types);
    allowed(world, &format!("{}/{name}/action", path.provider), &path.id())?;
    match types.as_str() {
        "loadBalancers/loadBalancingRules/health" => probe::health(world, asked, path),
        "locations/checkPrivateLinkServiceVisibility" => link::visibility(world, asked, path),
        _ => refuse(404, "InvalidResourceType", format!("There is no action '{types}'.")),
    }
}
