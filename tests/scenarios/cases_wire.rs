//! Runs every case through real DPDK ports on veth, with the pcap and the af_packet driver.
//!
//! DPDK can be started once per process, so there is a single test here. It also causes the drop
//! reasons `no_headroom` and `tx_queue_full`, which need a buffer pool and a NIC.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    pub mod loaded;
    pub mod wire;
}

use dpdk_bindings::Eal;
use planes::wire::{ARGUMENTS, Driver, Wire};
use std::error::Error;
use std::process::Command;
use tables::reason::DropReason;
use tests::cases::addresses::*;
use tests::cases::setups::{aws_nat, aws_return};
use tests::cases::{self, Plane};
use tests::frames::{Frame, Ip, aws_options, flags, option, tcp};
use tests::lab::netns::Netns;

#[test]
fn every_case_passes_on_dpdk_ports() -> Result<(), Box<dyn Error>> {
    let namespace = Netns::new("cases")?;
    let drivers = [Driver::Pcap, Driver::AfPacket];
    for driver in drivers {
        let lines = driver.link_commands();
        namespace.ip(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    let failed = namespace.run(move || {
        let ports = drivers.into_iter().flat_map(Driver::arguments);
        let arguments: Vec<String> = ARGUMENTS.map(String::from).into_iter().chain(ports).collect();
        let eal = Eal::start(&arguments).unwrap_or_else(|e| panic!("{e}"));
        let mut failed = Vec::new();
        for driver in drivers {
            let mut plane = Wire::new(&eal, driver);
            failed.extend(run_cases(&mut plane, driver));
            an_answer_without_headroom_is_dropped_if_the_pool_is_empty(&mut plane);
            if driver == Driver::AfPacket {
                packets_for_a_full_transmit_ring_are_counted(&mut plane);
            }
        }
        failed
    })?;
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    Ok(())
}

/// Runs all cases that the driver supports. With af_packet the kernel would reassemble fragments,
/// so cases with fragments on the wire run on the pcap driver alone.
fn run_cases(plane: &mut Wire, driver: Driver) -> Vec<String> {
    let mut all = cases::all();
    if driver == Driver::AfPacket {
        all.retain(|case| !case.has_outer_fragments());
    }
    let failed: Vec<String> = all.iter().filter_map(|case| cases::run(case, plane).err()).collect();
    println!("{} cases on {}, {} failed", all.len(), plane.name(), failed.len());
    failed
}

/// An answer needs more headroom than its buffer has, and no further buffer is free.
fn an_answer_without_headroom_is_dropped_if_the_pool_is_empty(plane: &mut Wire) {
    plane.load(&aws_nat());
    let mut options = aws_options(ENDPOINT, 0, 1);
    options.extend(option(0x0103, 2, &[7; 124]));
    let long = |inner: Ip| {
        let outer = inner.in_geneve(NODE, OUR_GENEVE, options.clone());
        Frame::new(ROUTER, IN_MAC, outer).bytes()
    };
    let output = plane.send(INGRESS, &long(syn()));
    let [(_, sent)] = &output[..] else { panic!("the SYN goes to the backend: {output:?}") };
    let port = u16::from_be_bytes([sent[34], sent[35]]);
    let answer = from_backend(11, syn_ack().from(BACKEND).to(OUR_NAT).to_port(port)).bytes();
    let output = plane.send_without_buffers(EGRESS, &answer);
    assert!(output.is_empty(), "no buffer, no answer: {output:?}");
    assert_eq!(plane.counts().drops[&DropReason::NoHeadroom], 1);
    assert_eq!(plane.send(EGRESS, &answer).len(), 1, "with buffers the answer leaves");
    assert_eq!(plane.counts().entered(), plane.counts().ended());
}

/// While the link is down, the driver's transmit ring fills, and further packets are dropped.
fn packets_for_a_full_transmit_ring_are_counted(plane: &mut Wire) {
    let set_link = |state: &str| {
        let done = Command::new("ip").args(["link", "set", "ain0", state]).status();
        assert!(done.is_ok_and(|status| status.success()), "ip link set ain0 {state}");
    };
    plane.load(&aws_return());
    let frame = Frame::new(IN_MAC, ROUTER, tcp("10.0.1.10:179", "10.0.1.1:50000", flags::ACK));
    set_link("down");
    plane.kernel_floods(INGRESS, &frame.bytes(), 200);
    set_link("up");
    let counts = plane.counts();
    assert!(counts.drops[&DropReason::TxQueueFull] > 0, "a full ring drops: {counts:?}");
    assert_eq!((counts.from_kernel, counts.ended()), (200, 200));
}
