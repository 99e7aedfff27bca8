//! Which backends a frontend gets, and in which order. Evaluated when a plane is told, on a
//! snapshot; nothing of it is kept in the tables.
//!
//! Protocol, family, local policy and port name leave a backend out; preferences by place then
//! choose among those left. State and health leave out nothing but maintenance: they decide the
//! order, and how many of them get new flows.

use std::sync::Arc;

use config::services::{Distribution, Mode, NatPolicy, TrafficPolicy};

use crate::address::Reach;
use crate::appliance::Appliance;
use crate::backend::{Instance, Place, State, arrange};
use crate::dump::Flags;
use crate::frontend::{Frontend, Kind};
use crate::plane::{NOBODY_SERVES, Wanted};
use crate::tables::Tables;

/// Why a backend doesn't serve a frontend, from the first thing that is looked at to the last. That
/// which came furthest tells best why there is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Without {
    Protocol,
    Family,
    Local,
    PortName,
    Maintenance,
}

impl Without {
    fn note(self) -> &'static str {
        match self {
            Without::Protocol => "no backend of its protocol",
            Without::Family => {
                "no backend of its address family, and no NAT policy that crosses it"
            }
            Without::Local => {
                "no local backend: its traffic policy is Local, and no backend is on a node or in \
                 a zone that the appliance names in `local`"
            }
            Without::PortName => "no backend serves its port name",
            Without::Maintenance => "all backends are in maintenance or of weight 0",
        }
    }
}

/// What a plane shall be told of a frontend.
pub fn choose(tables: &Tables, frontend: &Arc<Frontend>, appliance: &Appliance) -> Wanted {
    let name = frontend.redirect_to.as_ref().unwrap_or(&frontend.service.name);
    let local = is_local_only(frontend);
    let mut furthest = None;
    let mut backends: Vec<Arc<Instance>> = Vec::new();
    for instance in tables.entry(name).into_iter().flat_map(|entry| entry.used()) {
        match without(frontend, instance, local.then_some(appliance)) {
            None => backends.push(Arc::clone(instance)),
            why => furthest = furthest.max(why),
        }
    }
    prefer(&mut backends, frontend, appliance);
    let serving = arrange(&mut backends);
    let note = match (backends.is_empty(), serving) {
        (true, _) => furthest.map(Without::note).or_else(|| {
            let redirected = frontend.redirect_to.is_some();
            redirected.then_some("the service that it is redirected to has no backends")
        }),
        (false, 0) => Some(NOBODY_SERVES),
        (false, _) => None,
    };
    Wanted { frontend: Arc::clone(frontend), backends, serving, note }
}

/// Why no packet at an appliance can be meant for a frontend, and what to do where that can be
/// changed; none where one can. A plane has nothing of such a frontend.
pub fn unreachable(frontend: &Frontend, appliance: &Appliance) -> Option<&'static str> {
    let (said, service) = (&frontend.said, &frontend.service);
    if said.address.reach == Reach::Internal {
        return Some("it is for packets from within the cluster, which pass no appliance");
    }
    if said.kind == Kind::HostPort && service.spec.loopback_host_port {
        return Some("its host port is bound to the loopback address: no packet from outside");
    }
    if Flags::of(said, &service.spec, appliance.external_cluster_ip).has(Flags::ROUTABLE) {
        return None;
    }
    if said.kind == Kind::ClusterIp {
        return Some(
            "cluster addresses are closed to packets from outside; set `external_cluster_ip` to \
             open them",
        );
    }
    let is_of_family = |addr: &std::net::IpAddr| addr.is_ipv4() == said.address.is_ipv4();
    let answers = appliance.addresses.iter().any(is_of_family);
    (!answers).then_some("the appliance has no address of this family to answer on")
}

/// Which of its service's traffic policies a frontend follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyScope {
    /// The external one.
    External,
    /// The internal one.
    Internal,
    /// None: all backends may serve it.
    Unrestricted,
}

/// Which of its service's traffic policies it follows, whatever they are.
pub fn policy_scope(frontend: &Frontend) -> PolicyScope {
    match (frontend.said.kind, frontend.said.address.reach) {
        (Kind::HostPort, _) => PolicyScope::Unrestricted,
        (_, Reach::Internal) | (Kind::ClusterIp, Reach::External) => PolicyScope::Internal,
        (Kind::NodePort | Kind::LoadBalancer | Kind::ExternalIps, Reach::External) => {
            PolicyScope::External
        }
        (Kind::LocalRedirect, Reach::External) => PolicyScope::Unrestricted,
    }
}

/// Whether only local backends may serve it.
pub fn is_local_only(frontend: &Frontend) -> bool {
    let service = &frontend.service;
    match policy_scope(frontend) {
        PolicyScope::External => service.spec.external_policy == TrafficPolicy::Local,
        PolicyScope::Internal => service.spec.internal_policy == TrafficPolicy::Local,
        PolicyScope::Unrestricted => false,
    }
}

/// Why this instance cannot serve this frontend; `local` is given where only local ones may.
fn without(frontend: &Frontend, instance: &Instance, local: Option<&Appliance>) -> Option<Without> {
    let (address, endpoint) = (frontend.address(), &instance.endpoint);
    let protocols = (address.protocol, endpoint.protocol);
    if protocols.0 != protocols.1 && protocols.0 != 0 && protocols.1 != 0 {
        return Some(Without::Protocol);
    }
    if !crosses(frontend, endpoint.addr.is_ipv4()) {
        return Some(Without::Family);
    }
    if local.is_some_and(|appliance| !appliance.is_local(instance.place.as_deref())) {
        return Some(Without::Local);
    }
    let names = &instance.port_names;
    match &frontend.said.port_name {
        Some(name) if !names.is_empty() && !names.contains(name) => Some(Without::PortName),
        _ if instance.effective() == State::Maintenance => Some(Without::Maintenance),
        _ => None,
    }
}

/// Whether packets get from this frontend to a backend of that family: a tunnel carries either.
fn crosses(frontend: &Frontend, to_ipv4: bool) -> bool {
    let from_ipv4 = frontend.address().is_ipv4();
    match (frontend.service.spec.mode, frontend.service.spec.nat_policy) {
        (Mode::Tunnel(_) | Mode::Dsr(_), _) => true,
        (Mode::Nat, NatPolicy::Nat46) if from_ipv4 => !to_ipv4,
        (Mode::Nat, NatPolicy::Nat64) if !from_ipv4 => to_ipv4,
        (Mode::Nat, _) => from_ipv4 == to_ipv4,
    }
}

/// Leaves those that the service prefers by place, if one of them serves: a preference never makes
/// a service stop that others could go on with.
///
/// Zone hints (`for_zones`) count only where every backend that serves has one, as in kube-proxy:
/// while hints are incomplete, the few backends that have one would get all traffic. Otherwise the
/// zone in which a backend runs counts.
fn prefer(backends: &mut Vec<Arc<Instance>>, frontend: &Frontend, appliance: &Appliance) {
    let serves = |state| backends.iter().any(|backend| backend.effective() == state);
    let Some(state) = [State::Active, State::Terminating].into_iter().find(|s| serves(*s)) else {
        return;
    };
    let mut serving = backends.iter().filter(|backend| backend.effective() == state);
    let has_hint = |backend: &Arc<Instance>| {
        backend.place.as_ref().is_some_and(|place| !place.for_zones.is_empty())
    };
    let is_of_zone =
        if serving.all(has_hint) { Appliance::is_hinted } else { Appliance::is_of_zone };
    let levels: &[fn(&Appliance, &Place) -> bool] = match frontend.service.spec.distribution {
        _ if frontend.redirect_to.is_some() || !appliance.zone_aware => return,
        Distribution::Any => return,
        Distribution::SameZone => &[is_of_zone],
        Distribution::SameNode => &[Appliance::is_local_node, is_of_zone],
    };
    let is_near = |backend: &Instance, near: &fn(&Appliance, &Place) -> bool| {
        backend.place.as_ref().is_some_and(|place| near(appliance, place))
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
