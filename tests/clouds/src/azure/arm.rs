//! Resource Manager: a tree of resources, read and written by common rules for all types.

use serde_json::{Value, json};

use crate::azure::answer::{AzureResponse, ServiceResult, fail, list};
use crate::azure::kind::{Kind, Storage};
use crate::azure::path::{Path, above, same};
use crate::azure::request::ParsedRequest;
use crate::azure::rights::check_allowed;
use crate::azure::state::{AzureState, Resource};
use crate::azure::view::{get_resource, render};
use crate::azure::{dns, identity, link, probe, write};

impl AzureState {
    /// Answers a request to Resource Manager, without authentication.
    pub fn answer(&mut self, request: &ParsedRequest) -> AzureResponse {
        self.settle();
        answer(self, request).unwrap_or_else(AzureResponse::from)
    }
}

fn answer(cloud: &mut AzureState, request: &ParsedRequest) -> ServiceResult<AzureResponse> {
    check_version(request)?;
    let marker = "/providers/microsoft.authorization/permissions";
    if request.path.to_ascii_lowercase().ends_with(marker) {
        return Ok(identity::permissions(cloud));
    }
    let Some(path) = Path::parse(&request.path) else {
        return fail(404, "InvalidResourceType", "The resource type could not be found.");
    };
    check_scope(cloud, &path)?;
    if path.types().eq_ignore_ascii_case("locations/operations") {
        return cloud.poll(path.name(), false, &request.base);
    }
    if path.types().eq_ignore_ascii_case("locations/operationResults") {
        return cloud.poll(path.name(), true, &request.base);
    }
    if request.method == "POST" {
        return perform_action(cloud, request, &path);
    }
    let Some(kind) = Kind::of(&path) else {
        let why = format!(
            "The resource type '{}' could not be found in the namespace '{}' for api version '{}'.",
            path.types(),
            path.provider,
            request.query("api-version").unwrap_or_default()
        );
        return fail(404, "InvalidResourceType", why);
    };
    let verb = match request.method.as_str() {
        "GET" => "read",
        "PUT" => "write",
        "DELETE" => "delete",
        other => return fail(405, "MethodNotAllowed", format!("method {other} is not supported")),
    };
    if !cloud.forbidden.is_empty() {
        check_allowed(cloud, &format!("{}/{verb}", kind.full_type()), &path.id())?;
    }
    match (request.method.as_str(), path.is_item()) {
        ("GET", false) => list_resources(cloud, request, &path, kind),
        ("GET", true) => read(cloud, &path, kind),
        ("PUT", true) => write::write(cloud, request, &path, kind),
        ("DELETE", true) => write::delete(cloud, request, &path, kind),
        _ => fail(405, "MethodNotAllowed", "lists are read only"),
    }
}

fn check_version(request: &ParsedRequest) -> ServiceResult<()> {
    let Some(version) = request.query("api-version") else {
        let why = "The api-version query parameter (?api-version=) is required for all requests.";
        return fail(400, "MissingApiVersionParameter", why);
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
    fail(400, "InvalidApiVersionParameter", why)
}

/// Checks that subscription and resource group exist.
fn check_scope(cloud: &AzureState, path: &Path) -> ServiceResult<()> {
    let named = |id: &str, at, name: &str| {
        id.split('/').nth(at).is_some_and(|part| part.eq_ignore_ascii_case(name))
    };
    let mut groups = cloud.groups.iter().filter(|id| named(id, 2, &path.subscription)).peekable();
    if groups.peek().is_none() {
        let why = format!("The subscription '{}' could not be found.", path.subscription);
        return fail(404, "SubscriptionNotFound", why);
    }
    match &path.group {
        Some(group) if !groups.any(|id| named(id, 4, group)) => {
            let why = format!("Resource group '{group}' could not be found.");
            fail(404, "ResourceGroupNotFound", why)
        }
        _ => Ok(()),
    }
}

fn absent<T>(path: &Path, kind: &Kind) -> ServiceResult<T> {
    if kind.storage != Storage::Own || kind.types.contains('/') {
        return fail(404, "NotFound", format!("Resource {} not found.", path.id()));
    }
    let why = format!(
        "The Resource '{}/{}' under resource group '{}' was not found. For more details please go \
         to https://aka.ms/ARMResourceNotFoundFix",
        kind.full_type(),
        path.name(),
        path.group.as_deref().unwrap_or_default()
    );
    fail(404, "ResourceNotFound", why)
}

fn read(cloud: &AzureState, path: &Path, kind: &Kind) -> ServiceResult<AzureResponse> {
    match get_resource(cloud, path, kind) {
        Some((body, etag)) => Ok(AzureResponse::of(200, body).with("etag", etag)),
        None => absent(path, kind),
    }
}

fn list_resources(
    cloud: &AzureState,
    request: &ParsedRequest,
    path: &Path,
    kind: &Kind,
) -> ServiceResult<AzureResponse> {
    let all: Vec<Value> = match kind.storage {
        Storage::Inside(member) => {
            let holder = path.id();
            let holder = above(&holder);
            match cloud.find(holder) {
                Some(resource) => {
                    list(&render(cloud, resource), &format!("/properties/{member}")).to_vec()
                }
                None => return fail(404, "NotFound", format!("Resource {holder} not found.")),
            }
        }
        Storage::Own => {
            let (id, all) = (path.id(), dns::is_list_of_all(path));
            let within = |resource: &&Resource| match &path.group {
                Some(_) if all => dns::is_listed(&id, &resource.id),
                Some(_) => same(above(&resource.id), &id),
                None => Path::parse(&resource.id).is_some_and(|other| {
                    let is_local = other.subscription.eq_ignore_ascii_case(&path.subscription);
                    is_local && Kind::of(&other) == Some(kind)
                }),
            };
            cloud.resources.iter().filter(within).map(|r| render(cloud, r)).collect()
        }
    };
    let token = request.query("$skiptoken");
    let (page, next) = crate::answer::page(all, token, cloud.page)?;
    let mut body = json!({});
    body["value"] = Value::Array(page);
    if let Some(next) = next {
        let version = request.query("api-version").unwrap_or_default();
        let (base, path) = (&request.base, &request.path);
        body["nextLink"] = format!("{base}{path}?api-version={version}&%24skiptoken={next}").into();
    }
    Ok(AzureResponse::of(200, body))
}

fn perform_action(
    cloud: &mut AzureState,
    request: &ParsedRequest,
    path: &Path,
) -> ServiceResult<AzureResponse> {
    let types = path.types();
    let name = types.strip_prefix("locations/").unwrap_or(&types);
    check_allowed(cloud, &format!("{}/{name}/action", path.provider), &path.id())?;
    match types.as_str() {
        "loadBalancers/loadBalancingRules/health" => probe::health(cloud, request, path),
        "locations/checkPrivateLinkServiceVisibility" => link::visibility(cloud, request, path),
        _ => fail(404, "InvalidResourceType", format!("There is no action '{types}'.")),
    }
}
