//! Settings of a peer. A new configuration requires a new [`super::Peer`]; the state machine itself
//! only ever sets [`GracefulRestart::forwarding`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::wire::Family;

/// Settings of one peer. [`Settings::check`] validates them, except `transport`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Local AS number.
    pub local_asn: u32,
    /// AS number of the peer; 0 accepts any.
    pub peer_asn: u32,
    /// Local BGP identifier.
    pub identifier: Ipv4Addr,
    /// Address and port of the peer.
    pub peer: SocketAddr,
    /// Socket options, used by the speaker only.
    pub transport: Transport,
    /// Never connect, only accept connections (PassiveTcpEstablishment of RFC 4271).
    pub passive: bool,
    /// Maximum time between two attempts to connect, at least 1 s. The first attempts follow after
    /// 1 s, 2 s, 4 s and so on.
    pub connect_retry: Duration,
    /// Hold time to propose: 3 s to 65,535 s, or 0 for no hold timer.
    pub hold: Duration,
    /// Maximum time between two keepalives; a third of the negotiated hold time applies if that is
    /// shorter. With a negotiated hold time of 0, no keepalives are sent.
    pub keepalive: Duration,
    /// Address families to negotiate.
    pub families: Vec<Family>,
    /// Negotiate IPv6 next hops for IPv4 prefixes (RFC 8950).
    pub extended_next_hop: bool,
    /// Graceful restart to negotiate (RFC 4724); `None` does not offer it.
    pub graceful_restart: Option<GracefulRestart>,
    /// After a BFD failure, neither connect nor accept connections until BFD is up again or the
    /// neighbor reports AdminDown.
    pub strict_bfd: bool,
}

/// Graceful restart capability to advertise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GracefulRestart {
    /// Restart Time: how long the peer keeps the routes while this speaker is away, 0 s to 4,095 s.
    pub time: Duration,
    /// How much longer the peer keeps the routes as a last resort (RFC 9494), up to 2^24 - 1 s.
    pub long_lived: Option<Duration>,
    /// This process was restarted (R bit). The bit is sent to each peer until the peer has all
    /// routes.
    pub restarted: bool,
    /// The data plane kept forwarding while this process was away (F bit); otherwise a peer drops
    /// the routes at once. Set to true once the peer has all routes.
    pub forwarding: bool,
}

/// Socket options of a peer. The speaker can replace the keys of an open session
/// ([`Transport::can_rekey_to`]).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Transport {
    /// Local address of connections that either side opens; `None` leaves the choice to the kernel
    /// and accepts connections to any local address.
    pub local: Option<IpAddr>,
    /// TCP-MD5 key (RFC 2385).
    pub md5: Option<String>,
    /// TCP-AO keys (RFC 5925); mutually exclusive with `md5`. Connections are opened with the first
    /// key; segments are accepted with any of them.
    pub tcp_ao: Vec<AoKey>,
    /// Maximum number of hops to the peer; `None` and 1 mean directly connected. Without
    /// `ttl_security`, it is the TTL of packets to an external peer; packets to an internal peer
    /// have TTL 255.
    pub hops: Option<u8>,
    /// Send with TTL 255, and accept only packets that took at most `hops` hops (GTSM, RFC 5082).
    pub ttl_security: bool,
}

/// Master key tuple of TCP-AO (RFC 5925 section 3.1).
#[derive(Clone, PartialEq, Eq)]
pub struct AoKey {
    /// KeyID of segments sent to the peer.
    pub send_id: u8,
    /// KeyID of segments received from the peer.
    pub receive_id: u8,
    /// Algorithms for key derivation and message authentication (RFC 5926).
    pub algorithm: AoAlgorithm,
    /// Master key, at most 80 bytes.
    pub secret: String,
}

/// TCP-AO algorithms of RFC 5926; both use a 96-bit MAC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AoAlgorithm {
    /// HMAC-SHA-1-96.
    HmacSha1,
    /// AES-128-CMAC-96.
    Aes128Cmac,
}

impl std::fmt::Debug for AoKey {
    /// Omits the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AoKey")
            .field("send_id", &self.send_id)
            .field("receive_id", &self.receive_id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Transport {
    /// Masks the TCP-MD5 key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("local", &self.local)
            .field("md5", &self.md5.as_ref().map(|_| "..."))
            .field("tcp_ao", &self.tcp_ao)
            .field("hops", &self.hops)
            .field("ttl_security", &self.ttl_security)
            .finish()
    }
}

impl Transport {
    /// Returns whether an open session can get the keys of `new` without a restart: its TCP-MD5 key
    /// is replaced by another, or TCP-AO keys are added and removed. A TCP-AO key must not change
    /// under IDs that are in use (RFC 5925 section 3.1), and a session neither gains nor loses
    /// authentication.
    pub fn can_rekey_to(&self, new: &Transport) -> bool {
        let in_use = |key: &AoKey| {
            let shares = |old: &AoKey| {
                old != key && (old.send_id == key.send_id || old.receive_id == key.receive_id)
            };
            self.tcp_ao.iter().any(shares)
        };
        self.md5.is_some() == new.md5.is_some()
            && self.tcp_ao.is_empty() == new.tcp_ao.is_empty()
            && !new.tcp_ao.iter().any(in_use)
    }
}

/// Validation errors of [`Settings`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// AS number 0 is reserved (RFC 7607).
    #[error("local ASN 0 is reserved: set one from 1 to 4294967294")]
    LocalAsn,
    /// The BGP identifier must not be 0 (RFC 6286).
    #[error("router id 0.0.0.0 is invalid: set any other, unique among your routers")]
    Identifier,
    /// RFC 4271 section 4.2 excludes hold times of 1 s and 2 s; the field has 16 bits.
    #[error("hold time {0:?} is out of range: set 0, or 3 s to 65535 s")]
    Hold(Duration),
    /// The keepalive time must be greater than 0 and at most the hold time.
    #[error("keepalive time {0:?} is 0 or above the hold time {1:?}: set a third of the hold time")]
    Keepalive(Duration, Duration),
    /// A time of less than 1 s would repeat attempts almost without pause.
    #[error("connect retry time is too short: set at least 1 s")]
    ConnectRetry,
    /// The Restart Time field has 12 bits.
    #[error("restart time {0:?} is too long: an OPEN carries at most 4095 s")]
    RestartTime(Duration),
    /// The long-lived stale time field has 24 bits.
    #[error("long-lived time {0:?} is too long: an OPEN carries at most 16777215 s")]
    LongLived(Duration),
    /// Without a family there is nothing to advertise.
    #[error("no address family: set ipv4-unicast, ipv6-unicast or both")]
    Families,
}

impl Settings {
    /// Creates settings with common defaults: connect retry 120 s, hold time 90 s, keepalive 30 s,
    /// both families.
    pub fn new(local_asn: u32, identifier: Ipv4Addr, peer: SocketAddr, peer_asn: u32) -> Settings {
        Settings {
            local_asn,
            peer_asn,
            identifier,
            peer,
            transport: Transport::default(),
            passive: false,
            connect_retry: Duration::from_secs(120),
            hold: Duration::from_secs(90),
            keepalive: Duration::from_secs(30),
            families: Family::ALL.to_vec(),
            extended_next_hop: false,
            graceful_restart: None,
            strict_bfd: false,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Returns the first error found.
    pub fn check(&self) -> Result<(), SettingsError> {
        let seconds = self.hold.as_secs();
        if self.local_asn == 0 {
            return Err(SettingsError::LocalAsn);
        }
        if self.identifier.is_unspecified() {
            return Err(SettingsError::Identifier);
        }
        if !matches!(seconds, 0 | 3..=65_535) || (seconds == 0 && !self.hold.is_zero()) {
            return Err(SettingsError::Hold(self.hold));
        }
        if seconds != 0 && (self.keepalive > self.hold || self.keepalive.is_zero()) {
            return Err(SettingsError::Keepalive(self.keepalive, self.hold));
        }
        if self.connect_retry < Duration::from_secs(1) {
            return Err(SettingsError::ConnectRetry);
        }
        if self.families.is_empty() {
            return Err(SettingsError::Families);
        }
        let Some(restart) = &self.graceful_restart else { return Ok(()) };
        let long_lived = restart.long_lived.unwrap_or_default();
        match (restart.time.as_secs(), long_lived.as_secs()) {
            (4_096.., _) => Err(SettingsError::RestartTime(restart.time)),
            (_, 16_777_216..) => Err(SettingsError::LongLived(long_lived)),
            _ => Ok(()),
        }
    }

    /// Returns whether a peer with this AS number is internal (iBGP).
    pub fn is_internal(&self, peer_asn: u32) -> bool {
        self.local_asn == peer_asn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_session_takes_a_new_md5_key_or_tcp_ao_keys_with_unused_ids() {
        let ao = |ids: (u8, u8), secret: &str| AoKey {
            send_id: ids.0,
            receive_id: ids.1,
            algorithm: AoAlgorithm::HmacSha1,
            secret: secret.to_owned(),
        };
        let with = |md5: Option<&str>, tcp_ao: Vec<AoKey>| {
            let md5 = md5.map(str::to_owned);
            Transport { md5, tcp_ao, ..Transport::default() }
        };
        let (none, md5) = (with(None, Vec::new()), with(Some("old"), Vec::new()));
        let first = with(None, vec![ao((1, 1), "old")]);
        assert!(md5.can_rekey_to(&with(Some("new"), Vec::new())));
        assert!(!md5.can_rekey_to(&none) && !none.can_rekey_to(&md5));
        assert!(!md5.can_rekey_to(&first) && !first.can_rekey_to(&md5));
        assert!(!first.can_rekey_to(&none));
        let both = with(None, vec![ao((2, 2), "new"), ao((1, 1), "old")]);
        let second = with(None, vec![ao((2, 2), "new")]);
        assert!(first.can_rekey_to(&both) && both.can_rekey_to(&second));
        assert!(both.can_rekey_to(&first) && first.can_rekey_to(&second));
        for ids in [(1, 1), (1, 2), (2, 1)] {
            assert!(!first.can_rekey_to(&with(None, vec![ao(ids, "new")])), "{ids:?}");
        }
    }
}
