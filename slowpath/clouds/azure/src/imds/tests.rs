//! Parsing of valid and invalid metadata responses.

use azure_core::http::headers::{HeaderName, HeaderValue, Headers};
use fastrand::Rng;
use serde_json::{Value, json};

use super::read::parse_token;
use super::*;
use crate::types::{EventKind, Interface, TunnelEnd};

fn instance() -> Value {
    json!({
        "compute": {
            "azEnvironment": "AzurePublicCloud", "location": "westeurope", "name": "ss_0",
            "resourceGroupName": "rg", "resourceId": "/subscriptions/s/resourceGroups/rg/providers/\
             Microsoft.Compute/virtualMachineScaleSets/ss/virtualMachines/0",
            "subscriptionId": "s", "vmId": "02aab8a4-74ef-476e-8182-f6d2ba4166a6",
            "vmScaleSetName": "ss", "zone": "1"
        },
        "network": { "interface": [
            { "macAddress": "000D3A1BC721",
              "ipv4": { "ipAddress": [
                  { "privateIpAddress": "10.1.0.11", "publicIpAddress": "" },
                  { "privateIpAddress": "172.20.2.16/28", "publicIpAddress": "51.0.0.1" } ],
                  "subnet": [{ "address": "10.1.0.0", "prefix": "24" }] },
              "ipv6": { "ipAddress": [{ "privateIpAddress": "fd00::b" }] } },
            { "macAddress": "00-0d-3a-1b-c7-22", "ipv4": { "ipAddress": [] },
              "ipv6": { "ipAddress": [{ "privateIpAddress": "" }] } }
        ]}
    })
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[test]
fn identity_is_parsed_with_interfaces() {
    let parsed = parse_identity(&text(&instance())).unwrap();
    assert_eq!((parsed.name.as_str(), parsed.zone.as_str()), ("ss_0", "1"));
    assert_eq!(parsed.scale_set.as_deref(), Some("ss"));
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(
        parsed.interfaces,
        [
            Interface {
                mac: [0x00, 0x0d, 0x3a, 0x1b, 0xc7, 0x21],
                addresses: addresses(&["10.1.0.11", "172.20.2.16", "fd00::b"]),
            },
            Interface { mac: [0x00, 0x0d, 0x3a, 0x1b, 0xc7, 0x22], addresses: Vec::new() },
        ]
    );
    let mut alone = instance();
    alone["compute"]["vmScaleSetName"] = json!("");
    alone.as_object_mut().unwrap().remove("network");
    let parsed = parse_identity(&text(&alone)).unwrap();
    assert_eq!((parsed.scale_set, parsed.interfaces), (None, Vec::new()));
    for key in ["name", "vmId", "azEnvironment", "resourceId", "subscriptionId", "location"] {
        let mut without = instance();
        without["compute"][key] = json!("");
        assert!(parse_identity(&text(&without)).unwrap_err().contains(key));
    }
    let mut wrong = instance();
    wrong["network"]["interface"][0]["macAddress"] = json!("000D3A1BC72G");
    assert!(parse_identity(&text(&wrong)).unwrap_err().contains("000D3A1BC72G"));
    wrong = instance();
    wrong["network"]["interface"][0]["ipv4"]["ipAddress"][0]["privateIpAddress"] = json!("10.1.0");
    assert!(parse_identity(&text(&wrong)).unwrap_err().contains("10.1.0"));
}

#[test]
fn subnets_are_parsed_in_the_order_of_the_interfaces() {
    let found = parse_subnets(&text(&instance())).unwrap();
    assert_eq!(found, [vec![("10.1.0.0".parse().unwrap(), 24)], Vec::new()]);
    for (key, wrong) in [("prefix", json!("300")), ("prefix", json!("x")), ("address", json!(""))] {
        let mut document = instance();
        document["network"]["interface"][0]["ipv4"]["subnet"][0][key] = wrong;
        assert!(parse_subnets(&text(&document)).unwrap_err().contains(key));
    }
}

#[test]
fn mac_addresses_are_parsed_in_each_form() {
    let right = Some([0, 13, 58, 27, 199, 33]);
    assert_eq!(parse_mac("000D3A1BC721"), right);
    assert_eq!(parse_mac("00-0d-3a-1b-c7-21"), right);
    assert_eq!(parse_mac("00:0D:3A:1B:C7:21"), right);
    for wrong in ["", "000D3A1BC72", "000D3A1BC7211", "000D3A1BC7 1", "+00D3A1BC721", "é00D3A1BC72"]
    {
        assert_eq!(parse_mac(wrong), None, "{wrong}");
    }
}

fn tunnel(kind: &str, local: &str, port: u64, identifier: u64) -> Value {
    json!({ "gatewayIpAddress": "10.1.0.7", "gatewayPort": port, "identifier": identifier,
        "type": kind, "protocol": "vxlan", "localIpAddress": local, "localPort": port })
}

fn balancer(tunnels: &[Value]) -> Vec<u8> {
    text(&json!({ "loadbalancer": { "inboundRules": [], "tunnelInterfaces": tunnels } }))
}

#[test]
fn tunnels_are_parsed_by_family_and_kind() {
    let four =
        [tunnel("internal", "10.1.0.8", 2666, 800), tunnel("external", "10.1.0.9", 2667, 801)];
    let ends = |at: u16, vni| Tunnels {
        internal: TunnelEnd { port: at, vni },
        external: TunnelEnd { port: at + 1, vni: vni + 1 },
    };
    assert_eq!(parse_tunnels(&balancer(&four)).unwrap(), [(Family::V4, ends(2666, 800))]);
    // Numbers may be strings, names may be upper case, and entries may be repeated.
    let mut six =
        [tunnel("External", "fd00::9", 867, 901), tunnel("Internal", "fd00::9", 866, 900)];
    six[0]["gatewayPort"] = json!("867");
    six[0]["identifier"] = json!("901");
    six[1]["protocol"] = json!("VXLAN");
    let all: Vec<Value> = [&six[..], &four, &four].concat();
    let parsed = parse_tunnels(&balancer(&all)).unwrap();
    assert_eq!(parsed, [(Family::V4, ends(2666, 800)), (Family::V6, ends(866, 900))]);
    // The metadata of a load balancer other than a gateway has no such key.
    assert_eq!(parse_tunnels(br#"{"loadbalancer": {"publicIpAddresses": []}}"#).unwrap(), []);
    assert_eq!(parse_tunnels(&balancer(&[])).unwrap(), []);
}

#[test]
fn contradicting_tunnels_are_rejected() {
    let (internal, external) =
        (tunnel("internal", "10.1.0.8", 1, 2), tunnel("external", "::8", 3, 4));
    let fails = |tunnels: &[Value], about: &str| {
        let why = parse_tunnels(&balancer(tunnels)).unwrap_err();
        assert!(why.contains(about), "{about}: {why}");
    };
    fails(std::slice::from_ref(&internal), "no external");
    fails(std::slice::from_ref(&external), "no internal");
    fails(&[internal.clone(), external], "no external");
    fails(&[internal.clone(), tunnel("internal", "10.1.0.8", 1, 5)], "one family differ");
    fails(&[internal.clone(), tunnel("external", "10.1.0.8", 1, 2)], "both tunnels");
    fails(&[tunnel("none", "10.1.0.8", 1, 2)], "`none`");
    fails(&[tunnel("internal", "10.1.0.8", 0, 2)], "not a UDP port");
    fails(&[tunnel("internal", "10.1.0.8", 65_536, 2)], "not a UDP port");
    fails(&[tunnel("internal", "10.1.0.8", 1, 1 << 24)], "24-bit");
    fails(&[tunnel("internal", "10.1.0", 1, 2)], "not an IP address");
    for (key, value) in [
        ("localPort", json!(9)),
        ("protocol", json!("native")),
        ("identifier", json!(null)),
        ("gatewayPort", json!(-1)),
        ("type", json!(7)),
    ] {
        let mut wrong = internal.clone();
        wrong[key] = value;
        assert!(parse_tunnels(&balancer(&[wrong])).is_err(), "{key}");
    }
    assert!(parse_tunnels(b"{}").is_err());
}

#[test]
fn events_are_those_of_this_machine() {
    let event = |id: &str, kind: &str, status: &str, names: Value, time: &str| {
        json!({ "EventId": id, "EventType": kind, "EventStatus": status, "Resources": names,
            "ResourceType": "VirtualMachine", "NotBefore": time, "EventSource": "Platform",
            "Description": "Host server is undergoing maintenance.", "DurationInSeconds": -1 })
    };
    let soon = "Mon, 19 Sep 2016 18:29:47 GMT";
    let document = json!({ "DocumentIncarnation": 3, "Events": [
        event("a", "Reboot", "Scheduled", json!(["weir-1", "WEIR-0"]), soon),
        event("b", "Terminate", "Started", json!(["weir-0"]), ""),
        event("c", "Freeze", "Scheduled", json!(["weir-1"]), soon),
        event("d", "Freeze", "Completed", json!(["weir-0"]), ""),
        event("e", "Preempt", "Scheduled", json!(["weir-0"]), "tomorrow"),
        event("f", "Repave", "Scheduled", json!(["weir-0"]), soon),
    ]});
    let parsed = parse_events(&text(&document), "weir-0").unwrap();
    let short: Vec<_> =
        parsed.iter().map(|e| (e.id.as_str(), e.kind, e.started, e.not_before)).collect();
    assert_eq!(
        short,
        [
            ("a", EventKind::Reboot, false, Some(1_474_309_787)),
            ("b", EventKind::Terminate, true, None),
            ("e", EventKind::Preempt, false, None),
            ("f", EventKind::Other, false, Some(1_474_309_787)),
        ]
    );
    assert_eq!(parsed[0].description, "Platform Host server is undergoing maintenance.");
    let none = br#"{"DocumentIncarnation": 1, "Events": []}"#;
    assert_eq!(parse_events(none, "weir-0").unwrap(), []);
    assert!(parse_events(b"{}", "weir-0").is_err());
}

#[test]
fn token_lifetime_uses_azures_clock() {
    let body = |expires_on: Value| {
        text(&json!({ "access_token": "t", "expires_on": expires_on, "expires_in": "3599" }))
    };
    let mut headers = Headers::new();
    let of = |headers: &Headers, body: &[u8]| {
        parse_token(headers, body).map(|(_, lifetime)| lifetime.as_secs())
    };
    // Without a `Date` header only the stated lifetime is known.
    assert_eq!(of(&headers, &body(json!("1474309787"))), Ok(3599));
    let date = HeaderValue::from("Mon, 19 Sep 2016 18:19:47 GMT".to_owned());
    headers.insert(HeaderName::from_static("date"), date);
    assert_eq!(of(&headers, &body(json!("1474309787"))), Ok(600));
    assert_eq!(of(&headers, &body(json!(1_474_309_787))), Ok(600));
    assert_eq!(of(&headers, &body(json!("7"))), Ok(0));
    assert_eq!(of(&headers, &body(json!("09/14/2017"))), Ok(3599));
    assert!(of(&headers, br#"{"access_token": ""}"#).unwrap_err().contains("access_token"));
    assert!(of(&headers, br#"{"access_token": "t"}"#).unwrap_err().contains("expires_in"));
}

#[test]
fn metadata_parsers_never_panic() {
    let documents = [
        text(&instance()),
        balancer(&[tunnel("internal", "10.1.0.8", 1, 2), tunnel("external", "::8", 3, 4)]),
        text(&json!({ "Events": [{ "EventId": "a", "Resources": ["weir-0"], "NotBefore": "x" }] })),
    ];
    let mut rng = Rng::with_seed(3);
    for round in 0..30_000 {
        let mut document = documents[round % 3].clone();
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..document.len());
            document[at] = if rng.bool() { rng.u8(..) } else { b"\"{}[]:,09"[rng.usize(..9)] };
        }
        let _ = parse_identity(&document);
        let _ = parse_tunnels(&document);
        let _ = parse_events(&document, "weir-0");
        let _ = parse_token(&Headers::new(), &document);
    }
}

#[test]
fn metadata_address_must_be_an_http_url() {
    let (_stay, cancel) = watch::channel(false);
    for wrong in ["", "169.254.169.254", "https://169.254.169.254", "http://"] {
        let error = Metadata::new(wrong, "2023-07-01", 0, cancel.clone()).err().unwrap();
        assert!(error.message.contains("azure.metadata"), "{error}");
    }
    assert!(Metadata::new("http://169.254.169.254", "2023-07-01", 0, cancel).is_ok());
}
