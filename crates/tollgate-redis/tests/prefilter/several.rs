//! Requests of several rules, one of each consistency.

use std::time::Duration;

use tollgate_core::{HOUR, SECOND};
use tollgate_test_servers::blocking_server::RedisServer;

use crate::{
    fleet::{Fleet, PATIENT},
    load::{EXACT, LEASED, Limit, Load, RuleLoad, bucket, eventual},
};

/// Three rules; the one at the index `short` has the small limit.
fn rules(prefix: &str, short: usize, limit: Limit) -> [RuleLoad; 3] {
    let plenty = bucket(4_000, 1, HOUR);
    let mut limits = [plenty; 3];
    limits[short] = limit;
    let name = |of: &str| format!("{prefix}-{of}");
    [
        RuleLoad::new(&name("leased"), limits[0], LEASED),
        RuleLoad::new(&name("exact"), limits[1], EXACT),
        RuleLoad::new(&name("eventual"), limits[2], eventual(20)),
    ]
}

#[test]
fn each_rule_keeps_its_bound_and_a_denial_by_one_takes_nothing_from_the_others() {
    let server = RedisServer::start(&[]);
    let address = format!("redis://{}", server.address());
    for short in 0..3 {
        let rule_loads = rules(&format!("short-{short}"), short, bucket(100, 100, SECOND));
        let load = Load {
            pause: Duration::from_millis(8),
            ..Load::new(rule_loads, Duration::from_secs(2))
        };
        let mut fleet = Fleet::start(&address, PATIENT);
        let counts = fleet.run(&load);
        assert!(
            counts.allowed > 50 && counts.layout > counts.allowed * 3 / 2,
            "{counts:?}"
        );
        fleet.keeps_its_bounds(&load, 0);
        let units: Vec<_> = (0..3).map(|rule| fleet.units(rule)).collect();
        assert_eq!(units, [counts.allowed; 3]);
        // The others have as many left as was not admitted: less what processes hold, and what they have not reported.
        let plenty = Load {
            lasts: Duration::from_millis(1),
            tasks: 1,
            ..load.clone()
        };
        drop(fleet);
        let left = left(&address, &plenty);
        for (place, left) in left
            .into_iter()
            .enumerate()
            .filter(|(place, _)| *place != short)
        {
            let rest = 4_000 - counts.allowed;
            let held = match place {
                0 => 400 + 50,
                1 => 0,
                _ => 1,
            };
            assert!(left <= rest + 8 * 20, "rule {place}: {left} of {rest}");
            assert!(left + held >= rest, "rule {place}: {left} of {rest}");
        }
    }
}

/// What is left to the one client of a job, by a store of this process.
fn left(address: &str, load: &Load) -> Vec<u64> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = crate::worker::store(address, PATIENT).await;
        let limiter = load.limiter(&store);
        let checks = crate::worker::checks(load, &limiter, 0).into_iter();
        let checks: Vec<_> = checks.map(|check| check.with_cost(0)).collect();
        let looked = limiter.peek(&checks).await;
        looked.verdicts().iter().map(|it| it.remaining()).collect()
    })
}
