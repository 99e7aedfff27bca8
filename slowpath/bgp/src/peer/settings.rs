//! What is configured for a peer. The machine reads it and never changes it; whoever changes it
//! makes a new [`super::Peer`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::wire::Family;

/// Settings of one peer. Checked where they are read: see [`Settings::check`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Our number.
    pub local_asn: u32,
    /// The peer's number; 0 takes any.
    pub peer_asn: u32,
    /// Our BGP identifier.
    pub identifier: Ipv4Addr,
    /// Where the peer is.
    pub peer: SocketAddr,
    /// What the speaker does with sockets; nothing here looks at it.
    pub transport: Transport,
    /// Never connect, only be connected to.
    pub passive: bool,
    /// From one attempt to connect to the next, at most: the first follow after 1 s, 2 s, 4 s ...
    pub connect_retry: Duration,
    /// How long silence is taken for life: 3 s to 65,535 s, or 0 for ever.
    pub hold: Duration,
    /// From one keepalive to the next at most; a third of the hold time that was agreed on at most.
    pub keepalive: Duration,
    /// What is spoken.
    pub families: Vec<Family>,
    /// Whether IPv4 prefixes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// Whether routes outlive a restart.
    pub graceful_restart: Option<GracefulRestart>,
    /// Wait for BFD before connecting, once it was down.
    pub strict_bfd: bool,
}

/// How graceful restart is offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GracefulRestart {
    /// How long the peer keeps our routes while we are away: up to 4,095 s.
    pub time: Duration,
    /// How much longer than that it keeps them as a last resort (RFC 9494): up to 2^24 - 1 s.
    pub long_lived: Option<Duration>,
    /// We come back from a restart, with tables that lived on. Told to peers until each has all.
    pub restarted: bool,
    /// The data plane went on forwarding while this process was away; else a peer forgets at once
    /// what it has of us. Told until each has all: from then on it is so.
    pub forwarding: bool,
}

/// What the speaker does with sockets.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Transport {
    /// From which address to connect.
    pub local: Option<IpAddr>,
    /// The key of TCP-MD5 (RFC 2385).
    pub md5: Option<String>,
    /// Keys of TCP-AO (RFC 5925), not together with `md5`. Connections are opened with the first;
    /// segments are accepted with any of them.
    pub tcp_ao: Vec<AoKey>,
    /// Hops to an external peer; 1 is a neighbour.
    pub hops: Option<u8>,
    /// Take only what comes from `hops` away at most (RFC 5082).
    pub ttl_security: bool,
}

/// A master key tuple of TCP-AO (RFC 5925 section 3.1).
#[derive(Clone, PartialEq, Eq)]
pub struct AoKey {
    /// KeyID of segments to the peer.
    pub send_id: u8,
    /// KeyID of segments from the peer.
    pub receive_id: u8,
    /// Both of its algorithms: key derivation and message authentication (RFC 5926).
    pub algorithm: AoAlgorithm,
    /// The master key, up to 80 bytes.
    pub secret: String,
}

/// The algorithms of RFC 5926, each with a code of 96 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AoAlgorithm {
    /// HMAC-SHA-1-96.
    HmacSha1,
    /// AES-128-CMAC-96.
    Aes128Cmac,
}

impl std::fmt::Debug for AoKey {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AoKey")
            .field("send_id", &self.send_id)
            .field("receive_id", &self.receive_id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Transport {
    /// Leaves the key out.
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

/// What is wrong with settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// RFC 7607.
    #[error("local ASN 0 is no autonomous system: give one from 1 to 4294967295")]
    LocalAsn,
    /// RFC 6286.
    #[error("router id 0.0.0.0 identifies nobody: give any other, unique among your routers")]
    Identifier,
    /// RFC 4271 section 4.2.
    #[error("hold time {0:?} is neither 0 nor from 3 s to 65535 s")]
    Hold(Duration),
    /// A third of the hold time at most is useful; above it the session can't live.
    #[error("keepalive time {0:?} is longer than the hold time {1:?}: make it a third of it")]
    Keepalive(Duration, Duration),
    /// Zero would try without end.
    #[error("connect retry time 0 would never rest: give at least 1 s")]
    ConnectRetry,
    /// 12 bits.
    #[error("restart time {0:?} is longer than 4095 s, the most that an OPEN can say")]
    RestartTime(Duration),
    /// 24 bits.
    #[error("long-lived time {0:?} is longer than 16777215 s, the most that an OPEN can say")]
    LongLived(Duration),
    /// There would be nothing to say.
    #[error("no family: name at least one of ipv4-unicast and ipv6-unicast")]
    Families,
}

impl Settings {
    /// With the usual times, both families and nothing else.
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

    /// What is wrong, first things first.
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

    /// Whether a peer of this number is of our own autonomous system.
    pub fn is_internal(&self, peer_asn: u32) -> bool {
        self.local_asn == peer_asn
    }
}
