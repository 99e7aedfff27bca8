//! Tests of the flow table: against a model, with kills and other work at every step, and with
//! several threads.

mod between;
mod legs;
mod model;
mod path_lookup;
mod threads;
mod unconfirmed;

use super::step::kill;
use super::*;
use crate::layout::Sizes;
use crate::record::{Mode, NONE, Timeouts};
use packet::flow::{SCOPE_PLAIN, Side};

// TCP flags in the calls of `Flows::note` below: 2 SYN, 18 SYN ACK, 16 ACK, 17 FIN ACK, 4 RST.
pub(super) const TCP: u8 = 6;

pub(super) fn small() -> Region {
    // Miri is a thousand times slower, and examines the whole table.
    let flows = if cfg!(miri) { 24 } else { 256 };
    Region::anonymous_with(&Sizes { flows, nat_maps: 1, slots: 1024, ..Sizes::SMALL }, 7).unwrap()
}

pub(super) fn table(region: &Region) -> Flows<'_> {
    Flows::new(region).recover();
    Flows::of_lcore(region, 1, 7)
}

pub(super) fn addr(n: u32) -> Addr {
    Addr::v4(n.to_be())
}

const NAT_ADDR: u32 = 0x0a00_0001;
const BACKEND: u32 = 0x0a00_0063;
const FRONTEND: u32 = 0x0a00_00c8;

/// Returns a NAT flow of client number `n`, which sends to the frontend through a gateway, with
/// this local port towards the backend.
pub(super) fn nat_flow(n: u32, port: u16) -> NewFlow {
    let (front, front_initiator) = FlowKey::new(
        1,
        TCP,
        addr(0x6440_0000 + n / 50_000),
        (n % 50_000) as u16,
        addr(FRONTEND),
        80,
    );
    let back = FlowKey::new(SCOPE_PLAIN, TCP, addr(NAT_ADDR), port, addr(BACKEND), 8080);
    NewFlow {
        front,
        front_initiator,
        back: Some(back),
        forward: Forward {
            nat_or_digest: NatOrDigest::nat(addr(NAT_ADDR)),
            backend_addr: addr(BACKEND),
            nat_port: port,
            backend_port: 8080,
            service: 5,
            backend: n,
            incarnation: 1,
            mode: Mode::Nat as u8,
            proto: TCP,
            ..Forward::default()
        },
        gateway: GatewayLeg { vni: n, node: addr(n), tunnel: 3, ..GatewayLeg::default() },
        digest: n + 1,
        nat_map: 0,
        idle_s: 0,
    }
}

pub(super) fn find(flows: &Flows<'_>, key: &FlowKey) -> Option<Hit> {
    flows.find(flows.hash(key), key)
}

/// Asserts all invariants of a table that no thread is changing.
pub(super) fn assert_consistent(flows: &Flows<'_>) {
    let words = flows.index.word_values();
    let mut live = Vec::new();
    let (cleared, locks) = flows.index.rebuild(|i, key, hit| {
        let path = &flows.paths[hit.path as usize];
        assert!(path.is_live() && !path.is_locked(), "entry {i} has a path");
        let (front, back) = (path.forward().front, path.back.load(Relaxed));
        assert_eq!(if hit.is_front() { front } else { back }, i);
        let matches = !hit.is_front() || flows.fronts[hit.path as usize].matches_entry(key, hit);
        assert!(matches, "path {} has the front of entry {i}", hit.path);
        live.push(*key);
        true
    });
    assert_eq!((cleared, locks), (0, 0));
    assert_eq!(flows.index.word_values(), words, "tags and spills match the entries");
    live.iter().for_each(|key| assert!(find(flows, key).is_some()));
    let alive = (0..flows.capacity()).filter(|id| flows.paths[*id as usize].is_live());
    let alive: Vec<u32> = alive.collect();
    assert_eq!(alive.len() as u32, flows.live());
    let lists = || flows.state.iter().map(|state| FreeList::new(&state.paths, flows.path_links));
    let mut numbers: Vec<u32> = Vec::new();
    for list in lists() {
        let free: Vec<u32> = list.all().collect();
        free.iter().for_each(|id| list.push(*id));
        numbers.extend(free);
    }
    numbers.extend(&alive);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..flows.capacity()).collect::<Vec<_>>(), "no record is lost");
    let is_nat = |id: &u32| flows.paths[*id as usize].forward().is_nat();
    let owns = |id: &u32| flows.paths[*id as usize].owns.load(Relaxed);
    let slab = |id: &u32| flows.paths[*id as usize].slab.load(Relaxed);
    let leg = |id: &u32| if is_nat(id) { NONE } else { owns(id) };
    let mut slabs: Vec<u32> = flows.free_slabs().unwrap().all().collect();
    slabs.iter().for_each(|id| flows.free_slabs().unwrap().push(*id));
    slabs.extend(alive.iter().map(slab).chain(alive.iter().map(leg)).filter(|slab| *slab != NONE));
    slabs.sort_unstable();
    assert_eq!(slabs, (0..flows.slabs.len() as u32).collect::<Vec<_>>(), "no slab is lost");
    let nat = alive.iter().filter(|id| is_nat(id) && owns(id) == 0);
    assert_eq!(nat.count() as u32, flows.nat.used(0), "NAT ports are those of the flows");
}

/// Updates the leg by a packet of the initiator; returns whether the outcome is `Changed`.
pub(super) fn update(
    flows: &Flows<'_>,
    hit: &Hit,
    leg: &GatewayLeg,
    options: &[u8],
    digest: u32,
) -> bool {
    flows.update_gateway(hit, true, leg, options, digest) == LegUpdate::Changed
}

/// Inserts NAT flow `n` with a newly claimed port.
pub(super) fn insert_nat(flows: &Flows<'_>, n: u32, options: &[u8]) -> Result<Hit, InsertError> {
    let port = flows.nat.claim(0, 1024..=60_000, 0, 1).unwrap();
    let done = flows.insert(&nat_flow(n, port), options, 100);
    if done.is_err() {
        flows.nat.release(0, port);
    }
    done
}

#[test]
fn flow_is_found_by_both_keys_with_its_forwarding() {
    let region = small();
    let flows = table(&region);
    let options: Vec<u8> = (0..32).collect();
    let front = insert_nat(&flows, 7, &options).unwrap();
    let new = nat_flow(7, 1024);
    let (back_key, _) = new.back.unwrap();
    assert_eq!(find(&flows, &new.front), Some(front));
    let back = find(&flows, &back_key).unwrap();
    assert!(front.is_front() && !back.is_front() && front.path == back.path);
    assert_eq!(flows.front_stamp(&back), Some(front.stamp));
    assert_eq!(flows.revisit(back.path, front.stamp), Some(front));

    let (_, from_client) = FlowKey::new(1, TCP, addr(0x6440_0000), 7, addr(FRONTEND), 80);
    let (key, from_backend) =
        FlowKey::new(SCOPE_PLAIN, TCP, addr(BACKEND), 8080, addr(NAT_ADDR), 1024);
    assert_eq!(key, back_key);
    assert!(front.from_initiator(from_client) && !back.from_initiator(from_backend));

    let forward = Forward { front: front.entry, ..new.forward };
    assert_eq!(flows.forward(&front), Ok(forward));
    let mut answer = Answer::empty();
    flows.answer(&back, true, &mut answer).unwrap();
    assert_eq!((answer.forward, answer.options()), (forward, &options[..]));
    assert_eq!(answer.gateway, GatewayLeg { option_len: 32, ..new.gateway });
    let ends = Ends {
        initiator: (addr(0x6440_0000), 7),
        target: (addr(FRONTEND), 80),
        scope: 1,
        proto: TCP,
    };
    assert_eq!((flows.ends(&front), flows.ends(&back)), (Ok(ends), Ok(ends)));
    assert_consistent(&flows);

    let ended = flows.remove(&front).unwrap();
    assert_eq!((ended.forward, ended.scope), (forward, 1));
    assert_eq!(flows.remove(&front), None);
    assert_eq!(find(&flows, &new.front).or(find(&flows, &back_key)), None);
    assert_eq!(flows.forward(&front), Err(PathError::Gone));
    assert_eq!(flows.answer(&back, true, &mut answer), Err(PathError::Gone));
    assert_eq!(flows.ends(&back), Err(PathError::Gone));
    assert!(!update(&flows, &front, &new.gateway, &[], 1));
    assert_consistent(&flows);
}

#[test]
fn path_forwards_to_backend_during_leg_update() {
    let region = small();
    let flows = table(&region);
    let hit = insert_nat(&flows, 1, &[]).unwrap();
    let (forward, mut out) = (flows.forward(&hit).unwrap(), Forward::default());
    let path = &flows.paths[hit.path as usize];
    let copy = flows.lock_legs(hit.path, path).unwrap();
    assert_eq!(flows.forward(&hit), Err(PathError::Busy));
    assert_eq!((flows.forward_to(&hit, &mut out), out), (Ok(()), forward));
    path.publish();
    copy.release();
    flows.remove(&hit).unwrap();
    assert_eq!(flows.forward_to(&hit, &mut out), Err(PathError::Gone));
    let new = insert_nat(&flows, 2, &[]).unwrap();
    assert_eq!(new.path, hit.path);
    assert!(flows.lock_legs(hit.path, path).is_some());
    assert_eq!(flows.forward_to(&hit, &mut out), Err(PathError::Gone));
    assert_eq!(flows.answer(&hit, true, &mut Answer::empty()), Err(PathError::Gone));
    path.publish();
}

#[test]
fn stale_hit_does_not_resolve_to_reused_record() {
    let region = small();
    let flows = table(&region);
    let old = insert_nat(&flows, 1, &[]).unwrap();
    flows.remove(&old);
    let new = insert_nat(&flows, 2, &[]).unwrap();
    assert_eq!(old.path, new.path);
    assert_eq!(flows.forward(&old), Err(PathError::Gone));
    assert_eq!(flows.ends(&old), Err(PathError::Gone));
    assert_eq!(flows.note(&old, 4, true), TcpState::Closed);
    assert_eq!(flows.remove(&old), None);
    assert!(!update(&flows, &old, &GatewayLeg::default(), &[], 0));
    assert_eq!(flows.note(&new, 2, true), TcpState::Embryonic);
    assert_eq!(flows.revisit(old.path, old.stamp).filter(|hit| hit.entry == old.entry), None);
    assert_eq!(flows.revisit(new.path, new.stamp), Some(new));
    assert_consistent(&flows);
}

#[test]
fn duplicate_flow_and_taken_back_key_are_rejected() {
    let region = small();
    let flows = table(&region);
    let hit = insert_nat(&flows, 1, &[]).unwrap();
    assert_eq!(insert_nat(&flows, 1, &[]), Err(InsertError::Exists(hit.path)));
    let same_back = NewFlow { nat_map: NONE, ..nat_flow(2, 1024) };
    assert_eq!(flows.insert(&same_back, &[], 0), Err(InsertError::BackTaken(hit.path)));
    assert_consistent(&flows);
    // A tunnel flow that arrived plain has the same key on both sides.
    let plain = nat_flow(3, 0);
    let back = Some((plain.front, plain.front_initiator));
    let hit = flows.insert(&NewFlow { back, nat_map: NONE, ..plain }, &[], 0).unwrap();
    assert_eq!(find(&flows, &plain.front), Some(hit));
    assert!(!hit.from_initiator(hit.initiator().other()));
    assert_consistent(&flows);
}

#[test]
fn full_flow_table_rejects_inserts_and_keeps_flows() {
    let region = small();
    let flows = table(&region);
    let capacity = flows.capacity();
    for n in 0..capacity {
        insert_nat(&flows, n, &[]).unwrap();
    }
    for n in capacity..capacity + 50 {
        assert_eq!(insert_nat(&flows, n, &[]), Err(InsertError::Full));
    }
    assert_eq!(flows.live(), capacity);
    assert!((0..capacity).all(|n| find(&flows, &nat_flow(n, 0).front).is_some()));
    assert_consistent(&flows);
    let hit = find(&flows, &nat_flow(3, 0).front).unwrap();
    assert!(flows.remove(&hit).is_some());
    insert_nat(&flows, capacity, &[]).unwrap();
    assert_consistent(&flows);
}

#[test]
fn reply_uses_latest_options_of_any_length() {
    let region = small();
    let flows = table(&region);
    let hit = insert_nat(&flows, 1, &[1; 48]).unwrap();
    let mut answer = Answer::empty();
    for (round, len) in [0, 252, 49, 48, 4, 200, 47].into_iter().enumerate() {
        let options: Vec<u8> = (0..len).map(|i| i ^ round as u8).collect();
        let leg = GatewayLeg { node: addr(round as u32), ..GatewayLeg::default() };
        assert!(update(&flows, &hit, &leg, &options, round as u32));
        flows.answer(&hit, true, &mut answer).unwrap();
        assert_eq!((answer.options(), answer.gateway.node), (&options[..], leg.node));
        assert_eq!(find(&flows, &nat_flow(1, 0).front).unwrap().digest, round as u32);
    }
    assert_consistent(&flows);
    let slabs = flows.slabs.len() as u32;
    for n in 2..=slabs {
        insert_nat(&flows, n, &[9; 49]).unwrap();
    }
    assert_eq!(insert_nat(&flows, 90, &[9; 49]), Err(InsertError::NoSlab));
    assert_eq!(insert_nat(&flows, 90, &[9; 253]), Err(InsertError::OptionsTooLong));
    let short = insert_nat(&flows, 90, &[9; 48]).unwrap();
    assert!(!update(&flows, &short, &GatewayLeg::default(), &[9; 49], 5));
    assert!(flows.remove(&hit).is_some());
    assert!(update(&flows, &short, &GatewayLeg::default(), &[9; 49], 5));
    assert_consistent(&flows);
}

#[test]
fn idle_flows_end_by_their_protocol_and_state() {
    let region = small();
    let flows = table(&region);
    let sweep = |now_s| {
        let (mut cursor, mut gone) = (0, Vec::new());
        for lcore in 0..2 {
            let all = flows.capacity();
            let end = |ended: &EndedFlow| gone.push((ended.forward.backend, ended.scope));
            flows.sweep(&mut cursor, all, lcore, 2, now_s, &Timeouts::DEFAULT, end);
        }
        gone.sort_unstable();
        gone
    };
    let hit = |n| insert_nat(&flows, n, &[]).unwrap();
    let (embryonic, open, closed, replied) = (hit(1), hit(2), hit(3), hit(4));
    let port = flows.nat.claim(0, 2000..=2000, 0, 1).unwrap();
    let mut udp = nat_flow(5, port);
    udp.forward.proto = 17;
    flows.insert(&udp, &[], 100).unwrap();
    let mut udp = NewFlow { nat_map: NONE, ..nat_flow(7, 2002) };
    udp.forward.proto = 17;
    let udp = flows.insert(&udp, &[], 100).unwrap();
    flows.touch(&udp, 180);
    for side in [true, false, true] {
        flows.note(&udp, 0, side);
    }
    let mut own_udp = NewFlow { nat_map: NONE, idle_s: 40, ..nat_flow(8, 2003) };
    own_udp.forward.proto = 17;
    let own_udp = flows.insert(&own_udp, &[], 100).unwrap();
    for side in [true, false, true] {
        flows.note(&own_udp, 0, side);
    }
    let own = NewFlow { idle_s: 30, ..nat_flow(6, 2001) };
    let own_tcp = flows.insert(&NewFlow { nat_map: NONE, ..own }, &[], 100).unwrap();
    let establish = |hit: &Hit| {
        flows.note(hit, 2, true);
        flows.note(hit, 18, false);
        assert_eq!(flows.note(hit, 16, true), TcpState::Established);
    };
    [&open, &closed, &replied, &own_tcp].into_iter().for_each(establish);
    assert_eq!(flows.note(&closed, 17, true), TcpState::Closing);
    assert_eq!(flows.note(&closed, 17, false), TcpState::Closed);
    // The reset may be spoofed: the connection is kept for as long as without it.
    assert_eq!(flows.note(&open, 4, true), TcpState::Reset);
    assert_eq!(sweep(99), []);
    assert_eq!(sweep(109), []);
    assert_eq!(sweep(110), [(3, 1)]);
    assert_eq!(sweep(120), [(1, 1)]);
    assert_eq!(find(&flows, &nat_flow(1, 0).front), None);
    assert_eq!(flows.forward(&embryonic), Err(PathError::Gone));
    // Flow 5 is unconfirmed UDP; flow 6 is TCP with an idle timeout of its own.
    assert_eq!(sweep(129), []);
    assert_eq!(sweep(130), [(5, 1), (6, 1)]);
    // The use of its back entry keeps a flow alive as well.
    let back = flows.snapshot(replied.path).unwrap().back.unwrap();
    flows.touch(&find(&flows, &back).unwrap(), 300);
    assert_eq!(sweep(139), []);
    assert_eq!(sweep(140), [(8, 1)]);
    assert_eq!(sweep(299), []);
    assert_eq!(sweep(300), [(7, 1)]);
    assert_eq!(sweep(450), [(2, 1)]);
    assert_eq!((sweep(649), sweep(650)), (vec![], vec![(4, 1)]));
    assert_eq!(flows.live(), 0);
    assert_consistent(&flows);
}

#[test]
fn a_syn_reopens_a_closed_connection_for_both_entries() {
    let region = small();
    let flows = table(&region);
    insert_nat(&flows, 1, &[]).unwrap();
    let new = nat_flow(1, 1024);
    let front = || find(&flows, &new.front).unwrap();
    let back = || find(&flows, &new.back.unwrap().0).unwrap();
    assert_eq!(flows.note(&front(), 2, true), TcpState::Embryonic);
    assert_eq!(flows.note(&back(), 18, false), TcpState::Embryonic);
    assert_eq!(flows.note(&front(), 16, true), TcpState::Established);
    assert_eq!(flows.note(&back(), 16, false), TcpState::Established);
    assert!(front().is_established() && back().is_established());
    assert_eq!(flows.note(&front(), 17, true), TcpState::Closing);
    assert_eq!(flows.note(&back(), 17, false), TcpState::Closed);
    assert_eq!(flows.snapshot(front().path).unwrap().tcp, Some(TcpState::Closed));
    assert_eq!(flows.note(&front(), 2, true), TcpState::Reopened);
    assert!(!front().is_established() && !back().is_established());
    assert_eq!(flows.note(&front(), 2, true), TcpState::Embryonic);
}

#[test]
fn each_backend_reports_all_backends_in_use() {
    let region = small();
    let flows = table(&region);
    let hits = [3, 9, 12].map(|n| insert_nat(&flows, n, &[]).unwrap());
    flows.remove(&hits[1]);
    let mut backends = Vec::new();
    flows.each_backend(|backend| backends.push(backend));
    backends.sort_unstable();
    assert_eq!(backends, [3, 12]);
}

/// With flows 0 to 9 present, kills `work` at each of its steps in turn, lets a successor recover,
/// and calls `then` with the successor. Only flow 4 may have ended.
fn killed_everywhere(work: impl Fn(&Flows<'_>), then: impl Fn(&Flows<'_>, Recovery)) {
    killed_everywhere_after(|_| {}, work, then);
}

/// As `killed_everywhere`, and calls `begin` before each run, which may insert more flows.
pub(super) fn killed_everywhere_after(
    begin: impl Fn(&Flows<'_>),
    work: impl Fn(&Flows<'_>),
    then: impl Fn(&Flows<'_>, Recovery),
) {
    for steps in 0.. {
        let region = small();
        let flows = table(&region);
        for n in 0..10 {
            insert_nat(&flows, n, &[n as u8; 60][..if n % 2 == 0 { 8 } else { 60 }]).unwrap();
        }
        begin(&flows);
        let killed = kill::after(steps, || work(&flows));
        let successor = Flows::new(&region).as_owner(0, 8);
        let recovery = successor.recover();
        assert_consistent(&successor);
        for n in (0..10).filter(|n| *n != 4) {
            assert!(find(&successor, &nat_flow(n, 0).front).is_some(), "flow {n} survives");
        }
        then(&successor, recovery);
        assert_consistent(&successor);
        if !killed {
            assert!(steps >= 3, "the work has steps");
            return;
        }
    }
}

#[test]
fn an_insert_killed_at_any_step_leaves_both_entries_or_none() {
    for options in [&[][..], &[1; 100][..]] {
        killed_everywhere(
            |flows| {
                let _ = insert_nat(flows, 50, options);
            },
            |flows, recovery| {
                let new = nat_flow(50, 1034);
                let (front, back) = (find(flows, &new.front), find(flows, &new.back.unwrap().0));
                assert_eq!(front.is_some(), back.is_some());
                assert_eq!(recovery.recovered, 10 + u32::from(front.is_some()));
                match insert_nat(flows, 50, options) {
                    Ok(_) => assert_eq!(front, None),
                    Err(error) => assert_eq!(error, InsertError::Exists(front.unwrap().path)),
                }
                assert_eq!(flows.live(), 11);
            },
        );
    }
}

#[test]
fn removal_killed_at_any_step_is_completed_by_recovery() {
    killed_everywhere(
        |flows| {
            let hit = find(flows, &nat_flow(4, 0).front).unwrap();
            flows.remove(&hit);
        },
        |flows, _| {
            let new = nat_flow(4, 1028);
            let (front, back) = (find(flows, &new.front), find(flows, &new.back.unwrap().0));
            assert_eq!(front.is_some(), back.is_some());
            assert_eq!(flows.live(), 9 + u32::from(front.is_some()));
        },
    );
}

#[test]
fn flow_reopened_and_killed_at_any_step_exists_once_or_not_at_all() {
    killed_everywhere(
        |flows| {
            let hit = find(flows, &nat_flow(4, 0).front).unwrap();
            // The lcore that ends the flow did only the first step of it.
            assert!(flows.paths[hit.path as usize].end(|| true));
            insert_nat(flows, 4, &[1; 60]).unwrap();
        },
        |flows, _| {
            let found = find(flows, &nat_flow(4, 0).front);
            assert_eq!(flows.live(), 9 + u32::from(found.is_some()));
        },
    );
}

#[test]
fn update_killed_at_any_step_keeps_flow_and_is_repeated() {
    let leg = GatewayLeg { vni: 99, ..GatewayLeg::default() };
    for options in [&[7; 12][..], &[7; 100][..]] {
        killed_everywhere(
            |flows| {
                let hit = find(flows, &nat_flow(2, 0).front).unwrap();
                update(flows, &hit, &leg, options, 1234);
            },
            |flows, recovery| {
                assert_eq!((recovery.recovered, recovery.cleared_paths), (10, 0));
                let hit = find(flows, &nat_flow(2, 0).front).unwrap();
                let mut answer = Answer::empty();
                flows.answer(&hit, true, &mut answer).unwrap();
                // Whichever digest is stored, its leg is stored as well.
                if hit.digest == 1234 {
                    assert_eq!((answer.gateway.vni, answer.options()), (99, options));
                } else if hit.digest == 3 {
                    assert_eq!((answer.gateway.vni, answer.options()), (2, &[2; 8][..]));
                }
                assert!(update(flows, &hit, &leg, options, 1234));
                flows.answer(&hit, true, &mut answer).unwrap();
                assert_eq!((answer.gateway.vni, answer.options()), (99, options));
            },
        );
    }
}

#[test]
fn a_bucket_that_stays_locked_is_contended_until_recovery() {
    let region = small();
    let flows = table(&region);
    let key = nat_flow(1, 0).front;
    assert!(flows.index.lock(flows.index.position(flows.hash(&key)).home));
    assert_eq!(insert_nat(&flows, 1, &[]), Err(InsertError::Contended));
    assert_eq!(find(&flows, &key), None);
    assert_eq!(flows.recover(), Recovery { stale_locks: 1, ..Recovery::default() });
    insert_nat(&flows, 1, &[]).unwrap();
}

#[test]
fn region_with_arbitrary_contents_recovers_to_empty_table() {
    let region = small();
    for section in [
        Section::FlowIndex,
        Section::FlowLocks,
        Section::FlowState,
        Section::Paths,
        Section::PathLinks,
        Section::Unconfirmed,
        Section::SlabLinks,
        Section::LegCopies,
        Section::NatMaps,
    ] {
        let (start, bytes) = region.section_ptr(section);
        for i in 0..bytes {
            // SAFETY: within the section, to which no reference exists yet.
            #[expect(unsafe_code, reason = "tests corrupt memory")]
            unsafe {
                start.add(i).write((i * 7 + i / 61) as u8);
            }
        }
    }
    let flows = Flows::new(&region);
    let recovery = flows.recover();
    assert_eq!(recovery.recovered, 0);
    assert!(recovery.cleared_entries > 0 && recovery.cleared_paths > 0);
    assert_consistent(&flows);
    for n in 0..flows.capacity() {
        insert_nat(&flows, n, &[]).unwrap();
    }
    assert_consistent(&flows);
}
