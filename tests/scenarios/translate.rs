//! NAT46 and NAT64 between real kernels: HTTP, UDP, ping and a path MTU, through the gateway.

use patience::{check, poll};
use socket2::{Domain, Protocol, Socket, Type};
use std::error::Error;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use tests::lab::capture::{Capture, decode_errors};
use tests::lab::client::{Client, Load};
use tests::lab::netns::Netns;
use tests::lab::scenario::changing_gateway;
use tests::lab::settings::{Backend, Plane, Service, Settings};
use tests::lab::topology::{EGRESS, EGRESS6, HTTP, Lab};
use tests::lab::weir::Weir;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The frontends of each family. Their backends are of the other family.
const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 46));
const SIX: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x64));
/// Frontends with backends behind a narrow link.
const NARROW: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 47)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x65)),
];
/// The addresses of those backends. No host has them: packets that fit the link are lost.
const BEYOND: [&str; 2] = ["fd00:2::99", "10.0.2.99"];
/// The narrow link's MTU.
const LINK: u16 = 1_400;
/// The path MTUs that IPv4 and IPv6 clients learn, for packets of their own family: translation
/// changes the length by 20 bytes.
const REPORTED_MTUS: [u16; 2] = [1_380, 1_420];
/// A port without a dissector in tshark.
const DATAGRAMS: u16 = 47_111;
/// The time limit of a condition.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Builds a service on any port of `frontend`, with backends of the other family.
fn service(frontend: IpAddr, backends: &[String]) -> Service {
    let policy = if frontend.is_ipv4() { "nat46" } else { "nat64" };
    let backend = |address: &String| Backend {
        address: address.clone(),
        port: 0,
        weight: 100,
        state: "active",
    };
    Service {
        name: format!("lab/{policy}-of-{}", backends.len()),
        mode: format!("mode = \"nat\"\nnat_policy = \"{policy}\"\ntable_size = 251"),
        frontends: vec![(frontend.to_string(), 0, "any")],
        backends: backends.iter().map(backend).collect(),
    }
}

/// Exchanges datagrams and their echoes; the server must receive them from `source`.
fn exchange(lab: &Lab, frontend: IpAddr, source: IpAddr) -> Outcome {
    let bind = |ns: &Netns, any: IpAddr, port: u16| -> Outcome<UdpSocket> {
        let socket = ns.run(move || UdpSocket::bind((any, port)))??;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(socket)
    };
    let any =
        |six| if six { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
    let server = bind(&lab.hosts[0].ns, any(true), DATAGRAMS)?;
    let client = bind(&lab.aws[0], any(frontend.is_ipv6()), 0)?;
    client.connect((frontend, DATAGRAMS))?;
    let mut buffer = [0; 9_000];
    for len in [1_usize, 28, 1_300, 8_400] {
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        client.send(&payload)?;
        let (n, from) = server.recv_from(&mut buffer)?;
        assert_eq!((&buffer[..n], from.ip().to_canonical()), (&payload[..], source), "{len}");
        server.send_to(&buffer[..n], from)?;
        let n = client.recv(&mut buffer)?;
        assert_eq!(&buffer[..n], &payload[..], "{len}");
    }
    Ok(())
}

/// Sends pings from the client's kernel, which must be answered.
fn ping(ns: &Netns, to: IpAddr) -> Outcome {
    let (domain, protocol, request, reply) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    // Permits ping sockets to root's group.
    ns.sysctl("ipv4/ping_group_range", "0 0")?;
    let mut socket = ns.run(move || Socket::new(domain, Type::DGRAM, Some(protocol)))??;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(&SocketAddr::new(to, 0).into())?;
    for number in 1..=5_u8 {
        let mut message = vec![request, 0, 0, 0, 0, 0, 0, number];
        message.extend((0..200).map(|n| n ^ number));
        socket.send(&message)?;
        let mut buffer = [0; 500];
        let n = socket.read(&mut buffer)?;
        assert_eq!((buffer[0], buffer[7], &buffer[8..n]), (reply, number, &message[8..]), "{to}");
    }
    Ok(())
}

/// Adds a narrow link behind the first host, and routes to it.
fn narrow(lab: &Lab) -> Outcome {
    let ns = &lab.hosts[0].ns;
    ns.ip(&[
        &format!("link add narrow mtu {LINK} type veth peer name end mtu {LINK}"),
        "link set end up",
        "link set narrow up",
    ])?;
    for (key, value) in [
        ("ipv6/conf/narrow/disable_ipv6", "0"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/eth0/proxy_ndp", "1"),
    ] {
        ns.sysctl(key, value)?;
    }
    for beyond in BEYOND {
        ns.ip(&[
            &format!("route add {beyond} dev narrow"),
            &format!("neigh add proxy {beyond} dev eth0"),
        ])?;
    }
    Ok(())
}

/// Sends datagrams that are too large until the client's kernel has learned the path MTU.
fn learns_mtu(ns: &Netns, to: IpAddr, reported: u16, why: impl Fn() -> String) -> Outcome {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = ns.run(move || UdpSocket::bind((any, 0)))??;
    socket.connect((to, DATAGRAMS))?;
    poll(&format!("an MTU of {reported} to {to}"), TIMEOUT, || {
        // Sending fails if the socket reports an earlier ICMP error.
        let _ = socket.send(&[0x5a; 3_000]);
        std::thread::sleep(Duration::from_millis(50));
        let route = ns.command("ip", &["route", "get", &to.to_string()]);
        let route = route.map_err(|error| error.to_string())?;
        check(route.contains(&format!("mtu {reported} ")), || format!("{route}{}", why()))
    })?;
    Ok(())
}

#[test]
fn clients_of_each_family_reach_backends_of_the_other() -> Outcome {
    let mut lab = Lab::new(&["web-1"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    lab.add_ipv6()?;
    if Plane::from_env().is_xdp() {
        // The port then also belongs to the kernel.
        lab.weir.sysctl("ipv6/conf/eg0/disable_ipv6", "0")?;
    }
    narrow(&lab)?;
    let host = &lab.hosts[0];
    let services = [
        service(FOUR, &[host.address6.to_string()]),
        service(SIX, &[host.address.to_string()]),
        Service { name: "lab/narrow-46".into(), ..service(NARROW[0], &[BEYOND[0].into()]) },
        Service { name: "lab/narrow-64".into(), ..service(NARROW[1], &[BEYOND[1].into()]) },
    ];
    let weir = Weir::start(&lab, &Settings { ipv6: true, ..Settings::default() }, &services)?;
    let captures = [(&lab.cloud, "wire"), (&lab.lan, "to-weir")]
        .map(|(ns, name)| Capture::start(ns, name, lab.folder.file(&format!("{name}.pcap"))));
    for (frontend, source) in [(FOUR, EGRESS6.into()), (SIX, EGRESS.into())] {
        let why = |text: &str| format!("{text}{:?} {}", weir.drops(), gateway.report());
        let client = Client::start(&lab.aws[0], Load::new((frontend, HTTP).into(), 150))?;
        let stats = client.finish()?;
        assert_eq!((stats.right, stats.failed, stats.moved), (150, 0, 0), "{}", why(&weir.logs()));
        exchange(&lab, frontend, source).map_err(|e| why(&format!("{frontend}: {e}")))?;
        ping(&lab.aws[0], frontend).map_err(|e| why(&format!("{frontend}: {e}")))?;
    }
    for capture in captures {
        let (path, _) = capture?.stop()?;
        assert_eq!(decode_errors(&path)?, Vec::<String>::new());
    }
    for (frontend, reported) in NARROW.into_iter().zip(REPORTED_MTUS) {
        let why = || format!("{:?} {}{}", weir.drops(), gateway.report(), weir.logs());
        learns_mtu(&lab.aws[0], frontend, reported, why)?;
    }
    let report = gateway.stop()?;
    assert!(report.clean() && report.answered > 600, "{report}");
    let drops = weir.drops()?;
    assert!(drops.iter().all(|drop| drop.reason != "not_translatable"), "{drops:?}");
    weir.stop()?;
    Ok(())
}
