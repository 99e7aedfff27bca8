//! Rate limits of ICMP errors (RFC 1812 §4.3.2.8, RFC 4443 §2.4 f), for both data planes: errors
//! that an lcore sends per second, by arm and by the receiver's network, and received errors about
//! Weir's tunnel packets that an lcore evaluates per second.
//!
//! A sender chooses the source address of its packets, and thereby the receiver of errors about
//! them. The limit per network prevents the use of Weir against a network; the limit per arm bounds
//! total work and bandwidth. Each kind of error has its own limit per arm, so that a flood of
//! packets with expired TTL does not prevent senders from learning their path MTU.

use packet::addr::Addr;
use packet::flow::FlowKey;

use crate::record::ErrorLimits;
use crate::token_bucket::{Rate, SECOND_NS, TokenBucket};

/// Number of buckets for networks, which are assigned by hash. A power of two.
pub const NETWORKS: usize = 256;

/// An ICMP error about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingError {
    /// Arm on which it is sent: 0 ingress, 1 egress.
    pub arm: u8,
    /// Whether it is a too-big error; else it is a time-exceeded error.
    pub too_big: bool,
    /// Hash of the receiver's [`network_key`].
    pub network: u64,
}

/// Token buckets of one lcore, which is their only writer.
#[repr(C)]
#[derive(Debug)]
pub struct ErrorLimit {
    /// Buckets of both arms and kinds; the index is `arm * 2 + too_big`.
    arms: [TokenBucket; 4],
    path_mtu: TokenBucket,
    networks: [TokenBucket; NETWORKS],
}

/// Returns the rate for a limit per second. The callers' clock has a resolution of one second, so
/// each new second refills the buckets.
#[inline(always)]
fn rate(per_s: u32) -> Rate {
    Rate { per_s, depth_ns: SECOND_NS }
}

#[inline(always)]
fn ns(now_s: u32) -> u64 {
    now_s as u64 * SECOND_NS
}

impl ErrorLimit {
    /// Creates full buckets.
    pub const fn new() -> ErrorLimit {
        ErrorLimit {
            arms: [const { TokenBucket::new() }; 4],
            path_mtu: TokenBucket::new(),
            networks: [const { TokenBucket::new() }; NETWORKS],
        }
    }

    /// Returns whether an error may be sent, and consumes a token if so.
    #[inline(always)]
    pub fn may_send(&self, sending: &OutgoingError, limits: &ErrorLimits, now_s: u32) -> bool {
        let arm = usize::from(sending.arm & 1) * 2 + usize::from(sending.too_big);
        let arm = &self.arms[arm & 3];
        let network = &self.networks[sending.network as usize & (NETWORKS - 1)];
        // A network beyond its limit consumes no tokens of the shared arm.
        let (to_network, by_arm) = (rate(limits.to_network), rate(limits.by_arm));
        let may = network.has_token(to_network, ns(now_s)) && arm.has_token(by_arm, ns(now_s));
        if may {
            network.take(to_network, ns(now_s));
            arm.take(by_arm, ns(now_s));
        }
        may
    }

    /// Returns whether a received error about one of Weir's tunnel packets may be evaluated, and
    /// consumes a token if so.
    #[inline(always)]
    pub fn may_learn(&self, limits: &ErrorLimits, now_s: u32) -> bool {
        let (rate, now_ns) = (rate(limits.path_mtu), ns(now_s));
        let may = self.path_mtu.has_token(rate, now_ns);
        if may {
            self.path_mtu.take(rate, now_ns);
        }
        may
    }
}

impl Default for ErrorLimit {
    fn default() -> ErrorLimit {
        ErrorLimit::new()
    }
}

/// Returns the network of `addr` (an IPv4 /24 or IPv6 /64) as a key to hash. Callers hash it with
/// the region's secret hash key, so that senders cannot choose networks that share a bucket.
#[inline(always)]
pub fn network_key(addr: &Addr) -> FlowKey {
    let [a, b, c, d] = addr.words;
    let words = match addr.is_v4() {
        true => [a, b, c, d & 0xffff_ff00_u32.to_be()],
        false => [a, b, 0, 0],
    };
    FlowKey { low: Addr { words }, ..FlowKey::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ErrorLimits = ErrorLimits { by_arm: 5, to_network: 2, path_mtu: 3 };

    fn sending(arm: u8, too_big: bool, network: u64) -> OutgoingError {
        OutgoingError { arm, too_big, network }
    }

    #[test]
    fn network_and_arm_limits_apply_per_second() {
        let limit = &ErrorLimit::new();
        for now_s in [7, 8, u32::MAX, 0] {
            let sent = |network| {
                (0..9).filter(move |_| limit.may_send(&sending(0, false, network), &LIMITS, now_s))
            };
            assert_eq!([1, 2, 3, 4].map(|network| sent(network).count()), [2, 2, 1, 0]);
            // The other arm and the other kind of error have their own limits.
            for (arm, too_big) in [(0, true), (1, false), (1, true)] {
                assert!(limit.may_send(&sending(arm, too_big, 5 + u64::from(arm)), &LIMITS, now_s));
            }
        }
    }

    #[test]
    fn network_limited_errors_do_not_use_arm_limit() {
        let limit = ErrorLimit::new();
        let sent = (0..100).filter(|_| limit.may_send(&sending(1, true, 1), &LIMITS, 7)).count();
        assert_eq!(sent, 2);
        let rest = (2..9).filter(|n| limit.may_send(&sending(1, true, *n), &LIMITS, 7)).count();
        assert_eq!(rest, 3);
    }

    #[test]
    fn zero_is_no_limit() {
        let (limit, none) = (ErrorLimit::new(), ErrorLimits::default());
        assert!((0..9_999).all(|_| limit.may_send(&sending(0, true, 1), &none, 7)));
        assert!((0..9_999).all(|_| limit.may_learn(&none, 7)));
        assert_eq!((0..9).filter(|_| limit.may_learn(&LIMITS, 8)).count(), 3);
    }

    #[test]
    fn networks_are_ipv4_24_and_ipv6_64() {
        let v4 = |octets: [u8; 4]| Addr::v4(u32::from_ne_bytes(octets));
        let v6 = |low: u64, host: u64| {
            let bytes = (u128::from(low) << 64 | u128::from(host)).to_be_bytes();
            Addr::from(std::net::IpAddr::from(bytes))
        };
        let key = |addr| network_key(&addr);
        assert_eq!(key(v4([10, 1, 2, 3])), key(v4([10, 1, 2, 250])));
        assert_ne!(key(v4([10, 1, 2, 3])), key(v4([10, 1, 3, 3])));
        let net = 0x2001_0db8_0000_0001;
        assert_eq!(key(v6(net, 5)), key(v6(net, u64::MAX)));
        assert_ne!(key(v6(net, 5)), key(v6(net + 1, 5)));
    }
}
