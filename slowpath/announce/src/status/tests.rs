//! Test of the status of an established session: a real state machine with handwritten messages of
//! the peer.

use std::time::Duration;

use bgp::peer::Event;
use bgp::session::Direction;
use serde_json::json;

use super::*;
use crate::announcer::Settings;
use crate::apply::PolicyApplier;
use crate::fixture::{Recorder, policy, router, service, state, tables};
use crate::secrets::Files;

/// An OPEN with AS 65000, hold time 90 s, identifier 9.9.9.9 and IPv4 unicast as only capability.
const OPEN: [u8; 37] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0, 37, 1, 4, 0xfd, 0xe8, 0, 90, 9, 9, 9, 9, 8, 2, 6, 1, 4, 0, 1, 0, 1,
];
const KEEPALIVE: [u8; 19] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0, 19, 4,
];

#[test]
fn status_rows_show_an_established_session() {
    let files = Arc::new(Files::default());
    let mut announcer = Announcer::new(Recorder::default(), files, Settings::default());
    let web = service("web", json!({}), &[("203.0.113.1", 80, "LoadBalancer")]);
    let state = state(tables(&[web]));
    let edge = policy("edge", json!([router(65001, "192.0.2.254")]));
    announcer.configure_peers(Some(&edge), &state).unwrap();
    let now = Instant::now();
    let (_, peer, _) = announcer.speaker.peers.values_mut().next().unwrap();
    let (local, remote) = ("192.0.2.10:40000".parse().unwrap(), "192.0.2.254:179".parse().unwrap());
    let direction = Direction::Outbound;
    peer.step(now, Event::Connected { connection: 1, direction, local, remote });
    peer.step(now, Event::Bytes(1, &OPEN));
    peer.step(now, Event::Bytes(1, &KEEPALIVE));
    // The first `Written` is for the OPEN, the second for the routes.
    peer.step(now, Event::Written(1));
    assert!(!peer.all_sent());
    peer.step(now, Event::Written(1));
    assert!(peer.all_sent());
    assert_eq!(peer.state(), State::Established);
    let later = now + Duration::from_secs(7);
    let rows = announcer.peer_rows(later);
    let of = |family: Family| rows.iter().find(|row| row.family == family).unwrap();
    let v4 = of(Family::Ipv4Unicast);
    assert_eq!((v4.state, v4.uptime_s, v4.advertised), (State::Established, Some(7.0), 1));
    assert_eq!(of(Family::Ipv6Unicast).advertised, 0);
    let query = RouteQuery { family: "ipv4-unicast".to_owned(), ..RouteQuery::default() };
    let routes = announcer.routes(later, RouteView::Advertised, &query).unwrap();
    assert_eq!(routes.len(), 1);
    let prefix = routes[0].prefix.to_string();
    assert_eq!((prefix, routes[0].age_s), ("203.0.113.1/32".to_owned(), 7.0));
    let status = announcer.status(later, &Counts::default(), 3);
    assert_eq!((status.policies, status.policy.as_deref()), (3, Some("edge")));
    assert_eq!((status.routers, status.neighbors, status.established), (vec![65001], 1, 1));
    // A withdrawal of all routes keeps the session.
    announcer.withdraw();
    let (_, peer, _) = announcer.speaker.peers.values_mut().next().unwrap();
    peer.step(later, Event::Written(1));
    assert!(peer.all_sent() && peer.established().is_some());
    assert!(announcer.routes(later, RouteView::Advertised, &query).unwrap().is_empty());
}
