//! Capabilities of an OPEN (RFC 5492): what a speaker can, by code, length and value.

use super::family::Family;
use super::notification::{Fault, Notification};
use super::read::Reader;

/// Numbers of the capabilities that we speak.
pub mod code {
    /// RFC 4760.
    pub const MULTIPROTOCOL: u8 = 1;
    /// RFC 2918.
    pub const ROUTE_REFRESH: u8 = 2;
    /// RFC 8950.
    pub const EXTENDED_NEXT_HOP: u8 = 5;
    /// RFC 8654.
    pub const EXTENDED_MESSAGE: u8 = 6;
    /// RFC 4724.
    pub const GRACEFUL_RESTART: u8 = 64;
    /// RFC 6793.
    pub const FOUR_OCTET_AS: u8 = 65;
    /// RFC 7313.
    pub const ENHANCED_REFRESH: u8 = 70;
    /// RFC 9494.
    pub const LONG_LIVED: u8 = 71;
}

/// One capability.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Capability {
    /// A family by AFI and SAFI.
    Multiprotocol(u16, u8),
    /// Answers ROUTE-REFRESH.
    RouteRefresh,
    /// AFI and SAFI of prefixes, AFI of the next hops that they may have.
    ExtendedNextHop(Vec<(u16, u16, u16)>),
    /// Takes messages up to 65,535 octets.
    ExtendedMessage,
    /// Keeps forwarding while its control plane restarts.
    GracefulRestart(GracefulRestart),
    /// Its number, all 4 octets of it.
    FourOctetAs(u32),
    /// Marks begin and end of an answer to ROUTE-REFRESH.
    EnhancedRefresh,
    /// Wants its routes kept longer still: AFI, SAFI, whether it kept forwarding, seconds.
    LongLived(Vec<(u16, u8, bool, u32)>),
    /// Not ours to know, or known and not as it should be: ignored.
    Unknown(u8, Vec<u8>),
}

/// The value of the graceful restart capability.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GracefulRestart {
    /// R: it has restarted, don't wait for its End-of-RIB.
    pub restarted: bool,
    /// N: a notification doesn't end graceful restart, only a hard reset does (RFC 8538).
    pub notification: bool,
    /// How long it may take to come back, in seconds, 12 bits.
    pub time: u16,
    /// AFI, SAFI, F: forwarding was kept.
    pub families: Vec<(u16, u8, bool)>,
}

const RESTARTED: u16 = 0x8000;
const NOTIFICATION: u16 = 0x4000;
const FORWARDING: u8 = 0x80;

impl Capability {
    /// The number of it.
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

    /// That we speak `family`.
    pub fn family(family: Family) -> Capability {
        Capability::Multiprotocol(family.afi(), family.safi())
    }

    /// Code, length, value.
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

    /// All capabilities of one optional parameter. One that reaches past its end makes the
    /// parameter malformed; one whose value isn't as it should be is ignored (RFC 5492).
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
