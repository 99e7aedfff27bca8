//! IPv6 inside the gateway's tunnel: returned, rewritten (NAT66), and in the four family
//! combinations of IP in IP, all with real TCP.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tests::lab::capture::{Capture, decode_errors};
use tests::lab::client::{Client, Load};
use tests::lab::decap::{Answer, Decap, TunnelKind};
use tests::lab::scenario::changing_gateway;
use tests::lab::server::Server;
use tests::lab::settings::{Backend, Service, Settings};
use tests::lab::topology::{AWS_SERVER6, HTTP, Host, Lab};
use tests::lab::weir::Weir;

/// The frontend of the NAT66 service.
const NAT66: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
/// The IPv4 frontend of the tunnel services.
const FOUR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 30);
/// The IPv6 frontend of the tunnel services.
const SIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x30);

/// The combinations: the frontend's port and address, whether the backends are IPv6, and the kind
/// of tunnel that the backends count.
const MIXES: [(u16, IpAddr, bool, TunnelKind); 4] = [
    (81, IpAddr::V4(FOUR), false, TunnelKind::Ip4In4),
    (82, IpAddr::V4(FOUR), true, TunnelKind::Ip4In6),
    (83, IpAddr::V6(SIX), false, TunnelKind::Ip6In4),
    (84, IpAddr::V6(SIX), true, TunnelKind::Ip6In6),
];

/// Builds a service at this address and port. `backend` is whether the backends are IPv6, and their
/// port.
fn service(lab: &Lab, mode: &str, frontend: (IpAddr, u16), backend: (bool, u16)) -> Service {
    let (six, port) = backend;
    let address = |host: &Host| match six {
        true => host.address6.to_string(),
        false => host.address.to_string(),
    };
    let backend = |host| Backend { address: address(host), port, weight: 100, state: "active" };
    Service {
        name: format!("lab/on-{}", frontend.1),
        mode: mode.into(),
        frontends: vec![(frontend.0.to_string(), frontend.1, "tcp")],
        backends: lab.hosts.iter().map(backend).collect(),
    }
}

#[test]
fn ipv6_is_returned_translated_and_tunneled() -> Result<(), Box<dyn Error>> {
    let mut lab = Lab::new(&["web-1", "web-2"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    lab.add_ipv6()?;
    let (mut decaps, mut servers) = (Vec::new(), Vec::new());
    for host in &lab.hosts {
        decaps.push(Decap::start(&host.ns, Answer::Tunnel)?);
        host.ns.sysctl("ipv6/conf/decap0/disable_ipv6", "0")?;
        host.ns.sysctl("ipv6/conf/lo/disable_ipv6", "0")?;
        host.ns.ip(&[
            &format!("addr add {FOUR}/32 dev lo"),
            &format!("addr add {SIX}/128 dev lo nodad"),
            "route add 192.0.2.0/24 dev decap0",
        ])?;
        for (port, ..) in MIXES {
            let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            servers.push(Server::start(&host.ns, &host.name, address)?);
        }
    }
    let ipip = "mode = \"tunnel\"\ntunnel = \"ipip\"\ntable_size = 251";
    let mut services: Vec<Service> = MIXES
        .iter()
        .map(|(port, frontend, six, _)| service(&lab, ipip, (*frontend, *port), (*six, 0)))
        .collect();
    services.push(service(&lab, "mode = \"nat\"", (NAT66.into(), 80), (true, HTTP)));
    let weir = Weir::start(&lab, &Settings { ipv6: true, ..Settings::default() }, &services)?;
    let captures = [(&lab.cloud, "wire"), (&lab.lan, "to-weir")]
        .map(|(ns, name)| Capture::start(ns, name, lab.folder.file(&format!("{name}.pcap"))));
    let fetch = |target: (IpAddr, u16)| -> Result<(), Box<dyn Error>> {
        let client = Client::start(&lab.aws[0], Load::new(target.into(), 150))?;
        let why = |text: &str| format!("{text}{:?} {}", weir.drops(), gateway.report());
        let first = client.wait_for(1, std::time::Duration::from_secs(30));
        first.map_err(|e| why(&e.to_string()))?;
        let stats = client.finish()?;
        assert_eq!((stats.right, stats.failed, stats.moved), (150, 0, 0), "{}", why(""));
        Ok(())
    };
    fetch((AWS_SERVER6.into(), 80))?;
    fetch((NAT66.into(), 80))?;
    // From here on the backends' answers to IPv6 clients use the tunnel.
    for host in &lab.hosts {
        host.ns.ip(&["route add 2001:db8:c::/64 dev decap0"])?;
    }
    for (port, frontend, _, counted) in MIXES {
        fetch((frontend, port))?;
        let packets: u64 = decaps.iter().map(|decap| decap.counts().decapsulated(counted)).sum();
        assert!(packets >= 240, "{counted:?}: {packets}");
    }
    let report = gateway.stop()?;
    assert!(report.clean() && report.returned > 300 && report.answered > 1_000, "{report}");
    for capture in captures {
        let (path, _) = capture?.stop()?;
        assert_eq!(decode_errors(&path)?, Vec::<String>::new());
    }
    weir.stop()?;
    Ok(())
}
