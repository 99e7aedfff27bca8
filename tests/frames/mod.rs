//! Real frames for tests, built and read without the crate `packet`.
//!
//! What is tested may not also be the judge: everything here is written again, plainly, with every
//! checksum computed in full. A [`Frame`] keeps its structure until [`Frame::bytes`], so that a
//! case can say "this packet, one hop further" and a port that only the packet path knows can be
//! filled in afterwards.

mod body;
pub mod fields;
mod ip;
mod rename;
mod structure;
pub mod sum;

pub use body::{aws_options, flags, option, options};
pub use fields::{describe, difference};
pub use ip::{echo, end, error, raw, tcp, udp};
pub use structure::{Body, Fragment, Geneve, Ip, Mac, Sum, Vxlan};

/// A whole Ethernet frame: where it goes on the cable, and the IP packet in it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Receiver.
    pub to: Mac,
    /// Sender.
    pub from: Mac,
    /// VLAN identifier with priority bits; 0 for an untagged frame.
    pub vlan: u16,
    /// What is in it.
    pub ip: Ip,
    /// Changes made to the finished bytes, in order.
    pub damage: Vec<Damage>,
}

/// What is done to a frame after it was built, for frames that nobody builds on purpose.
#[derive(Clone, Debug)]
pub enum Damage {
    /// Only the first so many bytes are left.
    Cut(usize),
    /// These bytes stand at this place.
    Set(usize, Vec<u8>),
    /// These bytes follow the packet (Ethernet pads frames to 60 bytes).
    Pad(usize),
}

impl Frame {
    /// A frame from one MAC to another.
    pub fn new(from: Mac, to: Mac, ip: Ip) -> Frame {
        Frame { to, from, vlan: 0, ip, damage: Vec::new() }
    }

    /// With an 802.1Q tag.
    pub fn vlan(mut self, tag: u16) -> Frame {
        self.vlan = tag;
        self
    }

    /// With its end cut off after `len` bytes.
    pub fn cut(mut self, len: usize) -> Frame {
        self.damage.push(Damage::Cut(len));
        self
    }

    /// With `bytes` written at `at`.
    pub fn set(mut self, at: usize, bytes: &[u8]) -> Frame {
        self.damage.push(Damage::Set(at, bytes.to_vec()));
        self
    }

    /// With zeros after it up to `len` bytes.
    pub fn pad(mut self, len: usize) -> Frame {
        self.damage.push(Damage::Pad(len));
        self
    }

    /// As the receiver would send it back untouched: MACs and outer addresses change places, the
    /// ports stay as they are.
    pub fn sent_back(mut self) -> Frame {
        std::mem::swap(&mut self.from, &mut self.to);
        self.ip = self.ip.addresses_swapped();
        self
    }

    /// The same on its next cable.
    pub fn between(mut self, from: Mac, to: Mac) -> Frame {
        (self.from, self.to) = (from, to);
        self
    }

    /// With another packet in it.
    pub fn with(mut self, change: impl FnOnce(Ip) -> Ip) -> Frame {
        self.ip = change(self.ip);
        self
    }

    /// Bytes in front of the IP packet.
    pub fn l3(&self) -> usize {
        if self.vlan == 0 { 14 } else { 18 }
    }

    /// The frame as it lies on the cable, without its check sequence.
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

/// An ARP frame: who has `target`, asked by `sender` (RFC 826). With `answer` set, the answer.
pub fn arp(from: Mac, to: Mac, sender: [u8; 4], target: [u8; 4], answer: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(60);
    out.extend(to);
    out.extend(from);
    out.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, if answer { 2 } else { 1 }]);
    out.extend(from);
    out.extend(sender);
    out.extend(if answer { to } else { [0; 6] });
    out.extend(target);
    out.resize(60, 0);
    out
}

#[cfg(test)]
mod tests;
