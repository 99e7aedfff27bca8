//! Validation of the `[bgp]` section.

use std::net::IpAddr;
use std::time::Duration;

use super::validator::{Validator, optional_path};
use crate::checked::Bgp;
use crate::file;

pub(super) fn check(validator: &mut Validator, file: file::Bgp) -> Bgp {
    let router_id = (!file.router_id.is_empty()).then(|| {
        match validator.address("bgp.router_id", &file.router_id) {
            Some(IpAddr::V4(id)) => Some(id),
            Some(IpAddr::V6(_)) => {
                let fault = "a BGP identifier has 32 bits";
                validator.reject("bgp.router_id", fault, "write it as an IPv4 address");
                None
            }
            None => None,
        }
    });
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    Bgp {
        router_id: router_id.flatten(),
        secrets: optional_path(validator, "bgp.secrets", file.secrets),
        on_conflict: file.on_conflict,
        no_backends: file.no_backends,
        graceful_shutdown: seconds(file.graceful_shutdown_s),
        stop: seconds(file.stop_s),
        settle: seconds(file.settle_s),
    }
}
