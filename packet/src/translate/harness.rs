//! Harness that checks the translation of any packet, for tests and fuzzing.

use super::{Untranslatable, add_udp_checksum, error, packet, translated_len};
use crate::addr::Addr;
use crate::checksum::{ipv4_header_ok, l4_field, l4_full};
use crate::icmp;
use crate::ip::{Fragment, ICMP, ICMPV6, Ip, L4};
use crate::rewrite::Rewrite;
use crate::window::{Short, Window};
use std::vec::Vec;

const V6_ENDPOINTS: [Addr; 2] =
    [Addr { words: [0xfd, 2, 3, 0x0405_0607] }, Addr { words: [0xfd, 0xffff_ffff, 0, 99] }];
const V4_ENDPOINTS: [Addr; 2] = [Addr::v4(0x0a0b_0c0d), Addr::v4(0xffff_fefe)];

fn endpoints(v6: bool) -> Rewrite {
    let [src, dst] = if v6 { V6_ENDPOINTS } else { V4_ENDPOINTS };
    Rewrite { src, sport: 4_660, dst, dport: 4_660 }
}

/// Returns the translation of the packet at the start of `bytes`, or `None` if there is none.
/// `bytes` keeps the original packet; a missing UDP checksum is filled in if the translation needs
/// it.
pub(crate) fn translated(bytes: &mut Vec<u8>, ip: &Ip, to: &Rewrite) -> Option<Vec<u8>> {
    let quoted = icmp::quoted(&Window::new(bytes), ip).ok();
    let mut changed = bytes.clone();
    let mut w = Window::new(&mut changed);
    let headers = match quoted {
        Some(quoted) => error(&mut w, ip, &quoted, to, to),
        None => match packet(&mut w, ip, to) {
            Err(Untranslatable::ZeroUdpChecksum) => {
                assert_eq!(changed, *bytes, "an untranslatable packet is unchanged");
                add_udp_checksum(&mut Window::new(bytes), ip).ok()?;
                changed.clone_from(bytes);
                packet(&mut Window::new(&mut changed), ip, to)
            }
            other => other,
        },
    };
    let headers = headers.ok()?;
    let mut out = std::vec![0; usize::from(headers.len())];
    out.extend_from_slice(&changed[usize::from(headers.kept_from)..usize::from(ip.end)]);
    assert_eq!(out.len() as u32, translated_len(ip, quoted.as_ref()));
    let mut w = Window::new(&mut out);
    assert!(headers.write(&mut w, 0).is_ok());
    let mut placed = *ip;
    headers.update_parsed(0, &mut placed);
    let result = Ip::parse(&w, 0, placed.ethertype()).expect("a translation is an IP packet");
    assert_eq!(
        (result.at, result.l4, result.end, result.v6),
        (placed.at, placed.l4, placed.end, !ip.v6)
    );
    assert_eq!(
        (result.proto, result.df, result.src, result.dst),
        (placed.proto, placed.df, to.src, to.dst)
    );
    if result.fragment != Fragment::Whole || !result.v6 {
        assert_eq!(result.fragment_id as u16, placed.fragment_id as u16);
    }
    Some(out)
}

/// Returns true if the upper-layer checksum is correct. The two forms of zero are equivalent.
fn has_valid_checksum(bytes: &mut [u8], ip: &Ip) -> bool {
    let w = Window::new(bytes);
    let sum = l4_field(ip).map_or(Err(Short), |field| w.load::<u16>(usize::from(field)));
    l4_full(&w, ip).map(|full| full % 0xffff) == sum.map(|sum| sum % 0xffff)
}

/// Translates `bytes` if it is an accepted packet, and checks that the result has the new addresses
/// and that its checksum is correct exactly if the original's is. Translates it back and checks
/// that this restores the original, except for what the other family cannot represent.
pub fn harness(bytes: &mut [u8]) {
    for ethertype in [crate::ethernet::IPV4, crate::ethernet::IPV6] {
        let Ok(ip) = Ip::parse(&Window::new(bytes), 0, ethertype) else { continue };
        // The data planes do not translate ICMP of the other family: NAT does not support it.
        if ip.proto == if ip.v6 { ICMP } else { ICMPV6 } {
            continue;
        }
        // Truncated to the packet's end, so that the window ends with the packet.
        let mut before = bytes[..usize::from(ip.end)].to_vec();
        let to = endpoints(!ip.v6);
        let Some(mut forward) = translated(&mut before, &ip, &to) else { continue };
        let parsed = Ip::parse(&Window::new(&mut forward), 0, if ip.v6 { 0x0800 } else { 0x86dd });
        let result = parsed.expect("the translation is an IP packet");
        assert!(
            (result.src, result.dst) == (to.src, to.dst)
                && (result.tos, result.ttl) == (ip.tos, ip.ttl)
        );
        assert_eq!(result.fragment, ip.fragment);
        assert!(result.v6 || ipv4_header_ok(&Window::new(&mut forward), &result));
        if ip.kind != L4::IcmpError && ip.kind != L4::None {
            assert_eq!((result.sport, result.dport), (to.sport, to.dport));
        }
        let summed = ip.fragment == Fragment::Whole
            && !(ip.kind == L4::Udp && is_unsummed(&mut before, &ip));
        if summed && l4_full(&Window::new(&mut before), &ip).is_ok() {
            let valid = has_valid_checksum(&mut before, &ip);
            assert_eq!(valid, has_valid_checksum(&mut forward, &result), "{ip:?}");
        }
        // Translating back would not restore an ICMP error exactly, nor an IPv6 datagram without a
        // checksum.
        let unsummed = ip.kind == L4::Udp && is_unsummed(&mut forward, &result);
        if ip.kind == L4::IcmpError || unsummed {
            continue;
        }
        let back = Rewrite { src: ip.src, sport: ip.sport, dst: ip.dst, dport: ip.dport };
        let restored = translated(&mut forward, &result, &back);
        let mut restored = restored.expect("the translation is reversible");
        let restored_ip = Ip::parse(&Window::new(&mut restored), 0, ethertype)
            .expect("the restored bytes are an IP packet");
        let Ip { at, l4, end, df, fragment_id, .. } = ip;
        assert_eq!(Ip { at, l4, end, df, fragment_id, ..restored_ip }, ip);
        assert_eq!(payload(&restored, &restored_ip), payload(&before, &ip));
    }
}

/// Returns true if a UDP datagram has no checksum.
fn is_unsummed(bytes: &mut [u8], ip: &Ip) -> bool {
    Window::new(bytes).load(usize::from(ip.l4) + 6) == Ok(0_u16)
}

/// Returns the bytes after the IP header, with a checksum of 0xffff replaced by the equivalent 0.
fn payload(bytes: &[u8], ip: &Ip) -> Vec<u8> {
    let mut payload = bytes[usize::from(ip.l4)..].to_vec();
    let field = l4_field(ip).map_or(0, |field| usize::from(field - ip.l4));
    if field != 0 && payload[field..field + 2] == [0xff, 0xff] {
        payload[field..field + 2].fill(0);
    }
    payload
}
