//! A neighbor: where it is, how the session to it is, what it is told.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attributes::PathAttributes;
use super::bfd::BfdSpec;
use super::bounds::within;
use crate::object::Refusal;
use config::services::is_default;

/// The port of BGP.
const PORT: u16 = 179;
/// Keys of TCP-AO of one neighbor: enough for a rotation in several steps.
const TCP_AO_KEYS_MAX: usize = 8;

/// A router to which one of ours speaks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// The interface by which alone it is reached; the kernel's choice where it is left out. A
    /// link-local address counts on one network only, and needs it.
    #[schemars(length(min = 1, max = 15))]
    #[serde(default, skip_serializing_if = "is_default")]
    pub interface: Option<Box<str>>,
    /// Its port.
    #[serde(default = "port", skip_serializing_if = "is_port")]
    pub port: u16,
    /// Number of its autonomous system; 0 for any.
    #[serde(default)]
    pub asn: u32,
    /// The address from which we connect; the kernel's choice where it is left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local_address: Option<IpAddr>,
    /// Never connect, only be connected to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub passive: bool,
    /// Seconds from one attempt to connect to the next, at most: the first follow after 1, 2, 4 ...
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "connect_retry")]
    pub connect_retry_s: u32,
    /// Seconds for which silence is taken for life.
    #[schemars(range(min = 3, max = 65535))]
    #[serde(default = "hold")]
    pub hold_s: u32,
    /// Seconds from one keepalive to the next, `hold_s` at most.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "keepalive")]
    pub keepalive_s: u32,
    /// Hops to a neighbor of another autonomous system.
    #[schemars(range(min = 1, max = 255))]
    #[serde(default = "hops", skip_serializing_if = "is_one")]
    pub hops: u8,
    /// Take only what comes from `hops` away at most (RFC 5082). The neighbor has to do so too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ttl_security: bool,
    /// The key of TCP-MD5; none where it is left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub password: Option<Password>,
    /// Keys of TCP-AO (RFC 5925) in place of `password`, up to 8; needs Linux 6.7 or later with
    /// CONFIG_TCP_AO. Connections are opened with the first, segments are accepted with any. A
    /// change begins the session anew.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(length(max = 8))]
    pub tcp_ao: Vec<TcpAoKey>,
    /// The next hop of what it is told, by family; the data port's address where it is left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub next_hop: NextHops,
    /// IPv4 routes may have IPv6 next hops (RFC 8950).
    #[serde(default, skip_serializing_if = "is_default")]
    pub extended_next_hop: bool,
    /// Whether our routes outlive a restart of ours.
    #[serde(default, skip_serializing_if = "is_default")]
    pub graceful_restart: GracefulRestartSpec,
    /// What is spoken, and what is told of it.
    #[serde(default = "families")]
    pub families: Vec<FamilySpec>,
    /// Whether the way to it is watched.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bfd: BfdSpec,
}

impl Neighbor {
    /// One with the usual times, both families and nothing else.
    pub fn new(address: IpAddr, asn: u32) -> Neighbor {
        Neighbor {
            address,
            interface: None,
            port: PORT,
            asn,
            local_address: None,
            passive: false,
            connect_retry_s: connect_retry(),
            hold_s: hold(),
            keepalive_s: keepalive(),
            hops: hops(),
            ttl_security: false,
            password: None,
            tcp_ao: Vec::new(),
            next_hop: NextHops::default(),
            extended_next_hop: false,
            graceful_restart: GracefulRestartSpec::default(),
            families: families(),
            bfd: BfdSpec::default(),
        }
    }
}

fn port() -> u16 {
    PORT
}

fn is_port(port: &u16) -> bool {
    *port == PORT
}

fn connect_retry() -> u32 {
    120
}

fn hold() -> u32 {
    90
}

fn keepalive() -> u32 {
    30
}

fn hops() -> u8 {
    1
}

fn is_one(hops: &u8) -> bool {
    *hops == 1
}

fn families() -> Vec<FamilySpec> {
    [Family::Ipv4Unicast, Family::Ipv6Unicast].map(FamilySpec::new).to_vec()
}

/// Where a password is; it is never in the object. Either is read below the folder `bgp.secrets`
/// of the configuration. Without it there is no session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Password {
    /// In a file of its own: a path in that folder.
    File(PathBuf),
    /// In a secret, as its key `password`: a file of that name in the secret's folder.
    Secret(Box<str>),
}

impl Password {
    fn check(&self, at: &str) -> Result<(), Refusal> {
        match self {
            Password::Secret(name)
                if name.is_empty() || name.contains('/') || name.starts_with('.') =>
            {
                let wrong = format!("`{name}` is no name of a secret");
                let allowed = "write a name without `/`; a path is `{\"file\": ...}`";
                Err(Refusal::new(format!("{at}.secret"), wrong, allowed))
            }
            Password::Secret(_) | Password::File(_) => Ok(()),
        }
    }
}

/// A key of TCP-AO; the neighbor has the same with the two ids exchanged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpAoKey {
    /// KeyID of segments to the neighbor.
    pub send_id: u8,
    /// KeyID of segments from the neighbor; `send_id` where it is left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub receive_id: Option<u8>,
    /// Key derivation and message authentication (RFC 5926).
    #[serde(default, skip_serializing_if = "is_default")]
    pub algorithm: TcpAoAlgorithm,
    /// Where the master key is, 80 bytes at most.
    pub key: Password,
}

impl TcpAoKey {
    /// KeyID of segments from the neighbor.
    pub fn receive_id(&self) -> u8 {
        self.receive_id.unwrap_or(self.send_id)
    }
}

/// The algorithms of TCP-AO that every implementation has (RFC 5926 section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum TcpAoAlgorithm {
    /// HMAC-SHA-1, 96 bits.
    #[default]
    #[serde(rename = "hmac-sha-1-96")]
    HmacSha1,
    /// AES-128-CMAC, 96 bits.
    #[serde(rename = "aes-128-cmac-96")]
    Aes128Cmac,
}

/// An address where to send, by the family of the route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NextHops {
    /// Of IPv4 routes; an IPv6 address where `extended_next_hop` is set.
    #[serde(skip_serializing_if = "is_default")]
    pub ipv4: Option<IpAddr>,
    /// Of IPv6 routes.
    #[serde(skip_serializing_if = "is_default")]
    pub ipv6: Option<Ipv6Addr>,
}

/// How graceful restart is offered (RFC 4724).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GracefulRestartSpec {
    /// Whether it is.
    pub enabled: bool,
    /// Seconds for which the neighbor keeps our routes while we are away.
    #[schemars(range(min = 1, max = 4095))]
    pub restart_s: u32,
    /// Seconds for which it then keeps them as a last resort (RFC 9494); 0 for none.
    #[schemars(range(min = 0, max = 16777215))]
    #[serde(skip_serializing_if = "is_default")]
    pub long_lived_s: u32,
}

impl Default for GracefulRestartSpec {
    fn default() -> GracefulRestartSpec {
        GracefulRestartSpec { enabled: false, restart_s: 120, long_lived_s: 0 }
    }
}

/// An address family of BGP.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
pub enum Family {
    /// AFI 1, SAFI 1.
    #[serde(rename = "ipv4-unicast")]
    Ipv4Unicast,
    /// AFI 2, SAFI 1.
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

/// A family that is spoken with a neighbor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FamilySpec {
    /// Which.
    pub family: Family,
    /// Names of the router's advertisements that it is told; all where it is left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub advertisements: Option<Vec<Box<str>>>,
    /// What is said of them to this neighbor, beside what the advertisements say.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attributes: PathAttributes,
}

impl FamilySpec {
    /// With all advertisements, of which nothing more is said.
    pub fn new(family: Family) -> FamilySpec {
        FamilySpec { family, advertisements: None, attributes: PathAttributes::default() }
    }
}

impl Neighbor {
    /// What is wrong with it as a neighbor of a router of this number.
    pub(super) fn check(&self, at: &str, local_asn: u32) -> Result<(), Refusal> {
        unicast(&format!("{at}.address"), self.address)?;
        if let Some(local) = self.local_address {
            unicast(&format!("{at}.local_address"), local)?;
            if local.is_ipv4() != self.address.is_ipv4() {
                let wrong = format!("{local} and {} are of two families", self.address);
                let allowed = "write an address of the neighbor's family";
                return Err(Refusal::new(format!("{at}.local_address"), wrong, allowed));
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
                    "the neighbor is of AS {}, and LOCAL_PREF is said within AS {local_asn} only",
                    self.asn
                );
                let allowed = "leave it out; write prepend or med for a neighbor elsewhere";
                let field = format!("{field}.attributes.local_preference");
                return Err(Refusal::new(field, wrong, allowed));
            }
        }
        Ok(())
    }

    /// Whether it is said where a neighbor is, as far as an address alone doesn't.
    fn check_interface(&self, at: &str) -> Result<(), Refusal> {
        if let Some(name) = &self.interface
            && !is_interface(name)
        {
            let wrong = format!("`{name}` is no interface's name");
            let allowed =
                "allowed: 1 to 15 octets without spaces, `/` and `:`, as `ip link` has it";
            return Err(Refusal::new(format!("{at}.interface"), wrong, allowed));
        }
        if !is_link_local(self.address) {
            return Ok(());
        }
        if self.interface.is_none() {
            let wrong =
                format!("{} is there on every network, and no interface is said", self.address);
            let allowed = "write the neighbor's interface, or another address of it";
            return Err(Refusal::new(format!("{at}.interface"), wrong, allowed));
        }
        let near = [("hops", self.hops > 1), ("bfd.multihop", self.bfd.multihop)];
        match near.into_iter().find(|(_, far)| *far) {
            None => Ok(()),
            Some((field, _)) => {
                let wrong = format!("nobody routes packets of {}", self.address);
                let allowed = "leave it out, or write an address that is routed";
                Err(Refusal::new(format!("{at}.{field}"), wrong, allowed))
            }
        }
    }

    /// Whether this and `other`, of one address, can't be told apart by interface or by the
    /// address from which they are spoken to.
    pub fn shares_session(&self, other: &Neighbor) -> bool {
        fn meet<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        self.address == other.address
            && meet(self.interface.as_ref(), other.interface.as_ref())
            && meet(self.local_address.as_ref(), other.local_address.as_ref())
    }

    /// Returns where the secrets of its session are: the TCP-MD5 key, or the TCP-AO keys in order.
    pub fn secrets(&self) -> impl Iterator<Item = &Password> {
        self.password.iter().chain(self.tcp_ao.iter().map(|ao| &ao.key))
    }

    fn check_keys(&self, at: &str) -> Result<(), Refusal> {
        if let Some(password) = &self.password {
            password.check(&format!("{at}.password"))?;
            if !self.tcp_ao.is_empty() {
                let wrong = "`password` (TCP-MD5) is set as well";
                return Err(Refusal::new(format!("{at}.tcp_ao"), wrong, "leave one of them out"));
            }
        }
        if self.tcp_ao.len() > TCP_AO_KEYS_MAX {
            let wrong = format!("there are {}", self.tcp_ao.len());
            let allowed = format!("allowed: up to {TCP_AO_KEYS_MAX}");
            return Err(Refusal::new(format!("{at}.tcp_ao"), wrong, allowed));
        }
        for (i, key) in self.tcp_ao.iter().enumerate() {
            let field = |name: &str| format!("{at}.tcp_ao[{i}].{name}");
            key.key.check(&field("key"))?;
            let before = &self.tcp_ao[..i];
            let twice = if before.iter().any(|other| other.send_id == key.send_id) {
                Some(("send_id", key.send_id))
            } else if before.iter().any(|other| other.receive_id() == key.receive_id()) {
                Some(("receive_id", key.receive_id()))
            } else {
                None
            };
            if let Some((name, id)) = twice {
                let wrong = format!("{id} is that of another key of this neighbor");
                let allowed = "give each key ids of its own (RFC 5925 section 3.1)";
                return Err(Refusal::new(field(name), wrong, allowed));
            }
        }
        Ok(())
    }

    /// What is wrong with the session to it, wherever it is.
    pub(crate) fn check_session(&self, at: &str) -> Result<(), Refusal> {
        let field = |name: &str| format!("{at}.{name}");
        within(&field("port"), self.port.into(), 1, 65_535)?;
        within(&field("connect_retry_s"), self.connect_retry_s, 1, 65_535)?;
        within(&field("hold_s"), self.hold_s, 3, 65_535)?;
        within(&field("keepalive_s"), self.keepalive_s, 1, 65_535)?;
        if self.keepalive_s > self.hold_s {
            let wrong = format!("{} s is longer than hold_s, {} s", self.keepalive_s, self.hold_s);
            let allowed = "write a third of hold_s, or less";
            return Err(Refusal::new(field("keepalive_s"), wrong, allowed));
        }
        within(&field("hops"), self.hops.into(), 1, 255)?;
        let restart = &self.graceful_restart;
        within(&field("graceful_restart.restart_s"), restart.restart_s, 1, 4_095)?;
        let long_lived = field("graceful_restart.long_lived_s");
        within(&long_lived, restart.long_lived_s, 0, (1 << 24) - 1)?;
        if restart.long_lived_s > 0 && !restart.enabled {
            let wrong = "it is of graceful restart, which is not enabled";
            return Err(Refusal::new(long_lived, wrong, "enable graceful_restart"));
        }
        self.check_keys(at)?;
        if self.families.is_empty() {
            let allowed = "write ipv4-unicast, ipv6-unicast or both";
            return Err(Refusal::new(field("families"), "there is none", allowed));
        }
        for (i, one) in self.families.iter().enumerate() {
            if self.families[..i].iter().any(|before| before.family == one.family) {
                let wrong = format!("{} is there twice", one.family);
                let field = field(&format!("families[{i}].family"));
                return Err(Refusal::new(field, wrong, "remove one of them"));
            }
        }
        self.bfd.check(&field("bfd"))
    }

    fn check_next_hops(&self, at: &str) -> Result<(), Refusal> {
        let v6 = self.next_hop.ipv6.map(IpAddr::V6);
        for (name, address) in [("ipv4", self.next_hop.ipv4), ("ipv6", v6)] {
            let Some(address) = address else { continue };
            let field = format!("{at}.next_hop.{name}");
            unicast(&field, address)?;
            if name == "ipv4" && address.is_ipv6() && !self.extended_next_hop {
                let wrong = format!("{address} is no IPv4 address");
                let allowed = "write one, or set extended_next_hop if the neighbor has RFC 8950";
                return Err(Refusal::new(field, wrong, allowed));
            }
        }
        Ok(())
    }
}

/// Whether an address counts on one network only (RFC 4291, 2.5.6).
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(six) if six.is_unicast_link_local())
}

/// What the kernel takes (`dev_valid_name`).
fn is_interface(name: &str) -> bool {
    let strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
    (1..=15).contains(&name.len()) && !name.contains(strange) && !matches!(name, "." | "..")
}

fn unicast(field: &str, address: IpAddr) -> Result<(), Refusal> {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    match address.is_unspecified() || address.is_multicast() || broadcast {
        true => {
            let wrong = format!("{address} is nobody's address");
            Err(Refusal::new(field, wrong, "write a unicast address"))
        }
        false => Ok(()),
    }
}
