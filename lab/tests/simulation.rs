//! The workloads at a small size: what must hold in every run, and what the policy is tuned to.

use tollgate_lab::{Consistency, Figures, Network, Scene, Workload, run};

fn workload(name: &str) -> Workload {
    name.parse().expect("a workload")
}

fn figures(scene: &Scene, consistency: Consistency, round_trip: u64, seed: u64) -> Figures {
    run(scene, consistency, Network::new(round_trip), seed).expect("a bucket")
}

fn assert_never_over(seconds: f64, round_trip: u64, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        for workload in Workload::ALL {
            let scene = workload.draw(seed, seconds);
            for consistency in Consistency::ALL.into_iter().filter(|one| one.is_strict()) {
                let over = figures(&scene, consistency, round_trip, seed).over;
                assert_eq!(over, 0.0, "{workload}, {consistency}, seed {seed}");
            }
        }
    }
}

#[test]
fn exact_and_leased_never_let_more_through_than_the_limit() {
    assert_never_over(12.0, 500, 1..4);
}

#[test]
fn nor_do_they_over_a_slow_network() {
    assert_never_over(6.0, 20_000, 4..5);
}

#[test]
fn eventual_lets_through_no_more_than_all_processes_may_keep_back() {
    // Where processes die, what they have not reported is forgotten.
    for workload in Workload::ALL.iter().filter(|one| one.name() != "dying") {
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
fn an_adversary_gets_a_limit_from_each_process_where_reports_have_no_bound() {
    let scene = workload("sweep").draw(1, 5.0);
    assert!(figures(&scene, Consistency::Plain, 500, 1).over > 2.0);
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
    for consistency in [Consistency::Exact, Consistency::Learned] {
        for workload in Workload::ALL {
            let scene = workload.draw(1, 12.0);
            let falsely = figures(&scene, consistency, 500, 1).falsely_refused;
            assert_eq!(falsely, 0, "{workload}, {consistency}");
        }
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

#[test]
fn credit_lines_spare_calls_for_cold_keys_and_refuse_bursts_early() {
    let cold = workload("cold").draw(1, 60.0);
    let calls = figures(&cold, Consistency::Credit(250), 500, 1).calls_per_request();
    assert!(calls <= 0.33, "{calls}");
    let bursts = workload("bursts").draw(1, 60.0);
    let room = figures(&bursts, Consistency::Credit(250), 500, 1).room_then;
    assert!(room >= 0.2, "{room}");
}
