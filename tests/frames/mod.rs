//! Frames for tests, built and parsed independently of the crate `packet`.
//!
//! Code under test must not supply the expected result: this module implements everything again,
//! without optimization and with every checksum computed in full. A [`Frame`] keeps its structure
//! until [`Frame::bytes`], so that a case can refer to the same packet one hop later, and a port
//! that only the packet path chooses can be filled in afterwards.

mod body;
pub mod fields;
mod ip;
mod rename;
mod structure;
pub mod sum;

pub use body::{aws_options, flags, option, options};
pub use fields::{describe, difference};
pub use ip::{echo, echo_reply, echo_request, end, error, raw, tcp, udp};
pub use structure::{Body, Fragment, Geneve, Ip, Mac, Sum, Vxlan};

/// An Ethernet frame: its link-layer addresses and its IP packet.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Destination MAC address.
    pub to: Mac,
    /// Source MAC address.
    pub from: Mac,
    /// VLAN identifier with priority bits; 0 for an untagged frame.
    pub vlan: u16,
    /// The IP packet.
    pub ip: Ip,
    /// Changes made to the finished bytes, in order.
    pub damage: Vec<Damage>,
}

/// A change to the bytes of a built frame, for malformed frames.
#[derive(Clone, Debug)]
pub enum Damage {
    /// Truncate to this many bytes.
    Cut(usize),
    /// Write these bytes at this offset; those beyond the frame's end are left out.
    Set(usize, Vec<u8>),
    /// Append zeros up to this length (Ethernet pads frames to 60 bytes).
    Pad(usize),
}

impl Frame {
    /// Creates a frame from one MAC to another.
    pub fn new(from: Mac, to: Mac, ip: Ip) -> Frame {
        Frame { to, from, vlan: 0, ip, damage: Vec::new() }
    }

    /// Adds an 802.1Q tag.
    pub fn vlan(mut self, tag: u16) -> Frame {
        self.vlan = tag;
        self
    }

    /// Truncates the frame to `len` bytes.
    pub fn cut(mut self, len: usize) -> Frame {
        self.damage.push(Damage::Cut(len));
        self
    }

    /// Writes `bytes` at `at`.
    pub fn set(mut self, at: usize, bytes: &[u8]) -> Frame {
        self.damage.push(Damage::Set(at, bytes.to_vec()));
        self
    }

    /// Appends zeros up to `len` bytes.
    pub fn pad(mut self, len: usize) -> Frame {
        self.damage.push(Damage::Pad(len));
        self
    }

    /// Returns the frame that its receiver sends back unchanged: MAC addresses and outer IP
    /// addresses are swapped, the ports are not.
    pub fn sent_back(mut self) -> Frame {
        std::mem::swap(&mut self.from, &mut self.to);
        self.ip = self.ip.addresses_swapped();
        self
    }

    /// Sets source and destination MAC address, as on the frame's next link.
    pub fn between(mut self, from: Mac, to: Mac) -> Frame {
        (self.from, self.to) = (from, to);
        self
    }

    /// Changes the IP packet.
    pub fn with(mut self, change: impl FnOnce(Ip) -> Ip) -> Frame {
        self.ip = change(self.ip);
        self
    }

    /// Returns the number of bytes in front of the IP packet.
    pub fn l3(&self) -> usize {
        if self.vlan == 0 { 14 } else { 18 }
    }

    /// Returns the frame's bytes on the wire, without the frame check sequence.
    pub fn bytes(&self) -> Vec<u8> {
        let ip = self.ip.bytes();
        let mut out = Vec::with_capacity(self.l3() + ip.len());
        out.extend(self.to);
        out.extend(self.from);
        if self.vlan != 0 {
            out.extend(0x8100u16.to_be_bytes());
            out.extend(self.vlan.to_be_bytes());
        }
        out.extend(self.ip.ethertype().to_be_bytes());
        out.extend(ip);
        for damage in &self.damage {
            match damage {
                Damage::Cut(len) => out.truncate(*len),
                Damage::Set(at, bytes) => {
                    let end = (at + bytes.len()).min(out.len());
                    let start = (*at).min(end);
                    out[start..end].copy_from_slice(&bytes[..end - start]);
                }
                Damage::Pad(len) => out.resize(out.len().max(*len), 0),
            }
        }
        out
    }
}

/// Builds a frame with an ARP request of `sender` for `target` (RFC 826).
pub fn arp_request(from: Mac, to: Mac, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    arp(from, to, sender, target, false)
}

/// Builds a frame with an ARP reply of `sender` to `target` (RFC 826).
pub fn arp_reply(from: Mac, to: Mac, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    arp(from, to, sender, target, true)
}

fn arp(from: Mac, to: Mac, sender: [u8; 4], target: [u8; 4], is_reply: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(60);
    out.extend(to);
    out.extend(from);
    out.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, if is_reply { 2 } else { 1 }]);
    out.extend(from);
    out.extend(sender);
    out.extend(if is_reply { to } else { [0; 6] });
    out.extend(target);
    out.resize(60, 0);
    out
}

#[cfg(test)]
mod tests;
