//! Tests of the lifecycle by scenario. Calls succeed at once unless a scenario sets otherwise.

mod events;
mod shutdown;
mod simulation;
mod tunnels;

use config::checked::{MembershipMode, OnLost, Remove, TunnelPolicy};

use super::*;
use crate::types::{CallError, EventKind, Family, ScheduledEvent, TunnelEnd, Tunnels};

const S: Duration = Duration::from_secs(1);
/// Unix time in seconds at the start of a scenario.
const CLOCK: u64 = 1_800_000_000;

pub(super) fn settings() -> AzureLifecycleSettings {
    AzureLifecycleSettings {
        on_lost: OnLost::Repair,
        remove: Remove::Own,
        drain_cap: 300 * S,
        idle: 5 * S,
        events: true,
        preboot: Preboot::Fail,
        tunnels: TunnelPolicy::Follow,
    }
}

/// Returns tunnels that differ by `number`.
pub(super) fn tunnels(number: u16) -> Tunnels {
    let end = |port, vni| TunnelEnd { port: port + number, vni: vni + u32::from(number) };
    Tunnels { external: end(20801, 801), internal: end(10800, 800) }
}

pub(super) fn error(kind: Failure) -> CallError {
    let (code, message) = ("SomeCode".to_owned(), "it did not work".to_owned());
    CallError { operation: "Some_Operation", kind, code, message }
}

fn entry(admin: AdminState) -> Option<Member> {
    Some(Member { mode: MembershipMode::Nic, admin })
}

pub(super) fn event(id: &str, kind: EventKind, not_before: Option<u64>) -> ScheduledEvent {
    let description = "it is expected".to_owned();
    ScheduledEvent { id: id.to_owned(), kind, started: false, not_before, description }
}

/// The state machine, and an Azure that answers each call at once from these fields.
struct Harness {
    membership: Membership,
    now: Instant,
    begun: Instant,
    pools: Vec<PoolState>,
    imds: Vec<(Family, Tunnels)>,
    events: Vec<ScheduledEvent>,
    in_force: Vec<(Family, Tunnels)>,
    /// True if the data plane applies new tunnels.
    applies: bool,
    persisted: PersistedState,
    fails: BTreeMap<Call, Failure>,
    /// Calls that are not answered.
    hangs: Vec<Call>,
    /// Effects in the form of [`describe`], each with the seconds since the start.
    effects: Vec<(u64, String)>,
    flows: u64,
    packets: u64,
    unknown_tunnel: u64,
    traffic: bool,
    acknowledged: Vec<String>,
}

impl Harness {
    fn new(settings: AzureLifecycleSettings) -> Harness {
        Harness::with(settings, false, PersistedState::default())
    }

    fn with(settings: AzureLifecycleSettings, managed: bool, persisted: PersistedState) -> Harness {
        let now = Instant::now();
        let family = Family::V4;
        let pool = PoolState { family, member: None, tunnels: Ok(tunnels(0)), probed: true };
        Harness {
            membership: Membership::new(settings, managed, persisted.clone(), now),
            now,
            begun: now,
            pools: vec![pool],
            imds: vec![(family, tunnels(0))],
            events: Vec::new(),
            in_force: vec![(family, tunnels(0))],
            applies: true,
            persisted,
            fails: BTreeMap::new(),
            hangs: Vec::new(),
            effects: Vec::new(),
            flows: 0,
            packets: 0,
            unknown_tunnel: 0,
            traffic: false,
            acknowledged: Vec::new(),
        }
    }

    /// Returns a started, able machine whose membership was made by another party.
    fn foreign_member(settings: AzureLifecycleSettings) -> Harness {
        let mut harness = Harness::new(settings);
        harness.pools[0].member = entry(AdminState::None);
        harness.packets = 7;
        harness.start();
        harness
    }

    /// Returns a machine that is ready with its own membership, with the recorded effects cleared.
    fn ready(settings: AzureLifecycleSettings) -> Harness {
        let mut harness = Harness::new(settings);
        harness.packets = 7;
        harness.start();
        harness.settle();
        harness
    }

    /// Lets a minute pass, asserts that the machine is ready, and clears the recorded effects.
    fn settle(&mut self) {
        self.pass(60);
        assert!(self.membership.ready(), "{:?}", self.membership);
        self.forget();
    }

    /// Clears the recorded effects; times count from now on.
    fn forget(&mut self) {
        self.begun = self.now;
        self.effects.clear();
    }

    fn start(&mut self) {
        self.handle(Event::TunnelsInForce(self.in_force.clone()));
        self.handle(Event::Clock(CLOCK));
        self.able();
    }

    fn able(&mut self) {
        self.handle(Event::Able { able: true, reasons: Vec::new() });
    }

    fn two_pools(&mut self) {
        let v6 =
            PoolState { family: Family::V6, tunnels: Ok(tunnels(50)), ..self.pools[0].clone() };
        self.imds.push((Family::V6, tunnels(50)));
        self.in_force.push((Family::V6, tunnels(50)));
        self.pools.push(v6);
    }

    fn handle(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.membership.step(self.now, event) {
                self.effects.push(((self.now - self.begun).as_secs(), describe(&effect)));
                match effect {
                    Effect::Call(call) if !self.hangs.contains(&call) => {
                        let answer = self.answer(call);
                        events.insert(0, Event::Answered(answer));
                    }
                    Effect::Tunnels(tunnels) if self.applies => {
                        for (family, reported) in tunnels {
                            let one = self.in_force.iter_mut().find(|(of, _)| *of == family);
                            one.expect("a family with a pool").1 = reported;
                        }
                        events.insert(0, Event::TunnelsInForce(self.in_force.clone()));
                    }
                    Effect::Persist(persisted) => self.persisted = persisted,
                    _ => {}
                }
            }
        }
    }

    fn set_admin(&mut self, admin: AdminState) {
        for member in self.pools.iter_mut().filter_map(|pool| pool.member.as_mut()) {
            member.admin = admin;
        }
    }

    fn answer(&mut self, call: Call) -> Answer {
        if let Some(kind) = self.fails.get(&call) {
            return Answer::failed(call, error(*kind));
        }
        match call {
            Call::ReadPools => Answer::Pools(Ok(self.pools.clone())),
            Call::Join => {
                let written = self.pools.iter().any(|pool| pool.member.is_none());
                for pool in &mut self.pools {
                    pool.member = pool.member.or(entry(AdminState::None));
                }
                Answer::Joined(Ok(written))
            }
            Call::Down => {
                self.set_admin(AdminState::Down);
                Answer::Down(Ok(()))
            }
            Call::Up => {
                self.set_admin(AdminState::None);
                Answer::Up(Ok(()))
            }
            Call::Leave => {
                self.pools.iter_mut().for_each(|pool| pool.member = None);
                Answer::Left(Ok(()))
            }
            Call::ReadTunnels => Answer::Tunnels(Ok(self.imds.clone())),
            Call::ReadEvents => Answer::Events(Ok(self.events.clone())),
            Call::Acknowledge => {
                self.acknowledged.push(self.membership.event().expect("one").to_owned());
                Answer::Acknowledged(Ok(()))
            }
        }
    }

    /// Advances time, with activity and the tunnels in force every second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += S;
            self.packets += u64::from(self.traffic);
            let (flows, packets, unknown_tunnel) = (self.flows, self.packets, self.unknown_tunnel);
            self.handle(Event::Activity { flows, packets, unknown_tunnel });
            self.handle(Event::TunnelsInForce(self.in_force.clone()));
        }
    }

    /// Kills the process and starts another.
    fn restart(&mut self) {
        let (settings, managed) = (self.membership.settings, self.membership.managed);
        self.membership = Membership::new(settings, managed, self.persisted.clone(), self.now);
        self.forget();
        self.start();
    }

    /// Returns the recorded effects, without queries and persisted state.
    fn visible_effects(&self) -> Vec<(u64, &str)> {
        let query = |effect: &str| effect.starts_with("Read") || effect.starts_with("persist");
        let effects = self.effects.iter().map(|(at, effect)| (*at, effect.as_str()));
        effects.filter(|(_, effect)| !query(effect)).collect()
    }

    /// Returns when an effect was first recorded.
    #[track_caller]
    fn first(&self, what: &str) -> u64 {
        let found = self.effects.iter().find(|(_, effect)| effect.starts_with(what));
        found.unwrap_or_else(|| panic!("no {what}: {:?}", self.visible_effects())).0
    }

    fn count(&self, what: &str) -> usize {
        self.effects.iter().filter(|(_, effect)| effect == what).count()
    }

    /// Asserts that these effects were recorded in this order, among others.
    #[track_caller]
    fn assert_order(&self, expected: &[&str]) {
        let mut effects = self.effects.iter();
        for what in expected {
            let found = effects.any(|(_, effect)| effect.starts_with(what));
            assert!(found, "{what} of {expected:?}: {:?}", self.effects);
        }
    }

    /// Returns the number of calls that write entries.
    fn writes(&self) -> usize {
        ["Join", "Down", "Up", "Leave"].into_iter().map(|write| self.count(write)).sum()
    }
}

fn describe(effect: &Effect) -> String {
    match effect {
        Effect::Call(call) => format!("{call:?}"),
        Effect::Probe { pass: true, .. } => "200".to_owned(),
        Effect::Probe { reasons, .. } => format!("503 {}", reasons.join(", ")),
        Effect::Tunnels(tunnels) => {
            let ports = tunnels.iter().map(|(_, tunnels)| tunnels.internal.port.to_string());
            format!("tunnels {}", ports.collect::<Vec<_>>().join(" "))
        }
        Effect::Persist(PersistedState { joined, down, .. }) => {
            let flag = |is: &bool, word| if *is { word } else { "" };
            format!("persist{}{}", flag(joined, " joined"), flag(down, " down"))
        }
        Effect::FlowTimeout(timeout) => format!("timeout {timeout:?}"),
        Effect::Finding(finding) => finding.name.to_owned(),
        Effect::Exit(exit) => format!("exit {exit:?}"),
    }
}

#[test]
fn startup_fails_probe_then_joins_then_passes_probe() {
    let mut harness = Harness::new(settings());
    harness.pass(3);
    let starting = "503 starting, membership of the pool not known yet";
    assert_eq!(harness.effects[0], (1, starting.to_owned()));
    harness.assert_order(&["503 starting, not a member of the pool"]);
    assert_eq!((harness.writes(), harness.count("200")), (0, 0), "not able");
    harness.forget();
    harness.start();
    harness.assert_order(&[
        "503 not a member of the pool",
        "persist joined",
        "Join",
        "200",
        "ReadPools",
    ]);
    assert_eq!(harness.first("200"), 0);
    assert!(harness.membership.ready());
    assert!(harness.persisted.joined);
    harness.pass(600);
    assert_eq!(harness.writes(), 1);
    assert_eq!(harness.count("200"), 1);
}

#[test]
fn existing_member_passes_at_once_without_writes() {
    let mut harness = Harness::foreign_member(settings());
    harness.pass(600);
    assert_eq!((harness.first("200"), harness.writes()), (0, 0));
    assert!(harness.membership.ready());
    assert!(!harness.persisted.joined && !harness.persisted.down);
}

#[test]
fn join_without_write_does_not_claim_membership() {
    let mut harness = Harness::new(settings());
    harness.hangs.push(Call::Join);
    harness.start();
    assert!(harness.persisted.joined);
    harness.pools[0].member = entry(AdminState::None);
    harness.handle(Event::Answered(Answer::Joined(Ok(false))));
    assert!(!harness.persisted.joined);
    assert_eq!(harness.count("200"), 1);
}

#[test]
fn preboot_pass_answers_200_until_first_able() {
    let mut harness = Harness::new(AzureLifecycleSettings { preboot: Preboot::Pass, ..settings() });
    harness.handle(Event::Tick);
    harness.pass(30);
    assert_eq!(harness.visible_effects(), [(0, "200")]);
    assert_eq!(harness.writes(), 0);
    harness.fails.insert(Call::Join, Failure::Denied);
    harness.able();
    harness.assert_order(&["200", "503 not a member of the pool", "Join"]);
    harness.forget();
    harness.handle(Event::Able { able: false, reasons: vec!["a link is down".to_owned()] });
    assert_eq!(
        harness.effects[0].1,
        "503 a link is down, not a member of the pool: Some_Operation: \
        it did not work"
    );
    // Leaving takes precedence over preboot.
    let mut harness = Harness::new(AzureLifecycleSettings { preboot: Preboot::Pass, ..settings() });
    harness.handle(Event::Tick);
    harness.handle(Event::Terminate);
    assert_eq!(harness.visible_effects(), [(0, "200"), (0, "503 leaving: SIGTERM received")]);
}

#[test]
fn probe_reflects_own_ability_during_azure_outage() {
    for outage in [Failure::Transient, Failure::Throttled, Failure::Denied, Failure::Invalid] {
        let mut harness = Harness::new(settings());
        harness.fails.extend([(Call::ReadPools, outage), (Call::ReadTunnels, outage)]);
        harness.start();
        harness.pass(1);
        assert_eq!(harness.first("200"), 0, "{outage:?}");
        assert!(!harness.membership.ready(), "the membership is unknown");
        assert_eq!(harness.writes(), 0, "{outage:?}");
    }
    // Unanswered queries make the probe fail for 4 s after the machine has become able.
    let mut harness = Harness::new(settings());
    harness.hangs.extend([Call::ReadPools, Call::ReadTunnels, Call::ReadEvents]);
    harness.pass(30);
    assert_eq!(harness.count("200"), 0);
    harness.forget();
    harness.start();
    harness.pass(10);
    assert_eq!((harness.first("200"), harness.writes()), (4, 0));
}

#[test]
fn known_non_member_answers_503_with_reason() {
    let mut harness = Harness::new(settings());
    harness.fails.insert(Call::Join, Failure::Denied);
    harness.start();
    let why = "503 not a member of the pool: Some_Operation: it did not work";
    assert_eq!(harness.count(why), 1);
    harness.fails.insert(Call::ReadPools, Failure::Transient);
    harness.pass(600);
    assert_eq!((harness.count("200"), harness.count(why)), (0, 1));
    // If the pool does not exist, the machine cannot be its member.
    let mut harness = Harness::new(settings());
    harness.fails.insert(Call::ReadPools, Failure::Absent);
    harness.start();
    harness.pass(60);
    assert_eq!((harness.count("200"), harness.count("call-rejected")), (0, 1));
}

#[test]
fn retry_delay_depends_on_error_class() {
    for (kind, pause) in [
        (Failure::Denied, 300),
        (Failure::Invalid, 300),
        (Failure::Conflict, 5),
        (Failure::Transient, 30),
    ] {
        let mut harness = Harness::new(settings());
        harness.fails.insert(Call::Join, kind);
        harness.start();
        harness.fails.clear();
        harness.pass(400);
        let joins = harness.effects.iter().filter(|(_, effect)| effect == "Join");
        let at: Vec<u64> = joins.map(|(at, _)| *at).collect();
        assert_eq!(at, [0, pause], "{kind:?}");
        assert!(harness.membership.ready());
        let findings = harness.effects.iter().filter(|(_, effect)| effect.contains('-'));
        let findings = findings.filter(|(_, effect)| !effect.contains(' '));
        assert_eq!(findings.count(), 2, "the failed call, and no packets");
    }
}

#[test]
fn query_interval_is_one_minute_when_settled_and_shorter_otherwise() {
    let mut harness = Harness::ready(settings());
    harness.pass(600);
    assert_eq!((harness.count("ReadPools"), harness.count("ReadTunnels")), (10, 20));
    let mut harness = Harness::new(settings());
    harness.fails.insert(Call::Join, Failure::Denied);
    harness.start();
    harness.forget();
    harness.pass(60);
    assert_eq!(harness.count("ReadPools"), 4);
}

#[test]
fn scale_set_membership_is_read_and_never_written() {
    let mut harness = Harness::with(settings(), true, PersistedState::default());
    harness.start();
    harness.pass(120);
    assert_eq!((harness.count("not-in-model"), harness.count("200"), harness.writes()), (1, 0, 0));
    harness.pools[0].member = entry(AdminState::None);
    harness.pass(15);
    assert!(harness.membership.ready());
    harness.pools[0].member = None;
    harness.pass(60);
    assert_eq!((harness.count("not-in-model"), harness.count("membership-lost")), (2, 0));
    // State that was persisted before the scale set's model owned the membership has no effect.
    let persisted = PersistedState { joined: true, down: true, tunnels: Vec::new() };
    let mut harness = Harness::with(
        AzureLifecycleSettings { remove: Remove::Always, ..settings() },
        true,
        persisted,
    );
    harness.pools[0].member = entry(AdminState::Down);
    harness.start();
    harness.pass(10);
    harness.handle(Event::Terminate);
    harness.pass(400);
    assert_eq!((harness.writes(), harness.count("admin-down")), (0, 1));
    harness.assert_order(&["exit Drained"]);
}

#[test]
fn lost_membership_is_repaired_or_reported_as_configured() {
    let mut harness = Harness::ready(settings());
    harness.pools[0].member = None;
    harness.pass(60);
    harness.assert_order(&["membership-lost", "503 not a member of the pool", "Join", "200"]);
    assert_eq!(harness.count("membership-lost"), 1);
    assert!(harness.membership.ready() && harness.persisted.joined);
    let mut harness =
        Harness::ready(AzureLifecycleSettings { on_lost: OnLost::Report, ..settings() });
    harness.pools[0].member = None;
    harness.pass(600);
    assert_eq!((harness.count("membership-lost"), harness.writes()), (1, 0));
    assert_eq!(
        harness.visible_effects()[1],
        (harness.first("503"), "503 not a member of the pool")
    );
    assert!(!harness.persisted.joined, "a later membership is not Weir's");
    harness.pools[0].member = entry(AdminState::None);
    harness.pass(15);
    assert!(harness.membership.ready());
}

#[test]
fn member_of_one_pool_passes_and_joins_the_other_without_claiming_either() {
    let mut harness = Harness::new(settings());
    harness.two_pools();
    harness.pools[1].member = entry(AdminState::None);
    harness.hangs.push(Call::Join);
    harness.start();
    harness.assert_order(&["200", "Join"]);
    assert!(!harness.membership.ready());
    assert_eq!(harness.count("503 not a member of the pool"), 0);
    let answer = harness.answer(Call::Join);
    harness.handle(Event::Answered(answer));
    harness.pass(1);
    assert!(harness.membership.ready());
    harness.handle(Event::Terminate);
    harness.pass(60);
    harness.assert_order(&["exit Drained"]);
    assert_eq!(harness.count("Leave"), 0);
}

#[test]
fn own_down_is_lifted_after_restart() {
    let persisted = PersistedState { down: true, ..PersistedState::default() };
    let mut harness = Harness::with(settings(), false, persisted);
    harness.pools[0].member = entry(AdminState::Down);
    harness.start();
    harness.assert_order(&["Up", "ReadPools", "200"]);
    assert!(harness.membership.ready());
    assert_eq!((harness.writes(), harness.count("admin-down")), (1, 0));
    // A `Down` that a killed process wrote late is Weir's own too.
    assert!(harness.persisted.down);
    harness.pass(100);
    harness.set_admin(AdminState::Down);
    harness.pass(100);
    assert!(harness.membership.ready() && !harness.persisted.down);
    assert_eq!(harness.count("Up"), 2);
    // Any later `Down` is another party's.
    harness.set_admin(AdminState::Down);
    harness.pass(600);
    assert_eq!((harness.count("Up"), harness.count("admin-down")), (2, 1));
    assert!(!harness.membership.ready() && harness.membership.differs());
}

#[test]
fn foreign_down_is_reported_and_not_changed() {
    let mut harness = Harness::ready(settings());
    harness.set_admin(AdminState::Down);
    harness.pass(60);
    assert!(!harness.membership.ready());
    assert_eq!((harness.count("admin-down"), harness.writes(), harness.count("503")), (1, 0, 0));
    harness.handle(Event::Terminate);
    harness.pass(10);
    assert!(!harness.persisted.down, "it is not recorded as Weir's");
    harness.assert_order(&["Leave", "exit Drained"]);
    assert_eq!(harness.count("Down"), 0);
}

#[test]
fn admin_up_is_reported_because_it_overrides_the_probe() {
    let mut harness = Harness::ready(settings());
    harness.set_admin(AdminState::Up);
    harness.pass(200);
    assert!(harness.membership.ready(), "flows arrive");
    assert_eq!((harness.count("admin-up"), harness.writes()), (1, 0));
    harness.handle(Event::Terminate);
    assert_eq!(harness.count("Down"), 1, "a drain by 503 alone would not work");
}

#[test]
fn no_packet_for_a_minute_is_reported_once() {
    let mut harness = Harness::new(settings());
    harness.start();
    harness.pass(300);
    assert_eq!((harness.first("no-packets"), harness.count("no-packets")), (60, 1));
}

#[test]
fn an_outage_does_not_change_a_ready_member() {
    let mut harness = Harness::ready(settings());
    for call in [Call::ReadPools, Call::ReadTunnels, Call::ReadEvents] {
        harness.fails.insert(call, Failure::Transient);
    }
    harness.pass(3600);
    assert!(harness.membership.ready() && !harness.membership.differs());
    assert_eq!((harness.writes(), harness.count("503")), (0, 0));
}

#[test]
fn late_join_still_counts_as_own() {
    // The process that started the join was killed, or gave up.
    for killed in [false, true] {
        let mut harness = Harness::new(settings());
        if killed {
            harness.hangs.push(Call::Join);
        } else {
            harness.fails.insert(Call::Join, Failure::Transient);
        }
        harness.packets = 7;
        harness.start();
        harness.forget();
        // From now on the machine is not able, so that the join is not repeated.
        let reasons = vec!["a link is down".to_owned()];
        if killed {
            harness.membership =
                Membership::new(settings(), false, harness.persisted.clone(), harness.now);
        }
        harness.handle(Event::Able { able: false, reasons });
        harness.pass(60);
        assert!(harness.persisted.joined, "killed: {killed}");
        harness.pools[0].member = entry(AdminState::None);
        harness.pass(200);
        assert!(harness.persisted.joined, "killed: {killed}");
        harness.handle(Event::Terminate);
        harness.pass(40);
        assert_eq!(harness.count("Leave"), 1, "killed: {killed}");
    }
    // A join that never takes effect is not recorded forever.
    let mut harness = Harness::new(settings());
    harness.fails.insert(Call::Join, Failure::Transient);
    harness.start();
    harness.handle(Event::Able { able: false, reasons: Vec::new() });
    harness.pass(200);
    assert!(!harness.persisted.joined);
}

#[test]
fn unsettled_join_after_leaving_stays_recorded_as_own() {
    let mut harness = Harness::new(settings());
    harness.fails.insert(Call::Join, Failure::Transient);
    harness.start();
    harness.handle(Event::Terminate);
    harness.pass(60);
    harness.assert_order(&["Leave", "exit Drained"]);
    harness.pools[0].member = entry(AdminState::None);
    harness.restart();
    harness.pass(300);
    harness.handle(Event::Terminate);
    harness.pass(60);
    assert_eq!(harness.count("Leave"), 1);
}
