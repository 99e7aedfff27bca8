//! Rows out of objects: pure functions.

use std::sync::Arc;

use config::checked::{ArmName, Reserved};
use smallvec::SmallVec;

use crate::address::{Address, Reach};
use crate::backend::{Instance, State};
use crate::frontend::{Kind as FrontendKind, Said};
use crate::name::{Name, Source};
use crate::object::{Member, Object, ServiceSpec};
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
pub(super) fn frontends(spec: &ServiceSpec) -> Vec<Said> {
    let mut all = spec.frontends.clone();
    if spec.external_policy != spec.internal_policy {
        let single = [FrontendKind::ClusterIp, FrontendKind::HostPort];
        for said in &spec.frontends {
            let inner = Said { address: said.address.internal(), ..said.clone() };
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
) -> Option<(&'a Said, &'a str)> {
    spec.frontends.iter().find_map(|said| {
        let Address { prefix, port, protocol, reach, endpoint } = &said.address;
        let holder = reserved.holder(prefix, *port, *protocol);
        let holder = holder.filter(|_| *reach == Reach::External && *endpoint == 0)?;
        Some((said, holder.holder.as_str()))
    })
}

pub(super) fn row(object: &Object, spec: &ServiceSpec) -> Service {
    Service {
        name: object.name.clone(),
        source: object.source.clone(),
        labels: object.labels.clone(),
        annotations: object.annotations.clone(),
        properties: spec.properties.clone(),
        nat_policy: spec.nat_policy,
        external_policy: spec.external_policy,
        internal_policy: spec.internal_policy,
        distribution: spec.distribution,
        mode: spec.mode,
        algorithm: spec.algorithm,
        loopback_host_port: spec.loopback_host_port,
        affinity_s: spec.affinity_s,
        health_check_port: spec.health_check_port,
        health: spec.health.clone(),
        mss: spec.mss,
        tcp_idle_s: spec.tcp_idle_s,
        table_size: spec.table_size,
        too_big: spec.too_big,
        failed_udp: spec.failed_udp,
        failed_tcp: spec.failed_tcp,
        redirect: spec.proxy_redirect.clone(),
        source_ranges: spec.source_ranges.clone(),
        port_names: spec.port_names.clone(),
    }
}

/// Of a source that is `silent`, nothing gets new flows.
pub(super) fn instance(
    member: &Member,
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
