//! Randomized test of the peer state machine's invariants: arbitrary input in arbitrary order.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;
use crate::wire::write::end_of_rib;
use crate::wire::{Family, Framer, Kind, Notification, Refresh, RefreshKind, frame};

/// A connection as observed from outside.
#[derive(Default)]
struct ObservedConnection {
    closed: bool,
    /// Types of the messages that the state machine sent.
    kinds: Vec<Kind>,
    /// Number of KEEPALIVEs that it received.
    keepalives_in: usize,
    /// Number of OPENs that it received.
    opens_in: usize,
}

/// A state machine, and what its actions show.
struct Observer {
    peer: Peer,
    now: Instant,
    connections: BTreeMap<ConnectionId, ObservedConnection>,
    /// An attempt to connect is in progress.
    attempt: bool,
}

impl Observer {
    fn step(&mut self, event: Event<'_>, context: &str) {
        let actions = self.peer.step(self.now, event);
        for action in actions {
            match action {
                Action::Connect => self.attempt = true,
                Action::Abandon => {
                    assert!(self.attempt, "{context}: abandons an attempt that it did not start");
                    self.attempt = false;
                }
                Action::Send(id, octets) => self.check_sent(id, &octets, context),
                Action::Close(id) => {
                    let connection = self.connections.get_mut(&id).expect("a known connection");
                    assert!(!connection.closed, "{context}: closes {id} twice");
                    connection.closed = true;
                }
                Action::Changed => {}
            }
        }
        self.check(context);
    }

    /// Checks a message that the state machine sends.
    fn check_sent(&mut self, id: ConnectionId, octets: &[u8], context: &str) {
        let connection = self.connections.get_mut(&id).expect("a known connection");
        assert!(!connection.closed, "{context}: sends on {id} after closing it");
        let mut framer = Framer::default();
        framer.accept_extended_messages();
        framer.push(octets);
        let (kind, _) = framer.next_message().unwrap().expect("a complete message");
        assert!(framer.next_message().unwrap().is_none());
        assert_ne!(
            connection.kinds.last(),
            Some(&Kind::Notification),
            "{context}: after a notification"
        );
        assert_eq!(
            connection.kinds.is_empty(),
            kind == Kind::Open,
            "{context}: an OPEN comes first, once"
        );
        let routes = matches!(kind, Kind::Update | Kind::Refresh);
        let established = connection.opens_in > 0 && connection.keepalives_in > 0;
        assert!(!routes || established, "{context}: routes before the session is established");
        connection.kinds.push(kind);
    }

    /// Checks deadline, connections and status after a step.
    fn check(&self, context: &str) {
        // The longest timer is the send hold timer.
        let longest = self.now + Duration::from_secs(480);
        if let Some(deadline) = self.peer.next_deadline() {
            assert!(deadline > self.now, "{context}: the deadline is in the past");
            assert!(deadline <= longest, "{context}: the deadline is too late");
        }
        let open = self.connections.values().filter(|connection| !connection.closed).count();
        assert!(open <= 3, "{context}: {open} connections");
        if self.peer.state() == State::Established {
            assert!(open >= 1, "{context}: established without a connection");
        }
        if self.peer.state() == State::Idle {
            assert_eq!(open, 0, "{context}: idle with connections");
            assert_eq!(self.peer.next_deadline(), None, "{context}: idle with a timer");
        }
        let status = self.peer.status(self.now);
        assert_eq!(status.connection.is_some(), open > 0, "{context}");
    }
}

/// Returns valid and invalid messages that a peer may send.
fn messages() -> Vec<Vec<u8>> {
    let mut remote = settings(2, 1, 64_501, 64_500);
    let plain = open_of(&remote).write();
    remote.graceful_restart = Some(graceful_restart());
    let graceful = restarted_open_of(&remote).write();
    remote.identifier = Ipv4Addr::new(1, 1, 1, 1);
    remote.hold = Duration::from_secs(3);
    let lower_identifier = restarted_open_of(&remote).write();
    remote.local_asn = 1;
    let other_as = restarted_open_of(&remote).write();
    vec![
        plain,
        graceful,
        lower_identifier,
        other_as,
        frame::keepalive(),
        frame::keepalive(),
        frame::keepalive(),
        end_of_rib(Family::Ipv4Unicast),
        Refresh::new(Family::Ipv6Unicast, RefreshKind::Request).write(),
        Refresh::new(Family::Ipv4Unicast, RefreshKind::Begin).write(),
        Notification::new(2, 7, vec![64, 0]).write(),
        Notification::cease(7).write(),
        vec![0xff; 40],
    ]
}

/// Passes a random event, or lets a random time pass.
fn random_step(observer: &mut Observer, rng: &mut Rng, messages: &[Vec<u8>], context: &str) {
    let (local, remote) = (A.parse().unwrap(), B.parse().unwrap());
    let open: Vec<ConnectionId> = observer
        .connections
        .iter()
        .filter(|(_, connection)| !connection.closed)
        .map(|(id, _)| *id)
        .collect();
    let next = observer.connections.len() as ConnectionId;
    let connection = |rng: &mut Rng| match open.len() {
        0 => None,
        count => Some(open[rng.usize(..count)]),
    };
    match rng.u64(..20) {
        0 => observer.step(Event::Start, context),
        1 if rng.u64(..4) == 0 => {
            let stops = [
                Stop::Shutdown("message".to_owned()),
                Stop::Reset(String::new()),
                Stop::Restart,
                Stop::Changed,
            ];
            let stop = stops[rng.usize(..4)].clone();
            observer.step(Event::Stop(stop), context);
        }
        2 => {
            observer.connections.insert(next, ObservedConnection::default());
            let direction = Direction::Inbound;
            observer.step(Event::Connected { connection: next, direction, local, remote }, context);
        }
        3 if observer.attempt => {
            observer.attempt = false;
            observer.connections.insert(next, ObservedConnection::default());
            let direction = Direction::Outbound;
            observer.step(Event::Connected { connection: next, direction, local, remote }, context);
        }
        4 if observer.attempt => {
            observer.attempt = false;
            observer.step(Event::ConnectFailed, context);
        }
        5..=12 => {
            let Some(id) = connection(rng) else { return };
            let message = &messages[rng.usize(..messages.len())];
            if let Some(connection) = observer.connections.get_mut(&id) {
                connection.opens_in += usize::from(message[18] == 1);
                connection.keepalives_in += usize::from(message[18] == 4);
            }
            let middle = rng.usize(..message.len());
            observer.step(Event::Bytes(id, &message[..middle]), context);
            if observer.connections.get(&id).is_some_and(|connection| !connection.closed) {
                observer.step(Event::Bytes(id, &message[middle..]), context);
            }
        }
        13 => {
            let Some(id) = connection(rng) else { return };
            observer.step(Event::Closed(id), context);
            assert!(observer.connections[&id].closed, "{context}: does not close {id}");
        }
        14 => observer.step(Event::Desired(table(rng.u32(..40), rng.u32(..3))), context),
        15 => observer.step(Event::Complete, context),
        16 => observer.step(Event::GracefulShutdown(rng.u64(..2) == 0), context),
        17 => {
            let events = [Event::BfdDown, Event::BfdDown, Event::BfdUp, Event::BfdAdminDown];
            observer.step(events[rng.usize(..4)].clone(), context);
        }
        18 => {
            let Some(id) = connection(rng) else { return };
            observer.step(Event::Written(id), context);
        }
        _ => {
            let bits = rng.u64(..18);
            let time = Duration::from_millis(rng.u64(..1 << bits));
            observer.now += time;
            observer.step(Event::Tick, context);
        }
    }
}

#[test]
fn random_events_keep_state_machine_invariants() {
    let messages = messages();
    let mut established = 0;
    for seed in 1..400 {
        let mut rng = Rng::with_seed(seed * 0x9e37_79b9);
        let mut settings = settings(1, 2, 64_500, 64_501);
        settings.strict_bfd = seed % 2 == 0;
        settings.passive = seed % 5 == 0;
        let restart = GracefulRestart { restarted: seed % 2 == 0, ..graceful_restart() };
        settings.graceful_restart = (seed % 3 == 0).then_some(restart);
        let now = Instant::now();
        let peer = Peer::new(settings, now);
        let mut observer = Observer { peer, now, connections: BTreeMap::new(), attempt: false };
        for step in 0..600 {
            let context = format!("seed {seed}, step {step}");
            random_step(&mut observer, &mut rng, &messages, &context);
        }
        established += observer.peer.history().established;
    }
    // Enough sequences must reach Established for the test to be meaningful.
    assert!(established > 200, "{established}");
}
