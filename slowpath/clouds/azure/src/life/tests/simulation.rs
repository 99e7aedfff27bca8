//! Histories of a machine at Azure: outages, slow, lost and late answers, others who interfere,
//! tunnels that change, flows that come and go, signals, scheduled events, kills and restarts.
//!
//! Each history follows from its seed. `SIMULATION_SEED=7 cargo test -p azure life` plays one
//! again; `SIMULATIONS=100000` plays as many.

mod azure;

use super::*;
use azure::{Azure, Owner};

/// How many histories are played where nobody says.
const HISTORIES: u64 = 5_000;

#[test]
fn whatever_happens_it_tells_the_truth_joins_follows_drains_and_ends() {
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
            eprintln!("play it again: SIMULATION_SEED={} cargo test -p azure life", self.0);
        }
    }
}

/// SplitMix64.
pub(super) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

struct World {
    settings: AzureLife,
    managed: bool,
    life: Life,
    process: u64,
    now: Instant,
    azure: Azure,
    /// What is on disk.
    kept: Kept,
    /// No process runs until then.
    absent_until: Option<Instant>,
    /// The machine is deleted.
    dead: bool,
    able: bool,
    was_able: bool,
    probe: bool,
    /// In force, in the file, and what becomes of the first.
    carried: Vec<(Family, Tunnels)>,
    file: Vec<(Family, Tunnels)>,
    coming: Option<(Instant, Vec<(Family, Tunnels)>)>,
    flows: u64,
    packets: u64,
    strange: u64,
    active_at: Instant,
    /// Known by this process: a member of none.
    known_none: bool,
    /// This process saw itself in all pools, and did not leave them since.
    seen_all: bool,
    /// How many writes this process asked for, and had when the look under way began.
    writes: u64,
    look: (u64, Instant),
    /// When the last look that was answered well began.
    looked: Option<Instant>,
    /// The first SIGTERM of this process, and how many.
    signalled: Option<Instant>,
    signals: u32,
    /// This drain was over.
    drained: bool,
    exit: Option<Exit>,
    exits: u32,
}

impl World {
    fn new(random: &mut Random) -> World {
        let now = Instant::now();
        let settings = AzureLife {
            on_lost: if random.one_in(3) { OnLost::Report } else { OnLost::Repair },
            remove: random.of(&[Remove::Own, Remove::Own, Remove::Always, Remove::Never]),
            drain_cap: random.of(&[5, 20, 60, 300]) * S,
            quiet: 5 * S,
            events: !random.one_in(4),
            preboot: if random.one_in(4) { Preboot::Pass } else { Preboot::Refuse },
            tunnels: if random.one_in(5) { Told::Alarm } else { Told::Follow },
        };
        let managed = random.one_in(4);
        let azure = Azure::new(now, managed, random);
        let right = random.one_in(2);
        let file = azure.tunnels().into_iter();
        let file: Vec<_> =
            file.map(|(of, told)| (of, if right { told } else { tunnels(99) })).collect();
        World {
            settings,
            managed,
            life: Life::new(settings, managed, Kept::default(), now),
            process: 0,
            now,
            azure,
            kept: Kept::default(),
            absent_until: None,
            dead: false,
            able: false,
            was_able: false,
            probe: false,
            carried: file.clone(),
            file,
            coming: None,
            flows: 0,
            packets: 0,
            strange: 0,
            active_at: now,
            known_none: false,
            seen_all: false,
            writes: 0,
            look: (0, now),
            looked: None,
            signalled: None,
            signals: 0,
            drained: false,
            exit: None,
            exits: 0,
        }
    }

    fn hear(&mut self, event: Event, random: &mut Random) {
        if self.absent_until.is_some() || self.dead {
            return;
        }
        for effect in self.life.step(self.now, event) {
            assert!(self.exit.is_none(), "nothing comes behind the exit");
            match effect {
                Effect::Call(call) => self.call(call, random),
                Effect::Probe { pass, reasons } => {
                    assert_eq!(pass, reasons.is_empty());
                    self.probe = pass;
                }
                Effect::Tunnels(told) => self.send(told, random),
                Effect::Keep(kept) => {
                    assert_ne!(kept, self.kept, "nothing new");
                    self.azure.doubtful &= kept.joined;
                    // Somebody joined us after the look by which we saw that nobody had.
                    self.azure.doubtful |= kept.joined
                        && !self.kept.joined
                        && self.looked.is_some_and(|at| self.azure.others_at >= at);
                    self.kept = kept;
                }
                Effect::Finding(finding) => {
                    assert!(!finding.text.is_empty() && !finding.remedy.is_empty());
                }
                Effect::Exit(exit) => {
                    self.over(exit == Exit::Forced);
                    self.exit = Some(exit);
                }
            }
        }
        self.check();
    }

    /// The data plane is to have other tunnels; it takes its time, and now and then it takes none.
    fn send(&mut self, told: Vec<(Family, Tunnels)>, random: &mut Random) {
        assert_eq!(self.settings.tunnels, Told::Follow);
        assert_ne!(told, self.carried, "nothing new");
        for (family, told) in &told {
            assert!(self.carried.iter().any(|(of, _)| of == family), "no pool of {family:?}");
            assert!(self.azure.ever.contains(&(*family, *told)), "nobody told {told:?}");
        }
        let taken = !random.one_in(10);
        self.coming = taken.then(|| (self.now + S * random.below(4) as u32, told));
    }

    fn call(&mut self, call: Call, random: &mut Random) {
        self.azure.check_single(call, self.process);
        if call.is_write() {
            assert!(!self.managed, "{call:?} where a scale set's model owns the membership");
            self.writes += 1;
        }
        let leaving = self.life.leaving().is_some();
        match call {
            Call::Look => self.look = (self.writes, self.now),
            Call::Join => {
                assert!(self.able && !leaving);
                assert!(self.looked.is_some_and(|at| self.azure.lacked_at >= at), "no need");
                let lost = self.settings.on_lost == OnLost::Report && self.seen_all;
                assert!(!lost, "it was only to be reported");
            }
            Call::Down => {
                assert!(leaving && self.kept.down, "not kept before it was asked for");
                self.azure.foreign_down = false;
            }
            Call::Up => {
                assert!(!leaving && self.kept.down);
                assert!(!self.azure.foreign_down, "somebody else's Down");
            }
            Call::Leave => {
                self.over(false);
                self.seen_all = false;
                match self.settings.remove {
                    Remove::Never => panic!("never to be removed"),
                    Remove::Always => {}
                    Remove::Own => {
                        let ours = self.azure.doubtful || !self.azure.has(Owner::Other);
                        assert!(self.kept.joined && ours, "somebody else's membership");
                    }
                }
            }
            Call::Acknowledge => {
                self.over(false);
                let id = self.life.event().expect("an event").to_owned();
                self.azure.acknowledging = Some(id);
            }
            Call::AskTunnels | Call::AskEvents => {}
        }
        self.azure.ask(call, self.process, self.now, random);
    }

    /// The drain is over, or it is a forced end.
    fn over(&mut self, forced: bool) {
        if std::mem::replace(&mut self.drained, true) || forced {
            return;
        }
        let (why, gone_by) = self.life.leaving().expect("it leaves");
        let capped = self.now + 20 * S >= gone_by;
        let rest = self.now - self.active_at;
        let quiet = self.flows == 0 && rest >= self.settings.quiet;
        assert!(capped || quiet, "{why:?}: over with {} flows, {rest:?} of rest", self.flows);
    }

    /// A second passes for Azure; calls that are ready are answered, in any order.
    fn serve(&mut self, random: &mut Random) {
        self.azure.pass(self.now, self.probe, random);
        while let Some((process, answer)) = self.azure.answered(self.now, random) {
            if process != self.process || self.exit.is_some() || self.absent_until.is_some() {
                continue;
            }
            match &answer {
                Answer::Looked(Ok(pools)) => {
                    self.looked = Some(self.look.1);
                    if self.look.0 == self.writes {
                        self.known_none = pools.iter().all(|pool| pool.member.is_none());
                        self.seen_all |= pools.iter().all(|pool| pool.member.is_some());
                    }
                }
                Answer::Joined(Ok(_)) => self.known_none = false,
                Answer::Left(Ok(())) => (self.known_none, self.seen_all) = (true, false),
                _ => {}
            }
            self.hear(Event::Told(answer), random);
        }
    }

    /// The process is killed or ended, and another begins. What it asked takes effect nevertheless.
    fn restart(&mut self, random: &mut Random) {
        self.process += 1;
        self.absent_until = None;
        self.life = Life::new(self.settings, self.managed, self.kept.clone(), self.now);
        (self.probe, self.able, self.was_able) = (false, false, false);
        (self.known_none, self.seen_all, self.looked, self.writes) = (false, false, None, 0);
        (self.signalled, self.signals, self.drained, self.exit) = (None, 0, false, None);
        if random.one_in(2) {
            (self.carried, self.coming) = (self.file.clone(), None);
        }
        self.hear(Event::Carries(self.carried.clone()), random);
        self.hear(Event::Clock(self.azure.clock(self.now)), random);
    }

    fn die(&mut self, seconds: u64) {
        self.absent_until = Some(self.now + S * seconds as u32);
        (self.probe, self.flows) = (false, 0);
    }

    /// A second of everything.
    fn second(&mut self, random: &mut Random) {
        self.now += S;
        self.serve(random);
        match self.azure.strikes(self.now, random) {
            Some(EventKind::Preempt | EventKind::Terminate) => self.dead = true,
            Some(EventKind::Reboot | EventKind::Redeploy) => self.die(30 + random.below(60)),
            _ => {}
        }
        if self.exit.is_some() && self.absent_until.is_none() {
            self.exits += 1;
            self.check_exit();
            self.die(1 + random.below(20));
        }
        if self.absent_until.is_some_and(|until| self.now >= until) && !self.dead {
            self.restart(random);
        }
        self.carry();
        self.traffic(random);
        let (flows, packets, strange) = (self.flows, self.packets, self.strange);
        self.hear(Event::Activity { flows, packets, strange }, random);
        self.hear(Event::Carries(self.carried.clone()), random);
        self.hear(Event::Clock(self.azure.clock(self.now)), random);
    }

    fn carry(&mut self) {
        if let Some((_, told)) = self.coming.take_if(|(at, _)| self.now >= *at) {
            for (family, told) in told {
                if let Some(one) = self.carried.iter_mut().find(|(of, _)| *of == family) {
                    one.1 = told;
                }
            }
        }
    }

    /// Flows come where the gateway sends new ones, and go by themselves.
    fn traffic(&mut self, random: &mut Random) {
        let gets = self.azure.sends() && self.exit.is_none() && self.absent_until.is_none();
        if gets && self.carried != self.azure.tunnels() {
            self.strange += random.below(3);
        } else if gets && random.one_in(4) {
            self.flows += random.below(3);
        }
        if self.flows > 0 && random.one_in(8) {
            self.flows -= 1;
        }
        if self.flows > 0 || (gets && random.one_in(2)) {
            self.packets += 1;
            self.active_at = self.now;
        }
    }

    /// What holds after each step.
    fn check(&mut self) {
        if self.exit.is_some() {
            assert!(self.signalled.is_some(), "nobody asked for the end of the process");
            return;
        }
        let preboot = self.settings.preboot == Preboot::Pass && !self.was_able;
        let leaving = self.life.leaving().is_some();
        if self.probe {
            assert!(!leaving, "200 while leaving");
            assert!(self.able || preboot, "200 while not able");
            assert!(!self.known_none || preboot, "200 while known not to be a member");
        }
        if !leaving {
            self.drained = false;
        }
        if let Some(since) = self.signalled {
            let late = since + self.settings.drain_cap + 20 * S + 2 * S;
            assert!(self.now <= late, "not gone in time");
        }
    }

    /// What holds of how it ended.
    fn check_exit(&self) {
        let exit = self.exit.expect("an end");
        assert_eq!(exit == Exit::Forced, self.signals >= 2);
        if exit == Exit::Drained && !self.azure.sends() && !self.azure.meddled {
            assert_eq!(self.flows, 0, "flows were lost");
        }
    }

    fn set_able(&mut self, able: bool, random: &mut Random) {
        self.able = able;
        self.was_able |= able;
        let reasons = if able { vec![] } else { vec!["a lcore stands still".to_owned()] };
        self.hear(Event::Able { able, reasons }, random);
    }

    fn signal(&mut self, random: &mut Random) {
        if self.absent_until.is_some() || self.exit.is_some() {
            return;
        }
        self.signals += 1;
        self.signalled = self.signalled.or(Some(self.now));
        self.hear(Event::Terminate, random);
        if self.signals == 2 {
            assert_eq!(self.exit, Some(Exit::Forced));
        }
    }
}

fn history(seed: u64) {
    let told = Seed(seed);
    let random = &mut Random(seed);
    let mut world = World::new(random);
    let (meddling, dying) = (random.one_in(2), random.one_in(3));
    world.restart(random);
    for _ in 0..random.below(500) {
        if random.one_in(15) {
            let able = !world.able || random.one_in(3);
            world.set_able(able, random);
        }
        if meddling && random.one_in(40) {
            world.azure.disturb(world.now, world.kept.joined, world.kept.down, random);
        }
        if random.one_in(100) {
            world.azure.schedule(world.now, dying, random);
        }
        if random.one_in(150) {
            world.die(random.below(5));
        }
        if random.one_in(200) {
            world.signal(random);
        }
        world.second(random);
        if world.dead {
            return;
        }
    }
    if random.one_in(2) {
        stays(&mut world, random);
    }
    leaves(&mut world, meddling, random);
    drop(told);
}

/// Left alone by all, it ends ready, with the right tunnels, and held down by nobody.
fn stays(world: &mut World, random: &mut Random) {
    let given = world.managed || world.settings.on_lost == OnLost::Report;
    for second in 0..1500 {
        if second % 100 == 0 && second < 800 {
            world.azure.calm(given, world.now, world.kept.joined);
        }
        if !world.able {
            world.set_able(true, random);
        }
        world.second(random);
    }
    assert!(world.life.ready() && world.probe, "{:?}\n{:?}", world.life, world.azure);
    assert!(!world.kept.down, "{:?}", world.kept);
    assert!(world.azure.is_welcome(), "{:?}", world.azure);
    if world.settings.tunnels == Told::Follow {
        assert_eq!(world.carried, world.azure.tunnels());
        assert_eq!(world.kept.tunnels, world.azure.tunnels());
    }
    assert!(!world.life.differs());
}

/// A signal or an event comes, and whatever may go wrong does.
fn leaves(world: &mut World, meddling: bool, random: &mut Random) {
    let (exits, process) = (world.exits, world.process);
    if random.one_in(3) {
        world.azure.schedule(world.now, false, random);
    }
    let impatient = random.one_in(4);
    let bound = world.settings.drain_cap.as_secs() + 200;
    for _ in 0..bound {
        // Ended, or the machine did it for us.
        if world.exits > exits || world.process > process || world.dead {
            return;
        }
        if world.signalled.is_none() || impatient && random.one_in(60) {
            world.signal(random);
        }
        if random.one_in(30) {
            let able = !world.able;
            world.set_able(able, random);
        }
        if meddling && random.one_in(20) {
            world.azure.disturb(world.now, world.kept.joined, world.kept.down, random);
        }
        world.second(random);
    }
    panic!("it never ends: {:?}", world.life);
}
