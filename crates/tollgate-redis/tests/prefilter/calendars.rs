//! Windows of a calendar that a process counts by itself.

use std::time::Duration;

use tollgate_core::{
    Decision, MINUTE, Quota, Rule, Source,
    calendar::CalendarUnit::{Day, Month, Week},
    journal::Window,
};
use tollgate_test_servers::{
    numbers::Numbers,
    redis_server::{PATIENCE, RedisServer},
};

use crate::{
    load::eventual,
    service::{Service, check},
};

const LIMIT: u64 = 60;
const UNREPORTED: u64 = 20;

#[tokio::test]
async fn a_process_alone_counts_a_calendar_exactly_to_both_ends_of_its_windows() {
    let server = RedisServer::start(&[]).await;
    for (name, quota) in [
        ("month", Quota::calendar(LIMIT, Month).zone("Europe/Zurich")),
        ("day", Quota::calendar(LIMIT, Day).zone("America/New_York")),
        ("week", Quota::calendar(LIMIT, Week).zone("Asia/Kathmandu")),
    ] {
        let service = Service::start(&server.url()).await;
        let rule = Rule::new(name, quota).consistency(eventual(UNREPORTED));
        let limiter = service.limiter([rule]);
        let check = check(&limiter, name);
        let (mut numbers, mut counted_here) = (Numbers(7), 0);
        let mut ask = async |cost| -> Decision {
            let decision = limiter.acquire(&[check.with_cost(cost)]).await;
            counted_here += u64::from(decision.verdicts()[0].source() == Source::Local);
            decision
        };
        let to = |time| {
            let ahead = time - service.clock.now();
            service.clock.advance(Duration::from_micros(ahead));
        };
        let mut window = Window::of(&quota, service.clock.now()).expect("it has windows");
        for number in 0..6 {
            // Every other window is used up, and nothing of it is unreported when it ends.
            let (is_exact, most) = (number % 2 == 0, if number % 2 == 0 { LIMIT } else { 12 });
            // Its last second, to its last µs, and the first one of the next.
            to(window.end - 1_000_000);
            let mut used = 0;
            for step in 0..100 {
                let cost = 1 + numbers.below(4);
                to((window.end - 1).min(service.clock.now() + 1_000 + step * 200));
                if used + cost > most && !is_exact {
                    continue;
                }
                let decision = ask(cost).await;
                assert_eq!(
                    decision.is_allowed(),
                    used + cost <= LIMIT,
                    "{used}: {decision:?}"
                );
                used += if decision.is_allowed() { cost } else { 0 };
            }
            while is_exact && ask(1).await.is_allowed() {
                used += 1;
            }
            assert_eq!(service.clock.now(), window.end - 1);
            assert!(!is_exact || used == LIMIT, "{used}");
            if is_exact {
                assert_eq!(service.store.flush(PATIENCE).await, 0);
            }
            to(window.end);
            window = Window::of(&quota, window.end).expect("it has windows");
            let mut of_next = 0;
            while ask(1).await.is_allowed() {
                of_next += 1;
                to(service.clock.now() + 1_000);
            }
            // What was not reported counts in the window in which it is.
            let least = LIMIT - if is_exact { 0 } else { UNREPORTED };
            assert!((least..=LIMIT).contains(&of_next), "{of_next} of {least}");
            assert!(service.clock.now() < window.begin + MINUTE.as_micros() as u64);
            to(window.end);
            window = Window::of(&quota, window.end).expect("it has windows");
        }
        assert!(counted_here > 100, "{counted_here} in {name}");
    }
}
