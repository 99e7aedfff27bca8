//! Tests that readers see what the writer writes, and that rejected updates change nothing.

use super::*;
use crate::maglev::{self, MaglevBackend};
use crate::next_hop::NextHop;
use crate::note::{Member, ServiceNote};
use crate::record::{ADDRESS_MARK, Backend, Local, NONE, Service, SlotArray};
use packet::flow::HashKey;
use std::net::IpAddr;

mod killed;
mod model;

impl Writer<'_> {
    /// Sets the backends of a service by their weights (0 gets no slots), as Maglev distributes
    /// slots.
    pub(crate) fn set_slots(
        &mut self,
        id: u32,
        backends: &[(u32, u32)],
        size: u32,
        protocol: &str,
    ) -> Result<(), UpdateError> {
        let tables = self.prepared();
        let (mut ids, mut views) = (Vec::new(), Vec::new());
        for &(id, weight) in backends.iter().filter(|(_, weight)| *weight > 0) {
            let backend = tables.backend(id).ok_or_else(|| self.no_backend(id))?;
            let text = maglev::text(&backend.addr, backend.port, protocol);
            ids.push(id);
            views.push(MaglevBackend { text, weight });
        }
        self.set_table(id, &ids, |seed| maglev::build(&views, size, seed), size)
    }

    /// Assigns a frontend to a service.
    pub(crate) fn put_frontend(&mut self, key: &FrontendKey, id: u32) -> Result<(), UpdateError> {
        self.put_noted_frontend(key, id, 0)
    }
}

fn region() -> Region {
    // The number of stores to a chain depends on its entries, and these on the seed: with a fixed
    // seed, the tests of killed writers have the same stores in every run.
    Region::anonymous_with(&Sizes::SMALL, 7).unwrap()
}

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().unwrap())
}

fn policy() -> Service {
    Service { slots: SlotArray { first: 9, count: 9 }, single: 77, ..Service::EMPTY }
}

fn backend(last: u8) -> Backend {
    Backend {
        addr: Addr::v4(u32::from_ne_bytes([10, 0, 2, last])),
        probe: Addr::UNSPECIFIED,
        incarnation: 99,
        next_hop: NONE,
        nat_ports: NONE,
        probe_service: NONE,
        port: 80,
        state: 0,
        arm: 1,
        pad: 0,
    }
}

fn key(text: &str, port: u16, proto: u8) -> FrontendKey {
    FrontendKey { scope_key: 0, addr: addr(text), port, proto, prefix_len: 128, pad: 0 }
}

fn network(text: &str, prefix_len: u8, port: u16, proto: u8) -> FrontendKey {
    FrontendKey { prefix_len, ..key(text, port, proto) }
}

#[test]
fn changes_become_visible_at_commit() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let web = writer.put_service("default/web", &policy()).unwrap();
    let b = writer.put_backend(&backend(1)).unwrap();
    writer.put_frontend(&key("203.0.113.1", 80, 6), web).unwrap();
    writer.set_slots(web, &[(b, 100)], 251, "TCP").unwrap();
    let before = region.tables(0);
    assert_eq!(before.frontend(0, &addr("203.0.113.1"), 80, 6), None);
    assert!(before.service(web).is_none() && before.backend(b).is_none());
    assert_eq!(writer.commit().unwrap(), 1);
    assert_eq!(before.frontend(0, &addr("203.0.113.1"), 80, 6), None);
    let now = region.tables(region.generation());
    assert_eq!(now.frontend(0, &addr("203.0.113.1"), 80, 6), Some(web));
    let service = now.service(web).unwrap();
    assert_eq!(service.slots.count, 0);
    assert_eq!(now.pick(service, u64::MAX), Some(b));
    assert_eq!(now.backend(b).unwrap().incarnation, 1);
    assert_eq!(now.service_name(web).unwrap(), "default/web");
    assert_eq!(writer.commit().unwrap(), 1, "no change, no generation");
}

#[test]
fn appliances_with_equal_seed_select_equal_backends() {
    const SEED: u64 = 0x0123_4567_89ab_cdef;
    let choices = |order: [u8; 3], name: &str| {
        let path = format!("/dev/shm/weir-tables-{}-alike-{name}", std::process::id());
        let path = std::path::Path::new(&path);
        let region = Region::create_or_open(path, &Sizes::SMALL, SEED).unwrap();
        std::fs::remove_file(path).unwrap();
        let mut writer = Writer::attach(&region).unwrap();
        let web = writer.put_service("web", &policy()).unwrap();
        let ids = order.map(|last| (writer.put_backend(&backend(last)).unwrap(), 100));
        writer.set_slots(web, &ids, 251, "TCP").unwrap();
        writer.commit().unwrap();
        let set = region.tables(region.generation());
        let service = set.service(web).unwrap();
        let choose = |port: u16| {
            let (from, to) = (addr("198.51.100.7"), addr("203.0.113.1"));
            let (key, _) = packet::flow::FlowKey::new(0, 6, from, port, to, 80);
            set.backend(set.pick(service, key.hash(&HashKey::new(region.hash_seed()))).unwrap())
                .unwrap()
                .addr
        };
        (1024..5024).map(choose).collect::<Vec<_>>()
    };
    assert_eq!(choices([1, 2, 3], "one"), choices([3, 1, 2], "other"));
}

#[test]
fn policy_update_keeps_slots_of_service() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let web = writer.put_service("web", &policy()).unwrap();
    let ids: Vec<_> = (1..=3).map(|i| (writer.put_backend(&backend(i)).unwrap(), 1)).collect();
    writer.set_slots(web, &ids, 251, "TCP").unwrap();
    writer.commit().unwrap();
    let before = writer.committed().service(web).unwrap().slots;
    assert_eq!(before.count, 251);
    assert_eq!(writer.put_service("web", &policy()).unwrap(), web);
    assert_eq!(writer.prepared().service(web).unwrap().slots, before);
}

#[test]
fn old_generation_stays_readable_until_acknowledged() {
    let region = region();
    let _fastpath = region.claim(Role::Fastpath).unwrap();
    let lcore = &region.lcores()[0];
    let mut writer = Writer::attach(&region).unwrap();
    let web = writer.put_service("web", &policy()).unwrap();
    let ids: Vec<_> = (1..=3).map(|i| (writer.put_backend(&backend(i)).unwrap(), 1)).collect();
    writer.set_slots(web, &ids, 251, "TCP").unwrap();
    writer.put_frontend(&key("203.0.113.1", 80, 6), web).unwrap();
    writer.commit().unwrap();

    let old = region.tables(lcore.join(&region, 1, 3));
    let picks = |set: &TableSet<'_>| -> Vec<_> {
        let service = set.service(web).unwrap();
        (0..251u64).map(|i| set.pick(service, i * (u64::MAX / 251)).unwrap()).collect()
    };
    let before = picks(&old);
    writer.set_slots(web, &ids[1..], 251, "TCP").unwrap();
    writer.remove_frontend(&key("203.0.113.1", 80, 6)).unwrap();
    writer.remove_backend(ids[0].0).unwrap();
    writer.commit().unwrap();
    assert_eq!(picks(&old), before);
    assert_eq!(old.frontend(0, &addr("203.0.113.1"), 80, 6), Some(web));
    assert!(old.backend(ids[0].0).is_some());

    // The lcore still reads the old generation, whose memory must not be overwritten.
    assert!(!writer.acknowledged(2));
    let error = writer.put_backend(&backend(9)).unwrap_err();
    assert_eq!(error, UpdateError::Unacknowledged { lcore: 0, at: 1, committed: 2 });
    lcore.acknowledge(2);
    writer.put_backend(&backend(9)).unwrap();
    let new = region.tables(2);
    assert!(picks(&new).iter().all(|id| *id != ids[0].0));
    assert_eq!(new.frontend(0, &addr("203.0.113.1"), 80, 6), None);
}

#[test]
fn dead_lcores_do_not_block_reuse() {
    let region = region();
    let claim = region.claim(Role::Fastpath).unwrap();
    let mut writer = Writer::attach(&region).unwrap();
    writer.put_service("a", &policy()).unwrap();
    writer.commit().unwrap();
    region.lcores()[1].join(&region, claim.epoch(), 0);
    writer.put_service("b", &policy()).unwrap();
    writer.commit().unwrap();
    writer.put_service("c", &policy()).unwrap_err();
    drop(claim);
    writer.put_service("c", &policy()).unwrap();
}

#[test]
fn frontends_match_in_documented_order() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let names = ["exact", "port", "proto", "any", "net24", "net16", "net0", "net0v6"];
    let ids: Vec<_> = names.iter().map(|n| writer.put_service(n, &policy()).unwrap()).collect();
    let keys = [
        key("203.0.113.1", 80, 6),
        key("203.0.113.1", 0, 6),
        key("203.0.113.1", 80, 0),
        key("203.0.113.1", 0, 0),
        network("203.0.113.0", 120, 0, 6),
        network("203.0.0.0", 112, 443, 6),
        network("0.0.0.0", 96, 0, 0),
        network("::", 0, 0, 0),
    ];
    for (key, id) in keys.iter().zip(&ids) {
        writer.put_frontend(key, *id).unwrap();
    }
    writer.commit().unwrap();
    let set = region.tables(1);
    let found = |to: &str, port, proto| {
        set.frontend(0, &addr(to), port, proto)
            .map(|id| names[ids.iter().position(|i| *i == id).unwrap()])
    };
    assert_eq!(found("203.0.113.1", 80, 6), Some("exact"));
    assert_eq!(found("203.0.113.1", 81, 6), Some("port"));
    assert_eq!(found("203.0.113.1", 80, 17), Some("proto"));
    assert_eq!(found("203.0.113.1", 81, 17), Some("any"));
    assert_eq!(found("203.0.113.2", 443, 6), Some("net24"), "longest prefix first");
    assert_eq!(found("203.0.9.9", 443, 6), Some("net16"));
    assert_eq!(found("203.0.9.9", 80, 6), Some("net0"));
    assert_eq!(found("2001:db8::1", 80, 6), Some("net0v6"));
    writer.remove_frontend(&keys[6]).unwrap();
    writer.commit().unwrap();
    let set = region.tables(2);
    assert_eq!(set.frontend(0, &addr("192.0.2.1"), 80, 6), None, "::/0 is no IPv4 network");
    assert!(set.address_marked(0, &addr("203.0.113.1")));
    assert!(!set.address_marked(0, &addr("203.0.113.2")));
}

#[test]
fn a_scope_with_frontends_of_its_own_sees_no_others() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let all = writer.put_service("all", &policy()).unwrap();
    let own = writer.put_service("own", &policy()).unwrap();
    let scoped = FrontendKey { scope_key: 0xabc, ..key("10.9.9.9", 80, 6) };
    writer.put_frontend(&key("10.9.9.9", 80, 6), all).unwrap();
    writer.put_frontend(&key("10.9.9.9", 443, 6), all).unwrap();
    writer.put_frontend(&scoped, own).unwrap();
    writer.commit().unwrap();
    let set = region.tables(1);
    assert_eq!(set.frontend(0xabc, &addr("10.9.9.9"), 80, 6), Some(own));
    assert_eq!(set.frontend(0xabc, &addr("10.9.9.9"), 443, 6), None);
    assert_eq!(set.frontend(0xdef, &addr("10.9.9.9"), 443, 6), Some(all));
    writer.remove_frontend(&scoped).unwrap();
    writer.commit().unwrap();
    let set = region.tables(2);
    assert_eq!(set.frontend(0xabc, &addr("10.9.9.9"), 80, 6), Some(all));
}

#[test]
fn id_is_reused_only_without_flow_references() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let id = writer.put_backend(&backend(1)).unwrap();
    writer.commit().unwrap();
    writer.remove_backend(id).unwrap();
    writer.commit().unwrap();
    assert_eq!(writer.put_backend(&backend(2)).unwrap(), 1);
    assert_eq!(writer.reclaim(|referred| referred == Referred::Backend(id)), 0);
    assert_eq!(writer.reclaim(|_| false), 1);
    assert_eq!(writer.put_backend(&backend(3)).unwrap(), id);
    writer.commit().unwrap();
    let again = region.tables(region.generation());
    assert_eq!(again.backend(id).unwrap().incarnation, 2, "another backend, another incarnation");

    // A backend that is added again while it is retired gets the same id.
    writer.remove_backend(id).unwrap();
    writer.commit().unwrap();
    assert_eq!(writer.put_backend(&backend(3)).unwrap(), id);
    writer.commit().unwrap();
    assert_eq!(region.tables(region.generation()).backend(id).unwrap().incarnation, 2);
    assert_eq!(writer.retired().count(), 0);
}

/// What is removed is in use until no reader sees it, and ids until they are reclaimed as well.
#[test]
fn table_uses_count_what_cannot_be_reused_yet() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let capacities: Vec<_> = writer.table_uses().map(|row| (row.table, row.capacity)).into();
    let entries = writer.views.frontends.entries.len() as u32;
    let expected = [
        ("services", 16),
        ("backends", 32),
        ("next_hops", 32),
        ("frontends", 64),
        ("frontend_entries", entries),
        ("slots", 16_384),
    ];
    assert_eq!(capacities, expected);
    let uses = |writer: &Writer<'_>| writer.table_uses().map(|row| row.used);
    assert_eq!(uses(&writer), [0; 6]);
    let web = writer.put_service("web", &policy()).unwrap();
    let other = writer.put_service("other", &policy()).unwrap();
    let ids: Vec<_> = (1..=3).map(|i| (writer.put_backend(&backend(i)).unwrap(), 1)).collect();
    writer.set_slots(web, &ids, 251, "TCP").unwrap();
    writer.put_next_hop(&addr("10.0.1.1"), 0).unwrap();
    for port in [80, 443] {
        writer.put_frontend(&key("203.0.113.1", port, 6), web).unwrap();
    }
    // Two frontends share the mark of their address.
    assert_eq!(uses(&writer), [2, 3, 1, 2, 3, 251]);
    writer.commit().unwrap();
    writer.remove_frontend(&key("203.0.113.1", 443, 6)).unwrap();
    writer.set_slots(web, &ids[..2], 251, "TCP").unwrap();
    writer.remove_backend(ids[2].0).unwrap();
    writer.remove_service(other).unwrap();
    writer.commit().unwrap();
    assert_eq!(uses(&writer), [2, 3, 1, 1, 3, 502]);
    assert_eq!(writer.reclaim(|_| false), 2);
    assert_eq!(uses(&writer), [1, 2, 1, 1, 3, 502]);
    // The next change makes the space of the former generation available.
    writer.put_service("third", &policy()).unwrap();
    assert_eq!(uses(&writer), [2, 2, 1, 1, 2, 251]);
}

#[test]
fn every_full_table_names_its_setting() {
    let region = region();
    let sizes = *region.sizes();
    let mut writer = Writer::attach(&region).unwrap();
    let setting = |error: UpdateError| match error {
        UpdateError::Full { setting, used, capacity, .. } => {
            assert_eq!(used, capacity);
            setting
        }
        other => panic!("{other}"),
    };
    for i in 0..sizes.services {
        writer.put_service(&format!("s{i}"), &policy()).unwrap();
    }
    assert_eq!(setting(writer.put_service("more", &policy()).unwrap_err()), "region.max_services");
    for i in 0..sizes.backends {
        writer.put_backend(&backend(i as u8)).unwrap();
    }
    assert_eq!(setting(writer.put_backend(&backend(200)).unwrap_err()), "region.max_backends");
    for i in 0..sizes.frontends {
        writer.put_frontend(&key("203.0.113.1", 1 + i as u16, 6), 0).unwrap();
    }
    let error = writer.put_frontend(&key("203.0.113.1", 9999, 6), 0).unwrap_err();
    assert_eq!(setting(error), "region.max_frontends");
    for i in 0..sizes.next_hops {
        writer.put_next_hop(&addr(&format!("10.0.1.{i}")), 0).unwrap();
    }
    let error = writer.put_next_hop(&addr("10.0.1.200"), 0).unwrap_err();
    assert_eq!(setting(error), "region.max_next_hops");
    writer.set_slots(0, &[(0, 1), (1, 1)], 8191, "TCP").unwrap();
    let error = writer.set_slots(1, &[(0, 1), (1, 1)], 16_381, "TCP").unwrap_err();
    assert_eq!(error, UpdateError::Slots { wanted: 16_381, free: 8193, capacity: 16_384 });
    assert!(error.to_string().contains("raise region.slots"));
    writer.commit().unwrap();
}

#[test]
fn probe_sources_lead_to_their_backend_and_to_no_other() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let probed = |last, probe: &str| Backend { probe: addr(probe), ..backend(last) };
    let id = writer.put_backend(&probed(1, "198.18.0.1")).unwrap();
    let error = writer.put_backend(&probed(2, "198.18.0.1")).unwrap_err();
    assert_eq!(error, UpdateError::Probe { addr: "198.18.0.1".parse().unwrap(), id });
    writer.commit().unwrap();
    let set = region.tables(1);
    assert_eq!(set.probe(&addr("198.18.0.1")), Some(id));
    assert_eq!(set.probe(&addr("198.18.0.2")), None);
    assert_eq!(set.frontend(0, &addr("198.18.0.1"), 2, ADDRESS_MARK), None);
    writer.put_backend(&probed(1, "198.18.0.3")).unwrap();
    writer.commit().unwrap();
    let set = region.tables(2);
    assert_eq!((set.probe(&addr("198.18.0.1")), set.probe(&addr("198.18.0.3"))), (None, Some(id)));
}

#[test]
fn next_hops_change_at_once_and_live_as_long_as_backends_need_them() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let hop = writer.put_next_hop(&addr("10.0.2.1"), 1).unwrap();
    assert_eq!(writer.put_next_hop(&addr("10.0.2.1"), 1).unwrap(), hop);
    assert_ne!(writer.put_next_hop(&addr("10.0.2.1"), 0).unwrap(), hop);
    let set = region.tables(0);
    assert_eq!(set.next_hop(hop), Some(NextHop::unknown(1)));
    let resolved =
        NextHop { mac: [1, 2, 3, 4, 5, 6], src_mac: [7; 6], mtu: 9001, arm: 1, known: true };
    writer.set_next_hop(hop, &resolved).unwrap();
    assert_eq!(set.next_hop(hop), Some(resolved));
    let id = writer.put_backend(&Backend { next_hop: hop, ..backend(1) }).unwrap();
    writer.commit().unwrap();
    assert!(matches!(writer.remove_next_hop(hop), Err(UpdateError::InUse { uses: 1, .. })));
    writer.remove_backend(id).unwrap();
    writer.remove_next_hop(hop).unwrap();
    assert_eq!(set.next_hop(hop), Some(resolved), "the committed generation still uses it");
    writer.commit().unwrap();
    writer.put_backend(&backend(2)).unwrap();
    assert_eq!(set.next_hop(hop), None);
}

#[test]
fn a_next_hop_is_found_by_its_address_and_arm_as_long_as_it_lives() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let count = region.sizes().next_hops;
    let at = |n: u32| (addr(&format!("10.0.{}.{}", n % 3, n / 2)), (n % 2) as u8);
    let ids: Vec<u32> = (0..count)
        .map(|n| {
            let (addr, arm) = at(n);
            writer.put_next_hop(&addr, arm).unwrap()
        })
        .collect();
    let found = |n: u32| {
        let (addr, arm) = at(n);
        region.tables(0).next_hop_at(&addr, arm)
    };
    assert!((0..count).all(|n| found(n) == Some(ids[n as usize])));
    assert_eq!(region.tables(0).next_hop_at(&addr("10.0.9.9"), 0), None);
    for n in (0..count).step_by(3) {
        writer.remove_next_hop(ids[n as usize]).unwrap();
    }
    writer.put_service("web", &policy()).unwrap();
    writer.commit().unwrap();
    writer.put_service("web2", &policy()).unwrap();
    let left = |n: u32| (!n.is_multiple_of(3)).then_some(ids[n as usize]);
    assert!((0..count).all(|n| found(n) == left(n)));
    // After a writer was killed in an update, the next one rebuilds all chains.
    drop(writer);
    for cell in crate::set::TableViews::new(&region).next_hops {
        cell.tear_chain();
    }
    assert!((1..count).step_by(3).any(|n| found(n) != left(n)));
    drop(Writer::attach(&region).unwrap());
    assert!((0..count).all(|n| found(n) == left(n)));
}

#[test]
fn invalid_updates_are_rejected_without_effect() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let web = writer.put_service("web", &policy()).unwrap();
    writer.put_frontend(&key("203.0.113.1", 80, 6), web).unwrap();
    writer.commit().unwrap();
    let sum = writer.sum;
    let bad_keys = [
        key("203.0.113.1", 80, ADDRESS_MARK),
        network("203.0.113.1", 129, 80, 6),
        network("203.0.113.1", 120, 80, 6),
        network("203.0.113.0", 24, 80, 6),
        key("::", 80, 6),
    ];
    for bad in bad_keys {
        assert!(matches!(writer.put_frontend(&bad, web), Err(UpdateError::Key { .. })), "{bad:?}");
    }
    writer.put_frontend(&key("203.0.113.2", 80, 6), 5).unwrap_err();
    writer.put_service("", &policy()).unwrap_err();
    writer.put_service(&"x".repeat(121), &policy()).unwrap_err();
    writer.put_service(&"x".repeat(120), &policy()).map(drop).unwrap();
    writer.abort().unwrap();
    assert!(matches!(writer.remove_service(web), Err(UpdateError::InUse { uses: 1, .. })));
    writer.set_slots(web, &[(7, 1)], 251, "TCP").unwrap_err();
    writer.set_slots(web, &[], 250, "TCP").unwrap_err();
    writer.put_backend(&Backend { next_hop: 3, ..backend(1) }).unwrap_err();
    writer.remove_backend(3).unwrap_err();
    let mut settings = Settings::EMPTY;
    for (i, nat) in settings.nat.iter_mut().take(3).enumerate() {
        *nat = Local { addr: addr(&format!("10.0.2.{}", i + 1)), arm: 1, ..Local::default() };
    }
    let error = writer.put_settings(&settings).unwrap_err();
    assert_eq!(error, UpdateError::NatMaps { addresses: 3, maps: 64 });
    assert_eq!((writer.commit().unwrap(), writer.sum), (1, sum));
}

#[test]
fn each_backend_has_port_maps_of_its_own() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let first = writer.put_backend(&Backend { nat_ports: 0, ..backend(1) }).unwrap();
    let other = writer.put_backend(&Backend { nat_ports: 0, ..backend(2) }).unwrap();
    let set = writer.prepared();
    assert_eq!(set.backend(first).unwrap().nat_ports, 0);
    assert_eq!(set.backend(other).unwrap().nat_ports, 2);
    let max = writer.region.sizes().backends - 1;
    assert!(max * 2 + 2 <= writer.region.sizes().nat_maps);
}

#[test]
fn twenty_thousand_commits_leak_no_space() {
    let region = region();
    let claim = region.claim(Role::Fastpath).unwrap();
    let lcore = &region.lcores()[0];
    lcore.join(&region, claim.epoch(), 0);
    let mut writer = Writer::attach(&region).unwrap();
    let web = writer.put_service("web", &policy()).unwrap();
    let ids: Vec<_> = (1..=3).map(|i| (writer.put_backend(&backend(i)).unwrap(), 1)).collect();
    for round in 0..20_000u32 {
        writer.put_frontend(&key("203.0.113.1", 1 + (round % 60) as u16, 6), web).unwrap();
        if round >= 30 {
            let old = key("203.0.113.1", 1 + ((round - 30) % 60) as u16, 6);
            writer.remove_frontend(&old).unwrap();
        }
        writer.set_slots(web, &ids[..2 + round as usize % 2], 2039, "TCP").unwrap();
        lcore.acknowledge(writer.commit().unwrap());
        lcore.count_iteration();
        lcore.count_iteration();
    }
    drop(writer);
    let writer = Writer::attach(&region).unwrap();
    assert_eq!(writer.committed().frontends().count(), 30);
}

#[test]
fn address_with_frontend_passes_the_filter() {
    let region = region();
    let (web, mail, unused) = (addr("203.0.113.1"), addr("2001:db8::25"), addr("198.51.100.7"));
    let are_unmatched = |one: &Addr, other: &Addr| {
        let filter = region.tables(region.generation()).address_filter();
        filter.is_some_and(|filter| !filter.may_contain(one) && !filter.may_contain(other))
    };
    assert!(are_unmatched(&web, &unused), "no frontends, no matching address");
    let mut writer = Writer::attach(&region).unwrap();
    let service = writer.put_service("default/web", &policy()).unwrap();
    writer.put_frontend(&key("203.0.113.1", 80, 6), service).unwrap();
    writer.put_frontend(&key("2001:db8::25", 25, 6), service).unwrap();
    writer.commit().unwrap();
    for matched in [&web, &mail] {
        assert!(!are_unmatched(matched, &unused) && !are_unmatched(&unused, matched), "{matched}");
    }
    assert!(are_unmatched(&unused, &addr("198.51.100.8")));
    // The next writer clears the bits of removed addresses, and no others.
    writer.remove_frontend(&key("203.0.113.1", 80, 6)).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let mut writer = Writer::attach(&region).unwrap();
    assert!(are_unmatched(&web, &unused) && !are_unmatched(&mail, &unused));
    // Addresses of a network have no bits.
    writer.put_frontend(&network("198.51.100.0", 120, 0, 0), service).unwrap();
    writer.commit().unwrap();
    assert!(!are_unmatched(&unused, &addr("192.0.2.1")));
}

#[test]
fn service_note_lives_as_long_as_its_service() {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    let web = writer.put_service("web", &policy()).unwrap();
    let all: Vec<Member> = (1..=3)
        .map(|last| {
            let backend = writer.put_backend(&backend(last)).unwrap();
            Member { backend, weight: 0x0102, state: 0x83, protocol: 17 }
        })
        .collect();
    let note = ServiceNote { inputs_sum: 5, serving: 2, table_size: 251, ..ServiceNote::default() };
    writer.put_note(web, &note, &all).unwrap();
    let first = writer.commit().unwrap();
    writer.put_note(web, &note, &all).unwrap();
    assert_eq!(writer.commit().unwrap(), first, "the same again is no change");
    drop(writer);
    let mut writer = Writer::attach(&region).unwrap();
    let set = writer.committed();
    assert_eq!(set.members(web).collect::<Vec<_>>(), all);
    let stored = set.service_note(web).unwrap();
    assert_eq!((stored.inputs_sum, stored.serving, stored.table_size), (5, 2, 251));
    writer.put_note(web, &note, &all[..1]).unwrap();
    assert_eq!(writer.committed().members(web).count(), 3, "not visible before the commit");
    writer.remove_service(web).unwrap();
    writer.commit().unwrap();
    assert!(writer.committed().service_note(web).is_none());
    let other = writer.put_service("other", &policy()).unwrap();
    assert_eq!(writer.prepared().members(other).count(), 0);
}

#[test]
fn check_slots_reports_errors_without_allocating() {
    let region = Region::anonymous_with(&Sizes { slots: 600, ..Sizes::SMALL }, 7).unwrap();
    let mut writer = Writer::attach(&region).unwrap();
    writer.commit().unwrap();
    for _ in 0..3 {
        writer.check_slots(251, 2, &[200]).unwrap();
        assert!(matches!(
            writer.check_slots(509, 2, &[100]),
            Err(UpdateError::Slots { wanted: 509, .. })
        ));
        assert!(matches!(
            writer.check_slots(251, 1, &[602]),
            Err(UpdateError::Slots { wanted: 602, .. })
        ));
        writer.check_slots(509, 1, &[400, 200]).unwrap();
    }
    assert!(matches!(writer.check_slots(250, 1, &[2]), Err(UpdateError::TableSize { found: 250 })));
    assert!(matches!(writer.check_slots(251, 252, &[504]), Err(UpdateError::TableFull { .. })));
    assert_eq!(writer.commit().unwrap(), 1, "a check is no change");
}
