//! Histories of an appliance at a cloud: outages, slow and lost answers, others who interfere,
//! flows that come and go, signals, restarts.
//!
//! Each history follows from its seed. `SIMULATION_SEED=7 cargo test -p aws life` plays one
//! again; `SIMULATIONS=100000` plays as many.

use fastrand::Rng;

use super::*;

/// How many histories are played where nobody says.
const HISTORIES: u64 = 20_000;

#[test]
fn whatever_happens_it_tells_the_truth_registers_drains_and_ends() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("SIMULATION_SEED") {
        Some(seed) => history(seed),
        None => (1..=number("SIMULATIONS").unwrap_or(HISTORIES)).for_each(history),
    }
}

/// Tells the seed of a history that went wrong.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("play it again: SIMULATION_SEED={} cargo test -p aws life", self.0);
        }
    }
}

/// The cloud: a target, what it is asked, and how badly it does that.
struct Cloud {
    state: Option<TargetState>,
    /// Since when that is so.
    since: Instant,
    /// When it was last not a target, or on its way out.
    gone_at: Instant,
    /// When it was last the other way.
    member_at: Option<Instant>,
    attributes: Attributes,
    notices: Notices,
    /// What became of calls lately: none well, else failing so.
    outage: Option<Failure>,
    /// Calls take up to so many seconds.
    slowness: u64,
    /// Calls under way: when they take effect, when they are answered, by which process.
    calls: Vec<(Call, Instant, Instant, Answered)>,
}

/// An answer once it is known, and the process that waits for it.
struct Answered {
    process: u64,
    answer: Option<Answer>,
}

struct World {
    life: Life,
    process: u64,
    now: Instant,
    cloud: Cloud,
    able: bool,
    probe: bool,
    flows: u64,
    packets: u64,
    /// When something was last active.
    active_at: Instant,
    /// When a look that was answered to this process began, the latest.
    looked: Option<Instant>,
    looks: BTreeMap<Instant, Instant>,
    /// The first SIGTERM of this process, and how many.
    terminated: Option<Instant>,
    signals: u32,
    deregisters: u32,
    completes: u32,
    outage_while_leaving: bool,
    exit: Option<Exit>,
}

impl World {
    fn new(rng: &mut Rng) -> World {
        let now = Instant::now();
        let flag = |rng: &mut Rng| rng.u32(..2) == 0;
        let attributes = Attributes {
            deregistration_delay: [0, 10, 60, 300, 3600][rng.usize(..5)] * S,
            rebalance_on_unhealthy: flag(rng),
            ..attributes()
        };
        let settings = Lifecycle {
            on_lost: if rng.u32(..3) == 0 { OnLost::Report } else { OnLost::Repair },
            drain_cap: [5, 20, 60, 330][rng.usize(..4)] * S,
            quiet: 5 * S,
            hook: flag(rng),
        };
        World {
            life: Life::new(settings, now),
            process: 0,
            now,
            cloud: Cloud {
                state: (rng.u32(..3) == 0).then_some(TargetState::Healthy),
                since: now,
                gone_at: now,
                member_at: None,
                attributes,
                notices: Notices::default(),
                outage: None,
                slowness: 1 + rng.u64(..4),
                calls: Vec::new(),
            },
            able: false,
            probe: false,
            flows: 0,
            packets: 0,
            active_at: now,
            looked: None,
            looks: BTreeMap::new(),
            terminated: None,
            signals: 0,
            deregisters: 0,
            completes: 0,
            outage_while_leaving: false,
            exit: None,
        }
    }

    fn hear(&mut self, event: Event, rng: &mut Rng) {
        let mut out = false;
        for effect in self.life.step(self.now, event) {
            assert!(!out, "nothing comes behind the exit");
            match effect {
                Effect::Call(call) => self.call(call, rng),
                Effect::Probe { pass, reasons } => {
                    assert_eq!(pass, reasons.is_empty());
                    self.probe = pass;
                }
                Effect::FlowTimeout(timeout) => assert_eq!(timeout, 350 * S),
                Effect::Finding(finding) => assert!(!finding.text.is_empty()),
                Effect::Exit(exit) => {
                    self.exit = Some(exit);
                    out = true;
                }
            }
        }
    }

    fn call(&mut self, call: Call, rng: &mut Rng) {
        let under_way = self.cloud.calls.iter();
        let same = under_way.filter(|(c, _, _, to)| *c == call && to.process == self.process);
        assert_eq!(same.count(), 0, "{call:?} twice at once");
        match call {
            Call::Register => {
                // A look may be as old as it took, and the cloud shows what was 3 s ago.
                let needed = self.looked.is_some_and(|at| self.cloud.gone_at + 3 * S >= at);
                assert!(needed, "registered without need");
                assert!(self.terminated.is_none() && self.able);
            }
            Call::Deregister => {
                assert!(self.life.leaving().is_some());
                self.deregisters += 1;
            }
            Call::CompleteHook => self.completes += 1,
            _ => {}
        }
        let slow = self.cloud.slowness;
        let effect = self.now + S * rng.u64(..slow + 1) as u32;
        let answer = effect + S * rng.u64(..slow + 1) as u32;
        if call == Call::AskHealth {
            self.looks.insert(answer, self.now);
        }
        let answered = Answered { process: self.process, answer: None };
        self.cloud.calls.push((call, effect, answer, answered));
    }

    /// A second passes for the cloud; calls that are ready are answered, in any order.
    fn serve(&mut self, rng: &mut Rng) {
        let now = self.now;
        self.cloud.pass(now, self.probe, rng);
        for i in 0..self.cloud.calls.len() {
            let (call, effect, _, ref answered) = self.cloud.calls[i];
            if now >= effect && answered.answer.is_none() {
                self.cloud.calls[i].3.answer = Some(self.cloud.apply(call, now, rng));
            }
        }
        while let Some(i) = {
            let ready: Vec<usize> = (0..self.cloud.calls.len())
                .filter(|i| {
                    self.cloud.calls[*i].2 <= now && self.cloud.calls[*i].3.answer.is_some()
                })
                .collect();
            (!ready.is_empty()).then(|| ready[rng.usize(..ready.len())])
        } {
            let (call, _, at, answered) = self.cloud.calls.swap_remove(i);
            if answered.process != self.process || self.exit.is_some() {
                continue;
            }
            let answer = answered.answer.unwrap();
            if call == Call::AskHealth && answer.error().is_none() {
                self.looked = self.looks.get(&at).copied();
            }
            self.outage_while_leaving |= call == Call::Deregister && answer.error().is_some();
            self.hear(Event::Told(answer), rng);
        }
    }

    /// The process is killed, and another begins. What it asked takes effect nevertheless.
    fn restart(&mut self, settings: Lifecycle) {
        self.process += 1;
        self.life = Life::new(settings, self.now);
        (self.probe, self.able, self.looked) = (false, false, None);
    }

    /// A second of everything.
    fn second(&mut self, rng: &mut Rng) {
        self.now += S;
        self.serve(rng);
        if self.exit.is_none() {
            // Flows come where the gateway sends new ones, and go by themselves.
            let gets = matches!(self.cloud.state, Some(TargetState::Healthy));
            if gets && self.probe && rng.u32(..4) == 0 {
                self.flows += rng.u64(..3);
            }
            if self.flows > 0 && rng.u32(..8) == 0 {
                self.flows -= 1;
            }
            // Stateless ones are seen by their packets alone.
            if self.flows > 0 || (gets && rng.u32(..2) == 0) {
                self.packets += 1;
                self.active_at = self.now;
            }
            let (flows, packets) = (self.flows, self.packets);
            self.hear(Event::Activity { flows, packets }, rng);
        }
        self.check();
    }

    fn check(&self) {
        if self.exit.is_none() {
            assert!(!self.probe || self.able, "200 while not able");
        }
        let Some((why, deadline)) = self.life.leaving() else {
            assert!(self.exit.is_none(), "ends without having left");
            return;
        };
        if self.exit.is_none() {
            assert!(self.now < deadline, "{why:?}: not gone by its deadline");
        }
    }

    /// What must hold of how it ended.
    fn check_exit(&self, began: Instant) {
        let exit = self.exit.unwrap();
        if self.signals >= 2 {
            return;
        }
        assert_ne!(exit, Exit::Forced);
        let (_, deadline) = self.life.leaving().unwrap();
        // What comes while the hook is being told, comes too late.
        let completes = if self.completes > 0 { 5 * S } else { Duration::ZERO };
        let rest = self.now - self.active_at + completes;
        assert!(exit != Exit::Drained || rest >= 5 * S, "it ended after {rest:?} of rest");
        let draining =
            self.cloud.member_at.map(|at| at + self.cloud.attributes.deregistration_delay);
        let kept = 6 * S;
        if self.flows > 0 && self.now + kept < deadline {
            let delay_over = draining.is_none_or(|over| self.now >= over);
            assert!(exit == Exit::DelayOver && delay_over, "{exit:?} with active flows");
        }
        assert!(self.deregisters > 0, "never deregistered");
        let in_peace = self.now + kept < deadline && self.now > began;
        if in_peace && !self.outage_while_leaving && exit == Exit::Drained {
            let state = self.cloud.state;
            let out = matches!(state, None | Some(TargetState::Draining));
            let unanswered = self.cloud.calls.iter().any(|(call, ..)| *call == Call::Deregister);
            // A process that was killed may have left a registration under way.
            let stranger = self.process > 0;
            assert!(out || unanswered || stranger, "{exit:?} while {state:?}");
        }
        let hook = self.life.leaving.as_ref().is_some_and(|leaving| leaving.hook);
        assert_eq!(self.completes, u32::from(hook), "the hook is told once");
    }
}

impl Cloud {
    fn set(&mut self, state: Option<TargetState>, now: Instant) {
        if self.is_member() {
            self.member_at = Some(now);
        }
        (self.state, self.since) = (state, now);
    }

    fn is_member(&self) -> bool {
        !matches!(self.state, None | Some(TargetState::Draining))
    }

    /// Probes and time move the target's state.
    fn pass(&mut self, now: Instant, probe: bool, rng: &mut Rng) {
        let long = now >= self.since + 20 * S;
        let delay_over = now >= self.since + self.attributes.deregistration_delay;
        let next = match self.state {
            Some(TargetState::Initial | TargetState::Unhealthy) if long && probe => {
                Some(TargetState::Healthy)
            }
            Some(TargetState::Initial) if long => Some(TargetState::Unhealthy),
            Some(TargetState::Healthy) if long && !probe => Some(match rng.u32(..3) == 0 {
                true => TargetState::UnhealthyDraining,
                false => TargetState::Unhealthy,
            }),
            Some(TargetState::UnhealthyDraining) if long => Some(TargetState::Unhealthy),
            Some(TargetState::Draining) if delay_over => None,
            same => same,
        };
        if next != self.state {
            self.set(next, now);
        }
        if !self.is_member() {
            self.gone_at = now;
        }
    }

    fn apply(&mut self, call: Call, now: Instant, rng: &mut Rng) -> Answer {
        // What fails may have taken effect all the same, unless it was refused.
        let failing = self.outage.filter(|_| call != Call::AskNotices);
        let effect = match failing {
            None => true,
            Some(kind) => kind.passes() && rng.u32(..3) == 0,
        };
        let result = failing.map_or(Ok(()), |kind| Err(error(kind)));
        match call {
            Call::Register => {
                if effect && !self.is_member() {
                    self.set(Some(TargetState::Initial), now);
                }
                Answer::Registered(result)
            }
            Call::Deregister => {
                if effect && self.is_member() {
                    self.set(Some(TargetState::Draining), now);
                }
                Answer::Deregistered(result)
            }
            Call::AskHealth => {
                let told = match self.state {
                    None if rng.u32(..2) == 0 => None,
                    None => Some(target(TargetState::Unused, Some("Target.NotRegistered"))),
                    // Just registered, and not everywhere known.
                    Some(TargetState::Initial) if now < self.since + 3 * S && rng.u32(..2) == 0 => {
                        None
                    }
                    Some(state) => Some(target(state, None)),
                };
                Answer::Health(result.map(|()| told))
            }
            Call::AskAttributes => Answer::Attributes(result.map(|()| self.attributes.clone())),
            Call::AskNotices => Answer::Notices(Ok(self.notices)),
            Call::Heartbeat => Answer::Heartbeat(result),
            Call::CompleteHook => Answer::HookCompleted(result),
        }
    }

    /// Somebody else, or the weather.
    fn disturb(&mut self, now: Instant, rng: &mut Rng) {
        match rng.u64(..7) {
            0 => self.outage = Some(Failure::Transient),
            1 => self.outage = Some(Failure::Throttled),
            2 => self.outage = [Failure::Denied, Failure::Invalid].get(rng.usize(..4)).copied(),
            3 => self.slowness = 1 + rng.u64(..120),
            4 if self.is_member() => self.set(Some(TargetState::Draining), now),
            5 if self.state == Some(TargetState::Healthy) => {
                self.set(Some(TargetState::Unhealthy), now);
            }
            _ => (self.outage, self.slowness) = (None, 2),
        }
    }
}

fn history(seed: u64) {
    let told = Seed(seed);
    let rng = &mut Rng::with_seed(seed);
    let mut world = World::new(rng);
    let settings = world.life.settings;
    let meddling = rng.u32(..2) == 0;
    for _ in 0..rng.u64(..400) {
        if rng.u32(..15) == 0 {
            world.able = !world.able;
            let reasons = if world.able { vec![] } else { vec!["a lcore stands still".to_owned()] };
            world.hear(Event::Able { able: world.able, reasons }, rng);
        }
        if meddling && rng.u32(..40) == 0 {
            world.cloud.disturb(world.now, rng);
        }
        if rng.u32(..150) == 0 {
            world.restart(settings);
        }
        world.second(rng);
    }
    if rng.u32(..2) == 0 {
        stays(&mut world, rng);
    }
    leaves(&mut world, rng);
    drop(told);
}

/// Left alone by all, it ends registered, healthy and told so.
fn stays(world: &mut World, rng: &mut Rng) {
    (world.cloud.outage, world.cloud.slowness) = (None, 2);
    world.able = true;
    world.hear(Event::Able { able: true, reasons: Vec::new() }, rng);
    for _ in 0..700 {
        world.second(rng);
    }
    let reported = world.life.settings.on_lost == OnLost::Report && world.life.lost;
    assert!(reported || world.life.ready() && world.probe, "{:?}", world.life);
    assert!(reported || world.cloud.state == Some(TargetState::Healthy));
}

/// A signal or a notice comes, and whatever may go wrong does.
fn leaves(world: &mut World, rng: &mut Rng) {
    let began = world.now;
    let hook = world.life.settings.hook;
    match rng.u64(..4) {
        0 if hook => world.cloud.notices.terminating = true,
        1 if hook => world.cloud.notices.spot = Some(world.now + S * (1 + rng.u32(..200))),
        _ => signal(world, rng),
    }
    let impatient = rng.u32(..4) == 0;
    let meddling = rng.u32(..2) == 0;
    // With the slowest answer to the question for notices before it.
    for _ in 0..1000 {
        if world.exit.is_some() {
            world.check_exit(began);
            return;
        }
        if impatient && rng.u32(..60) == 0 {
            signal(world, rng);
            if world.signals == 2 {
                assert_eq!(world.exit, Some(Exit::Forced));
            }
        }
        if world.exit.is_none() && rng.u32(..30) == 0 {
            world.able = !world.able;
            let reasons = if world.able { vec![] } else { vec!["a link is down".to_owned()] };
            world.hear(Event::Able { able: world.able, reasons }, rng);
        }
        if meddling && rng.u32(..20) == 0 {
            world.cloud.disturb(world.now, rng);
        }
        if world.exit.is_none() {
            world.second(rng);
        }
    }
    panic!("it never ends: {:?}", world.life);
}

fn signal(world: &mut World, rng: &mut Rng) {
    world.signals += 1;
    world.terminated = world.terminated.or(Some(world.now));
    world.hear(Event::Terminate, rng);
}
