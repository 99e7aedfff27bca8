//! How a gateway is set up: its addresses, its tunnels, what it admits.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::lab::prefix::Prefix;
use crate::lab::wire;

/// How the gateway behaves.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The outer sources, one for each gateway node; all are addresses of the wire. Not empty.
    pub nodes: Vec<Ipv4Addr>,
    /// The appliances; a flow stays with one. Not empty.
    pub appliances: Vec<Ipv4Addr>,
    /// The interface that the appliances answer on.
    pub wire: String,
    /// The UDP destination port; 6081.
    pub port: u16,
    /// The option class; 0x0108 for AWS.
    pub class: u16,
    /// The gateway endpoint's id.
    pub endpoint: u64,
    /// The attachment; AWS sends 0.
    pub attachment: u64,
    /// Larger inner packets are not sent; 8,500 for AWS.
    pub largest_inner: usize,
    /// A flow's cookie changes after so many packets; 0: never.
    pub churn: u32,
    /// A flow moves to the next node after so many packets; 0: never.
    pub roam: u32,
    /// How long an answer may carry the options that a flow had before: as long as packets may be
    /// under way. On a small machine with other work they wait seconds for a core.
    pub former_for: Duration,
    /// How long a packet may take to come back.
    pub patience: Duration,
    /// The addresses on the far side. Packets to and from them must come back as they are, packets
    /// to others must be answered. Empty: no far side, and either is right.
    pub far: Vec<Prefix>,
    /// Both directions of a flow have one cookie, node and source port. Without, each direction has
    /// its own, which asks more of an appliance; not to be had with `churn` or `roam`.
    pub symmetric: bool,
    /// By how much the TTL of a packet that comes back may be smaller: 0 for an appliance that
    /// only returns, more where it routes the packet on its way.
    pub hops: u8,
    /// Make outer UDP checksums; gateways send 0.
    pub outer_checksum: bool,
    /// How long packets take from the gateway to a client with one of these addresses.
    pub delays: Vec<(Ipv4Addr, Duration)>,
}

/// Which side of the gateway a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The clients'.
    Near,
    /// The addresses behind the appliance.
    Far,
}

/// Whose packets the gateway sends to its appliances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// Everybody's.
    All,
    /// Those of flows that it knows: its target drains, or is unhealthy and keeps its flows.
    Known,
    /// Nobody's: no target is left that could have them.
    None,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            appliances: Vec::new(),
            wire: String::new(),
            port: wire::GENEVE_PORT,
            class: wire::AWS_CLASS,
            endpoint: 0x0123_4567_89ab_cdef,
            attachment: 0,
            largest_inner: 8_500,
            churn: 0,
            roam: 0,
            former_for: Duration::from_secs(5),
            patience: Duration::from_secs(15),
            far: Vec::new(),
            symmetric: false,
            hops: 0,
            outer_checksum: false,
            delays: Vec::new(),
        }
    }
}
