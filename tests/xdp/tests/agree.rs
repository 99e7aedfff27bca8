//! The kernel accepts the program `parse`, and `packet` gives the same results in the kernel as on
//! the host.
#![expect(clippy::panic, reason = "test setup panics on failure")]

mod loading;
#[path = "../bpf/src/parser.rs"]
mod parser;

use aya::maps::Array;
use aya::programs::TestRun;
use aya::{Ebpf, EbpfLoader, TestRunOptions};
use fastrand::Rng;
use loading::{load, program};
use packet::addr::Addr;
use packet::flow::{FlowKey, HashKey};
use packet::ip::Ip;
use packet::window::Window;
use parser::{PARSED, ParsedPacket, Report};
use tests::cases::{self, Act, Wire};

/// The minimum frame length of the kernel's test run.
const SHORTEST: usize = 14;

fn loaded(object: &[u8], programs: &[&str]) -> Ebpf {
    let mut ebpf = EbpfLoader::new().load(object).unwrap_or_else(|e| panic!("{e}"));
    load(&mut ebpf, programs);
    ebpf
}

/// Returns the result of the stages on the host.
fn on_host(bytes: &mut [u8]) -> Report {
    let w = Window::new(bytes);
    let (outer, inner, key) = (Ip::default(), Ip::default(), FlowKey::default());
    let (hash, endpoint, attachment, cookie, options) = (0, 0, 0, 0, 0);
    let (inner_at, inner_type) = (0, 0);
    let mut found = ParsedPacket {
        hash,
        endpoint,
        attachment,
        key,
        cookie,
        options,
        outer,
        inner,
        inner_at,
        inner_type,
    };
    let mut outcome = parser::outer(&w, &mut found);
    if outcome == PARSED {
        outcome =
            parser::usual_tunnel(&w, &mut found).unwrap_or_else(|| parser::tunnel(&w, &mut found));
    }
    if outcome == PARSED {
        outcome = parser::inner(&w, &mut found);
    }
    parser::classify(&mut found, &HashKey::new(0));
    Report::of(&found, outcome)
}

/// Returns the result of the stages in the kernel.
fn in_kernel(ebpf: &mut Ebpf, bytes: &[u8]) -> Report {
    let options = TestRunOptions { data_in: Some(bytes), ..Default::default() };
    program(ebpf, "parse").test_run(options).unwrap_or_else(|e| panic!("{e:?}"));
    let found = ebpf.map("REPORT").expect("the object has this map");
    let found = Array::<_, [u64; 17]>::try_from(found).expect("an array of one report");
    let found = found.get(&0, 0).expect("the array has one element");
    let word = |n: usize| (found[n / 2] >> (n % 2 * 32)) as u32;
    let packet = |first: usize| std::array::from_fn(|n| word(first + n));
    let end = |first: usize| Addr { words: std::array::from_fn(|n| word(first + n)) };
    let key =
        FlowKey { scope: word(22), proto: word(23), ports: word(24), low: end(25), high: end(29) };
    Report {
        hash: found[0],
        options: [found[1], found[2], found[3]],
        outcome: word(8),
        present: word(9),
        packets: [packet(10), packet(16)],
        key,
        pad: 0,
    }
}

/// Returns the single frames that arrive or that the kernel sends in the cases, except those
/// shorter than [`SHORTEST`].
fn frames() -> Vec<Vec<u8>> {
    let all = cases::all();
    let acts = all.iter().flat_map(|case| &case.steps).map(|step| &step.act);
    let wires = acts.filter_map(|act| match act {
        Act::Arrives(_, wire) | Act::ArrivesSplit(_, wire, _) | Act::KernelSends(_, wire) => {
            Some(wire)
        }
        _ => None,
    });
    wires
        .map(|wire| match wire {
            Wire::Built(frame) => frame.bytes(),
            Wire::Raw(bytes) => bytes.clone(),
        })
        .filter(|bytes| bytes.len() >= SHORTEST)
        .collect()
}

/// Asserts that kernel and host agree on the outcome and, if it is [`PARSED`], on the whole report.
/// Returns the outcome.
fn assert_agreed(ebpf: &mut Ebpf, bytes: &mut [u8]) -> u32 {
    let (on_host, in_kernel) = (on_host(bytes), in_kernel(ebpf, bytes));
    assert_eq!(on_host.outcome, in_kernel.outcome, "{bytes:02x?}");
    if on_host.outcome == PARSED {
        assert_eq!(on_host, in_kernel, "{bytes:02x?}");
    }
    on_host.outcome
}

#[test]
fn kernel_and_host_parse_every_case_frame_alike() {
    let mut ebpf = loaded(xdp_test_programs::BASELINE, &["nothing", "parse"]);
    let mut frames = frames();
    let parsed =
        frames.iter_mut().filter_map(|f| (assert_agreed(&mut ebpf, f) == PARSED).then_some(()));
    let parsed = parsed.count();
    println!("{} frames, {parsed} of them with a flow key", frames.len());
    assert!(parsed > 50, "only {parsed}");
}

#[test]
fn kernel_and_host_agree_on_damaged_frames() {
    let mut ebpf = loaded(xdp_test_programs::BASELINE, &["parse"]);
    let frames = frames();
    let mut rng = Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    let mut outcomes = [0; 6];
    for _ in 0..20_000 {
        let mut bytes = frames[rng.usize(..frames.len())].clone();
        for _ in 0..1 + rng.usize(..3) {
            let at = rng.usize(..bytes.len().min(160));
            bytes[at] = [0, 0xff, 1 << rng.usize(..8), rng.u8(..)][rng.usize(..4)];
        }
        if rng.usize(..4) == 0 {
            bytes.truncate(SHORTEST + rng.usize(..bytes.len() - SHORTEST + 1));
        }
        outcomes[assert_agreed(&mut ebpf, &mut bytes) as usize] += 1;
    }
    println!("parsed, outer, checksum, plain, tunnel, inner: {outcomes:?}");
    assert!(outcomes.iter().all(|n| *n > 0), "an outcome did not occur: {outcomes:?}");
}
