//! Tests of single rules: one state machine against handwritten messages.

use super::*;
use crate::wire::capability::{Capability, code};
use crate::wire::notification::cease;
use crate::wire::{Family, Framer, Kind, Notification, Open, Refresh, RefreshKind, frame};

/// The state machine under test, its clock and its outputs.
struct Fixture {
    peer: Peer,
    now: Instant,
    actions: Vec<Action>,
}

/// Creates the state machine under test, 192.0.2.1 in AS 64500; its peer is 192.0.2.2 in AS 64501.
fn fixture(settings: Settings) -> Fixture {
    let now = Instant::now();
    Fixture { peer: Peer::new(settings, now), now, actions: Vec::new() }
}

/// Modifies settings.
type Change = fn(&mut Settings);

fn local_settings() -> Settings {
    settings(1, 2, 64_500, 64_501)
}

/// Returns the peer's OPEN, with graceful restart and modified settings.
fn router_open(change: impl FnOnce(&mut Settings)) -> Open {
    let mut remote = settings(2, 1, 64_501, 64_500);
    remote.graceful_restart = Some(graceful_restart());
    change(&mut remote);
    open_of(&remote)
}

impl Fixture {
    fn step(&mut self, event: Event<'_>) {
        let actions = self.peer.step(self.now, event);
        self.actions.extend(actions);
    }

    /// Lets `time` pass, with a tick at each deadline.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.peer.next_deadline().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            self.step(Event::Tick);
            let stuck = self.peer.next_deadline().is_some_and(|next| next <= self.now);
            assert!(!stuck, "the deadline stays in the past");
        }
        self.now = end;
        self.step(Event::Tick);
    }

    fn connect(&mut self, connection: ConnectionId, direction: Direction) {
        let (local, remote) = (A.parse().unwrap(), B.parse().unwrap());
        self.step(Event::Connected { connection, direction, local, remote });
    }

    fn send(&mut self, connection: ConnectionId, octets: &[u8]) {
        self.step(Event::Bytes(connection, octets));
        self.step(Event::Written(connection));
    }

    /// Takes the messages that were sent on `connection` since the last call.
    fn sent(&mut self, connection: ConnectionId) -> Vec<(Kind, Vec<u8>)> {
        let mut framer = Framer::default();
        framer.accept_extended_messages();
        self.actions.retain(|action| match action {
            Action::Send(id, octets) if *id == connection => {
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

    /// Takes the types of the messages that were sent on `connection` since the last call.
    fn kinds(&mut self, connection: ConnectionId) -> Vec<Kind> {
        self.sent(connection).into_iter().map(|(kind, _)| kind).collect()
    }

    /// Asserts that `connection` was closed, and returns the NOTIFICATION that ended it, if any.
    fn ended(&mut self, connection: ConnectionId) -> Option<Notification> {
        assert!(self.actions.contains(&Action::Close(connection)), "{:?}", self.actions);
        let (kind, body) = self.sent(connection).pop()?;
        assert_eq!(kind, Kind::Notification);
        Some(Notification::new(body[0], body[1], body[2..].to_vec()))
    }

    /// Establishes a session on an inbound connection.
    fn establish(&mut self, connection: ConnectionId, open: &Open) {
        self.step(Event::Start);
        self.connect(connection, Direction::Inbound);
        self.send(connection, &open.write());
        self.send(connection, &frame::keepalive());
        assert_eq!(self.peer.state(), State::Established);
    }
}

/// Returns a state machine with an established session, connection 1; `change` modifies the peer's
/// settings.
fn established(settings: Settings, change: impl FnOnce(&mut Settings)) -> Fixture {
    let mut fixture = fixture(settings);
    fixture.establish(1, &router_open(change));
    fixture
}

#[test]
fn stays_idle_until_started_then_connects_and_sends_open() {
    let mut fixture = fixture(local_settings());
    fixture.pass(Duration::from_secs(1000));
    assert_eq!((fixture.peer.state(), fixture.actions.len()), (State::Idle, 0));
    fixture.connect(9, Direction::Inbound);
    assert_eq!(fixture.actions, [Action::Close(9)]);
    fixture.actions.clear();
    fixture.step(Event::Start);
    assert_eq!(fixture.peer.state(), State::Connect);
    assert_eq!(fixture.actions, [Action::Connect, Action::Changed]);
    fixture.connect(1, Direction::Outbound);
    assert_eq!(fixture.peer.state(), State::OpenSent);
    assert_eq!(fixture.kinds(1), [Kind::Open]);
    fixture.send(1, &router_open(|_| {}).write());
    assert_eq!(fixture.peer.state(), State::OpenConfirm);
    assert_eq!(fixture.kinds(1), [Kind::Keepalive]);
    fixture.send(1, &frame::keepalive());
    assert_eq!(fixture.peer.state(), State::Established);
}

#[test]
fn connect_attempts_back_off_up_to_the_connect_retry_time() {
    let mut settings = local_settings();
    settings.connect_retry = Duration::from_secs(120);
    let mut fixture = fixture(settings);
    fixture.step(Event::Start);
    let mut waits = Vec::new();
    for failures in 0..10 {
        let before = fixture.now;
        // The attempt is refused or times out.
        if failures % 2 == 0 {
            fixture.step(Event::ConnectFailed);
            assert_eq!(fixture.peer.state(), State::Active);
        }
        fixture.actions.clear();
        while !fixture.actions.contains(&Action::Connect) {
            fixture.now = fixture.peer.next_deadline().unwrap();
            fixture.step(Event::Tick);
        }
        assert_eq!(fixture.peer.state(), State::Connect);
        waits.push(fixture.now.duration_since(before).as_secs_f64());
    }
    // 1 s, 2 s, 4 s and so on, with jitter.
    for (index, wait) in waits.iter().enumerate() {
        let nominal = f64::from(1 << index).min(120.0);
        assert!((nominal * 0.74..=nominal).contains(wait), "{waits:?}");
    }
    // A connection resets the backoff.
    fixture.establish(1, &router_open(|_| {}));
    fixture.step(Event::Closed(1));
    fixture.step(Event::ConnectFailed);
    fixture.actions.clear();
    fixture.pass(Duration::from_secs(1));
    assert!(fixture.actions.contains(&Action::Connect));
}

#[test]
fn passive_peer_only_accepts_connections() {
    let mut settings = local_settings();
    settings.passive = true;
    let mut fixture = fixture(settings);
    fixture.step(Event::Start);
    fixture.pass(Duration::from_secs(1000));
    assert_eq!(fixture.peer.state(), State::Active);
    assert!(!fixture.actions.contains(&Action::Connect));
    fixture.establish(1, &router_open(|_| {}));
}

#[test]
fn connection_from_another_address_is_refused() {
    let mut fixture = fixture(local_settings());
    fixture.step(Event::Start);
    let (local, remote) = (A.parse().unwrap(), "192.0.2.3:179".parse().unwrap());
    let other = Event::Connected { connection: 7, direction: Direction::Inbound, local, remote };
    fixture.step(other);
    assert!(fixture.actions.contains(&Action::Close(7)));
    assert_eq!(fixture.peer.history().refused, 1);
}

#[test]
fn hold_timer_expires_after_four_minutes_without_open() {
    let mut fixture = fixture(local_settings());
    fixture.step(Event::Start);
    fixture.connect(1, Direction::Outbound);
    fixture.pass(Duration::from_secs(239));
    assert_eq!(fixture.kinds(1), [Kind::Open]);
    fixture.pass(Duration::from_secs(1));
    assert_eq!(fixture.ended(1), Some(Notification::hold_timer()));
}

#[test]
fn hold_timer_expiry_ends_the_session() {
    let mut fixture = established(local_settings(), |remote| remote.hold = Duration::from_secs(30));
    assert_eq!(fixture.peer.status(fixture.now).connection.unwrap().hold_s, Some(30.0));
    fixture.pass(Duration::from_secs(29));
    assert_eq!(fixture.peer.state(), State::Established);
    fixture.send(1, &frame::keepalive());
    fixture.pass(Duration::from_secs(29));
    assert_eq!(fixture.peer.state(), State::Established);
    fixture.sent(1);
    fixture.pass(Duration::from_secs(1));
    assert_eq!(fixture.ended(1), Some(Notification::hold_timer()));
    assert_eq!(fixture.peer.history().flaps, 1);
    assert_eq!(fixture.peer.state(), State::Connect);
}

#[test]
fn keepalives_follow_a_third_of_the_hold_time_at_most_one_per_second() {
    for (hold, seconds, min, max) in [(9, 300, 100, 134), (3, 300, 300, 301)] {
        let mut fixture =
            established(local_settings(), |remote| remote.hold = Duration::from_secs(hold));
        fixture.sent(1);
        let mut count = 0;
        for _ in 0..seconds {
            fixture.pass(Duration::from_secs(1));
            fixture.send(1, &frame::keepalive());
            count += fixture.kinds(1).iter().filter(|kind| **kind == Kind::Keepalive).count();
        }
        assert!((min..=max).contains(&count), "{count} in {seconds} s of hold time {hold}");
    }
}

#[test]
fn zero_hold_time_sends_no_keepalives_and_never_expires() {
    let mut fixture = established(local_settings(), |remote| remote.hold = Duration::ZERO);
    fixture.sent(1);
    fixture.pass(Duration::from_secs(100_000));
    assert_eq!(fixture.peer.state(), State::Established);
    assert_eq!(fixture.kinds(1), []);
}

#[test]
fn send_hold_timer_ends_the_session_of_a_peer_that_reads_nothing() {
    let mut fixture = established(local_settings(), |_| {});
    fixture.step(Event::Desired(table(1, 0)));
    for _ in 0..47 {
        fixture.pass(Duration::from_secs(10));
        fixture.step(Event::Bytes(1, &frame::keepalive()));
    }
    assert_eq!(fixture.peer.state(), State::Established);
    fixture.pass(Duration::from_secs(20));
    assert_eq!(fixture.ended(1), Some(Notification::send_hold_timer()));
}

#[test]
fn unexpected_message_in_a_state_ends_the_session() {
    let open = router_open(|_| {}).write();
    let refresh = Refresh::new(Family::Ipv4Unicast, RefreshKind::Request).write();
    let update = crate::wire::write::end_of_rib(Family::Ipv4Unicast);
    // By state, 1 to 3 for OpenSent, OpenConfirm and Established (RFC 6608): messages that are not
    // allowed, each with its type.
    let cases = [
        (1, vec![(frame::keepalive(), 4), (update.clone(), 2), (refresh.clone(), 5)]),
        (2, vec![(open.clone(), 1), (update, 2), (refresh, 5)]),
        (3, vec![(open.clone(), 1)]),
    ];
    for (state, wrong) in cases {
        for (octets, kind) in wrong {
            let mut fixture = fixture(local_settings());
            fixture.step(Event::Start);
            fixture.connect(1, Direction::Inbound);
            if state > 1 {
                fixture.send(1, &open);
            }
            if state > 2 {
                fixture.send(1, &frame::keepalive());
            }
            fixture.sent(1);
            fixture.send(1, &octets);
            assert_eq!(fixture.ended(1), Some(Notification::new(5, state, vec![kind])));
        }
    }
}

#[test]
fn malformed_message_is_answered_and_closes_the_connection() {
    let mut fixture = established(local_settings(), |_| {});
    fixture.sent(1);
    fixture.send(1, &[0; 19]);
    assert_eq!(fixture.ended(1), Some(Notification::new(1, 1, vec![])));
    assert_eq!(
        fixture.peer.status(fixture.now).last_sent.unwrap().description,
        "message header error: connection not synchronized"
    );
}

#[test]
fn received_notification_ends_the_session_without_answer() {
    let mut fixture = established(local_settings(), |_| {});
    fixture.sent(1);
    fixture.send(1, &Notification::cease_with_message(cease::SHUTDOWN, "back at noon").write());
    assert_eq!(fixture.ended(1), None);
    let status = fixture.peer.status(fixture.now);
    let expected = "cease: administrative shutdown, \"back at noon\"";
    assert_eq!(status.last_received.unwrap().description, expected);
}

#[test]
fn failing_peer_is_retried_with_backoff_and_may_connect_meanwhile() {
    let mut fixture = fixture(local_settings());
    fixture.step(Event::Start);
    let mut waits = Vec::new();
    for id in 0..12 {
        let before = fixture.now;
        while !fixture.actions.contains(&Action::Connect) {
            let next = fixture.peer.next_deadline().unwrap();
            fixture.now = next;
            fixture.step(Event::Tick);
        }
        waits.push(fixture.now.duration_since(before).as_secs_f64());
        fixture.actions.clear();
        fixture.connect(id, Direction::Outbound);
        fixture.step(Event::Closed(id));
    }
    // The first two connections are opened at once, the next ones after 1 s, 2 s, 4 s and so on
    // with jitter, at most a minute.
    assert_eq!(waits[..2], [0.0, 0.0], "{waits:?}");
    for (index, wait) in waits[2..].iter().enumerate() {
        let nominal = f64::from(1 << index.min(6)).min(60.0);
        assert!((nominal * 0.74..=nominal).contains(wait), "{waits:?}");
    }
    assert_eq!(fixture.peer.state(), State::Active);
    fixture.establish(100, &router_open(|_| {}));
    // A session that lasted a minute resets the backoff.
    for _ in 0..7 {
        fixture.pass(Duration::from_secs(10));
        fixture.send(100, &frame::keepalive());
    }
    fixture.actions.clear();
    fixture.step(Event::Closed(100));
    assert!(fixture.actions.contains(&Action::Connect));
}

/// Returns a state machine with two connections that both wait for the peer's OPEN, and this OPEN.
fn colliding(identifier: [u8; 4], asn: u32) -> (Fixture, Open) {
    let mut local_settings = local_settings();
    local_settings.peer_asn = 0;
    let mut fixture = fixture(local_settings);
    fixture.step(Event::Start);
    fixture.connect(1, Direction::Outbound);
    fixture.connect(2, Direction::Inbound);
    assert_eq!((fixture.kinds(1), fixture.kinds(2)), (vec![Kind::Open], vec![Kind::Open]));
    let open = router_open(|remote| {
        (remote.identifier, remote.local_asn) = (identifier.into(), asn);
    });
    (fixture, open)
}

#[test]
fn collision_keeps_the_connection_opened_by_the_higher_identifier() {
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
            let (mut fixture, open) = colliding(identifier, asn);
            let loser = 3 - stays;
            fixture.send(first, &open.write());
            assert_eq!(fixture.peer.state(), State::OpenConfirm);
            fixture.sent(first);
            fixture.send(3 - first, &open.write());
            let collision = Notification::cease(cease::COLLISION);
            assert_eq!(fixture.ended(loser), Some(collision), "{identifier:?} {asn} {first}");
            fixture.send(stays, &frame::keepalive());
            assert_eq!(fixture.peer.state(), State::Established);
            assert_eq!(fixture.peer.history().flaps, 0);
            assert!(!fixture.actions.contains(&Action::Close(stays)));
        }
    }
}

#[test]
fn second_connection_is_closed_after_its_open_while_established() {
    let mut fixture = established(local_settings(), |remote| remote.graceful_restart = None);
    fixture.pass(Duration::from_secs(20));
    fixture.connect(2, Direction::Inbound);
    assert_eq!(fixture.kinds(2), [Kind::Open]);
    fixture.send(2, &router_open(|remote| remote.graceful_restart = None).write());
    assert_eq!(fixture.ended(2), Some(Notification::cease(cease::COLLISION)));
    assert_eq!(fixture.peer.established().unwrap().id, 1);
}

#[test]
fn restarted_peer_with_graceful_restart_replaces_its_old_connection() {
    let mut local_settings = local_settings();
    local_settings.graceful_restart = Some(graceful_restart());
    let mut fixture = established(local_settings.clone(), |_| {});
    fixture.pass(Duration::from_secs(20));
    fixture.sent(1);
    fixture.connect(2, Direction::Inbound);
    fixture.sent(2);
    fixture.send(2, &router_open(|_| {}).write());
    // No NOTIFICATION is sent, which would end graceful restart at the peer.
    assert_eq!(fixture.ended(1), None);
    fixture.send(2, &frame::keepalive());
    assert_eq!(fixture.peer.established().unwrap().id, 2);
    // A connection opened at the same time is no sign of a restart.
    let mut fixture = established(local_settings, |_| {});
    fixture.connect(2, Direction::Inbound);
    fixture.send(2, &router_open(|_| {}).write());
    assert_eq!(fixture.ended(2), Some(Notification::cease(cease::COLLISION)));
}

#[test]
fn once_established_other_connections_and_attempts_end() {
    let mut fixture = fixture(local_settings());
    fixture.step(Event::Start);
    fixture.connect(2, Direction::Inbound);
    fixture.send(2, &router_open(|_| {}).write());
    fixture.send(2, &frame::keepalive());
    assert!(fixture.actions.contains(&Action::Abandon));
    fixture.actions.clear();
    // A connection of the abandoned attempt is closed.
    fixture.connect(1, Direction::Outbound);
    assert_eq!(fixture.actions, [Action::Close(1)]);
    // A connection without the peer's OPEN is closed as well.
    let (mut fixture, open) = colliding([192, 0, 2, 2], 64_501);
    fixture.send(2, &open.write());
    fixture.send(2, &frame::keepalive());
    assert_eq!(fixture.ended(1), Some(Notification::cease(cease::COLLISION)));
}

#[test]
fn shutdown_sends_a_message_and_a_hard_reset_with_graceful_restart() {
    let stop = || Event::Stop(Stop::Shutdown("drained".to_owned()));
    let mut fixture = established(local_settings(), |_| {});
    fixture.sent(1);
    fixture.step(stop());
    let expected = Notification::cease_with_message(cease::SHUTDOWN, "drained");
    assert_eq!(fixture.ended(1), Some(expected.clone()));
    assert_eq!(fixture.peer.state(), State::Idle);
    let mut local_settings = local_settings();
    local_settings.graceful_restart = Some(graceful_restart());
    let mut fixture = established(local_settings, |_| {});
    fixture.sent(1);
    fixture.step(stop());
    assert_eq!(fixture.ended(1), Some(expected.hard()));
    fixture.actions.clear();
    fixture.pass(Duration::from_secs(1000));
    assert_eq!(fixture.actions, []);
    fixture.step(Event::Start);
    assert_eq!(fixture.actions, [Action::Connect, Action::Changed]);
}

#[test]
fn each_stop_but_a_restart_sends_its_subcode_and_a_reset_reconnects() {
    let mut fixture = established(local_settings(), |_| {});
    fixture.sent(1);
    fixture.step(Event::Stop(Stop::Reset(String::new())));
    assert_eq!(fixture.ended(1), Some(Notification::cease(cease::RESET)));
    assert_eq!(fixture.peer.state(), State::Connect);
    let mut fixture = established(local_settings(), |_| {});
    fixture.sent(1);
    fixture.step(Event::Stop(Stop::Restart));
    assert_eq!(fixture.ended(1), None);
    for (stop, subcode) in [(Stop::Deconfigured, 3), (Stop::Changed, 6)] {
        let mut fixture = established(local_settings(), |_| {});
        fixture.sent(1);
        fixture.step(Event::Stop(stop));
        assert_eq!(fixture.ended(1), Some(Notification::cease(subcode)));
    }
}

#[test]
fn restart_bit_is_set_until_the_peer_has_all_routes() {
    let mut local_settings = local_settings();
    local_settings.graceful_restart = Some(after_restart());
    let mut fixture = fixture(local_settings);
    let restarted = |fixture: &mut Fixture, id| {
        fixture.connect(id, Direction::Inbound);
        let (_, body) = fixture.sent(id).remove(0);
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
    fixture.step(Event::Desired(table(3, 0)));
    fixture.step(Event::Start);
    assert_eq!(restarted(&mut fixture, 1), Some(true));
    fixture.send(1, &router_open(|_| {}).write());
    fixture.send(1, &frame::keepalive());
    let updates = |kinds: Vec<Kind>| kinds.iter().filter(|kind| **kind == Kind::Update).count();
    // Routes, but no End-of-RIB.
    assert_eq!(updates(fixture.kinds(1)), 2);
    fixture.step(Event::Closed(1));
    assert_eq!(restarted(&mut fixture, 2), Some(true));
    fixture.send(2, &router_open(|_| {}).write());
    fixture.send(2, &frame::keepalive());
    assert_eq!(updates(fixture.kinds(2)), 2);
    fixture.step(Event::Complete);
    assert_eq!(updates(fixture.kinds(2)), 2);
    fixture.step(Event::Written(2));
    fixture.step(Event::Closed(2));
    assert_eq!(restarted(&mut fixture, 3), Some(false));
}

#[test]
fn bfd_down_ends_the_session_and_strict_peers_wait_for_bfd() {
    for strict in [false, true] {
        let mut settings = local_settings();
        settings.strict_bfd = strict;
        settings.graceful_restart = Some(graceful_restart());
        let mut fixture = established(settings, |_| {});
        fixture.sent(1);
        fixture.actions.clear();
        fixture.step(Event::BfdDown);
        let down = Notification::cease(cease::BFD_DOWN).hard();
        assert_eq!(fixture.ended(1), Some(down));
        let expected = if strict { State::Idle } else { State::Connect };
        assert_eq!(fixture.peer.state(), expected);
        fixture.pass(Duration::from_secs(300));
        assert_eq!(fixture.actions.contains(&Action::Connect), !strict);
        fixture.actions.clear();
        fixture.connect(2, Direction::Inbound);
        assert_eq!(fixture.actions.contains(&Action::Close(2)), strict);
        if strict {
            fixture.step(Event::BfdUp);
            assert_eq!(fixture.peer.state(), State::Connect);
        }
    }
}

#[test]
fn strict_peer_does_not_wait_while_the_neighbor_is_admin_down() {
    let mut settings = local_settings();
    settings.strict_bfd = true;
    let mut fixture = established(settings, |_| {});
    // AdminDown at the neighbor does not end an established session.
    fixture.step(Event::BfdAdminDown);
    assert_eq!(fixture.peer.state(), State::Established);
    fixture.step(Event::BfdDown);
    assert_eq!(fixture.peer.state(), State::Idle);
    fixture.pass(Duration::from_secs(300));
    assert_eq!(fixture.peer.state(), State::Idle);
    fixture.step(Event::BfdAdminDown);
    assert_eq!(fixture.peer.state(), State::Connect);
}

#[test]
fn capabilities_are_omitted_only_after_unsupported_optional_parameter() {
    let offered = |fixture: &mut Fixture, id| {
        fixture.connect(id, Direction::Inbound);
        let (_, body) = fixture.sent(id).remove(0);
        let Ok(Message::Open(open)) = Message::read(Kind::Open, &body, &Default::default()) else {
            panic!("an OPEN")
        };
        open.capabilities.iter().map(Capability::code).collect::<Vec<_>>()
    };
    let mut fixture = fixture(local_settings());
    fixture.step(Event::Start);
    assert!(offered(&mut fixture, 1).contains(&code::ENHANCED_REFRESH));
    // The peer requires a capability (2/7), which the data may name: the OPEN keeps all
    // capabilities.
    let all = offered(&mut fixture, 2);
    for (id, data) in [(2, vec![70, 0, 6, 0]), (3, vec![]), (4, vec![1])] {
        fixture.send(id, &Notification::new(2, 7, data).write());
        assert_eq!(offered(&mut fixture, id + 1), all);
    }
    // The peer does not support capabilities.
    fixture.send(5, &Notification::new(2, 4, vec![]).write());
    assert_eq!(offered(&mut fixture, 6), Vec::<u8>::new());
    // After an administrative stop and start, capabilities are offered again.
    fixture.step(Event::Stop(Stop::Deconfigured));
    fixture.step(Event::Start);
    assert_eq!(offered(&mut fixture, 7), all);
}

#[test]
fn open_with_wrong_as_identifier_or_hold_time_is_rejected() {
    let cases: [(Change, u8); 3] = [
        (|remote| remote.local_asn = 64_999, 2),
        (|remote| remote.identifier = Ipv4Addr::UNSPECIFIED, 3),
        (|remote| remote.hold = Duration::from_secs(2), 6),
    ];
    for (change, subcode) in cases {
        let mut fixture = fixture(local_settings());
        fixture.step(Event::Start);
        fixture.connect(1, Direction::Inbound);
        fixture.send(1, &router_open(change).write());
        assert_eq!(fixture.ended(1), Some(Notification::new(2, subcode, vec![])));
    }
}

#[test]
fn received_routes_are_counted_and_not_installed() {
    let mut fixture = established(local_settings(), |_| {});
    let encode_context = crate::wire::write::EncodeContext {
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
    let (octets, _) = encode_context.announce(family, &attributes, &mut all).unwrap();
    fixture.send(1, &octets);
    fixture.send(1, &octets);
    let received = |fixture: &Fixture| fixture.peer.status(fixture.now).families[0].received;
    assert_eq!(received(&fixture).prefixes, 2);
    prefixes.pop();
    let (octets, _) = encode_context.withdraw(family, &mut prefixes);
    fixture.send(1, &octets);
    fixture.send(1, &crate::wire::write::end_of_rib(family));
    assert_eq!((received(&fixture).prefixes, received(&fixture).end_of_rib), (1, true));
    let status = fixture.peer.status(fixture.now).connection.unwrap();
    assert_eq!((status.messages.updates, status.messages.keepalives), (4, 1));
    assert_eq!(fixture.kinds(1), [Kind::Open, Kind::Keepalive]);
}

#[test]
fn prefix_withdrawn_and_announced_in_one_update_is_announced() {
    let mut fixture = established(local_settings(), |_| {});
    // 10.0.0.0/8 both withdrawn and announced, with AS_PATH 64501 and next hop 192.0.2.2.
    let body = [
        &[0, 2, 8, 10, 0, 20, 0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf5][..],
        &[0x40, 3, 4, 192, 0, 2, 2, 8, 10],
    ];
    fixture.send(1, &frame::message(Kind::Update, &body.concat()));
    assert_eq!(fixture.peer.status(fixture.now).families[0].received.prefixes, 1);
}

#[test]
fn empty_table_withdraws_all_routes_and_reports_completion() {
    let mut fixture = established(local_settings(), |_| {});
    fixture.step(Event::Desired(table(10, 1)));
    fixture.step(Event::Complete);
    while !fixture.peer.all_sent() {
        fixture.step(Event::Written(1));
    }
    assert_eq!(fixture.peer.advertised(Family::Ipv6Unicast).len(), 10);
    fixture.sent(1);
    fixture.step(Event::Desired(Arc::default()));
    assert!(!fixture.peer.all_sent());
    assert_eq!(fixture.kinds(1), [Kind::Update, Kind::Update]);
    fixture.step(Event::Written(1));
    assert!(fixture.peer.all_sent());
    assert_eq!(
        fixture.peer.status(fixture.now).families.iter().map(|f| f.advertised).sum::<usize>(),
        0
    );
}

#[test]
fn keepalives_are_sent_between_bursts_of_routes() {
    let mut fixture = established(local_settings(), |_| {});
    fixture.sent(1);
    // The peer reads slowly: nothing is written for a minute, then one burst at a time.
    let mut routes = Table::clone(&table(10_000, 1));
    for (index, attributes) in routes.routes.values_mut().enumerate() {
        let mut changed = Attributes::clone(attributes);
        changed.med = Some(index as u32 % 1_000);
        *attributes = Arc::new(changed);
    }
    fixture.step(Event::Desired(Arc::new(routes)));
    fixture.step(Event::Complete);
    let first = fixture.kinds(1);
    assert_eq!(first, vec![Kind::Update; crate::advertise::BURST]);
    fixture.pass(Duration::from_secs(60));
    let meanwhile = fixture.kinds(1);
    assert!(!meanwhile.is_empty() && meanwhile.iter().all(|kind| *kind == Kind::Keepalive));
    let mut bursts = 0;
    while !fixture.peer.all_sent() {
        fixture.step(Event::Written(1));
        assert!(fixture.kinds(1).len() <= crate::advertise::BURST);
        bursts += 1;
    }
    assert!(bursts > 20, "{bursts}");
    let status = fixture.peer.status(fixture.now);
    assert_eq!(status.families.iter().map(|f| f.advertised).collect::<Vec<_>>(), [10_000, 10_000]);
}
