//! What is wanted of a service: its policy and its frontends.

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
use crate::wrong::Wrong;

/// The longest affinity timeout: 24 bits of seconds (194 days).
pub const AFFINITY_MAX_S: u32 = (1 << 24) - 1;

/// A service, as files in any notation, objects and the API write it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceSpec {
    /// How packets reach the backends.
    #[serde(flatten)]
    #[schemars(with = "ModeKeys")]
    pub mode: Mode,
    /// Translation between families with mode nat: `none`, `nat46` (IPv4 frontends, IPv6 backends)
    /// or `nat64`.
    #[serde(skip_serializing_if = "is_default")]
    pub nat_policy: NatPolicy,
    /// Which backends serve packets from outside: all of the `cluster`, or those on nodes or in
    /// zones that the appliance calls local (`local`).
    #[serde(skip_serializing_if = "is_default")]
    pub external_policy: TrafficPolicy,
    /// The same for packets from within the cluster. Where the two differ, each frontend exists
    /// for both.
    #[serde(skip_serializing_if = "is_default")]
    pub internal_policy: TrafficPolicy,
    /// Which of those backends are preferred: `any`, those of the appliance's zone (`same-zone`),
    /// or those of a local node and then of the zone (`same-node`).
    #[serde(skip_serializing_if = "is_default")]
    pub distribution: Distribution,
    /// How a backend is chosen for a new flow: `maglev` by a hash of the flow that moves few flows
    /// when backends change, `random` by a hash of the flow and weights alone.
    #[serde(skip_serializing_if = "is_default")]
    pub algorithm: Algorithm,
    /// Host ports are bound to the loopback address: reachable from the machine only.
    #[serde(skip_serializing_if = "is_default")]
    pub loopback_host_port: bool,
    /// Packets for a proxy that is on this machine are left to the machine: no plane carries this
    /// out, so that `true` is refused.
    #[serde(skip_serializing_if = "is_default")]
    pub delegate_if_local: bool,
    /// Seconds for which a client's address stays with its backend, counted from its latest new
    /// flow; 0 for no affinity.
    #[schemars(range(min = 0, max = 16777215))]
    #[serde(skip_serializing_if = "is_default")]
    pub affinity_s: u32,
    /// TCP port on which the appliance tells whether it has local backends (HTTP, as Kubernetes'
    /// `healthCheckNodePort`); 0 for none. For services with `external_policy = "local"`.
    #[serde(skip_serializing_if = "is_default")]
    pub health_check_port: u16,
    /// How its backends are probed: `health = { kind = "http", path = "/healthz" }`. Left out: they
    /// are what their `state` says.
    #[serde(skip_serializing_if = "is_default")]
    pub health: Option<Arc<HealthCheck>>,
    /// Largest TCP segment, bytes, that passing SYNs may ask for; 0 leaves them alone.
    #[schemars(range(min = 0, max = 9460))]
    #[serde(skip_serializing_if = "is_default")]
    pub mss: u16,
    /// Seconds until an established, idle TCP flow is forgotten; 0 for `flows.tcp_established_s`.
    #[schemars(range(min = 0, max = 86400))]
    #[serde(skip_serializing_if = "is_default")]
    pub tcp_idle_s: u32,
    /// Seconds until an idle UDP flow is forgotten whose client went on after an answer (with mode
    /// dsr, after its first packet); 0 for `flows.udp_s`.
    #[serde(skip_serializing_if = "is_default")]
    pub udp_idle_s: u16,
    /// Maglev slots: 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521 or 131071; 0 for
    /// `tables.maglev_size`.
    #[serde(skip_serializing_if = "is_default")]
    pub table_size: u32,
    /// Packets too big for the way to the backend: `reply` with an ICMP error, or `drop` silently
    /// (both are counted). Those that came by a gateway with `too_big = "drop"` are dropped in any
    /// case.
    #[serde(skip_serializing_if = "is_default")]
    pub too_big: TooBig,
    /// UDP flows and pings whose backend is quarantined, or that no source names any more: `move`
    /// to another backend with the client's next packet, or `keep` theirs until they are idle. As
    /// long as no other backend serves, they stay. Backends that drain or are in maintenance keep
    /// their flows in any case.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_udp: FailedUdp,
    /// TCP connections whose backend is quarantined or that no source names any more: `keep` it
    /// until they are idle (300 s at most, where no source names it), since checks that fail for a
    /// moment must not cut connections, or answer the client's next segment with a `reset`.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_tcp: FailedTcp,
    /// TCP and UDP flows go to a proxy on this machine, at the address of the arm that they come
    /// by, from the client's own address. With `plane = "xdp"` the kernel must not ask of that
    /// arm's interface whether it would answer by it (`rp_filter` 0 or 2), and a UDP proxy is to
    /// be bound to the arm's address.
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_redirect: Option<Arc<ProxyRedirect>>,
    /// Who may use it; none for everybody.
    #[serde(flatten, with = "ranges")]
    #[schemars(with = "RangesKeys")]
    pub source_ranges: Option<Arc<SourceRanges>>,
    /// What other components note.
    #[serde(skip_serializing_if = "is_default")]
    pub properties: Pairs,
    /// Names of its ports; those that frontends name need not be here.
    #[serde(skip_serializing_if = "is_default")]
    pub port_names: Option<Arc<BTreeMap<Box<str>, u16>>>,
    /// What it answers on; in a services file at least one. Where the two policies differ, each
    /// exists for packets from within as well, without being written twice.
    pub frontends: Vec<FrontendSpec>,
}

impl ServiceSpec {
    /// Whether the policies for packets from outside and from within differ, so that its addresses
    /// exist twice.
    pub fn has_two_reaches(&self) -> bool {
        self.external_policy != self.internal_policy
    }

    /// Returns the faults that are refused from every source: files, objects and the API.
    pub fn faults(&self) -> Vec<Wrong> {
        let mut all = Vec::new();
        let vni = match self.mode {
            Mode::Tunnel(tunnel) | Mode::Dsr(tunnel) => tunnel.vni,
            Mode::Nat => 0,
        };
        for (field, value, most) in [
            ("affinity_s", self.affinity_s, AFFINITY_MAX_S),
            ("mss", self.mss.into(), 9_460),
            ("tcp_idle_s", self.tcp_idle_s, 86_400),
            ("vni", vni, (1 << 24) - 1),
        ] {
            if value > most {
                let wrong = format!("{value} is out of range");
                all.push(Wrong::new(field, wrong, format!("allowed: 0 to {most}")));
            }
        }
        if self.table_size != 0 && !MAGLEV_SIZES.contains(&self.table_size) {
            let wrong = format!("there is no table of {} slots", self.table_size);
            let sizes: Vec<String> = MAGLEV_SIZES.iter().map(u32::to_string).collect();
            let allowed = format!("allowed: 0, {}", sizes.join(", "));
            all.push(Wrong::new("table_size", wrong, allowed));
        }
        if self.delegate_if_local {
            let wrong = "true: neither plane leaves a frontend's packets to the machine";
            let allowed = "allowed: false; leave it out, and name the proxy in `proxy_redirect`";
            all.push(Wrong::new("delegate_if_local", wrong, allowed));
        }
        for fault in self.health.iter().flat_map(|check| check.faults()) {
            all.push(Wrong { field: format!("health.{}", fault.field), ..fault });
        }
        if self.source_ranges.as_ref().is_some_and(|ranges| ranges.prefixes.is_empty()) {
            let allowed = "write source_ranges, or leave source_policy out";
            all.push(Wrong::new("source_policy", "there is nobody to deny", allowed));
        }
        if self.proxy_redirect.as_ref().is_some_and(|redirect| redirect.port == 0) {
            let wrong = "there is no port 0";
            all.push(Wrong::new("proxy_redirect.port", wrong, "allowed: 1 to 65535"));
        }
        let mut there = HashSet::with_capacity(self.frontends.len());
        for (i, said) in self.frontends.iter().enumerate() {
            all.extend(said.fault(&format!("frontends[{i}]")));
            if !there.insert(said.address) {
                let wrong = format!("{} is there twice", said.address);
                all.push(Wrong::new(&format!("frontends[{i}]"), wrong, "remove one of them"));
            }
        }
        all
    }
}

/// To a proxy on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyRedirect {
    /// The proxy's port.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Ports of the service that it is for; empty for all.
    #[serde(default)]
    pub ports: Vec<u16>,
}

impl ProxyRedirect {
    /// Whether packets to a service port go to the proxy.
    pub fn takes(&self, service_port: u16) -> bool {
        self.ports.is_empty() || self.ports.contains(&service_port)
    }
}

/// Which client addresses may use the service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceRanges {
    /// What becomes of clients inside.
    pub policy: RangesPolicy,
    /// Addresses and networks of clients; at least one.
    pub prefixes: Vec<Prefix>,
}

/// The source ranges as keys of a service.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct RangesKeys {
    /// Client addresses and networks that `source_policy` is about; empty for everybody. They are
    /// asked of new flows: one that is known goes on.
    #[serde(with = "text::prefixes", skip_serializing_if = "is_default")]
    #[schemars(with = "Vec<String>")]
    source_ranges: Vec<Prefix>,
    /// `allow` admits `source_ranges` alone, `deny` admits all others.
    #[serde(skip_serializing_if = "is_default")]
    source_policy: RangesPolicy,
}

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
        // `deny` without ranges is a fault of the service, which `faults` reports.
        Ok((!ranges.prefixes.is_empty() || ranges.denies()).then(|| Arc::new(ranges)))
    }
}

impl SourceRanges {
    /// Whether clients inside are refused, and not the only ones admitted.
    pub fn denies(&self) -> bool {
        self.policy == RangesPolicy::Deny
    }
}
