//! Encoding of UPDATEs: as many prefixes with equal attributes as fit in a message.
//!
//! IPv4 prefixes with an IPv4 next hop are in the fields of RFC 4271, all others in the attributes
//! of RFC 4760, which come first (RFC 7606 section 5.1).

use std::net::IpAddr;

use ipnet::IpNet;

use super::attribute::{AS_TRANS, Attributes, Origin};
use super::attribute::{SEQUENCE, code, flag};
use super::family::Family;
use super::frame::{self, HEADER_SIZE, Kind};
use super::prefix;

/// Negotiated parameters that affect the encoding of UPDATEs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodeContext {
    /// Local AS number.
    pub local_asn: u32,
    /// The peer is internal (iBGP).
    pub internal: bool,
    /// AS numbers have four octets (RFC 6793).
    pub four_octet: bool,
    /// IPv4 prefixes may have an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
    /// Maximum message size in octets.
    pub limit: usize,
    /// Address of the peer, which must not be the next hop of routes sent to it (RFC 4271 section
    /// 5.1.3).
    pub peer: IpAddr,
}

impl EncodeContext {
    /// Returns whether a prefix of `family` can be sent with this next hop.
    pub fn can_encode(&self, family: Family, next_hop: IpAddr) -> bool {
        match (family, next_hop) {
            (_, peer) if peer == self.peer => false,
            (Family::Ipv4Unicast, IpAddr::V4(_)) | (Family::Ipv6Unicast, IpAddr::V6(_)) => true,
            (Family::Ipv4Unicast, IpAddr::V6(_)) => self.extended_next_hop,
            (Family::Ipv6Unicast, IpAddr::V4(_)) => false,
        }
    }

    /// Encodes an UPDATE that announces as many of `prefixes` as fit. Removes these from the end of
    /// `prefixes` and returns them with the UPDATE. `None` if not even one fits, because of too
    /// many communities.
    pub fn announce(
        &self,
        family: Family,
        attributes: &Attributes,
        prefixes: &mut Vec<IpNet>,
    ) -> Option<(Vec<u8>, Vec<IpNet>)> {
        let rest = self.attributes(family, attributes);
        // Whether the prefixes are in the fields of RFC 4271.
        let classic = family == Family::Ipv4Unicast && attributes.next_hop.is_ipv4();
        let next_hop = match attributes.next_hop {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        // Flags, type, 2-octet length, AFI, SAFI, next hop length, reserved.
        let reach = if classic { 0 } else { 4 + 3 + 1 + next_hop.len() + 1 };
        let capacity = self.limit.checked_sub(HEADER_SIZE + 4 + reach + rest.len())?;
        let (field, taken) = take_fitting(prefixes, capacity);
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

    /// Encodes all attributes but MP_REACH_NLRI, ordered by type.
    fn attributes(&self, family: Family, attributes: &Attributes) -> Vec<u8> {
        let mut to = Vec::new();
        let origin = match attributes.origin {
            Origin::Igp => 0,
            Origin::Egp => 1,
            Origin::Incomplete => 2,
        };
        push(&mut to, flag::TRANSITIVE, code::ORIGIN, &[origin]);
        let path = self.as_path(attributes.prepend, self.four_octet);
        push(&mut to, flag::TRANSITIVE, code::AS_PATH, &path);
        if let (Family::Ipv4Unicast, IpAddr::V4(next_hop)) = (family, attributes.next_hop) {
            push(&mut to, flag::TRANSITIVE, code::NEXT_HOP, &next_hop.octets());
        }
        if let Some(med) = attributes.med {
            push(&mut to, flag::OPTIONAL, code::MED, &med.to_be_bytes());
        }
        if self.internal {
            let value = attributes.local_pref.unwrap_or(100).to_be_bytes();
            push(&mut to, flag::TRANSITIVE, code::LOCAL_PREF, &value);
        }
        let both = flag::OPTIONAL | flag::TRANSITIVE;
        if !attributes.communities.is_empty() {
            let value: Vec<u8> =
                attributes.communities.iter().flat_map(|c| c.to_be_bytes()).collect();
            push(&mut to, both, code::COMMUNITIES, &value);
        }
        if !self.four_octet && !self.internal && u16::try_from(self.local_asn).is_err() {
            push(&mut to, both, code::AS4_PATH, &self.as_path(attributes.prepend, true));
        }
        if !attributes.large.is_empty() {
            let numbers = attributes.large.iter().flatten();
            let value: Vec<u8> = numbers.flat_map(|number| number.to_be_bytes()).collect();
            push(&mut to, both, code::LARGE, &value);
        }
        to
    }

    /// Encodes the AS_PATH: the local AS number and `prepend` copies of it; empty on internal
    /// sessions.
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

    /// Encodes an UPDATE that withdraws as many of `prefixes` as fit, all of `family`. Removes
    /// these from the end of `prefixes` and returns them with the UPDATE.
    pub fn withdraw(&self, family: Family, prefixes: &mut Vec<IpNet>) -> (Vec<u8>, Vec<IpNet>) {
        // Flags, type, 2-octet length, AFI, SAFI.
        let around = if family == Family::Ipv4Unicast { 0 } else { 4 + 3 };
        let (field, taken) = take_fitting(prefixes, self.limit - HEADER_SIZE - 4 - around);
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

/// Encodes the End-of-RIB marker of `family` (RFC 4724 section 2).
pub fn end_of_rib(family: Family) -> Vec<u8> {
    let mut attributes = Vec::new();
    if family != Family::Ipv4Unicast {
        push(&mut attributes, flag::OPTIONAL, code::MP_UNREACH, &family.octets());
    }
    update(&[], &attributes, &[])
}

/// Removes prefixes from the end, as many as fit in `capacity` octets, and returns them encoded and
/// as prefixes.
fn take_fitting(prefixes: &mut Vec<IpNet>, capacity: usize) -> (Vec<u8>, Vec<IpNet>) {
    let (mut field, mut taken) = (Vec::new(), Vec::new());
    while let Some(last) = prefixes.pop_if(|last| field.len() + prefix::size(last) <= capacity) {
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

/// Appends an attribute with a 2-octet length even if a 1-octet length would do, because the size
/// calculation assumes 2 octets.
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
