//! The planes, DPDK and XDP, and what differs between them for everybody.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What moves packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// fastpath, which polls NICs by DPDK.
    Dpdk,
    /// XDP programs in the kernel, attached by ebpf-fallback.
    Xdp,
}

/// What leads the kernel's own packets into XDP programs, ingress arm and egress arm: the number of
/// a routing table, and the mark of packets that are routed by it (`ip rule` with `fwmark`). Beside
/// GENEVE's port, so that a person who meets one knows whose it is.
pub const ROUTES: [u32; 2] = [60_810, 60_811];

/// Whose the routing rules are that lead proxies' answers to [`ROUTES`]: their `protocol`, as `ip
/// rule` shows it. No number of a routing daemon (`/etc/iproute2/rt_protos`).
pub const RULES_OF_PROXIES: u8 = 61;

/// Where XDP programs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// In the driver where it can, else in the stack.
    Auto,
    /// In the NIC's driver.
    Native,
    /// In the kernel's stack.
    Generic,
}
