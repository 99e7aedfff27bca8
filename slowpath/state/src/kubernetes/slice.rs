//! Conversion of EndpointSlices to lists of backends.

use std::mem;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use smallvec::SmallVec;

use super::Settings;
use super::annotations::Reader;
use super::wire::{Conditions, Endpoint, EndpointSlice};
use crate::backend::{Placement, State, merge_port_names};
use crate::object::{BackendSpec, BackendsSpec, ChangeError, Object, Spec};

/// Label with the name of the slice's service.
const SERVICE: &str = "kubernetes.io/service-name";
/// Address and port of a placeholder endpoint, which is skipped. Slices with it exist only so that
/// Cilium processes their service.
const PLACEHOLDER: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 192, 192, 192), 9999);

/// Converts a slice to the list of backends of its service, and appends a note for each ignored
/// annotation to `notes`. Returns `None` if the slice belongs to no service or contains host names
/// instead of addresses.
pub fn slice(
    from: &EndpointSlice,
    settings: &Settings,
    notes: &mut Vec<String>,
) -> Result<Option<Object>, ChangeError> {
    let meta = &from.metadata;
    let name = settings.name(&meta.namespace, &meta.name, "metadata.name")?;
    let Some(service) = meta.label(SERVICE).filter(|_| from.address_type != "FQDN") else {
        return Ok(None);
    };
    let field = "metadata.labels.kubernetes.io/service-name";
    let service = settings.name(&meta.namespace, service, field)?;
    let mut annotations = Reader::new(meta);
    let weight = annotations.value("weight", "0 to 65535", |text| text.trim().parse().ok());
    annotations.note_unknown(&[]);
    notes.extend(annotations.notes.into_iter().map(|note| format!("{name}: {note}")));
    let mut members: Vec<BackendSpec> = Vec::with_capacity(from.endpoints.len() * from.ports.len());
    for (i, endpoint) in from.endpoints.iter().enumerate() {
        let state = match weight {
            Some(0) => State::Maintenance,
            _ => state(endpoint.conditions),
        };
        let placement = placement(endpoint, settings);
        for (j, text) in endpoint.addresses.iter().enumerate() {
            let address = text.parse().map_err(|_| {
                let wrong = format!("`{text}` is not an address");
                let field = format!("endpoints[{i}].addresses[{j}]");
                ChangeError::new(field, wrong, "allowed: an IP address")
            })?;
            let template = BackendSpec {
                weight: weight.unwrap_or(100),
                state,
                placement: placement.clone(),
                ..BackendSpec::new(address, 0, 0)
            };
            add(&mut members, &template, from);
        }
    }
    merge_duplicates(&mut members);
    let spec = Spec::Backends(Arc::new(BackendsSpec { service, endpoints: members }));
    let mut object = Object::new(name, settings.source.clone(), spec);
    (object.labels, object.annotations) = (meta.labels.clone(), meta.annotations.clone());
    Ok(Some(object))
}

/// Adds a backend for each port of the slice, with the other fields of the template.
fn add(members: &mut Vec<BackendSpec>, template: &BackendSpec, from: &EndpointSlice) {
    for port in &from.ports {
        let number = port.port.unwrap_or(0);
        if template.address == IpAddr::V4(PLACEHOLDER.0) && number == PLACEHOLDER.1 {
            continue;
        }
        let mut port_names = SmallVec::new();
        if !port.name.is_empty() {
            port_names.push(port.name.clone());
        }
        let protocol = port.protocol.number();
        members.push(BackendSpec { port: number, protocol, port_names, ..template.clone() });
    }
}

/// Merges backends with the same address, port and protocol into one, with all their port names and
/// the most active of their states. A port without a name stands for all port names.
fn merge_duplicates(members: &mut Vec<BackendSpec>) {
    if members.len() < 2 {
        return;
    }
    members.sort_by_key(|member| (member.endpoint(), member.state));
    members.dedup_by(|later, first| {
        let same = later.endpoint() == first.endpoint();
        if same {
            merge_port_names(&mut first.port_names, mem::take(&mut later.port_names));
        }
        same
    });
}

/// Returns the state of an endpoint with these conditions.
fn state(conditions: Conditions) -> State {
    let ready = conditions.ready.unwrap_or(true);
    let serving = conditions.serving.unwrap_or(ready);
    match (ready, conditions.terminating.unwrap_or(false), serving) {
        (true, ..) => State::Active,
        (false, true, false) => State::TerminatingNotServing,
        (false, true, true) => State::Terminating,
        (false, false, _) => State::Maintenance,
    }
}

/// Returns the placement of an endpoint; `None` if nothing about it is known.
fn placement(endpoint: &Endpoint, settings: &Settings) -> Option<Arc<Placement>> {
    let placement = Placement {
        node: endpoint.node_name.clone(),
        zone: endpoint.zone.clone(),
        for_zones: endpoint.hints.for_zones.iter().map(|zone| zone.name.clone()).collect(),
        cluster: settings.cluster_number,
    };
    (placement != Placement::default()).then(|| Arc::new(placement))
}
