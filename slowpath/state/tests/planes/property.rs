//! Random changes compared with a simple model, with and without faults, checked at every write.

use proptest::prelude::*;

use crate::fixture::model::Model;
use crate::fixture::{Fixture, ops};

/// Applies the changes encoded by the numbers, while `per_mille` of 1,000 writes fail.
fn apply_changes(numbers: &[u64], per_mille: u32) {
    let (mut fixture, mut model) = (Fixture::new(), Model::default());
    for number in numbers {
        fixture.plane.maps_mut().per_mille = per_mille;
        ops::change(&mut fixture, &mut model, *number);
        fixture.step();
        if per_mille == 0 {
            fixture.steps();
            fixture.assert_is(&model);
        }
    }
    fixture.settle();
    fixture.assert_is(&model);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn without_faults_maps_match_the_model_after_each_change(
        numbers in prop::collection::vec(any::<u64>(), 1..60)
    ) {
        apply_changes(&numbers, 0);
    }

    #[test]
    fn with_faults_maps_converge_to_the_model(
        numbers in prop::collection::vec(any::<u64>(), 1..60)
    ) {
        apply_changes(&numbers, 100);
    }
}
