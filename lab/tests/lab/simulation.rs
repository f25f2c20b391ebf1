//! The workloads at a small size: what must hold in every run, and what the policy is tuned to.

use tollgate_lab::{Consistency, Figures, Network, Scene, Workload, run};

fn workload(name: &str) -> Workload {
    name.parse().expect("a workload")
}

fn figures(scene: &Scene, consistency: Consistency, round_trip: u64, seed: u64) -> Figures {
    run(scene, consistency, Network::new(round_trip), seed).expect("a bucket")
}

/// What is simulated of all workloads.
fn all(
    scene: &Scene,
    consistencies: impl IntoIterator<Item = Consistency>,
    round_trip: u64,
    seed: u64,
) -> impl Iterator<Item = (Consistency, Figures)> {
    let run = move |one| Some((one, run(scene, one, Network::new(round_trip), seed)?));
    consistencies.into_iter().filter_map(run)
}

/// Those whose quotas are buckets.
fn buckets() -> impl Iterator<Item = Workload> {
    let is_bucket = |one: &Workload| !["daily", "sliding"].contains(&one.name());
    Workload::ALL.into_iter().filter(is_bucket)
}

fn assert_never_over(seconds: f64, round_trip: u64, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        for workload in Workload::ALL {
            let scene = workload.draw(seed, seconds);
            let strict = Consistency::ALL.into_iter().filter(|one| one.is_strict());
            for (consistency, figures) in all(&scene, strict, round_trip, seed) {
                let over = figures.over;
                assert_eq!(over, 0.0, "{workload}, {consistency}, seed {seed}");
            }
        }
    }
}

#[test]
fn exact_and_leased_never_let_more_through_than_the_limit() {
    assert_never_over(12.0, 500, 1..3);
}

#[test]
fn eventual_lets_through_no_more_than_all_processes_may_keep_back() {
    // Where processes die, what they have not reported is forgotten.
    for workload in buckets().filter(|one| one.name() != "dying") {
        let scene = workload.draw(1, 12.0);
        let limit = scene.quota.limit();
        let unreported = u64::from(scene.processes) * (limit / 20);
        let over = figures(&scene, Consistency::Eventual, 500, 1).over;
        assert!(
            over <= unreported as f64 / limit as f64,
            "{workload}: {over}"
        );
    }
}

#[test]
fn hot_keys_under_their_limit_ask_for_six_requests_in_a_hundred_at_most() {
    let scene = workload("hot").draw(1, 30.0);
    let hot = figures(&scene, Consistency::Leased(100), 500, 1);
    let calls = hot.calls_per_request();
    assert!(calls <= 0.06, "{calls}");
    assert_eq!((hot.over, hot.falsely_refused), (0.0, 0));
}

#[test]
fn a_cold_key_is_never_asked_for_more_than_once_a_request() {
    let scene = workload("cold").draw(1, 20.0);
    let exact = figures(&scene, Consistency::Exact, 500, 1);
    let leased = figures(&scene, Consistency::Leased(100), 500, 1);
    assert!(leased.calls <= leased.requests);
    assert_eq!(leased.latency(500), exact.latency(500));
    assert_eq!(leased.latency(990), exact.latency(990));
}

#[test]
fn a_tenth_on_lease_uses_ninety_seven_hundredths_of_what_exact_does() {
    for workload in Workload::ALL {
        let scene = workload.draw(1, 30.0);
        let used = figures(&scene, Consistency::Leased(100), 500, 1).utilisation();
        assert!(used >= 0.97, "{workload}: {used}");
    }
}

#[test]
fn exact_refuses_nothing_that_fits() {
    for workload in Workload::ALL {
        let scene = workload.draw(1, 12.0);
        let exact = [Consistency::Exact, Consistency::DenyCache];
        for (consistency, figures) in all(&scene, exact, 500, 1) {
            assert_eq!(figures.falsely_refused, 0, "{workload}, {consistency}");
        }
    }
}

#[test]
fn what_another_rule_denies_costs_nothing_of_a_window_that_is_granted() {
    for (seed, round_trip) in [(1, 500), (2, 500), (3, 5_000)] {
        // The whole limit of a day is requested in 34 s.
        let scene = workload("daily").draw(seed, 60.0);
        let daily = figures(&scene, Consistency::Leased(100), round_trip, seed);
        assert_eq!((daily.admitted, daily.ideal), (5_000, 5_000), "seed {seed}");
        assert!(daily.calls_per_request() < 0.75);
        let scene = workload("sliding").draw(seed, 60.0);
        let sliding = figures(&scene, Consistency::Leased(100), round_trip, seed);
        let used = sliding.utilisation();
        assert!(used > 0.99, "{used}, seed {seed}");
    }
}

#[test]
fn a_key_at_twice_its_limit_on_many_processes_asks_for_six_requests_in_a_hundred_at_most() {
    let scene = workload("global").draw(1, 60.0);
    let global = figures(&scene, Consistency::Leased(100), 500, 1);
    let calls = global.calls_per_request();
    assert!(calls <= 0.06, "{calls}");
    let (used, even) = (global.utilisation(), global.fairness());
    assert!(used >= 0.98 && even >= 0.8, "{used}, {even}");
}
