//! Conversion of objects to rows.

use config::checked::{ArmName, Reserved};

use crate::address::{Address, TrafficScope};
use crate::backend::{Instance, State};
use crate::frontend::Kind as FrontendKind;
use crate::name::{Name, Source};
use crate::object::{BackendSpec, Checked, FrontendSpec, Object, ServiceSpec};
use crate::service::Service;

/// Returns the frontends of a service. If its policies for packets from outside and from within the
/// cluster differ, each external frontend also gets an internal one. Exceptions are cluster
/// addresses, which follow the internal policy only, and host ports, which follow neither.
pub(super) fn frontends(spec: &ServiceSpec) -> Vec<FrontendSpec> {
    let mut all = spec.frontends.clone();
    if spec.has_two_traffic_scopes() {
        let without_internal = [FrontendKind::ClusterIp, FrontendKind::HostPort];
        for frontend in &spec.frontends {
            let internal =
                FrontendSpec { address: frontend.address.internal(), ..frontend.clone() };
            let exists = spec.frontends.iter().any(|other| other.address == internal.address);
            if frontend.address.traffic_scope == TrafficScope::External
                && !without_internal.contains(&frontend.kind)
                && !exists
            {
                all.push(internal);
            }
        }
    }
    all
}

/// Returns the first frontend on a port that the appliance itself uses, and the setting or protocol
/// that uses it. Frontends for packets from within the cluster, or of a single gateway endpoint,
/// cannot conflict: such packets never reach the appliance's own ports.
pub(super) fn reserved_of<'a>(
    reserved: &'a Reserved,
    spec: &'a ServiceSpec,
) -> Option<(&'a FrontendSpec, &'a str)> {
    spec.frontends.iter().find_map(|frontend| {
        let Address { prefix, port, protocol, traffic_scope, endpoint } = &frontend.address;
        let holder = reserved.holder(prefix, *port, *protocol);
        let holder =
            holder.filter(|_| *traffic_scope == TrafficScope::External && *endpoint == 0)?;
        Some((frontend, holder.holder.as_str()))
    })
}

/// Creates the row of a service.
pub(super) fn row(object: &Object, spec: Checked<ServiceSpec>) -> Service {
    Service {
        name: object.name.clone(),
        source: object.source.clone(),
        labels: object.labels.clone(),
        annotations: object.annotations.clone(),
        spec,
    }
}

/// Creates the row of a backend. `quarantined` is whether its source is quarantined, so that the
/// backend gets no new flows.
pub(super) fn instance(
    member: &BackendSpec,
    service: &Name,
    source: &Source,
    arm: ArmName,
    quarantined: bool,
) -> Instance {
    Instance {
        weight: member.weight,
        state: match member.state {
            State::Active | State::Terminating if quarantined => State::Quarantined,
            state => state,
        },
        arm: member.arm.unwrap_or(arm),
        port_names: member.port_names.clone(),
        placement: member.placement.clone(),
        probe: member.probe,
        ..Instance::new(member.endpoint(), service.clone(), source.clone())
    }
}
