//! Azure in the histories: pools with members of the emulator, calls in progress, and the
//! reliability of answers.

use ::simulation::{Calls, Reliability};
use cloud_emulators::azure::state::Backend;
use fastrand::Rng;

use super::*;

/// Interval of probes.
const INTERVAL: Duration = Duration::from_secs(5);

/// Party that made a membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Us,
    Other,
}

#[derive(Clone, Debug)]
struct Pool {
    family: Family,
    member: Option<Entry>,
    tunnels: Tunnels,
    probed: bool,
}

/// This machine's entry in a pool.
#[derive(Clone, Debug)]
struct Entry {
    backend: Backend,
    admin: AdminState,
    owner: Owner,
}

impl Entry {
    fn new(owner: Owner, now: Duration) -> Entry {
        let backend = Backend::new(Default::default(), false, now + INTERVAL);
        Entry { backend, admin: AdminState::None, owner }
    }

    /// Returns true if new flows arrive.
    fn serves(&self, probed: bool) -> bool {
        let admin = match self.admin {
            AdminState::None => None,
            AdminState::Up => Some("Up"),
            AdminState::Down => Some("Down"),
        };
        self.backend.serves(admin, probed)
    }
}

#[derive(Debug)]
struct Scheduled {
    event: ScheduledEvent,
    /// When the event happens.
    at: Instant,
    /// The event has no effect: it disappears at its time, as if canceled.
    empty: bool,
    /// When the event is no longer listed.
    gone_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Azure {
    began: Instant,
    pools: Vec<Pool>,
    /// All tunnels that were ever reported or persisted.
    pub(super) ever: Vec<(Family, Tunnels)>,
    /// The tunnels that IMDS reports, which are up to 20 s old, and when they were current.
    imds: Vec<(Family, Tunnels)>,
    imds_at: Instant,
    /// IMDS reports no tunnels.
    imds_has_none: bool,
    events: Vec<Scheduled>,
    pub(super) acknowledging: Option<String>,
    pub(super) calls: Calls<Call, Answer>,
    /// When the machine was last missing from a pool.
    pub(super) lacked_at: Instant,
    /// When another party last made a membership.
    pub(super) others_at: Instant,
    /// Another party made a membership that Weir may mistake for its own.
    pub(super) ambiguous: bool,
    /// Another party set `Down`, and Weir cannot mistake that for its own.
    pub(super) foreign_down: bool,
    /// Another party changed this machine's entries.
    pub(super) disturbed: bool,
    /// Number of the last change of tunnels or event, so that each differs from all others.
    number: u16,
}

impl Azure {
    pub(super) fn new(now: Instant, managed: bool, rng: &mut Rng) -> Azure {
        let families: &[Family] = rng
            .choice([&[Family::V4] as &[Family], &[Family::V6], &[Family::V4, Family::V6]])
            .unwrap();
        let member = managed || rng.u32(..3) == 0;
        let probed = rng.u32(..6) != 0;
        let pools = families.iter().map(|family| {
            let tunnels = tunnels(if *family == Family::V4 { 0 } else { 50 });
            let member = member.then(|| Entry::new(Owner::Other, Duration::ZERO));
            Pool { family: *family, member, tunnels, probed }
        });
        let pools: Vec<Pool> = pools.collect();
        let reported: Vec<_> = pools.iter().map(|pool| (pool.family, pool.tunnels)).collect();
        Azure {
            began: now,
            pools,
            ever: reported.clone(),
            imds: reported,
            imds_at: now,
            imds_has_none: rng.u32(..5) == 0,
            events: Vec::new(),
            acknowledging: None,
            calls: Calls::new(rng),
            lacked_at: now,
            others_at: now.checked_sub(S).unwrap_or(now),
            ambiguous: false,
            foreign_down: false,
            disturbed: false,
            number: 100,
        }
    }

    pub(super) fn tunnels(&self) -> Vec<(Family, Tunnels)> {
        self.pools.iter().map(|pool| (pool.family, pool.tunnels)).collect()
    }

    pub(super) fn clock(&self, now: Instant) -> u64 {
        CLOCK + (now - self.began).as_secs()
    }

    pub(super) fn has(&self, owner: Owner) -> bool {
        self.pools.iter().any(|pool| pool.member.as_ref().is_some_and(|entry| entry.owner == owner))
    }

    /// Returns true if the machine is in all pools, and the probe decides in each of them.
    pub(super) fn probe_decides(&self) -> bool {
        let decided = |entry: &Entry| entry.admin == AdminState::None;
        self.pools.iter().all(|pool| pool.member.as_ref().is_some_and(decided))
    }

    /// Returns true if new flows arrive.
    pub(super) fn sends(&self) -> bool {
        let gets =
            |pool: &Pool| pool.member.as_ref().is_some_and(|entry| entry.serves(pool.probed));
        self.pools.iter().any(gets)
    }

    pub(super) fn request(&mut self, call: Call, process: u64, now: Instant, rng: &mut Rng) {
        self.calls.start(call, process, now, rng);
        // The process gave up before the call took effect.
        if call.is_write() && rng.u32(..12) == 0 {
            self.calls.give_up(Answer::failed(call, error(Failure::Transient)), rng);
        }
    }

    /// Advances by a second: performs probes and calls, and updates the tunnels of IMDS.
    pub(super) fn pass(&mut self, now: Instant, probe: bool, rng: &mut Rng) {
        for entry in self.pools.iter_mut().filter_map(|pool| pool.member.as_mut()) {
            entry.backend.good = probe;
            entry.backend.pass(now - self.began, INTERVAL);
        }
        if now >= self.imds_at + 20 * S {
            (self.imds, self.imds_at) = (self.tunnels(), now);
        }
        while let Some((at, call)) = self.calls.next_due(now) {
            let answer = self.apply(call, now, rng);
            self.calls.answer(at, answer);
        }
        if self.pools.iter().any(|pool| pool.member.is_none()) {
            self.lacked_at = now;
        }
    }

    fn apply(&mut self, call: Call, now: Instant, rng: &mut Rng) -> Answer {
        let imds = matches!(call, Call::ReadTunnels | Call::ReadEvents | Call::Acknowledge);
        let available = imds && self.calls.reliability.outage.is_some() && rng.u32(..3) != 0;
        let (effect, failing) =
            if available { (true, None) } else { self.calls.reliability.outcome(rng) };
        if effect {
            let written = self.pools.iter().any(|pool| pool.member.is_none());
            self.write(call, now);
            if failing.is_none() && call == Call::Join {
                return Answer::Joined(Ok(written));
            }
        }
        if let Some(kind) = failing {
            return Answer::failed(call, error(kind));
        }
        match call {
            Call::ReadPools => Answer::Pools(Ok(self.pool_states())),
            Call::Join => Answer::Joined(Ok(true)),
            Call::Down => Answer::Down(Ok(())),
            Call::Up => Answer::Up(Ok(())),
            Call::Leave => Answer::Left(Ok(())),
            Call::ReadTunnels if self.imds_has_none && rng.u32(..2) == 0 => {
                Answer::failed(call, error(Failure::Absent))
            }
            Call::ReadTunnels if self.imds_has_none => Answer::Tunnels(Ok(Vec::new())),
            // IMDS may also report a family in which the machine has no pool.
            Call::ReadTunnels => {
                let mut reported = self.imds.clone();
                if reported.len() == 1 && reported[0].0 == Family::V4 {
                    reported.push((Family::V6, tunnels(77)));
                }
                Answer::Tunnels(Ok(reported))
            }
            Call::ReadEvents => {
                Answer::Events(Ok(self.events.iter().map(|one| one.event.clone()).collect()))
            }
            Call::Acknowledge => Answer::Acknowledged(Ok(())),
        }
    }

    fn pool_states(&self) -> Vec<PoolState> {
        let pool_state = |pool: &Pool| PoolState {
            family: pool.family,
            member: pool
                .member
                .as_ref()
                .map(|entry| Member { mode: MembershipMode::Nic, admin: entry.admin }),
            tunnels: Ok(pool.tunnels),
            probed: pool.probed,
        };
        self.pools.iter().map(pool_state).collect()
    }

    fn write(&mut self, call: Call, now: Instant) {
        match call {
            Call::Join => {
                let since = now - self.began;
                for pool in &mut self.pools {
                    pool.member.get_or_insert_with(|| Entry::new(Owner::Us, since));
                }
            }
            Call::Leave => self.remove(now),
            Call::Down => self.set(AdminState::Down),
            Call::Up => self.set(AdminState::None),
            Call::Acknowledge => {
                let id = self.acknowledging.take();
                for one in self.events.iter_mut().filter(|one| Some(&one.event.id) == id.as_ref()) {
                    one.at = one.at.min(now + 3 * S);
                }
            }
            _ => {}
        }
    }

    fn set(&mut self, admin: AdminState) {
        for member in self.pools.iter_mut().filter_map(|pool| pool.member.as_mut()) {
            member.admin = admin;
        }
    }

    fn remove(&mut self, now: Instant) {
        self.pools.iter_mut().for_each(|pool| pool.member = None);
        (self.lacked_at, self.foreign_down) = (now, false);
    }

    fn take_out(&mut self, pool: usize, now: Instant) {
        self.pools[pool].member = None;
        self.lacked_at = now;
    }

    fn join_by_others(&mut self, joined: bool, now: Instant) {
        self.others_at = now;
        for pool in self.pools.iter_mut().filter(|pool| pool.member.is_none()) {
            pool.member = Some(Entry::new(Owner::Other, now - self.began));
            self.ambiguous |= joined;
        }
    }

    /// Lets another party interfere, or changes the reliability. `joined` and `down` are Weir's
    /// persisted state.
    pub(super) fn disturb(&mut self, now: Instant, joined: bool, down: bool, rng: &mut Rng) {
        let choice = rng.u64(..12);
        self.disturbed |= (4..=8).contains(&choice);
        match choice {
            0..4 => self.calls.reliability.change(choice, rng),
            4 => self.remove(now),
            5 => self.take_out(rng.usize(..self.pools.len()), now),
            6 => self.join_by_others(joined, now),
            7 => {
                self.foreign_down = !down;
                self.set(AdminState::Down);
            }
            8 => {
                self.foreign_down = false;
                self.set(rng.choice([AdminState::Up, AdminState::None]).unwrap());
            }
            9 | 10 => {
                let pool = rng.usize(..self.pools.len());
                self.number += 1;
                let other = tunnels(self.number);
                self.pools[pool].tunnels = other;
                self.ever.push((self.pools[pool].family, other));
                self.imds_at = now;
            }
            _ => self.calls.reliability = Reliability::GOOD,
        }
    }

    /// Schedules an event; unless `deletable`, it does not delete the machine.
    pub(super) fn schedule(&mut self, now: Instant, deletable: bool, rng: &mut Rng) {
        use EventKind::{Freeze, Other, Preempt, Reboot, Redeploy, Terminate};
        let kind = rng.choice([Reboot, Redeploy, Freeze, Other, Preempt, Terminate]).unwrap();
        let ahead = 1 + rng.u64(..300);
        self.number += 1;
        let not_before = (rng.u32(..4) != 0).then(|| self.clock(now) + ahead);
        let empty = rng.u32(..3) == 0 || !deletable && matches!(kind, Preempt | Terminate);
        self.events.push(Scheduled {
            event: event(&format!("E{}", self.number), kind, not_before),
            at: now + S * ahead as u32,
            empty,
            gone_at: None,
        });
    }

    /// Returns the kind of an event that happens in this second, if it has an effect.
    pub(super) fn due_event(&mut self, now: Instant, rng: &mut Rng) -> Option<EventKind> {
        self.events.retain(|one| one.gone_at.is_none_or(|at| now < at));
        let due = self.events.iter_mut().find(|one| now >= one.at && one.gone_at.is_none())?;
        due.gone_at = Some(now + S * rng.u32(..60));
        // An event without effect never starts.
        due.event.started = !due.empty;
        (!due.empty).then_some(due.event.kind)
    }

    /// Ends interference and outages. If `others_join`, another party adds the machine to its
    /// pools.
    pub(super) fn stop_disturbing(&mut self, others_join: bool, now: Instant, joined: bool) {
        self.calls.reliability = Reliability::GOOD;
        self.events.clear();
        self.imds_at = now;
        if others_join {
            self.join_by_others(joined, now);
        }
        let mut entries = self.pools.iter().filter_map(|pool| pool.member.as_ref());
        let up = entries.any(|entry| entry.admin == AdminState::Up);
        if self.foreign_down || up {
            self.foreign_down = false;
            self.set(AdminState::None);
        }
    }
}
