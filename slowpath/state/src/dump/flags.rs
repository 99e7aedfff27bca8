//! Flags of frontends and their slots: bits, conditions and names.

use std::fmt;

use config::services::{Mode, NatPolicy, TrafficPolicy};

use crate::frontend::Kind;
use crate::object::{FrontendSpec, ServiceSpec};

/// Flags of a frontend. The bits are those of Cilium's service maps (v2, flags and flags2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// [`Kind::ExternalIps`].
    pub const EXTERNAL_IPS: Flags = Flags(1);
    /// [`Kind::NodePort`].
    pub const NODE_PORT: Flags = Flags(1 << 1);
    /// The service's policy for packets from outside the cluster is Local: they go only to local
    /// backends.
    pub const EXTERNAL_LOCAL: Flags = Flags(1 << 2);
    /// [`Kind::HostPort`].
    pub const HOST_PORT: Flags = Flags(1 << 3);
    /// The service has session affinity, and the frontend's packets do not go to a proxy.
    pub const AFFINITY: Flags = Flags(1 << 4);
    /// [`Kind::LoadBalancer`].
    pub const LOAD_BALANCER: Flags = Flags(1 << 5);
    /// Packets from outside can be addressed to the frontend: its address is no wildcard, and no
    /// cluster address unless the appliance accepts packets to those (`external_cluster_ip`).
    pub const ROUTABLE: Flags = Flags(1 << 6);
    /// Clients are checked against the source ranges.
    pub const SOURCE_RANGES: Flags = Flags(1 << 7);
    /// [`Kind::LocalRedirect`].
    pub const LOCAL_REDIRECT: Flags = Flags(1 << 8);
    /// Packets are translated between address families.
    pub const NAT_46_64: Flags = Flags(1 << 9);
    /// Packets go to a proxy on this host.
    pub const PROXY: Flags = Flags(1 << 10);
    /// Host port on the loopback address. For other kinds Cilium uses this bit as
    /// `delegate-if-local`.
    pub const LOOPBACK: Flags = Flags(1 << 11);
    /// The service's policy for packets from within the cluster is Local: they go only to local
    /// backends.
    pub const INTERNAL_LOCAL: Flags = Flags(1 << 12);
    /// The service's policies for packets from outside and from within the cluster differ, and the
    /// frontend is not a cluster address. Such a frontend, except a host port, has two entries: one
    /// for packets from outside and one for packets from within.
    pub const TWO_SCOPES: Flags = Flags(1 << 13);
    /// Of a frontend: clients in the source ranges are denied instead of allowed.
    pub const DENY: Flags = Flags(1 << 14);
    /// Of a slot: its backend is quarantined. The same bit as [`Flags::DENY`].
    pub const QUARANTINED: Flags = Flags(1 << 14);
    /// Direct server return: backends reply to clients directly.
    pub const DSR: Flags = Flags(1 << 15);

    /// Returns whether all bits of `other` are set.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns these flags, with the bits of `other` added if `set`.
    pub fn with(self, other: Flags, set: bool) -> Flags {
        if set { Flags(self.0 | other.0) } else { self }
    }

    /// Returns the flags of a frontend of a service. `open_cluster` is whether packets from outside
    /// to cluster addresses are accepted (`external_cluster_ip`).
    pub fn of(frontend: &FrontendSpec, service: &ServiceSpec, open_cluster: bool) -> Flags {
        let local = |policy| policy == TrafficPolicy::Local;
        let wildcard =
            frontend.address.prefix.is_single() && frontend.address.prefix.addr.is_unspecified();
        let is_cluster_ip = frontend.kind == Kind::ClusterIp;
        let ranges = service.source_ranges.as_deref();
        let proxy =
            service.proxy_redirect.as_ref().is_some_and(|r| r.redirects(frontend.service_port));
        let translated = match service.nat_policy {
            NatPolicy::None => false,
            NatPolicy::Nat46 => frontend.address.is_ipv4(),
            NatPolicy::Nat64 => !frontend.address.is_ipv4(),
        };
        let loopback = frontend.kind == Kind::HostPort && service.loopback_host_port;
        Flags::of_kind(frontend.kind)
            .with(Flags::EXTERNAL_LOCAL, local(service.external_policy))
            .with(Flags::INTERNAL_LOCAL, local(service.internal_policy))
            .with(Flags::TWO_SCOPES, service.has_two_traffic_scopes() && !is_cluster_ip)
            .with(Flags::AFFINITY, service.affinity_s != 0 && !proxy)
            .with(Flags::ROUTABLE, !wildcard && (!is_cluster_ip || open_cluster))
            .with(Flags::SOURCE_RANGES, ranges.is_some())
            .with(Flags::DENY, ranges.is_some_and(|ranges| ranges.denies()))
            .with(Flags::NAT_46_64, translated)
            .with(Flags::PROXY, proxy)
            .with(Flags::LOOPBACK, loopback)
            .with(Flags::DSR, matches!(service.mode, Mode::Dsr(_)))
    }

    fn of_kind(kind: Kind) -> Flags {
        match kind {
            Kind::ClusterIp => Flags(0),
            Kind::NodePort => Flags::NODE_PORT,
            Kind::LoadBalancer => Flags::LOAD_BALANCER,
            Kind::ExternalIps => Flags::EXTERNAL_IPS,
            Kind::HostPort => Flags::HOST_PORT,
            Kind::LocalRedirect => Flags::LOCAL_REDIRECT,
        }
    }

    /// Returns the flags of a slot of a frontend with these flags.
    pub fn of_slot(self, quarantined: bool) -> SlotFlags {
        SlotFlags(Flags(self.0 & !Flags::DENY.0).with(Flags::QUARANTINED, quarantined))
    }

    fn kind(self) -> Kind {
        let kinds = [
            Kind::ExternalIps,
            Kind::NodePort,
            Kind::HostPort,
            Kind::LoadBalancer,
            Kind::LocalRedirect,
        ];
        let found = kinds.into_iter().find(|kind| self.has(Flags::of_kind(*kind)));
        found.unwrap_or(Kind::ClusterIp)
    }

    /// Writes the flags with Cilium's names. `shared` is the name for the bit that
    /// [`Flags::DENY`] and [`Flags::QUARANTINED`] share.
    fn write(self, f: &mut fmt::Formatter<'_>, shared: &str) -> fmt::Result {
        f.write_str(self.kind().as_str())?;
        for (flag, name) in [
            (Flags::EXTERNAL_LOCAL, "Local"),
            (Flags::INTERNAL_LOCAL, "InternalLocal"),
            (Flags::TWO_SCOPES, "two-scopes"),
            (Flags::AFFINITY, "sessionAffinity"),
        ] {
            write_if(f, self.has(flag), name)?;
        }
        write_if(f, !self.has(Flags::ROUTABLE), "non-routable")?;
        for (flag, name) in [
            (Flags::SOURCE_RANGES, "check-source-range"),
            (Flags::DENY, shared),
            (Flags::NAT_46_64, "46x64"),
            (Flags::PROXY, "l7-load-balancer"),
            (Flags::LOOPBACK, "loopback"),
            (Flags::DSR, "dsr"),
        ] {
            write_if(f, self.has(flag), name)?;
        }
        Ok(())
    }
}

/// Writes `+` and the name of a flag if it is set.
fn write_if(f: &mut fmt::Formatter<'_>, is_set: bool, name: &str) -> fmt::Result {
    if is_set { write!(f, "+{name}") } else { Ok(()) }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "deny")
    }
}

/// Flags of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotFlags(pub Flags);

impl fmt::Display for SlotFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, "quarantined")
    }
}
