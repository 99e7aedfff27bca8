//! The same in the shape in which Kubernetes' users write it: `AzurePrivateLinkService`.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::spec::{Address, EndpointSpec, Paused, Spec, Wrong, Zone};

/// The annotation that names the cluster for which it is, `NAMESPACE/NAME`.
pub const ANNOTATION_CLUSTER: &str = "hypershift.openshift.io/cluster";
/// What makes the cluster's names unique; the cluster's name where it is left out.
const ANNOTATION_ID: &str = "weir.dev/cluster-id";
/// `true`, or until when by RFC 3339.
const ANNOTATION_PAUSED: &str = "weir.dev/paused";
/// The resource group of service and load balancer, where it is not that of the endpoint.
const ANNOTATION_GROUP: &str = "weir.dev/service-resource-group";
/// Names within the base domain, with commas between.
const ANNOTATION_RECORDS: &str = "weir.dev/base-domain-records";

#[derive(Deserialize)]
struct Written {
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
    nat_subnet: Option<Address>,
    #[serde(default)]
    additional_allowed_subscriptions: Option<Vec<String>>,
    #[serde(rename = "guestSubnetID")]
    guest_subnet: Address,
    #[serde(rename = "guestVNetID")]
    guest_network: Address,
    #[serde(default)]
    base_domain: Option<String>,
}

/// Its name, `namespace/name`, and what it wants.
///
/// # Errors
/// The first field that can't be as it is, by its path in this shape.
pub fn from_kubernetes(json: &Value) -> Result<(String, Spec), Wrong> {
    let Written { metadata, spec } = Written::deserialize(json).map_err(|error| {
        let allowed = "write the fields of AzurePrivateLinkService";
        Wrong::new("", error.to_string(), allowed)
    })?;
    let note = |key: &str| metadata.annotations.get(key).and_then(Value::as_str);
    let cluster = cluster(note(ANNOTATION_CLUSTER))?;
    if spec.additional_allowed_subscriptions.as_ref().is_some_and(Vec::is_empty) {
        let allowed = "write 1 to 50 subscriptions, or leave it out";
        let at = "spec.additionalAllowedSubscriptions";
        return Err(Wrong::new(at, "the list is empty", allowed));
    }
    let mut zones = Vec::new();
    let zone = |name: String, records: &[String], link: String| Zone {
        name,
        records: records.to_vec(),
        link: Some(link),
    };
    let object = &metadata.name;
    let own = ["api", "*.apps"].map(str::to_owned);
    zones.push(zone(format!("{cluster}.hypershift.local"), &own, format!("{object}-vnet-link")));
    if let Some(base) = spec.base_domain.filter(|base| !base.is_empty()) {
        let records = base_records(object, cluster, note(ANNOTATION_RECORDS));
        zones.push(zone(base, &records, format!("{object}-basedomain-vnet-link")));
    }
    let service_group = note(ANNOTATION_GROUP).unwrap_or(&spec.resource_group_name).to_owned();
    let wanted = Spec {
        load_balancer_ip: spec.load_balancer_ip,
        subscription: spec.subscription,
        resource_group: service_group,
        location: spec.location,
        service_name: None,
        cluster: note(ANNOTATION_ID).unwrap_or(cluster).to_owned(),
        nat_subnet: spec.nat_subnet,
        additional_allowed_subscriptions: spec.additional_allowed_subscriptions.unwrap_or_default(),
        auto_approved_subscriptions: None,
        tags: [(format!("kubernetes.io_cluster_{cluster}"), "owned".to_owned())].into(),
        paused: note(ANNOTATION_PAUSED).map_or_else(Paused::default, |t| Paused::Until(t.into())),
        endpoint: Some(EndpointSpec {
            subnet: spec.guest_subnet,
            network: spec.guest_network,
            resource_group: Some(spec.resource_group_name),
            zones,
        }),
    };
    wanted.check().map_err(|wrong| Wrong { field: theirs(&wrong.field), ..wrong })?;
    let namespace = if metadata.namespace.is_empty() { "default" } else { &metadata.namespace };
    Ok((format!("{namespace}/{}", metadata.name), wanted))
}

fn cluster(note: Option<&str>) -> Result<&str, Wrong> {
    let parts = note.and_then(|text| text.split_once('/'));
    let right = |(namespace, name): &(&str, &str)| {
        !namespace.is_empty() && !name.is_empty() && !name.contains('/')
    };
    parts.filter(right).map(|(_, name)| name).ok_or_else(|| {
        let wrong = match note {
            None => "it is not there".to_owned(),
            Some(text) => format!("`{text}` names no cluster"),
        };
        let field = format!("metadata.annotations[{ANNOTATION_CLUSTER}]");
        Wrong::new(&field, wrong, "write NAMESPACE/NAME of the cluster")
    })
}

/// The names within the base domain: those that are written, else that of the part that the object
/// serves.
fn base_records(object: &str, cluster: &str, written: Option<&str>) -> Vec<String> {
    let served: Vec<&str> = match written {
        Some(text) => text.split(',').map(str::trim).collect(),
        None if object.contains("oauth") => vec!["oauth"],
        None => vec!["api", "oauth"],
    };
    served.into_iter().map(|part| format!("{part}-{cluster}")).collect()
}

/// The path in this shape of a field of ours.
fn theirs(field: &str) -> String {
    for (ours, theirs) in [
        ("spec.load_balancer_ip", "spec.loadBalancerIP"),
        ("spec.subscription", "spec.subscriptionID"),
        ("spec.endpoint.resource_group", "spec.resourceGroupName"),
        ("spec.resource_group", "spec.resourceGroupName"),
        ("spec.nat_subnet", "spec.natSubnetID"),
        ("spec.additional_allowed_subscriptions", "spec.additionalAllowedSubscriptions"),
        ("spec.endpoint.subnet", "spec.guestSubnetID"),
        ("spec.endpoint.network", "spec.guestVNetID"),
        ("spec.endpoint.zones[1]", "spec.baseDomain"),
        ("spec.cluster", "metadata.annotations"),
    ] {
        if let Some(rest) = field.strip_prefix(ours) {
            let rest = if theirs == "spec.baseDomain" { "" } else { rest };
            return format!("{theirs}{rest}");
        }
    }
    field.to_owned()
}
