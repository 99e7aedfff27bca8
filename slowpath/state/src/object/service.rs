//! What is wanted of a service: its policy and its frontends.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use config::checked::{MAGLEV_SIZES, Prefix, TooBig};
use config::services::{FailedTcp, FailedUdp, HealthCheck, Mode};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::described::{Described, is_default};
use super::refusal::Refusal;
use super::text;
use crate::address::{Address, Reach};
use crate::frontend::{Kind, Said};
use crate::service::{
    AFFINITY_MAX_S, Algorithm, Distribution, NatPolicy, Pairs, ProxyRedirect, SourceRanges,
    TrafficPolicy,
};

/// A service. The fields mean what those of [`crate::service::Service`] mean.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceSpec {
    /// What other components note.
    #[serde(skip_serializing_if = "is_default")]
    pub properties: Pairs,
    /// Translation between families.
    #[serde(skip_serializing_if = "is_default")]
    pub nat_policy: NatPolicy,
    /// Which backends serve packets from outside.
    #[serde(skip_serializing_if = "is_default")]
    pub external_policy: TrafficPolicy,
    /// Which backends serve packets from within.
    #[serde(skip_serializing_if = "is_default")]
    pub internal_policy: TrafficPolicy,
    /// Preference by place.
    #[serde(skip_serializing_if = "is_default")]
    pub distribution: Distribution,
    /// How packets reach the backends.
    pub mode: Mode,
    /// How a backend is chosen.
    #[serde(skip_serializing_if = "is_default")]
    pub algorithm: Algorithm,
    /// Host ports are bound to the loopback address.
    #[serde(skip_serializing_if = "is_default")]
    pub loopback_host_port: bool,
    /// Packets for a proxy that is on this machine are left to the machine: no plane carries this
    /// out, so that `true` is refused.
    #[serde(skip_serializing_if = "is_default")]
    pub delegate_if_local: bool,
    /// Seconds for which a client address stays with its backend; 0 for no affinity.
    #[schemars(range(min = 0, max = 16777215))]
    #[serde(skip_serializing_if = "is_default")]
    pub affinity_s: u32,
    /// TCP port of the health responder; 0 for none.
    #[serde(skip_serializing_if = "is_default")]
    pub health_check_port: u16,
    /// How its backends are probed; none for not at all.
    #[serde(skip_serializing_if = "is_default")]
    pub health: Option<Arc<HealthCheck>>,
    /// Upper bound for the MSS option of passing SYNs, bytes; 0 for none.
    #[schemars(range(min = 0, max = 9460))]
    #[serde(skip_serializing_if = "is_default")]
    pub mss: u16,
    /// TCP established idle time, seconds; 0 for the appliance's.
    #[schemars(range(min = 0, max = 86400))]
    #[serde(skip_serializing_if = "is_default")]
    pub tcp_idle_s: u32,
    /// Maglev slots, one of the ten primes; 0 for the appliance's.
    #[serde(skip_serializing_if = "is_default")]
    pub table_size: u32,
    /// What becomes of packets too big for the way to the backend.
    #[serde(skip_serializing_if = "is_default")]
    pub too_big: TooBig,
    /// What becomes of UDP flows and pings whose backend is quarantined.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_udp: FailedUdp,
    /// What becomes of TCP connections whose backend is quarantined.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_tcp: FailedTcp,
    /// To a proxy on this machine.
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_redirect: Option<Arc<ProxyRedirect>>,
    /// Who may use it; none for everybody.
    #[serde(skip_serializing_if = "is_default", with = "ranges")]
    #[schemars(with = "Option<Ranges>")]
    pub source_ranges: Option<Arc<SourceRanges>>,
    /// Names of its ports.
    #[serde(skip_serializing_if = "is_default")]
    pub port_names: Option<Arc<BTreeMap<Box<str>, u16>>>,
    /// What it answers on. Where the two policies differ, each exists for packets from within as
    /// well, without being written twice.
    #[serde(with = "frontends")]
    #[schemars(with = "Vec<Frontend>")]
    pub frontends: Vec<Said>,
}

impl Described for ServiceSpec {
    fn check(&self) -> Result<(), Refusal> {
        let least = |field: &str, value: u32, max: u32| match value <= max {
            true => Ok(()),
            false => Err(Refusal::new(
                format!("spec.{field}"),
                format!("{value} is out of range"),
                format!("allowed: 0 to {max}"),
            )),
        };
        least("affinity_s", self.affinity_s, AFFINITY_MAX_S)?;
        least("mss", self.mss.into(), 9_460)?;
        least("tcp_idle_s", self.tcp_idle_s, 86_400)?;
        if self.table_size != 0 && !MAGLEV_SIZES.contains(&self.table_size) {
            let wrong = format!("there is no table of {} slots", self.table_size);
            let sizes: Vec<String> = MAGLEV_SIZES.iter().map(u32::to_string).collect();
            let allowed = format!("allowed: 0, {}", sizes.join(", "));
            return Err(Refusal::new("spec.table_size", wrong, allowed));
        }
        if self.delegate_if_local {
            let wrong = "true: neither plane leaves a frontend's packets to the machine";
            let allowed = "allowed: false; leave it out, and name the proxy in `proxy_redirect`";
            return Err(Refusal::new("spec.delegate_if_local", wrong, allowed));
        }
        if let Mode::Tunnel(tunnel) | Mode::Dsr(tunnel) = self.mode {
            least("mode.vni", tunnel.vni, (1 << 24) - 1)?;
        }
        if let Some(fault) =
            self.health.as_ref().and_then(|check| check.faults().into_iter().next())
        {
            let field = format!("spec.health.{}", fault.field);
            return Err(Refusal::new(field, fault.wrong, fault.allowed));
        }
        if self.source_ranges.as_ref().is_some_and(|ranges| ranges.prefixes.is_empty()) {
            let allowed = "write at least one prefix, or leave source_ranges out";
            let wrong = "an empty list admits nobody";
            return Err(Refusal::new("spec.source_ranges.prefixes", wrong, allowed));
        }
        if self.proxy_redirect.as_ref().is_some_and(|redirect| redirect.port == 0) {
            let wrong = "there is no port 0";
            return Err(Refusal::new("spec.proxy_redirect.port", wrong, "allowed: 1 to 65535"));
        }
        let mut there = HashSet::with_capacity(self.frontends.len());
        for (i, said) in self.frontends.iter().enumerate() {
            frontend(said, i)?;
            if !there.insert(said.address) {
                let wrong = format!("{} is there twice", said.address);
                let field = format!("spec.frontends[{i}]");
                return Err(Refusal::new(field, wrong, "remove one of them"));
            }
        }
        Ok(())
    }
}

fn frontend(said: &Said, i: usize) -> Result<(), Refusal> {
    let (port, protocol) = (said.address.port, said.address.protocol);
    if port != 0 && !matches!(protocol, 6 | 17 | 132) {
        let wrong = format!("protocol {} has no ports", text::protocol_name(protocol));
        let allowed = "write protocol tcp, udp or sctp, or port 0";
        return Err(Refusal::new(format!("spec.frontends[{i}].port"), wrong, allowed));
    }
    Ok(())
}

/// A frontend as it is written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Frontend {
    /// An address, or a network.
    address: String,
    /// Port; 0 for any.
    #[serde(default)]
    port: u16,
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, a number, or `any`.
    #[serde(default, with = "text::protocol")]
    #[schemars(with = "String")]
    protocol: u8,
    /// What made the address a frontend.
    #[serde(rename = "type", default = "load_balancer")]
    kind: Kind,
    /// Restricts backends to those of a port name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port_name: Option<Arc<str>>,
    /// The port as the service defines it; `port` where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_port: Option<u16>,
    /// Whose packets.
    #[serde(default, skip_serializing_if = "is_default")]
    reach: Reach,
    /// Gateway endpoint in hexadecimal; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

fn load_balancer() -> Kind {
    Kind::LoadBalancer
}

impl From<&Said> for Frontend {
    fn from(said: &Said) -> Frontend {
        let Address { prefix, port, protocol, reach, endpoint } = said.address;
        Frontend {
            address: text::prefix_text(&prefix),
            port,
            protocol,
            kind: said.kind,
            port_name: said.port_name.clone(),
            service_port: (said.service_port != port).then_some(said.service_port),
            reach,
            scope: (endpoint != 0).then(|| format!("{endpoint:#x}")),
        }
    }
}

impl TryFrom<Frontend> for Said {
    type Error = String;

    fn try_from(written: Frontend) -> Result<Said, String> {
        let scope = written.scope.as_deref().map(|scope| {
            let digits = scope.strip_prefix("0x").unwrap_or(scope);
            u64::from_str_radix(digits, 16).map_err(|_| {
                format!("`{scope}` is no endpoint, expected 0x1 to 0xffffffffffffffff")
            })
        });
        let address = Address {
            prefix: text::prefix_of(&written.address)?,
            port: written.port,
            protocol: written.protocol,
            reach: written.reach,
            endpoint: scope.transpose()?.unwrap_or(0),
        };
        Ok(Said {
            address,
            kind: written.kind,
            port_name: written.port_name,
            service_port: written.service_port.unwrap_or(written.port),
        })
    }
}

/// Lists of frontends for serde.
mod frontends {
    use super::{Deserialize, Deserializer, Frontend, Said, Serializer};

    pub fn serialize<S: Serializer>(list: &[Said], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(Frontend::from))
    }

    /// A frontend that is told wrong by its own conversion keeps its place in the path.
    #[derive(Deserialize)]
    #[serde(try_from = "Frontend")]
    struct One(Said);

    impl TryFrom<Frontend> for One {
        type Error = String;

        fn try_from(written: Frontend) -> Result<One, String> {
            Said::try_from(written).map(One)
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Said>, D::Error> {
        Ok(Vec::<One>::deserialize(from)?.into_iter().map(|One(said)| said).collect())
    }
}

/// Source ranges as they are written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Ranges {
    /// What becomes of clients inside.
    #[serde(default)]
    policy: RangesPolicy,
    /// Addresses and networks of clients; at least one.
    #[serde(with = "text::prefixes")]
    #[schemars(with = "Vec<String>")]
    prefixes: Vec<Prefix>,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RangesPolicy {
    /// They alone are admitted.
    #[default]
    Allow,
    /// They are refused, all others are admitted.
    Deny,
}

/// Source ranges for serde.
mod ranges {
    use super::{
        Arc, Deserialize, Deserializer, Ranges, RangesPolicy, Serialize, Serializer, SourceRanges,
    };

    pub fn serialize<S: Serializer>(
        ranges: &Option<Arc<SourceRanges>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let written = ranges.as_ref().map(|ranges| Ranges {
            policy: if ranges.deny { RangesPolicy::Deny } else { RangesPolicy::Allow },
            prefixes: ranges.prefixes.clone(),
        });
        written.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<SourceRanges>>, D::Error> {
        let written = Option::<Ranges>::deserialize(from)?;
        Ok(written.map(|Ranges { policy, prefixes }| {
            let deny = matches!(policy, RangesPolicy::Deny);
            Arc::new(SourceRanges { deny, prefixes })
        }))
    }
}
