//! Tests of the peer state machine.

mod invariants;
mod rules;
pub(crate) mod simulation;

use super::settings::GracefulRestart;
use super::*;
use crate::session::negotiate::local_open;
use crate::wire::{Attributes, Message, Open};
use std::net::Ipv4Addr;

/// Address and port of the first speaker.
pub(crate) const A: &str = "192.0.2.1:179";
/// Address and port of the second speaker, or of the peer in tests of one state machine.
pub(crate) const B: &str = "192.0.2.2:179";

/// Returns the settings of 192.0.2.`octet` in AS `asn` for its peer 192.0.2.`other` in AS
/// `other_asn`.
pub(crate) fn settings(octet: u8, other: u8, asn: u32, other_asn: u32) -> Settings {
    let peer = SocketAddr::from(([192, 0, 2, other], 179));
    let mut settings = Settings::new(asn, Ipv4Addr::new(192, 0, 2, octet), peer, other_asn);
    settings.connect_retry = Duration::from_secs(5);
    settings
}

/// Returns graceful restart settings with a Restart Time of 120 s, without the R bit and with the F
/// bit.
pub(crate) fn graceful_restart() -> GracefulRestart {
    GracefulRestart {
        time: Duration::from_secs(120),
        long_lived: None,
        restarted: false,
        forwarding: true,
    }
}

/// Returns the settings of [`graceful_restart`] with the R bit.
pub(crate) fn after_restart() -> GracefulRestart {
    GracefulRestart { restarted: true, ..graceful_restart() }
}

/// Returns the OPEN of a speaker with these settings, without the R bit.
pub(crate) fn open_of(settings: &Settings) -> Open {
    local_open(settings, &OmitCapabilities::default(), false)
}

/// Returns the OPEN of a speaker with these settings, with the R bit of graceful restart.
pub(crate) fn restarted_open_of(settings: &Settings) -> Open {
    local_open(settings, &OmitCapabilities::default(), true)
}

/// Returns `count` prefixes of each family, with attributes that depend on `salt`.
pub(crate) fn table(count: u32, salt: u32) -> Arc<Table> {
    let mut v4 = Attributes::new("198.51.100.1".parse().unwrap());
    v4.communities = vec![salt, 0xfffe_0001];
    let mut v6 = Attributes::new("2001:db8::1".parse().unwrap());
    v6.large = vec![[64_500, salt, 7]];
    let (v4, v6) = (Arc::new(v4), Arc::new(v6));
    let mut routes = std::collections::BTreeMap::new();
    for index in 0..count {
        let v4_prefix = Ipv4Addr::from(0x0a00_0000 + index);
        let v6_prefix = std::net::Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(index));
        routes.insert(ipnet::IpNet::from(std::net::IpAddr::from(v4_prefix)), Arc::clone(&v4));
        routes.insert(ipnet::IpNet::from(std::net::IpAddr::from(v6_prefix)), Arc::clone(&v6));
    }
    Arc::new(Table { routes })
}
