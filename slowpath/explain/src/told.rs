//! What `weir explain` shows of a packet.

use serde::{Deserialize, Serialize};

/// What is asked of `POST /explain`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// `ingress` or `egress`: the arm by which the packets come.
    #[serde(default)]
    pub arm: String,
    /// This machine's kernel sends them by that arm.
    #[serde(default)]
    pub kernel: bool,
    /// For packets written as 5-tuples: the gateway by which they come; empty for plain ones.
    #[serde(default)]
    pub gateway: String,
    /// For those of a GENEVE gateway: its endpoint.
    #[serde(default)]
    pub endpoint: u64,
    /// Each a 5-tuple (`tcp 192.0.2.1:1234 -> 203.0.113.1:80`) or a frame in hexadecimal digits.
    pub packets: Vec<String>,
}

/// What would become of a packet that came now, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The packet that the verdict is about: what is inside, if it came in a tunnel.
    pub packet: String,
    /// How it came.
    pub arrival: String,
    /// The generation of the tables that this says.
    pub generation: u32,
    /// `return`, `nat`, `tunnel`, `answer`, `redirect`, `punt`, `forward`, `reply`, `drop`.
    pub verdict: String,
    /// For `drop`, the reason's name.
    pub reason: String,
    /// The flow that it is of, by its path record; none for a packet that would begin one, or has
    /// none.
    pub flow: Option<u32>,
    /// The frontend that is met, as `weir services` writes it.
    pub frontend: String,
    /// Its service's name.
    pub service: String,
    /// The service's id in the tables.
    pub service_id: Option<u32>,
    /// The slot of the service's table that the packet's hash picks; none where one backend serves,
    /// and for packets of a known flow.
    pub slot: Option<u32>,
    /// Of so many slots.
    pub slots: u32,
    /// The backend, `address:port`.
    pub backend: String,
    /// Its id in the tables.
    pub backend_id: Option<u32>,
    /// Its state.
    pub backend_state: String,
    /// What the packet becomes.
    pub rewrite: String,
    /// Where it goes next: address, MAC, MTU and arm.
    pub next_hop: String,
    /// How it came to that, a sentence a step.
    pub why: Vec<String>,
}
