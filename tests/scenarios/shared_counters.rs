//! Services and backends without counters of their own are counted together, on both planes.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    pub mod loaded;
    pub mod memory;
    pub mod xdp;
}

use planes::loaded::Loaded;
use planes::memory::Memory;
use planes::xdp::{Xdp, namespace};
use std::error::Error;
use tables::counters::{LcorePage, ServiceCounter};
use tests::cases::Plane;
use tests::cases::addresses::{INGRESS, from_gateway, syn};
use tests::cases::setups::{Setup, WEB, WEB_BACKEND, aws_nat, service};

/// The frontend of service "other"; that of "web" is [`WEB`].
const OTHER: &str = r#"{address = "203.0.113.11", port = 80, protocol = "tcp"}"#;
/// The backend of service "other".
const OTHER_BACKEND: &str = r#"{address = "10.0.2.12", port = 8080}"#;
/// The number of packets to "other" and to "web".
const SENT: [u64; 2] = [3, 5];

/// Creates a setup of two services with one backend each; the keys `region` set how many of them
/// have counters of their own.
fn setup(region: &'static str) -> Setup {
    let nat = "mode = \"nat\"";
    let services =
        service("other", nat, OTHER, OTHER_BACKEND) + &service("web", nat, WEB, WEB_BACKEND);
    Setup { services, region, ..aws_nat() }
}

/// Returns packets, new flows and bytes of each of the two services and of all services without
/// counters of their own; then the same of backends.
fn counted(loaded: &Loaded) -> [[Vec<u64>; 3]; 2] {
    let kinds = [ServiceCounter::Packets, ServiceCounter::NewFlows, ServiceCounter::Bytes];
    let counters = loaded.region.counters();
    let of = |one: &dyn Fn(&LcorePage<'_>, ServiceCounter) -> u64| -> Vec<u64> {
        kinds.iter().map(|kind| counters.sum(|page| one(page, *kind))).collect()
    };
    [
        [
            of(&|page, kind| page.service_count(0, kind)),
            of(&|page, kind| page.service_count(1, kind)),
            of(&|page, kind| page.other_services_count(kind)),
        ],
        [
            of(&|page, kind| page.backend_count(0, kind)),
            of(&|page, kind| page.backend_count(1, kind)),
            of(&|page, kind| page.other_backends_count(kind)),
        ],
    ]
}

/// Checks the counters with all, one and none of the services and backends counted separately.
fn check_counts<P: Plane>(plane: &mut P, counted: fn(&mut P) -> [[Vec<u64>; 3]; 2]) {
    let mut send = |region: &'static str| {
        plane.load(&setup(region));
        for (to, packets) in [("203.0.113.11:80", SENT[0]), ("203.0.113.10:80", SENT[1])] {
            for _ in 0..packets {
                let left = plane.send(INGRESS, &from_gateway(1, syn().to(to)).bytes());
                assert_eq!(left.len(), 1, "{} {to}", plane.name());
            }
        }
        counted(plane)
    };
    let all = send("");
    for [first, second, others] in &all {
        let mut packets = [first[0], second[0]];
        packets.sort_unstable();
        assert_eq!((packets, first[1], second[1]), (SENT, 1, 1));
        assert_eq!(others[..], [0, 0, 0]);
    }
    let none = vec![0; 3];
    let sum = |of: &[Vec<u64>; 3]| -> Vec<u64> {
        of[0].iter().zip(&of[1]).map(|(first, second)| first + second).collect()
    };
    let [services, backends] = send("counted_services = 1\ncounted_backends = 0");
    assert_eq!(services, [all[0][0].clone(), none.clone(), all[0][1].clone()]);
    assert_eq!(backends, [none.clone(), none.clone(), sum(&all[1])]);
    let [services, backends] = send("counted_services = 0\ncounted_backends = 1");
    assert_eq!(services, [none.clone(), none.clone(), sum(&all[0])]);
    assert_eq!(backends, [all[1][0].clone(), none, all[1][1].clone()]);
}

#[test]
fn objects_without_own_counters_count_as_others_in_memory() {
    check_counts(&mut Memory::new(), |plane| counted(plane.loaded()));
}

#[test]
fn objects_without_own_counters_count_as_others_in_the_kernel() -> Result<(), Box<dyn Error>> {
    let namespace = namespace("counted-xdp")?;
    namespace.run(|| check_counts(&mut Xdp::new(), |plane| counted(plane.loaded())))?;
    Ok(())
}
