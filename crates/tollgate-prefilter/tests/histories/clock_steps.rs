//! What passes when the store's clock is set.

use proptest::prelude::*;

use crate::{
    buckets::{Bucket, quotas, terms},
    cluster::Cluster,
};

proptest! {
    /// The bucket checks at each step that no more is on lease than the reserve.
    #[test]
    fn a_clock_that_goes_back_lets_no_more_pass(
        (quota, weather) in quotas(),
        steps in prop::collection::vec(
            (prop::sample::select(vec![1, 1_000, 1_000_000, 9_000_000, 35_000_000, 3_600_000_000_i64]), 100..2_000_usize),
            1..8,
        ),
        seed in any::<u64>(),
    ) {
        let Some(terms) = terms(&quota, 300, &weather) else { return Ok(()) };
        let mut cluster = Cluster::new(Bucket::new(&quota, terms), terms, weather, seed);
        for (back, until) in steps {
            cluster.run(until);
            cluster.ahead -= back;
        }
        cluster.run(3_000);
    }

    #[test]
    fn a_clock_that_goes_forward_costs_a_burst_and_what_is_out(
        (quota, weather) in quotas(),
        until in 100..4_000_usize,
        seed in any::<u64>(),
    ) {
        let Some(terms) = terms(&quota, 300, &weather) else { return Ok(()) };
        let mut cluster = Cluster::new(Bucket::new(&quota, terms), terms, weather, seed);
        cluster.run(until);
        cluster.ahead += 3 * 3_600_000_000;
        cluster.shared.above = cluster.out();
        cluster.shared.exact.fill();
        cluster.run(4_000);
    }
}
