//! Tests that a writer killed at any of its stores leaves the committed generation intact, and that
//! the next writer continues from that generation.

use super::*;
use crate::note::{Member, ServiceNote};
use crate::record::Prefix;

/// Returns everything that a reader can list, with names and addresses instead of ids, which depend
/// on those that a killed writer allocated.
fn visible(set: &TableSet<'_>) -> String {
    let host = |id: u32| set.backend(id).map_or(Addr::UNSPECIFIED, |b| b.addr).octets()[15];
    let name = |id: u32| set.service_name(id);
    let mut frontends: Vec<_> =
        set.frontend_notes().map(|(key, id, n)| format!("{key:?} {:?} {n}", name(id))).collect();
    let mut services: Vec<_> = set
        .services()
        .map(|(id, s)| {
            let slots: Vec<_> = set.slots(&s.slots).map(host).collect();
            let members: Vec<_> = set.members(id).map(|m| (host(m.backend), m.weight)).collect();
            let note = set.service_note(id).map(|note| (note.inputs_sum, note.serving));
            let ranges: Vec<_> = set.source_ranges(id).map(|range| range.addr).collect();
            let bounds: Vec<_> = set.slots(&s.ranges).collect();
            let affinity_backends: Vec<_> = set.slots(&s.affinity_backends).map(host).collect();
            let rest = format!("{members:?} {note:?} {ranges:?} {bounds:?} {affinity_backends:?}");
            format!("{:?} {} {} {slots:?} {rest}", name(id), host(s.single), s.mss)
        })
        .collect();
    let mut backends: Vec<_> =
        set.backends().map(|(_, b)| format!("{:?}", Backend { incarnation: 0, ..*b })).collect();
    for list in [&mut frontends, &mut services, &mut backends] {
        list.sort();
    }
    let tunnels: Vec<_> = set.tunnels().collect();
    let settings = set.settings();
    format!("{frontends:?}\n{services:?}\n{backends:?}\n{tunnels:?}\n{settings:?}")
}

/// Returns the results of lookups, which walk the chains.
fn found(set: &TableSet<'_>) -> Vec<Option<String>> {
    let to = ["203.0.113.1", "203.0.113.2", "203.0.113.9", "2001:db8::1", "192.0.2.7"];
    let ports = [(80, 6), (443, 6), (53, 17)];
    let mut found = Vec::new();
    for to in to {
        for (port, proto) in ports {
            for scope_key in [0, 7] {
                let id = set.frontend(scope_key, &addr(to), port, proto);
                found.push(id.and_then(|id| set.service_name(id)));
            }
        }
    }
    for probe in ["198.18.0.1", "198.18.0.2"] {
        let id = set.probe(&addr(probe));
        found.push(id.map(|id| set.backend(id).unwrap().addr.to_string()));
    }
    found
}

fn tunnel(vni: u32) -> Tunnel {
    Tunnel {
        local: addr("10.0.1.10"),
        sources: [crate::record::Prefix::default(); 8],
        scope_key: 0,
        vni,
        peer: NONE,
        gateway: 0,
        port: 6081,
        option_class: 0x108,
        inner_mtu: 8500,
        flags: 0,
        kind: 1,
        no_service: 0,
        source_count: 0,
        arm: 0,
        side: 0,
        successor: 0,
    }
}

fn note(inputs_sum: u64, serving: u32) -> ServiceNote {
    ServiceNote { inputs_sum, serving, table_size: 251, ..ServiceNote::default() }
}

fn ranges(count: u8) -> Vec<Prefix> {
    let range = |last| Prefix { addr: addr(&format!("10.0.0.{last}")), len: 128, pad: [0; 3] };
    (0..count).map(range).collect()
}

fn members(backends: &[(u32, u32)]) -> Vec<Member> {
    let member = |(backend, weight): &(u32, u32)| Member {
        backend: *backend,
        weight: *weight as u16,
        state: 0,
        protocol: 6,
    };
    backends.iter().map(member).collect()
}

/// Commits the first set of tables.
fn first(writer: &mut Writer<'_>) -> Result<u32, UpdateError> {
    let web = writer.put_service("web", &policy())?;
    let dns = writer.put_service("dns", &policy())?;
    let ids: Vec<_> = (1..=4)
        .map(|i| writer.put_backend(&backend(i)).map(|id| (id, u32::from(i))))
        .collect::<Result<_, _>>()?;
    writer.put_backend(&Backend { probe: addr("198.18.0.1"), ..backend(4) })?;
    writer.set_slots(web, &ids[..3], 251, "TCP")?;
    writer.set_slots(dns, &ids[3..], 251, "UDP")?;
    writer.put_note(web, &note(1, 3), &members(&ids))?;
    writer.put_note(dns, &note(2, 1), &members(&ids[3..]))?;
    writer.set_ranges(web, &ranges(3), &[0, 0, 0xffff, 7, 0, 0, 0xffff, 9])?;
    writer.set_affinity_backends(web, &[ids[0].0, ids[2].0])?;
    writer.put_noted_frontend(&key("203.0.113.1", 80, 6), web, 7)?;
    writer.put_frontend(&key("203.0.113.1", 53, 17), dns)?;
    writer.put_frontend(&network("203.0.113.0", 120, 0, 0), dns)?;
    writer.put_tunnel(0, &tunnel(1))?;
    writer.put_settings(&Settings { punt_limits: [5; 4], ..Settings::EMPTY })?;
    writer.commit()
}

/// Changes records of all kinds that [`first`] wrote, and commits.
fn second(writer: &mut Writer<'_>) -> Result<u32, UpdateError> {
    let web = writer.put_service("web", &Service { mss: 1400, ..policy() })?;
    let dns = writer.service_id("dns").unwrap_or(NONE);
    let third = writer.put_service("third", &policy())?;
    let new = writer.put_backend(&backend(9))?;
    writer.put_backend(&Backend { probe: addr("198.18.0.2"), state: 1, ..backend(4) })?;
    let ids: Vec<_> = writer.prepared().backends().map(|(id, _)| (id, 1)).collect();
    writer.set_slots(web, &ids, 509, "TCP")?;
    writer.set_slots(third, &[(new, 1)], 251, "TCP")?;
    writer.put_note(web, &note(3, 5), &members(&ids))?;
    writer.put_note(third, &note(4, 1), &members(&[(new, 1)]))?;
    writer.set_ranges(web, &ranges(1), &[0, 0, 0xffff, 8])?;
    writer.set_ranges(third, &ranges(2), &[0; 4])?;
    writer.set_affinity_backends(web, &[])?;
    writer.set_affinity_backends(third, &[new])?;
    writer.remove_frontend(&key("203.0.113.1", 53, 17))?;
    writer.remove_frontend(&network("203.0.113.0", 120, 0, 0))?;
    writer.put_noted_frontend(&key("203.0.113.1", 80, 6), third, 8)?;
    writer.put_frontend(&key("2001:db8::1", 443, 6), third)?;
    let scoped = FrontendKey { scope_key: 7, ..key("203.0.113.2", 80, 6) };
    writer.put_frontend(&scoped, web)?;
    writer.remove_service(dns)?;
    let gone = writer.backend_id(&backend(1).addr, 80).unwrap_or(NONE);
    writer.remove_backend(gone)?;
    writer.put_tunnel(0, &tunnel(2))?;
    writer.put_tunnel(1, &tunnel(3))?;
    writer.put_settings(&Settings { punt_limits: [6; 4], ..Settings::EMPTY })?;
    writer.commit()
}

/// A region with the first set committed, and with ended entries that wait to be unlinked.
fn prepared() -> Region {
    let region = region();
    let mut writer = Writer::attach(&region).unwrap();
    first(&mut writer).unwrap();
    writer.put_frontend(&key("203.0.113.9", 80, 6), 0).unwrap();
    writer.commit().unwrap();
    writer.remove_frontend(&key("203.0.113.9", 80, 6)).unwrap();
    writer.commit().unwrap();
    drop(writer);
    region
}

/// Returns the number of stores that `work` makes, including those of `Writer::attach`.
fn stores_of(work: fn(&mut Writer<'_>) -> Result<u32, UpdateError>) -> u64 {
    let region = prepared();
    let mut writer =
        Writer::attach_with(&region, RegionWriter::with_store_limit(u64::MAX)).unwrap();
    work(&mut writer).unwrap();
    u64::MAX - writer.region_writer.stores_left().unwrap()
}

#[test]
fn writer_killed_at_any_store_keeps_committed_set() {
    let original = prepared();
    let before = visible(&original.tables(3));
    let found_before = found(&original.tables(3));
    let mut writer = Writer::attach(&original).unwrap();
    second(&mut writer).unwrap();
    let after = visible(&writer.committed());
    let found_after = found(&writer.committed());
    assert_ne!(before, after);

    let stores = stores_of(second);
    assert!(stores > 600, "{stores} stores");
    for limit in 0..stores {
        let region = prepared();
        let mut writer =
            Writer::attach_with(&region, RegionWriter::with_store_limit(limit)).unwrap();
        // The state of the killed writer does not matter; it may believe that it committed.
        let _ = second(&mut writer);
        drop(writer);
        assert_eq!(region.generation(), 3, "killed after {limit} stores");
        let set = region.tables(3);
        assert!(visible(&set) == before, "killed after {limit} stores");
        assert_eq!(found(&set), found_before, "killed after {limit} stores");

        let mut next = Writer::attach(&region).unwrap();
        assert!(visible(&next.committed()) == before);
        second(&mut next).unwrap();
        assert!(visible(&next.committed()) == after, "killed after {limit} stores");
        assert_eq!(found(&next.committed()), found_after, "killed after {limit} stores");
        drop(next);
        Writer::attach(&region).map(drop).unwrap();
    }
}

#[test]
fn writer_killed_during_recovery_is_recovered() {
    let region = prepared();
    let before = visible(&region.tables(3));
    let stores = stores_of(second);
    for limit in (0..stores).step_by(37) {
        let region = prepared();
        let mut writer =
            Writer::attach_with(&region, RegionWriter::with_store_limit(limit)).unwrap();
        let _ = second(&mut writer);
        drop(writer);
        for recovering in 0..12 {
            Writer::attach_with(&region, RegionWriter::with_store_limit(recovering))
                .map(drop)
                .unwrap();
            assert_eq!(visible(&region.tables(3)), before);
        }
        let mut next = Writer::attach(&region).unwrap();
        second(&mut next).unwrap();
    }
}

#[test]
fn abort_discards_all_changes() {
    let region = prepared();
    let before = visible(&region.tables(3));
    let mut writer = Writer::attach(&region).unwrap();
    let web = writer.service_id("web").unwrap();
    writer.put_frontend(&key("192.0.2.7", 443, 6), web).unwrap();
    writer.put_service("gone again", &policy()).unwrap();
    writer.abort().unwrap();
    assert_eq!(writer.service_id("gone again"), None);
    assert_eq!(visible(&writer.prepared()), before);
    second(&mut writer).unwrap();
}

#[test]
fn damaged_table_set_is_rejected_and_role_released() {
    let region = prepared();
    let (start, bytes) = region.section_ptr(Section::Backends);
    // SAFETY: within the section; no other process has this region.
    #[expect(unsafe_code, reason = "deliberate damage")]
    unsafe {
        let at = start.add(8);
        assert!(bytes > 8);
        *at ^= 0x10;
    }
    let error = Writer::attach(&region).map(drop).unwrap_err();
    assert!(matches!(error, RegionError::Checksum { part: "table set", .. }), "{error}");
    assert!(!region.is_claimed(Role::Slowpath));
}
