//! Snapshot of the appliance at one moment: labels, addresses, annotations, and the state of its
//! data plane.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use state::address::Address;
use state::appliance::Appliance;
use state::frontend::Progress;
use state::kubernetes::OWN;
use state::labels::Pairs;
use state::tables::Tables;

/// Domain and name of the annotations of virtual routers; the local ASN follows. The first pair,
/// Weir's own, takes precedence over Cilium's.
const ANNOTATIONS: [(&str, &str); 2] =
    [(OWN, "/bgp-virtual-router."), ("cilium.io", "/bgp-virtual-router.")];

/// The appliance and its data plane at one moment.
#[derive(Clone, Debug)]
pub struct ControlPlaneState {
    /// When the snapshot was taken.
    pub taken: Instant,
    /// Name of the appliance.
    pub name: Box<str>,
    /// Labels of the appliance.
    pub labels: Pairs,
    /// Annotations for virtual routers, by local ASN; set by the controller, which parses them.
    pub annotations: BTreeMap<u32, RouterAnnotation>,
    /// Configured router ID (`bgp.router_id`).
    pub router_id: Option<Ipv4Addr>,
    /// First IPv4 address of the ingress port.
    pub ipv4: Option<Ipv4Addr>,
    /// First IPv6 address of the ingress port.
    pub ipv6: Option<Ipv6Addr>,
    /// State of the data plane.
    pub plane: Plane,
}

/// State of the data plane.
#[derive(Clone, Debug)]
pub struct Plane {
    /// The data plane takes traffic: lcores poll, links are up, tables are acknowledged.
    /// Independent of a drain.
    pub forwarding: bool,
    /// The appliance is being drained, or this process announces graceful shutdown before it stops.
    pub draining: bool,
    /// End-of-RIB may be sent: all sources have delivered their objects and no frontend is pending.
    /// Also true if the data plane is known not to take traffic, so that neighbors drop the routes
    /// that they kept during a graceful restart.
    pub complete: bool,
    /// Addresses of the data plane's ports; next hops must be among them.
    pub owned: BTreeSet<IpAddr>,
    /// Desired tables.
    pub tables: Tables,
    /// Settings of the appliance, such as which nodes and zones are local.
    pub appliance: Arc<Appliance>,
    /// Frontends that are in force on every lcore.
    pub acknowledged: Arc<HashSet<Address>>,
}

impl Default for Plane {
    /// Returns the state before the first report: the data plane takes no traffic and has nothing.
    fn default() -> Plane {
        Plane {
            forwarding: false,
            draining: false,
            complete: false,
            owned: BTreeSet::new(),
            tables: Tables::default(),
            appliance: Arc::default(),
            acknowledged: Arc::default(),
        }
    }
}

impl ControlPlaneState {
    /// Creates a snapshot without name, labels and addresses, with the default data plane.
    pub fn new(taken: Instant) -> ControlPlaneState {
        ControlPlaneState {
            taken,
            name: Box::default(),
            labels: None,
            annotations: BTreeMap::new(),
            router_id: None,
            ipv4: None,
            ipv6: None,
            plane: Plane::default(),
        }
    }
}

/// Annotation of a virtual router.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouterAnnotation {
    /// BGP identifier.
    pub router_id: Option<Ipv4Addr>,
    /// Port on which the router listens.
    pub local_port: Option<u16>,
}

/// An invalid annotation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "annotation {key}: `{value}`: {wrong}; expected `router-id=192.0.2.1,local-port=179`, or one \
     of the two"
)]
pub struct BadAnnotation {
    /// Key of the annotation.
    pub key: Box<str>,
    /// Value of the annotation.
    pub value: Box<str>,
    /// Why the value or the key is invalid.
    pub wrong: String,
}

/// Parses the annotations of virtual routers.
///
/// # Errors
/// Returns the first invalid annotation.
pub fn annotations(pairs: &Pairs) -> Result<BTreeMap<u32, RouterAnnotation>, BadAnnotation> {
    let mut all = BTreeMap::new();
    for (domain, prefix) in ANNOTATIONS {
        for (key, value) in pairs.iter().flat_map(|pairs| pairs.iter()) {
            let asn = key.strip_prefix(domain).and_then(|key| key.strip_prefix(prefix));
            let Some(asn) = asn else { continue };
            let bad =
                |wrong: String| BadAnnotation { key: key.clone(), value: value.clone(), wrong };
            let asn: u32 = asn.parse().map_err(|_| bad(format!("`{asn}` is not an ASN")))?;
            let annotation_value = annotation(value).map_err(bad)?;
            all.entry(asn).or_insert(annotation_value);
        }
    }
    Ok(all)
}

fn annotation(text: &str) -> Result<RouterAnnotation, String> {
    let mut annotation_value = RouterAnnotation::default();
    // An empty annotation is valid and sets nothing.
    let parts = text.split(',').map(str::trim);
    for part in parts.filter(|_| !text.trim().is_empty()) {
        let not_a = |what: &str, value: &str| format!("`{value}` is not a {what}");
        match part.split_once('=') {
            Some(("router-id", value)) => {
                let id = value.parse().ok().filter(|id: &Ipv4Addr| !id.is_unspecified());
                annotation_value.router_id = Some(id.ok_or_else(|| not_a("router id", value))?);
            }
            Some(("local-port", value)) => {
                let port = value.parse().ok().filter(|port| *port != 0);
                annotation_value.local_port = Some(port.ok_or_else(|| not_a("port", value))?);
            }
            _ => return Err(format!("`{part}` is neither router-id nor local-port")),
        }
    }
    Ok(annotation_value)
}

/// Tracks which frontends are in force. The row of a changed frontend is pending until the data
/// plane has acknowledged it. Until then the data plane serves packets by the previous row, so the
/// route must not be withdrawn.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// Result of the previous [`Acknowledged::update`].
    in_force_before: Arc<HashSet<Address>>,
}

impl Acknowledged {
    /// Returns the frontends of these tables that are in force: those that are done, and pending
    /// ones that were in force at the previous call.
    pub fn update(&mut self, tables: &Tables) -> Arc<HashSet<Address>> {
        let in_force = |row: &&Arc<state::frontend::Frontend>| match row.status().progress {
            Progress::Done => true,
            Progress::Pending => self.in_force_before.contains(row.address()),
            Progress::Error(_) => false,
        };
        let now: HashSet<Address> =
            tables.frontends().filter(in_force).map(|row| *row.address()).collect();
        if now != *self.in_force_before {
            self.in_force_before = Arc::new(now);
        }
        Arc::clone(&self.in_force_before)
    }
}

#[cfg(test)]
mod tests;
