//! Rows out of objects: pure functions.

use std::sync::Arc;

use config::checked::{ArmName, Reserved};
use smallvec::SmallVec;

use crate::address::{Address, Reach};
use crate::backend::{Instance, State};
use crate::frontend::Kind as FrontendKind;
use crate::name::{Name, Source};
use crate::object::{BackendSpec, Checked, FrontendSpec, Object, ServiceSpec};
use crate::service::Service;

/// None named is all.
pub(super) fn merge_names(first: &mut Instance, later: SmallVec<[Arc<str>; 1]>) {
    if first.port_names.is_empty() || later.is_empty() {
        first.port_names.clear();
        return;
    }
    for name in later {
        if !first.port_names.contains(&name) {
            first.port_names.push(name);
        }
    }
}

/// The frontends, with those for packets from within where the policies differ: cluster addresses
/// follow the internal policy alone, and host ports none.
pub(super) fn frontends(spec: &ServiceSpec) -> Vec<FrontendSpec> {
    let mut all = spec.frontends.clone();
    if spec.has_two_reaches() {
        let single = [FrontendKind::ClusterIp, FrontendKind::HostPort];
        for said in &spec.frontends {
            let inner = FrontendSpec { address: said.address.internal(), ..said.clone() };
            let is_there = spec.frontends.iter().any(|other| other.address == inner.address);
            if said.address.reach == Reach::External && !single.contains(&said.kind) && !is_there {
                all.push(inner);
            }
        }
    }
    all
}

/// The first frontend at a port of the appliance itself, and what has that port. Packets from
/// within the cluster and those of one gateway endpoint are never the appliance's own.
pub(super) fn reserved_of<'a>(
    reserved: &'a Reserved,
    spec: &'a ServiceSpec,
) -> Option<(&'a FrontendSpec, &'a str)> {
    spec.frontends.iter().find_map(|said| {
        let Address { prefix, port, protocol, reach, endpoint } = &said.address;
        let holder = reserved.holder(prefix, *port, *protocol);
        let holder = holder.filter(|_| *reach == Reach::External && *endpoint == 0)?;
        Some((said, holder.holder.as_str()))
    })
}

pub(super) fn row(object: &Object, spec: Checked<ServiceSpec>) -> Service {
    Service {
        name: object.name.clone(),
        source: object.source.clone(),
        labels: object.labels.clone(),
        annotations: object.annotations.clone(),
        spec,
    }
}

/// Of a source that is `silent`, nothing gets new flows.
pub(super) fn instance(
    member: &BackendSpec,
    service: &Name,
    source: &Source,
    arm: ArmName,
    silent: bool,
) -> Instance {
    Instance {
        weight: member.weight,
        state: match member.state {
            State::Active | State::Terminating if silent => State::Quarantined,
            said => said,
        },
        arm: member.arm.unwrap_or(arm),
        port_names: member.port_names.clone(),
        place: member.place.clone(),
        probe: member.probe,
        ..Instance::new(member.endpoint(), service.clone(), source.clone())
    }
}
