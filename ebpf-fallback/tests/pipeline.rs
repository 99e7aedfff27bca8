//! The verifier accepts every stage of the pipeline within the instruction limit, loader and
//! programs have the same stage numbers, and packets lost to a missing stage are counted.
#![expect(clippy::panic, reason = "test setup panics on failure")]

mod tracing;

use aya::TestRunOptions;
use aya::programs::TestRun;
use ebpf_fallback::losses::LossCounters;
use ebpf_fallback::program::{Program, STAGES};
use ebpf_fallback::runtime_config::{Port, RuntimeConfig};
use ebpf_fallback::watched::Watched;
use packet::checksum;
use packet::window::Window;
use std::path::PathBuf;
use tables::counters::ArmCounter;
use tables::layout::Sizes;
use tables::reason::DropReason;
use tables::region::{Region, RegionLocation};

/// Maximum number of verified instructions per program, on any kernel.
const MAX_INSTRUCTIONS: u32 = 250_000;
/// The loopback interface, on which test packets arrive.
const LOOPBACK: u32 = 1;
const LOCAL_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The loaded programs with empty tables, which are removed on drop.
struct Fixture {
    region: Region,
    program: Program,
    location: RegionLocation,
}

impl Fixture {
    fn new(name: &str) -> Fixture {
        let folder = PathBuf::from(format!("/sys/fs/bpf/weir-{name}-{}", std::process::id()));
        let location = RegionLocation::maps(folder.clone());
        let sizes = Sizes { lcores: 64, ..Sizes::SMALL };
        let region = Region::create_or_open(&location, &sizes, 1).unwrap_or_else(|e| panic!("{e}"));
        let program = Program::load(&region, &folder, 1).unwrap_or_else(|e| panic!("{e}"));
        Fixture { region, program, location }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // If removal fails, the maps remain in /sys/fs/bpf under a name with this process's id.
        let _ = self.location.remove();
    }
}

#[test]
fn verifier_accepts_every_stage_within_the_instruction_limit() {
    let mut fixture = Fixture::new("stages");
    let verified = fixture.program.verified().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(verified.len(), STAGES.len() + 1);
    for (stage, instructions) in verified {
        println!("{stage:<9}{instructions:>8} instructions verified");
        // 0 on kernels before 5.16, which do not report the number and fail this test.
        assert!((1..MAX_INSTRUCTIONS).contains(&instructions), "{stage}: {instructions}");
    }
}

#[test]
fn every_tracepoint_program_is_attached() {
    tracing::mount(c"tracefs");
    let watched = Watched { program: 1, interfaces: [LOOPBACK, 0, 0, 0] };
    let (counters, warnings) = LossCounters::open(watched);
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(counters.of_arm(&counters.read(), 0, &[None; 4]), [Some(0); 4]);
}

#[test]
fn stage_numbers_agree_with_the_program() {
    let program = include_str!("../xdp/src/next.rs");
    for (number, stage) in STAGES.iter().enumerate() {
        let name = stage.to_uppercase();
        for line in [format!("pub const {name}: u32 = {number};"), format!("tail_call::<{name}>(")]
        {
            assert!(program.contains(&line), "xdp/src/next.rs has no `{line}`");
        }
    }
    assert_eq!(program.matches(" tail_call::<").count(), STAGES.len());
}

#[test]
fn packet_with_a_missing_stage_is_counted() {
    let mut fixture = Fixture::new("missing");
    let port = Port::new(LOOPBACK, LOCAL_MAC);
    let config = RuntimeConfig { ports: [port; 2], ..RuntimeConfig::default() };
    fixture.program.configure(&config).unwrap_or_else(|e| panic!("{e}"));
    let classify = STAGES.iter().position(|stage| *stage == "classify").expect("a stage");
    fixture.program.remove_stage(classify).unwrap_or_else(|e| panic!("{e}"));
    // A ping with the fields that the stage `outer` reads.
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&LOCAL_MAC);
    frame[12..14].copy_from_slice(&[8, 0]);
    let header = [0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    frame[14..34].copy_from_slice(&header);
    let window = Window::new(&mut frame);
    let sum = checksum::ipv4_header(&window, 14, 20).expect("the frame contains the header");
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
    frame[34] = 8;
    let options = TestRunOptions { data_in: Some(&frame), ..Default::default() };
    let entry = fixture.program.entry().unwrap_or_else(|e| panic!("{e}"));
    let result = entry.test_run(options).unwrap_or_else(|e| panic!("{e:?}"));
    const XDP_DROP: u32 = 1;
    assert_eq!(result.return_value, XDP_DROP);
    let counters = fixture.region.counters();
    let dropped: Vec<_> = DropReason::ALL
        .iter()
        .filter(|reason| counters.sum(|page| page.dropped(0, **reason)) > 0)
        .collect();
    assert_eq!(dropped, [&DropReason::StageMissing]);
    assert_eq!(counters.sum(|page| page.arm_count(0, ArmCounter::RxPackets)), 1);
}
