//! Spec of a list of backends.

use std::net::IpAddr;

use config::services::BackendSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ChangeError;
use super::spec::ObjectSpec;
use crate::name::Name;

/// List of backends of a service. A source may write several lists for one service; the service
/// then has the backends of all of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendsSpec {
    /// Name of the service; it need not exist yet.
    #[schemars(with = "String")]
    pub service: Name,
    /// Backends, in any order, with each endpoint at most once.
    #[serde(default)]
    pub endpoints: Vec<BackendSpec>,
}

impl ObjectSpec for BackendsSpec {
    fn check(&self) -> Result<(), ChangeError> {
        let mut endpoints = std::collections::HashSet::with_capacity(self.endpoints.len());
        for (i, backend) in self.endpoints.iter().enumerate() {
            let field = |name: &str| format!("spec.endpoints[{i}]{name}");
            let addr = backend.address;
            let broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
            if addr.is_unspecified() || addr.is_multicast() || addr.is_loopback() || broadcast {
                let wrong = format!("{addr} cannot be a backend's address");
                let allowed = "write a unicast address, not 0.0.0.0 or loopback";
                return Err(ChangeError::new(field(".address"), wrong, allowed));
            }
            if backend.port != 0 && !matches!(backend.protocol, 0 | 6 | 17 | 132) {
                let wrong = format!("protocol {} has no ports", backend.protocol);
                let allowed = "write protocol tcp, udp, sctp or any, or leave the port out";
                return Err(ChangeError::new(field(".port"), wrong, allowed));
            }
            if !endpoints.insert(backend.endpoint()) {
                let wrong = format!("{} is listed twice", backend.endpoint());
                return Err(ChangeError::new(field(""), wrong, "remove one of them"));
            }
        }
        Ok(())
    }
}
