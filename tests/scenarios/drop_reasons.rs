//! Drop reasons that the cases cannot cause. They need tables that slowpath would not write, a flow
//! table full of confirmed flows, a locked bucket, or a packet without a decision.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    pub mod loaded;
    pub mod memory;
}

use fastpath::burst::{Arrival, Burst};
use fastpath::dispatch::{Exits, count_arrivals, dispatch};
use fastpath::port::memory::Frame;
use packet::addr::Addr;
use packet::flow::FlowKey;
use planes::memory::Memory;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use tables::flow::{Flows, Forward, GatewayLeg, NewFlow};
use tables::layout::Section;
use tables::reason::DropReason;
use tables::record::{Backend, NAT_ADDRS, NONE, Settings};
use tables::region::Region;
use tables::writer::Writer;
use tests::cases::addresses::{INGRESS, from_gateway, syn};
use tests::cases::setups::aws_nat;
use tests::cases::{Exit, Plane, Setup};
use tests::lab::folder::Folder;

/// Sends a SYN with tables that `change` has made inconsistent, and returns the drop reasons.
fn dropped(change: impl FnOnce(&mut Writer<'static>)) -> Vec<DropReason> {
    let mut plane = Memory::new();
    plane.load(&aws_nat());
    let loaded = plane.loaded();
    loaded.target = None;
    let mut writer = Writer::attach(loaded.region).expect("the previous writer has ended");
    change(&mut writer);
    writer.commit().expect("a valid change");
    loaded.lcore.poll_control();
    let output = plane.send(INGRESS, &from_gateway(1, syn()).bytes());
    assert!(output.is_empty(), "no frame may leave: {output:?}");
    drops(&mut plane).into_iter().map(|(reason, _)| reason).collect()
}

/// Returns the reasons with nonzero counters, and their counts.
fn drops(plane: &mut Memory) -> Vec<(DropReason, u64)> {
    let counts = plane.counts();
    assert_eq!(counts.entered(), counts.ended());
    counts.drops.into_iter().filter(|(_, n)| *n > 0).collect()
}

#[test]
fn a_backend_without_a_next_hop_has_no_route() {
    let reasons = dropped(|writer| {
        let addr = Addr::from("10.0.2.11".parse::<IpAddr>().expect("an address"));
        let id = writer.backend_id(&addr, 8080).expect("the backend of web");
        let record = *writer.committed().backend(id).expect("the backend's record");
        writer.put_backend(&Backend { next_hop: NONE, ..record }).expect("capacity for one more");
    });
    assert_eq!(reasons, [DropReason::NoRoute]);
}

#[test]
fn nat_without_an_address_of_the_family_is_dropped() {
    let reasons = dropped(|writer| {
        let settings = *writer.committed().settings();
        let nat = [Settings::EMPTY.nat[0]; NAT_ADDRS];
        writer.put_settings(&Settings { nat, ..settings }).expect("settings always fit");
    });
    assert_eq!(reasons, [DropReason::NatNoAddress]);
}

#[test]
fn a_table_full_of_confirmed_flows_drops_new_ones() {
    let mut plane = Memory::new();
    plane.load(&Setup { max_flows: 64, ..aws_nat() });
    let flows = Flows::new(plane.loaded().region).as_owner(0, 1);
    let addr = |text: &str| Addr::from(text.parse::<IpAddr>().expect("an address"));
    plane.loaded().lcore.flow_addresses().add(&addr("203.0.113.99"));
    for n in 0..10_000 {
        let (client, to) = (addr("192.0.2.1"), addr("203.0.113.99"));
        let (front, front_initiator) = FlowKey::new(1, 6, client, 1024 + n, to, 80);
        let new = NewFlow {
            front,
            front_initiator,
            back: None,
            forward: Forward { proto: 6, ..Forward::default() },
            gateway: GatewayLeg::default(),
            digest: 0,
            nat_map: NONE,
            idle_s: 0,
        };
        let Ok(hit) = flows.insert(&new, &[], 0) else { continue };
        // SYN, SYN-ACK and ACK.
        for (flags, from_initiator) in [(2, true), (18, false), (16, true)] {
            flows.note(&hit, flags, from_initiator);
        }
    }
    assert_eq!(flows.live(), flows.capacity());
    assert_eq!(plane.send(INGRESS, &from_gateway(1, syn()).bytes()), []);
    assert_eq!(drops(&mut plane), [(DropReason::FlowTableFull, 1)]);
}

/// The lock words of an empty index are 0. Bits 0 to 23 of a word identify the holder: here an
/// lcore of another process, which never unlocks. The words are written through the region's file,
/// as that process would.
#[test]
fn a_locked_bucket_is_contended_until_the_flow_table_recovers() {
    let folder = Folder::new().expect("the region's directory");
    let path = folder.shared("region");
    let setup = aws_nat();
    let sizes = planes::loaded::sizes(&setup);
    let region = Region::create_or_open(path.as_path(), &sizes, 1).expect("a region in a file");
    let region: &'static Region = Box::leak(Box::new(region));
    let mut plane = Memory::new();
    plane.region = Some(region);
    plane.load(&setup);
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the region's file");
    let term = region.layout().term(Section::FlowLocks);
    let locked: Vec<u8> = 0x0105u64.to_le_bytes().repeat(term.bytes / 8);
    file.write_all_at(&locked, term.offset as u64).expect("writable lock words");
    let frame = from_gateway(1, syn()).bytes();
    assert_eq!(plane.send(INGRESS, &frame), []);
    assert_eq!(drops(&mut plane), [(DropReason::FlowContended, 1)]);
    assert!(Flows::new(region).recover().stale_locks > 0);
    let output = plane.send(INGRESS, &frame);
    assert!(matches!(output[..], [(Exit::Port(_), _)]), "forwarded after recovery: {output:?}");
    assert_eq!(drops(&mut plane), [(DropReason::FlowContended, 1)]);
}

/// Exits through which no frame may leave.
struct NoExit;

impl Exits<Frame> for NoExit {
    fn port(&mut self, arm: u8, frame: Frame) {
        panic!("sent by the port of arm {arm}: {:?}", frame.to_vec());
    }

    fn kernel(&mut self, arm: u8, frame: Frame) -> bool {
        panic!("sent to the kernel by arm {arm}: {:?}", frame.to_vec());
    }
}

#[test]
fn a_packet_without_a_decision_is_counted_as_undecided() {
    let mut plane = Memory::new();
    plane.load(&aws_nat());
    plane.loaded().undecided = 1;
    let lcore = &plane.loaded().lcore;
    let mut burst = Burst::default();
    burst.push(Frame::new(&from_gateway(1, syn()).bytes()), INGRESS, Arrival::Plain);
    count_arrivals(&burst, lcore);
    // No stage has processed the packet.
    dispatch(&mut burst, lcore, &mut NoExit);
    assert_eq!(drops(&mut plane), [(DropReason::Undecided, 1)]);
}
