//! BGP neighbors: address, session parameters and advertised routes.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attributes::PathAttributes;
use super::bfd::BfdSpec;
use super::bounds::within;
use crate::object::ChangeError;
use config::services::is_default;

/// Default TCP port of BGP.
const PORT: u16 = 179;
/// Maximum number of TCP-AO keys of a neighbor: sufficient for a key rotation in several steps.
const TCP_AO_KEYS_MAX: usize = 8;

/// BGP neighbor of a virtual router.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Neighbor {
    /// Address of the neighbor.
    pub address: IpAddr,
    /// Interface to which connections to the neighbor are bound. Required for a link-local address,
    /// which is valid on one link only. Default: chosen by the kernel.
    #[schemars(length(min = 1, max = 15))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub interface: Option<Box<str>>,
    /// TCP port of the neighbor, 1 to 65535. Default: 179.
    #[serde(default = "default_port", skip_serializing_if = "is_default_port")]
    pub port: u16,
    /// AS number of the neighbor; 0 accepts any. Default: 0.
    #[serde(default)]
    pub asn: u32,
    /// Source address of connections to the neighbor. Default: chosen by the kernel.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local_address: Option<IpAddr>,
    /// Only accept connections from the neighbor, never open one. Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub passive: bool,
    /// Maximum interval between attempts to connect, seconds, 1 to 65535; the first retries follow
    /// after 1, 2, 4, ... seconds. Default: 120.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "default_connect_retry_s")]
    pub connect_retry_s: u32,
    /// Hold time, seconds, 3 to 65535: the session ends if nothing is received for this long.
    /// Default: 90.
    #[schemars(range(min = 3, max = 65535))]
    #[serde(default = "default_hold_s")]
    pub hold_s: u32,
    /// Interval between keepalives, seconds, 1 to 65535, at most `hold_s`. Default: 30.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "default_keepalive_s")]
    pub keepalive_s: u32,
    /// Maximum number of hops to a neighbor in another autonomous system, 1 to 255. Default: 1.
    #[schemars(range(min = 1, max = 255))]
    #[serde(default = "default_hops", skip_serializing_if = "is_default_hops")]
    pub hops: u8,
    /// Accept only packets from at most `hops` hops away (GTSM, RFC 5082). The neighbor must enable
    /// it too. Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ttl_security: bool,
    /// TCP-MD5 key (RFC 2385). A changed key is replaced in the open session, which stays if the
    /// neighbor changes its key within the hold time. Default: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub password: Option<Password>,
    /// TCP-AO keys (RFC 5925), up to 8, instead of `password`; requires Linux 6.7 or later with
    /// CONFIG_TCP_AO. Connections are opened with the first key, and segments are accepted with
    /// any. A key with new IDs is added to the open session, and a key that is no longer listed is
    /// removed from it; a key that changes under the same IDs restarts the session.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(length(max = 8))]
    pub tcp_ao: Vec<TcpAoKey>,
    /// Next hops of the advertised routes, by address family. Default: the data port's addresses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub next_hop: NextHops,
    /// Allow IPv6 next hops for IPv4 routes (RFC 8950). Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub extended_next_hop: bool,
    /// Graceful restart: whether the neighbor keeps our routes during a restart.
    #[serde(default, skip_serializing_if = "is_default")]
    pub graceful_restart: GracefulRestartSpec,
    /// Address families of the session, and what is advertised in them. Default: IPv4 and IPv6
    /// unicast.
    #[serde(default = "default_families")]
    pub families: Vec<FamilySpec>,
    /// Bidirectional forwarding detection of the path to the neighbor.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bfd: BfdSpec,
}

impl Neighbor {
    /// Creates a neighbor with default timers and both address families.
    pub fn new(address: IpAddr, asn: u32) -> Neighbor {
        Neighbor {
            address,
            interface: None,
            port: PORT,
            asn,
            local_address: None,
            passive: false,
            connect_retry_s: default_connect_retry_s(),
            hold_s: default_hold_s(),
            keepalive_s: default_keepalive_s(),
            hops: default_hops(),
            ttl_security: false,
            password: None,
            tcp_ao: Vec::new(),
            next_hop: NextHops::default(),
            extended_next_hop: false,
            graceful_restart: GracefulRestartSpec::default(),
            families: default_families(),
            bfd: BfdSpec::default(),
        }
    }
}

fn default_port() -> u16 {
    PORT
}

fn is_default_port(port: &u16) -> bool {
    *port == PORT
}

fn default_connect_retry_s() -> u32 {
    120
}

fn default_hold_s() -> u32 {
    90
}

fn default_keepalive_s() -> u32 {
    30
}

fn default_hops() -> u8 {
    1
}

fn is_default_hops(hops: &u8) -> bool {
    *hops == default_hops()
}

fn default_families() -> Vec<FamilySpec> {
    [Family::Ipv4Unicast, Family::Ipv6Unicast].map(FamilySpec::new).to_vec()
}

/// Location of a TCP-MD5 or TCP-AO key, which is never part of the object itself: a file below the
/// directory `bgp.secrets` of the configuration. A neighbor whose key cannot be read keeps a
/// session whose keys were read from the same locations, with these keys; otherwise it has no
/// session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Password {
    /// Path of the file, relative to `bgp.secrets`.
    File(PathBuf),
    /// Name of a secret: the file is `password` in the subdirectory of this name.
    Secret(Box<str>),
}

impl Password {
    fn check(&self, at: &str) -> Result<(), ChangeError> {
        match self {
            Password::Secret(name)
                if name.is_empty() || name.contains('/') || name.starts_with('.') =>
            {
                let wrong = format!("`{name}` is not a valid secret name");
                let allowed = "write a name without `/` that does not begin with `.`; a path is \
                               `{\"file\": ...}`";
                Err(ChangeError::new(format!("{at}.secret"), wrong, allowed))
            }
            Password::Secret(_) | Password::File(_) => Ok(()),
        }
    }
}

/// TCP-AO key. The neighbor configures the same key with send ID and receive ID exchanged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpAoKey {
    /// KeyID of segments sent to the neighbor.
    pub send_id: u8,
    /// KeyID of segments received from the neighbor. Default: `send_id`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub receive_id: Option<u8>,
    /// Key derivation and message authentication algorithm (RFC 5926). Default: `hmac-sha-1-96`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub algorithm: TcpAoAlgorithm,
    /// Location of the master key, which has at most 80 bytes.
    pub key: Password,
}

impl TcpAoKey {
    /// Returns the KeyID of segments received from the neighbor.
    pub fn receive_id(&self) -> u8 {
        self.receive_id.unwrap_or(self.send_id)
    }
}

/// TCP-AO algorithms that every implementation supports (RFC 5926 section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum TcpAoAlgorithm {
    /// HMAC-SHA-1, truncated to 96 bits.
    #[default]
    #[serde(rename = "hmac-sha-1-96")]
    HmacSha1,
    /// AES-128-CMAC, 96 bits.
    #[serde(rename = "aes-128-cmac-96")]
    Aes128Cmac,
}

/// Next hops by address family of the route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NextHops {
    /// Next hop of IPv4 routes; an IPv6 address requires `extended_next_hop`.
    #[serde(skip_serializing_if = "is_default")]
    pub ipv4: Option<IpAddr>,
    /// Next hop of IPv6 routes.
    #[serde(skip_serializing_if = "is_default")]
    pub ipv6: Option<Ipv6Addr>,
}

/// Graceful restart, as offered to the neighbor (RFC 4724).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GracefulRestartSpec {
    /// Whether graceful restart is offered. Default: false.
    pub enabled: bool,
    /// Seconds for which the neighbor keeps our routes during a restart, 1 to 4095. Default: 120.
    #[schemars(range(min = 1, max = 4095))]
    pub restart_s: u32,
    /// Seconds for which the neighbor then keeps our routes as stale routes of least preference
    /// (RFC 9494), 0 to 16777215; 0 offers no long-lived graceful restart. Default: 0.
    #[schemars(range(min = 0, max = 16777215))]
    #[serde(skip_serializing_if = "is_default")]
    pub long_lived_s: u32,
}

impl Default for GracefulRestartSpec {
    fn default() -> GracefulRestartSpec {
        GracefulRestartSpec { enabled: false, restart_s: 120, long_lived_s: 0 }
    }
}

/// BGP address family.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
pub enum Family {
    /// IPv4 unicast (AFI 1, SAFI 1).
    #[serde(rename = "ipv4-unicast")]
    Ipv4Unicast,
    /// IPv6 unicast (AFI 2, SAFI 1).
    #[serde(rename = "ipv6-unicast")]
    Ipv6Unicast,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Ipv4Unicast => "ipv4-unicast",
            Family::Ipv6Unicast => "ipv6-unicast",
        })
    }
}

/// Address family of a session, and the routes advertised in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FamilySpec {
    /// The address family.
    pub family: Family,
    /// Names of the router's advertisements that the neighbor receives. Default: all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub advertisements: Option<Vec<Box<str>>>,
    /// Path attributes for this neighbor, in addition to those of the advertisements.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attributes: PathAttributes,
}

impl FamilySpec {
    /// Creates a family with all advertisements and no further attributes.
    pub fn new(family: Family) -> FamilySpec {
        FamilySpec { family, advertisements: None, attributes: PathAttributes::default() }
    }
}

impl Neighbor {
    /// Validates the neighbor of a router with this AS number.
    pub(super) fn check(&self, at: &str, local_asn: u32) -> Result<(), ChangeError> {
        unicast(&format!("{at}.address"), self.address)?;
        if let Some(local) = self.local_address {
            unicast(&format!("{at}.local_address"), local)?;
            if local.is_ipv4() != self.address.is_ipv4() {
                let wrong =
                    format!("{local} and {} are of different address families", self.address);
                let allowed = "write an address of the neighbor's family";
                return Err(ChangeError::new(format!("{at}.local_address"), wrong, allowed));
            }
        }
        self.check_interface(at)?;
        self.check_session(at)?;
        self.check_next_hops(at)?;
        let is_external = self.asn != 0 && self.asn != local_asn;
        for (i, family) in self.families.iter().enumerate() {
            let field = format!("{at}.families[{i}]");
            family.attributes.check(&format!("{field}.attributes"))?;
            if is_external && family.attributes.local_preference.is_some() {
                let wrong = format!(
                    "the neighbor is in AS {}, and LOCAL_PREF is sent within AS {local_asn} only",
                    self.asn
                );
                let allowed = "leave it out; write prepend or med for a neighbor in another AS";
                let field = format!("{field}.attributes.local_preference");
                return Err(ChangeError::new(field, wrong, allowed));
            }
        }
        Ok(())
    }

    /// Validates the interface, which a link-local address requires, and rejects multihop settings
    /// for such an address.
    fn check_interface(&self, at: &str) -> Result<(), ChangeError> {
        if let Some(name) = &self.interface
            && !is_interface(name)
        {
            let wrong = format!("`{name}` is not a valid interface name");
            let allowed =
                "allowed: 1 to 15 octets without spaces, `/` and `:`, as `ip link` shows it";
            return Err(ChangeError::new(format!("{at}.interface"), wrong, allowed));
        }
        if !is_link_local(self.address) {
            return Ok(());
        }
        if self.interface.is_none() {
            let wrong =
                format!("{} is a link-local address, and no interface is set", self.address);
            let allowed = "write the neighbor's interface, or another of its addresses";
            return Err(ChangeError::new(format!("{at}.interface"), wrong, allowed));
        }
        let multihop = [("hops", self.hops > 1), ("bfd.multihop", self.bfd.multihop)];
        match multihop.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((field, _)) => {
                let wrong =
                    format!("packets to the link-local address {} are not routed", self.address);
                let allowed = "leave it out, or write a routable address";
                Err(ChangeError::new(format!("{at}.{field}"), wrong, allowed))
            }
        }
    }

    /// Returns whether sessions to this neighbor and `other` cannot be distinguished: the neighbors
    /// have the same address, and neither their interfaces nor their local addresses differ. An
    /// interface or local address that is not set matches any.
    pub fn shares_session(&self, other: &Neighbor) -> bool {
        fn overlap<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        self.address == other.address
            && overlap(self.interface.as_ref(), other.interface.as_ref())
            && overlap(self.local_address.as_ref(), other.local_address.as_ref())
    }

    /// Returns the locations of the session's secrets: the TCP-MD5 key, or the TCP-AO keys in
    /// order.
    pub fn secrets(&self) -> impl Iterator<Item = &Password> {
        self.password.iter().chain(self.tcp_ao.iter().map(|ao| &ao.key))
    }

    fn check_keys(&self, at: &str) -> Result<(), ChangeError> {
        if let Some(password) = &self.password {
            password.check(&format!("{at}.password"))?;
            if !self.tcp_ao.is_empty() {
                let wrong = "`password` (TCP-MD5) is set as well";
                return Err(ChangeError::new(
                    format!("{at}.tcp_ao"),
                    wrong,
                    "leave one of them out",
                ));
            }
        }
        if self.tcp_ao.len() > TCP_AO_KEYS_MAX {
            let wrong = format!("{} are too many", self.tcp_ao.len());
            let allowed = format!("allowed: up to {TCP_AO_KEYS_MAX}");
            return Err(ChangeError::new(format!("{at}.tcp_ao"), wrong, allowed));
        }
        for (i, key) in self.tcp_ao.iter().enumerate() {
            let field = |name: &str| format!("{at}.tcp_ao[{i}].{name}");
            key.key.check(&field("key"))?;
            let before = &self.tcp_ao[..i];
            let duplicate = if before.iter().any(|other| other.send_id == key.send_id) {
                Some(("send_id", key.send_id))
            } else if before.iter().any(|other| other.receive_id() == key.receive_id()) {
                Some(("receive_id", key.receive_id()))
            } else {
                None
            };
            if let Some((name, id)) = duplicate {
                let wrong = format!("{id} is used by another key of this neighbor");
                let allowed = "give each key its own IDs (RFC 5925 section 3.1)";
                return Err(ChangeError::new(field(name), wrong, allowed));
            }
        }
        Ok(())
    }

    /// Validates the session parameters: the fields that do not depend on the neighbor's address.
    pub(crate) fn check_session(&self, at: &str) -> Result<(), ChangeError> {
        let field = |name: &str| format!("{at}.{name}");
        within(&field("port"), self.port.into(), 1, 65_535)?;
        within(&field("connect_retry_s"), self.connect_retry_s, 1, 65_535)?;
        within(&field("hold_s"), self.hold_s, 3, 65_535)?;
        within(&field("keepalive_s"), self.keepalive_s, 1, 65_535)?;
        if self.keepalive_s > self.hold_s {
            let wrong = format!("{} s is longer than hold_s, {} s", self.keepalive_s, self.hold_s);
            let allowed = "write a third of hold_s, or less";
            return Err(ChangeError::new(field("keepalive_s"), wrong, allowed));
        }
        within(&field("hops"), self.hops.into(), 1, 255)?;
        let restart = &self.graceful_restart;
        within(&field("graceful_restart.restart_s"), restart.restart_s, 1, 4_095)?;
        let long_lived = field("graceful_restart.long_lived_s");
        within(&long_lived, restart.long_lived_s, 0, (1 << 24) - 1)?;
        if restart.long_lived_s > 0 && !restart.enabled {
            let wrong = "it requires graceful restart, which is not enabled";
            return Err(ChangeError::new(long_lived, wrong, "enable graceful_restart"));
        }
        self.check_keys(at)?;
        if self.families.is_empty() {
            let allowed = "write ipv4-unicast, ipv6-unicast or both";
            return Err(ChangeError::new(field("families"), "the list is empty", allowed));
        }
        for (i, one) in self.families.iter().enumerate() {
            if self.families[..i].iter().any(|before| before.family == one.family) {
                let wrong = format!("{} is listed twice", one.family);
                let field = field(&format!("families[{i}].family"));
                return Err(ChangeError::new(field, wrong, "remove one of them"));
            }
        }
        self.bfd.check(&field("bfd"))
    }

    fn check_next_hops(&self, at: &str) -> Result<(), ChangeError> {
        let v6 = self.next_hop.ipv6.map(IpAddr::V6);
        for (name, address) in [("ipv4", self.next_hop.ipv4), ("ipv6", v6)] {
            let Some(address) = address else { continue };
            let field = format!("{at}.next_hop.{name}");
            unicast(&field, address)?;
            if name == "ipv4" && address.is_ipv6() && !self.extended_next_hop {
                let wrong = format!("{address} is not an IPv4 address");
                let allowed =
                    "write one, or set extended_next_hop if the neighbor supports RFC 8950";
                return Err(ChangeError::new(field, wrong, allowed));
            }
        }
        Ok(())
    }
}

/// Returns whether an address is link-local (RFC 4291 section 2.5.6).
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(six) if six.is_unicast_link_local())
}

/// Returns whether a text is a valid interface name: the kernel accepts it (`dev_valid_name`), and
/// it has no control characters.
fn is_interface(name: &str) -> bool {
    let is_invalid = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
    (1..=15).contains(&name.len()) && !name.contains(is_invalid) && !matches!(name, "." | "..")
}

fn unicast(field: &str, address: IpAddr) -> Result<(), ChangeError> {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    match address.is_unspecified() || address.is_multicast() || broadcast {
        true => {
            let wrong = format!("{address} is not a unicast address");
            Err(ChangeError::new(field, wrong, "write a unicast address"))
        }
        false => Ok(()),
    }
}
