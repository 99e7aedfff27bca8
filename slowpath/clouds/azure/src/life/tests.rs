//! Tests of the lifecycle by scenario. Calls succeed at once unless a scenario sets otherwise.

mod events;
mod leaving;
mod simulation;
mod tunnels;

use config::checked::{MadeBy, OnLost, Remove, Told};

use super::*;
use crate::told::{CallError, End, EventKind, Family, ScheduledEvent, Tunnels};

const S: Duration = Duration::from_secs(1);
/// Seconds since 1970 at the start of a scenario.
const CLOCK: u64 = 1_800_000_000;

pub(super) fn settings() -> AzureLife {
    AzureLife {
        on_lost: OnLost::Repair,
        remove: Remove::Own,
        drain_cap: 300 * S,
        quiet: 5 * S,
        events: true,
        preboot: Preboot::Refuse,
        tunnels: Told::Follow,
    }
}

/// Returns tunnels that differ by `number`.
pub(super) fn tunnels(number: u16) -> Tunnels {
    let end = |port, vni| End { port: port + number, vni: vni + u32::from(number) };
    Tunnels { external: end(20801, 801), internal: end(10800, 800) }
}

pub(super) fn error(kind: Failure) -> CallError {
    let (code, message) = ("SomeCode".to_owned(), "it did not work".to_owned());
    CallError { operation: "Some_Operation", kind, code, message }
}

fn entry(admin: Admin) -> Option<Member> {
    Some(Member { by: MadeBy::Nic, admin })
}

pub(super) fn event(id: &str, kind: EventKind, not_before: Option<u64>) -> ScheduledEvent {
    let description = "somebody wants it".to_owned();
    ScheduledEvent { id: id.to_owned(), kind, started: false, not_before, description }
}

/// The state machine, and an Azure that answers at once with what is set here.
struct Stage {
    life: Life,
    now: Instant,
    begun: Instant,
    pools: Vec<Seen>,
    imds: Vec<(Family, Tunnels)>,
    events: Vec<ScheduledEvent>,
    carried: Vec<(Family, Tunnels)>,
    /// True if the data plane applies new tunnels.
    obeys: bool,
    kept: Kept,
    fails: BTreeMap<Call, Failure>,
    /// Calls that are not answered.
    hangs: Vec<Call>,
    /// Effects in the form of `say`, each with the seconds since the start.
    heard: Vec<(u64, String)>,
    flows: u64,
    packets: u64,
    strange: u64,
    traffic: bool,
    acknowledged: Vec<String>,
}

impl Stage {
    fn new(settings: AzureLife) -> Stage {
        Stage::with(settings, false, Kept::default())
    }

    fn with(settings: AzureLife, managed: bool, kept: Kept) -> Stage {
        let now = Instant::now();
        let family = Family::V4;
        let pool = Seen { family, member: None, tunnels: Ok(tunnels(0)), probed: true };
        Stage {
            life: Life::new(settings, managed, kept.clone(), now),
            now,
            begun: now,
            pools: vec![pool],
            imds: vec![(family, tunnels(0))],
            events: Vec::new(),
            carried: vec![(family, tunnels(0))],
            obeys: true,
            kept,
            fails: BTreeMap::new(),
            hangs: Vec::new(),
            heard: Vec::new(),
            flows: 0,
            packets: 0,
            strange: 0,
            traffic: false,
            acknowledged: Vec::new(),
        }
    }

    /// Returns an able stage whose membership was made by another party.
    fn found(settings: AzureLife) -> Stage {
        let mut stage = Stage::new(settings);
        stage.pools[0].member = entry(Admin::None);
        stage.packets = 7;
        stage.start();
        stage
    }

    /// Returns a stage that is ready with its own membership, with the recorded effects cleared.
    fn ready(settings: AzureLife) -> Stage {
        let mut stage = Stage::new(settings);
        stage.packets = 7;
        stage.start();
        stage.calm();
        stage
    }

    /// Waits until it is ready, and clears the recorded effects.
    fn calm(&mut self) {
        self.pass(60);
        assert!(self.life.ready(), "{:?}", self.life);
        self.forget();
    }

    fn forget(&mut self) {
        self.begun = self.now;
        self.heard.clear();
    }

    fn start(&mut self) {
        self.hear(Event::Carries(self.carried.clone()));
        self.hear(Event::Clock(CLOCK));
        self.able();
    }

    fn able(&mut self) {
        self.hear(Event::Able { able: true, reasons: Vec::new() });
    }

    fn two_pools(&mut self) {
        let v6 = Seen { family: Family::V6, tunnels: Ok(tunnels(50)), ..self.pools[0].clone() };
        self.imds.push((Family::V6, tunnels(50)));
        self.carried.push((Family::V6, tunnels(50)));
        self.pools.push(v6);
    }

    fn hear(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.life.step(self.now, event) {
                self.heard.push(((self.now - self.begun).as_secs(), say(&effect)));
                match effect {
                    Effect::Call(call) if !self.hangs.contains(&call) => {
                        let answer = self.answer(call);
                        events.insert(0, Event::Told(answer));
                    }
                    Effect::Tunnels(tunnels) if self.obeys => {
                        for (family, told) in tunnels {
                            let one = self.carried.iter_mut().find(|(of, _)| *of == family);
                            one.expect("a family of ours").1 = told;
                        }
                        events.insert(0, Event::Carries(self.carried.clone()));
                    }
                    Effect::Keep(kept) => self.kept = kept,
                    _ => {}
                }
            }
        }
    }

    fn set_admin(&mut self, admin: Admin) {
        for member in self.pools.iter_mut().filter_map(|pool| pool.member.as_mut()) {
            member.admin = admin;
        }
    }

    fn answer(&mut self, call: Call) -> Answer {
        if let Some(kind) = self.fails.get(&call) {
            return Answer::failed(call, error(*kind));
        }
        match call {
            Call::Look => Answer::Looked(Ok(self.pools.clone())),
            Call::Join => {
                let written = self.pools.iter().any(|pool| pool.member.is_none());
                for pool in &mut self.pools {
                    pool.member = pool.member.or(entry(Admin::None));
                }
                Answer::Joined(Ok(written))
            }
            Call::Down => {
                self.set_admin(Admin::Down);
                Answer::Down(Ok(()))
            }
            Call::Up => {
                self.set_admin(Admin::None);
                Answer::Up(Ok(()))
            }
            Call::Leave => {
                self.pools.iter_mut().for_each(|pool| pool.member = None);
                Answer::Left(Ok(()))
            }
            Call::AskTunnels => Answer::Tunnels(Ok(self.imds.clone())),
            Call::AskEvents => Answer::Events(Ok(self.events.clone())),
            Call::Acknowledge => {
                self.acknowledged.push(self.life.event().expect("one").to_owned());
                Answer::Acknowledged(Ok(()))
            }
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += S;
            self.packets += u64::from(self.traffic);
            let (flows, packets, strange) = (self.flows, self.packets, self.strange);
            self.hear(Event::Activity { flows, packets, strange });
            self.hear(Event::Carries(self.carried.clone()));
        }
    }

    /// Kills the process and starts another.
    fn restart(&mut self) {
        let (settings, managed) = (self.life.settings, self.life.managed);
        self.life = Life::new(settings, managed, self.kept.clone(), self.now);
        self.forget();
        self.start();
    }

    /// Returns the recorded effects, without queries and kept state.
    fn told(&self) -> Vec<(u64, &str)> {
        let question = |told: &str| {
            told.starts_with("Ask") || told.starts_with("Look") || told.starts_with("keep")
        };
        let heard = self.heard.iter().map(|(at, told)| (*at, told.as_str()));
        heard.filter(|(_, told)| !question(told)).collect()
    }

    /// Returns when an effect was first recorded.
    #[track_caller]
    fn first(&self, what: &str) -> u64 {
        let found = self.heard.iter().find(|(_, told)| told.starts_with(what));
        found.unwrap_or_else(|| panic!("no {what}: {:?}", self.told())).0
    }

    fn count(&self, what: &str) -> usize {
        self.heard.iter().filter(|(_, told)| told == what).count()
    }

    /// Asserts that all effects were recorded in this order.
    #[track_caller]
    fn order(&self, expected: &[&str]) {
        let mut heard = self.heard.iter();
        for what in expected {
            let found = heard.any(|(_, told)| told.starts_with(what));
            assert!(found, "{what} of {expected:?}: {:?}", self.heard);
        }
    }

    /// Returns the number of calls that write entries.
    fn writes(&self) -> usize {
        ["Join", "Down", "Up", "Leave"].into_iter().map(|write| self.count(write)).sum()
    }
}

fn say(effect: &Effect) -> String {
    match effect {
        Effect::Call(call) => format!("{call:?}"),
        Effect::Probe { pass: true, .. } => "200".to_owned(),
        Effect::Probe { reasons, .. } => format!("503 {}", reasons.join(", ")),
        Effect::Tunnels(tunnels) => {
            let ports = tunnels.iter().map(|(_, tunnels)| tunnels.internal.port.to_string());
            format!("tunnels {}", ports.collect::<Vec<_>>().join(" "))
        }
        Effect::Keep(Kept { joined, down, .. }) => {
            let said = |is: &bool, word| if *is { word } else { "" };
            format!("keep{}{}", said(joined, " joined"), said(down, " down"))
        }
        Effect::FlowTimeout(timeout) => format!("timeout {timeout:?}"),
        Effect::Finding(finding) => finding.name.to_owned(),
        Effect::Exit(exit) => format!("exit {exit:?}"),
    }
}

#[test]
fn it_says_503_looks_joins_says_200_and_is_ready_in_this_order() {
    let mut stage = Stage::new(settings());
    stage.pass(3);
    let starting = "503 starting, it is not known yet whether this is a member of the pool";
    assert_eq!(stage.heard[0], (1, starting.to_owned()));
    stage.order(&["503 starting, not a member of the pool"]);
    assert_eq!((stage.writes(), stage.count("200")), (0, 0), "not able");
    stage.forget();
    stage.start();
    stage.order(&["503 not a member of the pool", "keep joined", "Join", "200", "Look"]);
    assert_eq!(stage.first("200"), 0);
    assert!(stage.life.ready());
    assert!(stage.kept.joined);
    stage.pass(600);
    assert_eq!(stage.writes(), 1);
    assert_eq!(stage.count("200"), 1);
}

#[test]
fn who_is_a_member_already_passes_at_once_and_nothing_is_touched() {
    let mut stage = Stage::found(settings());
    stage.pass(600);
    assert_eq!((stage.first("200"), stage.writes()), (0, 0));
    assert!(stage.life.ready());
    assert!(!stage.kept.joined && !stage.kept.down);
}

#[test]
fn a_join_that_had_nothing_to_write_makes_no_membership_ours() {
    let mut stage = Stage::new(settings());
    stage.hangs.push(Call::Join);
    stage.start();
    assert!(stage.kept.joined);
    stage.pools[0].member = entry(Admin::None);
    stage.hear(Event::Told(Answer::Joined(Ok(false))));
    assert!(!stage.kept.joined);
    assert_eq!(stage.count("200"), 1);
}

#[test]
fn preboot_pass_says_200_until_it_was_able_for_the_first_time() {
    let mut stage = Stage::new(AzureLife { preboot: Preboot::Pass, ..settings() });
    stage.hear(Event::Tick);
    stage.pass(30);
    assert_eq!(stage.told(), [(0, "200")]);
    assert_eq!(stage.writes(), 0);
    stage.fails.insert(Call::Join, Failure::Denied);
    stage.able();
    stage.order(&["200", "503 not a member of the pool", "Join"]);
    stage.forget();
    stage.hear(Event::Able { able: false, reasons: vec!["a link is down".to_owned()] });
    assert_eq!(
        stage.heard[0].1,
        "503 a link is down, not a member of the pool: Some_Operation: \
        it did not work"
    );
    // Leaving takes precedence over preboot.
    let mut stage = Stage::new(AzureLife { preboot: Preboot::Pass, ..settings() });
    stage.hear(Event::Tick);
    stage.hear(Event::Terminate);
    assert_eq!(stage.told(), [(0, "200"), (0, "503 leaving: SIGTERM came")]);
}

#[test]
fn while_azure_is_out_our_own_ability_alone_counts() {
    for outage in [Failure::Transient, Failure::Throttled, Failure::Denied, Failure::Invalid] {
        let mut stage = Stage::new(settings());
        stage.fails.extend([(Call::Look, outage), (Call::AskTunnels, outage)]);
        stage.start();
        stage.pass(1);
        assert_eq!(stage.first("200"), 0, "{outage:?}");
        assert!(!stage.life.ready(), "nobody told whether it is a member");
        assert_eq!(stage.writes(), 0, "{outage:?}");
    }
    // Unanswered queries hold the probe back for 4 s from when the machine is able.
    let mut stage = Stage::new(settings());
    stage.hangs.extend([Call::Look, Call::AskTunnels, Call::AskEvents]);
    stage.pass(30);
    assert_eq!(stage.count("200"), 0);
    stage.forget();
    stage.start();
    stage.pass(10);
    assert_eq!((stage.first("200"), stage.writes()), (4, 0));
}

#[test]
fn known_to_be_no_member_it_says_503_with_the_reason_whatever_fails_then() {
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::Join, Failure::Denied);
    stage.start();
    let why = "503 not a member of the pool: Some_Operation: it did not work";
    assert_eq!(stage.count(why), 1);
    stage.fails.insert(Call::Look, Failure::Transient);
    stage.pass(600);
    assert_eq!((stage.count("200"), stage.count(why)), (0, 1));
    // Without a pool there is no membership.
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::Look, Failure::Absent);
    stage.start();
    stage.pass(60);
    assert_eq!((stage.count("200"), stage.count("call-refused")), (0, 1));
}

#[test]
fn a_refusal_is_asked_again_after_five_minutes_a_conflict_soon_a_fault_after_half_a_minute() {
    for (kind, pause) in [
        (Failure::Denied, 300),
        (Failure::Invalid, 300),
        (Failure::Conflict, 5),
        (Failure::Transient, 30),
    ] {
        let mut stage = Stage::new(settings());
        stage.fails.insert(Call::Join, kind);
        stage.start();
        stage.fails.clear();
        stage.pass(400);
        let joins = stage.heard.iter().filter(|(_, told)| told == "Join");
        let at: Vec<u64> = joins.map(|(at, _)| *at).collect();
        assert_eq!(at, [0, pause], "{kind:?}");
        assert!(stage.life.ready());
        let findings = stage.heard.iter().filter(|(_, told)| told.contains('-'));
        let findings = findings.filter(|(_, told)| !told.contains(' '));
        assert_eq!(findings.count(), 2, "and no packet came");
    }
}

#[test]
fn it_looks_every_minute_while_all_is_in_order_and_sooner_while_something_is_open() {
    let mut stage = Stage::ready(settings());
    stage.pass(600);
    assert_eq!((stage.count("Look"), stage.count("AskTunnels")), (10, 20));
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::Join, Failure::Denied);
    stage.start();
    stage.forget();
    stage.pass(60);
    assert_eq!(stage.count("Look"), 4);
}

#[test]
fn a_scale_sets_membership_is_looked_at_and_never_written() {
    let mut stage = Stage::with(settings(), true, Kept::default());
    stage.start();
    stage.pass(120);
    assert_eq!((stage.count("not-in-model"), stage.count("200"), stage.writes()), (1, 0, 0));
    stage.pools[0].member = entry(Admin::None);
    stage.pass(15);
    assert!(stage.life.ready());
    stage.pools[0].member = None;
    stage.pass(60);
    assert_eq!((stage.count("not-in-model"), stage.count("membership-lost")), (2, 0));
    // State kept with another configuration has no effect.
    let kept = Kept { joined: true, down: true, tunnels: Vec::new() };
    let mut stage = Stage::with(AzureLife { remove: Remove::Always, ..settings() }, true, kept);
    stage.pools[0].member = entry(Admin::Down);
    stage.start();
    stage.pass(10);
    stage.hear(Event::Terminate);
    stage.pass(400);
    assert_eq!((stage.writes(), stage.count("admin-down")), (0, 1));
    stage.order(&["exit Drained"]);
}

#[test]
fn a_lost_membership_is_made_again_or_told_as_is_wanted() {
    let mut stage = Stage::ready(settings());
    stage.pools[0].member = None;
    stage.pass(60);
    stage.order(&["membership-lost", "503 not a member of the pool", "Join", "200"]);
    assert_eq!(stage.count("membership-lost"), 1);
    assert!(stage.life.ready() && stage.kept.joined);
    let mut stage = Stage::ready(AzureLife { on_lost: OnLost::Report, ..settings() });
    stage.pools[0].member = None;
    stage.pass(600);
    assert_eq!((stage.count("membership-lost"), stage.writes()), (1, 0));
    assert_eq!(stage.told()[1], (stage.first("503"), "503 not a member of the pool"));
    assert!(!stage.kept.joined, "what comes now is not ours");
    stage.pools[0].member = entry(Admin::None);
    stage.pass(15);
    assert!(stage.life.ready());
}

#[test]
fn in_one_of_two_pools_it_passes_and_joins_the_other_which_makes_neither_ours() {
    let mut stage = Stage::new(settings());
    stage.two_pools();
    stage.pools[1].member = entry(Admin::None);
    stage.hangs.push(Call::Join);
    stage.start();
    stage.order(&["200", "Join"]);
    assert!(!stage.life.ready());
    assert_eq!(stage.count("503 not a member of the pool"), 0);
    let answer = stage.answer(Call::Join);
    stage.hear(Event::Told(answer));
    stage.pass(1);
    assert!(stage.life.ready());
    stage.hear(Event::Terminate);
    stage.pass(60);
    stage.order(&["exit Drained"]);
    assert_eq!(stage.count("Leave"), 0);
}

#[test]
fn down_that_is_ours_is_lifted_by_whoever_comes_back() {
    let kept = Kept { down: true, ..Kept::default() };
    let mut stage = Stage::with(settings(), false, kept);
    stage.pools[0].member = entry(Admin::Down);
    stage.start();
    stage.order(&["Up", "Look", "200"]);
    assert!(stage.life.ready());
    assert_eq!((stage.writes(), stage.count("admin-down")), (1, 0));
    // A late write of a killed process is Weir's own too.
    assert!(stage.kept.down);
    stage.pass(100);
    stage.set_admin(Admin::Down);
    stage.pass(100);
    assert!(stage.life.ready() && !stage.kept.down);
    assert_eq!(stage.count("Up"), 2);
    // From then on it belongs to another party.
    stage.set_admin(Admin::Down);
    stage.pass(600);
    assert_eq!((stage.count("Up"), stage.count("admin-down")), (2, 1));
    assert!(!stage.life.ready() && stage.life.differs());
}

#[test]
fn down_that_is_somebody_elses_is_told_and_left_alone() {
    let mut stage = Stage::ready(settings());
    stage.set_admin(Admin::Down);
    stage.pass(60);
    assert!(!stage.life.ready());
    assert_eq!((stage.count("admin-down"), stage.writes(), stage.count("503")), (1, 0, 0));
    stage.hear(Event::Terminate);
    stage.pass(10);
    assert!(!stage.kept.down, "nor is it kept as ours");
    stage.order(&["Leave", "exit Drained"]);
    assert_eq!(stage.count("Down"), 0);
}

#[test]
fn up_is_told_because_the_probe_is_overruled() {
    let mut stage = Stage::ready(settings());
    stage.set_admin(Admin::Up);
    stage.pass(200);
    assert!(stage.life.ready(), "flows come");
    assert_eq!((stage.count("admin-up"), stage.writes()), (1, 0));
    stage.hear(Event::Terminate);
    assert_eq!(stage.count("Down"), 1, "a drain by 503 alone would not work");
}

#[test]
fn ready_for_a_minute_without_a_packet_is_a_finding_once() {
    let mut stage = Stage::new(settings());
    stage.start();
    stage.pass(300);
    assert_eq!((stage.first("no-packets"), stage.count("no-packets")), (60, 1));
}

#[test]
fn an_outage_changes_nothing_while_it_is_in_order() {
    let mut stage = Stage::ready(settings());
    for call in [Call::Look, Call::AskTunnels, Call::AskEvents] {
        stage.fails.insert(call, Failure::Transient);
    }
    stage.pass(3600);
    assert!(stage.life.ready() && !stage.life.differs());
    assert_eq!((stage.writes(), stage.count("503")), (0, 0));
}

#[test]
fn a_join_that_takes_effect_late_is_ours_all_the_same() {
    // The process that started the join was killed, or gave up.
    for killed in [false, true] {
        let mut stage = Stage::new(settings());
        if killed {
            stage.hangs.push(Call::Join);
        } else {
            stage.fails.insert(Call::Join, Failure::Transient);
        }
        stage.packets = 7;
        stage.start();
        stage.forget();
        // From now on the machine is not able, so that the join is not repeated.
        let reasons = vec!["a link is down".to_owned()];
        if killed {
            stage.life = Life::new(settings(), false, stage.kept.clone(), stage.now);
        }
        stage.hear(Event::Able { able: false, reasons });
        stage.pass(60);
        assert!(stage.kept.joined, "killed: {killed}");
        stage.pools[0].member = entry(Admin::None);
        stage.pass(200);
        assert!(stage.kept.joined, "killed: {killed}");
        stage.hear(Event::Terminate);
        stage.pass(40);
        assert_eq!(stage.count("Leave"), 1, "killed: {killed}");
    }
    // A join that never takes effect is not kept forever.
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::Join, Failure::Transient);
    stage.start();
    stage.hear(Event::Able { able: false, reasons: Vec::new() });
    stage.pass(200);
    assert!(!stage.kept.joined);
}

#[test]
fn a_join_that_may_still_come_when_we_have_left_stays_ours_for_the_next_process() {
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::Join, Failure::Transient);
    stage.start();
    stage.hear(Event::Terminate);
    stage.pass(60);
    stage.order(&["Leave", "exit Drained"]);
    stage.pools[0].member = entry(Admin::None);
    stage.restart();
    stage.pass(300);
    stage.hear(Event::Terminate);
    stage.pass(60);
    assert_eq!(stage.count("Leave"), 1);
}
