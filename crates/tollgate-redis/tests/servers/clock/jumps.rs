//! The server's clock jumps.
//!
//! Every time here is one by the server's clock. It also goes on by itself, so that what is told or left may be less by as
//! much as a test takes: [`SLACK`] is more than that.

use std::{ops::RangeInclusive, time::Duration};

use tollgate_core::{
    Check, Decision, HOUR, Key, Limiter, MAX_PERIOD, MINUTE, Quota, Retry, Rule,
    calendar::CalendarUnit,
};
use tollgate_redis::{Partition, RedisStore};
use tollgate_test_servers::moved_server::{Micros, MovedServer};
use tollgate_test_services::{
    patient::acquire,
    quotas::{every_algorithm, horizon, wait},
};

const LIMIT: u64 = 5;
const SLACK: Duration = Duration::from_secs(120);

/// A quarter past a full hour, which is in the middle of ten minutes.
const START: Micros = 472_222 * 3_600_000_000 + 900_000_000;
const DAY: Micros = 86_400_000_000;
const BACK: Micros = -3_600_000_000;
const AHEAD: Micros = 3 * 3_600_000_000;

/// One rule on a server whose clock can be moved.
struct Moved<'a> {
    server: &'a mut MovedServer,
    limiter: Limiter,
    rule: String,
    quota: Quota,
}

impl Moved<'_> {
    fn check(&self, cost: u64) -> [Check; 1] {
        let check = self.limiter.check(&self.rule, &Key::of("client"));
        [check.expect("the rule is there").with_cost(cost)]
    }

    async fn take(&self, cost: u64) -> Decision {
        acquire(&self.limiter, &self.check(cost)).await
    }

    async fn is_left(&self, units: u64) {
        let looked = self.limiter.peek(&self.check(0)).await;
        assert_eq!(looked.verdicts()[0].remaining(), units, "{:?}", self.quota);
    }

    async fn uses_everything_up(&self) {
        assert!(self.take(LIMIT).await.is_allowed(), "{:?}", self.quota);
        self.is_denied().await;
    }

    async fn is_denied(&self) -> Duration {
        let denied = self.take(1).await;
        assert!(!denied.is_allowed(), "{:?}", self.quota);
        let reported = wait(denied.retry());
        assert!(
            reported <= 2 * self.quota.window(),
            "{reported:?}: {:?}",
            self.quota
        );
        reported
    }

    /// Asserts that the state lives until it is fresh, and not longer.
    async fn lives_until_it_is_fresh(&self) {
        let looked = self.limiter.peek(&self.check(0)).await;
        let reset = looked.verdicts()[0].reset_after();
        let lives = self.server.time_to_live(&self.rule);
        let lives = Duration::from_millis(lives.unwrap_or(0).unsigned_abs());
        let right: RangeInclusive<_> = reset.saturating_sub(SLACK)..=reset + SLACK;
        assert!(
            right.contains(&lives) && !lives.is_zero(),
            "it lives for {lives:?} and is fresh after {reset:?}: {:?}",
            self.quota
        );
    }

    fn goes_on(&mut self, by: Duration) {
        let by = i64::try_from(by.as_micros()).expect("a short time");
        self.server.jump(by);
    }
}

/// Every algorithm, in windows that are shorter than the jumps and as long as one of them.
fn quotas() -> impl Iterator<Item = Quota> {
    let windows = [10 * MINUTE, HOUR];
    windows
        .into_iter()
        .flat_map(|window| every_algorithm(LIMIT, window))
}

/// A store that takes no denial for granted: what was learned before a jump is right for another second otherwise.
async fn store_that_asks(address: &str, partition: Partition) -> RedisStore {
    let store = RedisStore::builder(address, "clock", tollgate_redis::Keys::plain())
        .partition(partition)
        .deadline(Duration::from_secs(20))
        .without_deny_cache()
        .connect()
        .expect("a valid address");
    store.connected().await;
    store
}

/// Each on a day of its own, so that no case sees the time of another.
async fn each(case: impl AsyncFn(Moved<'_>)) {
    let mut server = MovedServer::start(START);
    let store = store_that_asks(&server.url(), Partition::One).await;
    for (number, quota) in quotas().enumerate() {
        let day = START + (number as Micros + 1) * DAY;
        let now = server.now();
        server.jump(day - now);
        let rule = format!("rule-{number}");
        let limiter = Limiter::new(store.clone(), [Rule::new(&*rule, quota)]);
        case(Moved {
            server: &mut server,
            limiter: limiter.expect("a valid rule"),
            rule,
            quota,
        })
        .await;
    }
}

#[tokio::test]
async fn a_clock_that_jumps_back_refills_nothing_and_locks_out_for_at_most_two_windows() {
    each(async |mut moved| {
        moved.uses_everything_up().await;
        moved.server.jump(BACK);
        moved.is_left(0).await;
        let reported = moved.is_denied().await;
        moved.is_left(0).await;
        moved.lives_until_it_is_fresh().await;
        moved.goes_on(reported);
        assert!(moved.take(1).await.is_allowed(), "{:?}", moved.quota);
        moved.goes_on(horizon(&moved.quota));
        moved.is_left(LIMIT).await;
        moved.uses_everything_up().await;
        moved.lives_until_it_is_fresh().await;
    })
    .await;
}

#[tokio::test]
async fn a_jump_ahead_gives_one_fresh_quota_and_no_more() {
    each(async |moved| {
        moved.uses_everything_up().await;
        moved.server.jump(AHEAD);
        assert_eq!(moved.server.time_to_live(&moved.rule), None);
        moved.is_left(LIMIT).await;
        let above = moved.take(LIMIT + 1).await;
        assert_eq!(above.retry(), Retry::Never, "{:?}", moved.quota);
        moved.uses_everything_up().await;
        moved.lives_until_it_is_fresh().await;
    })
    .await;
}

#[tokio::test]
async fn a_process_that_knows_the_windows_of_another_year_asks_once_more_and_counts_once() {
    // Years before the clock of this process.
    let mut server = MovedServer::start(START);
    // What goes back finds its state by the tenant, who pays nothing.
    let by_tenant = Partition::ByRule("tenant".into());
    let store = store_that_asks(&server.url(), by_tenant).await;
    let month = Quota::calendar(20, CalendarUnit::Month).zone("Asia/Kathmandu");
    let calendar = month.calendar_of().expect("it has one");
    let rules = [
        Rule::new("other", Quota::fixed_window(20, MAX_PERIOD)),
        Rule::new("month", month),
        Rule::new("tenant", Quota::fixed_window(20, MAX_PERIOD)),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let checks = [("other", 1), ("month", 1), ("tenant", 0)].map(|(rule, cost)| {
        let check = limiter.check(rule, &Key::of("client"));
        check.expect("the rule is there").with_cost(cost)
    });
    let mut used = [0; 3];
    for jump in [0, 0, 100 * DAY, -100 * DAY] {
        server.jump(jump);
        if jump > 0 {
            used[1] = 0;
        }
        let decision = acquire(&limiter, &checks).await;
        assert!(decision.is_allowed(), "{decision:?}");
        used = [used[0] + 1, used[1] + 1, 0];
        let left = decision
            .verdicts()
            .iter()
            .map(|verdict| 20 - verdict.remaining());
        assert_eq!(left.collect::<Vec<_>>(), used);
        let end = decision.at() + decision.verdicts()[1].reset_after_ticks();
        // Back in time, what a later window has counted stays.
        let ends = calendar.window(decision.at())[1].clone();
        assert!(jump < 0 || ends == calendar.window(end)[0]);
        let looked = limiter.peek(&checks.map(|check| check.with_cost(0))).await;
        assert_eq!(20 - looked.verdicts()[1].remaining(), used[1]);
    }
}
