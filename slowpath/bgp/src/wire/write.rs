//! UPDATE as we say it: as many prefixes of equal attributes as a message has room for.
//!
//! IPv4 prefixes with an IPv4 next hop stand in the message's own fields, all others in the
//! attributes of RFC 4760, which come first (RFC 7606 section 5.1).

use std::net::IpAddr;

use ipnet::IpNet;

use super::attribute::{AS_TRANS, Attributes, Origin};
use super::attribute::{SEQUENCE, code, flag};
use super::family::Family;
use super::frame::{self, HEAD, Kind};
use super::prefix;

/// What of a session decides how routes are said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speaking {
    /// Our number.
    pub local_asn: u32,
    /// The peer is of our own autonomous system.
    pub internal: bool,
    /// Numbers have four octets.
    pub four_octet: bool,
    /// IPv4 prefixes may have an IPv6 next hop.
    pub extended_next_hop: bool,
    /// The longest message.
    pub limit: usize,
    /// The peer's address, which is nobody's next hop there (RFC 4271 section 5.1.3).
    pub peer: IpAddr,
}

impl Speaking {
    /// Whether a prefix of `family` can be said with this next hop.
    pub fn can_say(&self, family: Family, next_hop: IpAddr) -> bool {
        match (family, next_hop) {
            (_, peer) if peer == self.peer => false,
            (Family::Ipv4Unicast, IpAddr::V4(_)) | (Family::Ipv6Unicast, IpAddr::V6(_)) => true,
            (Family::Ipv4Unicast, IpAddr::V6(_)) => self.extended_next_hop,
            (Family::Ipv6Unicast, IpAddr::V4(_)) => false,
        }
    }

    /// An UPDATE that announces as many of `prefixes` as it has room for, taken from the end, and
    /// which those are. `None`: not one has room, because there are too many communities.
    pub fn announce(
        &self,
        family: Family,
        attributes: &Attributes,
        prefixes: &mut Vec<IpNet>,
    ) -> Option<(Vec<u8>, Vec<IpNet>)> {
        let rest = self.attributes(family, attributes);
        let classic = family == Family::Ipv4Unicast && attributes.next_hop.is_ipv4();
        let next_hop = match attributes.next_hop {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        // Flags, type, length of two octets, AFI, SAFI, length of the next hop, reserved.
        let reach = if classic { 0 } else { 4 + 3 + 1 + next_hop.len() + 1 };
        let room = self.limit.checked_sub(HEAD + 4 + reach + rest.len())?;
        let (field, taken) = take(prefixes, room);
        if taken.is_empty() {
            return None;
        }
        let mut attributes = Vec::new();
        if !classic {
            let mut value = family.octets().to_vec();
            value.push(next_hop.len() as u8);
            value.extend_from_slice(&next_hop);
            value.push(0);
            value.extend_from_slice(&field);
            push_long(&mut attributes, code::MP_REACH, &value);
        }
        attributes.extend_from_slice(&rest);
        let message = update(&[], &attributes, if classic { &field } else { &[] });
        Some((message, taken))
    }

    /// All attributes but MP_REACH_NLRI, by type.
    fn attributes(&self, family: Family, said: &Attributes) -> Vec<u8> {
        let mut to = Vec::new();
        let origin = match said.origin {
            Origin::Igp => 0,
            Origin::Egp => 1,
            Origin::Incomplete => 2,
        };
        push(&mut to, flag::TRANSITIVE, code::ORIGIN, &[origin]);
        let path = self.as_path(said.prepend, self.four_octet);
        push(&mut to, flag::TRANSITIVE, code::AS_PATH, &path);
        if let (Family::Ipv4Unicast, IpAddr::V4(next_hop)) = (family, said.next_hop) {
            push(&mut to, flag::TRANSITIVE, code::NEXT_HOP, &next_hop.octets());
        }
        if let Some(med) = said.med {
            push(&mut to, flag::OPTIONAL, code::MED, &med.to_be_bytes());
        }
        if self.internal {
            let value = said.local_pref.unwrap_or(100).to_be_bytes();
            push(&mut to, flag::TRANSITIVE, code::LOCAL_PREF, &value);
        }
        let both = flag::OPTIONAL | flag::TRANSITIVE;
        if !said.communities.is_empty() {
            let value: Vec<u8> = said.communities.iter().flat_map(|c| c.to_be_bytes()).collect();
            push(&mut to, both, code::COMMUNITIES, &value);
        }
        if !self.four_octet && !self.internal && u16::try_from(self.local_asn).is_err() {
            push(&mut to, both, code::AS4_PATH, &self.as_path(said.prepend, true));
        }
        if !said.large.is_empty() {
            let numbers = said.large.iter().flatten();
            let value: Vec<u8> = numbers.flat_map(|number| number.to_be_bytes()).collect();
            push(&mut to, both, code::LARGE, &value);
        }
        to
    }

    /// Our number, more than once if it is to look far. Internal peers get an empty path.
    fn as_path(&self, prepend: u8, four_octet: bool) -> Vec<u8> {
        if self.internal {
            return Vec::new();
        }
        let count = prepend.saturating_add(1);
        let mut path = vec![SEQUENCE, count];
        for _ in 0..count {
            match four_octet {
                true => path.extend_from_slice(&self.local_asn.to_be_bytes()),
                false => {
                    let short = u16::try_from(self.local_asn).unwrap_or(AS_TRANS);
                    path.extend_from_slice(&short.to_be_bytes());
                }
            }
        }
        path
    }

    /// An UPDATE that withdraws as many of `prefixes`, all of `family`, as it has room for, taken
    /// from the end, and which those are.
    pub fn withdraw(&self, family: Family, prefixes: &mut Vec<IpNet>) -> (Vec<u8>, Vec<IpNet>) {
        // Flags, type, length of two octets, AFI, SAFI.
        let around = if family == Family::Ipv4Unicast { 0 } else { 4 + 3 };
        let (field, taken) = take(prefixes, self.limit - HEAD - 4 - around);
        let message = match family {
            Family::Ipv4Unicast => update(&field, &[], &[]),
            Family::Ipv6Unicast => {
                let mut attributes = Vec::new();
                let value = [&family.octets()[..], &field].concat();
                push_long(&mut attributes, code::MP_UNREACH, &value);
                update(&[], &attributes, &[])
            }
        };
        (message, taken)
    }
}

/// That all of `family` was said (RFC 4724 section 2).
pub fn end_of_rib(family: Family) -> Vec<u8> {
    let mut attributes = Vec::new();
    if family != Family::Ipv4Unicast {
        push(&mut attributes, flag::OPTIONAL, code::MP_UNREACH, &family.octets());
    }
    update(&[], &attributes, &[])
}

/// Prefixes from the end, as many as fit `room`: as octets, and which they are.
fn take(prefixes: &mut Vec<IpNet>, room: usize) -> (Vec<u8>, Vec<IpNet>) {
    let (mut field, mut taken) = (Vec::new(), Vec::new());
    while let Some(last) = prefixes.pop_if(|last| field.len() + prefix::size(last) <= room) {
        prefix::write(&last, &mut field);
        taken.push(last);
    }
    (field, taken)
}

fn push(to: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    match u8::try_from(value.len()) {
        Ok(length) => to.extend_from_slice(&[flags, code, length]),
        Err(_) => {
            to.extend_from_slice(&[flags | flag::EXTENDED, code]);
            to.extend_from_slice(&(value.len() as u16).to_be_bytes());
        }
    }
    to.extend_from_slice(value);
}

/// With a length of two octets however short: its place in the sum of lengths is fixed.
fn push_long(to: &mut Vec<u8>, code: u8, value: &[u8]) {
    to.extend_from_slice(&[flag::OPTIONAL | flag::EXTENDED, code]);
    to.extend_from_slice(&(value.len() as u16).to_be_bytes());
    to.extend_from_slice(value);
}

fn update(withdrawn: &[u8], attributes: &[u8], announced: &[u8]) -> Vec<u8> {
    let mut body = (withdrawn.len() as u16).to_be_bytes().to_vec();
    body.extend_from_slice(withdrawn);
    body.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
    body.extend_from_slice(attributes);
    body.extend_from_slice(announced);
    frame::message(Kind::Update, &body)
}
