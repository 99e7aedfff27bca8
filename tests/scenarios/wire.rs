//! Frames on the wire, as an independent decoder (tshark) reads them, and packets of the maximum
//! size.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use tests::lab::capture::{Capture, decode_errors, tshark};
use tests::lab::client::{Client, Load};
use tests::lab::gateway::GatewaySetup;
use tests::lab::scenario::{changing_gateway, service};
use tests::lab::settings::Settings;
use tests::lab::topology::{AWS_SERVER, FRONTEND, Lab};
use tests::lab::traffic::Traffic;
use tests::lab::weir::Weir;

type Outcome = Result<(), Box<dyn Error>>;

/// Serializes the tests: two poll loops on two cores would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn tshark_decodes_both_sides_without_errors() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    let services = [service(&lab, &[(0, "active"), (1, "active")])];
    let weir = Weir::start(&lab, &Settings::default(), &services)?;
    let wire = Capture::start(&lab.cloud, "wire", lab.folder.file("wire.pcap"))?;
    let lan = Capture::start(&lab.lan, "to-weir", lab.folder.file("lan.pcap"))?;
    let traffic = Traffic::start(&lab, std::time::Duration::from_millis(2))?;
    traffic.wait_for_responses(200)?;
    traffic.wait_for_returned(100)?;
    let clients = traffic.finish()?;
    assert!(clients.iter().all(|(_, stats)| stats.failed == 0), "{clients:?}{}", weir.logs());
    gateway.wait_until_at_rest();
    let report = gateway.stop()?;
    let ((wire, _), (lan, _)) = (wire.stop()?, lan.stop()?);
    assert_eq!(decode_errors(&wire)?, Vec::<String>::new());
    assert_eq!(decode_errors(&lan)?, Vec::<String>::new());

    // Weir's frames to the AWS gateway match the gateway's counters, field by field.
    let fields = [
        "geneve.version",
        "geneve.vni",
        "geneve.option.class",
        "geneve.proto_type",
        "udp.dstport",
        "ip.src",
    ];
    let from_weir = tshark(&wire, "geneve && ip.src == 10.0.1.10", &fields)?;
    assert_eq!(from_weir.len() as u64, report.returned + report.answered, "{report}");
    for row in &from_weir {
        let [version, vni, class, protocol, ports, sources] = &row[..] else {
            return Err(format!("{row:?}").into());
        };
        assert_eq!((&version[..], &vni[..], &protocol[..]), ("0", "0x000000", "0x0800"), "{row:?}");
        assert_eq!(class, "0x0108,0x0108,0x0108", "{row:?}");
        assert_eq!(ports, "6081", "{row:?}");
        assert!(sources.starts_with("10.0.1.10,"), "{row:?}");
    }
    // Azure: Weir's frames have the port and VNI of one of the two tunnels, never a mix.
    let rows = tshark(&wire, "vxlan && ip.src == 10.0.1.10", &["udp.dstport", "vxlan.vni"])?;
    let count = |port: &str, vni: &str| rows.iter().filter(|row| row[..] == [port, vni]).count();
    let (external, internal) = (count("10801", "801"), count("10800", "800"));
    assert!(external > 100 && internal > 100, "{external} {internal}");
    assert_eq!(external + internal, rows.len(), "no other pair of port and VNI: {rows:?}");
    // Between Weir and the backends there is plain TCP from Weir's own address.
    assert_eq!(tshark(&lan, "geneve || vxlan", &["frame.number"])?, Vec::<Vec<String>>::new());
    let odd = "tcp && !(ip.addr == 10.0.2.10 && tcp.port == 8080)";
    assert_eq!(tshark(&lan, odd, &["frame.number"])?, Vec::<Vec<String>>::new());
    weir.stop()?;
    Ok(())
}

#[test]
fn packets_of_8500_bytes_pass_and_larger_ones_get_an_icmp_error() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1"])?;
    // This gateway's maximum exceeds that of AWS, so that some packets are too big for Weir.
    let gateway =
        lab.aws_gateway(GatewaySetup { largest_inner: 8_800, ..GatewaySetup::default() })?;
    lab.aws[0].ip(&["link set near mtu 8800"])?;
    lab.aws[1].ip(&["link set far mtu 8800"])?;
    let weir = Weir::start(&lab, &Settings::default(), &[service(&lab, &[(0, "active")])])?;
    let wire = Capture::start(&lab.cloud, "wire", lab.folder.file("wire.pcap"))?;
    for target in [(FRONTEND, 80), (AWS_SERVER, 80)].map(SocketAddr::from) {
        let load = Load { lengths: vec![300_000], workers: 2, ..Load::new(target, 20) };
        let stats = Client::start(&lab.aws[0], load)?.finish()?;
        let why = format!("{target}: {stats}{}{:?}", weir.logs(), weir.drops());
        assert_eq!((stats.right, stats.failed), (20, 0), "{why}");
    }
    let report = gateway.stop()?;
    assert!(report.clean(), "{report}");
    let (wire, _) = wire.stop()?;
    assert_eq!(decode_errors(&wire)?, Vec::<String>::new());
    let inner = |filter: &str| tshark(&wire, filter, &["ip.len"]);
    let full = "geneve && ip.src == 10.0.1.10 && ip.len == 8500";
    assert!(inner(full)?.len() > 100, "the largest size was used");
    let larger = "geneve && frame.len > 8582 && ip.src == 10.0.1.10";
    assert_eq!(inner(larger)?, Vec::<Vec<String>>::new());
    let too_big = "geneve && icmp.type == 3 && icmp.code == 4 && icmp.mtu == 8500";
    assert!(!inner(too_big)?.is_empty(), "the sender received the size that fits");
    let drops = weir.drops()?;
    assert!(drops.iter().any(|drop| drop.reason == "too_big_answered"), "{drops:?}");
    weir.stop()?;
    Ok(())
}
