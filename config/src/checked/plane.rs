//! The data planes, DPDK and XDP, and constants of the XDP plane that several crates use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The data plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// The fastpath process, which polls NICs through DPDK.
    Dpdk,
    /// XDP programs in the kernel, attached by ebpf-fallback.
    Xdp,
}

impl Plane {
    /// Returns the name, as in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Plane::Dpdk => "dpdk",
            Plane::Xdp => "xdp",
        }
    }
}

/// The data plane as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlaneSetting {
    /// DPDK where NICs, drivers and memory allow it, otherwise XDP.
    Auto,
    /// The fastpath process, which polls NICs through DPDK.
    Dpdk,
    /// XDP programs in the kernel, attached by ebpf-fallback.
    Xdp,
}

impl PlaneSetting {
    /// Returns the name, as in the configuration.
    pub fn as_str(self) -> &'static str {
        match self.planes() {
            [plane] => plane.as_str(),
            _ => "auto",
        }
    }

    /// Returns the planes that may run with this setting.
    pub fn planes(self) -> &'static [Plane] {
        match self {
            PlaneSetting::Auto => &[Plane::Dpdk, Plane::Xdp],
            PlaneSetting::Dpdk => &[Plane::Dpdk],
            PlaneSetting::Xdp => &[Plane::Xdp],
        }
    }
}

/// Origin of the plane of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaneFrom {
    /// Set in the configuration.
    Configured,
    /// `plane = "auto"`, and the plane was selected for this machine.
    Decided,
    /// `plane = "auto"`, and no plane was selected yet. [`Config::plane`](super::Config::plane) is
    /// then `Dpdk`, because more settings apply to it, which are thus shown and validated.
    Undecided,
}

/// Numbers of the routing tables that lead the kernel's own packets into XDP programs, for the
/// ingress and the egress arm. The firewall mark that selects a table (`ip rule` with `fwmark`) has
/// the same number. The numbers resemble GENEVE's port 6081, so that operators recognize them as
/// Weir's.
pub const ROUTE_TABLES: [u32; 2] = [60_810, 60_811];

/// `protocol` of the routing rules that lead replies of proxies to [`ROUTE_TABLES`], as shown by
/// `ip rule`. It identifies the rules as Weir's: no routing daemon in `/etc/iproute2/rt_protos` has
/// this number.
pub const PROXY_RULE_PROTOCOL: u8 = 61;

/// Where XDP programs are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// In the NIC driver if supported, otherwise in the kernel's network stack.
    Auto,
    /// In the NIC driver.
    Native,
    /// In the kernel's network stack.
    Generic,
}
