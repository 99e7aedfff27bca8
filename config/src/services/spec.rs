//! Desired state of a service: its policies and its frontends.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::frontend::FrontendSpec;
use super::health::HealthCheck;
use super::kinds::{
    Algorithm, Distribution, FailedTcp, FailedUdp, NatPolicy, RangesPolicy, TrafficPolicy,
};
use super::labels::Pairs;
use super::mode::{Mode, ModeKeys};
use super::text::{self, is_default};
use crate::checked::{MAGLEV_SIZES, Prefix, TooBig};
use crate::validation_error::ValidationError;

/// Longest affinity timeout in seconds: 24 bits (194 days).
pub const AFFINITY_MAX_S: u32 = (1 << 24) - 1;

/// Desired state of a service, in the form shared by services files, objects and the API.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceSpec {
    /// How packets reach the backends.
    #[serde(flatten)]
    #[schemars(with = "ModeKeys")]
    pub mode: Mode,
    /// Address family translation with mode nat: `none`, `nat46` (IPv4 frontends, IPv6 backends) or
    /// `nat64` (IPv6 frontends, IPv4 backends).
    #[serde(skip_serializing_if = "is_default")]
    pub nat_policy: NatPolicy,
    /// Backends that serve packets from outside the cluster: all (`cluster`), or those on nodes or
    /// in zones that are local to the appliance (`local`).
    #[serde(skip_serializing_if = "is_default")]
    pub external_policy: TrafficPolicy,
    /// Like `external_policy`, for packets from within the cluster. If the two differ, each
    /// frontend exists for both.
    #[serde(skip_serializing_if = "is_default")]
    pub internal_policy: TrafficPolicy,
    /// Preferred backends among those that may serve: `any`, those in the appliance's zone
    /// (`same-zone`), or those on a local node, then those in the zone (`same-node`).
    #[serde(skip_serializing_if = "is_default")]
    pub distribution: Distribution,
    /// How a backend is selected for a new flow: `maglev` (consistent hash of the flow; few flows
    /// move when backends change) or `random` (hash of the flow and the weights only).
    #[serde(skip_serializing_if = "is_default")]
    pub algorithm: Algorithm,
    /// Bind host ports to the loopback address, so that only this machine reaches them.
    #[serde(skip_serializing_if = "is_default")]
    pub loopback_host_port: bool,
    /// Leave packets for a proxy on this machine to its kernel (Cilium's `delegate-if-local`). No
    /// data plane supports it: `true` is rejected.
    #[serde(skip_serializing_if = "is_default")]
    pub delegate_if_local: bool,
    /// Session affinity in seconds: a client address keeps its backend for this time after its
    /// latest new flow; 0 for no affinity.
    #[schemars(range(min = 0, max = 16777215))]
    #[serde(skip_serializing_if = "is_default")]
    pub affinity_s: u32,
    /// TCP port on which the appliance reports over HTTP whether it has local backends (Kubernetes
    /// `healthCheckNodePort`); 0 for none. Requires `external_policy = "local"` in services files.
    #[serde(skip_serializing_if = "is_default")]
    pub health_check_port: u16,
    /// Health check of the backends, for example `health = { kind = "http", path = "/healthz" }`.
    /// Omitted: backends are in the state given by their `state`.
    #[serde(skip_serializing_if = "is_default")]
    pub health: Option<Arc<HealthCheck>>,
    /// Maximum TCP MSS in bytes that passing SYNs may offer; larger values are lowered. 0 leaves
    /// SYNs unchanged.
    #[schemars(range(min = 0, max = 9460))]
    #[serde(skip_serializing_if = "is_default")]
    pub mss: u16,
    /// Idle timeout of established TCP connections in seconds; 0 for `flows.tcp_established_s`.
    #[schemars(range(min = 0, max = 86400))]
    #[serde(skip_serializing_if = "is_default")]
    pub tcp_idle_s: u32,
    /// Idle timeout in seconds of UDP flows whose client sent again after a reply (mode dsr: that
    /// sent a second packet); 0 for `flows.udp_s`.
    #[serde(skip_serializing_if = "is_default")]
    pub udp_idle_s: u16,
    /// Maglev slots: 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521 or 131071; 0 for
    /// `tables.maglev_size`.
    #[serde(skip_serializing_if = "is_default")]
    pub table_size: u32,
    /// Action for packets that exceed the path MTU to the backend: `reply` with an ICMP error, or
    /// `drop` silently; both are counted. Packets from a gateway with `too_big = "drop"` are always
    /// dropped.
    #[serde(skip_serializing_if = "is_default")]
    pub too_big: TooBig,
    /// Action for UDP flows and pings whose backend is quarantined or no longer in any source:
    /// `move` to another backend with the client's next packet, or `keep` the backend until they
    /// are idle. While no other backend serves, they stay. Draining backends and backends in
    /// maintenance always keep their flows.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_udp: FailedUdp,
    /// Action for TCP connections whose backend is quarantined or no longer in any source: `keep`
    /// the backend until they are idle (at most 300 s if no source has it), so that a short failure
    /// of checks does not cut connections, or `reset` them at the client's next segment.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_tcp: FailedTcp,
    /// Send TCP and UDP flows to a proxy on this machine, at the address of the arm on which they
    /// arrive, with the client's own source address. With `plane = "xdp"`, the larger `rp_filter`
    /// of `all` and of that arm's interface must be 0 or 2, and UDP proxies must be bound to the
    /// arm's address.
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_redirect: Option<Arc<ProxyRedirect>>,
    /// Client addresses that may use the service; none for no restriction.
    #[serde(flatten, with = "ranges")]
    #[schemars(with = "RangesKeys")]
    pub source_ranges: Option<Arc<SourceRanges>>,
    /// Notes of the program that wrote the service, as keys and values. For Kubernetes objects,
    /// Weir notes ignored annotations here.
    #[serde(skip_serializing_if = "is_default")]
    pub properties: Pairs,
    /// Names of the service's ports. Names that frontends use need not be listed.
    #[serde(skip_serializing_if = "is_default")]
    pub port_names: Option<Arc<BTreeMap<Box<str>, u16>>>,
    /// Frontends of the service; at least one in a services file. If the two traffic policies
    /// differ, each frontend also exists for packets from within the cluster and is written only
    /// once.
    pub frontends: Vec<FrontendSpec>,
}

impl ServiceSpec {
    /// Returns whether the external and internal traffic policies differ, so that each address
    /// exists twice.
    pub fn has_two_traffic_scopes(&self) -> bool {
        self.external_policy != self.internal_policy
    }

    /// Returns all faults. Files, objects and the API all reject a spec with one of them.
    pub fn faults(&self) -> Vec<ValidationError> {
        let mut all = Vec::new();
        let vni = match self.mode {
            Mode::Tunnel(tunnel) | Mode::Dsr(tunnel) => tunnel.vni,
            Mode::Nat => 0,
        };
        for (field, value, max) in [
            ("affinity_s", self.affinity_s, AFFINITY_MAX_S),
            ("mss", self.mss.into(), 9_460),
            ("tcp_idle_s", self.tcp_idle_s, 86_400),
            ("vni", vni, (1 << 24) - 1),
        ] {
            if value > max {
                let fault = format!("{value} is out of range");
                all.push(ValidationError::new(field, fault, format!("allowed: 0 to {max}")));
            }
        }
        if self.table_size != 0 && !MAGLEV_SIZES.contains(&self.table_size) {
            let fault = format!("{} is not a table size", self.table_size);
            let sizes: Vec<String> = MAGLEV_SIZES.iter().map(u32::to_string).collect();
            let remedy = format!("allowed: 0, {}", sizes.join(", "));
            all.push(ValidationError::new("table_size", fault, remedy));
        }
        if self.delegate_if_local {
            let fault = "true: no data plane supports it";
            let remedy = "allowed: false; to use a proxy on this machine, set `proxy_redirect`";
            all.push(ValidationError::new("delegate_if_local", fault, remedy));
        }
        for fault in self.health.iter().flat_map(|check| check.faults()) {
            all.push(ValidationError { field: format!("health.{}", fault.field), ..fault });
        }
        if self.source_ranges.as_ref().is_some_and(|ranges| ranges.prefixes.is_empty()) {
            let remedy = "write source_ranges, or remove source_policy";
            all.push(ValidationError::new("source_policy", "no source_ranges to deny", remedy));
        }
        if self.proxy_redirect.as_ref().is_some_and(|redirect| redirect.port == 0) {
            let fault = "0 is not a valid port";
            all.push(ValidationError::new("proxy_redirect.port", fault, "allowed: 1 to 65535"));
        }
        let mut seen = HashSet::with_capacity(self.frontends.len());
        for (i, frontend) in self.frontends.iter().enumerate() {
            all.extend(frontend.fault(&format!("frontends[{i}]")));
            if !seen.insert(frontend.address) {
                let fault = format!("{} is a duplicate", frontend.address);
                all.push(ValidationError::new(
                    &format!("frontends[{i}]"),
                    fault,
                    "remove one of them",
                ));
            }
        }
        all
    }
}

/// Redirection to a proxy on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyRedirect {
    /// Port of the proxy.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Service ports to redirect; empty for all.
    #[serde(default)]
    pub ports: Vec<u16>,
}

impl ProxyRedirect {
    /// Returns whether packets to a service port are redirected to the proxy.
    pub fn redirects(&self, service_port: u16) -> bool {
        self.ports.is_empty() || self.ports.contains(&service_port)
    }
}

/// Restriction of a service to client addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceRanges {
    /// Whether clients in `prefixes` are admitted or denied.
    pub policy: RangesPolicy,
    /// Addresses and networks of clients; at least one.
    pub prefixes: Vec<Prefix>,
}

/// The source ranges as keys of a service.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct RangesKeys {
    /// Client addresses and networks to which `source_policy` applies; empty for no restriction.
    /// Checked for new flows only: established flows are not affected.
    #[serde(with = "text::prefixes", skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    source_ranges: Vec<Prefix>,
    /// `allow` admits only `source_ranges`, `deny` admits all others.
    #[serde(skip_serializing_if = "is_default")]
    source_policy: RangesPolicy,
}

/// Serialization of the source ranges: their keys are flattened into those of the service.
mod ranges {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{RangesKeys, SourceRanges};

    pub fn serialize<S: Serializer>(
        ranges: &Option<Arc<SourceRanges>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let keys = ranges.as_deref().map(|SourceRanges { policy, prefixes }| RangesKeys {
            source_ranges: prefixes.clone(),
            source_policy: *policy,
        });
        keys.unwrap_or_default().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<SourceRanges>>, D::Error> {
        let keys = RangesKeys::deserialize(from)?;
        let ranges = SourceRanges { policy: keys.source_policy, prefixes: keys.source_ranges };
        // `deny` without ranges is a fault that [`ServiceSpec::faults`] reports.
        Ok((!ranges.prefixes.is_empty() || ranges.denies()).then(|| Arc::new(ranges)))
    }
}

impl SourceRanges {
    /// Returns whether clients in the ranges are denied, rather than exclusively admitted.
    pub fn denies(&self) -> bool {
        self.policy == RangesPolicy::Deny
    }
}
