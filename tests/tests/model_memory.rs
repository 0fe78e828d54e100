//! The memory model against itself: the comparison must find nothing, and must find a difference that is
//! put there.

use std::sync::Arc;

use aqueduct_tests::{lane::Lane, model::pair::Pair, model::steps};
use backends::{
    Backend,
    fault::{FaultBackend, FaultPlan},
    memory::{MemoryBackend, MemorySettings},
};
use proptest::{prelude::*, strategy::ValueTree};

fn memory() -> Arc<MemoryBackend> {
    MemoryBackend::new(MemorySettings { bytes_max: 1 << 45, ..MemorySettings::default() })
}

fn with_faults(inner: Arc<dyn Backend>, seed: u64, rules: &[&str]) -> Arc<FaultBackend> {
    let rules = rules.iter().map(|rule| rule.parse().expect("a valid rule")).collect();
    FaultBackend::wrap(inner, FaultPlan { seed, rules })
}

/// This many runs; what fails is printed, not kept in the source tree.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn delays_change_nothing(steps in steps::run(), seed in any::<u64>()) {
        let slow = with_faults(memory(), seed, &["any 1/4 hold 2", "any 1/20 delay 10us"]);
        let mut pair = Pair::new(Lane::attach(memory()), Lane::attach(slow));
        prop_assert_eq!(pair.run(&steps), Ok(()));
    }
}

#[test]
fn the_comparison_notices_each_kind_of_fault() {
    for rule in ["write #3 short", "rename #2 fail-before io", "remove #1 fail-after access"] {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let noticed = (0..60).any(|seed| {
            let steps = steps::run().new_tree(&mut runner).expect("steps can be made").current();
            let faulty = with_faults(memory(), seed, &[rule]);
            Pair::new(Lane::attach(memory()), Lane::attach(faulty)).run(&steps).is_err()
        });
        assert!(noticed, "no run noticed {rule}");
    }
}
