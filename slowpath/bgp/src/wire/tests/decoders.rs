//! Tests that independent decoders understand the encoded messages: tshark (`apt-get install
//! tshark`) and `netgauze-bgp-pkt`.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

use super::golden::encode_context;
use super::netgauze::parse;
use super::write::{EncodeContext, end_of_rib};
use super::*;
use crate::peer::settings::Settings;

fn attributes(next_hop: &str) -> Attributes {
    let mut attributes = Attributes::new(next_hop.parse().unwrap());
    attributes.prepend = 2;
    attributes.med = Some(77);
    attributes.communities = vec![0xfde9_0064, 0xffff_0000];
    attributes.large = vec![[65_001, 8, 9]];
    attributes
}

fn announcement(encode_context: &EncodeContext, next_hop: &str, prefixes: &[&str]) -> Vec<u8> {
    let mut prefixes: Vec<IpNet> = prefixes.iter().map(|text| text.parse().unwrap()).collect();
    let family = Family::of_prefix(&prefixes[0]);
    let encoded = encode_context.announce(family, &attributes(next_hop), &mut prefixes);
    assert!(prefixes.is_empty());
    encoded.unwrap().0
}

/// Name and value of a field.
type ExpectedField = (&'static str, &'static str);

/// Returns messages, each with the fields that a decoder must find in it.
fn messages() -> Vec<(Vec<u8>, Vec<ExpectedField>)> {
    let peer = "192.0.2.2:179".parse().unwrap();
    let mut settings = Settings::new(4_200_000_001, [192, 0, 2, 1].into(), peer, 0);
    settings.extended_next_hop = true;
    let mut restart = crate::peer::tests::after_restart();
    restart.long_lived = Some(std::time::Duration::from_secs(86_400));
    settings.graceful_restart = Some(restart);
    let open = crate::peer::tests::restarted_open_of(&settings).write();
    let extended = EncodeContext { extended_next_hop: true, ..encode_context() };
    let mut gone: Vec<IpNet> = vec!["198.51.100.0/24".parse().unwrap()];
    let mut gone_v6: Vec<IpNet> = vec!["2001:db8:5::/48".parse().unwrap()];
    let refresh = Refresh::new(Family::Ipv6Unicast, RefreshKind::Begin).write();
    let v4 = announcement(&encode_context(), "192.0.2.9", &["203.0.113.10/32", "10.0.0.0/9"]);
    let v6 = announcement(&encode_context(), "2001:db8::9", &["2001:db8:1::/48"]);
    let mixed = announcement(&extended, "2001:db8::9", &["203.0.113.11/32"]);
    vec![
        (
            open,
            vec![
                ("bgp.type", "1"),
                ("bgp.open.myas", "23456"),
                ("bgp.open.holdtime", "90"),
                ("bgp.open.identifier", "192.0.2.1"),
                ("bgp.cap.4as", "4200000001"),
                ("bgp.cap.gr.timers.restart_flag", "1"),
                ("bgp.cap.gr.timers.restart_time", "120"),
                ("bgp.cap.enh.nhafi", "2"),
                ("bgp.cap.type", "71"),
            ],
        ),
        (
            v4,
            vec![
                ("bgp.nlri_prefix", "203.0.113.10"),
                ("bgp.nlri_prefix", "10.0.0.0"),
                ("bgp.prefix_length", "9"),
                ("bgp.update.path_attribute.next_hop", "192.0.2.9"),
                ("bgp.update.path_attribute.as_path_segment.as4", "65001"),
                ("bgp.update.path_attribute.as_path_segment.length", "3"),
                ("bgp.update.path_attribute.multi_exit_disc", "77"),
                ("bgp.update.path_attribute.community_as", "65001"),
                ("bgp.large_communities.ga", "65001"),
                ("bgp.large_communities.ldp2", "9"),
            ],
        ),
        (
            v6,
            vec![
                ("bgp.update.path_attribute.mp_reach_nlri.next_hop.ipv6", "2001:db8::9"),
                ("bgp.mp_reach_nlri_ipv6_prefix", "2001:db8:1::"),
                ("bgp.prefix_length", "48"),
            ],
        ),
        (
            mixed,
            vec![
                ("bgp.update.path_attribute.mp_reach_nlri.afi", "1"),
                ("bgp.mp_reach_nlri_ipv4_prefix", "203.0.113.11"),
            ],
        ),
        (
            encode_context().withdraw(Family::Ipv4Unicast, &mut gone).0,
            vec![("bgp.withdrawn_prefix", "198.51.100.0")],
        ),
        (
            encode_context().withdraw(Family::Ipv6Unicast, &mut gone_v6).0,
            vec![("bgp.mp_unreach_nlri_ipv6_prefix", "2001:db8:5::")],
        ),
        (
            end_of_rib(Family::Ipv6Unicast),
            vec![("bgp.update.path_attribute.mp_unreach_nlri.afi", "2")],
        ),
        (end_of_rib(Family::Ipv4Unicast), vec![("bgp.length", "23")]),
        (
            Notification::cease_with_message(2, "until noon").write(),
            vec![
                ("bgp.notify.major_error", "6"),
                ("bgp.notify.minor_error_cease", "2"),
                ("bgp.notify.communication", "until noon"),
            ],
        ),
        (refresh, vec![("bgp.type", "5"), ("bgp.route_refresh.afi", "2")]),
        (frame::keepalive(), vec![("bgp.type", "4")]),
    ]
}

/// Collects all fields of a JSON value at any depth; a repeated field has several entries.
fn fields(name: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| fields(name, value, found)),
        Value::Array(array) => array.iter().for_each(|value| fields(name, value, found)),
        Value::String(text) => found.push((name.to_owned(), text.clone())),
        _ => {}
    }
}

/// Returns the fields of each message as decoded by tshark, each message in a TCP segment of its
/// own.
fn dissect(messages: &[Vec<u8>]) -> Vec<Vec<(String, String)>> {
    let folder = std::env::temp_dir().join(format!("bgp-decoders-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (hex, capture) = (folder.join("hex"), folder.join("pcap"));
    let mut text = String::new();
    for message in messages {
        text.push_str("000000");
        message.iter().for_each(|octet| write!(text, " {octet:02x}").unwrap());
        text.push('\n');
    }
    std::fs::write(&hex, text).unwrap();
    let made = Command::new("text2pcap").args(["-T", "1024,179"]).arg(&hex).arg(&capture).output();
    assert!(made.expect("text2pcap, of the package tshark").status.success());
    let arguments = ["-T", "json", "--no-duplicate-keys", "-o", "tcp.desegment_tcp_streams:FALSE"];
    let read = Command::new("tshark").args(arguments).arg("-r").arg(&capture).output();
    let read = read.expect("tshark, of the package of that name");
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let packets: Vec<Value> = serde_json::from_slice(&read.stdout).unwrap();
    let of_packet = |packet: &Value| {
        let mut found = Vec::new();
        fields("", &packet["_source"]["layers"], &mut found);
        found.retain(|(name, _)| name.starts_with("bgp") || name.starts_with("_ws"));
        found
    };
    packets.iter().map(of_packet).collect()
}

#[test]
fn tshark_decodes_the_encoded_messages() {
    let (octets, expected): (Vec<_>, Vec<_>) = messages().into_iter().unzip();
    let read = dissect(&octets);
    assert_eq!(read.len(), expected.len());
    for (found, expected) in read.iter().zip(expected) {
        for (name, value) in expected {
            let has = found.iter().any(|(n, v)| n == name && (v == value || v == &as_hex(value)));
            let of_name: Vec<_> = found.iter().filter(|(n, _)| n == name).collect();
            assert!(has, "{name} = {value}, but {of_name:?} in {found:#?}");
        }
        let wrong = found.iter().find(|(n, _)| n.contains("malformed") || n.contains("expert"));
        assert_eq!(wrong, None, "{found:#?}");
    }
}

/// Converts a decimal number to the hexadecimal form that tshark uses for some fields.
fn as_hex(value: &str) -> String {
    value.parse::<u32>().map_or_else(|_| value.to_owned(), |number| format!("0x{number:02x}"))
}

#[test]
fn netgauze_decodes_and_reencodes_the_messages() {
    use netgauze_reading::WritablePdu;
    for (octets, _) in messages() {
        let message = parse(&octets).unwrap_or_else(|error| panic!("{error}: {octets:02x?}"));
        let mut again = Vec::new();
        message.write(&mut again).unwrap();
        assert_eq!(again.len(), octets.len(), "{message:?}");
    }
}
