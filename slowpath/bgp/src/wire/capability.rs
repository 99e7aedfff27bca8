//! Capabilities of an OPEN (RFC 5492).

use super::family::Family;
use super::notification::{Fault, Notification};
use super::read::Reader;

/// Codes of the supported capabilities.
pub mod code {
    /// Multiprotocol Extensions (RFC 4760).
    pub const MULTIPROTOCOL: u8 = 1;
    /// Route Refresh (RFC 2918).
    pub const ROUTE_REFRESH: u8 = 2;
    /// Extended Next Hop Encoding (RFC 8950).
    pub const EXTENDED_NEXT_HOP: u8 = 5;
    /// Extended Message (RFC 8654).
    pub const EXTENDED_MESSAGE: u8 = 6;
    /// Graceful Restart (RFC 4724).
    pub const GRACEFUL_RESTART: u8 = 64;
    /// 4-octet AS number (RFC 6793).
    pub const FOUR_OCTET_AS: u8 = 65;
    /// Enhanced Route Refresh (RFC 7313).
    pub const ENHANCED_REFRESH: u8 = 70;
    /// Long-Lived Graceful Restart (RFC 9494).
    pub const LONG_LIVED: u8 = 71;
}

/// A capability.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Capability {
    /// Supports a family, by AFI and SAFI.
    Multiprotocol(u16, u8),
    /// Accepts ROUTE-REFRESH.
    RouteRefresh,
    /// AFI and SAFI of prefixes, and AFI of the next hops that they may have.
    ExtendedNextHop(Vec<(u16, u16, u16)>),
    /// Accepts messages of up to 65,535 octets.
    ExtendedMessage,
    /// Supports graceful restart.
    GracefulRestart(GracefulRestart),
    /// The 4-octet AS number.
    FourOctetAs(u32),
    /// Marks beginning and end of a route refresh.
    EnhancedRefresh,
    /// Long-lived graceful restart, by family: AFI, SAFI, whether forwarding state was preserved,
    /// stale time in seconds.
    LongLived(Vec<(u16, u8, bool, u32)>),
    /// Unknown code, or malformed value of a known one: ignored.
    Unknown(u8, Vec<u8>),
}

/// Value of the graceful restart capability.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GracefulRestart {
    /// R: the speaker has restarted; the peer must not wait for its End-of-RIB before it sends
    /// routes.
    pub restarted: bool,
    /// N: graceful restart also applies to NOTIFICATIONs other than a hard reset (RFC 8538).
    pub notification: bool,
    /// Restart Time in seconds, 12 bits.
    pub time: u16,
    /// AFI, SAFI and F (forwarding state preserved).
    pub families: Vec<(u16, u8, bool)>,
}

/// R flag, in the first 16 bits of the graceful restart capability (RFC 4724).
const RESTARTED: u16 = 0x8000;
/// N flag, in the same 16 bits (RFC 8538).
const NOTIFICATION: u16 = 0x4000;
/// F flag of a family, in both graceful restart capabilities (RFC 4724, RFC 9494).
const FORWARDING: u8 = 0x80;

impl Capability {
    /// Returns the capability code.
    pub fn code(&self) -> u8 {
        match self {
            Capability::Multiprotocol(..) => code::MULTIPROTOCOL,
            Capability::RouteRefresh => code::ROUTE_REFRESH,
            Capability::ExtendedNextHop(_) => code::EXTENDED_NEXT_HOP,
            Capability::ExtendedMessage => code::EXTENDED_MESSAGE,
            Capability::GracefulRestart(_) => code::GRACEFUL_RESTART,
            Capability::FourOctetAs(_) => code::FOUR_OCTET_AS,
            Capability::EnhancedRefresh => code::ENHANCED_REFRESH,
            Capability::LongLived(_) => code::LONG_LIVED,
            Capability::Unknown(code, _) => *code,
        }
    }

    /// Returns the multiprotocol capability for `family`.
    pub fn family(family: Family) -> Capability {
        Capability::Multiprotocol(family.afi(), family.safi())
    }

    /// Appends code, length and value. A value of more than 255 octets is truncated.
    pub fn write(&self, to: &mut Vec<u8>) {
        let value = self.value();
        let length = value.len().min(255);
        to.extend_from_slice(&[self.code(), length as u8]);
        to.extend_from_slice(&value[..length]);
    }

    fn value(&self) -> Vec<u8> {
        let mut value = Vec::new();
        match self {
            Capability::Multiprotocol(afi, safi) => {
                value.extend_from_slice(&afi.to_be_bytes());
                value.extend_from_slice(&[0, *safi]);
            }
            Capability::ExtendedNextHop(entries) => {
                for (afi, safi, next_hop) in entries {
                    for part in [afi, safi, next_hop] {
                        value.extend_from_slice(&part.to_be_bytes());
                    }
                }
            }
            Capability::GracefulRestart(restart) => {
                let flags = u16::from(restart.restarted) * RESTARTED
                    + u16::from(restart.notification) * NOTIFICATION;
                value.extend_from_slice(&(flags | (restart.time & 0xfff)).to_be_bytes());
                for (afi, safi, forwarding) in &restart.families {
                    value.extend_from_slice(&afi.to_be_bytes());
                    value.extend_from_slice(&[*safi, u8::from(*forwarding) * FORWARDING]);
                }
            }
            Capability::FourOctetAs(asn) => value.extend_from_slice(&asn.to_be_bytes()),
            Capability::LongLived(entries) => {
                for (afi, safi, forwarding, seconds) in entries {
                    value.extend_from_slice(&afi.to_be_bytes());
                    value.extend_from_slice(&[*safi, u8::from(*forwarding) * FORWARDING]);
                    value.extend_from_slice(&seconds.to_be_bytes()[1..]);
                }
            }
            Capability::Unknown(_, octets) => value.extend_from_slice(octets),
            Capability::RouteRefresh
            | Capability::ExtendedMessage
            | Capability::EnhancedRefresh => {}
        }
        value
    }

    /// Decodes all capabilities of one optional parameter. A capability that exceeds the parameter
    /// is an error; one with a malformed value becomes [`Capability::Unknown`] (RFC 5492).
    pub fn read_all(value: &[u8], to: &mut Vec<Capability>) -> Result<(), Fault> {
        let mut reader = Reader(value);
        while !reader.is_empty() {
            let capability = reader.u8().and_then(|code| {
                let length = reader.u8()?;
                Some((code, reader.take(length.into())?))
            });
            let (code, value) = capability.ok_or_else(|| Notification::new(2, 0, Vec::new()))?;
            let known = Capability::known(code, Reader(value));
            to.push(known.unwrap_or_else(|| Capability::Unknown(code, value.to_vec())));
        }
        Ok(())
    }

    fn known(code: u8, mut value: Reader<'_>) -> Option<Capability> {
        let capability = match code {
            code::MULTIPROTOCOL => {
                let (afi, [_, safi]) = (value.u16()?, value.array()?);
                Capability::Multiprotocol(afi, safi)
            }
            code::ROUTE_REFRESH => Capability::RouteRefresh,
            code::EXTENDED_NEXT_HOP => {
                let mut entries = Vec::new();
                while !value.is_empty() {
                    entries.push((value.u16()?, value.u16()?, value.u16()?));
                }
                Capability::ExtendedNextHop(entries)
            }
            code::EXTENDED_MESSAGE => Capability::ExtendedMessage,
            code::GRACEFUL_RESTART => {
                let head = value.u16()?;
                let mut families = Vec::new();
                while !value.is_empty() {
                    let (afi, [safi, flags]) = (value.u16()?, value.array()?);
                    families.push((afi, safi, flags & FORWARDING != 0));
                }
                Capability::GracefulRestart(GracefulRestart {
                    restarted: head & RESTARTED != 0,
                    notification: head & NOTIFICATION != 0,
                    time: head & 0xfff,
                    families,
                })
            }
            code::FOUR_OCTET_AS => Capability::FourOctetAs(value.u32()?),
            code::ENHANCED_REFRESH => Capability::EnhancedRefresh,
            code::LONG_LIVED => {
                let mut entries = Vec::new();
                while !value.is_empty() {
                    let (afi, [safi, flags, a, b, c]) = (value.u16()?, value.array()?);
                    let seconds = u32::from_be_bytes([0, a, b, c]);
                    entries.push((afi, safi, flags & FORWARDING != 0, seconds));
                }
                Capability::LongLived(entries)
            }
            _ => return None,
        };
        Some(capability).filter(|_| value.is_empty())
    }
}
