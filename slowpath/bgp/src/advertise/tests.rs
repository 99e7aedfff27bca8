//! Tests that a peer ends up with the desired routes, whatever changes in between.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::*;
use crate::peer::tests::table;
use crate::wire::Context;
use crate::wire::{EXTENDED_MESSAGE, Framer, Kind, MESSAGE, Message};

fn speaking() -> Speaking {
    Speaking {
        local_asn: 64_500,
        internal: false,
        four_octet: true,
        extended_next_hop: false,
        limit: MESSAGE,
        peer: [192, 0, 2, 2].into(),
    }
}

fn advertiser() -> Advertiser {
    Advertiser::new(speaking(), &Family::ALL, true)
}

/// Next hop, communities and large communities of a received route.
type Said = (Option<IpAddr>, Vec<u32>, Vec<[u32; 3]>);

/// A peer that installs what it receives.
#[derive(Default)]
struct Router {
    routes: BTreeMap<IpNet, Said>,
    heard: Vec<Heard>,
    context: Context,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    Withdrawal(Family),
    Routes(Family),
    EndOfRib(Family),
    Mark(RefreshKind),
}

impl Router {
    fn new() -> Router {
        Router { context: Context { four_octet: true, ..Context::default() }, ..Router::default() }
    }

    fn hear(&mut self, octets: &[u8]) {
        let mut framer = Framer::default();
        framer.extend();
        framer.push(octets);
        let (kind, body) = framer.next_message().unwrap().expect("one whole message");
        match Message::read(kind, &body, &self.context).unwrap() {
            Message::Refresh(refresh) => self.heard.push(Heard::Mark(refresh.subtype)),
            Message::Update(update) => {
                assert_eq!(update.treated, crate::wire::Treated::AsSent);
                let first = update.withdrawn.first().map(Family::of_prefix);
                self.heard.extend(first.map(Heard::Withdrawal));
                let first = update.announced.first().map(Family::of_prefix);
                self.heard.extend(first.map(Heard::Routes));
                self.heard.extend(update.end_of_rib.map(Heard::EndOfRib));
                for prefix in update.withdrawn {
                    assert!(self.routes.remove(&prefix).is_some(), "{prefix} was never there");
                }
                let path = update.path;
                for prefix in update.announced {
                    let said = (path.next_hop, path.communities.clone(), path.large.clone());
                    self.routes.insert(prefix, said);
                }
            }
            other => panic!("{other:?}"),
        }
        assert_ne!(kind, Kind::Open);
    }

    /// Receives all pending messages and returns their number.
    fn hear_all(&mut self, advertiser: &mut Advertiser) -> usize {
        let mut count = 0;
        while let Some(message) = advertiser.next_message() {
            self.hear(&message);
            count += 1;
        }
        count
    }

    #[track_caller]
    fn has(&self, table: &Table) {
        let wanted: BTreeMap<_, _> = table
            .routes
            .iter()
            .map(|(prefix, said)| {
                (*prefix, (Some(said.next_hop), said.communities.clone(), said.large.clone()))
            })
            .collect();
        assert_eq!(self.routes, wanted);
    }
}

fn one(prefix: &str, attributes: Attributes) -> Arc<Table> {
    let routes = BTreeMap::from([(prefix.parse().unwrap(), Arc::new(attributes))]);
    Arc::new(Table { routes })
}

#[test]
fn routes_of_equal_attributes_share_messages() {
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    let routes = table(10_000, 1);
    advertiser.desire(&routes, true, false);
    let count = router.hear_all(&mut advertiser);
    router.has(&routes);
    // 50,000 octets and 170,000 octets of prefixes, and two End-of-RIB markers.
    assert_eq!(count, 13 + 43 + 2);
    assert!(advertiser.is_done());
    assert_eq!(advertiser.advertised(Family::Ipv4Unicast), 10_000);
    // An equal table sends nothing.
    advertiser.desire(&Arc::new(Table::clone(&routes)), true, false);
    assert_eq!(router.hear_all(&mut advertiser), 0);
}

#[test]
fn long_messages_hold_sixteen_times_as_much() {
    let speaking = Speaking { limit: EXTENDED_MESSAGE, ..speaking() };
    let mut advertiser = Advertiser::new(speaking, &Family::ALL, true);
    let (mut router, routes) = (Router::new(), table(10_000, 1));
    advertiser.desire(&routes, false, false);
    assert_eq!(router.hear_all(&mut advertiser), 1 + 3);
    router.has(&routes);
}

#[test]
fn withdrawals_come_first() {
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    advertiser.desire(&table(100, 1), true, false);
    router.hear_all(&mut advertiser);
    router.heard.clear();
    let routes = table(10, 2);
    advertiser.desire(&routes, true, false);
    router.hear_all(&mut advertiser);
    router.has(&routes);
    let last = router.heard.iter().rposition(|heard| matches!(heard, Heard::Withdrawal(_)));
    let first = router.heard.iter().position(|heard| matches!(heard, Heard::Routes(_)));
    assert!(last.unwrap() < first.unwrap(), "{:?}", router.heard);
}

#[test]
fn the_end_of_rib_waits_until_the_table_is_complete_and_comes_once() {
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    advertiser.desire(&table(5, 1), false, false);
    router.hear_all(&mut advertiser);
    assert!(!router.heard.iter().any(|heard| matches!(heard, Heard::EndOfRib(_))));
    let routes = table(5, 2);
    advertiser.desire(&routes, true, false);
    router.hear_all(&mut advertiser);
    let ends: Vec<_> = router.heard.split_off(router.heard.len() - 2);
    assert_eq!(ends, Family::ALL.map(Heard::EndOfRib));
    advertiser.desire(&table(9, 3), true, false);
    router.heard.clear();
    router.hear_all(&mut advertiser);
    assert!(!router.heard.iter().any(|heard| matches!(heard, Heard::EndOfRib(_))));
}

#[test]
fn a_refresh_says_one_family_again_between_its_marks() {
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    let routes = table(5, 1);
    advertiser.desire(&routes, true, false);
    router.hear_all(&mut advertiser);
    router.heard.clear();
    router.routes.retain(|prefix, _| Family::of_prefix(prefix) == Family::Ipv4Unicast);
    advertiser.refresh(Family::Ipv6Unicast);
    assert!(!advertiser.is_done());
    router.hear_all(&mut advertiser);
    router.has(&routes);
    let expected = [
        Heard::Mark(RefreshKind::Begin),
        Heard::Routes(Family::Ipv6Unicast),
        Heard::Mark(RefreshKind::End),
    ];
    assert_eq!(router.heard, expected);
    // Without RFC 7313 only the routes are sent.
    let mut advertiser = Advertiser::new(speaking(), &Family::ALL, false);
    let mut router = Router::new();
    advertiser.desire(&routes, true, false);
    router.hear_all(&mut advertiser);
    router.heard.clear();
    advertiser.refresh(Family::Ipv4Unicast);
    router.hear_all(&mut advertiser);
    assert_eq!(router.heard, [Heard::Routes(Family::Ipv4Unicast)]);
    assert!(advertiser.is_done());
}

#[test]
fn no_begin_comes_between_begin_and_end() {
    let mut advertiser = advertiser();
    advertiser.desire(&table(3_000, 1), true, false);
    let mut router = Router::new();
    router.hear_all(&mut advertiser);
    router.heard.clear();
    advertiser.refresh(Family::Ipv6Unicast);
    for _ in 0..3 {
        router.hear(&advertiser.next_message().unwrap());
    }
    advertiser.refresh(Family::Ipv6Unicast);
    // A change during a refresh becomes part of it.
    let routes = table(2_900, 2);
    advertiser.desire(&routes, true, false);
    router.hear_all(&mut advertiser);
    router.has(&routes);
    let marks: Vec<_> =
        router.heard.iter().filter(|heard| matches!(heard, Heard::Mark(_))).collect();
    assert_eq!(marks, [&Heard::Mark(RefreshKind::Begin), &Heard::Mark(RefreshKind::End)]);
}

#[test]
fn all_that_is_about_to_go_says_so() {
    let speaking = Speaking { internal: true, ..speaking() };
    let mut advertiser = Advertiser::new(speaking, &Family::ALL, true);
    let mut router = Router::new();
    router.context.internal = true;
    let routes = table(2, 7);
    advertiser.desire(&routes, true, false);
    router.hear_all(&mut advertiser);
    advertiser.desire(&routes, true, true);
    let message = advertiser.next_message().unwrap();
    let Ok(Message::Update(update)) = Message::read(Kind::Update, &message[19..], &router.context)
    else {
        panic!("an UPDATE")
    };
    assert_eq!(update.path.local_pref, Some(0));
    assert_eq!(update.path.communities, [7, 0xfffe_0001, GRACEFUL_SHUTDOWN]);
    router.hear_all(&mut advertiser);
    // Graceful shutdown can be turned off again.
    advertiser.desire(&routes, true, false);
    router.hear_all(&mut advertiser);
    router.has(&routes);
}

#[test]
fn what_a_session_has_no_words_for_is_counted_and_withdrawn() {
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let v4: IpAddr = "192.0.2.1".parse().unwrap();
    let (mut advertiser, mut router) = (advertiser(), Router::new());
    let good = one("10.0.0.1/32", Attributes::new(v4));
    advertiser.desire(&good, false, false);
    router.hear_all(&mut advertiser);
    // Without RFC 8950 an IPv6 next hop cannot be sent.
    let bad = one("10.0.0.1/32", Attributes::new(v6));
    advertiser.desire(&bad, false, false);
    router.hear_all(&mut advertiser);
    assert_eq!((advertiser.unsendable(), router.routes.len()), (1, 0));
    advertiser.desire(&one("2001:db8::/48", Attributes::new(v4)), false, false);
    assert_eq!((advertiser.unsendable(), router.hear_all(&mut advertiser)), (1, 0));
    // The peer itself must not be the next hop (RFC 4271 section 5.1.3).
    let peer = IpAddr::from([192, 0, 2, 2]);
    advertiser.desire(&one("10.0.0.1/32", Attributes::new(peer)), false, false);
    assert_eq!((advertiser.unsendable(), router.hear_all(&mut advertiser)), (1, 0));
    // With more communities than fit in a message, the previous route is withdrawn.
    advertiser.desire(&good, false, false);
    router.hear_all(&mut advertiser);
    let mut long = Attributes::new(v4);
    long.communities = (0..20_000).collect();
    advertiser.desire(&one("10.0.0.1/32", long), false, false);
    router.hear_all(&mut advertiser);
    assert_eq!((advertiser.unsendable(), router.routes.len()), (1, 0));
    assert!(advertiser.is_done());
}

#[test]
fn a_family_that_was_not_agreed_on_is_not_spoken() {
    let mut advertiser = Advertiser::new(speaking(), &[Family::Ipv6Unicast], true);
    let (mut router, routes) = (Router::new(), table(5, 1));
    advertiser.desire(&routes, true, false);
    advertiser.refresh(Family::Ipv4Unicast);
    router.hear_all(&mut advertiser);
    let families: BTreeSet<Family> = router.routes.keys().map(Family::of_prefix).collect();
    assert_eq!(families, BTreeSet::from([Family::Ipv6Unicast]));
    assert_eq!(advertiser.unsendable(), 0);
}

#[test]
fn whatever_changes_while_it_is_said_the_peer_has_the_last_word_in_the_end() {
    for seed in 1..300 {
        let mut rng = Rng::with_seed(seed * 77_777);
        let (mut advertiser, mut router) = (advertiser(), Router::new());
        let mut last = Arc::new(Table::default());
        for _ in 0..30 {
            match rng.u64(..6) {
                0 => advertiser.refresh(Family::ALL[rng.usize(..2)]),
                1 | 2 => {
                    let mut routes = Table::clone(&table(rng.u32(..60), 0));
                    for said in routes.routes.values_mut() {
                        let mut changed = Attributes::clone(said);
                        changed.communities = vec![rng.u32(..20)];
                        *said = Arc::new(changed);
                    }
                    last = Arc::new(routes);
                    advertiser.desire(&last, rng.u64(..2) == 0, false);
                }
                _ => {
                    for _ in 0..rng.u64(..12) {
                        if let Some(message) = advertiser.next_message() {
                            router.hear(&message);
                        }
                    }
                }
            }
        }
        router.hear_all(&mut advertiser);
        router.has(&last);
        assert!(advertiser.is_done(), "seed {seed}");
    }
}
