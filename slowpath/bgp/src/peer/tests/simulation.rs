//! Tests of two state machines over simulated connections. Octets arrive late and in pieces, but in
//! order; connections are cut; both sides connect at the same time. Each test ends with exactly one
//! connection and with the desired routes at both sides.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;

use super::*;
use crate::wire::DecodeContext;

/// An event on its way to one side.
#[derive(Debug)]
enum InFlight {
    Accepted(ConnectionId, Direction),
    Failed,
    Octets(ConnectionId, Vec<u8>),
    Closed(ConnectionId),
}

/// What one side has received, decoded from the octets.
#[derive(Default)]
struct Learned {
    routes: BTreeMap<ipnet::IpNet, (Vec<u32>, Vec<[u32; 3]>)>,
    ends_of_rib: usize,
}

struct Side {
    peer: Peer,
    /// Events on the way to this side, with their arrival times.
    in_flight: VecDeque<(Instant, InFlight)>,
    learned: Learned,
    framers: BTreeMap<ConnectionId, crate::wire::Framer>,
    /// Connections that are open at this side, including attempts.
    open: std::collections::BTreeSet<ConnectionId>,
    attempt: Option<ConnectionId>,
}

pub(crate) struct Pair {
    now: Instant,
    sides: [Side; 2],
    rng: Rng,
    next_id: ConnectionId,
    /// Maximum delay of an event in milliseconds.
    longest_delay: u64,
}

impl Pair {
    pub(crate) fn new(seed: u64, settings: [Settings; 2]) -> Pair {
        let now = Instant::now();
        let side = |settings: Settings| Side {
            peer: Peer::new(settings, now),
            in_flight: VecDeque::new(),
            learned: Learned::default(),
            framers: BTreeMap::new(),
            open: Default::default(),
            attempt: None,
        };
        let sides = settings.map(side);
        Pair { now, sides, rng: Rng::with_seed(seed | 1), next_id: 0, longest_delay: 400 }
    }

    fn step(&mut self, at: usize, event: Event<'_>) {
        let actions = self.sides[at].peer.step(self.now, event);
        for action in actions {
            self.perform(at, action);
        }
    }

    /// Schedules an event after all others in flight to this side, so that the order is kept.
    fn send(&mut self, to: usize, in_flight: InFlight) {
        let delay = Duration::from_millis(1 + self.rng.u64(..self.longest_delay));
        let last = self.sides[to].in_flight.back().map_or(self.now, |(at, _)| *at);
        self.sides[to].in_flight.push_back(((self.now + delay).max(last), in_flight));
    }

    fn perform(&mut self, at: usize, action: Action) {
        match action {
            Action::Connect => {
                let failed = self.rng.u64(..8) == 0;
                if failed {
                    self.send(at, InFlight::Failed);
                    return;
                }
                self.next_id += 1;
                let id = self.next_id;
                self.sides[at].attempt = Some(id);
                self.sides[1 - at].open.insert(id);
                self.sides[at].open.insert(id);
                self.send(1 - at, InFlight::Accepted(id, Direction::Inbound));
                self.send(at, InFlight::Accepted(id, Direction::Outbound));
            }
            Action::Abandon => {
                if let Some(id) = self.sides[at].attempt.take() {
                    self.close(at, id);
                }
            }
            Action::Send(id, octets) => {
                let middle = self.rng.u64(..octets.len() as u64 + 1) as usize;
                let (first, second) = octets.split_at(middle);
                self.send(1 - at, InFlight::Octets(id, first.to_vec()));
                self.send(1 - at, InFlight::Octets(id, second.to_vec()));
            }
            Action::Close(id) => self.close(at, id),
            Action::Changed => {}
        }
    }

    fn close(&mut self, at: usize, id: ConnectionId) {
        if self.sides[at].open.remove(&id) {
            self.send(1 - at, InFlight::Closed(id));
        }
    }

    fn arrive(&mut self, at: usize, in_flight: InFlight) {
        let endpoints = [A, B].map(|end| end.parse().unwrap());
        match in_flight {
            InFlight::Accepted(id, direction) => {
                let side = &mut self.sides[at];
                if !side.open.contains(&id) {
                    return;
                }
                if direction == Direction::Outbound {
                    if side.attempt != Some(id) {
                        return self.close(at, id);
                    }
                    side.attempt = None;
                }
                let (local, remote) = (endpoints[at], endpoints[1 - at]);
                self.step(at, Event::Connected { connection: id, direction, local, remote });
            }
            InFlight::Failed => self.step(at, Event::ConnectFailed),
            InFlight::Octets(id, octets) => {
                if self.sides[at].open.contains(&id) {
                    self.learn(at, id, &octets);
                    self.step(at, Event::Bytes(id, &octets));
                }
            }
            InFlight::Closed(id) => {
                if self.sides[at].open.remove(&id) {
                    self.sides[at].framers.remove(&id);
                    self.step(at, Event::Closed(id));
                }
            }
        }
    }

    /// Decodes received octets and installs the routes.
    fn learn(&mut self, at: usize, id: ConnectionId, octets: &[u8]) {
        let side = &mut self.sides[at];
        let framer = side.framers.entry(id).or_default();
        framer.accept_extended_messages();
        framer.push(octets);
        let context = DecodeContext { four_octet: true, ..DecodeContext::default() };
        while let Ok(Some((kind, body))) = framer.next_message() {
            match Message::read(kind, &body, &context) {
                Ok(Message::Open(_)) => side.learned = Learned::default(),
                Ok(Message::Update(update)) => {
                    side.learned.ends_of_rib += usize::from(update.end_of_rib.is_some());
                    update.withdrawn.iter().for_each(|prefix| {
                        side.learned.routes.remove(prefix);
                    });
                    let attributes = (update.path.communities, update.path.large);
                    update.announced.iter().for_each(|prefix| {
                        side.learned.routes.insert(*prefix, attributes.clone());
                    });
                }
                _ => {}
            }
        }
    }

    /// Advances the clock by `time`. Octets count as written once the clock moves on.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            for at in 0..2 {
                if let Some(id) = self.sides[at].peer.foremost().map(|session| session.id) {
                    self.step(at, Event::Written(id));
                }
                while self.sides[at].in_flight.front().is_some_and(|(when, _)| *when <= self.now) {
                    if let Some((_, in_flight)) = self.sides[at].in_flight.pop_front() {
                        self.arrive(at, in_flight);
                    }
                }
                self.step(at, Event::Tick);
            }
            let arrivals = self.sides.iter().filter_map(|side| side.in_flight.front().map(|c| c.0));
            let deadlines = self.sides.iter().filter_map(|side| side.peer.next_deadline());
            let step = self.now + Duration::from_millis(50);
            self.now = arrivals.chain(deadlines).chain([end, step]).min().unwrap().max(self.now);
        }
    }

    /// Cuts connections at random. The side at which a connection is cut gets no event; the other
    /// side gets [`Event::Closed`] later, unless the connection is cut there as well.
    fn cut(&mut self) {
        for at in 0..2 {
            let open: Vec<ConnectionId> = self.sides[at].open.iter().copied().collect();
            for id in open {
                if self.rng.u64(..2) == 0 {
                    self.close(at, id);
                }
            }
        }
    }

    fn assert_equal(&self, tables: [&Arc<Table>; 2], label: &str) {
        let connections = [0, 1].map(|at| self.sides[at].peer.established().map(|s| s.id));
        assert!(connections[0].is_some(), "{label}: {connections:?}");
        assert_eq!(connections[0], connections[1], "{label}");
        for at in 0..2 {
            let side = &self.sides[at];
            assert_eq!(side.open.len(), 1, "{label}: {:?}", side.open);
            let expected: BTreeMap<_, _> = tables[1 - at]
                .routes
                .iter()
                .map(|(prefix, attributes)| {
                    (*prefix, (attributes.communities.clone(), attributes.large.clone()))
                })
                .collect();
            assert_eq!(side.learned.routes, expected, "{label}: side {at}");
            assert_eq!(side.learned.ends_of_rib, 2, "{label}: side {at}");
            let counted: usize = Family::ALL
                .map(|family| side.peer.established().unwrap().received().count(family).prefixes)
                .iter()
                .sum();
            assert_eq!(counted, expected.len(), "{label}: side {at}");
            assert!(side.peer.all_sent(), "{label}: side {at}");
        }
    }
}

use crate::wire::Family;

fn start(pair: &mut Pair, tables: [&Arc<Table>; 2]) {
    for (at, table) in tables.into_iter().enumerate() {
        pair.step(at, Event::Desired(Arc::clone(table)));
        pair.step(at, Event::Complete);
        pair.step(at, Event::Start);
    }
}

#[test]
fn simultaneous_connects_end_with_one_connection_and_equal_routes() {
    for seed in 1..200 {
        let both = [settings(1, 2, 64_500, 64_501), settings(2, 1, 64_501, 0)];
        let mut pair = Pair::new(seed, both);
        let tables = [table(50, 1), table(30, 2)];
        start(&mut pair, [&tables[0], &tables[1]]);
        pair.run(Duration::from_secs(120));
        pair.assert_equal([&tables[0], &tables[1]], &format!("seed {seed}"));
    }
}

#[test]
fn repeated_connection_loss_converges_to_the_desired_routes() {
    for seed in 1..100 {
        let mut both = [settings(1, 2, 64_500, 64_501), settings(2, 1, 64_501, 64_500)];
        if seed % 2 == 0 {
            both.iter_mut().for_each(|one| one.graceful_restart = Some(graceful_restart()));
        }
        if seed % 3 == 0 {
            both[1].passive = true;
        }
        let mut pair = Pair::new(seed, both);
        let mut tables = [table(20, 1), table(30, 2)];
        start(&mut pair, [&tables[0], &tables[1]]);
        for round in 0..6 {
            let time = pair.rng.u64(..40_000);
            pair.run(Duration::from_millis(time));
            pair.cut();
            tables[0] = table(10 + 7 * round, round % 3);
            pair.step(0, Event::Desired(Arc::clone(&tables[0])));
        }
        // The hold timer detects cuts that were not reported; the longest backoff is a minute.
        pair.run(Duration::from_secs(400));
        pair.assert_equal([&tables[0], &tables[1]], &format!("seed {seed}"));
    }
}
