//! Random histories of a machine at Azure: outages, slow, lost and late answers, interference by
//! other parties, tunnels that change, flows that start and end, signals, scheduled events, kills
//! and restarts.
//!
//! Each history is determined by its seed. `SIMULATION_SEED=7 cargo test -p azure simulation`
//! repeats one; `SIMULATIONS=100000` runs that many.

mod azure;

use super::*;
use ::simulation::{AnsweredCall, Traffic};
use azure::{Azure, Owner};
use fastrand::Rng;

/// Default number of histories.
const HISTORIES: u64 = 5_000;

#[test]
fn random_histories_keep_the_invariants() {
    ::simulation::run_histories("azure simulation", HISTORIES, |rng| {
        ::simulation::run_history(&mut History::new(rng), rng)
    });
}

struct History {
    settings: AzureLifecycleSettings,
    managed: bool,
    membership: Membership,
    process: u64,
    now: Instant,
    azure: Azure,
    /// State on disk.
    persisted: PersistedState,
    /// No process runs until this time.
    absent_until: Option<Instant>,
    /// The machine was deleted.
    deleted: bool,
    able: bool,
    was_able: bool,
    probe: bool,
    /// Tunnels in force in the data plane.
    in_force: Vec<(Family, Tunnels)>,
    /// Tunnels in the configuration file.
    file: Vec<(Family, Tunnels)>,
    /// Tunnels that the data plane will apply, and when.
    pending_tunnels: Option<(Instant, Vec<(Family, Tunnels)>)>,
    traffic: Traffic,
    unknown_tunnel: u64,
    /// The last query of this process showed the machine in no pool.
    known_none: bool,
    /// This process has seen the machine in all pools, and has not left them since.
    observed_all: bool,
    /// Number of writes of this process.
    writes: u64,
    /// Of the last membership query: number of writes at its start, and time of its start.
    query: (u64, Instant),
    /// Start of the last successful membership query of this process.
    queried: Option<Instant>,
    /// Time of the first SIGTERM of this process, and the number of signals.
    signalled: Option<Instant>,
    signals: u32,
    /// The current drain has ended.
    drained: bool,
    exit: Option<Exit>,
    exits: u32,
    /// Events may delete the machine.
    deletable: bool,
    /// Numbers of exits and processes when the machine was last made to leave.
    before: (u32, u64),
}

impl History {
    fn new(rng: &mut Rng) -> History {
        let now = Instant::now();
        let settings = AzureLifecycleSettings {
            on_lost: if rng.u32(..3) == 0 { OnLost::Report } else { OnLost::Repair },
            remove: rng.choice([Remove::Own, Remove::Own, Remove::Always, Remove::Never]).unwrap(),
            drain_cap: rng.choice([5, 20, 60, 300]).unwrap() * S,
            idle: 5 * S,
            events: rng.u32(..4) != 0,
            preboot: if rng.u32(..4) == 0 { Preboot::Pass } else { Preboot::Fail },
            tunnels: if rng.u32(..5) == 0 { TunnelPolicy::Report } else { TunnelPolicy::Follow },
        };
        let managed = rng.u32(..4) == 0;
        let azure = Azure::new(now, managed, rng);
        let right = rng.u32(..2) == 0;
        let file = azure.tunnels().into_iter();
        let file: Vec<_> =
            file.map(|(of, reported)| (of, if right { reported } else { tunnels(99) })).collect();
        History {
            settings,
            managed,
            membership: Membership::new(settings, managed, PersistedState::default(), now),
            process: 0,
            now,
            azure,
            persisted: PersistedState::default(),
            absent_until: None,
            deleted: false,
            able: false,
            was_able: false,
            probe: false,
            in_force: file.clone(),
            file,
            pending_tunnels: None,
            traffic: Traffic::new(now),
            unknown_tunnel: 0,
            known_none: false,
            observed_all: false,
            writes: 0,
            query: (0, now),
            queried: None,
            signalled: None,
            signals: 0,
            drained: false,
            exit: None,
            exits: 0,
            deletable: false,
            before: (u32::MAX, u64::MAX),
        }
    }

    fn handle(&mut self, event: Event, rng: &mut Rng) {
        if self.absent_until.is_some() || self.deleted {
            return;
        }
        for effect in self.membership.step(self.now, event) {
            assert!(self.exit.is_none(), "no effect follows the exit");
            match effect {
                Effect::Call(call) => self.call(call, rng),
                Effect::Probe { pass, reasons } => {
                    assert_eq!(pass, reasons.is_empty());
                    self.probe = pass;
                }
                Effect::Tunnels(reported) => self.send(reported, rng),
                Effect::Persist(persisted) => {
                    assert_ne!(persisted, self.persisted, "no change");
                    self.azure.ambiguous &= persisted.joined;
                    // Another party added the machine after the query that showed no membership.
                    self.azure.ambiguous |= persisted.joined
                        && !self.persisted.joined
                        && self.queried.is_some_and(|at| self.azure.others_at >= at);
                    self.persisted = persisted;
                }
                Effect::FlowTimeout(timeout) => panic!("Azure has no timeout: {timeout:?}"),
                Effect::Finding(finding) => {
                    assert!(!finding.text.is_empty() && !finding.remedy.is_empty());
                }
                Effect::Exit(exit) => {
                    self.end_drain(exit == Exit::Forced);
                    self.exit = Some(exit);
                }
            }
        }
        self.check();
    }

    /// Passes tunnels to the data plane, which applies them within 3 s, or in one of ten cases not
    /// at all.
    fn send(&mut self, reported: Vec<(Family, Tunnels)>, rng: &mut Rng) {
        assert_eq!(self.settings.tunnels, TunnelPolicy::Follow);
        assert_ne!(reported, self.in_force, "no change");
        for (family, reported) in &reported {
            assert!(self.in_force.iter().any(|(of, _)| of == family), "no pool of {family:?}");
            let ever = &self.azure.ever;
            assert!(ever.contains(&(*family, *reported)), "{reported:?} was never reported");
        }
        let applied = rng.u32(..10) != 0;
        self.pending_tunnels = applied.then(|| (self.now + S * rng.u32(..4), reported));
    }

    fn call(&mut self, call: Call, rng: &mut Rng) {
        let in_progress = self.azure.calls.in_progress(self.process);
        let clash = |other: &Call| *other == call || other.is_write() && call.is_write();
        assert!(
            !in_progress.iter().any(clash),
            "{call:?} while another is in progress: {:?}",
            self.azure.calls
        );
        if call.is_write() {
            assert!(!self.managed, "{call:?} where a scale set's model owns the membership");
            self.writes += 1;
        }
        let leaving = self.membership.leaving().is_some();
        match call {
            Call::ReadPools => self.query = (self.writes, self.now),
            Call::Join => {
                assert!(self.able && !leaving);
                assert!(self.queried.is_some_and(|at| self.azure.lacked_at >= at), "no need");
                let lost = self.settings.on_lost == OnLost::Report && self.observed_all;
                assert!(!lost, "a loss is only reported");
            }
            Call::Down => {
                assert!(leaving && self.persisted.down, "not persisted before the call");
                self.azure.foreign_down = false;
            }
            Call::Up => {
                assert!(!leaving && self.persisted.down);
                assert!(!self.azure.foreign_down, "another party's Down");
            }
            Call::Leave => {
                self.end_drain(false);
                self.observed_all = false;
                match self.settings.remove {
                    Remove::Never => panic!("never to be removed"),
                    Remove::Always => {}
                    Remove::Own => {
                        let own = self.azure.ambiguous || !self.azure.has(Owner::Other);
                        assert!(self.persisted.joined && own, "another party's membership");
                    }
                }
            }
            Call::Acknowledge => {
                self.end_drain(false);
                let id = self.membership.event().expect("an event").to_owned();
                self.azure.acknowledging = Some(id);
            }
            Call::ReadTunnels | Call::ReadEvents => {}
        }
        self.azure.request(call, self.process, self.now, rng);
    }

    /// Records that the drain has ended. Unless the end is `forced`, checks that it was due.
    fn end_drain(&mut self, forced: bool) {
        if std::mem::replace(&mut self.drained, true) || forced {
            return;
        }
        let (why, gone_by) = self.membership.leaving().expect("no drain");
        let capped = self.now + 20 * S >= gone_by;
        let rest = self.now - self.traffic.active_at;
        let is_idle = self.traffic.flows == 0 && rest >= self.settings.idle;
        assert!(
            capped || is_idle,
            "{why:?}: the drain ended with {} flows, {rest:?} after the last packet",
            self.traffic.flows
        );
    }

    /// Advances Azure by a second; calls that are due are answered in any order.
    fn serve(&mut self, rng: &mut Rng) {
        self.azure.pass(self.now, self.probe, rng);
        while let Some(answered) = self.azure.calls.take_answer(self.now, rng) {
            let AnsweredCall { process, answer, .. } = answered;
            if process != self.process || self.exit.is_some() || self.absent_until.is_some() {
                continue;
            }
            match &answer {
                Answer::Pools(Ok(pools)) => {
                    self.queried = Some(self.query.1);
                    if self.query.0 == self.writes {
                        self.known_none = pools.iter().all(|pool| pool.member.is_none());
                        self.observed_all |= pools.iter().all(|pool| pool.member.is_some());
                    }
                }
                Answer::Joined(Ok(_)) => self.known_none = false,
                Answer::Left(Ok(())) => (self.known_none, self.observed_all) = (true, false),
                _ => {}
            }
            self.handle(Event::Answered(answer), rng);
        }
    }

    /// Kills or ends the process and starts another. Calls of the old one still take effect.
    fn restart(&mut self, rng: &mut Rng) {
        self.process += 1;
        self.absent_until = None;
        self.membership =
            Membership::new(self.settings, self.managed, self.persisted.clone(), self.now);
        (self.probe, self.able, self.was_able) = (false, false, false);
        (self.known_none, self.observed_all, self.queried, self.writes) = (false, false, None, 0);
        (self.signalled, self.signals, self.drained, self.exit) = (None, 0, false, None);
        if rng.u32(..2) == 0 {
            (self.in_force, self.pending_tunnels) = (self.file.clone(), None);
        }
        self.handle(Event::TunnelsInForce(self.in_force.clone()), rng);
        self.handle(Event::Clock(self.azure.clock(self.now)), rng);
    }

    /// Ends the process for some seconds.
    fn stop_process(&mut self, seconds: u64) {
        self.absent_until = Some(self.now + S * seconds as u32);
        (self.probe, self.traffic.flows) = (false, 0);
    }

    fn apply_tunnels(&mut self) {
        if let Some((_, reported)) = self.pending_tunnels.take_if(|(at, _)| self.now >= *at) {
            for (family, reported) in reported {
                if let Some(one) = self.in_force.iter_mut().find(|(of, _)| *of == family) {
                    one.1 = reported;
                }
            }
        }
    }

    /// Advances the traffic. With other tunnels in force than Azure uses, packets arrive in unknown
    /// tunnels, and no new flows.
    fn traffic(&mut self, rng: &mut Rng) {
        let receives = self.azure.sends() && self.exit.is_none() && self.absent_until.is_none();
        let tunnels_match = self.in_force == self.azure.tunnels();
        if receives && !tunnels_match {
            self.unknown_tunnel += rng.u64(..3);
        }
        self.traffic.advance(self.now, (receives, receives && tunnels_match), rng);
    }

    /// Checks the invariants after each step.
    fn check(&mut self) {
        if self.exit.is_some() {
            assert!(self.signalled.is_some(), "the process ended without a reason");
            return;
        }
        let preboot = self.settings.preboot == Preboot::Pass && !self.was_able;
        let leaving = self.membership.leaving().is_some();
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

    /// Checks that the exit matches the signals received, and that no flow was lost.
    fn check_exit(&self) {
        let exit = self.exit.expect("an end");
        assert_eq!(exit == Exit::Forced, self.signals >= 2);
        if exit == Exit::Drained && !self.azure.sends() && !self.azure.disturbed {
            assert_eq!(self.traffic.flows, 0, "flows were lost");
        }
    }
}

impl ::simulation::Scenario for History {
    fn start(&mut self, rng: &mut Rng) {
        self.deletable = rng.u32(..3) == 0;
        self.restart(rng);
    }

    fn tick(&mut self, rng: &mut Rng) {
        self.now += S;
        self.serve(rng);
        match self.azure.due_event(self.now, rng) {
            Some(EventKind::Preempt | EventKind::Terminate) => self.deleted = true,
            Some(EventKind::Reboot | EventKind::Redeploy) => self.stop_process(30 + rng.u64(..60)),
            _ => {}
        }
        if self.exit.is_some() && self.absent_until.is_none() {
            self.exits += 1;
            self.check_exit();
            self.stop_process(1 + rng.u64(..20));
        }
        if self.absent_until.is_some_and(|until| self.now >= until) && !self.deleted {
            self.restart(rng);
        }
        self.apply_tunnels();
        self.traffic(rng);
        let (Traffic { flows, packets, .. }, unknown_tunnel) = (self.traffic, self.unknown_tunnel);
        self.handle(Event::Activity { flows, packets, unknown_tunnel }, rng);
        self.handle(Event::TunnelsInForce(self.in_force.clone()), rng);
        self.handle(Event::Clock(self.azure.clock(self.now)), rng);
    }

    fn set_able(&mut self, able: impl FnOnce(bool, &mut Rng) -> bool, rng: &mut Rng) {
        self.able = able(self.able, rng);
        let able = self.able;
        self.was_able |= able;
        let reasons = if able { vec![] } else { vec!["an lcore is stalled".to_owned()] };
        self.handle(Event::Able { able, reasons }, rng);
    }

    fn disturb(&mut self, rng: &mut Rng) {
        self.azure.disturb(self.now, self.persisted.joined, self.persisted.down, rng);
    }

    fn random_events(&mut self, rng: &mut Rng) {
        if rng.u32(..100) == 0 {
            self.azure.schedule(self.now, self.deletable, rng);
        }
        if rng.u32(..150) == 0 {
            self.stop_process(rng.u64(..5));
        }
        if rng.u32(..200) == 0 {
            self.signal(rng);
        }
    }

    fn signal(&mut self, rng: &mut Rng) {
        if self.absent_until.is_some() || self.exit.is_some() {
            return;
        }
        self.signals += 1;
        self.signalled = self.signalled.or(Some(self.now));
        self.handle(Event::Terminate, rng);
        if self.signals == 2 {
            assert_eq!(self.exit, Some(Exit::Forced));
        }
    }

    /// Without interference, the machine becomes ready, with the tunnels of its pools and not
    /// `Down`.
    fn settle(&mut self, rng: &mut Rng) {
        // Weir may not join again in these cases, so another party adds the machine.
        let others_join = self.managed || self.settings.on_lost == OnLost::Report;
        for second in 0..1500 {
            if second % 100 == 0 && second < 800 {
                self.azure.stop_disturbing(others_join, self.now, self.persisted.joined);
            }
            if !self.able {
                self.set_able(|_, _| true, rng);
            }
            self.tick(rng);
        }
        assert!(self.membership.ready() && self.probe, "{:?}\n{:?}", self.membership, self.azure);
        assert!(!self.persisted.down, "{:?}", self.persisted);
        assert!(self.azure.probe_decides(), "{:?}", self.azure);
        if self.settings.tunnels == TunnelPolicy::Follow {
            assert_eq!(self.in_force, self.azure.tunnels());
            assert_eq!(self.persisted.tunnels, self.azure.tunnels());
        }
        assert!(!self.membership.differs());
    }

    /// Sends a signal or schedules an event.
    fn leave(&mut self, rng: &mut Rng) {
        self.before = (self.exits, self.process);
        if rng.u32(..3) == 0 {
            self.azure.schedule(self.now, false, rng);
        }
    }

    fn needs_signal(&self) -> bool {
        self.signalled.is_none()
    }

    /// The process has exited, or the machine has ended.
    fn is_over(&mut self) -> bool {
        let (exits, process) = self.before;
        self.exits > exits || self.process > process || self.deleted
    }
}
