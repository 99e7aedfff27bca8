//! Compares `weir explain` with the pipeline in memory. At least 20,000 packets of the cases' main
//! setups and of services with every policy, well-formed and broken, in both directions, are each
//! explained before the pipeline forwards them. The explained verdict, reason, service and backend
//! are compared with the pipeline's counters, and the explained MTU with that of an ICMP error.

#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod differential {
    #[expect(dead_code, reason = "this test uses a part of it")]
    pub mod mutation;
    pub mod traffic;
}
mod planes {
    pub mod loaded;
    pub mod memory;
}

use differential::mutation::Trial;
use differential::traffic;
use explain::{EntryPoint, Explainer, Explanation};
use fastpath::burst::Arrival;
use fastrand::Rng;
use packet::icmp;
use packet::ip::{Ip, L4};
use packet::window::Window;
use planes::memory::Memory;
use slowpath::kernel::neighbors::Resolved;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use tables::counters::{LcorePage, ServiceCounter, VerdictCounter};
use tables::reason::DropReason;
use tests::cases::addresses::{ENDPOINT, IN_MAC, INGRESS, OUT_MAC, from_router};
use tests::cases::setups::{
    WEB, aws_chain, aws_nat, aws_return, aws_translated, aws_tunnel, azure_nat, azure_return,
    azure_translated, plain_dsr, plain_nat, plain_translated, service,
};
use tests::cases::{Change, Exit, Plane, Setup};
use tests::frames::udp;

/// Frames, and the port through which each left.
type Sent = Vec<(Exit, Vec<u8>)>;

/// The minimum total number of packets.
const PACKETS: usize = 20_000;
/// The seed of their selection; `WEIR_SEED` in the environment sets another.
const SEED: u64 = 0x6578_706c;
/// Packets that a setup gets before the change of its services file, and again after it.
const PHASE: usize = 150;
/// Seconds after which no unconfirmed tunnel flow is left.
const ENDED_S: u32 = 60;
/// In place of a drop reason in an outcome: an answer whose flow is in no table left for the
/// gateway that the answer's own options name.
const OWN_OPTIONS: &str = "by its own options";
/// The number of recent outgoing frames that are kept, to be answered.
const REMEMBERED: usize = 24;
/// The minimum of `region.max_scopes`.
const MIN_SCOPES: u32 = 8;
/// Offset of the last byte of the endpoint in a GENEVE gateway's frame.
const ENDPOINT_AT: usize = 61;
/// The number of services and of backends to compare; no setup has more.
const OBJECTS: u32 = 16;
/// The minimum number of outcomes that must occur; fewer would mean too uniform packets.
const OUTCOMES: usize = 30;
/// Outcomes (verdict and reason) that must occur, or a policy would be untested.
const EXPECTED: [(&str, &str); 16] = [
    ("return", ""),
    ("nat", ""),
    ("tunnel", ""),
    ("answer", ""),
    ("answer", OWN_OPTIONS),
    ("redirect", ""),
    ("punt", ""),
    ("forward", ""),
    ("reply", ""),
    ("reply", "too long once translated"),
    ("drop", "source_denied"),
    ("drop", "not_translatable"),
    ("drop", "flow_ambiguous"),
    ("drop", "scope_table_full"),
    ("drop", "nat_protocol"),
    ("drop", "exception_malformed"),
];

/// The plane's counters.
#[derive(Clone, PartialEq, Eq, Debug)]
struct CounterValues {
    verdicts: Vec<u64>,
    reasons: Vec<u64>,
    services: Vec<u64>,
    backends: Vec<u64>,
}

fn counter_values(page: &LcorePage<'_>) -> CounterValues {
    let ids = 0..OBJECTS;
    let dropped = |reason: &DropReason| page.dropped(0, *reason) + page.dropped(1, *reason);
    let service = |id: u32| {
        page.service_count(id, ServiceCounter::Packets)
            + page.service_count(id, ServiceCounter::Drops)
    };
    CounterValues {
        verdicts: VerdictCounter::ALL.iter().map(|verdict| page.verdict_count(*verdict)).collect(),
        reasons: DropReason::ALL.iter().map(dropped).collect(),
        services: ids.clone().map(service).collect(),
        backends: ids.map(|id| page.backend_count(id, ServiceCounter::Packets)).collect(),
    }
}

/// Returns the index of the first counter that increased.
fn grown(before: &[u64], after: &[u64]) -> Option<usize> {
    before.iter().zip(after).position(|(before, after)| after > before)
}

/// The plane's outcome, in the explanation's terms.
struct Observed {
    verdict: &'static str,
    reason: &'static str,
    service: Option<u32>,
    backend: Option<u32>,
}

/// Returns the outcome of a packet from the counters before and after it.
fn observed(before: &CounterValues, after: &CounterValues) -> Observed {
    let verdict = grown(&before.verdicts, &after.verdicts).map(|n| VerdictCounter::ALL[n].name());
    let reason = grown(&before.reasons, &after.reasons).map(|n| DropReason::ALL[n].name());
    let reply = verdict == Some(VerdictCounter::Reply.name());
    Observed {
        verdict: verdict.unwrap_or(VerdictCounter::Drop.name()),
        // The packet that an ICMP error reports counts as dropped in addition to the reply.
        reason: if reply { "" } else { reason.unwrap_or_default() },
        service: grown(&before.services, &after.services).map(|n| n as u32),
        backend: grown(&before.backends, &after.backends).map(|n| n as u32),
    }
}

/// Explains and forwards one packet; returns the outgoing frames, or the difference.
fn compare(plane: &mut Memory, trial: &Trial) -> Result<(Explanation, Sent), String> {
    let region = plane.loaded().region;
    let now_s = plane.loaded().lcore.now_s();
    let macs = [Some(IN_MAC), Some(OUT_MAC)];
    let explainer = Explainer { region, macs, now_s, tunnels: &[] };
    let kernel = trial.arrival == Arrival::Kernel;
    let entry = EntryPoint { arm: trial.arm, kernel, ..EntryPoint::default() };
    let explanation = explainer.frame(&entry, &mut trial.bytes.clone());
    let page = region.counters().lcore(0).ok_or("the lcore's counter page")?;
    let before = counter_values(&page);
    let output = match kernel {
        true => plane.kernel_sends(trial.arm, &trial.bytes),
        false => plane.send(trial.arm, &trial.bytes),
    };
    let observed = observed(&before, &counter_values(&page));
    let passes = matches!(explanation.verdict.as_str(), "nat" | "tunnel" | "answer" | "redirect");
    let agree = explanation.verdict == observed.verdict
        && explanation.drop_reason == observed.reason
        && (!passes || explanation.service_id == observed.service)
        && (!passes || explanation.backend_id == observed.backend)
        && output.iter().all(|(_, frame)| is_explained(&explanation, &trial.bytes, frame));
    match agree {
        true => Ok((explanation, output)),
        false => Err(format!(
            "the plane did {} {} (service {:?}, backend {:?}) with {trial:?}\n{explanation:#?}\n\
             {output:x?}",
            observed.verdict, observed.reason, observed.service, observed.backend
        )),
    }
}

/// Returns whether the outgoing frame has the explained addresses, ports and length, and an ICMP
/// error the explained MTU. A frame that is sent back differs from the one that arrived, `sent`, in
/// its outer addresses, and in an explained port and VNI.
fn is_explained(explanation: &Explanation, sent: &[u8], frame: &[u8]) -> bool {
    if explanation.verdict == "return" {
        let at = traffic::l3(frame);
        let l4 = at + if frame[at] >> 4 == 4 { 4 * usize::from(frame[at] & 0xf) } else { 40 };
        let port = u16::from_be_bytes([frame[l4 + 2], frame[l4 + 3]]);
        let vni = u32::from_be_bytes([0, frame[l4 + 12], frame[l4 + 13], frame[l4 + 14]]);
        let explained = format!("to UDP port {port} and VNI {vni} of tunnel ");
        let is_same = sent[l4 + 2..l4 + 4] == frame[l4 + 2..l4 + 4]
            && sent[l4 + 12..l4 + 15] == frame[l4 + 12..l4 + 15];
        return explanation.rewrite.contains(&explained)
            || is_same && !explanation.rewrite.contains("UDP port");
    }
    if !matches!(explanation.verdict.as_str(), "nat" | "redirect" | "reply") {
        return true;
    }
    let mut bytes = frame.to_vec();
    let at = traffic::l3(frame) as u16;
    let ethertype = if frame[usize::from(at)] >> 4 == 4 { 0x0800 } else { 0x86dd };
    let window = Window::new(&mut bytes);
    let Ok(ip) = Ip::parse(&window, at, ethertype) else { return false };
    let mentions = |text: &str| explanation.reasons.iter().any(|reason| reason.contains(text));
    if explanation.verdict == "reply" {
        let error = explanation.arrival.starts_with("plain") && ip.kind == L4::IcmpError;
        let mtu = if error { icmp::reported_mtu(&window, &ip).unwrap_or(0) } else { 0 };
        return mtu == 0 || mentions(&format!("error, MTU {mtu} bytes"));
    }
    if !matches!(ip.kind, L4::Tcp { .. } | L4::Udp) {
        return true;
    }
    let end = |addr, port| SocketAddr::new(IpAddr::from(addr), port).to_string();
    let ends = format!("{} -> {}", end(ip.src, ip.sport), end(ip.dst, ip.dport));
    let free = format!(":{} ->", ip.sport);
    let rewrite = explanation.rewrite.replace(":(a free port) ->", &free);
    let len = format!("it has {} bytes; the MTU", ip.end - ip.at);
    rewrite.starts_with(&ends) && (!rewrite.contains("translated") || mentions(&len))
}

/// Selects the next packet: a client's or an answer to an outgoing frame, some of them with a
/// flipped bit, truncated, or sent by the kernel.
fn next(setup: &Setup, rng: &mut Rng, left: &VecDeque<(Exit, Vec<u8>)>) -> Trial {
    let answered = match rng.usize(..16) {
        0..7 => left.get(rng.usize(..left.len().max(1))),
        _ => None,
    };
    let answer = answered.and_then(|(exit, frame)| match exit {
        Exit::Kernel(arm) => of_kernel(*arm, frame, rng),
        Exit::Port(_) => traffic::answer(*exit, frame, rng),
    });
    let mut trial = answer.unwrap_or_else(|| match rng.usize(..24) {
        0 => traffic::arrives(INGRESS, from_router(cut()).bytes()),
        _ => traffic::request(setup, rng),
    });
    if rng.usize(..6) == 0 && !trial.bytes.is_empty() {
        let at = rng.usize(..trial.bytes.len().min(120));
        trial.bytes[at] ^= 1 << rng.usize(..8);
    }
    if rng.usize(..40) == 0 {
        trial.bytes.truncate(rng.usize(..100));
    }
    if setup.max_scopes == MIN_SCOPES && trial.bytes.len() > ENDPOINT_AT && rng.usize(..8) == 0 {
        trial.bytes[ENDPOINT_AT] = rng.u8(..32);
    }
    if rng.usize(..64) == 0 {
        trial.arrival = Arrival::Kernel;
    }
    Trial { first: trial.bytes.len(), ..trial }
}

/// Builds the first fragment of a datagram without a checksum, which cannot be translated.
fn cut() -> tests::frames::Ip {
    let datagram = udp("198.51.100.7:40000", "203.0.113.20:53").may_fragment().id(9).unsummed();
    datagram.sized(600).part(0, 256, true)
}

/// Builds the response of the appliance's kernel, or of a proxy on the appliance, to a frame.
fn of_kernel(arm: u8, frame: &[u8], rng: &mut Rng) -> Option<Trial> {
    let error = rng.usize(..8) == 0;
    let mut trial = match error {
        true => traffic::error_about(frame, arm, rng)?,
        false => traffic::arrives(arm, frame.to_vec()),
    };
    if !error {
        let at = traffic::l3(frame);
        traffic::reverse(&mut trial.bytes, at, true, rng)?;
    }
    trial.arrival = Arrival::Kernel;
    Some(trial)
}

/// Formats a service's backends: their addresses, and the port of those with NAT.
fn backends(mode: &str, addresses: &[&str]) -> String {
    let port = if mode.contains("nat") { ", port = 8080" } else { "" };
    let one = |address: &&str| format!("{{address = \"{address}\"{port}}}");
    addresses.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The IPv6 frontend: any port and protocol.
const WEB6: &str = r#"{address = "2001:db8:f::10"}"#;
/// The IPv4 frontend for any port.
const ANY: &str = r#"{address = "203.0.113.20"}"#;
/// IPv4 backends.
const FOUR: [&str; 3] = ["10.0.2.11", "10.0.2.12", "10.0.2.13"];
/// IPv6 backends.
const SIX: [&str; 2] = ["fd00:2::11", "fd00:2::12"];

/// Replaces the services by ones with session affinity and source ranges.
fn with_affinity(setup: Setup, mode: &str) -> Setup {
    let mode = format!("{mode}\ntable_size = 251\naffinity_s = 30");
    let some = format!("{mode}\nsource_ranges = [\"198.51.100.0/29\", \"2001:db8:c::7\"]");
    let others = format!("{mode}\nsource_policy = \"deny\"\nsource_ranges = [\"198.51.100.7/32\"]");
    let services = service("web", &some, WEB, &backends(&mode, &FOUR))
        + &service("any", &others, ANY, &backends(&mode, &FOUR[..2]))
        + &service("six", &some, WEB6, &backends(&mode, &SIX));
    Setup { services, ..setup.named("affinity and source ranges") }
}

/// Replaces the services as [`with_affinity`], by ones with backends of the other family.
fn with_affinity_across(setup: Setup) -> Setup {
    let keys = |policy: &str| {
        format!(
            "mode = \"nat\"\nnat_policy = \"{policy}\"\ntable_size = 251\naffinity_s = 30\n\
             source_policy = \"deny\"\nsource_ranges = [\"198.51.100.8\", \"2001:db8:c::8\"]"
        )
    };
    let (to_six, to_four) = (keys("nat46"), keys("nat64"));
    let services = service("web", &to_six, WEB, &backends("nat", &SIX))
        + &service("any", &to_six, ANY, r#"{address = "fd00:2::12"}"#)
        + &service("six", &to_four, WEB6, r#"{address = "10.0.2.11"}, {address = "10.0.2.12"}"#);
    Setup { services, ..setup.named("affinity and source ranges across families") }
}

/// Replaces the services by ones with proxies: for all ports, for some ports, and over IPv6 for one
/// client.
fn proxied(setup: Setup) -> Setup {
    let all = "mode = \"nat\"\nproxy_redirect = {port = 9000}";
    let some = "mode = \"nat\"\nproxy_redirect = {port = 9001, ports = [53]}";
    let few = format!("{all}\nsource_ranges = [\"2001:db8:c::7\"]");
    let at = |port| format!("{{address = \"203.0.113.20\", port = {port}, protocol = \"tcp\"}}");
    let services = service("web", all, WEB, &backends("nat", &FOUR))
        + &service("some", some, &format!("{}, {}", at(53), at(54)), &backends("nat", &FOUR))
        + &service("six", &few, WEB6, &backends("nat", &SIX));
    Setup { services, ..setup.named("proxies") }
}

/// Limits the setup to [`MIN_SCOPES`] scopes, so that some gateway endpoints get none.
fn narrow(setup: Setup) -> Setup {
    Setup { max_scopes: MIN_SCOPES, ..setup.named("few endpoints") }
}

/// Sets the MTU of all next hops.
fn set_mtu(plane: &mut Memory, setup: &Setup, mtu: u16) {
    let Some(target) = plane.loaded().target.as_mut() else { return };
    for (arm, to, _) in target.next_hops() {
        let neighbor = setup.neighbors.iter().find(|n| n.address.parse() == Ok(to) && n.arm == arm);
        let src_mac = [IN_MAC, OUT_MAC][usize::from(arm)];
        target.set_next_hop(&Resolved { arm, to, mac: neighbor.map(|n| n.mac), src_mac, mtu });
    }
}

/// Replaces the services by one with four backends, one for a network, and one for a single
/// endpoint.
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
    // The MAC address of one backend is not known.
    setup.neighbors.retain(|neighbor| neighbor.address != "10.0.2.14");
    setup
}

fn setups() -> Vec<Setup> {
    vec![
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
        aws_translated(),
        azure_translated(),
        plain_translated(),
        with_affinity(aws_nat(), "mode = \"nat\""),
        with_affinity(plain_nat(), "mode = \"nat\""),
        with_affinity(aws_nat(), "mode = \"tunnel\"\ntunnel = \"ipip\""),
        with_affinity_across(aws_nat()),
        with_affinity_across(azure_nat()),
        with_affinity_across(plain_nat()),
        proxied(aws_nat()),
        proxied(azure_nat()),
        proxied(plain_nat()),
        narrow(with_affinity(aws_nat(), "mode = \"nat\"")),
    ]
}

#[test]
fn explain_matches_the_data_plane() {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    let mut rng = Rng::with_seed(seed);
    let (mut plane, mut outcomes, mut sent) = (Memory::new(), BTreeMap::new(), 0);
    for (round, setup) in setups().iter().cycle().enumerate() {
        if sent >= PACKETS {
            break;
        }
        plane.load(&Setup { kernel_capacity: usize::MAX, ..setup.clone() });
        let mtu = if round.is_multiple_of(2) { 9_001 } else { 1_500 };
        set_mtu(&mut plane, setup, mtu);
        let mut left: VecDeque<(Exit, Vec<u8>)> = VecDeque::new();
        for n in 0..2 * PHASE {
            sent += 1;
            // The clock also advances to refill the punt limits: `explain` does not know how much
            // of them this lcore has used in the current second.
            plane.advance_s(match rng.usize(..128) {
                0 => ENDED_S,
                1..8 => 4,
                _ => 0,
            });
            if n == PHASE {
                // Each service replaces one of its backends.
                let moved = setup.services.replace("10.0.2.12\"", "10.0.2.15\"");
                let moved = moved.replace("fd00:2::12\"", "fd00:2::15\"");
                plane.change(&Change::Services(moved));
                set_mtu(&mut plane, setup, mtu);
            }
            let trial = next(setup, &mut rng, &left);
            let (explanation, output) = compare(&mut plane, &trial).unwrap_or_else(|text| {
                panic!("packet {sent} of seed {seed}, tables {}:\n{text}", setup.name)
            });
            let grew = explanation.reasons.iter().any(|one| one.ends_with("is too small"));
            let reason = match explanation.drop_reason {
                _ if grew => "too long once translated".into(),
                _ if explanation.rewrite.ends_with("the packet's own options") => {
                    OWN_OPTIONS.into()
                }
                reason => reason,
            };
            *outcomes.entry((explanation.verdict, reason)).or_insert(0) += 1;
            let often = sent.is_multiple_of(3);
            left.extend(output.into_iter().filter(|(exit, _)| often || *exit != Exit::Port(0)));
            while left.len() > REMEMBERED {
                left.pop_front();
            }
        }
    }
    println!("{sent} packets: {outcomes:#?}");
    assert!(outcomes.len() >= OUTCOMES, "{outcomes:?}");
    for (verdict, reason) in EXPECTED {
        let expected = (verdict.to_owned(), reason.to_owned());
        assert!(outcomes.contains_key(&expected), "no {verdict} {reason}: {outcomes:?}");
    }
}
