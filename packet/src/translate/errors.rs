//! Translation of ICMP errors between the families (RFC 7915 §4.2 and §5.2).

/// An ICMP error's type, code, and the four bytes after the checksum as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IcmpHeader {
    pub(super) kind: u8,
    pub(super) code: u8,
    pub(super) rest: u32,
}

/// The difference in bytes between an IPv6 header and an IPv4 header without options.
const HEADER_DIFFERENCE: u32 = 20;
/// The minimum MTU of an IPv6 link in bytes (RFC 8200 §5).
const MIN_MTU_V6: u32 = 1280;
/// The minimum MTU of an IPv4 link in bytes (RFC 791 §3.2).
const MIN_MTU_V4: u32 = 68;
/// The MTU plateaus below 65,535 for routers that predate RFC 1191, in descending order (RFC 1191
/// §7).
const PLATEAUS: [u16; 10] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296, 68];

/// Translates an error to the other family; `len` is the length in bytes that the quoted packet's
/// header states. Returns `None` if the other family has no equivalent.
///
/// ICMP extensions (RFC 4884) after the quote become plain bytes of the quote, because the field
/// that locates them is cleared: it counts words of 4 bytes in ICMPv4 and of 8 bytes in ICMPv6.
#[inline(always)]
pub(super) fn translated(v6: bool, header: IcmpHeader, len: u16) -> Option<IcmpHeader> {
    if v6 { to_v4(header) } else { to_v6(header, len) }
}

#[inline(always)]
fn to_v6(header: IcmpHeader, len: u16) -> Option<IcmpHeader> {
    let (kind, code, rest) = match (header.kind, header.code) {
        // Protocol unreachable: the pointer is the offset of the next-header field, byte 6.
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        (3, 4) => (2, 0, v6_mtu(header.rest & 0xffff, len)),
        (3, 9 | 10 | 13 | 15) => (1, 1, 0),
        (3, 0..=8 | 11 | 12) => (1, 0, 0),
        (11, code) => (3, code, 0),
        (12, 0 | 2) => (4, 0, v6_pointer(header.rest >> 24)?),
        _ => return None,
    };
    Some(IcmpHeader { kind, code, rest })
}

#[inline(always)]
fn to_v4(header: IcmpHeader) -> Option<IcmpHeader> {
    let (kind, code, rest) = match (header.kind, header.code) {
        (1, 0 | 2 | 3) => (3, 1, 0),
        (1, 1) => (3, 10, 0),
        (1, 4) => (3, 3, 0),
        (2, _) => (3, 4, v4_mtu(header.rest)),
        (3, code) => (11, code, 0),
        (4, 0) => (12, 0, v4_pointer(header.rest)? << 24),
        (4, 1) => (3, 2, 0),
        _ => return None,
    };
    Some(IcmpHeader { kind, code, rest })
}

/// Returns the MTU to report to an IPv6 sender, in bytes. If the IPv4 router reports none, the MTU
/// is derived from the highest plateau below `len`, the quoted packet's length in bytes.
#[inline(always)]
fn v6_mtu(reported: u32, len: u16) -> u32 {
    let mut mtu = reported;
    if reported == 0 {
        for plateau in PLATEAUS {
            if plateau < len {
                mtu = u32::from(plateau);
                break;
            }
        }
    }
    let mtu = mtu + HEADER_DIFFERENCE;
    if mtu < MIN_MTU_V6 { MIN_MTU_V6 } else { mtu }
}

/// Returns the MTU to report to an IPv4 sender, in bytes.
#[inline(always)]
fn v4_mtu(reported: u32) -> u32 {
    let mtu = if reported > 0xffff { 0xffff } else { reported };
    if mtu < MIN_MTU_V4 + HEADER_DIFFERENCE { MIN_MTU_V4 } else { mtu - HEADER_DIFFERENCE }
}

/// Returns the offset of the IPv6 header field that corresponds to the byte at offset `at` of the
/// IPv4 header (RFC 7915 §4.2, figure 3).
#[inline(always)]
fn v6_pointer(at: u32) -> Option<u32> {
    Some(match at {
        0 | 1 => at,
        2 | 3 => 4,
        8 => 7,
        9 => 6,
        12..=15 => 8,
        16..=19 => 24,
        _ => return None,
    })
}

/// Returns the offset of the IPv4 header field that corresponds to the byte at offset `at` of the
/// IPv6 header (RFC 7915 §5.2, figure 6).
#[inline(always)]
fn v4_pointer(at: u32) -> Option<u32> {
    Some(match at {
        0 | 1 => at,
        4 | 5 => 2,
        6 => 9,
        7 => 8,
        8..=23 => 12,
        24..=39 => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four(kind: u8, code: u8, rest: u32, len: u16) -> Option<(u8, u8, u32)> {
        let header = translated(false, IcmpHeader { kind, code, rest }, len);
        header.map(|header| (header.kind, header.code, header.rest))
    }

    fn six(kind: u8, code: u8, rest: u32) -> Option<(u8, u8, u32)> {
        let header = translated(true, IcmpHeader { kind, code, rest }, 0);
        header.map(|header| (header.kind, header.code, header.rest))
    }

    #[test]
    fn ipv4_errors_translate_to_ipv6() {
        // The ICMPv6 code by ICMPv4 code. 88: no equivalent. 99: another ICMPv6 type, see below.
        let unreachable = [0, 0, 99, 4, 99, 0, 0, 0, 0, 1, 1, 0, 0, 1, 88, 1];
        for (code, expected) in unreachable.into_iter().enumerate() {
            let expected = match (code, expected) {
                (2, _) => Some((4, 1, 6)),
                (4, _) => Some((2, 0, 1_420)),
                (_, 88) => None,
                (_, six) => Some((1, six, 0)),
            };
            assert_eq!(four(3, code as u8, 1_400, 1_500), expected, "code {code}");
        }
        assert_eq!((four(3, 16, 0, 0), four(4, 0, 0, 0), four(5, 1, 9, 0)), (None, None, None));
        assert_eq!((four(11, 0, 7, 0), four(11, 1, 0, 0)), (Some((3, 0, 0)), Some((3, 1, 0))));
        let pointers = [
            Some(0),
            Some(1),
            Some(4),
            Some(4),
            None,
            None,
            None,
            None,
            Some(7),
            Some(6),
            None,
            None,
            Some(8),
            Some(8),
            Some(8),
            Some(8),
            Some(24),
            Some(24),
            Some(24),
            Some(24),
            None,
        ];
        for (at, pointer) in pointers.into_iter().enumerate() {
            let expected = pointer.map(|pointer| (4, 0, pointer));
            assert_eq!(four(12, 0, (at as u32) << 24 | 0x7777, 0), expected, "byte {at}");
            assert_eq!(four(12, 2, (at as u32) << 24, 0), expected, "byte {at}");
        }
        assert_eq!((four(12, 1, 0, 0), four(8, 0, 0, 0), four(13, 0, 0, 0)), (None, None, None));
    }

    #[test]
    fn ipv6_errors_translate_to_ipv4() {
        for (code, expected) in
            [Some(1), Some(10), Some(1), Some(1), Some(3), None, None].into_iter().enumerate()
        {
            let expected = expected.map(|four| (3, four, 0));
            assert_eq!(six(1, code as u8, 5), expected, "code {code}");
        }
        assert_eq!((six(3, 0, 1), six(3, 1, 0)), (Some((11, 0, 0)), Some((11, 1, 0))));
        assert_eq!((six(4, 1, 6), six(4, 2, 6), six(4, 3, 6)), (Some((3, 2, 0)), None, None));
        for at in 0..48 {
            let pointer = match at {
                0 | 1 => Some(at),
                4 | 5 => Some(2),
                6 => Some(9),
                7 => Some(8),
                8..24 => Some(12),
                24..40 => Some(16),
                _ => None,
            };
            assert_eq!(six(4, 0, at), pointer.map(|pointer| (12, 0, pointer << 24)), "byte {at}");
        }
        assert_eq!(six(4, 0, u32::MAX), None);
        for kind in [0, 5, 100, 128, 130, 133, 135, 136, 137, 255] {
            assert_eq!(six(kind, 0, 0), None, "type {kind}");
        }
    }

    #[test]
    fn mtu_is_converted_between_families() {
        for (reported, len, expected) in [
            (1_480, 1_500, 1_500),
            (9_001, 9_100, 9_021),
            (600, 1_500, 1_280),
            (0, 1_500, 1_512),
            (0, 1_492, 1_280),
            (0, 9_000, 8_186),
            (0, 100, 1_280),
            (0, 60, 1_280),
            (65_535, 65_535, 65_555),
        ] {
            assert_eq!(four(3, 4, reported, len), Some((2, 0, expected)), "{reported} of {len}");
        }
        for (reported, expected) in
            [(1_500, 1_480), (1_280, 1_260), (1_000, 980), (80, 68), (0, 68), (u32::MAX, 65_515)]
        {
            assert_eq!(six(2, 0, reported), Some((3, 4, expected)), "{reported}");
        }
    }
}
