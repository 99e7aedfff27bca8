//! Test of two speakers on this machine, through the trait that the control loop uses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use bgp::peer::State;
use bgp::peer::settings::Settings;
use bgp::wire::Attributes;
use patience::{eventually_async, met};

use super::*;

/// Returns the peer `remote` as configured at `local`; both listen on `port`.
fn wanted(asn: u32, local: Ipv4Addr, remote: Ipv4Addr, port: u16) -> (PeerKey, PeerWanted) {
    let peer = SocketAddr::from((remote, port));
    let mut settings = Settings::new(asn, local, peer, 0);
    settings.transport.local = Some(local.into());
    settings.connect_retry = Duration::from_secs(1);
    let wanted = PeerWanted { settings, listen_port: Some(port), interface: None, bfd: None };
    (PeerKey { local_asn: asn, peer }, wanted)
}

/// Returns the BFD settings that result from a neighbor's configuration.
fn bfd_of(hops: u8, bfd: serde_json::Value) -> Watched {
    let (_, mut wanted) = wanted(65_001, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 179);
    wanted.settings.transport.hops = Some(hops);
    wanted.bfd = Some(serde_json::from_value(bfd).unwrap());
    wanted.interface = Some("up0".to_owned());
    let peer = peer(&wanted);
    assert_eq!(peer.interface.as_deref(), Some("up0"));
    let watched = peer.bfd.unwrap();
    watched.settings.check().unwrap();
    watched
}

#[test]
fn hops_that_are_left_are_said_or_follow_from_those_that_are_allowed() {
    let ttl = |hops, bfd| bfd_of(hops, bfd).settings.minimum_ttl;
    let far = || serde_json::json!({"enabled": true, "multihop": true});
    assert_eq!([1, 2, 3, 255].map(|hops| ttl(hops, far())), [254, 254, 253, 1]);
    let mut said = far();
    said["minimum_ttl"] = 63.into();
    assert_eq!([1, 3].map(|hops| ttl(hops, said.clone())), [63, 63]);
    // Minimum and maximum that a policy may set.
    for (time, multiplier) in [(10, 2), (60_000, 255)] {
        let said = serde_json::json!({"transmit_ms": time, "receive_ms": time,
            "multiplier": multiplier});
        assert!(!bfd_of(1, said).multihop);
    }
}

async fn until(what: &str, sockets: &Sockets, so: impl Fn(&Sockets) -> bool) {
    let found = || format!("{:?}", sockets.peers(Instant::now()));
    eventually_async(what, async || met(so(sockets), found)).await;
}

fn told(sockets: &Sockets) -> PeerTold {
    sockets.peers(Instant::now()).remove(0).1
}

#[tokio::test]
async fn what_is_ordered_arrives_and_the_last_words_too() {
    // Every process uses addresses of its own, so that concurrent runs do not conflict.
    let number = std::process::id().to_be_bytes();
    let [one, two] = [7, 8].map(|first| Ipv4Addr::new(127, first, number[2], number[3]));
    let port = TcpListener::bind((one, 0)).unwrap().local_addr().unwrap().port();
    let (mut ours, mut theirs) = (Sockets::new(), Sockets::new());
    let (key, settings) = wanted(65_001, one, two, port);
    ours.add(key, &settings);
    let (their_key, their_settings) = wanted(65_002, two, one, port);
    theirs.add(their_key, &their_settings);
    let attributes = Arc::new(Attributes::new(IpAddr::from(one)));
    let prefixes = ["192.0.2.1/32", "192.0.2.2/32"].map(|prefix| prefix.parse().unwrap());
    let rows = prefixes.into_iter().map(|prefix| (prefix, Arc::clone(&attributes)));
    let table = Arc::new(Table { routes: rows.collect() });
    ours.set_routes(key, &table);
    ours.complete();
    let family = Family::Ipv4Unicast;
    until("two routes there", &theirs, |s| told(s).families[0].received.prefixes == 2).await;
    assert_eq!(told(&ours).state, State::Established);
    until("all is told", &ours, Speaker::is_told).await;
    assert_eq!(ours.advertised(key, family).len(), 2);
    assert!(theirs.advertised(their_key, family).is_empty());
    assert!(ours.report(Instant::now()).listeners[0].listens);

    ours.set_routes(key, &Arc::default());
    assert!(!ours.is_told(), "nobody can have been told yet");
    until("all is withdrawn", &ours, Speaker::is_told).await;
    ours.remove(key, Stop::Shutdown("gone for good".to_owned()));
    ours.end().await;
    until("the last words", &theirs, |theirs| {
        told(theirs).last_received.is_some_and(|said| said.words.contains("gone for good"))
    })
    .await;
    // After the end, calls have no effect.
    ours.add(key, &settings);
    assert!(ours.peers(Instant::now()).is_empty() && ours.is_told());
}
