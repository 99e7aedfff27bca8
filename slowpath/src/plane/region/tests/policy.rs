//! Tests of policies as written to the region: source ranges, affinity, algorithm, loopback host
//! ports, proxies.

use super::*;
use config::checked::Prefix;
use config::services::RangesPolicy;
use state::object::{ProxyRedirect, SourceRanges};
use tables::affinity::Affinity;

fn ranged(policy: RangesPolicy, texts: &[&str]) -> DesiredFrontend {
    let mut of = service("a");
    let prefixes = texts.iter().map(|text| {
        let (addr, len) = text.split_once('/').unwrap();
        Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
    });
    of = of
        .with(|spec| {
            spec.source_ranges =
                Some(Arc::new(SourceRanges { policy, prefixes: prefixes.collect() }))
        })
        .unwrap();
    let backends = vec![instance(&of, 1)];
    chosen(of, at("203.0.113.1:80", 6), backends)
}

fn admits(plane: &RegionPlane<'_>, client: &str) -> bool {
    let set = plane.writer.committed();
    let (_, service) = set.services().next().unwrap();
    set.admits(service, &client.parse::<IpAddr>().unwrap().into())
}

#[test]
fn source_ranges_form_one_set_and_survive_a_restart() {
    let region = region(&Sizes::SMALL);
    let mut plane = attach(region);
    let all = ["10.1.0.0/16", "10.0.0.0/16", "10.0.3.0/24", "192.0.2.7/32", "2001:db8::/32"];
    apply_all(&mut plane, &[ranged(RangesPolicy::Allow, &all)]);
    let check = |plane: &RegionPlane<'_>, inside: bool| {
        for client in ["10.0.0.0", "10.1.255.255", "10.0.3.9", "192.0.2.7", "2001:db8::1"] {
            assert_eq!(admits(plane, client), inside, "{client}");
        }
        for client in ["9.255.255.255", "10.2.0.0", "192.0.2.6", "192.0.2.8", "2001:db9::", "::"] {
            assert_eq!(admits(plane, client), !inside, "{client}");
        }
    };
    check(&plane, true);
    let set = plane.writer.committed();
    let (_, record) = set.services().next().unwrap();
    assert_eq!(record.ranges.count, 4 * 6, "two of the five networks are within others");
    let lines: Vec<String> = dumped(&plane).into_iter().filter(|l| l.contains("SRC")).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert_eq!(lines[0], "SRCRANGE: ID=203.0.113.1:80/TCP CIDR=10.0.0.0/16");
    let before = dumped(&plane);
    drop(plane);
    let mut plane = attach(region);
    assert_eq!(dumped(&plane), before);
    assert_eq!(apply_all(&mut plane, &[ranged(RangesPolicy::Allow, &all)]), 1, "nothing changed");
    apply_all(&mut plane, &[ranged(RangesPolicy::Deny, &all)]);
    check(&plane, false);
    // All addresses of both families: the last range has no end boundary.
    apply_all(&mut plane, &[ranged(RangesPolicy::Allow, &["0.0.0.0/0", "::/0"])]);
    assert!(["0.0.0.0", "255.255.255.255", "::", "ffff::ffff"].iter().all(|c| admits(&plane, c)));
    apply_all(&mut plane, &[ranged(RangesPolicy::Allow, &["::/0"])]);
    assert!(admits(&plane, "::1") && admits(&plane, "::1:0:0:0") && !admits(&plane, "10.0.0.1"));
    apply_all(&mut plane, &[web("a", "203.0.113.1:80", &[1])]);
    assert!(admits(&plane, "192.0.2.99"));
    delete(&mut plane, &["203.0.113.1:80"]);
    assert_eq!(
        plane.writer.check_slots(251, 1, &[Sizes::SMALL.slots as usize]),
        Ok(()),
        "no capacity is lost"
    );
}

#[test]
fn too_many_source_ranges_are_rejected_with_the_setting() {
    let mut plane = attach(region(&Sizes { slots: 64, ..Sizes::SMALL }));
    apply_all(&mut plane, &[ranged(RangesPolicy::Allow, &["10.0.0.0/8", "192.0.2.0/24"])]);
    let before = dumped(&plane);
    let many: Vec<String> = (0..10).map(|n| format!("10.{n}.0.0/17")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (errors, _) = apply_batch(&mut plane, &[ranged(RangesPolicy::Allow, &many)]);
    assert!(errors[0].contains("region.slots"), "{errors:?}");
    assert_eq!(dumped(&plane), before);
    assert!(admits(&plane, "192.0.2.1"));
}

#[test]
fn affinity_is_kept_for_active_backends_only() {
    let region = region(&Sizes::SMALL);
    let mut plane = attach(region);
    let with = |states: &[(u8, State)]| {
        let mut of = service("a");
        of = of.with(|spec| spec.affinity_s = 60).unwrap();
        let of_state = |(last, state): &(u8, State)| {
            let mut one = instance(&of, *last);
            one.state = *state;
            one
        };
        let instances = states.iter().map(of_state).collect();
        chosen(of.clone(), at("203.0.113.1:80", 6), instances)
    };
    let with_affinity = |plane: &RegionPlane<'_>| -> Vec<u8> {
        let set = plane.writer.committed();
        let (_, service) = set.services().next().unwrap();
        assert_eq!(service.affinity_s, 60);
        let may = |id: u32, incarnation: u32| {
            set.is_affinity_valid(service, &Affinity { backend: id, incarnation })
        };
        let all = set.backends().filter(|(id, backend)| {
            assert!(!may(*id, backend.incarnation + 1), "another incarnation is another backend");
            may(*id, backend.incarnation)
        });
        let mut last: Vec<u8> = all.map(|(_, backend)| backend.addr.octets()[15]).collect();
        last.sort_unstable();
        last
    };
    let all = [(1, State::Active), (2, State::Active), (3, State::Terminating)];
    apply_all(&mut plane, &[with(&all)]);
    assert_eq!(with_affinity(&plane), [1, 2]);
    let matches: Vec<String> = dumped(&plane).into_iter().filter(|l| l.contains("AFF:")).collect();
    let line = |last: u8| format!("AFF: ID=203.0.113.1:80/TCP BEID=10.0.2.{last}:80/*");
    assert_eq!(matches, [line(1), line(2)]);
    let before = dumped(&plane);
    drop(plane);
    let mut plane = attach(region);
    assert_eq!((with_affinity(&plane), dumped(&plane)), (vec![1, 2], before));
    let mut failed = with(&all);
    Arc::make_mut(&mut failed.backends[0]).health.unhealthy = true;
    failed.serving = 1;
    failed.backends.rotate_left(1);
    apply_all(&mut plane, &[failed]);
    assert_eq!(with_affinity(&plane), [2]);
    apply_all(&mut plane, &[with(&all[2..])]);
    assert_eq!(
        with_affinity(&plane),
        [0_u8; 0],
        "terminating backends serve only where no other does"
    );
    apply_all(&mut plane, &[web("a", "203.0.113.1:80", &[1])]);
    assert!(dumped(&plane).iter().all(|line| !line.contains("AFF:")));
}

#[test]
fn random_fills_slots_by_weight_and_has_no_maglev_table() {
    let mut plane = small();
    let mut of = service("a");
    of = of.with(|spec| spec.algorithm = Algorithm::Random).unwrap();
    let mut heavy = instance(&of, 2);
    heavy.weight = 300;
    let backends = vec![instance(&of, 1), heavy];
    apply_all(&mut plane, &[chosen(of, at("203.0.113.1:80", 6), backends.clone())]);
    let set = plane.writer.committed();
    let (_, service) = set.services().next().unwrap();
    let slots: Vec<u32> = set.slots(&service.slots).collect();
    assert_eq!(slots.iter().filter(|id| **id == slots[0]).count(), 62, "a quarter of 251");
    assert!(slots.is_sorted(), "slots of a backend are contiguous");
    let dump = dumped(&plane);
    assert!(dump.iter().all(|line| !line.contains("MAGLEV")), "{dump:#?}");
    assert!(dump.iter().any(|line| line.contains("LBALG=random")), "{dump:#?}");
    // With Maglev, the same backends have another table.
    apply_all(&mut plane, &[chosen(super::service("a"), at("203.0.113.1:80", 6), backends)]);
    let set = plane.writer.committed();
    let (_, service) = set.services().next().unwrap();
    assert!(!set.slots(&service.slots).is_sorted());
}

#[test]
fn a_loopback_host_port_is_unreachable_from_outside() {
    let mut plane = small();
    let host = |address: &str, loopback: bool| {
        let mut of = service("a");
        of = of.with(|spec| spec.loopback_host_port = loopback).unwrap();
        let mut desired = chosen(of.clone(), at(address, 6), vec![instance(&of, 1)]);
        let spec = FrontendSpec { kind: Kind::HostPort, ..desired.frontend.spec.clone() };
        desired.frontend = frontend(of, spec);
        desired
    };
    let keys = |plane: &RegionPlane<'_>| {
        let own = ["10.0.1.10:8080", "127.0.0.1:8080", "0.0.0.0:8080", "10.0.2.10:8080"];
        own.into_iter().filter(|at| !selected_backends(plane, at, 6).is_empty()).collect::<Vec<_>>()
    };
    apply_all(&mut plane, &[host("0.0.0.0:8080", false)]);
    assert_eq!(
        keys(&plane),
        ["10.0.1.10:8080"],
        "a host port is served on the appliance's addresses"
    );
    // The copies are removed once the host port is bound to the loopback address.
    apply_all(&mut plane, &[host("0.0.0.0:8080", true), host("10.0.2.10:8080", true)]);
    assert_eq!(keys(&plane), [""; 0]);
    assert_eq!(plane.writer.committed().frontends().count(), 0);
    // When another frontend at that address and port is removed, the loopback host port gets no
    // copy there.
    apply_all(&mut plane, &[web("b", "10.0.1.10:8080", &[2])]);
    apply_all(&mut plane, &[host("0.0.0.0:8080", true)]);
    assert_eq!(selected_backends(&plane, "10.0.1.10:8080", 6), [2]);
    delete(&mut plane, &["10.0.1.10:8080"]);
    assert_eq!(keys(&plane), [""; 0]);
    // The dump has the host port, as a frontend that no packet can reach.
    assert!(
        dumped(&plane).iter().any(|line| line.contains("HostPort") && line.contains("loopback"))
    );
}

#[test]
fn a_proxy_takes_only_its_own_ports() {
    let region = region(&Sizes::SMALL);
    let mut plane = attach(region);
    let proxied = |address: &str| {
        let mut of = service("a");
        of = of
            .with(|spec| {
                spec.proxy_redirect = Some(Arc::new(ProxyRedirect { port: 9000, ports: vec![80] }))
            })
            .unwrap();
        let backends = vec![instance(&of, 1), instance(&of, 2)];
        chosen(of, at(address, 6), backends)
    };
    apply_all(&mut plane, &[proxied("203.0.113.1:80"), proxied("203.0.113.1:443")]);
    assert_eq!(names(&plane), ["a", "a~tcp4,proxy=9000"]);
    assert_eq!(selected_backends(&plane, "203.0.113.1:80", 6), [0_u8; 0], "it has no table");
    assert_eq!(selected_backends(&plane, "203.0.113.1:443", 6), [1, 2]);
    let ports = |plane: &RegionPlane<'_>| {
        let set = plane.writer.committed();
        set.services().map(|(_, service)| service.proxy_port).collect::<Vec<_>>()
    };
    assert_eq!(ports(&plane), [9000, 0]);
    let before = dumped(&plane);
    let has_line = |port: u16, what: &str| {
        let start = format!("SVC: ADDR=203.0.113.1:{port}/TCP SLOT=0 {what}");
        before.iter().any(|line| line.starts_with(&start))
    };
    assert!(has_line(80, "L7Proxy=9000") && has_line(443, "LBALG=maglev"), "{before:#?}");
    drop(plane);
    let plane = attach(region);
    assert_eq!((dumped(&plane), ports(&plane)), (before, vec![9000, 0]));
}
