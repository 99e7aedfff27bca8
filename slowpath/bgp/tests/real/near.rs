//! Tests of link-local neighbors and of missing interfaces.

use bgp::peer::{State, Stop};
use bgp::speaker::{PeerKey, Wanted};
use routers::{End, PATIENCE, cable, namespace, wait_for};

use crate::network::*;
use crate::plan::Place;
use crate::theirs::{Kind, Plan, Theirs};

const LINK_LOCAL: &str = "fe80::2";

fn near(key: PeerKey) -> Wanted {
    let mut wanted = wanted(key);
    wanted.settings.transport.local = Some("fe80::1".parse().expect("an address"));
    Wanted { interface: Some("here".to_owned()), bfd: None, ..wanted }
}

/// Establishes a link-local session on an interface, opened by the neighbor and then by the
/// speaker, while another peer listens on the same port on all interfaces; with BFD where the
/// neighbor supports it.
fn link_local(kind: Kind) -> Outcome {
    let [here, there] = [namespace("ours")?, namespace("theirs")?];
    for ns in [&here, &there] {
        // Disables automatic link-local addresses.
        ns.sysctl("ipv6/conf/default/addr_gen_mode", "1")?;
    }
    let ours_there = ["10.0.0.1/24", "fd00::1/64", "fe80::1/64"];
    let theirs_there = ["10.0.0.2/24", "fd00::2/64", "fe80::2/64"];
    cable(
        End { ns: &here, device: "here", addresses: &ours_there },
        End { ns: &there, device: "there", addresses: &theirs_there },
    )?;
    let with_bfd = kind != Kind::Gobgp;
    let plan = Plan { place: Place::LinkLocal, bfd: with_bfd, ..Plan::default() };
    let theirs = Theirs::start(kind, &there, &plan)?;
    let us = if kind == Kind::Gobgp { "fe80::1%there" } else { "fe80::1" };
    let mut ours = Ours::start(&here)?;
    // A wildcard listener on the same port, for a peer that does not exist.
    let mut nobody = wanted(key("fd00::9"));
    (nobody.interface, nobody.settings.transport.local) = (None, None);
    nobody.settings.passive = true;
    ours.speaker.add(key("fd00::9"), nobody);
    ours.speaker.add(key(FOUR), wanted(key(FOUR)));

    let key = key(LINK_LOCAL);
    use bgp::session::Direction::{Inbound, Outbound};
    // FRR connects only to link-local addresses that it learned from router advertisements, which a
    // gateway does not send: with FRR, only the speaker connects.
    let directions: &[_] = if kind == Kind::Frr { &[Outbound] } else { &[Inbound, Outbound] };
    for &direction in directions {
        let mut wanted = near(key);
        wanted.bfd = with_bfd.then(watched);
        match direction {
            Inbound => wanted.settings.passive = true,
            Outbound => wanted.listen_port = None,
        }
        ours.speaker.add(key, wanted);
        ours.speaker.set_routes(key, &table([("2001:db8::1/128", by("fd00::1"))]));
        let told = ours.wait_until_up(key)?;
        assert_eq!(told.peer.connection.map(|it| it.direction), Some(direction));
        theirs.wait_until_up(us)?;
        theirs.wait_for("2001:db8::1/128", "there", |route| {
            route.is_some_and(|route| route.next_hop.starts_with("fd00::1"))
        })?;
        if with_bfd {
            ours.wait(key, "BFD up", |told| told.bfd.as_ref().is_some_and(|bfd| bfd.up))?;
        }
        ours.speaker.remove(key, Stop::Deconfigured);
        theirs.wait_until_gone("2001:db8::1/128")?;
    }
    ours.wait_until_up(crate::network::key(FOUR))?;
    let report = ours.speaker.report(std::time::Instant::now());
    assert!(report.listeners.iter().all(|it| it.trouble.is_none()), "{report:?}");
    Ok(())
}

#[test]
fn an_frr_of_a_link_local_address_by_its_interface() -> Outcome {
    link_local(Kind::Frr)
}

#[test]
fn a_bird_of_a_link_local_address_by_its_interface() -> Outcome {
    link_local(Kind::Bird)
}

#[test]
fn a_gobgp_of_a_link_local_address_by_its_interface() -> Outcome {
    link_local(Kind::Gobgp)
}

#[test]
fn an_interface_that_is_not_there_is_told_until_it_is() -> Outcome {
    let (here, there) = neighbours()?;
    let mut ours = Ours::start(&here)?;
    let key = key(LINK_LOCAL);
    let mut wanted = near(key);
    wanted.interface = Some("later".to_owned());
    wanted.bfd = Some(watched());
    ours.speaker.add(key, wanted);
    let says = |trouble: Option<&String>| {
        trouble.is_some_and(|why| why.contains("there is no interface `later`"))
    };
    let bfd_says = |ours: &Ours| {
        let bfd = ours.speaker.bfd().map(|_| ours.bfd_report());
        bfd.is_some_and(|report| report.sessions.iter().any(|told| says(told.trouble.as_ref())))
    };
    wait_for("who misses it", PATIENCE, || {
        let report = ours.speaker.report(std::time::Instant::now());
        let listener = says(report.listeners[0].trouble.as_ref());
        let both = says(report.peers[0].trouble.as_ref()) && listener;
        Ok((both && bfd_says(&ours), format!("{report:?}")))
    })?;
    assert_ne!(ours.told(key).peer.state, State::Established);
    cable(
        End { ns: &here, device: "later", addresses: &["fe80::1/64"] },
        End { ns: &there, device: "sooner", addresses: &[] },
    )?;
    wait_for("the listener, and nobody who misses it", PATIENCE, || {
        let report = ours.speaker.report(std::time::Instant::now());
        let listens = report.listeners[0].listens && report.listeners[0].trouble.is_none();
        let silent = !says(report.peers[0].trouble.as_ref());
        Ok((listens && silent && !bfd_says(&ours), format!("{report:?}")))
    })?;
    Ok(())
}
