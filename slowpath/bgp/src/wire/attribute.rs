//! Path attributes: what we say of a route, and what others said, one attribute at a time.
//!
//! Each malformed attribute has its treatment (RFC 7606 section 7): the whole route counts as
//! withdrawn, or the attribute alone as not said.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::context::Context;
use super::read::Reader;

/// What a speaker of 2-octet numbers is told in place of a number that is larger (RFC 6793).
pub const AS_TRANS: u16 = 23_456;

/// Types of path attributes.
pub mod code {
    /// Where the route began.
    pub const ORIGIN: u8 = 1;
    /// The autonomous systems on the way.
    pub const AS_PATH: u8 = 2;
    /// Where to send, IPv4.
    pub const NEXT_HOP: u8 = 3;
    /// MULTI_EXIT_DISC.
    pub const MED: u8 = 4;
    /// Within an autonomous system only.
    pub const LOCAL_PREF: u8 = 5;
    /// ATOMIC_AGGREGATE.
    pub const ATOMIC: u8 = 6;
    /// Who aggregated.
    pub const AGGREGATOR: u8 = 7;
    /// RFC 1997.
    pub const COMMUNITIES: u8 = 8;
    /// RFC 4456.
    pub const ORIGINATOR: u8 = 9;
    /// RFC 4456.
    pub const CLUSTERS: u8 = 10;
    /// RFC 4760.
    pub const MP_REACH: u8 = 14;
    /// RFC 4760.
    pub const MP_UNREACH: u8 = 15;
    /// RFC 4360.
    pub const EXTENDED: u8 = 16;
    /// RFC 6793.
    pub const AS4_PATH: u8 = 17;
    /// RFC 6793.
    pub const AS4_AGGREGATOR: u8 = 18;
    /// RFC 5701.
    pub const EXTENDED_IPV6: u8 = 25;
    /// RFC 8092.
    pub const LARGE: u8 = 32;
}
/// Attribute flags.
pub mod flag {
    /// Not every speaker knows it.
    pub const OPTIONAL: u8 = 0x80;
    /// To be passed on by those who don't.
    pub const TRANSITIVE: u8 = 0x40;
    /// The length has two octets.
    pub const EXTENDED: u8 = 0x10;
}
/// A part of an AS_PATH in order.
pub const SEQUENCE: u8 = 2;
const SET: u8 = 1;
/// The same two within a confederation.
const CONFEDERATION: [u8; 2] = [3, 4];

/// Where a route began.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Within its autonomous system.
    #[default]
    Igp,
    /// Learned by EGP.
    Egp,
    /// Some other way.
    Incomplete,
}

/// What we say of a route; the rest follows from the session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Attributes {
    /// Where to send. An IPv4 prefix may have an IPv6 one where RFC 8950 was agreed on.
    pub next_hop: IpAddr,
    /// Where it began.
    pub origin: Origin,
    /// How often our number stands in the path once more. Not on internal sessions, whose path is
    /// empty.
    pub prepend: u8,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// On internal sessions only; 100 unless said.
    pub local_pref: Option<u32>,
    /// Standard and well-known communities, in order and without doubles.
    pub communities: Vec<u32>,
    /// Large communities, in order and without doubles.
    pub large: Vec<[u32; 3]>,
}

impl Attributes {
    /// Of a next hop and nothing else.
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
    /// As `weir bgp routes` shows it.
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

/// What a peer said of its routes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Path {
    /// Where they began.
    pub origin: Option<Origin>,
    /// Segments of the AS_PATH, each with its type.
    pub as_path: Option<Vec<(u8, Vec<u32>)>>,
    /// Where to send, global.
    pub next_hop: Option<IpAddr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF of an internal peer.
    pub local_pref: Option<u32>,
    /// Standard communities.
    pub communities: Vec<u32>,
    /// Large communities.
    pub large: Vec<[u32; 3]>,
    /// What a peer of 2-octet numbers passed on.
    pub(super) as4_path: Option<Vec<(u8, Vec<u32>)>>,
    /// The aggregator is a number that fits two octets: then AS4_PATH isn't to be believed.
    pub(super) old_aggregator: bool,
}

/// What is done about a malformed attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The attribute counts as not said.
    Discard(&'static str),
    /// The routes count as withdrawn.
    Withdraw(&'static str),
}

/// The flags that an attribute of a known type has: whether optional, whether transitive.
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
    /// Takes an attribute in, other than the two of RFC 4760. Those that mean nothing to an
    /// announcer are only looked at as far as their treatment asks.
    pub(super) fn take(
        &mut self,
        code: u8,
        value: &[u8],
        context: &Context,
    ) -> Result<(), Malformed> {
        use Malformed::{Discard, Withdraw};
        let number = || value.try_into().map(u32::from_be_bytes).ok();
        // An arm for each attribute, in the order of RFC 7606 section 7.
        match code {
            code::ORIGIN => {
                self.origin = Some(match value {
                    [0] => Origin::Igp,
                    [1] => Origin::Egp,
                    [2] => Origin::Incomplete,
                    _ => return Err(Withdraw("ORIGIN isn't one of three")),
                });
            }
            code::AS_PATH => {
                let path = segments(value, context.four_octet);
                self.as_path = Some(path.ok_or(Withdraw("AS_PATH is malformed"))?);
            }
            code::NEXT_HOP => {
                let next_hop = number().ok_or(Withdraw("NEXT_HOP isn't 4 octets long"))?;
                self.next_hop = Some(Ipv4Addr::from(next_hop).into());
            }
            code::MED => {
                self.med = Some(number().ok_or(Withdraw("MED isn't 4 octets long"))?);
            }
            code::LOCAL_PREF | code::ORIGINATOR | code::CLUSTERS if !context.internal => {
                return Err(Discard("an attribute of internal peers came from an external one"));
            }
            code::LOCAL_PREF => {
                let value = number().ok_or(Withdraw("LOCAL_PREF isn't 4 octets long"))?;
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
                _ => return Err(Discard("AGGREGATOR has a wrong length")),
            },
            code::COMMUNITIES => {
                let parts =
                    parts::<4>(value).ok_or(Withdraw("COMMUNITIES aren't 4 octets each"))?;
                self.communities = parts.into_iter().map(u32::from_be_bytes).collect();
            }
            code::ORIGINATOR if value.len() != 4 => {
                return Err(Withdraw("ORIGINATOR_ID isn't 4 octets long"));
            }
            code::CLUSTERS if parts::<4>(value).is_none() => {
                return Err(Withdraw("CLUSTER_LIST isn't 4 octets each"));
            }
            code::EXTENDED if parts::<8>(value).is_none() => {
                return Err(Withdraw("extended communities aren't 8 octets each"));
            }
            code::EXTENDED_IPV6 if parts::<20>(value).is_none() => {
                return Err(Withdraw("IPv6 extended communities aren't 20 octets each"));
            }
            code::LARGE => {
                let all = parts::<12>(value).ok_or(Withdraw("large communities aren't 12 each"))?;
                self.large = all.into_iter().map(large).collect();
            }
            code::AS4_PATH | code::AS4_AGGREGATOR if context.four_octet => {
                return Err(Discard("a speaker of 4-octet numbers sent what 2-octet ones need"));
            }
            code::AS4_PATH => {
                let path = segments(value, true).ok_or(Discard("AS4_PATH is malformed"))?;
                self.as4_path = Some(path);
            }
            code::AS4_AGGREGATOR if value.len() != 8 => {
                return Err(Discard("AS4_AGGREGATOR isn't 8 octets long"));
            }
            _ => {}
        }
        Ok(())
    }

    /// The true path, of what stands in two octets and what was passed on in four (RFC 6793
    /// section 4.2.3).
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
            let whole = count(&[(*kind, numbers.clone())]);
            if ahead == 0 {
                break;
            }
            let taken = if *kind == SEQUENCE { ahead.min(numbers.len()) } else { numbers.len() };
            merged.push((*kind, numbers[..taken].to_vec()));
            ahead -= whole.min(ahead);
        }
        merged.extend(four);
        self.as_path = Some(merged);
    }
}

/// How long a path is: a set counts as one, a confederation's part as none.
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

/// `value` in parts of `N` octets: one at least, none left over.
fn parts<const N: usize>(value: &[u8]) -> Option<Vec<[u8; N]>> {
    let (parts, rest) = value.as_chunks::<N>();
    (!parts.is_empty() && rest.is_empty()).then(|| parts.to_vec())
}

fn large(octets: [u8; 12]) -> [u32; 3] {
    let (parts, _) = octets.as_chunks::<4>();
    std::array::from_fn(|index| u32::from_be_bytes(parts[index]))
}
