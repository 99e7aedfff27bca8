//! The code of `tables` gives the same results in the kernel as on the host, and writes the same
//! bytes.
#![expect(clippy::panic, reason = "test setup panics on failure")]

mod loading;
mod maps;
#[path = "../bpf/src/query.rs"]
mod query;

use fastrand::Rng;
use maps::Kernel;
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN, Side};
use query::{BACK, BACK_HIGH, FRONT_HIGH, MISSED, Query};
use tables::address_filter::AddressFilter;
use tables::flow::{Answer, Flows, Forward, GatewayLeg, NewFlow, Recovery};
use tables::fragment::Fragments;
use tables::layout::{Section, Sizes};
use tables::maglev;
use tables::nat_port::NatPorts;
use tables::next_hop::NextHop;
use tables::note::ServiceNote;
use tables::reason::DropReason;
use tables::record::{Backend, BackendState, FrontendKey, Mode, NONE, Service};
use tables::region::Region;
use tables::scope::Scopes;
use tables::writer::Writer;

const PROGRAMS: [&str; 12] = [
    "frontend", "find", "answer", "leg", "ends", "remove", "insert", "claim", "remember",
    "datagram", "scope", "count",
];

#[test]
fn verifier_accepts_the_programs_for_default_region_sizes() {
    let region = Region::anonymous(&Sizes::DEFAULT).expect("default sizes are in range");
    let kernel = Kernel::<Query>::new(&region, &PROGRAMS);
    assert_eq!(kernel.differs(&region), []);
}

fn empty_query() -> Query {
    Query {
        scope_key: 0,
        hash: 0,
        outcome: 0,
        more: [0; 5],
        now_s: 100,
        option_len: 0,
        nat_map: 0,
        digest: 0,
        first: 0,
        last: 0,
        port: 0,
        proto: 0,
        sides: 0,
        addr: Addr::UNSPECIFIED,
        front: FlowKey::default(),
        back: FlowKey::default(),
        forward: Forward::default(),
        gateway: GatewayLeg::default(),
        options: [0; 32],
        answer: Answer::empty(),
    }
}

fn v4(n: u32) -> Addr {
    Addr::v4(n.to_be())
}

fn region() -> Region {
    let region = Region::anonymous(&Sizes::SMALL).expect("small sizes are in range");
    assert_eq!(Flows::new(&region).recover(), Recovery::default());
    region
}

/// Adds eight services, each with several backends, one or none, and returns their ids.
fn fill_tables(writer: &mut Writer<'_>) -> Vec<u32> {
    let mut backends = Vec::new();
    for n in 0..12 {
        let addr = v4(0x0a00_0200 + n);
        let next_hop = writer.put_next_hop(&addr, 1).expect("sufficient capacity");
        let hop = NextHop { mtu: 1500 + n as u16, known: n % 2 == 0, ..NextHop::unknown(1) };
        writer.set_next_hop(next_hop, &hop).expect("the next hop exists");
        let backend = Backend {
            addr,
            probe: Addr::UNSPECIFIED,
            incarnation: 0,
            next_hop,
            nat_ports: NONE,
            probe_service: NONE,
            port: 8080,
            state: BackendState::Active as u8,
            arm: 1,
            pad: 0,
        };
        backends.push(writer.put_backend(&backend).expect("sufficient capacity"));
    }
    let policy =
        Service { tunnel_port: 6081, mode: Mode::Tunnel as u8, tunnel: 1, ..Service::EMPTY };
    let mut service = |n: usize| {
        let id = writer.put_service(&format!("web/{n}"), &policy).expect("sufficient capacity");
        let count = [0, 1, 2, 5, 12, 3, 7, 1][n];
        writer
            .set_table(id, &backends[..count], |_| maglev::shares(&vec![1; count], 251), 251)
            .expect("sufficient capacity");
        // Source ranges within 198.51.100.0 to .31. With an odd number of bounds, the last range
        // has no end.
        let bounds = (0..[0, 1, 2, 5, 8, 3, 7, 4][n]).map(|at| 0xc633_6400 + 4 * at);
        let words: Vec<u32> = bounds.flat_map(|last| [0, 0, 0xffff, last]).collect();
        writer.put_note(id, &ServiceNote::default(), &[]).expect("sufficient capacity");
        writer.set_ranges(id, &[], &words).expect("sufficient capacity");
        id
    };
    (0..8).map(&mut service).collect()
}

/// Returns a random key: of an address, port and protocol if `kinds` is 0, otherwise of any kind
/// (networks, any port, any protocol, endpoints).
fn frontend_key(rng: &mut Rng, kinds: u64) -> FrontendKey {
    let addr = match rng.u64(..2) {
        0 => v4(0xcb00_7100 + rng.u32(..6)),
        _ => Addr { words: [0x2001, 7, rng.u32(..2), rng.u32(..4)] },
    };
    let (port, proto) = ([80, 443, 53][rng.usize(..3)], [6, 17][rng.usize(..2)]);
    let exact = FrontendKey { scope_key: 0, addr, port, proto, prefix_len: 128, pad: 0 };
    if kinds == 0 {
        return exact;
    }
    let len = [128, 128, 127, 120, 112, 64, 40, 0][rng.usize(..8)];
    let len = if addr.is_v4() { len.max(96) } else { len };
    FrontendKey {
        scope_key: [0, 0, 5, 9][rng.usize(..4)],
        addr: addr.masked(len),
        port: [port, port, 0][rng.usize(..3)],
        proto: [proto, proto, 0][rng.usize(..3)],
        prefix_len: len,
        pad: 0,
    }
}

#[test]
fn kernel_and_host_select_the_same_services_and_backends() {
    for kinds in 0..2 {
        let region = region();
        let mut writer = Writer::attach(&region).expect("the region is new");
        let services = fill_tables(&mut writer);
        let mut rng = Rng::with_seed(7 + kinds);
        for n in 0..48 {
            let key = frontend_key(&mut rng, kinds);
            writer.put_noted_frontend(&key, services[n % 8], 0).expect("sufficient capacity");
        }
        let generation = writer.commit().expect("the set is complete");
        // Frontends that are written after the commit are not visible in its generation.
        for n in 0..6 {
            let key = FrontendKey { port: 8000 + n, ..frontend_key(&mut rng, kinds) };
            let _ = writer.put_noted_frontend(&key, services[0], 0);
        }
        let mut kernel = Kernel::new(&region, &["frontend"]);
        let set = region.tables(generation);
        let (mut found, mut picked, mut admitted) = (0, 0, 0);
        for _ in 0..1000 {
            let key = frontend_key(&mut rng, 0);
            let mut host = empty_query();
            host.scope_key = [0, 5, 9, 11][rng.usize(..4)];
            (host.addr, host.port, host.proto) = (key.addr, key.port, key.proto);
            if rng.u64(..4) == 0 {
                host.port = 8000 + rng.u16(..6);
            }
            host.hash = rng.u64(..);
            host.front.low = v4(0xc633_6400 + rng.u32(..32));
            let in_kernel = kernel.run("frontend", &host);
            query::frontend(&mut host, &set);
            assert_eq!(host, in_kernel);
            found += u32::from(host.outcome != MISSED);
            picked += u32::from(host.more[0] != MISSED);
            admitted += u32::from(host.outcome != MISSED && host.more[2] == 1);
        }
        assert!(found > 300 && picked > 200 && found > picked, "{found} found, {picked} picked");
        assert!(admitted > 100 && found > admitted + 50, "{admitted} admitted of {found}");
    }
}

/// Builds flow number `n`: with a back entry or without, and with options of any length.
fn flow(rng: &mut Rng, n: u32) -> Query {
    let mut query = empty_query();
    let (front, side) = FlowKey::new(1, 6, v4(0xc633_0000 + n), n as u16, v4(0xcb00_7105), 80);
    let (back, other) = FlowKey::new(SCOPE_PLAIN, 6, v4(0x0a00_0001), n as u16, v4(9), 8080);
    (query.front, query.back) = (front, back);
    query.sides = if side == Side::High { FRONT_HIGH } else { 0 };
    query.sides |= if other == Side::High { BACK_HIGH } else { 0 };
    let nat = rng.u64(..2) == 0;
    query.sides |= if nat { BACK } else { 0 };
    query.forward.mode = if nat { Mode::Nat as u8 } else { Mode::Tunnel as u8 };
    (query.forward.backend, query.forward.proto) = (n, 6);
    (query.gateway.vni, query.gateway.node) = (n, v4(n));
    (query.digest, query.nat_map) = (rng.u32(..), if nat { 3 } else { NONE });
    query.option_len = [0, 8, 32, 48, 56, 252][rng.usize(..6)];
    let words = query.option_len.div_ceil(8) as usize;
    query.options[..words].fill_with(|| rng.u64(..));
    if query.option_len == 252 {
        query.options[31] &= u64::from(u32::MAX);
    }
    query
}

fn bytes(query: &Query) -> Vec<u8> {
    let all = query.options.iter().flat_map(|word| word.to_ne_bytes());
    all.take(query.option_len as usize).collect()
}

fn insert(flows: &Flows<'_>, query: &Query) -> u32 {
    let mut new = NewFlow {
        front: query.front,
        front_initiator: Side::Low,
        back: None,
        forward: query.forward,
        gateway: query.gateway,
        digest: 0,
        nat_map: 0,
        idle_s: 0,
    };
    query::new_flow(query, &mut new);
    query::insert_outcome(flows.insert(&new, &bytes(query), query.now_s))
}

#[test]
fn kernel_and_host_insert_identical_flows() {
    let region = region();
    let mut kernel = Kernel::new(&region, &["insert", "find", "answer"]);
    let flows = Flows::new(&region).as_owner(1, 1);
    let mut rng = Rng::with_seed(11);
    let all: Vec<Query> = (0..300).map(|n| flow(&mut rng, n)).collect();
    let mut rejected = 0;
    for query in &all {
        let in_kernel = kernel.run("insert", query);
        assert_eq!(insert(&flows, query), in_kernel.outcome);
        rejected += u32::from(in_kernel.outcome > MISSED - 10);
    }
    assert_eq!(kernel.differs(&region), []);
    println!("{} flows, {rejected} rejected", flows.live());
    assert!(flows.live() > 200 && rejected > 0);
    let (mut known, mut states) = (0, [0; 6]);
    for query in all.iter().chain(&all) {
        for key in [query.front, query.back] {
            let mut host = Query { front: key, now_s: 101 + rng.u32(..2), ..*query };
            let in_kernel = kernel.run("find", &host);
            query::find(&mut host, &flows);
            assert_eq!(host, in_kernel);
            known += u32::from(host.outcome != MISSED);
            let flags = [2, 16, 16, 16, 17, 20][rng.usize(..6)];
            let sides = rng.u8(..2);
            host = Query { proto: flags, sides, answer: Answer::empty(), ..host };
            let in_kernel = kernel.run("answer", &host);
            query::answer(&mut host, &flows);
            assert_eq!(host, in_kernel);
            if host.outcome != MISSED {
                states[host.more[0] as usize] += 1;
            }
        }
    }
    println!("{known} found, states {states:?}");
    assert!(known > 600 && states.iter().all(|n| *n > 0));
    assert_eq!(kernel.differs(&region), []);
}

#[test]
fn kernel_and_host_update_legs_and_remove_flows_alike() {
    let region = region();
    let mut kernel = Kernel::new(&region, &["insert", "leg", "ends", "remove", "answer"]);
    let flows = Flows::new(&region).as_owner(1, 1);
    let mut rng = Rng::with_seed(23);
    let all: Vec<Query> = (0..40).map(|n| flow(&mut rng, n)).collect();
    for query in &all {
        assert_eq!(insert(&flows, query), kernel.run("insert", query).outcome);
    }
    let (mut legs, mut removals) = ([0; 4], 0);
    for round in 0..1500 {
        let n = rng.u32(..40);
        let mut host = Query { front: all[n as usize].front, ..flow(&mut rng, n) };
        host.sides = rng.u8(..2);
        let in_kernel = kernel.run("leg", &host).outcome;
        let update = query::leg(&host, &bytes(&host), &flows);
        assert_eq!(update, in_kernel);
        if update != MISSED {
            legs[update as usize] += 1;
        }
        let key = [all[n as usize].front, all[n as usize].back][rng.usize(..2)];
        host = Query { front: key, proto: 16, answer: Answer::empty(), more: [0; 5], ..host };
        let in_kernel = kernel.run("ends", &host);
        query::ends(&mut host, &flows);
        assert_eq!(host, in_kernel);
        let in_kernel = kernel.run("answer", &host);
        query::answer(&mut host, &flows);
        assert_eq!(host, in_kernel);
        if round % 100 == 99 {
            let in_kernel = kernel.run("remove", &host).outcome;
            let removed = query::remove(&host, &flows);
            assert_eq!(removed, in_kernel);
            removals += u32::from(removed < MISSED - 1);
        }
        assert_eq!(kernel.differs(&region), []);
    }
    println!("changed, same, shared, skipped: {legs:?}; {removals} ended");
    assert!(legs[0] > 100 && legs[2] > 0 && legs[3] > 0 && removals > 3);
}

#[test]
fn duplicate_flow_and_used_back_key_are_rejected_without_a_trace() {
    let region = region();
    let mut kernel = Kernel::new(&region, &["insert", "find"]);
    let flows = Flows::new(&region).as_owner(1, 1);
    let mut rng = Rng::with_seed(13);
    let one = flow(&mut rng, 1);
    assert!(kernel.run("insert", &one).outcome < MISSED - 10);
    assert_eq!(kernel.run("insert", &one).outcome, MISSED - 3, "the flow exists");
    assert!(insert(&flows, &one) < MISSED - 10);
    // The front key of the first flow as the back key of a second one.
    let other = Query { front: v6_front(), back: one.front, sides: BACK, option_len: 0, ..one };
    assert_eq!(kernel.run("insert", &other).outcome, MISSED - 4);
    assert_eq!(insert(&flows, &other), MISSED - 4);
    assert_eq!(kernel.differs(&region), []);
}

fn v6_front() -> FlowKey {
    let (a, b) = (Addr { words: [1, 2, 3, 4] }, Addr { words: [5, 6, 7, 8] });
    FlowKey::new(2, 17, a, 1, b, 2).0
}

#[test]
fn kernel_and_host_claim_nat_ports_in_the_same_order() {
    let region = region();
    let mut kernel = Kernel::new(&region, &["claim"]);
    let ports = NatPorts::new(&region);
    let ranges = [(0, 1000, 1300), (1, 65_500, 65_535), (2, 0, 140), (63, 2000, 2000)];
    for (map, first, last) in ranges {
        loop {
            let query = Query { nat_map: map, first, last, ..empty_query() };
            let in_kernel = kernel.run("claim", &query);
            let host = ports.claim(map, first..=last, 0, 1).map_or(MISSED, u32::from);
            assert_eq!(host, in_kernel.outcome);
            if host == MISSED {
                break;
            }
        }
        assert_eq!(ports.used(map), u32::from(last - first.max(128)) + 1);
    }
    let query = Query { nat_map: 64, first: 1, last: u16::MAX, ..empty_query() };
    assert_eq!(kernel.run("claim", &query).outcome, MISSED, "the map does not exist");
    assert_eq!(kernel.differs(&region), []);
}

#[test]
fn kernel_and_host_store_fragments_alike() {
    let region = region();
    let mut kernel = Kernel::new(&region, &["remember", "datagram"]);
    let table = Fragments::new(&region).as_owner(1, 1);
    let (mut rng, mut outcomes, mut known) = (Rng::with_seed(17), [0; 3], 0);
    for n in 0..400 {
        let mut host = empty_query();
        host.front = FlowKey { scope: 1, ports: rng.u32(..150), ..v6_front() };
        host.proto = 17;
        (host.nat_map, host.digest) = (n, rng.u32(..));
        (host.sides, host.now_s) = (rng.u8(..2), 100 + n / 20);
        let in_kernel = kernel.run("remember", &host);
        query::remember(&mut host, &table);
        assert_eq!(host, in_kernel);
        outcomes[host.outcome as usize] += 1;
        host.front.ports = rng.u32(..150);
        let in_kernel = kernel.run("datagram", &host);
        query::datagram(&mut host, &table);
        assert_eq!(host, in_kernel);
        known += u32::from(host.outcome == 0);
    }
    println!("stored, full, contended: {outcomes:?}; {known} found");
    assert!(outcomes[0] > 100 && outcomes[1] > 20 && known > 50);
    assert_eq!(kernel.differs(&region), []);
}

#[test]
fn kernel_and_host_agree_on_scopes_counters_and_address_filter() {
    let region = region();
    let mut kernel = Kernel::new(&region, &["scope", "count"]);
    let (scopes, mut rng) = (Scopes::new(&region), Rng::with_seed(19));
    let mut rejected = 0;
    for _ in 0..200 {
        let mut host = empty_query();
        host.scope_key = [u64::MAX, rng.u64(..20), rng.u64(..)][rng.usize(..3)];
        (host.proto, host.port) = (1 + rng.u8(..2), rng.u16(..2));
        host.now_s = 100 + rng.u32(..3);
        let in_kernel = kernel.run("scope", &host);
        let scope = scopes.intern(host.proto, host.port, host.scope_key, host.now_s);
        assert_eq!(scope.unwrap_or(MISSED), in_kernel.outcome);
        rejected += u32::from(scope.is_none());
    }
    assert!(rejected > 20 && scopes.taken() == Sizes::SMALL.scopes);
    for _ in 0..300 {
        let (lcore, arm) = (rng.u32(..3), rng.u8(..2));
        let (service, backend) = (rng.u32(..20), rng.u32(..40));
        let mut host = Query { nat_map: lcore, proto: arm, hash: rng.u64(..1500), ..empty_query() };
        (host.more[0], host.more[1], host.addr) = (service, backend, v4(rng.u32(..)));
        kernel.run("count", &host);
        if let Some(page) = region.counters().lcore(lcore) {
            page.forwarded(service, backend, host.hash);
            page.drop(arm, DropReason::NoFlow);
        }
        AddressFilter::of_flows(&region).add(&host.addr);
    }
    assert!(region.counters().sum(|page| page.dropped(0, DropReason::NoFlow)) > 50);
    assert_eq!(kernel.differs(&region), []);
    let (_, bytes) = region.section_ptr(Section::Counters);
    assert_eq!(bytes % 64, 0, "counter pages are whole cache lines");
}
