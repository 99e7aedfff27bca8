//! Randomized test of invariants: arbitrary input in arbitrary order.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;
use crate::session::negotiate::{Without, our_open};
use crate::wire::write::end_of_rib;
use crate::wire::{Family, Framer, Kind, Notification, Refresh, RefreshKind, frame};

/// A connection as observed from outside.
#[derive(Default)]
struct Line {
    closed: bool,
    kinds: Vec<Kind>,
    keepalives_in: usize,
    opens_in: usize,
}

struct Watch {
    peer: Peer,
    now: Instant,
    lines: BTreeMap<ConnectionId, Line>,
    attempt: bool,
}

impl Watch {
    fn input(&mut self, input: Input<'_>, words: &str) {
        let outputs = self.peer.step(self.now, input);
        for output in outputs {
            match output {
                Output::Connect => self.attempt = true,
                Output::Abandon => {
                    assert!(self.attempt, "{words}: gives up what it didn't begin");
                    self.attempt = false;
                }
                Output::Send(id, octets) => self.sends(id, &octets, words),
                Output::Close(id) => {
                    let line = self.lines.get_mut(&id).expect("closes what there is");
                    assert!(!line.closed, "{words}: closes {id} twice");
                    line.closed = true;
                }
                Output::Changed => {}
            }
        }
        self.hold(words);
    }

    fn sends(&mut self, id: ConnectionId, octets: &[u8], words: &str) {
        let line = self.lines.get_mut(&id).expect("sends on what there is");
        assert!(!line.closed, "{words}: sends on {id} after closing it");
        let mut framer = Framer::default();
        framer.extend();
        framer.push(octets);
        let (kind, _) = framer.next_message().unwrap().expect("a whole message");
        assert!(framer.next_message().unwrap().is_none());
        assert_ne!(line.kinds.last(), Some(&Kind::Notification), "{words}: after a notification");
        assert_eq!(line.kinds.is_empty(), kind == Kind::Open, "{words}: an OPEN comes first, once");
        let routes = matches!(kind, Kind::Update | Kind::Refresh);
        let established = line.opens_in > 0 && line.keepalives_in > 0;
        assert!(!routes || established, "{words}: routes before the session is established");
        line.kinds.push(kind);
    }

    fn hold(&self, words: &str) {
        let longest = self.now + Duration::from_secs(480);
        if let Some(deadline) = self.peer.next_deadline() {
            assert!(deadline > self.now, "{words}: a deadline that stays in the past");
            assert!(deadline <= longest, "{words}: a deadline that is far away");
        }
        let open = self.lines.values().filter(|line| !line.closed).count();
        assert!(open <= 3, "{words}: {open} connections");
        if self.peer.state() == State::Established {
            assert!(open >= 1, "{words}: established on nothing");
        }
        if self.peer.state() == State::Idle {
            assert_eq!(open, 0, "{words}: idle with connections");
            assert_eq!(self.peer.next_deadline(), None, "{words}: idle with a timer");
        }
        let told = self.peer.told(self.now);
        assert_eq!(told.connection.is_some(), open > 0, "{words}");
    }
}

/// Returns valid and invalid messages that a peer may send.
fn messages() -> Vec<Vec<u8>> {
    let mut theirs = settings(2, 1, 64_501, 64_500);
    let plain = our_open(&theirs, &Without::default(), false).write();
    theirs.graceful_restart = Some(graceful(false));
    let with = our_open(&theirs, &Without::default(), true).write();
    theirs.identifier = Ipv4Addr::new(1, 1, 1, 1);
    theirs.hold = Duration::from_secs(3);
    let lower = our_open(&theirs, &Without::default(), true).write();
    theirs.local_asn = 1;
    let stranger = our_open(&theirs, &Without::default(), true).write();
    vec![
        plain,
        with,
        lower,
        stranger,
        frame::keepalive(),
        frame::keepalive(),
        frame::keepalive(),
        end_of_rib(Family::Ipv4Unicast),
        Refresh::new(Family::Ipv6Unicast, RefreshKind::Asked).write(),
        Refresh::new(Family::Ipv4Unicast, RefreshKind::Begin).write(),
        Notification::new(2, 7, vec![64, 0]).write(),
        Notification::cease(7).write(),
        vec![0xff; 40],
    ]
}

fn one(watch: &mut Watch, rng: &mut Rng, messages: &[Vec<u8>], words: &str) {
    let (local, remote) = (A.parse().unwrap(), B.parse().unwrap());
    let open: Vec<ConnectionId> =
        watch.lines.iter().filter(|(_, line)| !line.closed).map(|(id, _)| *id).collect();
    let next = watch.lines.len() as ConnectionId;
    let line = |rng: &mut Rng| match open.len() {
        0 => None,
        count => Some(open[rng.usize(..count)]),
    };
    match rng.u64(..20) {
        0 => watch.input(Input::Start, words),
        1 if rng.u64(..4) == 0 => {
            let stops = [
                Stop::Shutdown("words".to_owned()),
                Stop::Reset(String::new()),
                Stop::Restart,
                Stop::Changed,
            ];
            let stop = stops[rng.usize(..4)].clone();
            watch.input(Input::Stop(stop), words);
        }
        2 => {
            watch.lines.insert(next, Line::default());
            let direction = Direction::Inbound;
            watch.input(Input::Connected { connection: next, direction, local, remote }, words);
        }
        3 if watch.attempt => {
            watch.attempt = false;
            watch.lines.insert(next, Line::default());
            let direction = Direction::Outbound;
            watch.input(Input::Connected { connection: next, direction, local, remote }, words);
        }
        4 if watch.attempt => {
            watch.attempt = false;
            watch.input(Input::ConnectFailed, words);
        }
        5..=12 => {
            let Some(id) = line(rng) else { return };
            let message = &messages[rng.usize(..messages.len())];
            if let Some(line) = watch.lines.get_mut(&id) {
                line.opens_in += usize::from(message[18] == 1);
                line.keepalives_in += usize::from(message[18] == 4);
            }
            let middle = rng.usize(..message.len());
            watch.input(Input::Bytes(id, &message[..middle]), words);
            if watch.lines.get(&id).is_some_and(|line| !line.closed) {
                watch.input(Input::Bytes(id, &message[middle..]), words);
            }
        }
        13 => {
            let Some(id) = line(rng) else { return };
            watch.input(Input::Closed(id), words);
            assert!(watch.lines[&id].closed, "{words}: forgets {id}");
        }
        14 => watch.input(Input::Desired(table(rng.u32(..40), rng.u32(..3))), words),
        15 => watch.input(Input::Complete, words),
        16 => watch.input(Input::GracefulShutdown(rng.u64(..2) == 0), words),
        17 => {
            let said = [Input::BfdDown, Input::BfdDown, Input::BfdUp, Input::BfdHeld];
            watch.input(said[rng.usize(..4)].clone(), words);
        }
        18 => {
            let Some(id) = line(rng) else { return };
            watch.input(Input::Written(id), words);
        }
        _ => {
            let bits = rng.u64(..18);
            let time = Duration::from_millis(rng.u64(..1 << bits));
            watch.now += time;
            watch.input(Input::Tick, words);
        }
    }
}

#[test]
fn any_order_of_anything() {
    let messages = messages();
    let mut established = 0;
    for seed in 1..400 {
        let mut rng = Rng::with_seed(seed * 0x9e37_79b9);
        let mut settings = settings(1, 2, 64_500, 64_501);
        settings.strict_bfd = seed % 2 == 0;
        settings.passive = seed % 5 == 0;
        settings.graceful_restart = (seed % 3 == 0).then_some(graceful(seed % 2 == 0));
        let now = Instant::now();
        let peer = Peer::new(settings, now);
        let mut watch = Watch { peer, now, lines: BTreeMap::new(), attempt: false };
        for step in 0..600 {
            one(&mut watch, &mut rng, &messages, &format!("seed {seed}, step {step}"));
        }
        established += watch.peer.history().established;
    }
    // Enough sequences must reach Established for the test to be meaningful.
    assert!(established > 200, "{established}");
}
