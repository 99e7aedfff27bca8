//! Tests of sockets: which connections are accepted, TTL checks, traffic class, occupied ports, and
//! the memory used for a peer that does not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use bgp::advertise::{BURST, Table};
use bgp::peer::{State, Stop};
use bgp::speaker::PeerConfig;
use bgp::wire::{Attributes, Capability, Family, Framer, Kind, MAX_MESSAGE, Open, frame};
use routers::{DEFAULT_TIMEOUT, Netns, wait_for};

use crate::lifetime::counter;
use crate::neighbor::{self, Neighbor, Plan};
use crate::network::*;

/// Returns the configuration of a directly connected peer, with or without TTL security.
fn with_ttl_security(key: bgp::speaker::PeerKey, ttl_security: bool) -> PeerConfig {
    let mut config = peer_config(key);
    config.settings.transport.hops = Some(1);
    config.settings.transport.ttl_security = ttl_security;
    config
}

/// Counters of received BGP packets with another traffic class than CS6. The last one counts IPv4
/// packets with CS6, to show that the rules match.
const CLASSES: &str = "table inet look { chain in { type filter hook input priority 0; \
    tcp dport 179 ip dscp != cs6 counter; tcp sport 179 ip dscp != cs6 counter; \
    tcp dport 179 ip6 dscp != cs6 counter; tcp sport 179 ip6 dscp != cs6 counter; \
    tcp dport 179 ip dscp cs6 counter; }; }";

#[test]
fn gtsm_is_enforced_by_both_neighbors() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    remote_ns.command_with_input("nft", &["-f", "-"], CLASSES)?;
    let plan = Plan { frr: " neighbor ADDRESS ttl-security hops 1\n", ..Plan::default() };
    let frr = Neighbor::start(neighbor::Kind::Frr, &remote_ns, &plan)?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let keys = [key(NEIGHBOR_V4), key(NEIGHBOR_V6)];
    let drops = |ns: &Netns| -> routers::Result<u64> {
        Ok(counter(&ns.command("cat", &["/proc/net/netstat"])?, "TCPMinTTLDrop"))
    };
    // The speaker sends with TTL 1, and the neighbor has TTL security.
    keys.iter().for_each(|key| local.speaker.add(*key, with_ttl_security(*key, false)));
    wait_for("drops at the neighbor", DEFAULT_TIMEOUT, || {
        let output = drops(&remote_ns)?;
        Ok((output > 2, output.to_string()))
    })?;
    assert!(!frr.session("10.0.0.1")?.up && !frr.session("fd00::1")?.up);
    keys.iter().for_each(|key| local.speaker.add(*key, with_ttl_security(*key, true)));
    let Neighbor::Frr(daemon) = &frr else { unreachable!() };
    // The neighbor has not seen the end of its previous connection attempts: it dropped the
    // packets.
    daemon.query("clear bgp *")?;
    for (key, address) in keys.iter().zip(["10.0.0.1", "fd00::1"]) {
        local.wait_until_up(*key)?;
        frr.wait_until_up(address)?;
    }
    let before = drops(&local_ns)?;
    // Without TTL security the neighbor sends with TTL 1: its packets are dropped.
    daemon.configure(&[
        "router bgp 65002",
        "no neighbor 10.0.0.1 ttl-security hops 1",
        "no neighbor fd00::1 ttl-security hops 1",
        "end",
    ])?;
    daemon.query("clear bgp *")?;
    wait_for("local drops", DEFAULT_TIMEOUT, || {
        let output = drops(&local_ns)?;
        Ok((output > before + 2, output.to_string()))
    })?;
    assert!(keys.iter().all(|key| local.status(*key).peer.state != State::Established));

    // All packets had the traffic class CS6: four of the five counters are 0.
    let output = remote_ns.command("nft", &["list", "table", "inet", "look"])?;
    let counts: Vec<&str> = output.lines().filter(|line| line.contains("counter")).collect();
    let silent = |line: &&&str| line.contains("packets 0 ");
    assert_eq!(counts.iter().filter(silent).count(), 4, "{output}");
    Ok(())
}

/// The minimum TTL also applies to packets before the connection is accepted.
#[test]
fn listener_ignores_distant_syns_if_all_peers_have_ttl_security() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let keys = [key(NEIGHBOR_V4), key(NEIGHBOR_V6)];
    for key in keys {
        let mut passive = with_ttl_security(key, true);
        passive.settings.passive = true;
        local.speaker.add(key, passive);
    }
    wait_for("the listeners", DEFAULT_TIMEOUT, || {
        let report = local.speaker.status(std::time::Instant::now());
        let listen = report.listeners.iter().filter(|listener| listener.listens).count();
        Ok((listen == keys.len(), format!("{report:?}")))
    })?;
    let connect = |hops: u8, to: std::net::IpAddr| -> Outcome<std::io::Result<()>> {
        Ok(remote_ns.run(move || {
            let to = std::net::SocketAddr::new(to, 179);
            let domain = socket2::Domain::for_address(to);
            let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
            match to.is_ipv4() {
                true => socket.set_ttl_v4(hops.into())?,
                false => socket.set_unicast_hops_v6(hops.into())?,
            }
            socket.connect_timeout(&to.into(), std::time::Duration::from_secs(1))
        })?)
    };
    for to in ["10.0.0.1", "fd00::1"].map(|to| to.parse().expect("an address")) {
        let from_afar = connect(254, to)?.expect_err("a SYN with 254 hops left was answered");
        assert_eq!(from_afar.kind(), std::io::ErrorKind::TimedOut, "{from_afar}");
        connect(255, to)?.map_err(|error| format!("a SYN with 255 hops left: {error}"))?;
    }
    // With a peer without TTL security, the listener accepts distant connections.
    local.speaker.remove(keys[0], Stop::Changed);
    let mut open = with_ttl_security(keys[0], false);
    open.settings.passive = true;
    local.speaker.add(keys[0], open);
    connect(254, "10.0.0.1".parse()?)?.map_err(|error| format!("without TTL security: {error}"))?;
    Ok(())
}

#[test]
fn repeated_collisions_leave_one_connection() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let neighbor = Neighbor::start(neighbor::Kind::Frr, &remote_ns, &Plan::default())?;
    let Neighbor::Frr(frr) = &neighbor else { unreachable!() };
    let mut local = LocalSpeaker::start(&local_ns)?;
    let keys = [key(NEIGHBOR_V4), key(NEIGHBOR_V6)];
    keys.iter().for_each(|key| local.speaker.add(*key, peer_config(*key)));
    local.speaker.set_routes(keys[0], &table([("192.0.2.1/32", via("10.0.0.1"))]));
    for _ in 0..5 {
        for key in keys {
            local.speaker.remove(key, Stop::Changed);
            local.speaker.add(key, peer_config(key));
        }
        local.speaker.set_routes(keys[0], &table([("192.0.2.1/32", via("10.0.0.1"))]));
        frr.query("clear bgp *")?;
        for (key, address) in keys.iter().zip(["10.0.0.1", "fd00::1"]) {
            wait_for("one connection, and up at both ends", DEFAULT_TIMEOUT, || {
                let peer = format!("dst [{}]", key.peer.ip());
                let filter = ["-Htn", "state", "established", "( sport = :179 or dport = :179 )"];
                let open = local_ns.command("ss", &[&filter[..], &[peer.as_str()]].concat())?;
                let up = neighbor.session(address)?.up
                    && local.status(*key).peer.state == State::Established;
                Ok((up && open.lines().count() == 1, open))
            })?;
        }
        neighbor.wait_for("192.0.2.1/32", "present", |route| route.is_some())?;
    }
    Ok(())
}

/// Connects from a namespace.
fn connect(ns: &Arc<Netns>, to: &'static str) -> Outcome<TcpStream> {
    Ok(ns.run(move || TcpStream::connect((to, 179)))??)
}

#[test]
fn unconfigured_addresses_are_refused_and_slow_readers_use_bounded_memory() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    remote_ns.ip(&["address add 10.0.0.3/24 dev there"])?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let mut passive = peer_config(key(NEIGHBOR_V4));
    passive.settings.passive = true;
    local.speaker.add(key(NEIGHBOR_V4), passive);
    wait_for("the listener", DEFAULT_TIMEOUT, || {
        let report = local.speaker.status(std::time::Instant::now());
        Ok((report.listeners[0].listens, format!("{report:?}")))
    })?;

    // Connections from other addresses are refused.
    let mut other = remote_ns.run(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&std::net::SocketAddr::from(([10, 0, 0, 3], 0)).into())?;
        socket.connect(&std::net::SocketAddr::from(([10, 0, 0, 1], 179)).into())?;
        std::io::Result::Ok(TcpStream::from(socket))
    })??;
    other.set_read_timeout(Some(DEFAULT_TIMEOUT))?;
    let answer = other.read(&mut [0; 64]);
    assert!(!matches!(answer, Ok(1..)), "{answer:?}");
    let report = local.speaker.status(std::time::Instant::now());
    assert_eq!((report.listeners[0].refused, report.listeners[0].accepted), (1, 0));

    // The peer sends OPEN and keepalives, but reads nothing.
    let mut silent = connect(&remote_ns, "10.0.0.1")?;
    let open = Open {
        asn: THEIR_ASN as u16,
        hold_time: 3,
        identifier: [10, 0, 0, 2].into(),
        capabilities: Family::ALL.into_iter().map(Capability::family).collect(),
    };
    silent.write_all(&open.write())?;
    let mut sender = silent.try_clone()?;
    // Runs until the connection is closed.
    let keepalives = std::thread::spawn(move || {
        while sender.write_all(&frame::keepalive()).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
    });
    local.wait_until_up(key(NEIGHBOR_V4))?;
    let table = long_messages(60_000);
    let count = table.routes.len();
    local.speaker.set_routes(key(NEIGHBOR_V4), &table);
    let progress = |local: &LocalSpeaker| {
        let status = local.status(key(NEIGHBOR_V4));
        (status.unwritten, status.peer.families[0].advertised)
    };
    wait_for("a full send buffer and a keepalive queued behind it", DEFAULT_TIMEOUT, || {
        let before = progress(&local);
        std::thread::sleep(std::time::Duration::from_millis(1_200));
        let (unwritten, advertised) = progress(&local);
        Ok((before.0 > 0 && unwritten > before.0 && advertised == before.1, format!("{before:?}")))
    })?;
    let (unwritten, advertised) = progress(&local);
    println!("{unwritten} octets are queued, {advertised} of {count} routes were sent");
    assert!(unwritten <= BURST * MAX_MESSAGE, "{unwritten}");
    assert!(advertised < count && !local.speaker.all_sent(), "{advertised}");

    // Once the peer reads again, it receives all routes, with keepalives in between.
    let reads = std::thread::spawn(move || message_kinds(silent));
    local.wait_until_all_sent()?;
    assert_eq!(progress(&local), (0, count));
    assert_eq!(local.status(key(NEIGHBOR_V4)).peer.flaps, 0);
    local.speaker.remove(key(NEIGHBOR_V4), Stop::Deconfigured);
    local.end();
    let kinds = reads.join().unwrap()?;
    keepalives.join().unwrap();
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Update).count(), count);
    let first = kinds.iter().position(|kind| *kind == Kind::Update).unwrap();
    let last = kinds.iter().rposition(|kind| *kind == Kind::Update).unwrap();
    assert!(kinds[first..last].contains(&Kind::Keepalive), "no keepalive among the routes");
    assert_eq!(kinds.last(), Some(&Kind::Notification));
    Ok(())
}

/// Returns routes with distinct attributes, so that each needs a message of its own.
fn long_messages(count: u32) -> Arc<Table> {
    let route = |index: u32| {
        let communities = (0..50).map(|n| (index << 8) | n).collect();
        let attributes = Attributes { communities, ..via("10.0.0.1") };
        let prefix = std::net::Ipv4Addr::from(0x0b00_0000 + index);
        (host(prefix), Arc::new(attributes))
    };
    Arc::new(Table { routes: (0..count).map(route).collect() })
}

/// Reads the types of all messages until the connection is closed.
fn message_kinds(mut from: TcpStream) -> std::io::Result<Vec<Kind>> {
    let (mut framer, mut kinds, mut buffer) = (Framer::default(), Vec::new(), vec![0; 65_536]);
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(kinds),
            length => framer.push(&buffer[..length]),
        }
        while let Some((kind, _)) = framer.next_message().expect("messages") {
            kinds.push(kind);
        }
    }
}

#[test]
fn occupied_ports_are_reported_and_opened_once_free() -> Outcome {
    let (local_ns, _remote_ns) = neighbors()?;
    let (tcp, udp) = local_ns.run(|| {
        let tcp = std::net::TcpListener::bind("0.0.0.0:179")?;
        std::io::Result::Ok((tcp, std::net::UdpSocket::bind("0.0.0.0:3784")?))
    })??;
    let mut local = LocalSpeaker::start(&local_ns)?;
    local.speaker.add(
        key(NEIGHBOR_V4),
        PeerConfig { bfd: Some(peer_bfd()), ..peer_config(key(NEIGHBOR_V4)) },
    );
    let report = |local: &LocalSpeaker| local.speaker.status(std::time::Instant::now());
    wait_for("the errors of both ports", DEFAULT_TIMEOUT, || {
        let report = report(&local);
        let tcp = report.listeners[0].last_error.as_ref();
        let udp = report.bfd_error.as_ref();
        let both = tcp.is_some_and(|why| why.contains("another program uses it"))
            && udp.is_some_and(|why| why.contains("another BFD daemon uses it"));
        Ok((both, format!("{report:?}")))
    })?;
    drop((tcp, udp));
    wait_for("both ports", DEFAULT_TIMEOUT, || {
        let report = report(&local);
        let both = report.listeners[0].listens && local.speaker.bfd().is_some();
        let silent = report.listeners[0].last_error.is_none() && report.bfd_error.is_none();
        Ok((both && silent, format!("{report:?}")))
    })?;
    // No neighbor answers, which is reported as well.
    local.wait(key(NEIGHBOR_V4), "an error", |status| status.last_error.is_some())?;
    local.speaker.remove(key(NEIGHBOR_V4), Stop::Deconfigured);
    assert_eq!(report(&local).listeners, []);
    local.end();
    Ok(())
}
