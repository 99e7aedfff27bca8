//! `Addr`: one address type for both families, with IPv4 as `::ffff:a.b.c.d` (RFC 4291 §2.5.5.2).
//!
//! All table keys use this type, so that one table serves IPv4, IPv6 and translation between them.
//! The bytes are in network order. Words are compared and hashed as they are; arithmetic, such as
//! that of prefixes, converts them to host order first.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 or IPv6 address, 16 bytes in network order.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Addr {
    /// The four words in wire order, each read with the host's byte order.
    pub words: [u32; 4],
}

/// The third word of an IPv4-mapped address, `00 00 ff ff` on the wire.
const MAPPED: u32 = 0x0000_ffff_u32.to_be();

impl Addr {
    /// The unspecified address, `::`.
    pub const UNSPECIFIED: Addr = Addr { words: [0; 4] };

    /// Creates an IPv4 address from its four bytes in wire order.
    #[inline(always)]
    pub const fn v4(wire: u32) -> Addr {
        Addr { words: [0, 0, MAPPED, wire] }
    }

    /// Returns a copy that is made word by word. The BPF compiler turns a plain copy of the struct
    /// into a loop over bytes.
    #[inline(always)]
    pub const fn in_words(&self) -> Addr {
        let [a, b, c, d] = self.words;
        Addr { words: [a, b, c, d] }
    }

    /// Returns true for an IPv4 address.
    #[inline(always)]
    pub const fn is_v4(&self) -> bool {
        (self.words[0] | self.words[1] | (self.words[2] ^ MAPPED)) == 0
    }

    /// Returns the four bytes of an IPv4 address in wire order, as one word. For an IPv6 address,
    /// the result is only its last four bytes.
    #[inline(always)]
    pub const fn v4_wire(&self) -> u32 {
        self.words[3]
    }

    /// Returns true for an address that must not be a packet's source: loopback (127/8, `::1`),
    /// multicast, limited broadcast (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3 and §2.7). Returns false
    /// for the unspecified address, a valid source before a host has an address.
    #[inline(always)]
    pub const fn is_martian(&self) -> bool {
        let first = self.words[0].to_ne_bytes()[0];
        if self.is_v4() {
            let wire = self.words[3];
            return matches!(wire.to_ne_bytes()[0], 127 | 224..=239) || wire == u32::MAX;
        }
        let loopback = (self.words[0] | self.words[1] | self.words[2]) == 0;
        first == 0xff || (loopback && self.words[3] == 1u32.to_be())
    }

    /// Returns true for an address in fe80::/10, which neighbor discovery and routing protocols use
    /// on every link.
    #[inline(always)]
    pub const fn is_link_local(&self) -> bool {
        let [first, second, ..] = self.words[0].to_ne_bytes();
        first == 0xfe && second & 0xc0 == 0x80
    }

    /// Returns the sixteen bytes in network order.
    pub const fn octets(&self) -> [u8; 16] {
        let (a, b) = (self.words[0].to_ne_bytes(), self.words[1].to_ne_bytes());
        let (c, d) = (self.words[2].to_ne_bytes(), self.words[3].to_ne_bytes());
        [
            a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1],
            d[2], d[3],
        ]
    }

    /// Returns true if the first `len` bits of both addresses agree. `len` counts in the 128-bit
    /// form (IPv4 /24 is 120).
    pub const fn in_prefix(&self, prefix: &Addr, len: u8) -> bool {
        let (a, b, mask) = (self.halves(), prefix.halves(), mask(len));
        ((a[0] ^ b[0]) & mask[0] | (a[1] ^ b[1]) & mask[1]) == 0
    }

    /// Returns the address with all bits after the first `len` cleared (counted in the 128-bit
    /// form).
    pub const fn masked(&self, len: u8) -> Addr {
        let ([a, b], mask) = (self.halves(), mask(len));
        let (a, b) = (a & mask[0], b & mask[1]);
        let words = [(a >> 32) as u32, a as u32, (b >> 32) as u32, b as u32];
        let [a, b, c, d] = words;
        Addr { words: [a.to_be(), b.to_be(), c.to_be(), d.to_be()] }
    }

    /// Returns the address as two numbers, the upper half first: BPF has no 128-bit arithmetic.
    #[inline(always)]
    const fn halves(&self) -> [u64; 2] {
        let [a, b, c, d] = self.words;
        let (a, b, c, d) = (u32::from_be(a), u32::from_be(b), u32::from_be(c), u32::from_be(d));
        [(a as u64) << 32 | b as u64, (c as u64) << 32 | d as u64]
    }

    /// Creates an address from sixteen bytes in network order.
    pub const fn from_octets(o: [u8; 16]) -> Addr {
        Addr {
            words: [
                u32::from_ne_bytes([o[0], o[1], o[2], o[3]]),
                u32::from_ne_bytes([o[4], o[5], o[6], o[7]]),
                u32::from_ne_bytes([o[8], o[9], o[10], o[11]]),
                u32::from_ne_bytes([o[12], o[13], o[14], o[15]]),
            ],
        }
    }
}

/// Returns a 128-bit mask of `len` leading ones, as two numbers. A `len` above 128 counts as 128.
#[inline(always)]
const fn mask(len: u8) -> [u64; 2] {
    const fn half(len: u8) -> u64 {
        if len == 0 { 0 } else { u64::MAX << (64 - len as u32) }
    }
    let first = if len > 64 { 64 } else { len };
    let second = if len > 128 { 64 } else { len - first };
    [half(first), half(second)]
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Addr {
        match ip {
            IpAddr::V4(v4) => Addr::v4(u32::from_ne_bytes(v4.octets())),
            IpAddr::V6(v6) => Addr::from_octets(v6.octets()),
        }
    }
}

impl From<Addr> for IpAddr {
    fn from(addr: Addr) -> IpAddr {
        if addr.is_v4() {
            IpAddr::V4(Ipv4Addr::from(addr.words[3].to_ne_bytes()))
        } else {
            IpAddr::V6(Ipv6Addr::from(addr.octets()))
        }
    }
}

impl core::fmt::Display for Addr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_to_and_from_ip_addr_is_lossless() {
        for text in ["0.0.0.0", "203.0.113.9", "255.255.255.255", "::", "2001:db8::1", "::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(IpAddr::from(Addr::from(ip)), ip);
            assert_eq!(Addr::from(ip).is_v4(), ip.is_ipv4());
        }
    }

    #[test]
    fn martians_are_loopback_multicast_and_broadcast() {
        let martian = |text: &str| Addr::from(text.parse::<IpAddr>().unwrap()).is_martian();
        for text in [
            "127.0.0.0",
            "127.255.255.255",
            "224.0.0.0",
            "239.255.255.255",
            "255.255.255.255",
            "::1",
            "ff00::",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ] {
            assert!(martian(text), "{text}");
        }
        for text in [
            "0.0.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "223.255.255.255",
            "240.0.0.1",
            "255.255.255.254",
            "::",
            "::2",
            "0:0:1::1",
            "feff::1",
            "fe80::1",
        ] {
            assert!(!martian(text), "{text}");
        }
    }

    #[test]
    fn in_prefix_and_masked_compare_exactly_the_first_bits() {
        let net = Addr::from("10.1.2.0".parse::<IpAddr>().unwrap());
        let inside = Addr::from("10.1.2.255".parse::<IpAddr>().unwrap());
        let outside = Addr::from("10.1.3.0".parse::<IpAddr>().unwrap());
        assert!(inside.in_prefix(&net, 120) && !outside.in_prefix(&net, 120));
        assert!(outside.in_prefix(&net, 0));
        assert_eq!(inside.masked(120), net);
        assert_eq!(inside.masked(128), inside);
        let long = Addr::from("2001:db8:ffff:ffff:ffff::1".parse::<IpAddr>().unwrap());
        for len in 0..=u8::MAX {
            let bits = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            let expected = u128::from_be_bytes(long.octets()) & bits;
            assert_eq!(long.masked(len).octets(), expected.to_be_bytes(), "{len}");
            let flipped = |bit: u8| {
                let mut octets = long.octets();
                octets[usize::from(bit / 8)] ^= 0x80 >> (bit % 8);
                Addr::from_octets(octets)
            };
            assert!((0..128).all(|bit| flipped(bit).in_prefix(&long, len) == (bit >= len)));
        }
    }
}
