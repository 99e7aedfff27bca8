//! What sockets do, beside carrying octets: who is let in, from how far, by which class, and what
//! a peer costs that doesn't read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use bgp::peer::{State, Stop};
use bgp::speaker::Wanted;
use bgp::wire::{Capability, Family, Open};
use routers::{Netns, PATIENCE, wait_for};

use crate::network::*;
use crate::speaks::counter;
use crate::theirs::{Kind, Plan, Theirs};

fn guarded(key: bgp::speaker::PeerKey, guarded: bool) -> Wanted {
    let mut wanted = wanted(key);
    wanted.settings.transport.hops = Some(1);
    wanted.settings.transport.ttl_security = guarded;
    wanted
}

/// What arrives of BGP at a neighbour in another class than CS6.
const CLASSES: &str = "table inet look { chain in { type filter hook input priority 0; \
    tcp dport 179 ip dscp != cs6 counter; tcp sport 179 ip dscp != cs6 counter; \
    tcp dport 179 ip6 dscp != cs6 counter; tcp sport 179 ip6 dscp != cs6 counter; \
    tcp dport 179 ip dscp cs6 counter; }; }";

#[test]
fn a_neighbour_that_guards_itself_and_one_that_is_guarded_against() -> Outcome {
    let (here, there) = neighbours()?;
    there.fed("nft", &["-f", "-"], CLASSES)?;
    let plan = Plan { frr: " neighbor ADDRESS ttl-security hops 1\n", ..Plan::default() };
    let frr = Theirs::start(Kind::Frr, &there, &plan)?;
    let mut ours = Ours::start(&here)?;
    let keys = [key(FOUR), key(SIX)];
    let drops = |ns: &Netns| -> routers::Result<u64> {
        Ok(counter(&ns.command("cat", &["/proc/net/netstat"])?, "TCPMinTTLDrop"))
    };
    // One hop is what we send with, and the neighbour takes nothing that may come from afar.
    keys.iter().for_each(|key| ours.speaker.add(*key, guarded(*key, false)));
    wait_for("drops at the neighbour", PATIENCE, || {
        let said = drops(&there)?;
        Ok((said > 2, said.to_string()))
    })?;
    assert!(!frr.session("10.0.0.1")?.up && !frr.session("fd00::1")?.up);
    keys.iter().for_each(|key| ours.speaker.add(*key, guarded(*key, true)));
    let Theirs::Frr(there_frr) = &frr else { unreachable!() };
    // Not even the end of the connections got through to it.
    there_frr.ask("clear bgp *")?;
    for (key, address) in keys.iter().zip(["10.0.0.1", "fd00::1"]) {
        ours.wait_until_up(*key)?;
        frr.wait_until_up(address)?;
    }
    let before = drops(&here)?;
    // The neighbour doesn't guard any more, so what it sends has one hop: we drop it.
    there_frr.configure(&[
        "router bgp 65002",
        "no neighbor 10.0.0.1 ttl-security hops 1",
        "no neighbor fd00::1 ttl-security hops 1",
        "end",
    ])?;
    there_frr.ask("clear bgp *")?;
    wait_for("drops here", PATIENCE, || {
        let said = drops(&here)?;
        Ok((said > before + 2, said.to_string()))
    })?;
    assert!(keys.iter().all(|key| ours.told(*key).peer.state != State::Established));

    // All of it was of the class of a network's own traffic.
    let said = there.command("nft", &["list", "table", "inet", "look"])?;
    let counts: Vec<&str> = said.lines().filter(|line| line.contains("counter")).collect();
    let silent = |line: &&&str| line.contains("packets 0 ");
    assert_eq!(counts.iter().filter(silent).count(), 4, "{said}");
    Ok(())
}

#[test]
fn both_begin_again_and_again_and_one_connection_stays() -> Outcome {
    let (here, there) = neighbours()?;
    let theirs = Theirs::start(Kind::Frr, &there, &Plan::default())?;
    let Theirs::Frr(frr) = &theirs else { unreachable!() };
    let mut ours = Ours::start(&here)?;
    let keys = [key(FOUR), key(SIX)];
    keys.iter().for_each(|key| ours.speaker.add(*key, wanted(*key)));
    ours.speaker.set_routes(keys[0], &table([("192.0.2.1/32", by("10.0.0.1"))]));
    for _ in 0..5 {
        for key in keys {
            ours.speaker.remove(key, Stop::Changed);
            ours.speaker.add(key, wanted(key));
        }
        ours.speaker.set_routes(keys[0], &table([("192.0.2.1/32", by("10.0.0.1"))]));
        frr.ask("clear bgp *")?;
        for (key, address) in keys.iter().zip(["10.0.0.1", "fd00::1"]) {
            wait_for("one connection, and up at both ends", PATIENCE, || {
                let peer = format!("dst [{}]", key.peer.ip());
                let filter = ["-Htn", "state", "established", "( sport = :179 or dport = :179 )"];
                let open = here.command("ss", &[&filter[..], &[peer.as_str()]].concat())?;
                let up = theirs.session(address)?.up
                    && ours.told(*key).peer.state == State::Established;
                Ok((up && open.lines().count() == 1, open))
            })?;
        }
        theirs.wait_for("192.0.2.1/32", "there", |route| route.is_some())?;
    }
    Ok(())
}

/// Connects from a namespace.
fn connect(ns: &Arc<Netns>, to: &'static str) -> Outcome<TcpStream> {
    Ok(ns.run(move || TcpStream::connect((to, 179)))??)
}

#[test]
fn strangers_are_refused_and_a_peer_that_does_not_read_costs_little() -> Outcome {
    let (here, there) = neighbours()?;
    there.ip(&["address add 10.0.0.3/24 dev there"])?;
    let mut ours = Ours::start(&here)?;
    let mut passive = wanted(key(FOUR));
    passive.settings.passive = true;
    ours.speaker.add(key(FOUR), passive);
    wait_for("the listener", PATIENCE, || {
        let report = ours.speaker.report(std::time::Instant::now());
        Ok((report.listeners[0].listens, format!("{report:?}")))
    })?;

    // Nobody from another address is let in.
    let mut stranger = there.run(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&std::net::SocketAddr::from(([10, 0, 0, 3], 0)).into())?;
        socket.connect(&std::net::SocketAddr::from(([10, 0, 0, 1], 179)).into())?;
        std::io::Result::Ok(TcpStream::from(socket))
    })??;
    stranger.set_read_timeout(Some(PATIENCE))?;
    let mut room = vec![0; 4_096];
    let heard = stranger.read(&mut room);
    assert!(!matches!(heard, Ok(1..)), "{heard:?}");
    let report = ours.speaker.report(std::time::Instant::now());
    assert_eq!((report.listeners[0].refused, report.listeners[0].accepted), (1, 0));

    // The peer says who it is, and that it lives, and reads nothing.
    let mut silent = connect(&there, "10.0.0.1")?;
    let open = Open {
        asn: THEIR_ASN as u16,
        hold_time: 0,
        identifier: [10, 0, 0, 2].into(),
        capabilities: Family::ALL.into_iter().map(Capability::family).collect(),
    };
    silent.write_all(&open.write())?;
    silent.write_all(&bgp::wire::frame::keepalive())?;
    ours.wait_until_up(key(FOUR))?;
    // Each route with attributes of its own, so that each has a message of its own.
    let mut rows = std::collections::BTreeMap::new();
    for index in 0..60_000_u32 {
        let mut attributes = by("10.0.0.1");
        attributes.communities = (0..50).map(|n| (index << 8) | n).collect();
        let prefix = std::net::Ipv4Addr::from(0x0b00_0000 + index);
        rows.insert(format!("{prefix}/32").parse()?, Arc::new(attributes));
    }
    let count = rows.len();
    ours.speaker.set_routes(key(FOUR), &Arc::new(bgp::advertise::Table { routes: rows }));
    let held = |ours: &Ours| {
        let told = ours.told(key(FOUR));
        (told.unwritten, told.peer.families[0].advertised)
    };
    wait_for("a full pipe", PATIENCE, || {
        let before = held(&ours);
        std::thread::sleep(std::time::Duration::from_millis(200));
        Ok((before.0 > 0 && held(&ours) == before, format!("{before:?}")))
    })?;
    let (unwritten, advertised) = held(&ours);
    println!("{unwritten} octets wait, {advertised} of {count} routes were said");
    assert!(unwritten <= bgp::advertise::BURST * bgp::wire::MESSAGE, "{unwritten}");
    assert!(advertised < count, "{advertised}");
    assert!(!ours.speaker.is_told());

    // It reads again, and hears all.
    let reads = std::thread::spawn(move || -> std::io::Result<u64> {
        let mut heard = 0;
        loop {
            match silent.read(&mut room)? {
                0 => return Ok(heard),
                length => heard += length as u64,
            }
        }
    });
    ours.wait_until_told()?;
    assert_eq!(held(&ours), (0, count));
    ours.speaker.remove(key(FOUR), Stop::Deconfigured);
    ours.end();
    let heard = reads.join().unwrap()?;
    assert!(heard > count as u64 * 200, "{heard}");
    Ok(())
}
