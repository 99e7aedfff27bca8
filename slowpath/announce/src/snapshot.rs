//! What is known of this appliance at one moment: labels, addresses, annotations, and what its
//! data plane holds. Made by whoever looks, read by all others, changed by nobody.

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

/// Keys of annotations of virtual routers, followed by the local ASN. Ours come first.
const ANNOTATIONS: [(&str, &str); 2] =
    [(OWN, "/bgp-virtual-router."), ("cilium.io", "/bgp-virtual-router.")];

/// The appliance and its data plane at one moment.
#[derive(Clone, Debug)]
pub struct ControlPlaneState {
    /// That moment.
    pub taken: Instant,
    /// The appliance's name.
    pub name: Box<str>,
    /// Its labels.
    pub labels: Pairs,
    /// What its annotations say of virtual routers, by local ASN.
    pub annotations: BTreeMap<u32, RouterAnnotation>,
    /// The router id that is configured, if one is.
    pub router_id: Option<Ipv4Addr>,
    /// The data port's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The data port's IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// What the data plane holds.
    pub plane: Plane,
}

/// What the data plane holds and can.
#[derive(Clone, Debug)]
pub struct Plane {
    /// It takes traffic: lcores poll, links are up, tables are acknowledged. A drain is not in it.
    pub able: bool,
    /// The operator wants no new traffic.
    pub draining: bool,
    /// All sources have said what they know, and all of it is acknowledged: End-of-RIB may be said.
    pub complete: bool,
    /// Addresses that packets may be sent to: next hops are of these.
    pub owned: BTreeSet<IpAddr>,
    /// What there shall be.
    pub tables: Tables,
    /// What the appliance calls local.
    pub appliance: Arc<Appliance>,
    /// The frontends that are in force on every lcore.
    pub acknowledged: Arc<HashSet<Address>>,
}

impl Default for Plane {
    /// Nothing is known, and so nothing able.
    fn default() -> Plane {
        Plane {
            able: false,
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
    /// Of an appliance of which nothing is known.
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

/// What an annotation says of a virtual router.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouterAnnotation {
    /// Its BGP identifier.
    pub router_id: Option<Ipv4Addr>,
    /// The port on which it listens.
    pub local_port: Option<u16>,
}

/// An annotation that means nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "annotation {key}: `{value}`: {wrong}; write `router-id=192.0.2.1,local-port=179`, either of \
     them or both"
)]
pub struct BadAnnotation {
    /// The annotation.
    pub key: Box<str>,
    /// What it says.
    pub value: Box<str>,
    /// What is wrong with it.
    pub wrong: String,
}

/// What annotations say of virtual routers.
///
/// # Errors
/// The first that means nothing.
pub fn annotations(pairs: &Pairs) -> Result<BTreeMap<u32, RouterAnnotation>, BadAnnotation> {
    let mut all = BTreeMap::new();
    for (domain, rest) in ANNOTATIONS {
        for (key, value) in pairs.iter().flat_map(|pairs| pairs.iter()) {
            let asn = key.strip_prefix(domain).and_then(|key| key.strip_prefix(rest));
            let Some(asn) = asn else { continue };
            let bad =
                |wrong: String| BadAnnotation { key: key.clone(), value: value.clone(), wrong };
            let asn: u32 = asn.parse().map_err(|_| bad(format!("`{asn}` is no ASN")))?;
            let said = annotation(value).map_err(bad)?;
            all.entry(asn).or_insert(said);
        }
    }
    Ok(all)
}

fn annotation(text: &str) -> Result<RouterAnnotation, String> {
    let mut said = RouterAnnotation::default();
    // An empty one says nothing, as a label of Kubernetes without a value.
    let parts = text.split(',').map(str::trim);
    for part in parts.filter(|_| !text.trim().is_empty()) {
        let no = |what: &str, value: &str| format!("`{value}` is no {what}");
        match part.split_once('=') {
            Some(("router-id", value)) => {
                let id = value.parse().ok().filter(|id: &Ipv4Addr| !id.is_unspecified());
                said.router_id = Some(id.ok_or_else(|| no("router id", value))?);
            }
            Some(("local-port", value)) => {
                let port = value.parse().ok().filter(|port| *port != 0);
                said.local_port = Some(port.ok_or_else(|| no("port", value))?);
            }
            _ => return Err(format!("`{part}` is neither router-id nor local-port")),
        }
    }
    Ok(said)
}

/// Keeps which frontends are in force. A row that is written anew is pending until the plane has
/// it; meanwhile the plane has the former one, and packets are served: that is no reason to
/// withdraw.
#[derive(Debug, Default)]
pub struct Acknowledged {
    held: Arc<HashSet<Address>>,
}

impl Acknowledged {
    /// The frontends of these tables that are in force.
    pub fn look(&mut self, tables: &Tables) -> Arc<HashSet<Address>> {
        let in_force = |row: &&Arc<state::frontend::Frontend>| match row.status().progress {
            Progress::Done => true,
            Progress::Pending => self.held.contains(row.address()),
            Progress::Error(_) => false,
        };
        let now: HashSet<Address> =
            tables.frontends().filter(in_force).map(|row| *row.address()).collect();
        if now != *self.held {
            self.held = Arc::new(now);
        }
        Arc::clone(&self.held)
    }
}

#[cfg(test)]
mod tests;
