//! What `weir explain` says of a packet is what the plane does with it: 10,000 packets of all
//! set-ups of the cases, well-formed and broken, each explained before the pipeline in memory takes
//! it; verdict, reason, service and backend are compared with what it counts.

#![expect(clippy::panic, reason = "a test that can't be set up fails")]

mod nearly {
    #[expect(dead_code, reason = "not all of what other tests do with frames")]
    pub mod mutation;
    pub mod traffic;
}
mod planes {
    pub mod loaded;
    pub mod memory;
}

use fastpath::burst::Arrival;
use nearly::mutation::{Dice, Trial};
use nearly::traffic;
use planes::memory::Memory;
use slowpath::explain::Explainer;
use slowpath::report::Explanation;
use std::collections::{BTreeMap, VecDeque};
use tables::counters::{LcorePage, ServiceCounter, VerdictCounter};
use tables::reason::DropReason;
use tests::cases::setups::{
    WEB, aws_chain, aws_nat, aws_return, aws_tunnel, azure_nat, azure_return, plain_dsr, plain_nat,
    service,
};
use tests::cases::world::{EGRESS, ENDPOINT, IN_MAC, OUT_MAC};
use tests::cases::{Exit, Plane, Setup};

/// Frames, and by which way each goes.
type Sent = Vec<(Exit, Vec<u8>)>;

/// Packets in all.
const PACKETS: usize = 10_000;
/// What decides which ones; another is taken from `WEIR_SEED`.
const SEED: u64 = 0x6578_706c;
/// Packets between two services files.
const CHANGE: usize = 300;
/// What left that is remembered, to be answered.
const REMEMBERED: usize = 24;
/// Services and backends that are looked at; the set-ups have fewer.
const OBJECTS: u32 = 16;
/// Verdicts and reasons that must have occurred: else packets would be too much alike.
const OUTCOMES: usize = 20;

/// What the plane has counted.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Counted {
    verdicts: Vec<u64>,
    reasons: Vec<u64>,
    services: Vec<u64>,
    backends: Vec<u64>,
}

fn counted(page: &LcorePage<'_>) -> Counted {
    let ids = 0..OBJECTS;
    let dropped = |reason: &DropReason| page.dropped(0, *reason) + page.dropped(1, *reason);
    let service = |id: u32| {
        page.service_count(id, ServiceCounter::Packets)
            + page.service_count(id, ServiceCounter::Drops)
    };
    Counted {
        verdicts: VerdictCounter::ALL.iter().map(|verdict| page.verdict_count(*verdict)).collect(),
        reasons: DropReason::ALL.iter().map(dropped).collect(),
        services: ids.clone().map(service).collect(),
        backends: ids.map(|id| page.backend_count(id, ServiceCounter::Packets)).collect(),
    }
}

/// Which one of them grew.
fn grown(before: &[u64], after: &[u64]) -> Option<usize> {
    before.iter().zip(after).position(|(before, after)| after > before)
}

/// What the plane did, in the explanation's words.
struct Done {
    verdict: &'static str,
    reason: &'static str,
    service: Option<u32>,
    backend: Option<u32>,
}

fn done(before: &Counted, after: &Counted) -> Done {
    let verdict = grown(&before.verdicts, &after.verdicts).map(|n| VerdictCounter::ALL[n].name());
    let reason = grown(&before.reasons, &after.reasons).map(|n| DropReason::ALL[n].name());
    let reply = verdict == Some(VerdictCounter::Reply.name());
    Done {
        verdict: verdict.unwrap_or(VerdictCounter::Drop.name()),
        // A packet that an error is about counts as dropped beside the reply.
        reason: if reply { "" } else { reason.unwrap_or_default() },
        service: grown(&before.services, &after.services).map(|n| n as u32),
        backend: grown(&before.backends, &after.backends).map(|n| n as u32),
    }
}

/// Explains and shows one packet; what left, or how the two differ.
fn compare(plane: &mut Memory, trial: &Trial) -> Result<(Explanation, Sent), String> {
    let region = plane.loaded().region;
    let explainer = Explainer { region, macs: [Some(IN_MAC), Some(OUT_MAC)], tunnels: &[] };
    let told = explainer.frame(trial.arm, &mut trial.bytes.clone());
    let page = region.counters().lcore(0).ok_or("a page for the lcore")?;
    let before = counted(&page);
    let came = plane.send(trial.arm, &trial.bytes);
    let done = done(&before, &counted(&page));
    // Which slot an endpoint's first flow gets is known with its first packet.
    if told.verdict == "unknown" {
        let same = done.service == told.service_id;
        return if same { Ok((told, came)) } else { Err(format!("{told:#?}")) };
    }
    let passes = matches!(told.verdict.as_str(), "nat" | "tunnel" | "answer");
    let agree = told.verdict == done.verdict
        && told.reason == done.reason
        && (!passes || told.service_id == done.service)
        && (!passes || told.backend_id == done.backend);
    match agree {
        true => Ok((told, came)),
        false => Err(format!(
            "the plane did {} {} (service {:?}, backend {:?}) with {trial:?}\n{told:#?}",
            done.verdict, done.reason, done.service, done.backend
        )),
    }
}

/// A packet that comes next: a client's, an answer to what left, or one with a turned bit.
fn next(setup: &Setup, dice: &mut Dice, left: &VecDeque<(Exit, Vec<u8>)>) -> Trial {
    let answered = match dice.roll(16) {
        0..7 => left.get(dice.roll(left.len().max(1))),
        _ => None,
    };
    let answer = answered.and_then(|(exit, frame)| traffic::answer(*exit, frame, dice));
    let mut trial = answer.unwrap_or_else(|| traffic::request(setup, dice));
    if dice.roll(6) == 0 && !trial.bytes.is_empty() {
        let at = dice.roll(trial.bytes.len().min(120));
        trial.bytes[at] ^= 1 << dice.roll(8);
    }
    if dice.roll(40) == 0 {
        trial.bytes.truncate(dice.roll(100));
    }
    Trial { arrival: Arrival::Plain, first: trial.bytes.len(), ..trial }
}

/// A service of four backends by a table, a network, and every address of one endpoint.
fn several(setup: Setup, mode: &str) -> Setup {
    let port = if mode.contains("nat") { ", port = 8080" } else { "" };
    let backend = |last| format!("{{address = \"10.0.2.{last}\"{port}}}");
    let four = [11, 12, 13, 14].map(backend).join(", ");
    let mode = format!("{mode}\ntable_size = 251");
    let of_endpoint = format!("{{address = \"203.0.113.20\", scope = \"{ENDPOINT:#x}\"}}");
    let services = service("web", &mode, WEB, &four)
        + &service("network", &mode, r#"{address = "203.0.113.0/24"}"#, &backend(12))
        + &service("endpoint", &mode, &of_endpoint, &backend(11));
    let mut setup = Setup { services, ..setup.named("several backends") };
    // One of them is not known.
    setup.neighbours.retain(|neighbour| neighbour.address != "10.0.2.14");
    setup
}

#[test]
fn what_is_explained_is_what_the_plane_does() {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    let mut dice = Dice(seed);
    let setups = [
        aws_return(),
        aws_nat(),
        aws_chain(),
        aws_tunnel("gue"),
        aws_tunnel("vxlan"),
        azure_nat(),
        azure_return(),
        plain_nat(),
        several(aws_nat(), "mode = \"nat\""),
        several(plain_nat(), "mode = \"nat\""),
        several(azure_nat(), "mode = \"tunnel\"\ntunnel = \"vxlan\""),
        several(aws_nat(), "mode = \"tunnel\"\ntunnel = \"geneve\""),
        plain_dsr("ipip", "10.0.2.11"),
    ];
    let (mut plane, mut outcomes, mut shown) = (Memory::new(), BTreeMap::new(), 0);
    for setup in setups.iter().cycle() {
        if shown >= PACKETS {
            break;
        }
        plane.load(&Setup { kernel_room: usize::MAX, ..setup.clone() });
        let mut left: VecDeque<(Exit, Vec<u8>)> = VecDeque::new();
        for _ in 0..CHANGE {
            shown += 1;
            // What this lcore punted in this second is its own affair.
            plane.advance_s(0);
            let trial = next(setup, &mut dice, &left);
            let (told, came) = compare(&mut plane, &trial).unwrap_or_else(|text| {
                panic!("packet {shown} of seed {seed}, tables {}:\n{text}", setup.name)
            });
            *outcomes.entry((told.verdict, told.reason)).or_insert(0) += 1;
            let often = shown.is_multiple_of(3);
            left.extend(came.into_iter().filter(|(exit, _)| often || *exit == Exit::Port(EGRESS)));
            while left.len() > REMEMBERED {
                left.pop_front();
            }
        }
    }
    println!("{shown} packets: {outcomes:#?}");
    assert!(outcomes.len() >= OUTCOMES, "{outcomes:?}");
    let unknown = outcomes.get(&("unknown".to_owned(), String::new())).copied().unwrap_or(0);
    assert!(unknown * 50 < shown, "{unknown} of {shown} packets were not explained");
}
