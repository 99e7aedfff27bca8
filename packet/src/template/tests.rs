//! Tests of templates against `write_outer`, byte by byte.

use super::*;
use crate::addr::Addr;
use crate::geneve::{OWN_OPTIONS, own_options};
use crate::tunnel::{TunnelKind, outer_len};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Returns outer headers that a template supports.
fn usual(options: &[u8; OWN_OPTIONS]) -> Outer<'_> {
    Outer {
        kind: TunnelKind::Geneve,
        macs: Macs::new([4; 6], [2; 6]),
        vlan: 0,
        src: Addr::v4(u32::from_ne_bytes([10, 0, 2, 10])),
        dst: Addr::v4(u32::from_ne_bytes([10, 0, 2, 99])),
        sport: 0xc123,
        dport: 6081,
        vni: 0,
        options,
        inner_v6: false,
        inner_eth: None,
        tos: 0,
        ttl: 64,
        df: false,
        checksum: false,
    }
}

/// Returns a frame with this inner packet after [`LEN`] bytes that are not zero.
fn frame(inner: &[u8]) -> Vec<u8> {
    [vec![0xee; LEN], inner.to_vec()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 2_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn template_writes_the_same_bytes_as_write_outer(
        (ends, ports) in (any::<[u32; 4]>(), any::<[u16; 2]>()),
        (macs, next_macs) in (any::<[[u8; 6]; 2]>(), any::<[[u8; 6]; 2]>()),
        (vni, tos, ttl) in (0u32..1 << 24, any::<[u8; 2]>(), any::<u8>()),
        (df, inner_v6) in any::<(bool, bool)>(),
        (endpoint, attachments, cookies) in any::<(u64, [u64; 2], [u32; 2])>(),
        inner in prop::collection::vec(any::<u8>(), 0..1500),
    ) {
        // A template built from one packet's headers is used for another packet.
        let mut options = [0; OWN_OPTIONS];
        own_options(&mut options, endpoint, attachments[0], cookies[0]);
        let first = Outer {
            macs: Macs::new(macs[0], macs[1]),
            src: Addr::v4(ends[0]),
            dst: Addr::v4(ends[1]),
            sport: ports[0],
            dport: (ends[3] >> 16) as u16,
            vni,
            inner_v6,
            tos: tos[0],
            ttl,
            df,
            ..usual(&options)
        };
        let template = Template::of(&first).unwrap();
        let mut others = [0; OWN_OPTIONS];
        own_options(&mut others, endpoint, attachments[1], cookies[1]);
        let second = Outer {
            macs: Macs::new(next_macs[0], next_macs[1]),
            dst: Addr::v4(ends[2]),
            sport: ports[1],
            tos: tos[1],
            options: &others,
            ..first
        };
        let own = PacketFields {
            macs: second.macs,
            dst: ends[2],
            sport: ports[1],
            attachment: attachments[1],
            cookie: cookies[1],
            tos: tos[1],
        };
        let (mut long, mut short) = (frame(&inner), frame(&inner));
        assert_eq!(outer_len(&second), LEN);
        assert!(write_outer(&mut Window::new(&mut long), &second, inner.len()).is_ok());
        assert!(template.write(&mut Window::new(&mut short), &own, inner.len()).is_ok());
        assert_eq!(long, short);
    }
}

#[test]
fn other_header_layouts_have_no_template() {
    let options = [0; OWN_OPTIONS];
    let usual = usual(&options);
    assert!(Template::of(&usual).is_some());
    let v6 = Addr { words: [1, 2, 3, 4] };
    for other in [
        Outer { kind: TunnelKind::Vxlan, ..usual },
        Outer { kind: TunnelKind::Gue, ..usual },
        Outer { kind: TunnelKind::Ipip, ..usual },
        Outer { vlan: 5, ..usual },
        Outer { src: v6, dst: v6, ..usual },
        Outer { options: &options[4..], ..usual },
        Outer { options: &[], ..usual },
        Outer { inner_eth: Some(usual.macs), ..usual },
        Outer { checksum: true, ..usual },
    ] {
        assert_eq!(Template::of(&other), None, "{other:?}");
    }
}

#[test]
fn headers_that_do_not_fit_are_an_error() {
    let options = [0; OWN_OPTIONS];
    let template = Template::of(&usual(&options)).unwrap();
    let macs = Macs::new([4; 6], [2; 6]);
    let own = PacketFields { macs, dst: 1, sport: 2, attachment: 5, cookie: 3, tos: 4 };
    let mut bytes = [0xee; LEN];
    let max = 65_515 - (LEN - L4);
    assert_eq!(template.write(&mut Window::new(&mut bytes[1..]), &own, 64), Err(Short));
    assert_eq!(template.write(&mut Window::new(&mut bytes), &own, max + 1), Err(Short));
    assert_eq!(bytes, [0xee; LEN]);
    assert_eq!(template.write(&mut Window::new(&mut bytes), &own, max), Ok(()));
}
