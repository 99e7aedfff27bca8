//! Writes and deletions: validation by type, side effects, and dependencies.

use serde_json::Value;

use crate::azure::answer::{Answer, Told, list_mut, object_member, put, refuse, text};
use crate::azure::kind::{How, Kind, Place};
use crate::azure::operation::Plan;
use crate::azure::path::{Path, same};
use crate::azure::request::{Asked, operation};
use crate::azure::view::look;
use crate::azure::world::World;
use crate::azure::{balancer, dns, interface, link, network, pool};

/// Checks `If-Match` and `If-None-Match`.
fn conditions(asked: &Asked, etag: Option<&str>) -> Told<()> {
    let met = match asked.header("if-match") {
        Some("*") => etag.is_some(),
        Some(wanted) => etag == Some(wanted),
        None => true,
    };
    if met && (asked.header("if-none-match") != Some("*") || etag.is_none()) {
        return Ok(());
    }
    let why = format!(
        "Precondition failed. Etag provided in if-match header {} does not match etag {} of \
         resource {} in NRP data store.",
        asked.header("if-match").unwrap_or("*"),
        etag.unwrap_or_default(),
        asked.path
    );
    refuse(412, "PreconditionFailed", why)
}

/// Answers `PUT`.
pub fn write(world: &mut World, asked: &Asked, path: &Path, kind: &Kind) -> Told<Answer> {
    if kind.put == How::Never {
        let why = format!("The requested resource does not support http method 'PUT' ({kind:?}).");
        return refuse(405, "MethodNotAllowed", why);
    }
    let home = kind.home(path).id();
    if let Some(above) = path.parent().filter(|above| world.find(&above.id()).is_none()) {
        let why = format!(
            "Can not perform requested operation on nested resource. Parent resource '{}' not \
             found.",
            above.name()
        );
        return refuse(404, "ParentResourceNotFound", why);
    }
    let old = look(world, path, kind);
    conditions(asked, old.as_ref().map(|(_, etag)| etag.as_str()))?;
    let mut body = asked.body.clone();
    if !body.is_object() {
        let why = "The request content was invalid and could not be deserialized.";
        return refuse(400, "InvalidRequestContent", why);
    }
    object_member(&mut body, "properties");
    let old = old.map(|(old, _)| old);
    let located = kind.provider != "Microsoft.Network" || kind.types.contains('/');
    if !located && old.is_none() && text(&body, "/location").is_empty() {
        let why = "The location property is required for this definition.";
        return refuse(400, "LocationRequired", why);
    }
    let mut touched = vec![home.clone()];
    touched.extend(checked(world, path, kind, old.as_ref(), &mut body)?);
    world.free(&touched)?;
    let before = world.find(&home).cloned();
    let end = match kind.types {
        "privateDnsZones/virtualNetworkLinks" => dns::doom(world, path, &body),
        _ => None,
    };
    install(world, path, kind, body);
    let others: Vec<String> = touched[1..].to_vec();
    others.iter().for_each(|other| world.touch(other));
    if kind.types == "privateEndpoints" && old.is_none() {
        link::connect(world, path);
    }
    let plan = Plan {
        name: operation("PUT", &asked.path),
        how: kind.put,
        item: path.id(),
        resources: touched,
        before: before.filter(|_| old.is_some() || kind.place != Place::Own).into_iter().collect(),
        end,
    };
    let begun = world.begin(plan, None);
    let status = if old.is_some() { 200 } else { 201 };
    let (shown, etag) = look(world, path, kind).unwrap_or_default();
    let answer = Answer::of(status, shown).with("etag", etag);
    Ok(match begun {
        Some(id) => world.announce(answer, &id, kind.put, &asked.base),
        None => answer,
    })
}

/// Validates a body by its type; returns the other resources that the write changes.
fn checked(
    world: &mut World,
    path: &Path,
    kind: &Kind,
    old: Option<&Value>,
    body: &mut Value,
) -> Told<Vec<String>> {
    match kind.types {
        "loadBalancers" => balancer::check(world, path, old, body),
        "loadBalancers/backendAddressPools" => pool::check(world, path, old, body),
        "networkInterfaces" => interface::check(world, path, old, body),
        "virtualNetworks" => network::check(old, body),
        "virtualNetworks/subnets" => network::check_subnet(world, path, body),
        "privateLinkServices" => link::check_service(world, path, old, body),
        "privateLinkServices/privateEndpointConnections" => link::check_connection(path, old, body),
        "privateEndpoints" => link::check_endpoint(world, path, old, body),
        "privateDnsZones/A" => dns::check_record(path, body),
        "privateDnsZones/virtualNetworkLinks" => dns::check_link(world, path, body),
        _ => Ok(Vec::new()),
    }
}

/// Stores a body.
fn install(world: &mut World, path: &Path, kind: &Kind, mut body: Value) {
    let Place::Inside(member) = kind.place else {
        if kind.types == "privateDnsZones" {
            dns::give_authority(world, &path.id());
        }
        return world.write(&path.id(), body);
    };
    put(&mut body, "name", Some(path.name().into()));
    let home = kind.home(path).id();
    let Some(mut whole) = world.find(&home).map(|found| found.body.clone()) else { return };
    let kept = list_mut(&mut whole, member);
    match kept.iter_mut().find(|e| text(e, "/name").eq_ignore_ascii_case(path.name())) {
        Some(element) => *element = body,
        None => kept.push(body),
    }
    world.write(&home, whole);
}

/// Answers `DELETE`.
pub fn delete(world: &mut World, asked: &Asked, path: &Path, kind: &Kind) -> Told<Answer> {
    if kind.delete == How::Never {
        let why = "The requested resource does not support http method 'DELETE'.";
        return refuse(405, "MethodNotAllowed", why);
    }
    let Some((_, etag)) = look(world, path, kind) else { return Ok(Answer::empty(204)) };
    conditions(asked, Some(&etag))?;
    let home = kind.home(path).id();
    removable(world, path, kind)?;
    world.free(std::slice::from_ref(&home))?;
    let plan = Plan {
        name: operation("DELETE", &asked.path),
        how: kind.delete,
        item: path.id(),
        resources: vec![home],
        before: Vec::new(),
        end: None,
    };
    Ok(match world.begin(plan, None) {
        Some(id) => world.announce(Answer::empty(202), &id, kind.delete, &asked.base),
        None => {
            world.take_out(&path.id());
            Answer::empty(200)
        }
    })
}

/// Fails if another resource depends on the one to delete.
fn removable(world: &World, path: &Path, kind: &Kind) -> Told<()> {
    let start = format!("{}/", path.id()).to_ascii_lowercase();
    let nested = world.resources.iter().find(|r| {
        // Record sets are deleted with their zone.
        let types = Path::parse(&r.id).map(|path| path.types()).unwrap_or_default();
        r.id.to_ascii_lowercase().starts_with(&start) && !dns::is_record(&types)
    });
    if let Some(nested) = nested {
        let why = format!(
            "Cannot delete resource while nested resources exist. Some existing nested resource \
             IDs include: '{}'. Please delete all nested resources before deleting this resource.",
            nested.id
        );
        return refuse(409, "CannotDeleteResource", why);
    }
    match kind.types {
        "loadBalancers" | "loadBalancers/backendAddressPools" => {
            link::uses(world, &path.id())?;
            pool::removable(world, path)
        }
        "privateLinkServices" => link::removable(world, path),
        "networkInterfaces" => interface::removable(world, path),
        "virtualNetworks/subnets" => network::removable(world, path),
        _ => Ok(()),
    }
}

impl World {
    /// Stores a body without any validation.
    pub fn place(&mut self, id: &str, body: Value) {
        if let Some((kind, path)) = Kind::parse(id) {
            install(self, &path, kind, body);
        }
    }

    /// Changes the stored body of a resource, which gets a new ETag.
    pub fn edit(&mut self, id: &str, change: impl FnOnce(&mut Value)) {
        let Some((kind, path)) = Kind::parse(id) else { return };
        let home = kind.home(&path).id();
        let Some(found) = self.find_mut(&home) else { return };
        match kind.place {
            Place::Own => change(&mut found.body),
            Place::Inside(member) => {
                let mut kept = list_mut(&mut found.body, member).iter_mut();
                let named = |e: &&mut Value| text(e, "/name").eq_ignore_ascii_case(path.name());
                if let Some(element) = kept.find(named) {
                    change(element);
                }
            }
        }
        self.touch(&home);
    }

    /// Removes a resource.
    pub fn take_out(&mut self, id: &str) {
        let Some((kind, path)) = Kind::parse(id) else { return };
        let Place::Inside(member) = kind.place else {
            if let Some(endpoint) = self.find(id).filter(|_| kind.types == "privateEndpoints") {
                link::disconnect(self, &endpoint.clone());
            }
            let start = format!("{id}/").to_ascii_lowercase();
            let within = |other: &str| other.to_ascii_lowercase().starts_with(&start);
            self.resources.retain(|other| !same(&other.id, id) && !within(&other.id));
            return;
        };
        let home = kind.home(&path).id();
        let Some(mut whole) = self.find(&home).map(|found| found.body.clone()) else { return };
        let kept = list_mut(&mut whole, member);
        kept.retain(|element| !text(element, "/name").eq_ignore_ascii_case(path.name()));
        self.write(&home, whole);
    }
}
