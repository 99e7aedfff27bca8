//! Random changes compared with a simple model, with and without faults, checked at every write.

use proptest::prelude::*;

use crate::world::model::Model;
use crate::world::{World, ops};

fn play(numbers: &[u64], per_mille: u32) {
    let (mut world, mut model) = (World::new(), Model::default());
    for number in numbers {
        world.plane.maps_mut().per_mille = per_mille;
        ops::change(&mut world, &mut model, *number);
        world.step();
        if per_mille == 0 {
            world.steps();
            world.assert_is(&model);
        }
    }
    world.settle();
    world.assert_is(&model);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn without_faults_the_maps_are_the_models_after_each_change(
        numbers in prop::collection::vec(any::<u64>(), 1..60)
    ) {
        play(&numbers, 0);
    }

    #[test]
    fn with_faults_the_maps_become_the_models(
        numbers in prop::collection::vec(any::<u64>(), 1..60)
    ) {
        play(&numbers, 100);
    }
}
