//! The kernel accepts every stage of the journey, and packets lost to a missing stage are counted.
#![expect(clippy::panic, reason = "a test that can't be set up fails")]

use aya::TestRunOptions;
use aya::programs::TestRun;
use ebpf_fallback::ports::{Place, Port};
use ebpf_fallback::program::{Program, STAGES};
use packet::checksum;
use packet::window::Window;
use std::path::PathBuf;
use tables::counters::ArmCounter;
use tables::layout::Sizes;
use tables::reason::DropReason;
use tables::region::{Place as Where, Region};

/// Limit of the contract for instructions per program, on any kernel.
const MOST_INSTRUCTIONS: u32 = 250_000;
/// The loopback interface, on which test packets arrive.
const LOOPBACK: u32 = 1;
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A program with empty tables, which are removed with it.
struct Rig {
    region: Region,
    program: Program,
    place: Where,
}

impl Rig {
    fn new(name: &str) -> Rig {
        let folder = PathBuf::from(format!("/sys/fs/bpf/weir-{name}-{}", std::process::id()));
        let place = Where::Maps(folder.clone());
        let sizes = Sizes { lcores: 64, ..Sizes::SMALL };
        let region = Region::create_or_open(&place, &sizes, 1).unwrap_or_else(|e| panic!("{e}"));
        let program = Program::load(&region, &folder, 1).unwrap_or_else(|e| panic!("{e}"));
        Rig { region, program, place }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A failure to clean up is visible by what remains.
        let _ = self.place.remove();
    }
}

#[test]
fn the_kernel_accepts_every_stage_within_its_share() {
    let mut rig = Rig::new("stages");
    let verified = rig.program.verified().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(verified.len(), STAGES.len() + 1);
    for (stage, instructions) in verified {
        println!("{stage:<9}{instructions:>8} instructions verified");
        // Kernels before 5.16 do not report the number.
        assert!((1..MOST_INSTRUCTIONS).contains(&instructions), "{stage}: {instructions}");
    }
}

#[test]
fn each_stage_has_its_number_in_the_program_too() {
    let program = include_str!("../xdp/src/next.rs");
    for (number, stage) in STAGES.iter().enumerate() {
        let line = format!("pub const {}: u32 = {number};", stage.to_uppercase());
        assert!(program.contains(&line), "xdp/src/next.rs has no `{line}`");
    }
    assert_eq!(program.matches("=> leap::<").count(), STAGES.len());
}

#[test]
fn a_packet_whose_next_stage_is_missing_is_counted() {
    let mut rig = Rig::new("astray");
    let port = Port::new(LOOPBACK, OURS);
    let place = Place { ports: [port; 2], ..Place::default() };
    rig.program.settle(&place).unwrap_or_else(|e| panic!("{e}"));
    let classify = STAGES.iter().position(|stage| *stage == "classify").expect("a stage");
    rig.program.unset(classify).unwrap_or_else(|e| panic!("{e}"));
    // A ping, as far as the first stage parses it.
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&OURS);
    frame[12..14].copy_from_slice(&[8, 0]);
    let header = [0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    frame[14..34].copy_from_slice(&header);
    let sum = checksum::ipv4_header(&Window::new(&mut frame), 14, 20).expect("it is in sight");
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
    frame[34] = 8;
    let options = TestRunOptions { data_in: Some(&frame), ..Default::default() };
    let entry = rig.program.entry().unwrap_or_else(|e| panic!("{e}"));
    let done = entry.test_run(options).unwrap_or_else(|e| panic!("{e:?}"));
    const XDP_DROP: u32 = 1;
    assert_eq!(done.return_value, XDP_DROP);
    let counters = rig.region.counters();
    let dropped: Vec<_> = DropReason::ALL
        .iter()
        .filter(|reason| counters.sum(|page| page.dropped(0, **reason)) > 0)
        .collect();
    assert_eq!(dropped, [&DropReason::StageMissing]);
    assert_eq!(counters.sum(|page| page.arm_count(0, ArmCounter::RxPackets)), 1);
}
