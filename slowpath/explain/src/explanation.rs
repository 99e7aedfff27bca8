//! Request and response of `POST /explain`.

use serde::{Deserialize, Serialize};

/// Request body of `POST /explain`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// Arm on which the packets arrive, `ingress` or `egress`.
    #[serde(default)]
    pub arm: String,
    /// True if this machine's kernel sends the packets through that arm.
    #[serde(default)]
    pub kernel: bool,
    /// For 5-tuples, the gateway through which they arrive; empty for packets without a tunnel.
    #[serde(default)]
    pub gateway: String,
    /// Endpoint of a GENEVE gateway.
    #[serde(default)]
    pub endpoint: u64,
    /// Packets, each a 5-tuple (`tcp 192.0.2.1:1234 -> 203.0.113.1:80`) or a frame in hexadecimal
    /// digits.
    pub packets: Vec<String>,
}

/// How a packet would be handled now, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The packet that the verdict is about: the inner packet, if it arrived through a tunnel.
    pub packet: String,
    /// How the packet arrived.
    pub arrival: String,
    /// Generation of the tables.
    pub generation: u32,
    /// Verdict: `return`, `nat`, `tunnel`, `answer`, `redirect`, `punt`, `forward`, `reply` or
    /// `drop`.
    pub verdict: String,
    /// Drop reason; empty unless the verdict is `drop`.
    pub drop_reason: String,
    /// Number of the path record of the known flow that the packet is assigned to; `None` if there
    /// is none.
    pub flow: Option<u32>,
    /// Matching frontend, formatted like in `weir services`.
    pub frontend: String,
    /// Name of the service.
    pub service: String,
    /// ID of the service in the tables.
    pub service_id: Option<u32>,
    /// Slot of the service's Maglev table that the hash selects; `None` if at most one backend
    /// serves, if the client's affinity or a known flow selects the backend, or if none is
    /// selected.
    pub slot: Option<u32>,
    /// Number of slots of that table; 0 if there is none, or if no backend had to be selected.
    pub slots: u32,
    /// The backend, `address:port`.
    pub backend: String,
    /// ID of the backend in the tables.
    pub backend_id: Option<u32>,
    /// State of the backend.
    pub backend_state: String,
    /// How the packet is rewritten.
    pub rewrite: String,
    /// Next hop: address, MAC, MTU and arm.
    pub next_hop: String,
    /// Reasons for the verdict, one sentence per step.
    pub reasons: Vec<String>,
}
