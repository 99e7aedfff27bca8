//! Decoding of UPDATEs (RFC 4271 sections 4.3 and 6.3, RFC 4760) with the error handling of RFC
//! 7606. Routes are not installed, but errors are treated with the required severity, so that
//! counters are right and a session ends when it must.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr};

use super::attribute::{self, Malformed, Path, code, flag};
use super::context::DecodeContext;
use super::family::Family;
use super::notification::{Fault, Notification};
use super::prefix;
use super::read::Reader;

/// A decoded UPDATE, after error handling.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReceivedUpdate {
    /// Withdrawn prefixes, including announced ones that were treated as withdrawn.
    pub withdrawn: Vec<IpNet>,
    /// Announced prefixes.
    pub announced: Vec<IpNet>,
    /// Attributes of the announced prefixes.
    pub path: Path,
    /// The UPDATE is an End-of-RIB marker (RFC 4724).
    pub end_of_rib: Option<Family>,
    /// The prefixes of this family could not be parsed: ignore the family from now on (AFI/SAFI
    /// disable of RFC 7606).
    pub disabled: Option<Family>,
    /// Error handling that was applied.
    pub error_handling: ErrorHandling,
}

/// Error handling of an UPDATE, by increasing severity (RFC 7606 section 2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ErrorHandling {
    /// No error.
    #[default]
    NoError,
    /// An attribute was discarded.
    AttributeDiscard(&'static str),
    /// The routes were treated as withdrawn.
    TreatAsWithdraw(&'static str),
}

/// The two attributes of RFC 4760, as far as they were decoded.
#[derive(Default)]
struct Multiprotocol {
    reach: Option<(Family, Vec<IpNet>)>,
    unreach: Option<(Family, Vec<IpNet>)>,
    /// One of the two attributes has an unsupported family and was ignored.
    unsupported: bool,
}

struct UpdateDecoder<'a> {
    context: &'a DecodeContext,
    path: Path,
    multiprotocol: Multiprotocol,
    disabled: Option<Family>,
    error_handling: ErrorHandling,
    /// Attribute types that were present.
    present: [bool; 256],
    /// Number of attributes other than MP_UNREACH_NLRI. An UPDATE with none may be End-of-RIB, and
    /// one with some and an error must have announced routes (RFC 7606 section 5.2).
    others: usize,
}

/// Decodes the body of an UPDATE.
pub fn read(body: &[u8], context: &DecodeContext) -> Result<ReceivedUpdate, Fault> {
    let (withdrawn, attributes, announced) = fields(body).ok_or_else(malformed_list)?;
    let invalid_network_field = || Notification::new(3, 10, Vec::new());
    let mut withdrawn =
        prefix::read_all(Family::Ipv4Unicast, withdrawn).ok_or_else(invalid_network_field)?;
    let announced =
        prefix::read_all(Family::Ipv4Unicast, announced).ok_or_else(invalid_network_field)?;
    let mut decoder = UpdateDecoder {
        context,
        path: Path::default(),
        multiprotocol: Multiprotocol::default(),
        disabled: None,
        error_handling: ErrorHandling::NoError,
        present: [false; 256],
        others: 0,
    };
    decoder.attributes(attributes)?;
    let alone = withdrawn.is_empty() && announced.is_empty();
    let end_of_rib = decoder.end_of_rib(body.len()).filter(|_| alone);
    decoder.path.merge();
    decoder.check_mandatory(!announced.is_empty());
    let reaches = !announced.is_empty() || decoder.multiprotocol.reach.is_some();
    if let (ErrorHandling::TreatAsWithdraw(_), false, 1..) =
        (decoder.error_handling, reaches, decoder.others)
    {
        // RFC 7606 section 5.2: without a route to withdraw, the meaning of the UPDATE is unknown.
        return Err(malformed_list().into());
    }
    let Multiprotocol { reach, unreach, .. } = decoder.multiprotocol;
    withdrawn.extend(unreach.into_iter().flat_map(|(_, prefixes)| prefixes));
    let mut announced = announced;
    announced.extend(reach.into_iter().flat_map(|(_, prefixes)| prefixes));
    if let ErrorHandling::TreatAsWithdraw(_) = decoder.error_handling {
        withdrawn.append(&mut announced);
    }
    Ok(ReceivedUpdate {
        withdrawn,
        announced,
        path: decoder.path,
        end_of_rib,
        disabled: decoder.disabled,
        error_handling: decoder.error_handling,
    })
}

/// Returns the NOTIFICATION Malformed Attribute List.
fn malformed_list() -> Notification {
    Notification::new(3, 1, Vec::new())
}

/// Returns the NOTIFICATION Optional Attribute Error; its data is the attribute.
fn optional_attribute_error(bytes: &[u8]) -> Notification {
    Notification::new(3, 9, bytes.to_vec())
}

/// Splits the body into withdrawn routes, attributes and announced routes.
fn fields(body: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut reader = Reader(body);
    let length = reader.u16()?;
    let withdrawn = reader.take(length.into())?;
    let length = reader.u16()?;
    let attributes = reader.take(length.into())?;
    Some((withdrawn, attributes, reader.0))
}

impl UpdateDecoder<'_> {
    fn attributes(&mut self, field: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader(field);
        while !reader.is_empty() {
            let Some((flags, code, value, bytes)) = next(&mut reader) else {
                // RFC 7606 section 4: the total attribute length still delimits the routes.
                self.others += 1;
                self.malformed(Malformed::Withdraw("attribute exceeds the attributes field"));
                return Ok(());
            };
            self.attribute(flags, code, value, bytes)?;
        }
        Ok(())
    }

    fn attribute(&mut self, flags: u8, code: u8, value: &[u8], bytes: &[u8]) -> Result<(), Fault> {
        let multiprotocol = matches!(code, code::MP_REACH | code::MP_UNREACH);
        if std::mem::replace(&mut self.present[usize::from(code)], true) {
            // A second MP_REACH_NLRI or MP_UNREACH_NLRI ends the session; of all other attributes
            // the first one counts (RFC 7606 section 3 g).
            return match multiprotocol {
                true => Err(malformed_list().into()),
                false => Ok(()),
            };
        }
        self.others += usize::from(code != code::MP_UNREACH);
        let Some(expected) = attribute::flags(code) else {
            return match flags & flag::OPTIONAL {
                // Unrecognized Well-known Attribute.
                0 => Err(Notification::new(3, 2, bytes.to_vec()).into()),
                _ => Ok(()),
            };
        };
        let wrong = (flags ^ expected) & (flag::OPTIONAL | flag::TRANSITIVE) != 0;
        if wrong {
            self.malformed(Malformed::Withdraw("attribute has invalid flags"));
        }
        match code {
            code::MP_REACH => self.reach(value, bytes),
            code::MP_UNREACH => self.unreach(value, bytes),
            _ if wrong => Ok(()),
            _ => {
                if let Err(malformed) = self.path.decode(code, value, self.context) {
                    self.malformed(malformed);
                }
                Ok(())
            }
        }
    }

    fn malformed(&mut self, malformed: Malformed) {
        let error_handling = match malformed {
            Malformed::Discard(why) => ErrorHandling::AttributeDiscard(why),
            Malformed::Withdraw(why) => ErrorHandling::TreatAsWithdraw(why),
        };
        // Keeps the first error of the highest severity.
        if std::mem::discriminant(&error_handling) != std::mem::discriminant(&self.error_handling) {
            self.error_handling = self.error_handling.max(error_handling);
        }
    }

    /// Decodes MP_REACH_NLRI. If its prefixes cannot be parsed, the family is ignored from now on,
    /// which is milder than ending the session and allowed by RFC 7606 section 7.11.
    fn reach(&mut self, value: &[u8], bytes: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader(value);
        let (family, length) =
            family(&mut reader).zip(reader.u8()).ok_or_else(|| optional_attribute_error(bytes))?;
        let Some(family) = family else {
            self.multiprotocol.unsupported = true;
            return Ok(());
        };
        let next_hop = reader.take(length.into()).and_then(|octets| self.next_hop(family, octets));
        let prefixes = next_hop.and_then(|next_hop| {
            // Reserved octet, formerly the number of SNPAs.
            reader.u8()?;
            Some((next_hop, prefix::read_all(family, reader.0)?))
        });
        match prefixes {
            Some((next_hop, prefixes)) => {
                self.path.next_hop = Some(next_hop);
                self.multiprotocol.reach = Some((family, prefixes));
            }
            None => self.disabled = Some(family),
        }
        Ok(())
    }

    fn unreach(&mut self, value: &[u8], bytes: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader(value);
        let family = family(&mut reader).ok_or_else(|| optional_attribute_error(bytes))?;
        match (family, family.and_then(|family| prefix::read_all(family, reader.0))) {
            (None, _) => self.multiprotocol.unsupported = true,
            (Some(family), Some(prefixes)) => self.multiprotocol.unreach = Some((family, prefixes)),
            (Some(family), None) => self.disabled = Some(family),
        }
        Ok(())
    }

    /// Decodes the global next hop. A link-local address may follow an IPv6 next hop (RFC 2545) and
    /// is ignored.
    fn next_hop(&self, family: Family, octets: &[u8]) -> Option<IpAddr> {
        let ipv6_allowed = family == Family::Ipv6Unicast || self.context.extended_next_hop;
        match octets.len() {
            4 if family == Family::Ipv4Unicast => Some(IpAddr::from(*octets.first_chunk::<4>()?)),
            16 | 32 if ipv6_allowed => {
                Some(IpAddr::V6(Ipv6Addr::from(*octets.first_chunk::<16>()?)))
            }
            _ => None,
        }
    }

    /// Checks that the mandatory attributes of announced routes are present (RFC 4271 section 5,
    /// RFC 7606 section 3 d). `classic`: IPv4 prefixes are in the field of RFC 4271, which requires
    /// NEXT_HOP.
    fn check_mandatory(&mut self, classic: bool) {
        if !classic && self.multiprotocol.reach.is_none() {
            return;
        }
        let has = |code: u8| self.present[usize::from(code)];
        let lacks = !has(code::ORIGIN)
            || !has(code::AS_PATH)
            || (classic && !has(code::NEXT_HOP))
            || (self.context.internal && !has(code::LOCAL_PREF));
        if lacks {
            self.malformed(Malformed::Withdraw("mandatory attribute is missing"));
        }
    }

    /// Recognizes End-of-RIB: an empty UPDATE, or one with only an empty MP_UNREACH_NLRI (RFC 4724
    /// section 2).
    fn end_of_rib(&self, length: usize) -> Option<Family> {
        if length == 4 {
            return Some(Family::Ipv4Unicast);
        }
        let (family, prefixes) = self.multiprotocol.unreach.as_ref()?;
        (prefixes.is_empty() && self.others == 0).then_some(*family)
    }
}

/// Returns the next attribute: flags, type, value, and all of its octets.
fn next<'a>(reader: &mut Reader<'a>) -> Option<(u8, u8, &'a [u8], &'a [u8])> {
    let all = reader.0;
    let [flags, code] = reader.array()?;
    let length = match flags & flag::EXTENDED {
        0 => usize::from(reader.u8()?),
        _ => usize::from(reader.u16()?),
    };
    let value = reader.take(length)?;
    Some((flags, code, value, &all[..all.len() - reader.0.len()]))
}

/// Reads AFI and SAFI; `Some(None)` for an unsupported family.
fn family(reader: &mut Reader<'_>) -> Option<Option<Family>> {
    Some(Family::of(reader.u16()?, reader.u8()?))
}
