//! Drop reasons that no configuration leads to: the checked configuration refuses them first, and
//! the fastpath, which trusts nobody's tables, refuses them still.
#![expect(clippy::panic, reason = "a test that can't be set up fails")]

mod planes {
    pub mod loaded;
    pub mod memory;
}

use packet::addr::Addr;
use planes::memory::Memory;
use std::net::IpAddr;
use tables::reason::DropReason;
use tables::record::{Backend, NAT_ADDRS, NONE, Settings};
use tables::writer::Writer;
use tests::cases::Plane;
use tests::cases::setups::aws_nat;
use tests::cases::world::{INGRESS, from_gateway, syn};

/// Opens a connection with tables that `change` spoilt, and says what it was dropped for.
fn dropped(change: impl FnOnce(&mut Writer<'static>)) -> Vec<DropReason> {
    let mut plane = Memory::new();
    plane.load(&aws_nat());
    let loaded = plane.loaded();
    loaded.target = None;
    let mut writer = Writer::attach(loaded.region).expect("the last writer is gone");
    change(&mut writer);
    writer.commit().expect("a change that can be committed");
    loaded.lcore.poll_control();
    let came = plane.send(INGRESS, &from_gateway(1, syn()).bytes());
    assert!(came.is_empty(), "nothing may leave: {came:?}");
    let counts = plane.counts();
    assert_eq!(counts.entered(), counts.ended());
    counts.drops.into_iter().filter(|(_, n)| *n > 0).map(|(reason, _)| reason).collect()
}

#[test]
fn a_backend_without_a_next_hop_has_no_route() {
    let reasons = dropped(|writer| {
        let addr = Addr::from("10.0.2.11".parse::<IpAddr>().expect("an address"));
        let id = writer.backend_id(&addr, 8080).expect("the backend of web");
        let record = *writer.committed().backend(id).expect("its record");
        writer.put_backend(&Backend { next_hop: NONE, ..record }).expect("room for one more");
    });
    assert_eq!(reasons, [DropReason::NoRoute]);
}

#[test]
fn nat_without_an_address_of_the_family_is_refused() {
    let reasons = dropped(|writer| {
        let settings = *writer.committed().settings();
        let nat = [Settings::EMPTY.nat[0]; NAT_ADDRS];
        writer.put_settings(&Settings { nat, ..settings }).expect("settings are always taken");
    });
    assert_eq!(reasons, [DropReason::NatNoAddress]);
}
