//! Path attributes: those of advertised routes, and the decoding of received ones.
//!
//! A malformed attribute is treated according to RFC 7606 section 7: the routes count as withdrawn,
//! or the attribute alone is discarded.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::context::DecodeContext;
use super::read::Reader;

/// AS number that is sent instead of a 4-octet number to a speaker with 2-octet numbers (RFC 6793).
pub const AS_TRANS: u16 = 23_456;

/// Type codes of path attributes.
pub mod code {
    /// ORIGIN (RFC 4271).
    pub const ORIGIN: u8 = 1;
    /// AS_PATH (RFC 4271).
    pub const AS_PATH: u8 = 2;
    /// NEXT_HOP, IPv4 only (RFC 4271).
    pub const NEXT_HOP: u8 = 3;
    /// MULTI_EXIT_DISC (RFC 4271).
    pub const MED: u8 = 4;
    /// LOCAL_PREF, internal sessions only (RFC 4271).
    pub const LOCAL_PREF: u8 = 5;
    /// ATOMIC_AGGREGATE (RFC 4271).
    pub const ATOMIC: u8 = 6;
    /// AGGREGATOR (RFC 4271).
    pub const AGGREGATOR: u8 = 7;
    /// COMMUNITIES (RFC 1997).
    pub const COMMUNITIES: u8 = 8;
    /// ORIGINATOR_ID (RFC 4456).
    pub const ORIGINATOR: u8 = 9;
    /// CLUSTER_LIST (RFC 4456).
    pub const CLUSTERS: u8 = 10;
    /// MP_REACH_NLRI (RFC 4760).
    pub const MP_REACH: u8 = 14;
    /// MP_UNREACH_NLRI (RFC 4760).
    pub const MP_UNREACH: u8 = 15;
    /// EXTENDED COMMUNITIES (RFC 4360).
    pub const EXTENDED: u8 = 16;
    /// AS4_PATH (RFC 6793).
    pub const AS4_PATH: u8 = 17;
    /// AS4_AGGREGATOR (RFC 6793).
    pub const AS4_AGGREGATOR: u8 = 18;
    /// IPv6 Address Specific Extended Community (RFC 5701).
    pub const EXTENDED_IPV6: u8 = 25;
    /// LARGE_COMMUNITY (RFC 8092).
    pub const LARGE: u8 = 32;
}
/// Attribute flags (RFC 4271 section 4.3).
pub mod flag {
    /// Optional rather than well-known.
    pub const OPTIONAL: u8 = 0x80;
    /// Transitive: passed on by speakers that do not recognize the attribute.
    pub const TRANSITIVE: u8 = 0x40;
    /// The length field has two octets.
    pub const EXTENDED: u8 = 0x10;
}
/// Segment type AS_SEQUENCE of an AS_PATH.
pub const SEQUENCE: u8 = 2;
/// Segment type AS_SET of an AS_PATH.
const SET: u8 = 1;
/// Segment types AS_CONFED_SEQUENCE and AS_CONFED_SET (RFC 5065).
const CONFEDERATION: [u8; 2] = [3, 4];

/// Values of the ORIGIN attribute.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Originated within the autonomous system.
    #[default]
    Igp,
    /// Learned by EGP.
    Egp,
    /// Learned by other means.
    Incomplete,
}

/// Attributes of an advertised route. The other attributes follow from the session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Attributes {
    /// Next hop. An IPv4 prefix may have an IPv6 next hop where RFC 8950 was negotiated.
    pub next_hop: IpAddr,
    /// ORIGIN.
    pub origin: Origin,
    /// Number of additional copies of the local AS number in the AS_PATH. Without effect on
    /// internal sessions, where the path is empty.
    pub prepend: u8,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF, sent on internal sessions only; 100 if absent.
    pub local_pref: Option<u32>,
    /// Standard and well-known communities, sorted and without duplicates.
    pub communities: Vec<u32>,
    /// Large communities, sorted and without duplicates.
    pub large: Vec<[u32; 3]>,
}

impl Attributes {
    /// Creates attributes with a next hop and defaults.
    pub fn new(next_hop: IpAddr) -> Attributes {
        Attributes {
            next_hop,
            origin: Origin::Igp,
            prepend: 0,
            med: None,
            local_pref: None,
            communities: Vec::new(),
            large: Vec::new(),
        }
    }
}

impl fmt::Display for Attributes {
    /// Formats the attributes as `weir bgp routes` shows them, without the next hop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "origin {}", format!("{:?}", self.origin).to_lowercase())?;
        if self.prepend > 0 {
            write!(f, ", prepend {}", self.prepend)?;
        }
        if let Some(med) = self.med {
            write!(f, ", med {med}")?;
        }
        if let Some(local_pref) = self.local_pref {
            write!(f, ", local pref {local_pref}")?;
        }
        for (index, community) in self.communities.iter().enumerate() {
            f.write_str(if index == 0 { ", communities " } else { " " })?;
            write!(f, "{}:{}", community >> 16, community & 0xffff)?;
        }
        for (index, [a, b, c]) in self.large.iter().enumerate() {
            f.write_str(if index == 0 { ", large " } else { " " })?;
            write!(f, "{a}:{b}:{c}")?;
        }
        Ok(())
    }
}

/// Attributes of received routes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Path {
    /// ORIGIN.
    pub origin: Option<Origin>,
    /// AS_PATH segments, each with its type.
    pub as_path: Option<Vec<(u8, Vec<u32>)>>,
    /// Global next hop.
    pub next_hop: Option<IpAddr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF of an internal peer.
    pub local_pref: Option<u32>,
    /// Standard communities.
    pub communities: Vec<u32>,
    /// Large communities.
    pub large: Vec<[u32; 3]>,
    /// AS4_PATH of a peer with 2-octet AS numbers.
    pub(super) as4_path: Option<Vec<(u8, Vec<u32>)>>,
    /// AGGREGATOR holds an AS number other than AS_TRANS, so that AS4_PATH must be ignored (RFC
    /// 6793 section 4.2.3).
    pub(super) old_aggregator: bool,
}

/// Treatment of a malformed attribute (RFC 7606 section 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Attribute discard.
    Discard(&'static str),
    /// Treat-as-withdraw.
    Withdraw(&'static str),
}

/// Returns the Optional and Transitive flags required for an attribute; `None` if its type is
/// unknown.
pub fn flags(code: u8) -> Option<u8> {
    Some(match code {
        code::ORIGIN | code::AS_PATH | code::NEXT_HOP | code::LOCAL_PREF | code::ATOMIC => {
            flag::TRANSITIVE
        }
        code::MED | code::ORIGINATOR | code::CLUSTERS | code::MP_REACH | code::MP_UNREACH => {
            flag::OPTIONAL
        }
        code::AGGREGATOR
        | code::COMMUNITIES
        | code::EXTENDED
        | code::AS4_PATH
        | code::AS4_AGGREGATOR
        | code::EXTENDED_IPV6
        | code::LARGE => flag::OPTIONAL | flag::TRANSITIVE,
        _ => return None,
    })
}

impl Path {
    /// Decodes an attribute other than MP_REACH_NLRI and MP_UNREACH_NLRI. Attributes that an
    /// announce-only speaker does not use are validated only as far as RFC 7606 requires.
    pub(super) fn decode(
        &mut self,
        code: u8,
        value: &[u8],
        context: &DecodeContext,
    ) -> Result<(), Malformed> {
        use Malformed::{Discard, Withdraw};
        let number = || value.try_into().map(u32::from_be_bytes).ok();
        // One arm per attribute, in the order of RFC 7606 section 7.
        match code {
            code::ORIGIN => {
                self.origin = Some(match value {
                    [0] => Origin::Igp,
                    [1] => Origin::Egp,
                    [2] => Origin::Incomplete,
                    _ => return Err(Withdraw("ORIGIN has an invalid value")),
                });
            }
            code::AS_PATH => {
                let path = segments(value, context.four_octet);
                self.as_path = Some(path.ok_or(Withdraw("AS_PATH is malformed"))?);
            }
            code::NEXT_HOP => {
                let next_hop = number().ok_or(Withdraw("NEXT_HOP is not 4 octets long"))?;
                self.next_hop = Some(Ipv4Addr::from(next_hop).into());
            }
            code::MED => {
                self.med = Some(number().ok_or(Withdraw("MED is not 4 octets long"))?);
            }
            code::LOCAL_PREF | code::ORIGINATOR | code::CLUSTERS if !context.internal => {
                return Err(Discard("external peer sent an attribute of internal peers"));
            }
            code::LOCAL_PREF => {
                let value = number().ok_or(Withdraw("LOCAL_PREF is not 4 octets long"))?;
                self.local_pref = Some(value);
            }
            code::ATOMIC if !value.is_empty() => {
                return Err(Discard("ATOMIC_AGGREGATE has a value"));
            }
            code::AGGREGATOR => match (context.four_octet, value) {
                (true, [_, _, _, _, _, _, _, _]) => {}
                (false, [high, low, _, _, _, _]) => {
                    self.old_aggregator = [*high, *low] != AS_TRANS.to_be_bytes();
                }
                _ => return Err(Discard("AGGREGATOR has an invalid length")),
            },
            code::COMMUNITIES => {
                let parts = parts::<4>(value)
                    .ok_or(Withdraw("COMMUNITIES are not a non-zero multiple of 4 octets"))?;
                self.communities = parts.into_iter().map(u32::from_be_bytes).collect();
            }
            code::ORIGINATOR if value.len() != 4 => {
                return Err(Withdraw("ORIGINATOR_ID is not 4 octets long"));
            }
            code::CLUSTERS if parts::<4>(value).is_none() => {
                return Err(Withdraw("CLUSTER_LIST is not a non-zero multiple of 4 octets"));
            }
            code::EXTENDED if parts::<8>(value).is_none() => {
                return Err(Withdraw(
                    "extended communities are not a non-zero multiple of 8 octets",
                ));
            }
            code::EXTENDED_IPV6 if parts::<20>(value).is_none() => {
                return Err(Withdraw(
                    "IPv6 extended communities are not a non-zero multiple of 20 octets",
                ));
            }
            code::LARGE => {
                let all = parts::<12>(value).ok_or(Withdraw(
                    "large communities are not a non-zero multiple of 12 octets",
                ))?;
                self.large = all.into_iter().map(large).collect();
            }
            code::AS4_PATH | code::AS4_AGGREGATOR if context.four_octet => {
                return Err(Discard("peer with 4-octet AS numbers sent an AS4 attribute"));
            }
            code::AS4_PATH => {
                let path = segments(value, true).ok_or(Discard("AS4_PATH is malformed"))?;
                self.as4_path = Some(path);
            }
            code::AS4_AGGREGATOR if value.len() != 8 => {
                return Err(Discard("AS4_AGGREGATOR is not 8 octets long"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Reconstructs the path from AS_PATH with 2-octet numbers and AS4_PATH (RFC 6793 section
    /// 4.2.3).
    pub(super) fn merge(&mut self) {
        let Some(mut four) = self.as4_path.take() else { return };
        let Some(two) = &self.as_path else { return };
        let Some(mut ahead) = count(two).checked_sub(count(&four)) else { return };
        if self.old_aggregator {
            return;
        }
        four.retain(|(kind, _)| !CONFEDERATION.contains(kind));
        let mut merged = Vec::new();
        for (kind, numbers) in two {
            let length = count(&[(*kind, numbers.clone())]);
            if ahead == 0 {
                break;
            }
            let taken = if *kind == SEQUENCE { ahead.min(numbers.len()) } else { numbers.len() };
            merged.push((*kind, numbers[..taken].to_vec()));
            ahead -= length.min(ahead);
        }
        merged.extend(four);
        self.as_path = Some(merged);
    }
}

/// Returns the path length: a set counts as one, confederation segments as none.
fn count(path: &[(u8, Vec<u32>)]) -> usize {
    let one = |(kind, numbers): &(u8, Vec<u32>)| match *kind {
        SEQUENCE => numbers.len(),
        SET => 1,
        _ => 0,
    };
    path.iter().map(one).sum()
}

fn segments(value: &[u8], four_octet: bool) -> Option<Vec<(u8, Vec<u32>)>> {
    let mut reader = Reader(value);
    let mut segments = Vec::new();
    while !reader.is_empty() {
        let (kind, length) = (reader.u8()?, reader.u8()?);
        if length == 0 || !(kind == SET || kind == SEQUENCE || CONFEDERATION.contains(&kind)) {
            return None;
        }
        let number = |_| match four_octet {
            true => reader.u32(),
            false => reader.u16().map(u32::from),
        };
        segments.push((kind, (0..length).map(number).collect::<Option<Vec<u32>>>()?));
    }
    Some(segments)
}

/// Splits `value` into parts of `N` octets; `None` if it is empty or not a multiple of `N`.
fn parts<const N: usize>(value: &[u8]) -> Option<Vec<[u8; N]>> {
    let (parts, rest) = value.as_chunks::<N>();
    (!parts.is_empty() && rest.is_empty()).then(|| parts.to_vec())
}

fn large(octets: [u8; 12]) -> [u32; 3] {
    let (parts, _) = octets.as_chunks::<4>();
    std::array::from_fn(|index| u32::from_be_bytes(parts[index]))
}
