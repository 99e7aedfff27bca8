//! Harness that checks invariants of the peer state machine on arbitrary input, for the unit tests
//! and `tests/fuzz/fuzz_targets/bgp_peer.rs`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::settings::{GracefulRestart, Settings};
use super::{ConnectionId, Input, Output, Peer};
use crate::session::Direction;
use crate::session::negotiate::{Without, our_open};
use crate::wire::{Framer, frame};

/// Feeds octets to the state machine in pieces. The first octet decides whether the session is
/// established first; then each piece begins with its length and an octet for the time that passes
/// before it. Checks that the machine sends only complete messages, sends nothing on a closed
/// connection, and always has a deadline in the future or none.
pub fn harness(octets: &[u8]) {
    let mut now = Instant::now();
    let mut world = World { peer: Peer::new(settings(1, 2), now), open: None, last: 0 };
    world.step(now, Input::Start);
    let Some((first, mut rest)) = octets.split_first() else { return };
    world.connect(now);
    if first % 2 == 0 {
        world.hear(now, &our_open(&settings(2, 1), &Without::default(), first % 4 == 0).write());
        world.hear(now, &frame::keepalive());
    }
    while let [length, time, more @ ..] = rest {
        let (piece, left) = more.split_at(more.len().min(usize::from(*length)));
        now += Duration::from_millis(1 << (time % 18));
        world.step(now, Input::Tick);
        world.connect(now);
        world.hear(now, piece);
        let due = world.peer.next_deadline();
        assert!(due.is_none_or(|due| due > now), "a deadline that stays in the past");
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

struct World {
    peer: Peer,
    /// ID of the open connection.
    open: Option<ConnectionId>,
    /// The last ID that was used.
    last: ConnectionId,
}

impl World {
    /// Connects the peer unless it is connected.
    fn connect(&mut self, now: Instant) {
        if self.open.is_none() {
            self.last += 1;
            self.open = Some(self.last);
            let (local, remote) = ([192, 0, 2, 1], [192, 0, 2, 2]);
            let connected = Input::Connected {
                connection: self.last,
                direction: Direction::Inbound,
                local: SocketAddr::from((local, 179)),
                remote: SocketAddr::from((remote, 50_000)),
            };
            self.step(now, connected);
        }
    }

    fn hear(&mut self, now: Instant, octets: &[u8]) {
        if let Some(id) = self.open {
            self.step(now, Input::Bytes(id, octets));
        }
    }

    fn step(&mut self, now: Instant, input: Input<'_>) {
        for output in self.peer.step(now, input) {
            match output {
                Output::Send(id, octets) => {
                    assert_eq!(self.open, Some(id), "on a connection that there is");
                    let mut framer = Framer::default();
                    framer.extend();
                    framer.push(&octets);
                    assert!(matches!(framer.next_message(), Ok(Some(_))), "a whole message");
                    assert!(matches!(framer.next_message(), Ok(None)), "and nothing else");
                }
                Output::Close(id) => assert_eq!(self.open.take(), Some(id)),
                Output::Connect | Output::Abandon | Output::Changed => {}
            }
        }
    }
}
