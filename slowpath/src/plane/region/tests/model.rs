//! Random batches on a region, compared with a model: with restarts, and with a region that is too
//! small.

use super::*;
use config::checked::Prefix;
use config::services::RangesPolicy;
use map_plane::{MapPlane, MemoryMaps, Options};
use proptest::prelude::*;
use state::object::{ProxyRedirect, ServiceSpec, SourceRanges};

#[derive(Clone, Debug)]
enum Step {
    /// Frontend, service, bit mask of backends, number of terminating backends.
    Update(u8, u8, u8, u8),
    Delete(u8),
    Commit,
    Restart,
    Prune,
    Reclaim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..12, 0u8..6, any::<u8>(), 0u8..3)
            .prop_map(|(f, s, b, t)| Step::Update(f, s, b, t)),
        2 => (0u8..12).prop_map(Step::Delete),
        3 => Just(Step::Commit),
        1 => Just(Step::Restart),
        1 => Just(Step::Prune),
        1 => Just(Step::Reclaim),
    ]
}

fn address(frontend: u8) -> Address {
    let protocol = if frontend.is_multiple_of(3) { 17 } else { 6 };
    at(&format!("203.0.113.{frontend}:80"), protocol)
}

/// Frontends of one service and protocol have the same backends, as selection returns them. Each
/// service has its own policy.
fn desired(frontend: u8, service_number: u8, backends: u8, terminating: u8) -> DesiredFrontend {
    let policy = |spec: &mut ServiceSpec| match service_number {
        1 => spec.affinity_s = 60,
        2 => spec.algorithm = Algorithm::Random,
        4 => {
            spec.proxy_redirect = Some(Arc::new(ProxyRedirect { port: 9000, ports: Vec::new() }));
        }
        3 => {
            let prefix = |last| Prefix { addr: IpAddr::from([10, 0, 0, last]), len: 32 };
            // Unsorted, and one occurs twice.
            let prefixes = [9, 4, 9, 5].map(prefix).to_vec();
            let policy = RangesPolicy::Deny;
            spec.source_ranges = Some(Arc::new(SourceRanges { policy, prefixes }));
            spec.affinity_s = 1;
        }
        _ => {}
    };
    let of = service(&format!("s{service_number}")).with(policy).unwrap();
    let mut instances: Vec<Instance> =
        (0..8).filter(|n| backends >> n & 1 == 1).map(|n| instance(&of, 11 + n)).collect();
    for backend in instances.iter_mut().take(usize::from(terminating)) {
        backend.state = State::Terminating;
    }
    chosen(of, address(frontend), instances)
}

type Model = BTreeMap<u8, DesiredFrontend>;

/// Applies a step to plane and model. A rejected frontend keeps its former state in the model.
fn apply(plane: &mut RegionPlane<'_>, model: &mut Model, step: &Step) {
    match step {
        Step::Update(frontend, of, backends, terminating) => {
            let one = desired(*frontend, *of, *backends, *terminating);
            if plane.update(&one).is_ok() {
                let same = |other: &DesiredFrontend| {
                    other.frontend.service.name == one.frontend.service.name
                        && other.frontend.address().protocol == one.frontend.address().protocol
                };
                for other in model.values_mut().filter(|other| same(other)) {
                    (other.backends, other.serving) = (one.backends.clone(), one.serving);
                }
                model.insert(*frontend, one);
            }
        }
        Step::Delete(frontend) => {
            plane.delete(&address(*frontend)).unwrap();
            model.remove(frontend);
        }
        Step::Prune => {
            let keep: Vec<Address> = model.keys().copied().map(address).collect();
            plane.prune(&|address| keep.contains(address), usize::MAX).unwrap();
        }
        Step::Commit | Step::Restart | Step::Reclaim => {}
    }
}

/// Checks that new flows are sent to serving backends only, and that the dump equals the model.
fn check(plane: &RegionPlane<'_>, model: &Model) {
    let last = |instance: &Arc<Instance>| match instance.endpoint.addr {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(_) => 0,
    };
    let mut slots = Vec::new();
    for (frontend, desired) in model {
        let at = address(*frontend);
        let selected = selected_backends(plane, &format!("203.0.113.{frontend}:80"), at.protocol);
        let mut serving: Vec<u8> = desired.serving().iter().map(last).collect();
        if desired.frontend.service.spec.proxy_redirect.is_some() {
            serving.clear();
        }
        assert_eq!(selected, serving, "{at}");
        slots.extend((1..).zip(&desired.backends).map(|(slot, b)| (at, slot, b.endpoint)));
    }
    let dump = plane.dump();
    let endpoint = |id: u32| {
        dump.iter().find_map(|record| match record {
            Record::Backend { id: other, endpoint, .. } if *other == id => Some(*endpoint),
            _ => None,
        })
    };
    let mut dump_slots: Vec<(Address, u32, Endpoint)> = dump
        .iter()
        .filter_map(|record| match record {
            Record::Slot { address, slot, backend, .. } => {
                Some((*address, *slot, endpoint(*backend).unwrap()))
            }
            _ => None,
        })
        .collect();
    dump_slots.sort();
    slots.sort();
    assert_eq!(dump_slots, slots);
    assert_eq!(dumped(plane), as_maps(model), "the dump of the maps");
    let frontends = dump.iter().filter(|record| matches!(record, Record::Service { .. })).count();
    assert_eq!(frontends, model.len());
}

/// Returns the dump of a plane over the map model with the same frontends.
fn as_maps(model: &Model) -> Vec<String> {
    let options = Options { maglev_size: 251, ..Options::default() };
    let mut maps = MapPlane::new(MemoryMaps::new(map_plane::Sizes::default()), options);
    for desired in model.values() {
        maps.update(desired).unwrap();
    }
    text(&maps.dump(), &TextFormat::WITHOUT_IDENTIFIERS)
}

fn run(sizes: &Sizes, steps: &[Step]) {
    let region = Box::leak(Box::new(Region::anonymous(sizes).unwrap()));
    let (mut model, mut committed) = (Model::new(), Model::new());
    let mut plane = attach(region);
    let mut now = Instant::now();
    plane.begin().unwrap();
    for step in steps {
        match step {
            Step::Restart => {
                // Uncommitted changes are lost.
                drop(plane);
                plane = attach(region);
                model.clone_from(&committed);
                check(&plane, &committed);
                plane.begin().unwrap();
            }
            Step::Commit | Step::Reclaim => {
                match plane.commit() {
                    Ok(_) => committed.clone_from(&model),
                    Err(_) => model.clone_from(&committed),
                }
                check(&plane, &committed);
                now += Duration::from_secs(2);
                if matches!(step, Step::Reclaim) {
                    plane.reclaim(now, &|_, _| true);
                    check(&plane, &committed);
                }
                plane.begin().unwrap();
            }
            step => apply(&mut plane, &mut model, step),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_region_matches_the_model(steps in proptest::collection::vec(step(), 1..60)) {
        run(&Sizes::SMALL, &steps);
    }

    #[test]
    fn a_region_that_is_too_small_matches_the_accepted_model(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        let few = Sizes { slots: 900, services: 6, frontends: 7, backends: 6, ..Sizes::SMALL };
        run(&Sizes { next_hops: 6, ..few }, &steps);
    }
}
