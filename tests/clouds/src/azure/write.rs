//! Writes and deletions: validation by type, side effects, and dependencies.

use serde_json::Value;

use crate::azure::answer::{
    AzureResponse, ServiceResult, fail, list_mut, object_member, put, text,
};
use crate::azure::kind::{Completion, Kind, Storage};
use crate::azure::operation::Plan;
use crate::azure::path::{Path, same};
use crate::azure::request::{ParsedRequest, operation};
use crate::azure::state::AzureState;
use crate::azure::view::get_resource;
use crate::azure::{balancer, dns, interface, link, network, pool};

/// Checks `If-Match` and `If-None-Match`.
fn check_conditions(request: &ParsedRequest, etag: Option<&str>) -> ServiceResult<()> {
    let matches = match request.header("if-match") {
        Some("*") => etag.is_some(),
        Some(expected) => etag == Some(expected),
        None => true,
    };
    if matches && (request.header("if-none-match") != Some("*") || etag.is_none()) {
        return Ok(());
    }
    let why = format!(
        "Precondition failed. Etag provided in if-match header {} does not match etag {} of \
         resource {} in NRP data store.",
        request.header("if-match").unwrap_or("*"),
        etag.unwrap_or_default(),
        request.path
    );
    fail(412, "PreconditionFailed", why)
}

/// Answers `PUT`.
pub fn write(
    cloud: &mut AzureState,
    request: &ParsedRequest,
    path: &Path,
    kind: &Kind,
) -> ServiceResult<AzureResponse> {
    if kind.put == Completion::Never {
        let why = format!("The requested resource does not support http method 'PUT' ({kind:?}).");
        return fail(405, "MethodNotAllowed", why);
    }
    let holder_id = kind.holder(path).id();
    if let Some(above) = path.parent().filter(|above| cloud.find(&above.id()).is_none()) {
        let why = format!(
            "Can not perform requested operation on nested resource. Parent resource '{}' not \
             found.",
            above.name()
        );
        return fail(404, "ParentResourceNotFound", why);
    }
    let old = get_resource(cloud, path, kind);
    check_conditions(request, old.as_ref().map(|(_, etag)| etag.as_str()))?;
    let mut body = request.body.clone();
    if !body.is_object() {
        let why = "The request content was invalid and could not be deserialized.";
        return fail(400, "InvalidRequestContent", why);
    }
    object_member(&mut body, "properties");
    let old = old.map(|(old, _)| old);
    let needs_no_location = kind.provider != "Microsoft.Network" || kind.types.contains('/');
    if !needs_no_location && old.is_none() && text(&body, "/location").is_empty() {
        let why = "The location property is required for this definition.";
        return fail(400, "LocationRequired", why);
    }
    let mut touched = vec![holder_id.clone()];
    touched.extend(validate(cloud, path, kind, old.as_ref(), &mut body)?);
    cloud.check_idle(&touched)?;
    let before = cloud.find(&holder_id).cloned();
    let end = match kind.types {
        "privateDnsZones/virtualNetworkLinks" => dns::link_failure(cloud, path, &body),
        _ => None,
    };
    install(cloud, path, kind, body);
    let others: Vec<String> = touched[1..].to_vec();
    others.iter().for_each(|other| cloud.touch(other));
    if kind.types == "privateEndpoints" && old.is_none() {
        link::connect(cloud, path);
    }
    let plan = Plan {
        name: operation("PUT", &request.path),
        completion: kind.put,
        item: path.id(),
        resources: touched,
        before: before
            .filter(|_| old.is_some() || kind.storage != Storage::Own)
            .into_iter()
            .collect(),
        end,
    };
    let operation_id = cloud.begin(plan, None);
    let status = if old.is_some() { 200 } else { 201 };
    let (body, etag) = get_resource(cloud, path, kind).unwrap_or_default();
    let answer = AzureResponse::of(status, body).with("etag", etag);
    Ok(match operation_id {
        Some(id) => cloud.announce(answer, &id, kind.put, &request.base),
        None => answer,
    })
}

/// Validates a body by its type, and adds the members that Azure adds. Returns the ids of other
/// resources that the write changes.
fn validate(
    cloud: &mut AzureState,
    path: &Path,
    kind: &Kind,
    old: Option<&Value>,
    body: &mut Value,
) -> ServiceResult<Vec<String>> {
    match kind.types {
        "loadBalancers" => balancer::check(cloud, path, old, body),
        "loadBalancers/backendAddressPools" => pool::check(cloud, path, old, body),
        "networkInterfaces" => interface::check(cloud, path, old, body),
        "virtualNetworks" => network::check(old, body),
        "virtualNetworks/subnets" => network::check_subnet(cloud, path, body),
        "privateLinkServices" => link::check_service(cloud, path, old, body),
        "privateLinkServices/privateEndpointConnections" => link::check_connection(path, old, body),
        "privateEndpoints" => link::check_endpoint(cloud, path, old, body),
        "privateDnsZones/A" => dns::check_record(path, body),
        "privateDnsZones/virtualNetworkLinks" => dns::check_link(cloud, path, body),
        _ => Ok(Vec::new()),
    }
}

/// Stores the body of a validated write.
fn install(cloud: &mut AzureState, path: &Path, kind: &Kind, mut body: Value) {
    let Storage::Inside(member) = kind.storage else {
        if kind.types == "privateDnsZones" {
            dns::create_soa(cloud, &path.id());
        }
        return cloud.write(&path.id(), body);
    };
    put(&mut body, "name", Some(path.name().into()));
    let holder_id = kind.holder(path).id();
    let Some(mut holder) = cloud.find(&holder_id).map(|found| found.body.clone()) else { return };
    let elements = list_mut(&mut holder, member);
    match elements.iter_mut().find(|e| text(e, "/name").eq_ignore_ascii_case(path.name())) {
        Some(element) => *element = body,
        None => elements.push(body),
    }
    cloud.write(&holder_id, holder);
}

/// Answers `DELETE`.
pub fn delete(
    cloud: &mut AzureState,
    request: &ParsedRequest,
    path: &Path,
    kind: &Kind,
) -> ServiceResult<AzureResponse> {
    if kind.delete == Completion::Never {
        let why = "The requested resource does not support http method 'DELETE'.";
        return fail(405, "MethodNotAllowed", why);
    }
    let Some((_, etag)) = get_resource(cloud, path, kind) else {
        return Ok(AzureResponse::empty(204));
    };
    check_conditions(request, Some(&etag))?;
    let holder_id = kind.holder(path).id();
    check_removable(cloud, path, kind)?;
    cloud.check_idle(std::slice::from_ref(&holder_id))?;
    let plan = Plan {
        name: operation("DELETE", &request.path),
        completion: kind.delete,
        item: path.id(),
        resources: vec![holder_id],
        before: Vec::new(),
        end: None,
    };
    Ok(match cloud.begin(plan, None) {
        Some(id) => cloud.announce(AzureResponse::empty(202), &id, kind.delete, &request.base),
        None => {
            cloud.remove(&path.id());
            AzureResponse::empty(200)
        }
    })
}

/// Fails if another resource depends on the one to delete.
fn check_removable(cloud: &AzureState, path: &Path, kind: &Kind) -> ServiceResult<()> {
    let start = format!("{}/", path.id()).to_ascii_lowercase();
    let nested = cloud.resources.iter().find(|r| {
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
        return fail(409, "CannotDeleteResource", why);
    }
    match kind.types {
        "loadBalancers" | "loadBalancers/backendAddressPools" => {
            link::check_unused(cloud, &path.id())?;
            pool::check_removable(cloud, path)
        }
        "privateLinkServices" => link::check_removable(cloud, path),
        "networkInterfaces" => interface::check_removable(cloud, path),
        "virtualNetworks/subnets" => network::check_removable(cloud, path),
        _ => Ok(()),
    }
}

impl AzureState {
    /// Stores a body without validation; a new DNS zone gets its SOA record.
    pub fn store(&mut self, id: &str, body: Value) {
        if let Some((kind, path)) = Kind::parse(id) {
            install(self, &path, kind, body);
        }
    }

    /// Changes the stored body of a resource, which gets a new ETag.
    pub fn edit(&mut self, id: &str, change: impl FnOnce(&mut Value)) {
        let Some((kind, path)) = Kind::parse(id) else { return };
        let holder_id = kind.holder(&path).id();
        let Some(found) = self.find_mut(&holder_id) else { return };
        match kind.storage {
            Storage::Own => change(&mut found.body),
            Storage::Inside(member) => {
                let mut elements = list_mut(&mut found.body, member).iter_mut();
                let named = |e: &&mut Value| text(e, "/name").eq_ignore_ascii_case(path.name());
                if let Some(element) = elements.find(named) {
                    change(element);
                }
            }
        }
        self.touch(&holder_id);
    }

    /// Removes a resource with those nested in it, and the interface and connection of an endpoint.
    pub fn remove(&mut self, id: &str) {
        let Some((kind, path)) = Kind::parse(id) else { return };
        let Storage::Inside(member) = kind.storage else {
            if let Some(endpoint) = self.find(id).filter(|_| kind.types == "privateEndpoints") {
                link::disconnect(self, &endpoint.clone());
            }
            let start = format!("{id}/").to_ascii_lowercase();
            let within = |other: &str| other.to_ascii_lowercase().starts_with(&start);
            self.resources.retain(|other| !same(&other.id, id) && !within(&other.id));
            return;
        };
        let holder_id = kind.holder(&path).id();
        let holder = self.find(&holder_id).map(|found| found.body.clone());
        let Some(mut holder) = holder else { return };
        let elements = list_mut(&mut holder, member);
        elements.retain(|element| !text(element, "/name").eq_ignore_ascii_case(path.name()));
        self.write(&holder_id, holder);
    }
}
