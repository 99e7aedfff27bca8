//! Tests of BFD settings, and of two speakers on this machine through the trait that the control
//! loop uses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use bgp::peer::State;
use bgp::peer::settings::Settings;
use bgp::wire::Attributes;
use patience::{check, eventually_async};

use super::*;

/// Returns the peer `remote` as configured at `local`; both listen on `port`.
fn peer_config(asn: u32, local: Ipv4Addr, remote: Ipv4Addr, port: u16) -> (PeerKey, PeerConfig) {
    let peer = SocketAddr::from((remote, port));
    let mut settings = Settings::new(asn, local, peer, 0);
    settings.transport.local = Some(local.into());
    settings.connect_retry = Duration::from_secs(1);
    let config = PeerConfig { settings, listen_port: Some(port), interface: None, bfd: None };
    (PeerKey { local_asn: asn, peer }, config)
}

/// Returns the BFD settings that result from a neighbor's configuration.
fn bfd_of(hops: u8, bfd: serde_json::Value) -> PeerBfd {
    let (_, mut config) = peer_config(65_001, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 179);
    config.settings.transport.hops = Some(hops);
    config.bfd = Some(serde_json::from_value(bfd).unwrap());
    config.interface = Some("up0".to_owned());
    let peer = speaker_config(&config);
    assert_eq!(peer.interface.as_deref(), Some("up0"));
    let bfd = peer.bfd.unwrap();
    bfd.settings.check().unwrap();
    bfd
}

#[test]
fn minimum_ttl_is_configured_or_derived_from_hops() {
    let ttl = |hops, bfd| bfd_of(hops, bfd).settings.minimum_ttl;
    let far = || serde_json::json!({"enabled": true, "multihop": true});
    assert_eq!([1, 2, 3, 255].map(|hops| ttl(hops, far())), [254, 254, 253, 1]);
    let mut configured = far();
    configured["minimum_ttl"] = 63.into();
    assert_eq!([1, 3].map(|hops| ttl(hops, configured.clone())), [63, 63]);
    // The minimum and the maximum that a policy may set are valid BFD settings.
    for (time, multiplier) in [(10, 2), (60_000, 255)] {
        let configured = serde_json::json!({"transmit_ms": time, "receive_ms": time,
            "multiplier": multiplier});
        assert!(!bfd_of(1, configured).multihop);
    }
}

async fn until(what: &str, sockets: &SharedSpeaker, condition: impl Fn(&SharedSpeaker) -> bool) {
    let found = || format!("{:?}", sockets.peers(Instant::now()));
    eventually_async(what, async || check(condition(sockets), found)).await;
}

fn status(sockets: &SharedSpeaker) -> PeerStatus {
    sockets.peers(Instant::now()).remove(0).1
}

#[tokio::test]
async fn speaker_sends_routes_withdrawals_and_the_final_notification() {
    // Every test process uses its own addresses, so that concurrent runs do not conflict.
    let number = std::process::id().to_be_bytes();
    let [one, two] = [7, 8].map(|first| Ipv4Addr::new(127, first, number[2], number[3]));
    let port = TcpListener::bind((one, 0)).unwrap().local_addr().unwrap().port();
    let (mut local, mut remote) = (SharedSpeaker::new(), SharedSpeaker::new());
    let (key, settings) = peer_config(65_001, one, two, port);
    local.add(key, &settings);
    let (remote_key, remote_settings) = peer_config(65_002, two, one, port);
    remote.add(remote_key, &remote_settings);
    let attributes = Arc::new(Attributes::new(IpAddr::from(one)));
    let prefixes = ["192.0.2.1/32", "192.0.2.2/32"].map(|prefix| prefix.parse().unwrap());
    let rows = prefixes.into_iter().map(|prefix| (prefix, Arc::clone(&attributes)));
    let table = Arc::new(Table { routes: rows.collect() });
    local.set_routes(key, &table);
    local.complete();
    let family = Family::Ipv4Unicast;
    until("two routes received", &remote, |s| status(s).families[0].received.prefixes == 2).await;
    assert_eq!(status(&local).state, State::Established);
    until("all routes sent", &local, Speaker::all_sent).await;
    assert_eq!(local.advertised(key, family).len(), 2);
    assert!(remote.advertised(remote_key, family).is_empty());
    assert!(local.status(Instant::now()).listeners[0].listens);

    local.set_routes(key, &Arc::default());
    assert!(!local.all_sent(), "withdrawals cannot be sent yet");
    until("all routes withdrawn", &local, Speaker::all_sent).await;
    local.remove(key, Stop::Shutdown("upgrade".to_owned()));
    local.end().await;
    until("the shutdown message", &remote, |remote| {
        status(remote).last_received.is_some_and(|event| event.description.contains("upgrade"))
    })
    .await;
    // After the end, calls have no effect.
    local.add(key, &settings);
    assert!(local.peers(Instant::now()).is_empty() && local.all_sent());
}
