//! What a frontend requires in the region: its lookup keys, and a service that selects backends.
//!
//! A service of the region is a policy and a selection of backends. All frontends of a service with
//! the same selection share one service of the region. The name of that service contains what the
//! selection depends on, so that a restarted slowpath finds it again. Values that may change
//! without moving clients to other backends are not in the name: affinities are stored by the id of
//! the region's service, and a new name would be a new service without them.

use config::services::Mode;
use packet::addr::Addr;
use state::appliance::Appliance;
use state::backend::{Instance, State};
use state::dump::Flags;
use state::frontend::Frontend;
use state::object::FrontendSpec;
use state::plane::DesiredFrontend;
use state::select::{PolicyScope, policy_scope, unreachable};
use state::text::protocol_text;
use tables::checksum::checksum;
use tables::record::{self, BackendState, FrontendKey, NAME_BYTES, Prefix};

use super::desired::{Key, Need, Requirement};
use crate::plane::compile;

/// Flag in the `note` argument of [`tables::writer::Writer::put_noted_frontend`]: the key is a copy
/// of a frontend on the unspecified address (a wildcard) at one of the appliance's own addresses.
/// The lower bits are the [`Flags`].
pub(super) const COPY: u32 = 1 << 16;

/// Bit of [`tables::note::Member::state`]: the backend failed its health checks for this service.
/// The lower bits are the state declared by its source.
pub(super) const QUARANTINED: u8 = 0x80;

/// Size of one backend in the input of [`Selection::sum`], in bytes.
const BYTES_PER_BACKEND: usize = 40;

/// A backend as one service requires it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct DesiredBackend {
    pub(super) key: Key,
    pub(super) requirement: Requirement,
    pub(super) weight: u16,
    /// A number of [`State`], with the bit [`QUARANTINED`].
    pub(super) state: u8,
    pub(super) protocol: u8,
}

/// A service of the region as a frontend requires it.
pub(super) struct Selection {
    pub(super) name: String,
    pub(super) policy: record::Service,
    /// Backends in the order of the desired frontend.
    pub(super) backends: Vec<DesiredBackend>,
    /// Number of leading entries of `backends` that get new flows.
    pub(super) serving: usize,
    pub(super) table_size: u32,
    pub(super) ranges: Vec<Prefix>,
    /// Boundaries of the union of `ranges`.
    pub(super) bounds: Vec<u32>,
    /// Checksum of the inputs of the service note, the source ranges and the slots. If it is
    /// unchanged, they need not be rewritten.
    pub(super) inputs_sum: u64,
}

impl Selection {
    /// Returns the selection of a frontend. `tables` has the table size for services that set none.
    pub(super) fn of(desired: &DesiredFrontend, tables: &config::checked::Tables) -> Selection {
        let service = &desired.frontend.service;
        let table_size = match service.spec.table_size {
            0 => tables.maglev_size,
            size => size,
        };
        let desired_backend = |instance| DesiredBackend::of(instance, &service.spec.mode);
        let ranges = compile::ranges(service);
        let mut policy = compile::policy(service);
        policy.proxy_port = proxy_port(&desired.frontend).unwrap_or(0);
        let mut selection = Selection {
            name: name(&desired.frontend),
            policy,
            backends: desired.backends.iter().map(|instance| desired_backend(instance)).collect(),
            serving: desired.serving.min(desired.backends.len()),
            table_size,
            bounds: compile::bounds(&ranges),
            ranges,
            inputs_sum: 0,
        };
        selection.inputs_sum = selection.sum(&tables.seed);
        selection
    }

    /// Returns the checksum of the selection; never 0, which marks a service that was never
    /// written.
    fn sum(&self, seed: &[u8; 12]) -> u64 {
        let policy = &self.policy;
        let mut bytes = Vec::with_capacity(BYTES_PER_BACKEND * self.backends.len() + 64);
        bytes.extend_from_slice(seed);
        bytes.extend_from_slice(&[policy.mode, policy.tunnel]);
        bytes.extend_from_slice(&policy.tunnel_port.to_le_bytes());
        bytes.extend_from_slice(&policy.vni.to_le_bytes());
        bytes.extend_from_slice(&self.table_size.to_le_bytes());
        bytes.extend_from_slice(&(self.serving as u64).to_le_bytes());
        for desired in &self.backends {
            let (key, requirement) = (&desired.key, &desired.requirement);
            bytes.extend_from_slice(&key.addr.octets());
            bytes.extend_from_slice(&key.port.to_le_bytes());
            bytes.extend_from_slice(&desired.weight.to_le_bytes());
            bytes.extend_from_slice(&requirement.probe.octets());
            bytes.extend_from_slice(&[
                desired.state,
                desired.protocol,
                requirement.arm,
                u8::from(requirement.nat),
            ]);
        }
        let random = policy.flags & record::SERVICE_RANDOM != 0;
        bytes.extend_from_slice(&[u8::from(policy.affinity_s > 0), u8::from(random)]);
        for range in &self.ranges {
            bytes.extend_from_slice(&range.addr.octets());
            bytes.push(range.len);
        }
        checksum(0, &bytes) | 1
    }

    /// Returns the sizes, in words of the slot arena, of the arrays that are stored next to the
    /// Maglev table: members, backends with affinity, source ranges, boundaries.
    pub(super) fn array_sizes(&self) -> [usize; 4] {
        let has_affinity =
            self.backends.iter().filter(|desired| self.has_affinity(desired)).count();
        [2 * self.backends.len(), has_affinity, 5 * self.ranges.len(), self.bounds.len()]
    }

    /// Returns whether affinity may keep clients with this backend.
    pub(super) fn has_affinity(&self, desired: &DesiredBackend) -> bool {
        self.policy.affinity_s > 0 && desired.requirement.state == BackendState::Active
    }
}

impl DesiredBackend {
    fn of(instance: &Instance, mode: &Mode) -> DesiredBackend {
        let effective = instance.effective();
        let failed = if effective == State::Quarantined { QUARANTINED } else { 0 };
        let (addr, arm) = (instance.endpoint.addr, instance.arm as u8);
        DesiredBackend {
            key: Key { addr: addr.into(), port: instance.endpoint.port },
            requirement: Requirement {
                state: record_state(effective),
                arm,
                nat: *mode == Mode::Nat,
                probe: instance.probe.map_or(Addr::UNSPECIFIED, Addr::from),
                need: Need::of(mode, arm, addr.is_ipv6()),
            },
            weight: instance.weight,
            state: instance.state as u8 | failed,
            protocol: instance.endpoint.protocol,
        }
    }
}

/// Returns the state for a backend's record.
pub(super) fn record_state(state: State) -> BackendState {
    match state {
        State::Active => BackendState::Active,
        State::Terminating | State::TerminatingNotServing => BackendState::Terminating,
        State::Quarantined => BackendState::Quarantined,
        State::Maintenance => BackendState::Maintenance,
    }
}

/// Returns the declared state from the `state` of a [`tables::note::Member`].
pub(super) fn state_of_note(state: u8) -> State {
    let all = [
        State::Active,
        State::Terminating,
        State::TerminatingNotServing,
        State::Quarantined,
        State::Maintenance,
    ];
    all.get(usize::from(state & !QUARANTINED)).copied().unwrap_or_default()
}

/// Returns the name of the region's service: the service's name, followed by what the selection
/// depends on unless that is the default (TCP over IPv4 with the external policy). A name that is
/// too long ends in a checksum of the whole.
fn name(frontend: &Frontend) -> String {
    let (spec, service) = (&frontend.spec, frontend.service.name.as_str());
    let protocol = protocol_text(spec.address.protocol);
    let family = if spec.address.is_ipv4() { 4 } else { 6 };
    let mut suffix = format!("{protocol}{family}");
    // The policy's scope, not its value, which may change.
    suffix.push_str(match policy_scope(frontend) {
        PolicyScope::External => "",
        PolicyScope::Internal => ",internal",
        PolicyScope::Unrestricted => ",any",
    });
    if let Some(port) = &spec.port_name {
        suffix.push_str(&format!(",port={port}"));
    }
    if let Some(proxy) = proxy_port(frontend) {
        suffix.push_str(&format!(",proxy={proxy}"));
    }
    if let Some(other) = &frontend.redirect_to {
        suffix.push_str(&format!(",of={other}"));
    }
    let full = match suffix.as_str() {
        "tcp4" => return service.to_owned(),
        suffix => format!("{service}~{suffix}"),
    };
    if full.len() <= NAME_BYTES {
        return full;
    }
    let sum = format!("~{:016x}", checksum(0, full.as_bytes()));
    let end = full.floor_char_boundary(NAME_BYTES - sum.len());
    full[..end].to_owned() + &sum
}

/// Returns the port of the proxy that the frontend's packets are redirected to, if any.
fn proxy_port(frontend: &Frontend) -> Option<u16> {
    let proxy = frontend.service.spec.proxy_redirect.as_ref();
    proxy.filter(|proxy| proxy.redirects(frontend.spec.service_port)).map(|proxy| proxy.port)
}

/// Returns the lookup keys of a frontend in the region, each with its note; empty if packets from
/// outside can't reach the frontend.
pub(super) fn frontend_keys(frontend: &Frontend, appliance: &Appliance) -> Vec<(FrontendKey, u32)> {
    let (spec, service) = (&frontend.spec, &frontend.service);
    let flags = |spec: &FrontendSpec| Flags::of(spec, &service.spec, appliance.external_cluster_ip);
    if unreachable(frontend, appliance).is_some() {
        return Vec::new();
    }
    if flags(spec).has(Flags::ROUTABLE) {
        return vec![(compile::key(&spec.address), u32::from(flags(spec).0))];
    }
    let of_family = appliance.addresses.iter().filter(|a| a.is_ipv4() == spec.address.is_ipv4());
    let copy = |addr: &std::net::IpAddr| {
        let mut spec = spec.clone();
        spec.address.prefix.addr = *addr;
        (compile::key(&spec.address), u32::from(flags(&spec).0) | COPY)
    };
    of_family.map(copy).collect()
}
