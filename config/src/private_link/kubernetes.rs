//! Conversion of the Kubernetes resource `AzurePrivateLinkService` to the desired state.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::spec::{EndpointSpec, Paused, ResourceRef, Spec, Zone};
use crate::validation_error::ValidationError;

/// Annotation with the cluster of the resource, `NAMESPACE/NAME`. HyperShift, which runs the
/// control planes of OpenShift clusters as pods, creates the resource and writes the annotation.
pub const ANNOTATION_CLUSTER: &str = "hypershift.openshift.io/cluster";
/// Annotation that makes names unique among clusters; the cluster's name if omitted.
const ANNOTATION_ID: &str = "weir.dev/cluster-id";
/// Annotation that pauses reconciliation: `true`, or an end time in RFC 3339 format.
const ANNOTATION_PAUSED: &str = "weir.dev/paused";
/// Annotation with the resource group of service and load balancer; that of the endpoint if
/// omitted.
const ANNOTATION_GROUP: &str = "weir.dev/service-resource-group";
/// Annotation with record names in the base domain, separated by commas.
const ANNOTATION_RECORDS: &str = "weir.dev/base-domain-records";

#[derive(Deserialize)]
struct Resource {
    metadata: Meta,
    spec: Fields,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    annotations: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fields {
    #[serde(rename = "loadBalancerIP", default)]
    load_balancer_ip: Option<IpAddr>,
    #[serde(rename = "subscriptionID")]
    subscription: String,
    resource_group_name: String,
    location: String,
    #[serde(rename = "natSubnetID", default)]
    nat_subnet: Option<ResourceRef>,
    #[serde(default)]
    additional_allowed_subscriptions: Option<Vec<String>>,
    #[serde(rename = "guestSubnetID")]
    guest_subnet: ResourceRef,
    #[serde(rename = "guestVNetID")]
    guest_network: ResourceRef,
    #[serde(default)]
    base_domain: Option<String>,
}

/// Name of the resource for the private router, which owns the cluster's own zone.
const ROUTER: &str = "private-router";

/// Identity of a resource among those of its cluster. HyperShift creates one resource for the
/// private router and one for OAuth, which share a network and therefore DNS zones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sibling {
    /// Cluster, as `namespace/name`.
    cluster: String,
    namespace: String,
    name: String,
}

impl Sibling {
    /// Returns the sibling for a resource, or `None` if it names no cluster.
    pub fn of(json: &Value) -> Option<Sibling> {
        let meta = &json["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let cluster = meta["annotations"][ANNOTATION_CLUSTER].as_str()?.to_owned();
        let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
        Some(Sibling { cluster, namespace, name })
    }

    fn serves_oauth(&self) -> bool {
        self.name.contains("oauth")
    }
}

/// DNS names of a cluster that one of its resources owns, and the siblings do not.
struct OwnedNames {
    /// Whether the resource owns the cluster's own zone, `CLUSTER.hypershift.local`.
    own_zone: bool,
    /// Record names in the base domain, without `-CLUSTER`.
    base: &'static [&'static str],
}

impl OwnedNames {
    fn of(me: &Sibling, all: &[Sibling]) -> OwnedNames {
        let is_sibling = |other: &&Sibling| {
            (&other.cluster, &other.namespace) == (&me.cluster, &me.namespace)
                && other.name != me.name
        };
        let others = || all.iter().filter(is_sibling);
        if me.serves_oauth() {
            return OwnedNames { own_zone: false, base: &["oauth"] };
        }
        if me.name != ROUTER && others().any(|other| other.name == ROUTER) {
            return OwnedNames { own_zone: false, base: &[] };
        }
        match others().any(|other| other.serves_oauth()) {
            true => OwnedNames { own_zone: true, base: &["api"] },
            false => OwnedNames { own_zone: true, base: &["api", "oauth"] },
        }
    }
}

/// Returns the resource's name, `namespace/name`, and its desired state. The DNS names in the
/// desired state depend on `siblings`, which may include the resource itself.
///
/// # Errors
/// Returns the first invalid field, by its path in the Kubernetes resource.
pub fn from_kubernetes(
    json: &Value,
    siblings: &[Sibling],
) -> Result<(String, Spec), ValidationError> {
    let Resource { metadata, spec } = Resource::deserialize(json).map_err(|error| {
        let remedy = "write the fields of AzurePrivateLinkService";
        ValidationError::new("", error.to_string(), remedy)
    })?;
    let annotation = |key: &str| metadata.annotations.get(key).and_then(Value::as_str);
    let cluster = cluster(annotation(ANNOTATION_CLUSTER))?;
    if spec.additional_allowed_subscriptions.as_ref().is_some_and(Vec::is_empty) {
        let remedy = "write 1 to 50 subscriptions, or remove the field";
        let at = "spec.additionalAllowedSubscriptions";
        return Err(ValidationError::new(at, "the list is empty", remedy));
    }
    let (mut zones, mut base_zone) = (Vec::new(), None);
    let zone = |name: String, records: &[String], link: String| Zone {
        name,
        records: records.to_vec(),
        link: Some(link),
    };
    let object = &metadata.name;
    let own_records = ["api", "*.apps"].map(str::to_owned);
    let owned = Sibling::of(json).map(|me| OwnedNames::of(&me, siblings));
    if owned.as_ref().is_some_and(|owned| owned.own_zone) {
        let link = format!("{object}-vnet-link");
        zones.push(zone(format!("{cluster}.hypershift.local"), &own_records, link));
    }
    if let Some(base) = spec.base_domain.filter(|base| !base.is_empty()) {
        let owned = owned.map_or(&[] as &[_], |owned| owned.base);
        let records = base_records(cluster, annotation(ANNOTATION_RECORDS), owned);
        if !records.is_empty() {
            base_zone = Some(zones.len());
            zones.push(zone(base, &records, format!("{object}-basedomain-vnet-link")));
        }
    }
    let service_group = annotation(ANNOTATION_GROUP).unwrap_or(&spec.resource_group_name);
    let desired = Spec {
        load_balancer_ip: spec.load_balancer_ip,
        subscription: spec.subscription,
        resource_group: service_group.to_owned(),
        location: spec.location,
        service_name: None,
        cluster: annotation(ANNOTATION_ID).unwrap_or(cluster).to_owned(),
        nat_subnet: spec.nat_subnet,
        additional_allowed_subscriptions: spec.additional_allowed_subscriptions.unwrap_or_default(),
        auto_approved_subscriptions: None,
        tags: [(format!("kubernetes.io_cluster_{cluster}"), "owned".to_owned())].into(),
        paused: annotation(ANNOTATION_PAUSED)
            .map_or_else(Paused::default, |text| Paused::Until(text.into())),
        endpoint: Some(EndpointSpec {
            subnet: spec.guest_subnet,
            network: spec.guest_network,
            resource_group: Some(spec.resource_group_name),
            zones,
        }),
    };
    let renamed = |error: ValidationError| ValidationError {
        field: kubernetes_path(&error.field, base_zone),
        ..error
    };
    desired.check().map_err(renamed)?;
    let namespace = if metadata.namespace.is_empty() { "default" } else { &metadata.namespace };
    Ok((format!("{namespace}/{}", metadata.name), desired))
}

/// Returns the name of the cluster from its annotation, `NAMESPACE/NAME`.
fn cluster(annotation: Option<&str>) -> Result<&str, ValidationError> {
    let parts = annotation.and_then(|text| text.split_once('/'));
    let has_two_parts = |(namespace, name): &(&str, &str)| {
        !namespace.is_empty() && !name.is_empty() && !name.contains('/')
    };
    parts.filter(has_two_parts).map(|(_, name)| name).ok_or_else(|| {
        let fault = match annotation {
            None => "the annotation is missing".to_owned(),
            Some(text) => format!("`{text}` is not the name of a cluster"),
        };
        let field = format!("metadata.annotations[{ANNOTATION_CLUSTER}]");
        ValidationError::new(&field, fault, "write NAMESPACE/NAME of the cluster")
    })
}

/// Returns the record names in the base domain: those of the annotation, or without it the names
/// that the resource owns, each with `-CLUSTER` appended.
fn base_records(cluster: &str, annotation: Option<&str>, owned: &[&str]) -> Vec<String> {
    let names: Vec<&str> = match annotation {
        Some(text) => text.split(',').map(str::trim).collect(),
        None => owned.to_vec(),
    };
    names.into_iter().map(|name| format!("{name}-{cluster}")).collect()
}

/// Converts the path of a field of [`Spec`] to that of the Kubernetes resource. `base_zone` is the
/// index of the base domain's zone, all of whose fields become `spec.baseDomain`.
fn kubernetes_path(field: &str, base_zone: Option<usize>) -> String {
    let base = base_zone.map(|at| format!("spec.endpoint.zones[{at}]"));
    if base.is_some_and(|base| field.starts_with(&base)) {
        return "spec.baseDomain".to_owned();
    }
    for (path, kubernetes) in [
        ("spec.load_balancer_ip", "spec.loadBalancerIP"),
        ("spec.subscription", "spec.subscriptionID"),
        ("spec.endpoint.resource_group", "spec.resourceGroupName"),
        ("spec.resource_group", "spec.resourceGroupName"),
        ("spec.nat_subnet", "spec.natSubnetID"),
        ("spec.additional_allowed_subscriptions", "spec.additionalAllowedSubscriptions"),
        ("spec.endpoint.subnet", "spec.guestSubnetID"),
        ("spec.endpoint.network", "spec.guestVNetID"),
        ("spec.cluster", "metadata.annotations"),
    ] {
        if let Some(rest) = field.strip_prefix(path) {
            return format!("{kubernetes}{rest}");
        }
    }
    field.to_owned()
}
