//! Tests of single rules: one state machine against handwritten messages.

use super::*;
use crate::session::negotiate::{Without, our_open};
use crate::wire::capability::{Capability, code};
use crate::wire::notification::cease;
use crate::wire::{Family, Framer, Kind, Notification, Open, Refresh, RefreshKind, frame};

/// The state machine under test, its clock and its outputs.
struct World {
    peer: Peer,
    now: Instant,
    outputs: Vec<Output>,
}

/// Creates the state machine under test, 192.0.2.1 in AS 64500; its peer is 192.0.2.2 in AS 64501.
fn world(settings: Settings) -> World {
    let now = Instant::now();
    World { peer: Peer::new(settings, now), now, outputs: Vec::new() }
}

/// Modifies settings.
type Change = fn(&mut Settings);

fn ours() -> Settings {
    settings(1, 2, 64_500, 64_501)
}

/// Returns the peer's OPEN, with graceful restart and modified settings.
fn router_open(change: impl FnOnce(&mut Settings)) -> Open {
    let mut theirs = settings(2, 1, 64_501, 64_500);
    theirs.graceful_restart = Some(graceful(false));
    change(&mut theirs);
    our_open(&theirs, &Without::default(), false)
}

impl World {
    fn input(&mut self, input: Input<'_>) {
        let outputs = self.peer.step(self.now, input);
        self.outputs.extend(outputs);
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.peer.next_deadline().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            self.input(Input::Tick);
            let stuck = self.peer.next_deadline().is_some_and(|next| next <= self.now);
            assert!(!stuck, "a deadline that stays in the past");
        }
        self.now = end;
        self.input(Input::Tick);
    }

    fn connect(&mut self, connection: ConnectionId, direction: Direction) {
        let (local, remote) = (A.parse().unwrap(), B.parse().unwrap());
        self.input(Input::Connected { connection, direction, local, remote });
    }

    fn say(&mut self, connection: ConnectionId, octets: &[u8]) {
        self.input(Input::Bytes(connection, octets));
        self.input(Input::Written(connection));
    }

    /// Takes the messages sent on `connection` since the last call.
    fn sent(&mut self, connection: ConnectionId) -> Vec<(Kind, Vec<u8>)> {
        let mut framer = Framer::default();
        framer.extend();
        self.outputs.retain(|output| match output {
            Output::Send(id, octets) if *id == connection => {
                framer.push(octets);
                false
            }
            _ => true,
        });
        let mut messages = Vec::new();
        while let Some((kind, body)) = framer.next_message().unwrap() {
            messages.push((kind, body.to_vec()));
        }
        messages
    }

    fn kinds(&mut self, connection: ConnectionId) -> Vec<Kind> {
        self.sent(connection).into_iter().map(|(kind, _)| kind).collect()
    }

    /// Returns the NOTIFICATION that ended `connection`, if there was one.
    fn ended(&mut self, connection: ConnectionId) -> Option<Notification> {
        assert!(self.outputs.contains(&Output::Close(connection)), "{:?}", self.outputs);
        let (kind, body) = self.sent(connection).pop()?;
        assert_eq!(kind, Kind::Notification);
        Some(Notification::new(body[0], body[1], body[2..].to_vec()))
    }

    /// Establishes a session on an inbound connection.
    fn establish(&mut self, connection: ConnectionId, open: &Open) {
        self.input(Input::Start);
        self.connect(connection, Direction::Inbound);
        self.say(connection, &open.write());
        self.say(connection, &frame::keepalive());
        assert_eq!(self.peer.state(), State::Established);
    }
}

fn established(settings: Settings, change: impl FnOnce(&mut Settings)) -> World {
    let mut world = world(settings);
    world.establish(1, &router_open(change));
    world
}

#[test]
fn it_rests_until_started_then_connects_and_says_who_it_is() {
    let mut world = world(ours());
    world.pass(Duration::from_secs(1000));
    assert_eq!((world.peer.state(), world.outputs.len()), (State::Idle, 0));
    world.connect(9, Direction::Inbound);
    assert_eq!(world.outputs, [Output::Close(9)]);
    world.outputs.clear();
    world.input(Input::Start);
    assert_eq!(world.peer.state(), State::Connect);
    assert_eq!(world.outputs, [Output::Connect, Output::Changed]);
    world.connect(1, Direction::Outbound);
    assert_eq!(world.peer.state(), State::OpenSent);
    assert_eq!(world.kinds(1), [Kind::Open]);
    world.say(1, &router_open(|_| {}).write());
    assert_eq!(world.peer.state(), State::OpenConfirm);
    assert_eq!(world.kinds(1), [Kind::Keepalive]);
    world.say(1, &frame::keepalive());
    assert_eq!(world.peer.state(), State::Established);
}

#[test]
fn it_connects_again_ever_later_up_to_the_connect_retry_time() {
    let mut settings = ours();
    settings.connect_retry = Duration::from_secs(120);
    let mut world = world(settings);
    world.input(Input::Start);
    let mut waits = Vec::new();
    for failures in 0..10 {
        let before = world.now;
        // The attempt is refused or times out.
        if failures % 2 == 0 {
            world.input(Input::ConnectFailed);
            assert_eq!(world.peer.state(), State::Active);
        }
        world.outputs.clear();
        while !world.outputs.contains(&Output::Connect) {
            world.now = world.peer.next_deadline().unwrap();
            world.input(Input::Tick);
        }
        assert_eq!(world.peer.state(), State::Connect);
        waits.push(world.now.duration_since(before).as_secs_f64());
    }
    // 1 s, 2 s, 4 s and so on, with jitter.
    for (index, wait) in waits.iter().enumerate() {
        let whole = f64::from(1 << index).min(120.0);
        assert!((whole * 0.74..=whole).contains(wait), "{waits:?}");
    }
    // A connection resets the backoff.
    world.establish(1, &router_open(|_| {}));
    world.input(Input::Closed(1));
    world.input(Input::ConnectFailed);
    world.outputs.clear();
    world.pass(Duration::from_secs(1));
    assert!(world.outputs.contains(&Output::Connect));
}

#[test]
fn a_passive_peer_never_connects_and_takes_connections() {
    let mut settings = ours();
    settings.passive = true;
    let mut world = world(settings);
    world.input(Input::Start);
    world.pass(Duration::from_secs(1000));
    assert_eq!(world.peer.state(), State::Active);
    assert!(!world.outputs.contains(&Output::Connect));
    world.establish(1, &router_open(|_| {}));
}

#[test]
fn nobody_else_is_let_in() {
    let mut world = world(ours());
    world.input(Input::Start);
    let (local, remote) = (A.parse().unwrap(), "192.0.2.3:179".parse().unwrap());
    let stranger = Input::Connected { connection: 7, direction: Direction::Inbound, local, remote };
    world.input(stranger);
    assert!(world.outputs.contains(&Output::Close(7)));
    assert_eq!(world.peer.history().refused, 1);
}

#[test]
fn no_open_within_four_minutes_is_a_hold_timer_that_ran_out() {
    let mut world = world(ours());
    world.input(Input::Start);
    world.connect(1, Direction::Outbound);
    world.pass(Duration::from_secs(239));
    assert_eq!(world.kinds(1), [Kind::Open]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.ended(1), Some(Notification::hold_timer()));
}

#[test]
fn silence_for_the_hold_time_ends_the_session() {
    let mut world = established(ours(), |theirs| theirs.hold = Duration::from_secs(30));
    assert_eq!(world.peer.told(world.now).connection.unwrap().hold_s, Some(30.0));
    world.pass(Duration::from_secs(29));
    assert_eq!(world.peer.state(), State::Established);
    world.say(1, &frame::keepalive());
    world.pass(Duration::from_secs(29));
    assert_eq!(world.peer.state(), State::Established);
    world.sent(1);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.ended(1), Some(Notification::hold_timer()));
    assert_eq!(world.peer.history().flaps, 1);
    assert_eq!(world.peer.state(), State::Connect);
}

#[test]
fn keepalives_go_out_by_a_third_of_the_hold_time_and_never_twice_a_second() {
    for (hold, seconds, least, most) in [(9, 300, 100, 134), (3, 300, 300, 301)] {
        let mut world = established(ours(), |theirs| theirs.hold = Duration::from_secs(hold));
        world.sent(1);
        let mut count = 0;
        for _ in 0..seconds {
            world.pass(Duration::from_secs(1));
            world.say(1, &frame::keepalive());
            count += world.kinds(1).iter().filter(|kind| **kind == Kind::Keepalive).count();
        }
        assert!((least..=most).contains(&count), "{count} in {seconds} s of hold time {hold}");
    }
}

#[test]
fn a_hold_time_of_zero_asks_for_no_keepalives_and_never_runs_out() {
    let mut world = established(ours(), |theirs| theirs.hold = Duration::ZERO);
    world.sent(1);
    world.pass(Duration::from_secs(100_000));
    assert_eq!(world.peer.state(), State::Established);
    assert_eq!(world.kinds(1), []);
}

#[test]
fn a_peer_that_takes_nothing_for_eight_minutes_is_given_up() {
    let mut world = established(ours(), |_| {});
    world.input(Input::Desired(table(1, 0)));
    for _ in 0..47 {
        world.pass(Duration::from_secs(10));
        world.input(Input::Bytes(1, &frame::keepalive()));
    }
    assert_eq!(world.peer.state(), State::Established);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.ended(1), Some(Notification::send_hold_timer()));
}

#[test]
fn a_message_that_has_no_place_in_a_state_ends_it() {
    let open = router_open(|_| {}).write();
    let refresh = Refresh::new(Family::Ipv4Unicast, RefreshKind::Asked).write();
    let update = crate::wire::write::end_of_rib(Family::Ipv4Unicast);
    // OpenSent, OpenConfirm, Established (RFC 6608).
    let cases = [
        (1, vec![(frame::keepalive(), 4), (update.clone(), 2), (refresh.clone(), 5)]),
        (2, vec![(open.clone(), 1), (update, 2), (refresh, 5)]),
        (3, vec![(open.clone(), 1)]),
    ];
    for (state, wrong) in cases {
        for (octets, kind) in wrong {
            let mut world = world(ours());
            world.input(Input::Start);
            world.connect(1, Direction::Inbound);
            if state > 1 {
                world.say(1, &open);
            }
            if state > 2 {
                world.say(1, &frame::keepalive());
            }
            world.sent(1);
            world.say(1, &octets);
            assert_eq!(world.ended(1), Some(Notification::new(5, state, vec![kind])));
        }
    }
}

#[test]
fn a_message_that_is_none_is_answered_and_the_connection_closed() {
    let mut world = established(ours(), |_| {});
    world.sent(1);
    world.say(1, &[0; 19]);
    assert_eq!(world.ended(1), Some(Notification::new(1, 1, vec![])));
    assert_eq!(
        world.peer.told(world.now).last_sent.unwrap().words,
        "message header error: connection not synchronized"
    );
}

#[test]
fn a_notification_is_taken_without_an_answer() {
    let mut world = established(ours(), |_| {});
    world.sent(1);
    world.say(1, &Notification::cease_with(cease::SHUTDOWN, "back at noon").write());
    assert_eq!(world.ended(1), None);
    let told = world.peer.told(world.now);
    let words = "cease: administrative shutdown, \"back at noon\"";
    assert_eq!(told.last_received.unwrap().words, words);
}

#[test]
fn who_fails_again_and_again_is_tried_ever_less_often_and_may_connect_meanwhile() {
    let mut world = world(ours());
    world.input(Input::Start);
    let mut rests = Vec::new();
    for id in 0..12 {
        let before = world.now;
        while !world.outputs.contains(&Output::Connect) {
            let next = world.peer.next_deadline().unwrap();
            world.now = next;
            world.input(Input::Tick);
        }
        rests.push(world.now.duration_since(before).as_secs_f64());
        world.outputs.clear();
        world.connect(id, Direction::Outbound);
        world.input(Input::Closed(id));
    }
    // Twice at once, then after 1 s, 2 s, 4 s and so on with jitter, at most a minute.
    assert_eq!(rests[..2], [0.0, 0.0], "{rests:?}");
    for (index, rest) in rests[2..].iter().enumerate() {
        let whole = f64::from(1 << index.min(6)).min(60.0);
        assert!((whole * 0.74..=whole).contains(rest), "{rests:?}");
    }
    assert_eq!(world.peer.state(), State::Active);
    world.establish(100, &router_open(|_| {}));
    // A session that lasted a minute resets the backoff.
    for _ in 0..7 {
        world.pass(Duration::from_secs(10));
        world.say(100, &frame::keepalive());
    }
    world.outputs.clear();
    world.input(Input::Closed(100));
    assert!(world.outputs.contains(&Output::Connect));
}

/// Returns a state machine with two connections that both wait for the peer's OPEN, and this OPEN.
fn colliding(identifier: [u8; 4], asn: u32) -> (World, Open) {
    let mut ours = ours();
    ours.peer_asn = 0;
    let mut world = world(ours);
    world.input(Input::Start);
    world.connect(1, Direction::Outbound);
    world.connect(2, Direction::Inbound);
    assert_eq!((world.kinds(1), world.kinds(2)), (vec![Kind::Open], vec![Kind::Open]));
    let open = router_open(|theirs| {
        (theirs.identifier, theirs.local_asn) = (identifier.into(), asn);
    });
    (world, open)
}

#[test]
fn of_two_connections_the_one_that_the_higher_identifier_began_stays() {
    // The local side is 192.0.2.1 in AS 64500. With equal identifiers the higher AS number decides
    // (RFC 6286 section 2.3).
    let cases = [
        ([192, 0, 2, 2], 64_501, 2),
        ([192, 0, 2, 0], 64_501, 1),
        ([192, 0, 2, 1], 64_501, 2),
        ([192, 0, 2, 1], 64_499, 1),
    ];
    for (identifier, asn, stays) in cases {
        for first in [1, 2] {
            let (mut world, open) = colliding(identifier, asn);
            let loser = 3 - stays;
            world.say(first, &open.write());
            assert_eq!(world.peer.state(), State::OpenConfirm);
            world.sent(first);
            world.say(3 - first, &open.write());
            let collision = Notification::cease(cease::COLLISION);
            assert_eq!(world.ended(loser), Some(collision), "{identifier:?} {asn} {first}");
            world.say(stays, &frame::keepalive());
            assert_eq!(world.peer.state(), State::Established);
            assert_eq!(world.peer.history().flaps, 0);
            assert!(!world.outputs.contains(&Output::Close(stays)));
        }
    }
}

#[test]
fn a_connection_beside_an_established_one_is_refused_once_it_says_who_it_is() {
    let mut world = established(ours(), |theirs| theirs.graceful_restart = None);
    world.pass(Duration::from_secs(20));
    world.connect(2, Direction::Inbound);
    assert_eq!(world.kinds(2), [Kind::Open]);
    world.say(2, &router_open(|theirs| theirs.graceful_restart = None).write());
    assert_eq!(world.ended(2), Some(Notification::cease(cease::COLLISION)));
    assert_eq!(world.peer.established().unwrap().id, 1);
}

#[test]
fn a_peer_of_graceful_restart_that_comes_back_takes_the_place_of_its_old_connection() {
    let mut ours = ours();
    ours.graceful_restart = Some(graceful(false));
    let mut world = established(ours.clone(), |_| {});
    world.pass(Duration::from_secs(20));
    world.sent(1);
    world.connect(2, Direction::Inbound);
    world.sent(2);
    world.say(2, &router_open(|_| {}).write());
    // No NOTIFICATION is sent, which would end graceful restart at the peer.
    assert_eq!(world.ended(1), None);
    world.say(2, &frame::keepalive());
    assert_eq!(world.peer.established().unwrap().id, 2);
    // A connection opened at the same time is no sign of a restart.
    let mut world = established(ours, |_| {});
    world.connect(2, Direction::Inbound);
    world.say(2, &router_open(|_| {}).write());
    assert_eq!(world.ended(2), Some(Notification::cease(cease::COLLISION)));
}

#[test]
fn once_established_other_connections_and_attempts_end() {
    let mut world = world(ours());
    world.input(Input::Start);
    world.connect(2, Direction::Inbound);
    world.say(2, &router_open(|_| {}).write());
    world.say(2, &frame::keepalive());
    assert!(world.outputs.contains(&Output::Abandon));
    world.outputs.clear();
    // A connection after the attempt was abandoned.
    world.connect(1, Direction::Outbound);
    assert_eq!(world.outputs, [Output::Close(1)]);
    // A connection without the peer's OPEN is closed as well.
    let (mut world, open) = colliding([192, 0, 2, 2], 64_501);
    world.say(2, &open.write());
    world.say(2, &frame::keepalive());
    assert_eq!(world.ended(1), Some(Notification::cease(cease::COLLISION)));
}

#[test]
fn a_shutdown_says_why_and_is_hard_where_restarts_would_keep_our_routes() {
    let stop = || Input::Stop(Stop::Shutdown("drained".to_owned()));
    let mut world = established(ours(), |_| {});
    world.sent(1);
    world.input(stop());
    let words = Notification::cease_with(cease::SHUTDOWN, "drained");
    assert_eq!(world.ended(1), Some(words.clone()));
    assert_eq!(world.peer.state(), State::Idle);
    let mut ours = ours();
    ours.graceful_restart = Some(graceful(false));
    let mut world = established(ours, |_| {});
    world.sent(1);
    world.input(stop());
    assert_eq!(world.ended(1), Some(words.hard()));
    world.outputs.clear();
    world.pass(Duration::from_secs(1000));
    assert_eq!(world.outputs, []);
    world.input(Input::Start);
    assert_eq!(world.outputs, [Output::Connect, Output::Changed]);
}

#[test]
fn a_reset_begins_anew_and_a_restart_says_nothing() {
    let mut world = established(ours(), |_| {});
    world.sent(1);
    world.input(Input::Stop(Stop::Reset(String::new())));
    assert_eq!(world.ended(1), Some(Notification::cease(cease::RESET)));
    assert_eq!(world.peer.state(), State::Connect);
    let mut world = established(ours(), |_| {});
    world.sent(1);
    world.input(Input::Stop(Stop::Restart));
    assert_eq!(world.ended(1), None);
    for (stop, subcode) in [(Stop::Deconfigured, 3), (Stop::Changed, 6)] {
        let mut world = established(ours(), |_| {});
        world.sent(1);
        world.input(Input::Stop(stop));
        assert_eq!(world.ended(1), Some(Notification::cease(subcode)));
    }
}

#[test]
fn after_a_restart_the_bit_is_set_until_the_peer_has_all() {
    let mut ours = ours();
    ours.graceful_restart = Some(graceful(true));
    let mut world = world(ours);
    let restarted = |world: &mut World, id| {
        world.connect(id, Direction::Inbound);
        let (_, body) = world.sent(id).remove(0);
        let Ok(Message::Open(open)) = Message::read(Kind::Open, &body, &Default::default()) else {
            panic!("an OPEN")
        };
        open.capabilities.into_iter().find_map(|capability| match capability {
            Capability::GracefulRestart(restart) => {
                assert!(restart.families.iter().all(|(.., forwarding)| *forwarding));
                assert!(restart.notification);
                Some(restart.restarted)
            }
            _ => None,
        })
    };
    world.input(Input::Desired(table(3, 0)));
    world.input(Input::Start);
    assert_eq!(restarted(&mut world, 1), Some(true));
    world.say(1, &router_open(|_| {}).write());
    world.say(1, &frame::keepalive());
    let updates = |kinds: Vec<Kind>| kinds.iter().filter(|kind| **kind == Kind::Update).count();
    // Routes, but no End-of-RIB.
    assert_eq!(updates(world.kinds(1)), 2);
    world.input(Input::Closed(1));
    assert_eq!(restarted(&mut world, 2), Some(true));
    world.say(2, &router_open(|_| {}).write());
    world.say(2, &frame::keepalive());
    assert_eq!(updates(world.kinds(2)), 2);
    world.input(Input::Complete);
    assert_eq!(updates(world.kinds(2)), 2);
    world.input(Input::Written(2));
    world.input(Input::Closed(2));
    assert_eq!(restarted(&mut world, 3), Some(false));
}

#[test]
fn bfd_down_takes_the_session_down_and_strict_peers_wait_for_it() {
    for strict in [false, true] {
        let mut settings = ours();
        settings.strict_bfd = strict;
        settings.graceful_restart = Some(graceful(false));
        let mut world = established(settings, |_| {});
        world.sent(1);
        world.outputs.clear();
        world.input(Input::BfdDown);
        let down = Notification::cease(cease::BFD_DOWN).hard();
        assert_eq!(world.ended(1), Some(down));
        let expected = if strict { State::Idle } else { State::Connect };
        assert_eq!(world.peer.state(), expected);
        world.pass(Duration::from_secs(300));
        assert_eq!(world.outputs.contains(&Output::Connect), !strict);
        world.outputs.clear();
        world.connect(2, Direction::Inbound);
        assert_eq!(world.outputs.contains(&Output::Close(2)), strict);
        if strict {
            world.input(Input::BfdUp);
            assert_eq!(world.peer.state(), State::Connect);
        }
    }
}

#[test]
fn a_strict_peer_does_not_wait_for_what_the_neighbour_holds_down() {
    let mut settings = ours();
    settings.strict_bfd = true;
    let mut world = established(settings, |_| {});
    // AdminDown at the neighbor does not end an established session.
    world.input(Input::BfdHeld);
    assert_eq!(world.peer.state(), State::Established);
    world.input(Input::BfdDown);
    assert_eq!(world.peer.state(), State::Idle);
    world.pass(Duration::from_secs(300));
    assert_eq!(world.peer.state(), State::Idle);
    world.input(Input::BfdHeld);
    assert_eq!(world.peer.state(), State::Connect);
}

#[test]
fn capabilities_are_left_out_for_a_peer_without_the_parameter_and_for_no_other_reason() {
    let offered = |world: &mut World, id| {
        world.connect(id, Direction::Inbound);
        let (_, body) = world.sent(id).remove(0);
        let Ok(Message::Open(open)) = Message::read(Kind::Open, &body, &Default::default()) else {
            panic!("an OPEN")
        };
        open.capabilities.iter().map(Capability::code).collect::<Vec<_>>()
    };
    let mut world = world(ours());
    world.input(Input::Start);
    assert!(offered(&mut world, 1).contains(&code::ENHANCED_REFRESH));
    // The peer requires a capability, whether or not it names it: all stay in the OPEN.
    let all = offered(&mut world, 2);
    for (id, data) in [(2, vec![70, 0, 6, 0]), (3, vec![]), (4, vec![1])] {
        world.say(id, &Notification::new(2, 7, data).write());
        assert_eq!(offered(&mut world, id + 1), all);
    }
    // The peer does not support capabilities.
    world.say(5, &Notification::new(2, 4, vec![]).write());
    assert_eq!(offered(&mut world, 6), Vec::<u8>::new());
    // An administrative restart resets this.
    world.input(Input::Stop(Stop::Deconfigured));
    world.input(Input::Start);
    assert_eq!(offered(&mut world, 7), all);
}

#[test]
fn a_peer_that_is_somebody_else_is_told() {
    let cases: [(Change, u8); 3] = [
        (|theirs| theirs.local_asn = 64_999, 2),
        (|theirs| theirs.identifier = Ipv4Addr::UNSPECIFIED, 3),
        (|theirs| theirs.hold = Duration::from_secs(2), 6),
    ];
    for (change, subcode) in cases {
        let mut world = world(ours());
        world.input(Input::Start);
        world.connect(1, Direction::Inbound);
        world.say(1, &router_open(change).write());
        assert_eq!(world.ended(1), Some(Notification::new(2, subcode, vec![])));
    }
}

#[test]
fn what_the_peer_announces_is_counted_and_nothing_else() {
    let mut world = established(ours(), |_| {});
    let speaking = crate::wire::write::Speaking {
        local_asn: 64_501,
        internal: false,
        four_octet: true,
        extended_next_hop: false,
        limit: 4096,
        peer: [192, 0, 2, 1].into(),
    };
    let attributes = Attributes::new("192.0.2.2".parse().unwrap());
    let mut prefixes: Vec<ipnet::IpNet> =
        ["10.0.0.0/8", "10.1.0.0/16"].map(|text| text.parse().unwrap()).into();
    let mut all = prefixes.clone();
    let family = Family::Ipv4Unicast;
    let (octets, _) = speaking.announce(family, &attributes, &mut all).unwrap();
    world.say(1, &octets);
    world.say(1, &octets);
    let received = |world: &World| world.peer.told(world.now).families[0].received;
    assert_eq!(received(&world).prefixes, 2);
    prefixes.pop();
    let (octets, _) = speaking.withdraw(family, &mut prefixes);
    world.say(1, &octets);
    world.say(1, &crate::wire::write::end_of_rib(family));
    assert_eq!((received(&world).prefixes, received(&world).end_of_rib), (1, true));
    let told = world.peer.told(world.now).connection.unwrap();
    assert_eq!((told.messages.updates, told.messages.keepalives), (4, 1));
    assert_eq!(world.kinds(1), [Kind::Open, Kind::Keepalive, Kind::Update, Kind::Update][..2]);
}

#[test]
fn a_prefix_both_withdrawn_and_announced_in_one_update_is_announced() {
    let mut world = established(ours(), |_| {});
    // 10.0.0.0/8 both withdrawn and announced, with AS_PATH 64501 and next hop 192.0.2.2.
    let body = [
        &[0, 2, 8, 10, 0, 20, 0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf5][..],
        &[0x40, 3, 4, 192, 0, 2, 2, 8, 10],
    ];
    world.say(1, &frame::message(Kind::Update, &body.concat()));
    assert_eq!(world.peer.told(world.now).families[0].received.prefixes, 1);
}

#[test]
fn an_empty_table_is_withdrawn_and_known_to_be() {
    let mut world = established(ours(), |_| {});
    world.input(Input::Desired(table(10, 1)));
    world.input(Input::Complete);
    while !world.peer.is_told() {
        world.input(Input::Written(1));
    }
    assert_eq!(world.peer.advertised(Family::Ipv6Unicast).len(), 10);
    world.sent(1);
    world.input(Input::Desired(Arc::default()));
    assert!(!world.peer.is_told());
    assert_eq!(world.kinds(1), [Kind::Update, Kind::Update]);
    world.input(Input::Written(1));
    assert!(world.peer.is_told());
    assert_eq!(world.peer.told(world.now).families.iter().map(|f| f.advertised).sum::<usize>(), 0);
}

#[test]
fn twenty_thousand_routes_leave_room_for_keepalives() {
    let mut world = established(ours(), |_| {});
    world.sent(1);
    // A peer that reads slowly: nothing is written for a minute, then one burst at a time.
    let mut routes = Table::clone(&table(10_000, 1));
    for (index, attributes) in routes.routes.values_mut().enumerate() {
        let mut changed = Attributes::clone(attributes);
        changed.med = Some(index as u32 % 1_000);
        *attributes = Arc::new(changed);
    }
    world.input(Input::Desired(Arc::new(routes)));
    world.input(Input::Complete);
    let first = world.kinds(1);
    assert_eq!(first, vec![Kind::Update; crate::advertise::BURST]);
    world.pass(Duration::from_secs(60));
    let meanwhile = world.kinds(1);
    assert!(!meanwhile.is_empty() && meanwhile.iter().all(|kind| *kind == Kind::Keepalive));
    let mut bursts = 0;
    while !world.peer.is_told() {
        world.input(Input::Written(1));
        assert!(world.kinds(1).len() <= crate::advertise::BURST);
        bursts += 1;
    }
    assert!(bursts > 20, "{bursts}");
    let told = world.peer.told(world.now);
    assert_eq!(told.families.iter().map(|f| f.advertised).collect::<Vec<_>>(), [10_000, 10_000]);
}
