//! Interface between the controller and the implementation of policies. It is a trait so that tests
//! and another implementation can replace [`crate::announcer`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::peer::Stop;
use parking_lot::Mutex;

use crate::select::Policy;
use crate::snapshot::ControlPlaneState;

/// Implements BGP policies: runs the virtual routers that a policy describes.
pub trait PolicyApplier {
    /// Applies a policy as far as the state allows, without waiting for peers. The arguments are
    /// the whole desired state, and calls are never concurrent. Without a policy, all routes are
    /// withdrawn and all sessions closed.
    ///
    /// # Errors
    /// Returns the defects of the policy on this appliance. An unreachable peer is no defect. The
    /// parts of the policy without a defect are applied nevertheless.
    fn configure_peers(
        &mut self,
        policy: Option<&Policy>,
        state: &ControlPlaneState,
    ) -> Result<(), PolicyDefects>;

    /// Returns when to call [`PolicyApplier::configure_peers`] again even if nothing changes;
    /// `None` if there is no such time.
    fn next_due(&self) -> Option<Instant> {
        None
    }

    /// Withdraws all routes from all peers and keeps the sessions. Returns whether there are any
    /// peers.
    fn withdraw(&mut self) -> bool;

    /// Returns whether all routes are withdrawn and all peers were sent the withdrawals.
    fn is_withdrawn(&self) -> bool {
        true
    }

    /// Closes all sessions for good.
    fn end(&mut self, mode: ShutdownMode);
}

impl<R: PolicyApplier> PolicyApplier for Arc<Mutex<R>> {
    fn configure_peers(
        &mut self,
        policy: Option<&Policy>,
        state: &ControlPlaneState,
    ) -> Result<(), PolicyDefects> {
        self.lock().configure_peers(policy, state)
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().next_due()
    }

    fn withdraw(&mut self) -> bool {
        self.lock().withdraw()
    }

    fn is_withdrawn(&self) -> bool {
        self.lock().is_withdrawn()
    }

    fn end(&mut self, mode: ShutdownMode) {
        self.lock().end(mode);
    }
}

/// How BGP is shut down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShutdownMode {
    /// Final shutdown: all routes are withdrawn, routers get time to move traffic, and each session
    /// ends with a Cease, as a hard reset (RFC 8538) where graceful restart would keep the routes.
    Stop {
        /// Maximum time for withdrawals to be sent.
        timeout: Duration,
        /// Time for routers to move traffic after the withdrawals were sent.
        settle: Duration,
    },
    /// Restart of this process: nothing is sent, so that neighbors with graceful restart keep the
    /// routes.
    Restart,
}

impl ShutdownMode {
    /// Returns the reason with which sessions end.
    pub(crate) fn stop_reason(&self) -> Stop {
        match self {
            ShutdownMode::Stop { .. } => Stop::Shutdown("appliance shutdown".to_owned()),
            ShutdownMode::Restart => Stop::Restart,
        }
    }
}

/// Defects of a policy on this appliance.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(Defect::to_string).collect::<Vec<_>>().join("; "))]
pub struct PolicyDefects(pub Vec<Defect>);

/// A defect of a policy and the router that it concerns.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("router {local_asn}: {kind}")]
pub struct Defect {
    /// AS number of the router.
    pub local_asn: u32,
    /// The defect, with its remedy.
    pub kind: DefectKind,
}

/// Kinds of defects of a policy; the message names the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DefectKind {
    /// The router ID is not configured and cannot be derived from an IPv4 address.
    #[error(
        "no router id: this appliance has no IPv4 address to derive it from; set router_id in \
         the policy, router-id in the annotation weir.dev/bgp-virtual-router.ASN, or bgp.router_id"
    )]
    NoRouterId,
    /// Routes of a family have no next hop.
    #[error(
        "neighbor {neighbor}: {family} routes have no next hop: the ingress port has no address \
         of the family; set next_hop, or remove the family"
    )]
    NoNextHop {
        /// Address of the neighbor.
        neighbor: std::net::IpAddr,
        /// Address family.
        family: state::object::bgp::Family,
    },
    /// The configured next hop is not an address of the data plane.
    #[error(
        "neighbor {neighbor}: next_hop {next_hop} of {family} is not an address of the data \
         plane; available: {owned}"
    )]
    NotOwned {
        /// Address of the neighbor.
        neighbor: std::net::IpAddr,
        /// Address family.
        family: state::object::bgp::Family,
        /// The configured next hop.
        next_hop: std::net::IpAddr,
        /// Addresses of the data plane as a list; `none` if there are none.
        owned: String,
    },
    /// A TCP-MD5 or TCP-AO key cannot be read. The cause is only logged: API clients choose the
    /// path, and the cause would reveal which files exist.
    #[error(
        "neighbor {neighbor}: its key is missing or invalid; no session starts, and a running \
         session whose keys came from the same secrets keeps them: write the key, 80 bytes at \
         most, to its file in the folder bgp.secrets; slowpath's log has the cause"
    )]
    MissingAuthSecret {
        /// Address of the neighbor.
        neighbor: std::net::IpAddr,
    },
    /// A neighbor references an object that does not exist.
    #[error("{0}; the peer has no session until the object exists")]
    Unresolved(Box<str>),
    /// Cluster addresses accept no external packets and are therefore not announced.
    #[error(
        "ClusterIP cannot be advertised: cluster addresses accept no packets from routers; set \
         external_cluster_ip = true, or remove ClusterIP from the advertisements"
    )]
    ClusterIpClosed,
    /// The speaker rejects the settings.
    #[error("neighbor {neighbor}: {why}")]
    Settings {
        /// Address of the neighbor.
        neighbor: std::net::IpAddr,
        /// Why the speaker rejects them.
        why: bgp::peer::settings::SettingsError,
    },
}
