//! Encapsulation headers: parses those of a received packet, and builds those of its answer.

use std::net::IpAddr;

/// The kinds of tunnel. IPIP has four, by outer and inner address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RFC 8926, UDP 6081.
    Geneve,
    /// RFC 7348, UDP 4789.
    Vxlan,
    /// Generic UDP encapsulation, variants 0 and 1, UDP 6080.
    Gue,
    /// RFC 2003: IPv4 in IPv4.
    Ip4In4,
    /// RFC 4213: IPv6 in IPv4.
    Ip6In4,
    /// RFC 2473: IPv4 in IPv6.
    Ip4In6,
    /// RFC 2473: IPv6 in IPv6.
    Ip6In6,
}

impl Kind {
    /// All kinds, in the order of the counters.
    pub const ALL: [Self; 7] = [
        Self::Geneve,
        Self::Vxlan,
        Self::Gue,
        Self::Ip4In4,
        Self::Ip6In4,
        Self::Ip4In6,
        Self::Ip6In6,
    ];

    /// Returns the UDP port of the kinds that have one.
    pub fn port(self) -> Option<u16> {
        match self {
            Self::Geneve => Some(6_081),
            Self::Vxlan => Some(4_789),
            Self::Gue => Some(6_080),
            _ => None,
        }
    }
}

/// The return path of one flow: the other end of the tunnel, and the headers in front of the inner
/// packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    peer: IpAddr,
    front: Vec<u8>,
}

impl Envelope {
    /// Parses the headers in front of the inner packet; `None` if they are not of this kind. The
    /// inner packet begins at [`Envelope::front_len`].
    pub fn read(kind: Kind, peer: IpAddr, payload: &[u8]) -> Option<Self> {
        let first = *payload.first()?;
        let len = match kind {
            Kind::Geneve if first >> 6 == 0 => 8 + usize::from(first & 0x3f) * 4,
            // The I flag is set, and the inner Ethernet frame contains IP.
            Kind::Vxlan if first & 8 != 0 => match payload.get(20..22)? {
                [8, 0] | [0x86, 0xdd] => 22,
                _ => return None,
            },
            Kind::Gue if first >> 6 == 0 => 4 + usize::from(first & 0x1f) * 4,
            Kind::Gue if first >> 6 == 1 => 0,
            Kind::Ip4In4 | Kind::Ip6In4 | Kind::Ip4In6 | Kind::Ip6In6 => 0,
            _ => return None,
        };
        let mut front = payload.get(..len)?.to_vec();
        if kind == Kind::Vxlan {
            // The inner frame of the answer goes to the sender of the request's inner frame.
            front[8..20].rotate_left(6);
        }
        payload.get(len).map(|_| Self { peer, front })
    }

    /// Returns the number of bytes in front of the inner packet.
    pub fn front_len(&self) -> usize {
        self.front.len()
    }

    /// Returns the address of the other end of the tunnel.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Returns the outer payload that carries `inner` back.
    pub fn around(&self, inner: &[u8]) -> Vec<u8> {
        [&self.front, inner].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, bytes: &[u8]) -> Option<Envelope> {
        Envelope::read(kind, IpAddr::from([10, 0, 2, 10]), bytes)
    }

    #[test]
    fn geneve_options_are_returned_unchanged() {
        let bytes = [1, 0, 8, 0, 0, 0, 0, 0, 1, 8, 3, 0, 0x45];
        let envelope = read(Kind::Geneve, &bytes).unwrap();
        assert_eq!(envelope.around(&bytes[envelope.front_len()..]), bytes);
    }

    #[test]
    fn the_inner_vxlan_frame_returns_to_its_sender() {
        let mut bytes = vec![8, 0, 0, 0, 0, 3, 0x20, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0];
        bytes.push(0x45);
        let envelope = read(Kind::Vxlan, &bytes).unwrap();
        let back = envelope.around(&[0x45]);
        assert_eq!(back[8..20], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1]);
        assert_eq!((&back[..8], &back[20..]), (&bytes[..8], &bytes[20..]));
        bytes[21] = 6;
        assert_eq!(read(Kind::Vxlan, &bytes), None, "a tunnel backend ignores ARP");
    }

    #[test]
    fn both_gue_variants_are_parsed() {
        assert_eq!(read(Kind::Gue, &[0x45, 0, 0]).unwrap().front_len(), 0);
        assert_eq!(read(Kind::Gue, &[0x01, 4, 0, 0, 9, 9, 9, 9, 0x45]).unwrap().front_len(), 8);
        assert_eq!(read(Kind::Gue, &[0x80, 4, 0, 0, 0x45]), None);
    }

    #[test]
    fn truncated_input_is_rejected_and_altered_input_does_not_panic() {
        for kind in Kind::ALL {
            let front = match kind {
                Kind::Geneve => vec![1, 0, 8, 0, 0, 0, 0, 0, 1, 8, 3, 0],
                Kind::Vxlan => [&[8, 0, 0, 0, 0, 3, 0x20, 0], &[1; 12][..], &[8, 0]].concat(),
                Kind::Gue => vec![1, 4, 0, 0, 9, 9, 9, 9],
                _ => Vec::new(),
            };
            let whole = [&front[..], &[0x45]].concat();
            for len in 0..=whole.len() {
                let envelope = read(kind, &whole[..len]);
                assert_eq!(envelope.is_some(), len > front.len(), "{kind:?}, {len} bytes");
                for at in 0..len {
                    for altered in 0..=255 {
                        let mut bytes = whole[..len].to_vec();
                        bytes[at] = altered;
                        let _ = read(kind, &bytes);
                    }
                }
            }
        }
    }
}
