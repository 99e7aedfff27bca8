//! The configuration of a gateway: its addresses, its tunnels, and the packets that it admits.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::lab::prefix::Prefix;
use crate::lab::wire;
use crate::lab::{LabError, Result};

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct GatewaySetup {
    /// The outer sources, one per gateway node; all are addresses of the wire. Not empty.
    pub nodes: Vec<Ipv4Addr>,
    /// The appliances; a flow stays with one. Not empty.
    pub appliances: Vec<Ipv4Addr>,
    /// The interface that leads to the appliances.
    pub wire: String,
    /// The UDP destination port; 6081 by default.
    pub port: u16,
    /// The class of the GENEVE options; 0x0108 for AWS.
    pub class: u16,
    /// The ids of the gateway endpoints. Not empty; a client's address selects its endpoint.
    pub endpoints: Vec<u64>,
    /// The attachment; AWS sends 0.
    pub attachment: u64,
    /// The maximum length of an inner packet in bytes; longer ones are not sent. 8,500 for AWS.
    pub largest_inner: usize,
    /// A flow's cookie changes after this many packets; 0: never.
    pub churn: u32,
    /// A flow moves to the next node after this many packets; 0: never.
    pub roam: u32,
    /// How long after a change an answer may carry the flow's former options: the longest time that
    /// a packet takes. On a small machine with other load, packets wait seconds for a core.
    pub former_for: Duration,
    /// The time limit for a packet to return.
    pub return_timeout: Duration,
    /// The addresses on the far side. Packets to and from them must return unchanged, packets to
    /// others must be answered. Empty: no far side, and both are correct.
    pub far: Vec<Prefix>,
    /// Whether both directions of a flow share cookie, node and source port. Otherwise each
    /// direction has its own, which is harder for an appliance. Cannot be combined with `churn` or
    /// `roam`.
    pub symmetric: bool,
    /// By how much the TTL of a returned packet must have decreased: 0 for an appliance that only
    /// returns, more if routers are on the path.
    pub hops: u8,
    /// Whether outer UDP checksums are computed; real gateways send 0.
    pub outer_checksum: bool,
    /// The delay of packets from the gateway to a client with one of these addresses.
    pub delays: Vec<(Ipv4Addr, Duration)>,
}

/// The side of the gateway that a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The clients' side.
    Near,
    /// The side of the addresses in [`GatewaySetup::far`]: servers for which Weir has no service.
    Far,
}

/// The packets that the gateway sends to its appliances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// All packets.
    All,
    /// Packets of existing flows: the target drains, or is unhealthy and keeps its flows.
    ExistingFlows,
    /// No packets: no target is left.
    None,
}

impl GatewaySetup {
    /// Returns an error if no gateway can work with this configuration.
    pub fn check(&self) -> Result<()> {
        let fault = if self.nodes.is_empty() || self.appliances.is_empty() {
            "a gateway needs at least one node address and one appliance address"
        } else if self.endpoints.is_empty() {
            "a gateway needs at least one endpoint id"
        } else if self.symmetric && (self.churn, self.roam) != (0, 0) {
            "a symmetric gateway keeps a flow's cookie and node: set churn and roam to 0"
        } else {
            return Ok(());
        };
        Err(LabError::Other(fault.into()))
    }
}

impl Default for GatewaySetup {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            appliances: Vec::new(),
            wire: String::new(),
            port: wire::GENEVE_PORT,
            class: wire::AWS_CLASS,
            endpoints: vec![0x0123_4567_89ab_cdef],
            attachment: 0,
            largest_inner: 8_500,
            churn: 0,
            roam: 0,
            former_for: Duration::from_secs(5),
            return_timeout: Duration::from_secs(15),
            far: Vec::new(),
            symmetric: false,
            hops: 0,
            outer_checksum: false,
            delays: Vec::new(),
        }
    }
}
