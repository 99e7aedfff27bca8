//! Tests that a peer ends up with the desired routes, whatever changes in between.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::*;
use crate::peer::tests::table;
use crate::wire::DecodeContext;
use crate::wire::{Framer, Kind, MAX_EXTENDED_MESSAGE, MAX_MESSAGE, Message};

/// Values of the argument `complete` of [`Advertiser::set_desired`].
const COMPLETE: bool = true;
const INCOMPLETE: bool = false;
/// Values of the argument `shutting_down` of [`Advertiser::set_desired`].
const SHUTTING_DOWN: bool = true;
const SERVING: bool = false;
/// Values of the argument `enhanced` of [`Advertiser::new`].
const ENHANCED_REFRESH: bool = true;
const PLAIN_REFRESH: bool = false;

fn encode_context() -> EncodeContext {
    EncodeContext {
        local_asn: 64_500,
        internal: false,
        four_octet: true,
        extended_next_hop: false,
        limit: MAX_MESSAGE,
        peer: [192, 0, 2, 2].into(),
    }
}

fn advertiser() -> Advertiser {
    Advertiser::new(encode_context(), &Family::ALL, ENHANCED_REFRESH)
}

/// Next hop, communities and large communities of a received route.
type RouteAttributes = (Option<IpAddr>, Vec<u32>, Vec<[u32; 3]>);

/// A peer that installs the routes that it receives.
#[derive(Default)]
struct Router {
    routes: BTreeMap<IpNet, RouteAttributes>,
    received: Vec<Received>,
    context: DecodeContext,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Received {
    Withdrawal(Family),
    Routes(Family),
    EndOfRib(Family),
    Mark(RefreshKind),
}

impl Router {
    fn new() -> Router {
        Router {
            context: DecodeContext { four_octet: true, ..DecodeContext::default() },
            ..Router::default()
        }
    }

    fn receive(&mut self, octets: &[u8]) {
        let mut framer = Framer::default();
        framer.accept_extended_messages();
        framer.push(octets);
        let (kind, body) = framer.next_message().unwrap().expect("one complete message");
        match Message::read(kind, &body, &self.context).unwrap() {
            Message::Refresh(refresh) => self.received.push(Received::Mark(refresh.subtype)),
            Message::Update(update) => {
                assert_eq!(update.error_handling, crate::wire::ErrorHandling::NoError);
                let first = update.withdrawn.first().map(Family::of_prefix);
                self.received.extend(first.map(Received::Withdrawal));
                let first = update.announced.first().map(Family::of_prefix);
                self.received.extend(first.map(Received::Routes));
                self.received.extend(update.end_of_rib.map(Received::EndOfRib));
                for prefix in update.withdrawn {
                    assert!(self.routes.remove(&prefix).is_some(), "{prefix} was never advertised");
                }
                let path = update.path;
                for prefix in update.announced {
                    let attributes = (path.next_hop, path.communities.clone(), path.large.clone());
                    self.routes.insert(prefix, attributes);
                }
            }
            other => panic!("{other:?}"),
        }
        assert_ne!(kind, Kind::Open);
    }

    /// Receives all pending messages and returns their number.
    fn receive_all(&mut self, advertiser: &mut Advertiser) -> usize {
        let mut count = 0;
        while let Some(message) = advertiser.next_message() {
            self.receive(&message);
            count += 1;
        }
        count
    }

    #[track_caller]
    fn assert_routes(&self, table: &Table) {
        let expected: BTreeMap<_, _> = table
            .routes
            .iter()
            .map(|(prefix, attributes)| {
                (
                    *prefix,
                    (
                        Some(attributes.next_hop),
                        attributes.communities.clone(),
                        attributes.large.clone(),
                    ),
                )
            })
            .collect();
        assert_eq!(self.routes, expected);
    }
}

fn one(prefix: &str, attributes: Attributes) -> Arc<Table> {
    let routes = BTreeMap::from([(prefix.parse().unwrap(), Arc::new(attributes))]);
    Arc::new(Table { routes })
}

#[test]
fn routes_with_equal_attributes_share_messages() {
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    let routes = table(10_000, 1);
    advertiser.set_desired(&routes, COMPLETE, SERVING);
    let count = router.receive_all(&mut advertiser);
    router.assert_routes(&routes);
    // IPv4 prefixes have 50,000 octets, IPv6 prefixes 170,000; then two End-of-RIB markers.
    assert_eq!(count, 13 + 43 + 2);
    assert!(advertiser.is_done());
    assert_eq!(advertiser.advertised(Family::Ipv4Unicast), 10_000);
    // An equal table sends nothing.
    advertiser.set_desired(&Arc::new(Table::clone(&routes)), COMPLETE, SERVING);
    assert_eq!(router.receive_all(&mut advertiser), 0);
}

#[test]
fn extended_messages_hold_sixteen_times_as_many_prefixes() {
    let encode_context = EncodeContext { limit: MAX_EXTENDED_MESSAGE, ..encode_context() };
    let mut advertiser = Advertiser::new(encode_context, &Family::ALL, ENHANCED_REFRESH);
    let (mut router, routes) = (Router::new(), table(10_000, 1));
    advertiser.set_desired(&routes, INCOMPLETE, SERVING);
    assert_eq!(router.receive_all(&mut advertiser), 1 + 3);
    router.assert_routes(&routes);
}

#[test]
fn withdrawals_are_sent_before_announcements() {
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    advertiser.set_desired(&table(100, 1), COMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    router.received.clear();
    let routes = table(10, 2);
    advertiser.set_desired(&routes, COMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    router.assert_routes(&routes);
    let last =
        router.received.iter().rposition(|received| matches!(received, Received::Withdrawal(_)));
    let first = router.received.iter().position(|received| matches!(received, Received::Routes(_)));
    assert!(last.unwrap() < first.unwrap(), "{:?}", router.received);
}

#[test]
fn end_of_rib_is_sent_once_when_the_table_is_complete() {
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    advertiser.set_desired(&table(5, 1), INCOMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    assert!(!router.received.iter().any(|received| matches!(received, Received::EndOfRib(_))));
    let routes = table(5, 2);
    advertiser.set_desired(&routes, COMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    let ends: Vec<_> = router.received.split_off(router.received.len() - 2);
    assert_eq!(ends, Family::ALL.map(Received::EndOfRib));
    advertiser.set_desired(&table(9, 3), COMPLETE, SERVING);
    router.received.clear();
    router.receive_all(&mut advertiser);
    assert!(!router.received.iter().any(|received| matches!(received, Received::EndOfRib(_))));
}

#[test]
fn route_refresh_resends_one_family_between_markers() {
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    let routes = table(5, 1);
    advertiser.set_desired(&routes, COMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    router.received.clear();
    router.routes.retain(|prefix, _| Family::of_prefix(prefix) == Family::Ipv4Unicast);
    advertiser.refresh(Family::Ipv6Unicast);
    assert!(!advertiser.is_done());
    router.receive_all(&mut advertiser);
    router.assert_routes(&routes);
    let expected = [
        Received::Mark(RefreshKind::Begin),
        Received::Routes(Family::Ipv6Unicast),
        Received::Mark(RefreshKind::End),
    ];
    assert_eq!(router.received, expected);
    // Without RFC 7313 only the routes are sent.
    let mut advertiser = Advertiser::new(encode_context(), &Family::ALL, PLAIN_REFRESH);
    let mut router = Router::new();
    advertiser.set_desired(&routes, COMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    router.received.clear();
    advertiser.refresh(Family::Ipv4Unicast);
    router.receive_all(&mut advertiser);
    assert_eq!(router.received, [Received::Routes(Family::Ipv4Unicast)]);
    assert!(advertiser.is_done());
}

#[test]
fn refresh_during_a_refresh_sends_no_second_begin() {
    let mut advertiser = advertiser();
    advertiser.set_desired(&table(3_000, 1), COMPLETE, SERVING);
    let mut router = Router::new();
    router.receive_all(&mut advertiser);
    router.received.clear();
    advertiser.refresh(Family::Ipv6Unicast);
    for _ in 0..3 {
        router.receive(&advertiser.next_message().unwrap());
    }
    advertiser.refresh(Family::Ipv6Unicast);
    // A change during a refresh becomes part of it.
    let routes = table(2_900, 2);
    advertiser.set_desired(&routes, COMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    router.assert_routes(&routes);
    let marks: Vec<_> =
        router.received.iter().filter(|received| matches!(received, Received::Mark(_))).collect();
    assert_eq!(marks, [&Received::Mark(RefreshKind::Begin), &Received::Mark(RefreshKind::End)]);
}

#[test]
fn graceful_shutdown_adds_community_and_zero_local_pref() {
    let encode_context = EncodeContext { internal: true, ..encode_context() };
    let mut advertiser = Advertiser::new(encode_context, &Family::ALL, ENHANCED_REFRESH);
    let mut router = Router::new();
    router.context.internal = true;
    let routes = table(2, 7);
    advertiser.set_desired(&routes, COMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    advertiser.set_desired(&routes, COMPLETE, SHUTTING_DOWN);
    let message = advertiser.next_message().unwrap();
    let Ok(Message::Update(update)) = Message::read(Kind::Update, &message[19..], &router.context)
    else {
        panic!("an UPDATE")
    };
    assert_eq!(update.path.local_pref, Some(0));
    assert_eq!(update.path.communities, [7, 0xfffe_0001, GRACEFUL_SHUTDOWN]);
    router.receive_all(&mut advertiser);
    // Graceful shutdown can be turned off again.
    advertiser.set_desired(&routes, COMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    router.assert_routes(&routes);
}

#[test]
fn unsendable_routes_are_counted_and_withdrawn() {
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let v4: IpAddr = "192.0.2.1".parse().unwrap();
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    let good = one("10.0.0.1/32", Attributes::new(v4));
    advertiser.set_desired(&good, INCOMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    // Without RFC 8950 an IPv6 next hop cannot be sent.
    let bad = one("10.0.0.1/32", Attributes::new(v6));
    advertiser.set_desired(&bad, INCOMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    assert_eq!((advertiser.unsendable(), router.routes.len()), (1, 0));
    advertiser.set_desired(&one("2001:db8::/48", Attributes::new(v4)), INCOMPLETE, SERVING);
    assert_eq!((advertiser.unsendable(), router.receive_all(&mut advertiser)), (1, 0));
    // The peer itself must not be the next hop (RFC 4271 section 5.1.3).
    let peer = IpAddr::from([192, 0, 2, 2]);
    advertiser.set_desired(&one("10.0.0.1/32", Attributes::new(peer)), INCOMPLETE, SERVING);
    assert_eq!((advertiser.unsendable(), router.receive_all(&mut advertiser)), (1, 0));
    // With more communities than fit in a message, the previous route is withdrawn.
    advertiser.set_desired(&good, INCOMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    let mut long = Attributes::new(v4);
    long.communities = (0..20_000).collect();
    advertiser.set_desired(&one("10.0.0.1/32", long), INCOMPLETE, SERVING);
    router.receive_all(&mut advertiser);
    assert_eq!((advertiser.unsendable(), router.routes.len()), (1, 0));
    assert!(advertiser.is_done());
}

#[test]
fn family_that_was_not_negotiated_is_not_advertised() {
    let mut advertiser =
        Advertiser::new(encode_context(), &[Family::Ipv6Unicast], ENHANCED_REFRESH);
    let (mut router, routes) = (Router::new(), table(5, 1));
    advertiser.set_desired(&routes, COMPLETE, SERVING);
    advertiser.refresh(Family::Ipv4Unicast);
    router.receive_all(&mut advertiser);
    let families: BTreeSet<Family> = router.routes.keys().map(Family::of_prefix).collect();
    assert_eq!(families, BTreeSet::from([Family::Ipv6Unicast]));
    assert_eq!(advertiser.unsendable(), 0);
}

#[test]
fn changes_during_advertisement_converge_to_the_last_table() {
    for seed in 1..300 {
        let mut rng = Rng::with_seed(seed * 77_777);
        let (mut advertiser, mut router) = (advertiser(), Router::new());
        let mut last = Arc::new(Table::default());
        for _ in 0..30 {
            match rng.u64(..6) {
                0 => advertiser.refresh(Family::ALL[rng.usize(..2)]),
                1 | 2 => {
                    let mut routes = Table::clone(&table(rng.u32(..60), 0));
                    for attributes in routes.routes.values_mut() {
                        let mut changed = Attributes::clone(attributes);
                        changed.communities = vec![rng.u32(..20)];
                        *attributes = Arc::new(changed);
                    }
                    last = Arc::new(routes);
                    advertiser.set_desired(&last, rng.u64(..2) == 0, SERVING);
                }
                _ => {
                    for _ in 0..rng.u64(..12) {
                        if let Some(message) = advertiser.next_message() {
                            router.receive(&message);
                        }
                    }
                }
            }
        }
        router.receive_all(&mut advertiser);
        router.assert_routes(&last);
        assert!(advertiser.is_done(), "seed {seed}");
    }
}
