//! The data planes, DPDK and XDP, and constants that several crates need about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The data plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// The fastpath process, which polls NICs through DPDK.
    Dpdk,
    /// XDP programs in the kernel, attached by ebpf-fallback.
    Xdp,
}

/// Routing tables that lead the kernel's own packets into XDP programs, for the ingress and the
/// egress arm. The number is that of the table and of the firewall mark that selects it (`ip rule`
/// with `fwmark`). It resembles GENEVE's port 6081, so that operators recognize it as Weir's.
pub const ROUTES: [u32; 2] = [60_810, 60_811];

/// `protocol` of the routing rules that lead proxies' replies to [`ROUTES`], as shown by `ip rule`.
/// It identifies them as Weir's and is not the number of a routing daemon
/// (`/etc/iproute2/rt_protos`).
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
