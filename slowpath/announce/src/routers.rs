//! What the controller asks of whoever carries policies out, so that another speaker could.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::peer::Stop;
use parking_lot::Mutex;

use crate::select::Policy;
use crate::snapshot::ControlPlaneState;

/// Virtual routers, told what they shall be.
pub trait Routers {
    /// From now on this policy is carried out, as the state lets it: declarative, and never called
    /// twice at once. It returns when the next call may come; it doesn't wait for peers. No policy
    /// withdraws everything and disconnects everybody.
    ///
    /// # Errors
    /// Defects of the policy on this appliance, never that a peer can't be reached. What has none
    /// is carried out all the same.
    fn configure_peers(
        &mut self,
        policy: Option<&Policy>,
        state: &ControlPlaneState,
    ) -> Result<(), PolicyDefect>;

    /// When to be called again at the latest, though nothing else happens.
    fn next_due(&self) -> Option<Instant> {
        None
    }

    /// Withdraws everything from everybody, and stays connected. Tells whether there is anybody.
    fn withdraw(&mut self) -> bool;

    /// Whether all peers have been told that nothing is announced any more.
    fn is_withdrawn(&self) -> bool {
        true
    }

    /// Disconnects in this way, for good.
    fn end(&mut self, leave: Leave);
}

impl<R: Routers> Routers for Arc<Mutex<R>> {
    fn configure_peers(
        &mut self,
        policy: Option<&Policy>,
        state: &ControlPlaneState,
    ) -> Result<(), PolicyDefect> {
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

    fn end(&mut self, leave: Leave) {
        self.lock().end(leave);
    }
}

/// How we go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leave {
    /// For good: all is withdrawn, peers are told, routers move the traffic, and each session is
    /// ended by a Cease, a hard reset (RFC 8538) where graceful restart would keep our routes.
    Stop {
        /// So long, at most, until peers were told.
        patience: Duration,
        /// So long after that.
        settle: Duration,
    },
    /// To come back: nobody is told, so that neighbors of graceful restart keep our routes.
    Restart,
}

impl Leave {
    /// What sessions end with.
    pub(crate) fn said(&self) -> Stop {
        match self {
            Leave::Stop { .. } => Stop::Shutdown("this appliance leaves".to_owned()),
            Leave::Restart => Stop::Restart,
        }
    }
}

/// Why a policy can't be carried out here as a whole.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(Defect::to_string).collect::<Vec<_>>().join("; "))]
pub struct PolicyDefect(pub Vec<Defect>);

/// One thing that is wrong, and with which router.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("router {local_asn}: {wrong}")]
pub struct Defect {
    /// The router.
    pub local_asn: u32,
    /// What is wrong, and what to do.
    pub wrong: Wrong,
}

/// What is wrong with a policy on this appliance.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    /// An appliance without IPv4 has to be told.
    #[error(
        "no router id: this appliance has no IPv4 address to take it from; write router_id into \
         the policy, the annotation weir.dev/bgp-virtual-router.ASN, or bgp.router_id"
    )]
    NoRouterId,
    /// There is no address to send to.
    #[error(
        "neighbor {neighbor}: {family} routes have no next hop: the data port has no such \
         address; write next_hop, or leave the family out"
    )]
    NoNextHop {
        /// The neighbor's address.
        neighbor: std::net::IpAddr,
        /// The family.
        family: state::object::bgp::Family,
    },
    /// Packets to that address would go elsewhere.
    #[error(
        "neighbor {neighbor}: next_hop {next_hop} of {family} is not the data plane's; it has \
         {owned}"
    )]
    NotOwned {
        /// The neighbor's address.
        neighbor: std::net::IpAddr,
        /// The family.
        family: state::object::bgp::Family,
        /// What was wanted.
        next_hop: std::net::IpAddr,
        /// What there is.
        owned: String,
    },
    /// A TCP-MD5 or TCP-AO key can't be read. The cause is in the log alone: API clients choose the
    /// path, and would learn from it which files exist.
    #[error(
        "neighbor {neighbor}: a key of its session is not usable, and without it there is none: \
         write it, 80 bytes at most, into a file in the folder bgp.secrets; slowpath's log has the \
         cause"
    )]
    MissingAuthSecret {
        /// The neighbor's address.
        neighbor: std::net::IpAddr,
    },
    /// A neighbor names an object that is not there.
    #[error("{0}; it has no session until then")]
    Unresolved(Box<str>),
    /// Cluster addresses are closed to packets from outside, and so are not announced.
    #[error(
        "ClusterIP is to be announced, and cluster addresses are closed to routers' packets: set \
         external_cluster_ip = true, or take ClusterIP out of the advertisements"
    )]
    ClusterIpClosed,
    /// The session machine doesn't take it.
    #[error("neighbor {neighbor}: {why}")]
    Settings {
        /// The neighbor's address.
        neighbor: std::net::IpAddr,
        /// Why.
        why: bgp::peer::settings::SettingsError,
    },
}
