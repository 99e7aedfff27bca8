//! Selects the backends of a frontend and their order, on a snapshot of the tables. The tables do
//! not store the result; it is computed for each update of a plane.
//!
//! Backends are excluded by protocol, address family, traffic policy Local, port name, and the
//! state `maintenance`; node and zone preferences then choose among the rest. State and health
//! decide the order, and how many backends get new flows.

use std::sync::Arc;

use config::services::{Distribution, Mode, NatPolicy, TrafficPolicy};

use crate::address::TrafficScope;
use crate::appliance::Appliance;
use crate::backend::{Instance, Placement, State, arrange};
use crate::dump::Flags;
use crate::frontend::{Frontend, Kind};
use crate::plane::{DesiredFrontend, NO_BACKEND_SERVES};
use crate::tables::Tables;

/// Reason why a backend is excluded, in the order of the checks. If all backends are excluded, the
/// reason of the backend that passed the most checks is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Exclusion {
    Protocol,
    Family,
    Local,
    PortName,
    Maintenance,
}

impl Exclusion {
    fn note(self) -> &'static str {
        match self {
            Exclusion::Protocol => "no backend has the frontend's protocol",
            Exclusion::Family => {
                "no backend has the frontend's address family, and no NAT policy translates"
            }
            Exclusion::Local => {
                "no local backend: its traffic policy is Local, and no backend is on a node or in \
                 a zone that the appliance names in `local`"
            }
            Exclusion::PortName => "no backend serves the frontend's port name",
            Exclusion::Maintenance => "all matching backends are in maintenance or have weight 0",
        }
    }
}

/// Returns the desired state of a frontend for [`crate::plane::Plane::update`].
pub fn select_backends(
    tables: &Tables,
    frontend: &Arc<Frontend>,
    appliance: &Appliance,
) -> DesiredFrontend {
    let name = frontend.redirect_to.as_ref().unwrap_or(&frontend.service.name);
    let local = is_local_only(frontend);
    let mut last_exclusion = None;
    let mut backends: Vec<Arc<Instance>> = Vec::new();
    for instance in tables.entry(name).into_iter().flat_map(|entry| entry.used()) {
        match exclusion(frontend, instance, local.then_some(appliance)) {
            None => backends.push(Arc::clone(instance)),
            reason => last_exclusion = last_exclusion.max(reason),
        }
    }
    apply_preference(&mut backends, frontend, appliance);
    let serving = arrange(&mut backends);
    let note = match (backends.is_empty(), serving) {
        (true, _) => last_exclusion.map(Exclusion::note).or_else(|| {
            let redirected = frontend.redirect_to.is_some();
            redirected.then_some("the service that it is redirected to has no backends")
        }),
        (false, 0) => Some(NO_BACKEND_SERVES),
        (false, _) => None,
    };
    DesiredFrontend { frontend: Arc::clone(frontend), backends, serving, note }
}

/// Returns the reason why no packet at the appliance can match a frontend, with a remedy where
/// there is one; `None` if packets can match. Planes write nothing for an unreachable frontend.
pub fn unreachable(frontend: &Frontend, appliance: &Appliance) -> Option<&'static str> {
    let (spec, service) = (&frontend.spec, &frontend.service);
    if spec.address.traffic_scope == TrafficScope::Internal {
        return Some(
            "its scope is internal, and packets from within the cluster do not reach an appliance",
        );
    }
    if spec.kind == Kind::HostPort && service.spec.loopback_host_port {
        return Some("its host port is bound to the loopback address: not reachable from outside");
    }
    if Flags::of(spec, &service.spec, appliance.external_cluster_ip).has(Flags::ROUTABLE) {
        return None;
    }
    if spec.kind == Kind::ClusterIp {
        return Some(
            "cluster addresses are closed to packets from outside; set `external_cluster_ip` to \
             open them",
        );
    }
    let is_of_family = |addr: &std::net::IpAddr| addr.is_ipv4() == spec.address.is_ipv4();
    let answers = appliance.addresses.iter().any(is_of_family);
    (!answers).then_some("the appliance has no address of this family to answer on")
}

/// One of a service's two traffic policies, or none: the policy that applies to a frontend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyScope {
    /// External traffic policy.
    External,
    /// Internal traffic policy.
    Internal,
    /// No policy: all backends may serve the frontend.
    Unrestricted,
}

/// Returns which of the service's two traffic policies applies to a frontend.
pub fn policy_scope(frontend: &Frontend) -> PolicyScope {
    match (frontend.spec.kind, frontend.spec.address.traffic_scope) {
        (Kind::HostPort, _) => PolicyScope::Unrestricted,
        (_, TrafficScope::Internal) | (Kind::ClusterIp, TrafficScope::External) => {
            PolicyScope::Internal
        }
        (Kind::NodePort | Kind::LoadBalancer | Kind::ExternalIps, TrafficScope::External) => {
            PolicyScope::External
        }
        (Kind::LocalRedirect, TrafficScope::External) => PolicyScope::Unrestricted,
    }
}

/// Returns whether only local backends may serve the frontend.
pub fn is_local_only(frontend: &Frontend) -> bool {
    let service = &frontend.service;
    match policy_scope(frontend) {
        PolicyScope::External => service.spec.external_policy == TrafficPolicy::Local,
        PolicyScope::Internal => service.spec.internal_policy == TrafficPolicy::Local,
        PolicyScope::Unrestricted => false,
    }
}

/// Returns the reason why an instance cannot serve a frontend; `None` if it can. `local` is the
/// appliance if only local backends may serve, otherwise `None`.
fn exclusion(
    frontend: &Frontend,
    instance: &Instance,
    local: Option<&Appliance>,
) -> Option<Exclusion> {
    let (address, endpoint) = (frontend.address(), &instance.endpoint);
    // Protocol 0 stands for any.
    let protocols = (address.protocol, endpoint.protocol);
    if protocols.0 != protocols.1 && protocols.0 != 0 && protocols.1 != 0 {
        return Some(Exclusion::Protocol);
    }
    if !can_forward(frontend, endpoint.addr.is_ipv4()) {
        return Some(Exclusion::Family);
    }
    if local.is_some_and(|appliance| !appliance.is_local(instance.placement.as_deref())) {
        return Some(Exclusion::Local);
    }
    let names = &instance.port_names;
    match &frontend.spec.port_name {
        Some(name) if !names.is_empty() && !names.contains(name) => Some(Exclusion::PortName),
        _ if instance.effective() == State::Maintenance => Some(Exclusion::Maintenance),
        _ => None,
    }
}

/// Returns whether packets can be forwarded from the frontend to a backend of the given family. An
/// encapsulation (modes tunnel and DSR) carries packets of either family to a backend of either.
fn can_forward(frontend: &Frontend, to_ipv4: bool) -> bool {
    let from_ipv4 = frontend.address().is_ipv4();
    match (frontend.service.spec.mode, frontend.service.spec.nat_policy) {
        (Mode::Tunnel(_) | Mode::Dsr(_), _) => true,
        (Mode::Nat, NatPolicy::Nat46) if from_ipv4 => !to_ipv4,
        (Mode::Nat, NatPolicy::Nat64) if !from_ipv4 => to_ipv4,
        (Mode::Nat, _) => from_ipv4 == to_ipv4,
    }
}

/// Keeps only the backends at the preferred node or zone, if one of them gets new flows. Otherwise
/// all stay, so that a preference never leaves a service without backends.
///
/// Zone hints (`for_zones`) are used only if every serving backend has one, as in kube-proxy.
/// Otherwise the few backends with a hint would get all traffic, so the zone in which each backend
/// runs is used instead.
fn apply_preference(backends: &mut Vec<Arc<Instance>>, frontend: &Frontend, appliance: &Appliance) {
    let serves = |state| backends.iter().any(|backend| backend.effective() == state);
    let Some(state) = [State::Active, State::Terminating].into_iter().find(|s| serves(*s)) else {
        return;
    };
    let mut serving = backends.iter().filter(|backend| backend.effective() == state);
    let has_hint = |backend: &Arc<Instance>| {
        backend.placement.as_ref().is_some_and(|placement| !placement.for_zones.is_empty())
    };
    let is_of_zone =
        if serving.all(has_hint) { Appliance::is_hinted } else { Appliance::is_of_zone };
    let levels: &[fn(&Appliance, &Placement) -> bool] = match frontend.service.spec.distribution {
        _ if frontend.redirect_to.is_some() || !appliance.zone_aware => return,
        Distribution::Any => return,
        Distribution::SameZone => &[is_of_zone],
        Distribution::SameNode => &[Appliance::is_local_node, is_of_zone],
    };
    let is_near = |backend: &Instance, near: &fn(&Appliance, &Placement) -> bool| {
        backend.placement.as_ref().is_some_and(|placement| near(appliance, placement))
    };
    let level = levels.iter().find(|near| {
        backends.iter().any(|backend| backend.effective() == state && is_near(backend, near))
    });
    if let Some(near) = level {
        backends.retain(|backend| is_near(backend, near));
    }
}

#[cfg(test)]
mod tests;
