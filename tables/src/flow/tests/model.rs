//! The table behaves like a map of keys to flows, for any order of operations.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug)]
enum Work {
    Insert(u32, u8),
    Remove(u32),
    Update(u32, u8),
    Recover,
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        8 => (0u32..400, 0u8..70).prop_map(|(n, len)| Work::Insert(n, len)),
        4 => (0u32..400).prop_map(Work::Remove),
        4 => (0u32..400, 0u8..70).prop_map(|(n, len)| Work::Update(n, len)),
        1 => Just(Work::Recover),
    ]
}

fn check(flows: &Flows<'_>, model: &HashMap<u32, (u16, Vec<u8>)>) {
    assert_eq!(flows.live() as usize, model.len());
    for n in 0..400 {
        let hit = find(flows, &nat_flow(n, 0).front);
        let Some((port, options)) = model.get(&n) else {
            assert_eq!(hit, None);
            continue;
        };
        let (back, _) = nat_flow(n, *port).back.unwrap();
        for hit in [hit, find(flows, &back)] {
            let mut answer = Answer::empty();
            flows.answer(&hit.unwrap(), true, &mut answer).unwrap();
            assert_eq!((answer.forward.backend, answer.options()), (n, &options[..]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 48 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_operations_match_a_map_model(
        works in proptest::collection::vec(work(), 1..if cfg!(miri) { 60 } else { 900 }),
    ) {
        let region = small();
        let flows = table(&region);
        let mut model: HashMap<u32, (u16, Vec<u8>)> = HashMap::new();
        for work in works {
            match work {
                Work::Insert(n, len) => {
                    let options = vec![n as u8; len.into()];
                    match insert_nat(&flows, n, &options) {
                        Ok(hit) => {
                            let port = flows.forward(&hit).unwrap().nat_port;
                            prop_assert!(model.insert(n, (port, options)).is_none());
                        }
                        Err(InsertError::Exists(_)) => prop_assert!(model.contains_key(&n)),
                        Err(InsertError::NoSlab) => prop_assert!(len > 48),
                        Err(error) => {
                            prop_assert_eq!(error, InsertError::Full);
                            prop_assert_eq!(model.len() as u32, flows.capacity());
                        }
                    }
                }
                Work::Remove(n) => {
                    let hit = find(&flows, &nat_flow(n, 0).front);
                    prop_assert_eq!(hit.is_some(), model.remove(&n).is_some());
                    prop_assert!(hit.is_none_or(|hit| flows.remove(&hit).is_some()));
                }
                Work::Update(n, len) => {
                    let options = vec![!(n as u8); len.into()];
                    if let Some(hit) = find(&flows, &nat_flow(n, 0).front)
                        && update(&flows, &hit, &GatewayLeg::default(), &options, 0)
                    {
                        model.get_mut(&n).unwrap().1 = options;
                    }
                }
                Work::Recover => {
                    let found = flows.recover();
                    let recovered = model.len() as u32;
                    prop_assert_eq!(found, Recovery { recovered, ..Recovery::default() });
                }
            }
        }
        check(&flows, &model);
        assert_consistent(&flows);
    }
}
