//! The origin of a flow's packet, carried to backends in the options of Weir's own GENEVE tunnel.
//!
//! A gateway consists of many nodes, each with an address of its own; the origin identifies the
//! node that sent a packet. A backend that answers through the same tunnel echoes the options, so
//! that its answer can be forwarded even if the flow is in no table. The options carry 20 bytes:
//!
//! ```text
//!  endpoint    the gateway's, 64 bits
//!  attachment  tag 16 | node 16 | port 16 | gateway 16
//!  cookie      the gateway's, 32 bits
//! ```
//! The node field is a digest of the node's address, the port field the node's UDP source port. The
//! tag is a 16-bit check value over the flow's hash, the node, the port and the cookie. The hash
//! depends on the region's seed and the endpoint's scope. The tag detects options of another flow;
//! a forged tag passes once in 65,536 attempts. The tag is not cryptographic.
//!
//! Without an origin, the attachment is [`ATTACHMENT_MARK`](crate::geneve::ATTACHMENT_MARK) with
//! the gateway's number, and its port field is 0.

use crate::addr::Addr;
use crate::geneve::ATTACHMENT_MARK;

/// The gateway, node, port and cookie with which a packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The gateway's number.
    pub gateway: u16,
    /// [`node_digest`] of the gateway node's address.
    pub node: u16,
    /// The node's UDP source port, host order.
    pub port: u16,
    /// The gateway's flow cookie.
    pub cookie: u32,
}

/// Returns the attachment for a packet without an origin.
#[inline(always)]
pub const fn without_origin(gateway: u16) -> u64 {
    ATTACHMENT_MARK | gateway as u64
}

/// Returns a 16-bit digest of a gateway node's address. Nodes that share an IPv4 /16 have different
/// digests.
#[inline(always)]
pub const fn node_digest(addr: &Addr) -> u16 {
    let [a, b, c, d] = addr.words;
    let folded = u32::from_be(a ^ b ^ c ^ d);
    (folded >> 16 ^ folded) as u16
}

impl Origin {
    /// Creates the origin of a gateway's packet from `node`. `None` if the node's source port is 0.
    #[inline(always)]
    pub const fn new(gateway: u16, node: &Addr, port: u16, cookie: u32) -> Option<Origin> {
        if port == 0 {
            return None;
        }
        Some(Origin { gateway, node: node_digest(node), port, cookie })
    }

    /// Returns the origin in the options of a backend's packet, or `None` if its port is 0 or its
    /// tag does not match the flow with this hash.
    #[inline(always)]
    pub const fn of_flow(attachment: u64, cookie: u32, hash: u64) -> Option<Origin> {
        let (gateway, port) = (attachment as u16, (attachment >> 16) as u16);
        let origin = Origin { gateway, node: (attachment >> 32) as u16, port, cookie };
        if port != 0 && origin.attachment(hash) == attachment { Some(origin) } else { None }
    }

    /// Returns the attachment that is sent to a backend with a packet of the flow with this hash.
    #[inline(always)]
    pub const fn attachment(&self, hash: u64) -> u64 {
        let node_port = (self.node as u64) << 16 | self.port as u64;
        let named = (self.cookie as u64) << 32 | node_port;
        let mixed = (hash ^ named).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let tag = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 48;
        tag << 48 | node_port << 16 | self.gateway as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const HASH: u64 = 0x0123_4567_89ab_cdef;

    fn v4(octets: [u8; 4]) -> Addr {
        Addr::v4(u32::from_ne_bytes(octets))
    }

    #[test]
    fn origin_round_trips_for_its_flow() {
        let node = v4([10, 0, 1, 100]);
        let origin = Origin::new(0xfffe, &node, 60_001, 0xdead_beef).unwrap();
        let attachment = origin.attachment(HASH);
        assert_eq!(attachment as u16, 0xfffe);
        assert_eq!((attachment >> 16) as u16, 60_001);
        assert_eq!((attachment >> 32) as u16, node_digest(&node));
        assert_eq!(Origin::of_flow(attachment, 0xdead_beef, HASH), Some(origin));
    }

    /// A 16-bit tag matches by chance once in 65,536 cases; in none of these.
    #[test]
    fn any_change_but_of_the_gateway_number_invalidates_the_origin() {
        let origin = Origin::new(3, &v4([10, 0, 1, 100]), 60_001, 7).unwrap();
        let attachment = origin.attachment(HASH);
        for bit in 0..32 {
            assert_eq!(Origin::of_flow(attachment, 7 ^ 1 << bit, HASH), None, "cookie {bit}");
        }
        for bit in 0..64 {
            assert_eq!(Origin::of_flow(attachment, 7, HASH ^ 1 << bit), None, "hash {bit}");
        }
        // Bits 0 to 15 are the gateway's number, which the tag does not cover: it is part of the
        // flow's scope and thereby of its hash.
        for bit in 16..64 {
            assert_eq!(Origin::of_flow(attachment ^ 1 << bit, 7, HASH), None, "{bit}");
        }
    }

    #[test]
    fn the_mark_is_no_origin_and_neither_is_port_0() {
        let mark = without_origin(9);
        assert_eq!((mark as u16, Origin::of_flow(mark, 0, HASH)), (9, None));
        assert_eq!(Origin::new(1, &v4([10, 0, 1, 100]), 0, 7), None);
    }

    #[test]
    fn digests_of_nodes_in_one_network_differ() {
        let nodes = (0..=u16::MAX).map(|n| [10, 1, (n >> 8) as u8, n as u8]);
        let digests: HashSet<u16> = nodes.map(|octets| node_digest(&v4(octets))).collect();
        assert_eq!(digests.len(), 65_536);
        let v6 = |n: u32| Addr { words: [0x2001_u32.to_be(), 5, 0, n.to_be()] };
        let digests: HashSet<u16> = (0..65_536).map(|n| node_digest(&v6(n))).collect();
        assert_eq!(digests.len(), 65_536);
    }
}
