//! Harness that checks invariants of the peer state machine on arbitrary input, for the unit tests
//! and `tests/fuzz/fuzz_targets/bgp_peer.rs`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::settings::{GracefulRestart, Settings};
use super::{Action, ConnectionId, Event, Peer};
use crate::session::Direction;
use crate::session::negotiate::{OmitCapabilities, local_open};
use crate::wire::{Framer, frame};

/// Feeds octets to the state machine in pieces. The first octet decides whether a session is
/// established before the first piece. Each piece has two octets before it: its length, and a
/// number n for the time of 2^(n mod 18) ms that passes before it. Checks that the machine sends
/// only complete messages, sends nothing on a closed connection, and always has a deadline in the
/// future or none.
pub fn harness(octets: &[u8]) {
    let mut now = Instant::now();
    let mut fixture = Fixture { peer: Peer::new(settings(1, 2), now), open: None, last_id: 0 };
    fixture.step(now, Event::Start);
    let Some((first, mut rest)) = octets.split_first() else { return };
    fixture.connect(now);
    if first % 2 == 0 {
        fixture.receive(
            now,
            &local_open(&settings(2, 1), &OmitCapabilities::default(), first % 4 == 0).write(),
        );
        fixture.receive(now, &frame::keepalive());
    }
    while let [length, time, more @ ..] = rest {
        let (piece, left) = more.split_at(more.len().min(usize::from(*length)));
        now += Duration::from_millis(1 << (time % 18));
        fixture.step(now, Event::Tick);
        fixture.connect(now);
        fixture.receive(now, piece);
        let due = fixture.peer.next_deadline();
        assert!(due.is_none_or(|due| due > now), "the deadline is in the past after a step");
        rest = left;
    }
}

fn settings(own: u8, other: u8) -> Settings {
    let peer = SocketAddr::from(([192, 0, 2, other], 179));
    let numbers = (64_500 + u32::from(own), 64_500 + u32::from(other));
    Settings {
        extended_next_hop: true,
        graceful_restart: Some(GracefulRestart {
            time: Duration::from_secs(120),
            long_lived: Some(Duration::from_secs(600)),
            restarted: false,
            forwarding: true,
        }),
        ..Settings::new(numbers.0, Ipv4Addr::new(192, 0, 2, own), peer, numbers.1)
    }
}

struct Fixture {
    peer: Peer,
    /// ID of the open connection.
    open: Option<ConnectionId>,
    /// The last ID that was used.
    last_id: ConnectionId,
}

impl Fixture {
    /// Opens an inbound connection unless one is open.
    fn connect(&mut self, now: Instant) {
        if self.open.is_none() {
            self.last_id += 1;
            self.open = Some(self.last_id);
            let (local, remote) = ([192, 0, 2, 1], [192, 0, 2, 2]);
            let connected = Event::Connected {
                connection: self.last_id,
                direction: Direction::Inbound,
                local: SocketAddr::from((local, 179)),
                remote: SocketAddr::from((remote, 50_000)),
            };
            self.step(now, connected);
        }
    }

    fn receive(&mut self, now: Instant, octets: &[u8]) {
        if let Some(id) = self.open {
            self.step(now, Event::Bytes(id, octets));
        }
    }

    fn step(&mut self, now: Instant, event: Event<'_>) {
        for action in self.peer.step(now, event) {
            match action {
                Action::Send(id, octets) => {
                    assert_eq!(self.open, Some(id), "octets for a connection that is not open");
                    let mut framer = Framer::default();
                    framer.accept_extended_messages();
                    framer.push(&octets);
                    assert!(matches!(framer.next_message(), Ok(Some(_))), "incomplete message");
                    assert!(matches!(framer.next_message(), Ok(None)), "octets follow the message");
                }
                Action::Close(id) => assert_eq!(self.open.take(), Some(id)),
                Action::Connect | Action::Abandon | Action::Changed => {}
            }
        }
    }
}
